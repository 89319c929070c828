"""A dma-buf of GPU memory: the fd by which another device reaches the memory without the CPU.

Where the driver gives none, the older way is left: the device's library is given the address, and
the kernel module nvidia-peermem finds the memory. The order, and what each way needs, are those of
NVIDIA's "DOCA GPUNetIO: Installation and Setup", section "GPU Memory Mapping"; Linux 5.12 is the
floor that the GPU Operator's documentation gives for CUDA's dma-buf.
"""

from __future__ import annotations

import mmap
import os
from pathlib import Path

from ..errors import ExportError
from ..types import GpuSpan
from . import cuda
from .cuda_errors import is_lost

TYPE_CHECKING = False
if TYPE_CHECKING:
    from .gpu_base import OnGpu

__all__ = ["DmaBuf", "PeerMem", "dmabuf", "dmabuf_or_peermem"]

_PEERMEM = Path("/sys/module/nvidia_peermem")
_ALLOCATE = "allocate it by dgkit.empty(on='gpu')"


class DmaBuf:
    """A dma-buf: `size` bytes of GPU memory, `offset` bytes into the object that `fd` names.

    Close it, or use it in a `with`: the fd is this object's. The dma-buf holds whole pages of the
    system, `length` bytes: those that the memory lies in, also with what else lies in them.

    The stream that fills the memory was waited for. `sync_memops` says whether each later copy or
    fill by CUDA ends before its call returns (CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, set on the whole
    allocation, and it stays): then what such a call wrote is there for the device. CUDA refuses
    that for its virtual memory, and so for what `dgkit.empty` makes. There the flag
    CU_CTX_SYNC_MEMOPS of the context does the same, but to every copy and fill of everything that
    uses the context; that is the user's to choose: cuCtxSetFlags(CU_CTX_SYNC_MEMOPS). Without it
    call `synchronize()` of the memory before the device reads.
    """

    way = "dmabuf"

    def __init__(self, fd: int, *, offset: int, size: int, length: int, sync_memops: bool) -> None:
        self._fd = fd
        self.offset, self.size, self.length, self.sync_memops = offset, size, length, sync_memops

    @property
    def fd(self) -> int:
        """The file descriptor; -1 after close()."""
        return self._fd

    @property
    def closed(self) -> bool:
        """Whether close() was called."""
        return self._fd < 0

    def map(self, keep: object = None) -> mmap.mmap:
        """All of it in this process's memory, as long as `keep` is held. OSError: not supported."""
        mapped = _Mapping(self.fd, self.length)
        mapped.keep = keep
        return mapped

    def close(self) -> None:
        """Closes the fd. What holds it elsewhere keeps the memory."""
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)

    def __enter__(self) -> DmaBuf:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __del__(self) -> None:
        self.close()

    def __repr__(self) -> str:
        where = "closed" if self.closed else f"fd {self.fd}"
        what = f"{self.size} bytes at offset {self.offset} of {self.length}"
        return f"<dgkit.DmaBuf {where}, {what}; CUDA's copies are {self._waits()}>"

    def _waits(self) -> str:
        return "synchronous" if self.sync_memops else "not synchronous: see CU_CTX_SYNC_MEMOPS"

    def _repr_html_(self) -> str:
        from ..html_cards import card

        rows: list[tuple[str, object]] = [] if self.closed else [("Fd", self.fd)]
        rows += [("Size", f"{self.size} bytes, from byte {self.offset} of {self.length}")]
        rows += [("CUDA's copies are", self._waits())]
        return card("dma-buf (closed)" if self.closed else "dma-buf", rows)


class _Mapping(mmap.mmap):
    """A mapping that holds on to the memory under it."""

    keep: object = None


class PeerMem:
    """GPU memory that goes by its `address` (`size` bytes), which nvidia-peermem looks up.

    `loaded` says whether that kernel module is there now; `why`, why there is no dma-buf.
    """

    way = "nvidia-peermem"

    def __init__(self, address: int, size: int, why: str) -> None:
        self.address, self.size, self.why = address, size, why
        self.loaded = _PEERMEM.exists()

    @property
    def remedy(self) -> str:
        """What to do before a device can use it; "" if nothing."""
        return "" if self.loaded else "load the module: sudo modprobe nvidia-peermem"

    def __enter__(self) -> PeerMem:
        return self

    def __exit__(self, *_: object) -> None:
        """Nothing to give back: the memory keeps its address."""

    def __repr__(self) -> str:
        state = "is loaded" if self.loaded else f"is not loaded: {self.remedy}"
        return f"<dgkit.PeerMem {self.size} bytes; nvidia-peermem {state}. No dma-buf: {self.why}>"

    def _repr_html_(self) -> str:
        from ..html_cards import card

        rows = [("Size", f"{self.size} bytes"), ("Address", f"{self.address:#x}")]
        rows += [("nvidia-peermem", self.remedy or "is loaded"), ("No dma-buf", self.why)]
        return card("GPU memory by its address", rows)


