# SPDX-License-Identifier: Apache-2.0
"""Exception classes. Every error that dgkit itself detects is a DgkitError.

Wrong types and values in calls are Python's TypeError and ValueError. The table in dma/_ffi.py has
the class for each errno of the C core, cli/exit_codes.py the exit code of each class.
"""

from __future__ import annotations

TYPE_CHECKING = False  # importing typing costs more than this whole module
if TYPE_CHECKING:
    from enum import IntEnum
    from typing import Any, Protocol
else:
    Protocol = object

__all__ = [
    "AccessDenied",
    "BluefieldError",
    "BoundsError",
    "ClosedError",
    "DescriptorError",
    "DeviceUnavailable",
    "DgkitError",
    "ExportError",
    "KernelError",
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
    "TestbedError",
    "TransferError",
    "Unsupported",
]


class DgkitError(Exception):
    """Base class of all errors of dgkit."""


class BoundsError(DgkitError, ValueError):
    """A transfer exceeds its region. The message names the region, offset, size and limit."""


class AccessDenied(DgkitError, PermissionError):
    """The access flags of a region, or those of its memory, forbid the operation."""


class ClosedError(DgkitError, ValueError):
    """An object was used after close()."""


class NativeError(DgkitError, OSError):
    """The C core or the system reported an error; `errno` is its number."""


class _Explained(DgkitError):
    """Error about this machine.

    `check` names the check of `dgkit doctor` that explains it, or is "". str() ends with a
    reference to that check; `words` does not.
    """

    def __init__(self, *args: object, check: str = "") -> None:
        super().__init__(*args)
        self.check = check

    @property
    def words(self) -> str:
        """The message without errno and without the reference to the check."""
        return str(self.args[-1] if self.args else "")

    @property
    def way_out(self) -> str:
        """Reference to the doctor's check, or "" if there is none."""
        return f"`dgkit doctor {self.check}` explains it" if self.check else ""

    def __str__(self) -> str:
        words = super().__str__()
        return f"{words.rstrip('.')}. {self.way_out}" if self.check else words


class DeviceUnavailable(_Explained, NativeError):
    """The provider cannot be used on this machine. The message says why and what to do."""


class Unsupported(NativeError):
    """The provider lacks this capability. The message names a provider that has it, if any."""


class QueueFull(NativeError):
    """The queue has `depth` operations posted and not reaped: poll or wait, then post again."""


class QueueInUse(NativeError):
    """Another thread is using this queue: open one queue per thread."""


class RegionBusy(NativeError):
    """Transfers of a region being closed are still in flight.

    New transfers stay refused and the memory stays allocated: call close() again.
    """


class OutOfMemory(NativeError, MemoryError):
    """The requested memory is not available; nothing was allocated."""


class LimitReached(NativeError):
    """A limit of the system (open files, mappings) is reached. The message names it."""


class BluefieldError(DgkitError):
    """The Arm side of a BlueField cannot be reached, or a step of its set-up failed."""


class TestbedError(DgkitError):
    """A testbed or one of its guests cannot start, has ended, or cannot run a command."""

    __test__ = False  # for pytest, which collects classes by their name


class CompletionLike(Protocol):
    """Fields of the completion in a TransferError; times are in ns."""

    @property
    def status(self) -> IntEnum:
        """A dgkit.Status."""

    @property
    def op(self) -> IntEnum:
        """A dgkit.Op."""

    @property
    def size(self) -> int:
        """Bytes that were moved."""

    @property
    def path(self) -> str:
        """`inline` or `worker`."""

    @property
    def submit_ns(self) -> int:
        """Time of the call."""

    @property
    def post_ns(self) -> int:
        """Time when the provider got the operation."""

    @property
    def complete_ns(self) -> int:
        """Time when the operation was done."""

    @property
    def latency_ns(self) -> int:
        """From submit to completion."""


class TransferError(DgkitError):
    """A transfer completed with a status other than OK; `completion` has the details."""

    def __init__(self, message: str, completion: CompletionLike) -> None:
        super().__init__(message)
        self.completion = completion

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (*self.args, self.completion), self.__dict__


class KernelError(DgkitError):
    """A kernel did not compile, failed, or was stopped by the emulated GPU."""


class ExportError(_Explained):
    """Memory cannot be exported, or not safely. The message says why."""


class DescriptorError(DgkitError, ValueError):
    """The bytes are not a usable descriptor. The message says what is wrong with them."""


class PeerError(DgkitError):
    """Error of the other side, or of the connection to it."""


class PeerLost(PeerError, ConnectionError):
    """The other side has ended, or the connection to it has."""


class PeerTimeout(PeerError, TimeoutError):
    """The other side did not answer in time."""


class PeerRefused(PeerError, PermissionError):
    """The other side refused the request. The message has its reason."""


class PeerVersion(PeerError):
    """The other side uses another protocol version."""


def copy_of(error: Exception) -> Exception:
    """Return a copy of an error that is stored, such as that of a lost connection, to be raised.

    Raising the stored one would add a traceback to it, whose frames keep the variables of all
    callers alive: 144 MiB after eight reads of 16 MiB whose agent was killed.
    """
    import copy

    copied = copy.copy(error)
    copied.__cause__, copied.__suppress_context__ = error.__cause__, error.__suppress_context__
    return copied
