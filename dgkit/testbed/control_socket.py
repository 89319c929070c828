# SPDX-License-Identifier: Apache-2.0
"""Messages between a testbed's supervisor and its clients, over a Unix socket.

A request is a line of JSON. Its answer is a line of JSON, except for `run`, whose answer is a
series of frames: a kind, a length, and bytes. When a client closes its socket, its command ends.
"""

from __future__ import annotations

import contextlib
import json
import socket
import struct
from collections.abc import Iterator
from typing import Any

OUTPUT, ERRORS = b"o", b"e"  # bytes that a command printed
DONE, ERROR = b"d", b"x"  # exit status as text; reason why there is no exit status
_HEAD = struct.Struct("<cI")
_LINE = 1 << 20  # maximum length of a line in bytes


def send(link: socket.socket, message: dict[str, Any]) -> None:
    """Send a line of JSON."""
    link.sendall(json.dumps(message, default=str).encode() + b"\n")


def read_line(link: socket.socket) -> dict[str, Any] | None:
    """Receive a line of JSON; None if the other side has closed the socket, or was killed."""
    line = bytearray()
    while not line.endswith(b"\n"):
        if not (part := received(link, 1)) or len(line) == _LINE:
            return None
        line += part
    message = json.loads(line)
    assert isinstance(message, dict)
    return message


def received(link: socket.socket, size: int) -> bytes:
    """Return what has arrived; b"" if the other side has closed the socket, or was killed.

    A process that is killed before it has read all that it was sent resets its socket.
    """
    try:
        return link.recv(size)
    except ConnectionResetError:
        return b""


def frame(kind: bytes, content: bytes) -> bytes:
    """Return a frame of an answer to `run`."""
    return _HEAD.pack(kind, len(content)) + content


def frames(link: socket.socket) -> Iterator[tuple[bytes, bytes]]:
    """Yield the frames of an answer until the other side closes the socket, or is killed."""
    with link.makefile("rb") as stream, contextlib.suppress(ConnectionResetError):
        while len(head := stream.read(_HEAD.size)) == _HEAD.size:
            kind, length = _HEAD.unpack(head)
            yield kind, stream.read(length)