def dmabuf(memory: OnGpu) -> DmaBuf:
    """A dma-buf of a memory's bytes. ExportError says why there is none, and what to do."""
    span = memory.gpu
    if memory.managed:
        raise ExportError(
            "managed memory has no place of its own on the GPU, and so no dma-buf: " + _ALLOCATE,
            check="",
        )
    start, length = _pages(span, memory.share_block)
    kind = cuda.driver().CUmemRangeHandleType.CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD
    with cuda.current(span.gpu):
        sync = _sync_memops(span.address)
        code, fd = cuda.ask("cuMemGetHandleForAddressRange", start, length, kind, 0)
    if code:
        raise _refusal(span.gpu, code)
    fd = int(fd)
    os.set_inheritable(fd, False)
    offset = span.address - start
    return DmaBuf(fd, offset=offset, size=span.size, length=length, sync_memops=sync)


def dmabuf_or_peermem(memory: OnGpu) -> DmaBuf | PeerMem:
    """A dma-buf, else the memory's address for nvidia-peermem; ExportError if it has neither."""
    try:
        return dmabuf(memory)
    except ExportError as why:
        if memory.managed or not cuda.attribute(memory.gpu.gpu, "GPU_DIRECT_RDMA_SUPPORTED"):
            raise
        return PeerMem(memory.gpu.address, memory.size, why.words)


def _pages(span: GpuSpan, share_block: bool) -> tuple[int, int]:
    """The whole pages of the system that the bytes lie in: where they begin, and their bytes."""
    page = os.sysconf("SC_PAGE_SIZE")
    start = span.address // page * page
    end = -(-(span.address + span.size) // page) * page
    base = span.address - span.offset
    if not share_block and (start < base or end > base + span.block):
        raise ExportError(
            f"a dma-buf is of whole pages ({page} bytes), and the allocation of {span.block} bytes "
            "under this memory does not begin and end with them: a device could reach what else is "
            f"in them. If it may, wrap it with share_block=True; else {_ALLOCATE}",
            check="page-size",
        )
    return start, end - start


def _sync_memops(address: int) -> bool:
    """Sets the attribute, where CUDA lets it; whether copies are synchronous now."""
    driver = cuda.driver()
    attribute = driver.CUpointer_attribute.CU_POINTER_ATTRIBUTE_SYNC_MEMOPS
    code, _ = cuda.ask("cuPointerSetAttribute", True, attribute, driver.CUdeviceptr(address))
    if code == 0:
        return True
    code, flags = cuda.ask("cuCtxGetFlags")
    return code == 0 and bool(int(flags) & int(driver.CUctx_flags.CU_CTX_SYNC_MEMOPS))


def _refusal(gpu: int, code: int) -> Exception:
    error = cuda.error("cuMemGetHandleForAddressRange", code)
    if is_lost(code):  # nothing about dma-bufs
        return error
    cause, check = _cause(gpu, code)
    text = f"no dma-buf of this memory: {cause} ({error.strerror})"
    return ExportError(text, check=check)


def _cause(gpu: int, code: int) -> tuple[str, str]:
    """Why, as far as can be known, and what to do; and the check of the doctor that explains it."""
    from .gpu_info import kernel_modules

    _, flavour, _ = kernel_modules()
    release = os.uname().release
    kernel = tuple(int(part) for part in release.split("-")[0].split(".")[:2] if part.isdecimal())
    if not cuda.attribute(gpu, "DMA_BUF_SUPPORTED"):
        if flavour == "closed":
            text = "the driver's kernel modules are the closed ones: install the open (nvidia-open)"
            return text, "driver-flavour"
        if kernel < (5, 12):
            text = f"Linux is {release}: CUDA asks for 5.12 or later, DOCA for 6.2 or later"
            return text, "kernel-version"
        text = (
            "this GPU or its driver has none: it takes Turing or later, CUDA 11.7 or later and the "
            "open kernel modules (nvidia-open)"
        )
        return text, "dmabuf-gpu"
    if code == 1:
        text = (
            "the address range is not one that is wholly backed by memory of this GPU, or does not "
            f"begin and end with a page: {_ALLOCATE}"
        )
        return text, ""
    if code == 801:
        return f"CUDA has none for memory of this kind: {_ALLOCATE}", "dmabuf-gpu"
    if code in (2, 304):
        text = "the system gave no descriptor: close some files (ulimit -n), or free GPU memory"
        return text, "open-files"
    return f"an error that should not come here: {_ALLOCATE}, and look at dmesg", "driver-loaded"
