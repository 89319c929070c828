# SPDX-License-Identifier: Apache-2.0
"""GPU memory allocated by dgkit (a CuPy array over CUDA virtual memory), and pinned host memory."""

from __future__ import annotations

import contextlib
import errno
import mmap
import os
import sys
from typing import Any

from ..errors import DeviceUnavailable, Unsupported
from ..types import GpuSpan
from ..unique import Closable
from ..units import dtype_text
from . import libcuda
from .gpu_base import GpuBase, synchronize_stream
from .gpu_info import uuid_of
from .host import HostMemory
from .shape import total_size


class GpuMemory(GpuBase, Closable):
    """Memory on a GPU that other processes can import. Created by `dgkit.empty(on="gpu")`.

    `array` is a CuPy array over it, for kernels of its GPU and of those with peer access. `size`
    bytes, zeroed, in an allocation of whole granules (2 MiB): an importer gets the whole
    allocation, which contains nothing else. Closing frees the bytes once no region and no array
    uses them.
    """

    def __init__(
        self, shape: tuple[int, ...], dtype: Any, *, gpu: int | None, name: str | None
    ) -> None:
        self._span = None
        self._allocation: Any = None
        self.shape, self.dtype, self.name = shape, dtype, name
        self.size = total_size(shape, dtype)
        cupy = libcuda.require_cupy()
        number = _number(gpu)
        with libcuda.primary_context(number):  # if this fails, dgkit's error is raised, not CuPy's
            uuid = uuid_of(number)
        cupy.ndarray((0,), dtype)  # raises CuPy's ValueError for an unsupported dtype
        from .vmm import Allocation

        self._allocation = allocation = Allocation(number, self.size)
        self._span = GpuSpan(
            address=allocation.address,
            size=self.size,
            gpu=number,
            uuid=uuid,
            kind="vmm",
            fd=allocation.fd,
            block=allocation.size,
        )

    @property
    def keep(self) -> object:
        """Object to hold while the address or the fd is in use."""
        return self._allocation

    @property
    def array(self) -> Any:
        """The bytes as a `cupy.ndarray` of `shape` and `dtype`, which keeps them alive.

        Raises:
            Unsupported: The current GPU is another one, without peer access to this memory: a
                kernel there would lose its context.
        """
        import cupy

        span = self.gpu
        current = libcuda.current_device()
        if current != span.gpu and current not in self._allocation.gpus:
            text = f"the memory is on cuda:{span.gpu}, and cuda:{current} is current, which has no "
            text += "peer access to it: use the array inside "
            text += f"`with cupy.cuda.Device({span.gpu}):`"
            raise Unsupported(errno.EOPNOTSUPP, text)
        owner = cupy.cuda.UnownedMemory(span.address, span.block, self._allocation, span.gpu)
        start = cupy.cuda.MemoryPointer(owner, 0)
        return cupy.ndarray(self.shape, self.dtype, memptr=start)

    def close(self) -> None:
        """Release the memory; regions and arrays over it keep its bytes alive. Idempotent."""
        self._span = self._allocation = None

    def _about(self) -> list[tuple[str, object]]:
        return [("Shape", f"{self.shape} of {dtype_text(self.dtype)}")]

    def __repr__(self) -> str:
        name = f" {self.name!r}" if self.name else ""
        place = "" if self._span is None else f" on {self.place}"
        chosen = f"; on='auto' chose {self.chosen}" if self.chosen else ""
        what = f"{self.shape} {dtype_text(self.dtype)} = {self.size} bytes"
        return f"<dgkit.GpuMemory{name} {what}{place}{chosen}>"


def _number(gpu: int | None) -> int:
    """Return the index of the GPU to use: `gpu`, else the current context's, else 0."""
    if gpu is None:
        return libcuda.current_device()
    found = libcuda.count()
    if gpu < found:
        return gpu
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    hint = "" if visible is None else f"; CUDA_VISIBLE_DEVICES is {visible!r}"
    available = "1 GPU, cuda:0" if found == 1 else f"{found} GPUs, cuda:0 to cuda:{found - 1}"
    text = f"there is no cuda:{gpu}: this process has {available}{hint}"
    raise DeviceUnavailable(errno.ENODEV, text, check="gpu-present")


class _PinnedPages(mmap.mmap):
    """Mapping registered with CUDA until nothing uses it."""

    address = 0
    gpu = 0

    def register(self) -> None:
        """Pin the pages for every GPU."""
        import numpy as np

        self.gpu = libcuda.current_device()
        start = int(np.frombuffer(self, "u1").ctypes.data)
        module = libcuda.driver()
        flags = module.CU_MEMHOSTREGISTER_PORTABLE | module.CU_MEMHOSTREGISTER_DEVICEMAP
        with libcuda.primary_context(self.gpu):
            libcuda.call("cuMemHostRegister", start, len(self), flags)
        self.address = start

    def __del__(self) -> None:
        # A forked child has the mapping but no CUDA: the registration is the parent's.
        if self.address and not (libcuda.forked() or sys.is_finalizing()):
            with (
                contextlib.suppress(Exception),
                libcuda.primary_context(self.gpu),
            ):  # e.g. a lost context
                libcuda.try_call("cuCtxSynchronize")
                libcuda.try_call("cuMemHostUnregister", self.address)


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
        libcuda.count()  # raises before anything is allocated
        super().__init__(shape, dtype, readonly_export=readonly_export, name=name)
        self.buffer.obj.register()  # type: ignore[attr-defined]

    @property
    def gpu_array(self) -> Any:
        """The bytes as a `cupy.ndarray` of `shape` and `dtype`, in place, for the current GPU."""
        cupy = libcuda.require_cupy()
        buffer, gpu = self.buffer, libcuda.current_device()
        with libcuda.primary_context(gpu):
            start = libcuda.call("cuMemHostGetDevicePointer", buffer.obj.address, 0)  # type: ignore[attr-defined]
        pages = cupy.cuda.UnownedMemory(int(start), self.size, buffer, gpu)
        return cupy.ndarray(self.shape, self.dtype, memptr=cupy.cuda.MemoryPointer(pages, 0))

    def synchronize(self, stream: Any = None) -> None:
        """Synchronize with a stream; None is CuPy's current one."""
        synchronize_stream(libcuda.current_device(), stream)
