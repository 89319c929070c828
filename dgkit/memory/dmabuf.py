# SPDX-License-Identifier: Apache-2.0
"""dma-buf of GPU memory: an fd by which another device accesses the memory without the CPU.

If the driver exports none, the older method remains: the device's library gets the address, and the
kernel module nvidia-peermem looks up the memory. Order and requirements: NVIDIA's "DOCA GPUNetIO:
Installation and Setup", section "GPU Memory Mapping"; Linux 5.12 is the minimum for CUDA's dma-buf
in the GPU Operator's documentation.
"""

from __future__ import annotations

import mmap
import os
from pathlib import Path

from ..errors import ClosedError, ExportError
from ..files import Fd
from ..types import GpuSpan
from ..unique import Closable
from . import libcuda
from .libcuda import is_lost

_PEERMEM = Path("/sys/module/nvidia_peermem")
_ALLOCATE = "allocate it by dgkit.empty(on='gpu')"


class DmaBuf(Closable):
    """dma-buf of GPU memory: `size` bytes, `offset` bytes into the object of the descriptor `fd`.

    Owns the fd: close it or use it in a `with` statement. The dma-buf consists of whole system
    pages, `length` bytes, and includes whatever other data is in those pages.

    The stream that produced the data was synchronized. `sync_memops` says whether every later copy
    or fill by CUDA completes before its call returns, so that the device sees what it wrote
    (CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, set on the whole allocation, permanently). CUDA refuses this
    for its virtual memory, and thus for memory of `dgkit.empty`. There the context flag
    CU_CTX_SYNC_MEMOPS has the same effect, but on every copy and fill of everything that uses the
    context, so setting it is left to the user: cuCtxSetFlags(CU_CTX_SYNC_MEMOPS). Without it call
    the memory's `synchronize()` before the device reads.
    """

    way = "dmabuf"

    def __init__(self, fd: int, *, offset: int, size: int, length: int, sync_memops: bool) -> None:
        self._fd: Fd | None = Fd(int, fd)
        self.offset, self.size, self.length, self.sync_memops = offset, size, length, sync_memops

    @property
    def fd(self) -> int:
        """The file descriptor; -1 once closed."""
        fd = self._fd
        return -1 if fd is None else fd.number

    @property
    def closed(self) -> bool:
        """True if the dma-buf is closed."""
        return self._fd is None

    def map(self, keep: object = None) -> mmap.mmap:
        """Map the whole dma-buf. Raises OSError if unsupported, ClosedError once closed.

        Args:
            keep: Object that the mapping keeps alive.
        """
        fd = self._fd  # read once: another thread may close the dma-buf
        if fd is None:
            raise ClosedError(f"{self!r} is closed")
        mapped = _Mapping(fd.number, self.length)
        mapped.keep = keep
        return mapped

    def close(self) -> None:
        """Close the fd; other holders of the dma-buf keep the memory. Idempotent."""
        self._fd = None

    def __repr__(self) -> str:
        where = "closed" if self.closed else f"fd {self.fd}"
        what = f"{self.size} bytes at offset {self.offset} of {self.length}"
        return f"<dgkit.DmaBuf {where}, {what}; CUDA's copies are {self._copies_text()}>"

    def _copies_text(self) -> str:
        return "synchronous" if self.sync_memops else "not synchronous: see CU_CTX_SYNC_MEMOPS"

    def _repr_html_(self) -> str:
        from ..html_cards import card

        rows: list[tuple[str, object]] = [] if self.closed else [("Fd", self.fd)]
        rows += [("Size", f"{self.size} bytes, from byte {self.offset} of {self.length}")]
        rows += [("CUDA's copies are", self._copies_text())]
        return card("dma-buf (closed)" if self.closed else "dma-buf", rows)


class _Mapping(mmap.mmap):
    """Mapping that keeps the memory under it alive."""

    keep: object = None


class PeerMem:
    """GPU memory by its `address` and `size` (bytes), for nvidia-peermem to look up.

    `loaded` says whether that kernel module is loaded, `why` why there is no dma-buf.
    """

    way = "nvidia-peermem"

    def __init__(self, address: int, size: int, why: str) -> None:
        self.address, self.size, self.why = address, size, why
        self.loaded = _PEERMEM.exists()

    @property
    def remedy(self) -> str:
        """Remedy if no device can use the memory yet, else ""."""
        return "" if self.loaded else "load the module: sudo modprobe nvidia-peermem"

    def __enter__(self) -> PeerMem:
        return self

    def __exit__(self, *_: object) -> None:
        """Do nothing: an address needs no release."""

    def __repr__(self) -> str:
        state = "is loaded" if self.loaded else f"is not loaded: {self.remedy}"
        return f"<dgkit.PeerMem {self.size} bytes; nvidia-peermem {state}. No dma-buf: {self.why}>"

    def _repr_html_(self) -> str:
        from ..html_cards import card

        rows = [("Size", f"{self.size} bytes"), ("Address", f"{self.address:#x}")]
        rows += [("nvidia-peermem", self.remedy or "is loaded"), ("No dma-buf", self.why)]
        return card("GPU memory by its address", rows)


