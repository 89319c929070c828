# SPDX-License-Identifier: Apache-2.0
"""DOCA's error codes as exceptions: each code has a subclass of DocaError with its name."""

from __future__ import annotations

from ..errors import DgkitError
from .codes import Code


class DocaError(DgkitError):
    """DOCA refused a call, or a task failed. `code` is the error code; the message says why.

    For a code unknown to this dgkit, `code` is the plain number.
    """

    code: int = Code.UNKNOWN

    def __init_subclass__(cls, code: Code = Code.UNKNOWN) -> None:
        super().__init_subclass__()
        cls.code = code

    def __init__(self, message: str, code: int | None = None) -> None:
        super().__init__(message)
        if code is not None:
            self.code = code


class Unknown(DocaError):
    """Unknown error."""


class NotPermitted(DocaError, PermissionError, code=Code.NOT_PERMITTED):
    """The map's permissions or state forbid this."""


class InUse(DocaError, code=Code.IN_USE):
    """The object is in use: by a child, a task in flight, or another thread."""


class NotSupported(DocaError, code=Code.NOT_SUPPORTED):
    """The device or this version of DOCA does not support this."""


class Again(DocaError, code=Code.AGAIN):
    """There is no room at the moment: make progress, then retry."""


class InvalidValue(DocaError, ValueError, code=Code.INVALID_VALUE):
    """DOCA rejects an argument."""


class NoMemory(DocaError, MemoryError, code=Code.NO_MEMORY):
    """Memory is exhausted, or all buffers of an inventory or tasks of a context are in use."""


class Initialization(DocaError, code=Code.INITIALIZATION):
    """Initialization failed."""


class TimeOut(DocaError, TimeoutError, code=Code.TIME_OUT):
    """The operation timed out."""


class Shutdown(DocaError, code=Code.SHUTDOWN):
    """The object is shutting down."""


class ConnectionReset(DocaError, code=Code.CONNECTION_RESET):
    """The peer closed the connection."""


class ConnectionAborted(DocaError, code=Code.CONNECTION_ABORTED):
    """The connection was aborted."""


class ConnectionInProgress(DocaError, code=Code.CONNECTION_INPROGRESS):
    """The connection is being established."""


class NotConnected(DocaError, code=Code.NOT_CONNECTED):
    """The object is not connected."""


class NoLock(DocaError, code=Code.NO_LOCK):
    """A lock could not be acquired."""


class NotFound(DocaError, code=Code.NOT_FOUND):
    """The object was not found; the message lists those that exist."""


class IoFailed(DocaError, code=Code.IO_FAILED):
    """The bytes could not be moved, or the device failed."""


class BadState(DocaError, code=Code.BAD_STATE):
    """The object is in the wrong state for this call."""


class UnsupportedVersion(DocaError, code=Code.UNSUPPORTED_VERSION):
    """The versions are incompatible."""


class OperatingSystem(DocaError, code=Code.OPERATING_SYSTEM):
    """A call of the operating system failed."""


class Driver(DocaError, code=Code.DRIVER):
    """A driver failed."""


class Unexpected(DocaError, code=Code.UNEXPECTED):
    """Unexpected error."""


class AlreadyExist(DocaError, code=Code.ALREADY_EXIST):
    """The object already exists."""


class Full(DocaError, code=Code.FULL):
    """The object is full."""


class Empty(DocaError, code=Code.EMPTY):
    """The object is empty."""


class InProgress(DocaError, code=Code.IN_PROGRESS):
    """The operation was started, and completes when progress is made."""


class TooBig(DocaError, code=Code.TOO_BIG):
    """The size exceeds the limit."""


class Authentication(DocaError, code=Code.AUTHENTICATION):
    """Authentication failed."""


class BadConfig(DocaError, code=Code.BAD_CONFIG):
    """The configuration is wrong."""


class Skipped(DocaError, code=Code.SKIPPED):
    """The operation was skipped."""


class DeviceFatalError(DocaError, code=Code.DEVICE_FATAL_ERROR):
    """The device failed permanently."""


_CLASSES: dict[int, type[DocaError]] = {kind.code: kind for kind in DocaError.__subclasses__()}


def error_class(code: int) -> type[DocaError]:
    """Return the exception class of a code; DocaError for an unknown one."""
    return _CLASSES.get(code, DocaError)
