"""DOCA's errors, each a class of its own under DocaError, named after the code it stands for."""

from __future__ import annotations

from ..errors import DgkitError
from .codes import Code

__all__ = [
    "Again",
    "AlreadyExist",
    "Authentication",
    "BadConfig",
    "BadState",
    "ConnectionAborted",
    "ConnectionInProgress",
    "ConnectionReset",
    "DeviceFatalError",
    "DocaError",
    "Driver",
    "Empty",
    "Full",
    "InProgress",
    "InUse",
    "Initialization",
    "InvalidValue",
    "IoFailed",
    "NoLock",
    "NoMemory",
    "NotConnected",
    "NotFound",
    "NotPermitted",
    "NotSupported",
    "OperatingSystem",
    "Shutdown",
    "Skipped",
    "TimeOut",
    "TooBig",
    "Unexpected",
    "Unknown",
    "UnsupportedVersion",
    "error_class",
]


class DocaError(DgkitError):
    """DOCA refused a call, or a task failed. `code` says which way; the message says why.

    Of a code that this dgkit does not know, `code` is the plain number.
    """

    code: int = Code.UNKNOWN

    def __init__(self, message: str, code: int | None = None) -> None:
        super().__init__(message)
        if code is not None:
            self.code = code


class Unknown(DocaError):
    """DOCA does not say."""


class NotPermitted(DocaError, PermissionError):
    """The permissions of a map, or what its state allows, forbid this."""

    code = Code.NOT_PERMITTED


class InUse(DocaError):
    """Somebody else uses it: a child that is still there, a task in flight, another thread."""

    code = Code.IN_USE


class NotSupported(DocaError):
    """This device, or this version of DOCA, cannot do that."""

    code = Code.NOT_SUPPORTED


class Again(DocaError):
    """There is no room at the moment: make progress, then try again."""

    code = Code.AGAIN


class InvalidValue(DocaError, ValueError):
    """An argument is not one that DOCA takes."""

    code = Code.INVALID_VALUE


class NoMemory(DocaError, MemoryError):
    """Memory, or the elements of an inventory or a context, are used up."""

    code = Code.NO_MEMORY


class Initialization(DocaError):
    """Something could not be set up."""

    code = Code.INITIALIZATION


class TimeOut(DocaError, TimeoutError):
    """It took too long."""

    code = Code.TIME_OUT


class Shutdown(DocaError):
    """It is shutting down."""

    code = Code.SHUTDOWN


class ConnectionReset(DocaError):
    """The other side ended the connection."""

    code = Code.CONNECTION_RESET


class ConnectionAborted(DocaError):
    """The connection broke off."""

    code = Code.CONNECTION_ABORTED


class ConnectionInProgress(DocaError):
    """The connection is being made."""

    code = Code.CONNECTION_INPROGRESS


class NotConnected(DocaError):
    """There is no connection."""

    code = Code.NOT_CONNECTED


class NoLock(DocaError):
    """A lock could not be had."""

    code = Code.NO_LOCK


class NotFound(DocaError):
    """There is no such thing; the message says what there is."""

    code = Code.NOT_FOUND


class IoFailed(DocaError):
    """The bytes could not be moved, or the device failed."""

    code = Code.IO_FAILED


class BadState(DocaError):
    """The object is not in the state that this call needs."""

    code = Code.BAD_STATE


class UnsupportedVersion(DocaError):
    """The two versions do not go together."""

    code = Code.UNSUPPORTED_VERSION


class OperatingSystem(DocaError):
    """A call of the operating system failed."""

    code = Code.OPERATING_SYSTEM


class Driver(DocaError):
    """A driver failed."""

    code = Code.DRIVER


class Unexpected(DocaError):
    """Something that should not happen."""

    code = Code.UNEXPECTED


class AlreadyExist(DocaError):
    """There is one already."""

    code = Code.ALREADY_EXIST


class Full(DocaError):
    """No more fit."""

    code = Code.FULL


class Empty(DocaError):
    """There is none."""

    code = Code.EMPTY


class InProgress(DocaError):
    """It has begun, and ends when progress is made."""

    code = Code.IN_PROGRESS


class TooBig(DocaError):
    """It is larger than what is taken."""

    code = Code.TOO_BIG


class Authentication(DocaError):
    """Who asks could not show who they are."""

    code = Code.AUTHENTICATION


class BadConfig(DocaError):
    """The configuration is wrong."""

    code = Code.BAD_CONFIG


class Skipped(DocaError):
    """It was left out."""

    code = Code.SKIPPED


class DeviceFatalError(DocaError):
    """The device failed for good."""

    code = Code.DEVICE_FATAL_ERROR


_CLASSES: dict[int, type[DocaError]] = {kind.code: kind for kind in DocaError.__subclasses__()}


def error_class(code: int) -> type[DocaError]:
    """The class that stands for a code; DocaError itself for one that is not known."""
    return _CLASSES.get(code, DocaError)
