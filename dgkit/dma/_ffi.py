"""Access to the C core: `ffi`, `lib`, and exceptions for its negative results."""

from __future__ import annotations

import errno

try:
    from .. import _native
except ImportError as error:
    raise ImportError(
        "dgkit's C core is missing (dgkit/_native). In a clone of the repository Python imports "
        "the unbuilt package of the current folder: run Python in another folder, or with -P "
        "(3.11 and later); or install dgkit: pip install .",
        name=__name__,
    ) from error
from ..errors import (
    AccessDenied,
    BoundsError,
    ClosedError,
    DescriptorError,
    DeviceUnavailable,
    ExportError,
    LimitReached,
    NativeError,
    OutOfMemory,
    PeerLost,
    PeerRefused,
    PeerTimeout,
    PeerVersion,
    QueueFull,
    QueueInUse,
    RegionBusy,
    Unsupported,
)

TYPE_CHECKING = False  # typing's own costs more to import than all of this
if TYPE_CHECKING:
    from typing import Any, NoReturn

__all__ = ["FOREVER", "check", "error_of", "ffi", "last_error", "lib", "nanoseconds", "native"]
__all__ += ["raise_for"]

native = _native  # the types whose methods are called once a transfer: native/python
ffi: Any = _native.ffi
lib: Any = _native.lib

FOREVER = (1 << 64) - 1

# The errno values of control calls are documented in native/dgkit.h.
_CLASSES: dict[int, type[Exception]] = {
    errno.ERANGE: BoundsError,
    errno.EACCES: AccessDenied,
    errno.EAGAIN: QueueFull,
    errno.EALREADY: QueueInUse,
    errno.EBUSY: RegionBusy,
    errno.EOPNOTSUPP: Unsupported,
    errno.EXDEV: Unsupported,
    errno.ENODEV: DeviceUnavailable,
    errno.EOWNERDEAD: DeviceUnavailable,
    errno.ESTALE: ClosedError,
    errno.EBADMSG: DescriptorError,
    errno.ENOKEY: DescriptorError,
    errno.EPROTONOSUPPORT: PeerVersion,
    errno.ENOTCONN: PeerLost,
    errno.ETIMEDOUT: PeerTimeout,
    errno.EPERM: PeerRefused,
    errno.EMEDIUMTYPE: ExportError,
    errno.EINVAL: ValueError,
    errno.ENOMEM: OutOfMemory,
    errno.ENOSPC: OutOfMemory,
    errno.EMFILE: LimitReached,
    errno.ENFILE: LimitReached,
    errno.EINTR: InterruptedError,
}

# Which check of `dgkit doctor` explains an ENODEV or EMEDIUMTYPE of the core, by words of its
# sentence; the first match. "": it is about this process or this memory, which no check covers.
_EXPLAINED: tuple[tuple[str, str], ...] = (
    ("before fork()", ""),
    ("context is lost", ""),
    ("memfd", ""),
    ("this GPU memory cannot be imported by another process", ""),
    ("this process does not use CUDA", ""),
    ("this process has loaded", ""),
    ("this kernel, takes none", "rdma-dmabuf"),
    ("rdma-core is older than 34", "rdma-core"),
    ("cannot be given this GPU memory", "dmabuf-gpu"),
    ("no provider is called", "dgkit-providers"),
    ("fault cannot wrap", "dgkit-providers"),
    ("NVIDIA driver's library was not found", "driver-loaded"),
    ("NVIDIA driver is older", "driver-version"),
    ("NVIDIA driver is too old", "driver-version"),
    ("CUDA_ERROR", "cuda-driver"),
    ("there is no GPU", "gpu-present"),
    ("sees no GPU", "gpu-present"),
    ("no GPU can be used", "cuda-driver"),
    ("libibverbs.so.1 cannot", "rdma-core"),
    ("rdma-core is too old", "rdma-core"),
    ("RDMA", "rdma-devices"),
    ("rdma", "rdma-devices"),
    ("DOCA's export has", "doca-version"),
    ("doca_mmap_export_pci", "bluefield-mode"),
    ("that the loader finds is softdoca's", "doca-libraries"),
    ("softdoca cannot be loaded", "dgkit-providers"),
    ("SOFTDOCA_", "dgkit-providers"),
    ("DOCA's libraries were not found", "doca-libraries"),
    ("the installed DOCA is older", "doca-version"),
    ("DOCA", "bluefield-present"),
    ("doca_", "bluefield-present"),
)


def check_of(text: str) -> str | None:
    """Return the doctor check that explains a sentence of the C core; None if not in the table."""
    return next((check for words, check in _EXPLAINED if words in text), None)


def last_error() -> str:
    """Return the C core's description of this thread's last failed call."""
    return str(ffi.string(lib.dg_last_error()).decode(errors="replace"))


def error_of(rc: int) -> Exception:
    """Return the exception for the negative result `rc`, with this thread's last error."""
    code, text = -rc, last_error()
    kind = _CLASSES.get(code, NativeError)
    if kind is DeviceUnavailable:
        return DeviceUnavailable(code, text, check=check_of(text) or "")
    if kind is ExportError:
        return ExportError(text, check=check_of(text) or "")
    if issubclass(kind, OSError) and kind not in (PeerLost, PeerTimeout, PeerRefused, AccessDenied):
        return kind(code, text)
    return kind(text)


def raise_for(rc: int) -> NoReturn:
    """Raise the exception for the negative result `rc`."""
    raise error_of(rc)


def check(rc: int) -> int:
    """Return `rc`, or raise its exception if it is negative."""
    if rc < 0:
        raise_for(rc)
    return rc


def nanoseconds(seconds: float | None, what: str = "timeout") -> int:
    """Return seconds as integer ns, FOREVER for None. Raises ValueError if negative or NaN."""
    if seconds is None:
        return FOREVER
    if not seconds >= 0:
        raise ValueError(f"{what} is {seconds!r} s; it must be 0 or more, or None for no limit")
    return min(int(seconds * 1e9), FOREVER) if seconds < 1e10 else FOREVER