def export_dmabuf(span: GpuSpan, *, managed: bool, share_block: bool) -> DmaBuf:
    """Return a dma-buf of GPU memory.

    Args:
        span: Where the bytes are.
        managed: The bytes are CUDA managed memory.
        share_block: The dma-buf may include other parts of the allocation.

    Raises:
        ExportError: There is none; the message says why and what to do.
    """
    if managed:
        raise ExportError(
            "managed memory has no fixed address on the GPU and thus no dma-buf: " + _ALLOCATE,
            check="",
        )
    start, length = _pages(span, share_block)
    kind = libcuda.driver().CUmemRangeHandleType.CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD
    with libcuda.primary_context(span.gpu):
        sync = _sync_memops(span.address)
        code, fd = libcuda.try_call("cuMemGetHandleForAddressRange", start, length, kind, 0)
    if code:
        raise _refusal_error(span.gpu, code)
    fd = int(fd)
    os.set_inheritable(fd, False)
    offset = span.address - start
    return DmaBuf(fd, offset=offset, size=span.size, length=length, sync_memops=sync)


def dmabuf_or_peermem(span: GpuSpan, *, managed: bool, share_block: bool) -> DmaBuf | PeerMem:
    """Return a dma-buf, else the memory's address for nvidia-peermem.

    Args:
        span: Where the bytes are.
        managed: The bytes are CUDA managed memory.
        share_block: The dma-buf may include other parts of the allocation.

    Raises:
        ExportError: The memory supports neither.
    """
    try:
        return export_dmabuf(span, managed=managed, share_block=share_block)
    except ExportError as why:
        if managed or not libcuda.attribute(span.gpu, "GPU_DIRECT_RDMA_SUPPORTED"):
            raise
        return PeerMem(span.address, span.size, why.words)


def _pages(span: GpuSpan, share_block: bool) -> tuple[int, int]:
    """Return start address and length of the system pages that contain the bytes."""
    page = os.sysconf("SC_PAGE_SIZE")
    start = span.address // page * page
    end = -(-(span.address + span.size) // page) * page
    base = span.address - span.offset
    if not share_block and (start < base or end > base + span.block):
        raise ExportError(
            f"a dma-buf consists of whole pages ({page} bytes), and this memory's allocation of "
            f"{span.block} bytes does not begin and end on page boundaries: a device could access "
            "the rest of these pages. To allow it, register dgkit.wrap(array, share_block=True); "
            f"else {_ALLOCATE}",
            check="page-size",
        )
    return start, end - start


def _sync_memops(address: int) -> bool:
    """Set the attribute if CUDA allows it; return whether copies are synchronous now."""
    driver = libcuda.driver()
    attribute = driver.CUpointer_attribute.CU_POINTER_ATTRIBUTE_SYNC_MEMOPS
    code, _ = libcuda.try_call(
        "cuPointerSetAttribute", True, attribute, driver.CUdeviceptr(address)
    )
    if code == 0:
        return True
    code, flags = libcuda.try_call("cuCtxGetFlags")
    return code == 0 and bool(int(flags) & int(driver.CUctx_flags.CU_CTX_SYNC_MEMOPS))


def _refusal_error(gpu: int, code: int) -> Exception:
    error = libcuda.error("cuMemGetHandleForAddressRange", code)
    if is_lost(code):  # a lost context, not a property of dma-bufs
        return error
    cause, check = _cause(gpu, code)
    text = f"no dma-buf of this memory: {cause} ({error.strerror})"
    return ExportError(text, check=check)


def _cause(gpu: int, code: int) -> tuple[str, str]:
    """Return the likely cause with what to do, and the check of the doctor that explains it."""
    from .gpu_info import kernel_modules

    _, flavour, _ = kernel_modules()
    release = os.uname().release
    kernel = tuple(int(part) for part in release.split("-")[0].split(".")[:2] if part.isdecimal())
    if not libcuda.attribute(gpu, "DMA_BUF_SUPPORTED"):
        if flavour == "closed":
            text = "the driver's kernel modules are the closed ones: install the open (nvidia-open)"
            return text, "driver-flavour"
        if kernel < (5, 12):
            text = f"Linux is {release}: CUDA requires 5.12 or later, DOCA 6.2 or later"
            return text, "kernel-version"
        text = (
            "this GPU or its driver has none: they require Turing or later, CUDA 11.7 or later and "
            "the open kernel modules (nvidia-open)"
        )
        return text, "dmabuf-gpu"
    if code == 1:
        text = (
            "the address range is not entirely backed by memory of this GPU, or does not begin and "
            f"end on page boundaries: {_ALLOCATE}"
        )
        return text, ""
    if code == 801:
        return f"CUDA exports none for this kind of memory: {_ALLOCATE}", "dmabuf-gpu"
    if code in (2, 304):
        text = "the system gave no file descriptor: close files (ulimit -n) or free GPU memory"
        return text, "open-files"
    return f"unexpected error: {_ALLOCATE}, and check dmesg", "driver-loaded"
