# SPDX-License-Identifier: Apache-2.0
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
from ..validate import real

TYPE_CHECKING = False  # typing's own costs more to import than all of this
if TYPE_CHECKING:
    from typing import Any, NoReturn

native = _native  # types whose methods are called for each transfer: native/cpython
ffi = _native.ffi
lib = _native.lib

FOREVER = (1 << 64) - 1

# For each reason of the core's errors: the Python class, and the check of `dgkit doctor` that
# explains it; "" if it concerns this process or this memory, which no check covers. Only
# DeviceUnavailable and ExportError have a check (error_of()). native/dgkit.h documents the reasons:
# errno values, and enum dg_reason. The command's hints are in cli/exit_codes.py.
_ERRORS: dict[int, tuple[type[Exception], str]] = {
    errno.ERANGE: (BoundsError, ""),
    errno.EACCES: (AccessDenied, ""),
    errno.EAGAIN: (QueueFull, ""),
    errno.EALREADY: (QueueInUse, ""),
    errno.EBUSY: (RegionBusy, ""),
    errno.EOPNOTSUPP: (Unsupported, ""),
    errno.EXDEV: (Unsupported, ""),
    errno.ENODEV: (DeviceUnavailable, ""),
    errno.EOWNERDEAD: (DeviceUnavailable, ""),
    errno.ESTALE: (ClosedError, ""),
    errno.EBADMSG: (DescriptorError, ""),
    errno.ENOKEY: (DescriptorError, ""),
    errno.EPROTONOSUPPORT: (PeerVersion, ""),
    errno.ENOTCONN: (PeerLost, ""),
    errno.ETIMEDOUT: (PeerTimeout, ""),
    errno.EPERM: (PeerRefused, ""),
    errno.EMEDIUMTYPE: (ExportError, ""),
    errno.EINVAL: (ValueError, ""),
    errno.ENOMEM: (OutOfMemory, ""),
    errno.ENOSPC: (OutOfMemory, ""),
    errno.EMFILE: (LimitReached, ""),
    errno.ENFILE: (LimitReached, ""),
    errno.EINTR: (InterruptedError, ""),
    lib.DG_REASON_UNKNOWN_PROVIDER: (DeviceUnavailable, "dgkit-providers"),
    lib.DG_REASON_SOFTDOCA: (DeviceUnavailable, "dgkit-providers"),
    lib.DG_REASON_NO_NVIDIA_DRIVER: (DeviceUnavailable, "driver-loaded"),
    lib.DG_REASON_OLD_NVIDIA_DRIVER: (DeviceUnavailable, "driver-version"),
    lib.DG_REASON_CUDA: (DeviceUnavailable, "cuda-driver"),
    lib.DG_REASON_NO_GPU: (DeviceUnavailable, "gpu-present"),
    lib.DG_REASON_RDMA_CORE: (DeviceUnavailable, "rdma-core"),
    lib.DG_REASON_RDMA_DEVICE: (DeviceUnavailable, "rdma-devices"),
    lib.DG_REASON_NO_DOCA: (DeviceUnavailable, "doca-libraries"),
    lib.DG_REASON_OLD_DOCA: (DeviceUnavailable, "doca-version"),
    lib.DG_REASON_BLUEFIELD: (DeviceUnavailable, "bluefield-present"),
    lib.DG_REASON_BLUEFIELD_MODE: (ExportError, "bluefield-mode"),
    lib.DG_REASON_DOCA_EXPORT_SIZE: (ExportError, "doca-version"),
    lib.DG_REASON_DMABUF_GPU: (ExportError, "dmabuf-gpu"),
    lib.DG_REASON_DMABUF_ADAPTER: (ExportError, "rdma-dmabuf"),
    lib.DG_REASON_DMABUF_RDMA_CORE: (ExportError, "rdma-core"),
    lib.DG_REASON_THREADS: (LimitReached, ""),
}


def last_error() -> str:
    """Return the C core's description of this thread's last failed call."""
    return str(ffi.string(lib.dg_last_error()).decode(errors="replace"))


def error_of(rc: int) -> Exception:
    """Return the exception for `rc`, the negative result of this thread's last C call."""
    code, text = -rc, last_error()
    kind, check = _ERRORS.get(lib.dg_last_reason(rc), (NativeError, ""))
    if kind is DeviceUnavailable:
        return DeviceUnavailable(code, text, check=check)
    if kind is ExportError:
        return ExportError(text, check=check)
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


def open_handle(
    owner: object, name: str, kind: str, parents: tuple[Any, ...], call: Any, *args: Any
) -> None:
    """Set an attribute to the handle of the object that a C function opens, without a leak.

    The object is freed with the last reference to its handle. A thread may use it as long as it has
    one, or one to the `owner`, which keeps it; another thread may close the object meanwhile.

    Args:
        owner: Object whose attribute it is.
        name: The attribute.
        kind: C type of the object, as "dg_queue".
        parents: What the object needs: other handles, and memory.
        call: C function, whose last parameter is where it stores the pointer.
        args: Its other arguments.
    """
    out = ffi.new(f"{kind} *[1]")
    addresses = map(int, map(ffi.cast, ("uintptr_t",), out))
    handles = map(native.Handle, (kind,), addresses, out, (parents,))
    # One step of C: an interruption between two would leave an open object without a handle.
    hold = map(setattr, (owner,), (name,), handles)
    try:
        check(call(*args, out))
    finally:
        if out[0]:
            next(hold)


def nanoseconds(seconds: float | None, what: str = "timeout") -> int:
    """Return seconds as integer ns, FOREVER for None.

    Raises:
        TypeError: It is not a number.
        ValueError: It is negative or NaN.
    """
    if seconds is None:
        return FOREVER
    try:
        valid = seconds >= 0
    except TypeError:
        raise TypeError(f"{what} is {seconds!r:.60}; it must be a number of seconds") from None
    if not valid:
        raise ValueError(f"{what} is {seconds!r} s; it must be 0 or more, or None for no limit")
    return min(int(seconds * 1e9), FOREVER) if seconds < 1e10 else FOREVER


def spin_ns(spin_us: float) -> int:
    """Return a spin time in ns; at most an hour. Raises TypeError or ValueError if invalid."""
    return int(real("spin_us", spin_us, 0, 3.6e9) * 1e3)
