"""A memory resource of cuda.core: CUDA virtual memory that another process imports by a POSIX fd.

cuda.core's own VirtualMemoryResource makes the same. But until the process ends its versions 1.2
keep the physical memory of each buffer that was closed (NVIDIA/cuda-python, issue 2882), so that a
process that allocates again and again fills its GPU. Here the handle is released once the memory is
mapped: the mapping alone keeps it, and with the mapping it goes.
"""

from __future__ import annotations

import contextlib
import errno
import os
import sys
from typing import Any

from cuda.core import Buffer, MemoryResource

from ..errors import DeviceUnavailable, OutOfMemory
from . import cuda
from .cuda_pointer import whole_blocks

__all__ = ["Block", "SharedMemoryResource"]

_of_the_parent: list[Any] = []
_NEEDED = {
    "VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED": "CUDA virtual memory",
    "HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED": "memory that is shared by a POSIX fd",
}


class SharedMemoryResource(MemoryResource):  # type: ignore[misc] # it is Any to mypy
    """Allocates on one GPU, in whole granules (2 MiB), ready for GPUDirect RDMA where that is.

    `fds` has the POSIX fd of each new buffer by its address; who allocates takes it out.
    """

    def __init__(self, gpu: int) -> None:
        for attribute, what in _NEEDED.items():
            if not cuda.attribute(gpu, attribute):
                text = f"cuda:{gpu} has no {what}: use on='pinned', which the GPU reaches too"
                raise DeviceUnavailable(errno.ENODEV, text, check="gpudirect-platform")
        self._gpu = gpu
        self.fds: dict[int, int] = {}
        self._prop = _prop(gpu)
        minimum = cuda.driver().CUmemAllocationGranularity_flags.CU_MEM_ALLOC_GRANULARITY_MINIMUM
        self.granule = int(cuda.call("cuMemGetAllocationGranularity", self._prop, minimum))

    def allocate(self, size: int, *, stream: Any = None) -> Buffer:  # noqa: ARG002 - cuda.core's
        """A zeroed buffer of `size` bytes, rounded up to whole granules. OutOfMemory if too few."""
        asked, size = size, -(-size // self.granule) * self.granule
        with cuda.current(self._gpu), contextlib.ExitStack() as undo:
            address, fd = self._map(self._create(asked, size), size, undo)
            _zero(address, size)
            buffer = Buffer.from_handle(address, size, mr=self)
            undo.pop_all()
        self.fds[address] = fd
        return buffer

    def _map(self, handle: Any, size: int, undo: contextlib.ExitStack) -> tuple[int, int]:
        posix = cuda.driver().CUmemAllocationHandleType.CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR
        try:
            fd = int(cuda.call("cuMemExportToShareableHandle", handle, posix, 0))
            undo.callback(os.close, fd)
            os.set_inheritable(fd, False)
            address = int(cuda.call("cuMemAddressReserve", size, self.granule, 0, 0))
            undo.callback(cuda.ask, "cuMemAddressFree", address, size)
            cuda.call("cuMemMap", address, size, 0, handle, 0)
            undo.callback(cuda.ask, "cuMemUnmap", address, size)
            undo.callback(cuda.ask, "cuCtxSynchronize")  # it may still be being zeroed
        finally:
            cuda.ask("cuMemRelease", handle)
        access = cuda.driver().CUmemAccessDesc()
        access.location = self._prop.location
        access.flags = cuda.driver().CUmemAccess_flags.CU_MEM_ACCESS_FLAGS_PROT_READWRITE
        cuda.call("cuMemSetAccess", address, size, [access], 1)
        return address, fd

    def _create(self, asked: int, size: int) -> Any:
        free = int(cuda.call("cuMemGetInfo")[0])
        with contextlib.suppress(OutOfMemory):
            if size <= free:
                return cuda.call("cuMemCreate", size, self._prop, 0)
        text = f"{asked} bytes were asked for and {free} are free on cuda:{self._gpu}"
        hint = "cupy.get_default_memory_pool().free_all_blocks() gives back what CuPy only keeps"
        raise OutOfMemory(errno.ENOMEM, f"{text}: none were taken ({hint})")

    def deallocate(self, ptr: Any, size: int, *, stream: Any = None) -> None:  # noqa: ARG002
        """Waits for what still runs on the GPU, then unmaps. The end of a process frees it too."""
        if sys.is_finalizing():
            return
        with contextlib.suppress(Exception), cuda.current(self._gpu):
            cuda.ask("cuCtxSynchronize")
        cuda.ask("cuMemUnmap", int(ptr), size)
        cuda.ask("cuMemAddressFree", int(ptr), size)

    @property
    def is_device_accessible(self) -> bool:
        """It is on a GPU."""
        return True

    @property
    def is_host_accessible(self) -> bool:
        """Not by its address: `cpu_view` is for that."""
        return False

    @property
    def device_id(self) -> int:
        """The GPU's number."""
        return self._gpu


class Block:
    """One allocation: `address`, `size` (bytes) and its POSIX `fd`. Freed when nobody holds it."""

    __slots__ = ("__weakref__", "_buffer", "address", "fd", "size")

    def __init__(self, gpu: int, size: int) -> None:
        resource = SharedMemoryResource(gpu)
        self._buffer = resource.allocate(size)
        self.address, self.size = int(self._buffer.handle), int(self._buffer.size)
        self.fd = resource.fds.pop(self.address)
        whole_blocks[self.address] = size

    def __del__(self) -> None:
        if not hasattr(self, "fd"):
            return
        os.close(self.fd)
        whole_blocks.pop(self.address, None)
        if cuda.forked():  # the mapping is the parent's; cuda.core would ask CUDA to free it here
            _of_the_parent.append(self._buffer)


def _prop(gpu: int) -> Any:
    driver = cuda.driver()
    prop = driver.CUmemAllocationProp()
    prop.type = driver.CUmemAllocationType.CU_MEM_ALLOCATION_TYPE_PINNED
    prop.location.type = driver.CUmemLocationType.CU_MEM_LOCATION_TYPE_DEVICE
    prop.location.id = gpu
    posix = driver.CUmemAllocationHandleType.CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR
    prop.requestedHandleTypes = posix
    rdma = cuda.attribute(gpu, "GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED")
    prop.allocFlags.gpuDirectRDMACapable = 1 if rdma else 0
    return prop


def _zero(address: int, size: int) -> None:
    """On a stream of its own, so that it waits for no kernel of the user."""
    flag = cuda.driver().CUstream_flags.CU_STREAM_NON_BLOCKING
    stream = cuda.call("cuStreamCreate", flag)
    try:
        cuda.call("cuMemsetD8Async", address, 0, size, stream)
        cuda.call("cuStreamSynchronize", stream)
    finally:
        cuda.ask("cuStreamDestroy", stream)
