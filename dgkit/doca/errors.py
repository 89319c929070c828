"""DOCA's error codes as exceptions: each code has a subclass of DocaError with its name."""

from __future__ import annotations

from ..errors import DgkitError
from .codes import Code


class DocaError(DgkitError):
    """DOCA refused a call, or a task failed. `code` is the error code; the message says why.

    For a code unknown to this dgkit, `code` is the plain number.
    """

    code: int = Code.UNKNOWN

    def __init__(self, message: str, code: int | None = None) -> None:
        super().__init__(message)
        if code is not None:
            self.code = code


class Unknown(DocaError):
    """Unknown error."""


class NotPermitted(DocaError, PermissionError):
    """The map's permissions or state forbid this."""

    code = Code.NOT_PERMITTED


class InUse(DocaError):
    """The object is in use: by a child, a task in flight, or another thread."""

    code = Code.IN_USE


class NotSupported(DocaError):
    """The device or this version of DOCA does not support this."""

    code = Code.NOT_SUPPORTED


class Again(DocaError):
    """There is no room at the moment: make progress, then retry."""

    code = Code.AGAIN


class InvalidValue(DocaError, ValueError):
    """DOCA rejects an argument."""

    code = Code.INVALID_VALUE


class NoMemory(DocaError, MemoryError):
    """Memory is exhausted, or all buffers of an inventory or tasks of a context are in use."""

    code = Code.NO_MEMORY


class Initialization(DocaError):
    """Initialization failed."""

    code = Code.INITIALIZATION


class TimeOut(DocaError, TimeoutError):
    """The operation timed out."""

    code = Code.TIME_OUT


class Shutdown(DocaError):
    """The object is shutting down."""

    code = Code.SHUTDOWN


class ConnectionReset(DocaError):
    """The peer closed the connection."""

    code = Code.CONNECTION_RESET


class ConnectionAborted(DocaError):
    """The connection was aborted."""

    code = Code.CONNECTION_ABORTED


class ConnectionInProgress(DocaError):
    """The connection is being established."""

    code = Code.CONNECTION_INPROGRESS


class NotConnected(DocaError):
    """The object is not connected."""

    code = Code.NOT_CONNECTED


class NoLock(DocaError):
    """A lock could not be acquired."""

    code = Code.NO_LOCK


class NotFound(DocaError):
    """The object was not found; the message lists those that exist."""

    code = Code.NOT_FOUND


class IoFailed(DocaError):
    """The bytes could not be moved, or the device failed."""

    code = Code.IO_FAILED


class BadState(DocaError):
    """The object is in the wrong state for this call."""

    code = Code.BAD_STATE


class UnsupportedVersion(DocaError):
    """The versions are incompatible."""

    code = Code.UNSUPPORTED_VERSION


class OperatingSystem(DocaError):
    """A call of the operating system failed."""

    code = Code.OPERATING_SYSTEM


class Driver(DocaError):
    """A driver failed."""

    code = Code.DRIVER


class Unexpected(DocaError):
    """Unexpected error."""

    code = Code.UNEXPECTED


class AlreadyExist(DocaError):
    """The object already exists."""

    code = Code.ALREADY_EXIST


class Full(DocaError):
    """The object is full."""

    code = Code.FULL


class Empty(DocaError):
    """The object is empty."""

    code = Code.EMPTY


class InProgress(DocaError):
    """The operation was started, and completes when progress is made."""

    code = Code.IN_PROGRESS


class TooBig(DocaError):
    """The size exceeds the limit."""

    code = Code.TOO_BIG


class Authentication(DocaError):
    """Authentication failed."""

    code = Code.AUTHENTICATION


class BadConfig(DocaError):
    """The configuration is wrong."""

    code = Code.BAD_CONFIG


class Skipped(DocaError):
    """The operation was skipped."""

    code = Code.SKIPPED


class DeviceFatalError(DocaError):
    """The device failed permanently."""

    code = Code.DEVICE_FATAL_ERROR


_CLASSES: dict[int, type[DocaError]] = {kind.code: kind for kind in DocaError.__subclasses__()}


def error_class(code: int) -> type[DocaError]:
    """Return the exception class of a code; DocaError for an unknown one."""
    return _CLASSES.get(code, DocaError)
