"""The exception tree. Every error that dgkit raises on purpose is a DgkitError."""

from __future__ import annotations

TYPE_CHECKING = False  # typing's own costs more to import than all of this
if TYPE_CHECKING:
    from .dma.completion import Completion

__all__ = [
    "AccessDenied",
    "BoundsError",
    "ClosedError",
    "DescriptorError",
    "DeviceUnavailable",
    "DgkitError",
    "ExportError",
    "LimitReached",
    "NativeError",
    "OutOfMemory",
    "PeerError",
    "PeerLost",
    "PeerRefused",
    "PeerTimeout",
    "PeerVersion",
    "QueueFull",
    "QueueInUse",
    "RegionBusy",
    "TransferError",
    "Unsupported",
]


class DgkitError(Exception):
    """The root of the tree."""


class BoundsError(DgkitError, ValueError):
    """A transfer leaves its region: names the region, the offset, the size and the limit."""


class AccessDenied(DgkitError, PermissionError):
    """The access flags of a region, or the memory under it, forbid this."""


class ClosedError(DgkitError, ValueError):
    """Something was used after close()."""


class NativeError(DgkitError, OSError):
    """The C core or the system refused; `errno` says which way."""


class _Explained(DgkitError):
    """An error about this machine. `check`: which check of `dgkit doctor` explains it, "" if none.

    str() ends with that check; `words` is without it, for who tells the error on.
    """

    def __init__(self, *args: object, check: str = "") -> None:
        super().__init__(*args)
        self.check = check

    @property
    def words(self) -> str:
        """What went wrong and what to do, without an errno and without the check."""
        return str(self.args[-1] if self.args else "")

    @property
    def way_out(self) -> str:
        """Where to read more, for the end of a message; "" if no check can say more."""
        return f"`dgkit doctor {self.check}` explains it" if self.check else ""

    def __str__(self) -> str:
        words = super().__str__()
        return f"{words.rstrip('.')}. {self.way_out}" if self.check else words


class DeviceUnavailable(_Explained, NativeError):
    """The provider cannot be used here; the message says why and what to do."""


class Unsupported(NativeError):
    """The provider cannot do this; the message names the one that can, if any."""


class QueueFull(NativeError):
    """`depth` operations are posted and not reaped: poll, or wait for one, then post again."""


class QueueInUse(NativeError):
    """Another thread is in this queue: open one queue a thread."""


class RegionBusy(NativeError):
    """Transfers are still in flight. New ones stay refused and the memory stays; close() again."""


class OutOfMemory(NativeError, MemoryError):
    """The memory asked for is not there; nothing was allocated."""


class LimitReached(NativeError):
    """A limit of the system (open files, mappings) is reached; the message names it."""


class TransferError(DgkitError):
    """A transfer completed with a status other than OK. `completion` has all of it."""

    def __init__(self, message: str, completion: Completion) -> None:
        super().__init__(message)
        self.completion = completion


class ExportError(_Explained):
    """Memory cannot be shared, or not safely; the message says what is wrong with it."""


class DescriptorError(DgkitError, ValueError):
    """The bytes are no descriptor that can be used; the message says what was wrong with them."""


class PeerError(DgkitError):
    """Something about the other side."""


class PeerLost(PeerError, ConnectionError):
    """The other side is gone."""


class PeerTimeout(PeerError, TimeoutError):
    """The other side is there and does not answer in time."""


class PeerRefused(PeerError, PermissionError):
    """The other side said no; the message has its reason."""


class PeerVersion(PeerError):
    """The other side speaks another version."""
