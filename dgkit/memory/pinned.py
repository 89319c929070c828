"""Host memory that every GPU of this process reaches as well, through the PCIe bus."""

from __future__ import annotations

import contextlib
import mmap
import sys
from typing import Any

from . import cuda
from .gpu_base import wait_for
from .host import HostMemory

__all__ = ["PinnedMemory"]


class _PinnedPages(mmap.mmap):
    """Pages that are registered with CUDA for as long as anything uses them."""

    address = 0
    gpu = 0

    def register(self) -> None:
        """Pins them, for every GPU."""
        import numpy as np

        self.gpu = cuda.here()
        start = int(np.frombuffer(self, "u1").ctypes.data)
        module = cuda.driver()
        flags = module.CU_MEMHOSTREGISTER_PORTABLE | module.CU_MEMHOSTREGISTER_DEVICEMAP
        with cuda.current(self.gpu):
            cuda.call("cuMemHostRegister", start, len(self), flags)
        self.address = start

    def __del__(self) -> None:
        # A forked child has the mapping and no CUDA: the registration is the parent's.
        if self.address and not (cuda.forked() or sys.is_finalizing()):
            with contextlib.suppress(Exception), cuda.current(self.gpu):  # also a lost context
                cuda.ask("cuCtxSynchronize")
                cuda.ask("cuMemHostUnregister", self.address)


class PinnedMemory(HostMemory):
    """Host memory that a GPU reaches in place. Made by `dgkit.empty(on="pinned")`.

    Other processes map it as they do all host memory. It is what a machine without GPUDirect uses
    where another would use GPU memory: a kernel reads and writes it through `gpu_array`, over PCIe.
    Pinned pages cannot be swapped out: they are taken from all that runs on the machine.
    """

    place = "pinned"
    _title = "Pinned host memory"
    _pages = _PinnedPages

    def __init__(
        self, shape: tuple[int, ...], dtype: Any, *, readonly_export: bool, name: str | None
    ) -> None:
        cuda.count()  # before anything is allocated
        super().__init__(shape, dtype, readonly_export=readonly_export, name=name)
        self.buffer.obj.register()  # type: ignore[attr-defined]

    @property
    def gpu_array(self) -> Any:
        """The bytes as a `cupy.ndarray` of `shape` and `dtype`, in place, for the current GPU."""
        cupy = cuda.ready()
        buffer, gpu = self.buffer, cuda.here()
        with cuda.current(gpu):
            start = cuda.call("cuMemHostGetDevicePointer", buffer.obj.address, 0)  # type: ignore[attr-defined]
        pages = cupy.cuda.UnownedMemory(int(start), self.size, buffer, gpu)
        return cupy.ndarray(self.shape, self.dtype, memptr=cupy.cuda.MemoryPointer(pages, 0))

    def synchronize(self, stream: Any = None) -> None:
        """Waits until what a stream was given is done: CuPy's current one, if none is named."""
        wait_for(cuda.here(), stream)
