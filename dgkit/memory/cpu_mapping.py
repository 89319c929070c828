# SPDX-License-Identifier: Apache-2.0
"""GPU memory mapped for the CPU: through a dma-buf if the driver can, else by GDRCopy.

GDRCopy's declarations: gdrapi.h of version 2.5 (https://github.com/NVIDIA/gdrcopy). Its library is
searched for in the folder GDRCOPY_PATH_L, as DOCA does, then by the loader.
"""

from __future__ import annotations

import ctypes
import errno
import os
from typing import Any

from ..errors import ExportError, Unsupported
from . import libcuda
from .dmabuf import export_dmabuf

TYPE_CHECKING = False
if TYPE_CHECKING:
    from ..types import GpuSpan


_NAMES = ("libgdrapi.so.2", "libgdrapi.so")


class GdrUnavailable(Exception):
    """Reason why GDRCopy cannot be used."""


class _Handle(ctypes.Structure):
    _fields_ = (("h", ctypes.c_ulong),)


class _Info(ctypes.Structure):
    _fields_ = (
        ("va", ctypes.c_uint64),
        ("mapped_size", ctypes.c_uint64),
        ("page_size", ctypes.c_uint32),
        ("tm_cycles", ctypes.c_uint64),
        ("cycles_per_ms", ctypes.c_uint32),
        ("flags", ctypes.c_uint),
        ("mapping_type", ctypes.c_int),
    )


class GdrMapping:
    """`size` bytes of GPU memory from `address`, mapped for the CPU; unmapped by its finalizer.

    It keeps `keep` alive. Raises GdrUnavailable if the memory cannot be mapped.
    """

    def __init__(self, address: int, size: int, keep: object) -> None:
        self._keep = keep
        self._pid = os.getpid()
        self._library = _load_gdrcopy()
        self._gdr: Any = None
        self._handle = _Handle()
        self._pinned = False
        self._start = ctypes.c_void_p()
        self._length = 0
        try:
            self._map(address, size)
        except GdrUnavailable:
            self._undo()
            raise
        self._address = (self._start.value or 0) + address - self._base
        self._size = size

    def _map(self, address: int, size: int) -> None:
        library = self._library
        self._gdr = library.gdr_open()
        if not self._gdr:
            raise GdrUnavailable("its kernel module is not loaded (sudo modprobe gdrdrv)")
        handle = ctypes.byref(self._handle)
        self._check("gdr_pin_buffer", self._gdr, address, size, 0, 0, handle)
        self._pinned = True
        info = _Info()
        self._check("gdr_get_info_v2", self._gdr, self._handle, ctypes.byref(info))
        self._base, length = int(info.va), int(info.mapped_size)
        start = ctypes.byref(self._start)
        self._check("gdr_map", self._gdr, self._handle, start, length)
        self._length = length

    def _check(self, function: str, *args: Any) -> None:
        code = getattr(self._library, function)(*args)
        if code:
            raise GdrUnavailable(f"{function} fails: {os.strerror(abs(code))}")

    def view(self) -> memoryview:
        """Return the bytes; the view holds this mapping."""
        kind: Any = type("GpuBytes", (ctypes.c_ubyte * self._size,), {})
        found = kind.from_address(self._address)
        found.mapping = self
        return memoryview(found).cast("B")

    def _undo(self) -> None:
        if self._length:
            self._library.gdr_unmap(self._gdr, self._handle, self._start, self._length)
        if self._pinned:
            self._library.gdr_unpin_buffer(self._gdr, self._handle)
        if self._gdr:
            self._library.gdr_close(self._gdr)
        self._gdr, self._pinned, self._length = None, False, 0

    def __del__(self) -> None:
        if getattr(self, "_gdr", None) and self._pid == os.getpid():
            self._undo()


def _load_gdrcopy() -> Any:
    folder = os.environ.get("GDRCOPY_PATH_L")
    paths = [os.path.join(folder, name) for name in _NAMES] if folder else []  # noqa: PTH118
    for path in (*paths, *_NAMES):
        try:
            return _declare_functions(ctypes.CDLL(path))
        except (OSError, AttributeError):  # missing, or another library of that name
            continue
    raise GdrUnavailable("libgdrapi.so is not installed")


def _declare_functions(library: Any) -> Any:
    pointer, size, u64 = ctypes.c_void_p, ctypes.c_size_t, ctypes.c_uint64
    library.gdr_open.restype = pointer
    library.gdr_close.argtypes = (pointer,)
    handle = ctypes.POINTER(_Handle)
    library.gdr_pin_buffer.argtypes = (pointer, ctypes.c_ulong, size, u64, ctypes.c_uint32, handle)
    library.gdr_unpin_buffer.argtypes = (pointer, _Handle)
    library.gdr_get_info_v2.argtypes = (pointer, _Handle, ctypes.POINTER(_Info))
    library.gdr_map.argtypes = (pointer, _Handle, ctypes.POINTER(pointer), size)
    library.gdr_unmap.argtypes = (pointer, _Handle, pointer, size)
    return library


def cpu_view(span: GpuSpan, keep: object, *, managed: bool, share_block: bool) -> memoryview:
    """Return the bytes of GPU memory in place.

    Args:
        span: Where the bytes are.
        keep: Object that the view keeps alive.
        managed: The bytes are CUDA managed memory.
        share_block: The view may include other parts of the allocation.

    Raises:
        Unsupported: Neither method works; the message says why.
    """
    view, why_no_map = _by_dmabuf(span, keep, managed, share_block)
    if view is not None:
        return view
    try:
        with libcuda.primary_context(span.gpu):
            return GdrMapping(span.address, span.size, keep).view()
    except GdrUnavailable as why:
        raise Unsupported(
            errno.EOPNOTSUPP,
            "the CPU cannot access this GPU memory in place. By a dma-buf: "
            f"{why_no_map}. By GDRCopy: {why}; install it from https://github.com/NVIDIA/gdrcopy "
            "(GDRCOPY_PATH_L is the folder of its library). Or copy: array.get(), or a transfer",
        ) from None


def _by_dmabuf(
    span: GpuSpan, keep: object, managed: bool, share_block: bool
) -> tuple[memoryview | None, str]:
    """Return the mapped dma-buf, or None and the reason.

    The mapping is attempted, since drivers before CUDA 13.3 do not report support for it.
    """
    if libcuda.attribute(span.gpu, "DMA_BUF_MMAP_SUPPORTED") == 0:
        return None, "the driver does not map dma-bufs"
    try:
        with export_dmabuf(span, managed=managed, share_block=share_block) as shared:
            mapped = shared.map(keep)
            return memoryview(mapped)[shared.offset : shared.offset + shared.size], ""
    except ExportError as why:
        return None, why.words
    except OSError as why:
        return None, f"the driver does not map dma-bufs ({why.strerror or why})"
