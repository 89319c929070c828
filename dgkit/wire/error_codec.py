# SPDX-License-Identifier: Apache-2.0
"""Serialize an exception by class name and message."""

from __future__ import annotations

import errno
import re
from typing import Any

from .. import errors
from ..types import PATHS, Op, Status, TransferPath
from ..units import printable
from .messages import Failed, Failure

_KINDS: dict[str, type[Exception]] = {name: getattr(errors, name) for name in errors.__all__}
_EXPLAINED = (errors.DeviceUnavailable, errors.ExportError)
_KINDS |= {cls.__name__: cls for cls in (ValueError, TypeError)}
_MAX_TEXT = 4096
_CHECK = re.compile(r"[a-z0-9-]{1,40}")  # appears in a command to type: dgkit doctor CHECK


class FailedCompletion:
    """Completion of a transfer that failed at an agent; `size` is 0."""

    __slots__ = ("complete_ns", "op", "path", "post_ns", "size", "status", "submit_ns")

    def __init__(self, failure: Failure) -> None:
        self.status = Status(failure.status)
        self.op = Op(failure.op)
        self.path = PATHS[failure.path].value
        self.size = 0
        self.submit_ns = failure.submit_ns
        self.post_ns = failure.post_ns
        self.complete_ns = failure.complete_ns

    @property
    def latency_ns(self) -> int:
        """Nanoseconds from submit to completion."""
        return self.complete_ns - self.submit_ns

    def __repr__(self) -> str:
        return f"<FailedCompletion {self.status.name} {self.op.name.lower()} path={self.path}>"


def to_wire(exc: BaseException, request_id: int) -> Failed:
    """Return the message for an exception.

    An exception outside dgkit's tree is sent as PeerError, except ValueError and TypeError.
    """
    kind, text, number = type(exc).__name__, _text_of(exc), _errno(exc)
    if number and isinstance(exc, OSError):
        text = str(exc.strerror or text)
    check = ""
    if isinstance(exc, _EXPLAINED):
        check, text = exc.check, exc.words
    if kind not in _KINDS and number in (errno.EMFILE, errno.ENFILE):
        kind, text = "LimitReached", f"no file descriptor is left (`ulimit -n` sets it): {text}"
    if kind not in _KINDS:
        kind, text = "PeerError", f"the other side failed: {kind}: {text}"
    failure = None
    if isinstance(exc, errors.TransferError):
        failure = _encode_failure(exc.completion)
    text = text[:_MAX_TEXT].encode(errors="backslashreplace").decode()  # no lone surrogates
    return Failed(
        id=request_id, kind=kind, text=text, errno=number, completion=failure, check=check
    )


def _text_of(exc: BaseException) -> str:
    try:
        return str(exc)
    except Exception:  # an error in __str__ says nothing about the request
        return "(no text)"


def _errno(exc: BaseException) -> int:
    number = getattr(exc, "errno", None)
    return number if isinstance(number, int) and abs(number) < 1 << 31 else 0


def _encode_failure(completion: Any) -> Failure:
    return Failure(
        status=int(completion.status), op=int(completion.op),
        path=TransferPath(completion.path).code,
        submit_ns=completion.submit_ns, post_ns=completion.post_ns,
        complete_ns=completion.complete_ns,
    )  # fmt: skip


def to_exception(failed: Failed) -> Exception:
    """Return the exception that a message describes; an unknown class becomes PeerError."""
    failed.text = printable(failed.text)
    try:
        return _decode_exception(failed)
    except (IndexError, OverflowError, ValueError) as exc:
        return errors.PeerError(f"the other side sent an invalid error ({exc}): {failed.text}")


def _decode_exception(failed: Failed) -> Exception:
    cls = _KINDS.get(failed.kind, errors.PeerError)
    if issubclass(cls, errors.TransferError):
        if failed.completion is None:
            return errors.PeerError(failed.text)
        return cls(failed.text, FailedCompletion(failed.completion))
    has_errno = issubclass(cls, OSError) and failed.errno
    args = (failed.errno, failed.text) if has_errno else (failed.text,)
    if issubclass(cls, _EXPLAINED):
        return cls(*args, check=failed.check if _CHECK.fullmatch(failed.check) else "")
    return cls(*args)
