# SPDX-License-Identifier: Apache-2.0
"""Messages between a grader and a submission: plain values in bounded JSON, never objects.

The type of a received value is exactly a builtin type, so that comparing the value cannot run code
of the sender.
"""

from __future__ import annotations

import base64
import json
import select
import socket
import struct
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ..json_input import read_json

MAX_MESSAGE = 1 << 20
_LENGTH = struct.Struct("<I")
_SCALARS = (bool, int, float, str, type(None))


class BadMessage(ValueError):
    """A message that is too long or malformed."""


def encode(value: Any, reference: Callable[[Any], dict[str, Any] | None] | None = None) -> Any:
    """Return the JSON form of a value.

    Args:
        value: None, a number, text, bytes, or a list, tuple or dict of these. NumPy's numbers and
            arrays of bytes count as numbers and bytes.
        reference: Encoder of values of other types; it returns None to refuse a value.

    Raises:
        TypeError: A value has another type, and `reference` refuses it.
    """
    if type(value) in _SCALARS:
        return value
    if isinstance(value, (bytes, bytearray, memoryview)):
        return {"bytes": base64.b64encode(bytes(value)).decode()}
    if isinstance(value, Mapping):
        pairs = [[encode(key, reference), encode(item, reference)] for key, item in value.items()]
        return {"map": pairs}
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [encode(item, reference) for item in value]
    if reference and (made := reference(value)) is not None:
        return made
    if hasattr(value, "tolist"):  # a NumPy number or array
        return encode(value.tolist(), reference)
    for kind in (bool, int, float, str):  # instances of subclasses, such as an IntEnum
        if isinstance(value, kind):
            return kind(value)
    raise TypeError(f"{type(value).__name__} is not a number, text, bytes, list or dict")


def decode(value: Any, reference: Callable[[dict[str, Any]], Any] | None = None) -> Any:
    """Return the value that was passed to encode(), with tuples as lists.

    Raises:
        BadMessage: The value is malformed.
    """
    if isinstance(value, list):
        return [decode(item, reference) for item in value]
    if not isinstance(value, dict):
        return value
    try:
        if set(value) == {"bytes"}:
            return base64.b64decode(value["bytes"], validate=True)
        if set(value) == {"map"}:
            return {decode(key, reference): decode(item, reference) for key, item in value["map"]}
        if reference:
            return reference(value)
    except (TypeError, ValueError, KeyError) as exc:
        raise BadMessage(f"malformed value: {exc}") from None
    raise BadMessage("malformed value")


def send(sock: socket.socket, message: list[Any], deadline: float | None = None) -> None:
    """Send a message of encoded values.

    Raises:
        BadMessage: The message is longer than MAX_MESSAGE bytes.
        TimeoutError: It could not be sent before `deadline`, a value of time.monotonic().
        OSError: The other end is closed.
    """
    body = json.dumps(message).encode()
    if len(body) > MAX_MESSAGE:
        raise BadMessage(f"a message of {len(body)} bytes; the limit is {MAX_MESSAGE}")
    sock.settimeout(_left(deadline))
    sock.sendall(_LENGTH.pack(len(body)) + body)


def receive(sock: socket.socket, deadline: float | None = None) -> list[Any]:
    """Return the next message.

    Raises:
        BadMessage: The message is too long, or not a list in JSON.
        EOFError: The other end is closed.
        TimeoutError: The message did not arrive completely before `deadline`.
    """
    (size,) = _LENGTH.unpack(_receive_exactly(sock, _LENGTH.size, deadline))
    if size > MAX_MESSAGE:
        raise BadMessage(f"a message of {size} bytes; the limit is {MAX_MESSAGE}")
    try:
        message = read_json(_receive_exactly(sock, size, deadline))
    except ValueError:
        raise BadMessage("a message that is not JSON") from None
    if not isinstance(message, list) or not message:
        raise BadMessage("a message that is not a list")
    return message


def _receive_exactly(sock: socket.socket, size: int, deadline: float | None) -> bytes:
    parts: list[bytes] = []
    while size:
        if deadline is not None and not select.select([sock], [], [], _left(deadline))[0]:
            raise TimeoutError
        try:
            part = sock.recv(size)
        except ConnectionError:
            part = b""
        if not part:
            raise EOFError
        parts.append(part)
        size -= len(part)
    return b"".join(parts)


def _left(deadline: float | None) -> float | None:
    """Return the seconds until a deadline, at least a millisecond."""
    return None if deadline is None else max(0.001, deadline - time.monotonic())
