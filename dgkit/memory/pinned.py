"""Host memory that every GPU of this process can access in place, over PCIe."""

from __future__ import annotations

import contextlib
import mmap
import sys
from typing import Any

from . import cuda
from .gpu_base import synchronize_stream
from .host import HostMemory


class _PinnedPages(mmap.mmap):
    """Mapping registered with CUDA until nothing uses it."""

    address = 0
    gpu = 0

    def register(self) -> None:
        """Pin the pages for every GPU."""
        import numpy as np

        self.gpu = cuda.current_device()
        start = int(np.frombuffer(self, "u1").ctypes.data)
        module = cuda.driver()
        flags = module.CU_MEMHOSTREGISTER_PORTABLE | module.CU_MEMHOSTREGISTER_DEVICEMAP
        with cuda.primary_context(self.gpu):
            cuda.call("cuMemHostRegister", start, len(self), flags)
        self.address = start

    def __del__(self) -> None:
        # A forked child has the mapping but no CUDA: the registration is the parent's.
        if self.address and not (cuda.forked() or sys.is_finalizing()):
            with (
                contextlib.suppress(Exception),
                cuda.primary_context(self.gpu),
            ):  # e.g. a lost context
                cuda.try_call("cuCtxSynchronize")
                cuda.try_call("cuMemHostUnregister", self.address)


class PinnedMemory(HostMemory):
    """Host memory that a GPU accesses in place. Created by `dgkit.empty(on="pinned")`.

    Other processes map it like all host memory. On a machine without GPUDirect it replaces GPU
    memory: a kernel reads and writes it through `gpu_array`, over PCIe. Pinned pages cannot be
    swapped out, so they reduce the memory of everything that runs on the machine.
    """

    place = "pinned"
    _title = "Pinned host memory"
    _mmap_class = _PinnedPages

    def __init__(
        self, shape: tuple[int, ...], dtype: Any, *, readonly_export: bool, name: str | None
    ) -> None:
        cuda.count()  # raises before anything is allocated
        super().__init__(shape, dtype, readonly_export=readonly_export, name=name)
        self.buffer.obj.register()  # type: ignore[attr-defined]

    @property
    def gpu_array(self) -> Any:
        """The bytes as a `cupy.ndarray` of `shape` and `dtype`, in place, for the current GPU."""
        cupy = cuda.require_cupy()
        buffer, gpu = self.buffer, cuda.current_device()
        with cuda.primary_context(gpu):
            start = cuda.call("cuMemHostGetDevicePointer", buffer.obj.address, 0)  # type: ignore[attr-defined]
        pages = cupy.cuda.UnownedMemory(int(start), self.size, buffer, gpu)
        return cupy.ndarray(self.shape, self.dtype, memptr=cupy.cuda.MemoryPointer(pages, 0))

    def synchronize(self, stream: Any = None) -> None:
        """Synchronize with a stream; None is CuPy's current one."""
        synchronize_stream(cuda.current_device(), stream)
