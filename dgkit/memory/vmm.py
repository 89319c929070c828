# SPDX-License-Identifier: Apache-2.0
"""CUDA virtual memory that another process imports by a POSIX fd, as a cuda.core memory resource.

It replaces cuda.core's VirtualMemoryResource, whose versions 1.2 keep the physical memory of each
closed buffer until the process exits (NVIDIA/cuda-python, issue 2882), so that repeated allocations
exhaust the GPU. Here the handle is released once the memory is mapped: only the mapping keeps the
memory, so unmapping frees it.
"""

from __future__ import annotations

import contextlib
import errno
import os
import sys
from typing import Any

from cuda.core import Buffer, MemoryResource

from ..errors import DeviceUnavailable, OutOfMemory
from . import libcuda
from .cuda_pointer import allocated_sizes

_inherited: list[Any] = []
_NEEDED = {
    "VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED": "CUDA virtual memory",
    "HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED": "sharing memory by a POSIX fd",
}


class SharedMemoryResource(MemoryResource):  # type: ignore[misc] # it is Any to mypy
    """Memory resource of one GPU: whole granules (2 MiB), for GPUDirect RDMA where supported.

    `fds` maps the address of each new buffer to its POSIX fd; the caller of `allocate` removes it.
    `gpus` has the GPUs that may use a buffer: its own GPU and those with peer access to it. A
    kernel on any other GPU that used the buffer would lose its context.
    """

    def __init__(self, gpu: int) -> None:
        for attribute, what in _NEEDED.items():
            if not libcuda.attribute(gpu, attribute):
                text = f"cuda:{gpu} does not support {what}: use on='pinned', host memory that it "
                text += "can access"
                raise DeviceUnavailable(errno.ENODEV, text, check="gpudirect-platform")
        self._gpu = gpu
        self.fds: dict[int, int] = {}
        self.gpus = frozenset({gpu})
        self._allocation_prop = _allocation_prop(gpu)
        minimum = libcuda.driver().CUmemAllocationGranularity_flags.CU_MEM_ALLOC_GRANULARITY_MINIMUM
        self.granule = int(
            libcuda.call("cuMemGetAllocationGranularity", self._allocation_prop, minimum)
        )

    def allocate(self, size: int, *, stream: Any = None) -> Buffer:  # noqa: ARG002 - cuda.core's
        """Return a zeroed buffer of `size` bytes, rounded up to granules. Raises OutOfMemory."""
        requested, size = size, -(-size // self.granule) * self.granule
        with libcuda.primary_context(self._gpu), contextlib.ExitStack() as undo:
            address, fd = self._map(self._create(requested, size), size, undo)
            _zero(address, size)
            buffer = Buffer.from_handle(address, size, mr=self)
            undo.pop_all()
        self.fds[address] = fd
        return buffer

    def _map(self, handle: Any, size: int, undo: contextlib.ExitStack) -> tuple[int, int]:
        posix = libcuda.driver().CUmemAllocationHandleType.CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR
        try:
            fd = int(libcuda.call("cuMemExportToShareableHandle", handle, posix, 0))
            undo.callback(os.close, fd)
            os.set_inheritable(fd, False)
            address = int(libcuda.call("cuMemAddressReserve", size, self.granule, 0, 0))
            undo.callback(libcuda.try_call, "cuMemAddressFree", address, size)
            libcuda.call("cuMemMap", address, size, 0, handle, 0)
            undo.callback(libcuda.try_call, "cuMemUnmap", address, size)
            undo.callback(libcuda.try_call, "cuCtxSynchronize")  # zeroing may still be running
        finally:
            libcuda.try_call("cuMemRelease", handle)
        libcuda.call("cuMemSetAccess", address, size, [_access_desc(self._gpu)], 1)
        allowed = (peer for peer in _peers(self._gpu) if _allow(peer, address, size))
        self.gpus = frozenset({self._gpu, *allowed})
        return address, fd

    def _create(self, requested: int, size: int) -> Any:
        free = int(libcuda.call("cuMemGetInfo")[0])
        with contextlib.suppress(OutOfMemory):
            if size <= free:
                return libcuda.call("cuMemCreate", size, self._allocation_prop, 0)
        text = f"{requested:,} bytes requested, {free:,} free on cuda:{self._gpu}"
        hint = "cupy.get_default_memory_pool().free_all_blocks() frees what CuPy has cached"
        raise OutOfMemory(errno.ENOMEM, f"{text}; none were allocated ({hint})")

    def deallocate(self, ptr: Any, size: int, *, stream: Any = None) -> None:  # noqa: ARG002
        """Synchronize with all GPUs in `gpus`, then unmap. Does nothing at interpreter exit."""
        if sys.is_finalizing():
            return
        for gpu in self.gpus:
            with contextlib.suppress(Exception):
                _synchronize(gpu)
        libcuda.try_call("cuMemUnmap", int(ptr), size)
        libcuda.try_call("cuMemAddressFree", int(ptr), size)

    @property
    def is_device_accessible(self) -> bool:
        """True: the memory is on a GPU."""
        return True

    @property
    def is_host_accessible(self) -> bool:
        """False: the CPU cannot use its address (`cpu_view` maps it)."""
        return False

    @property
    def device_id(self) -> int:
        """Index of the GPU."""
        return self._gpu


class Allocation:
    """Allocation with `address`, `size` (bytes) and POSIX `fd`; freed with its last reference.

    `gpus` has the GPUs whose kernels may use it.
    """

    __slots__ = ("__weakref__", "_buffer", "address", "fd", "gpus", "size")

    def __init__(self, gpu: int, size: int) -> None:
        resource = SharedMemoryResource(gpu)
        self._buffer = resource.allocate(size)
        self.address, self.size = int(self._buffer.handle), int(self._buffer.size)
        self.fd, self.gpus = resource.fds.pop(self.address), resource.gpus
        allocated_sizes[self.address] = size

    def __del__(self) -> None:
        if not hasattr(self, "fd"):
            return
        os.close(self.fd)
        allocated_sizes.pop(self.address, None)
        if libcuda.forked():  # the mapping is the parent's: keep cuda.core from freeing it
            _inherited.append(self._buffer)


def _allocation_prop(gpu: int) -> Any:
    driver = libcuda.driver()
    prop = driver.CUmemAllocationProp()
    prop.type = driver.CUmemAllocationType.CU_MEM_ALLOCATION_TYPE_PINNED
    prop.location.type = driver.CUmemLocationType.CU_MEM_LOCATION_TYPE_DEVICE
    prop.location.id = gpu
    posix = driver.CUmemAllocationHandleType.CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR
    prop.requestedHandleTypes = posix
    rdma = libcuda.attribute(gpu, "GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED")
    prop.allocFlags.gpuDirectRDMACapable = 1 if rdma else 0
    return prop


def _access_desc(gpu: int) -> Any:
    access = libcuda.driver().CUmemAccessDesc()
    access.location.type = libcuda.driver().CUmemLocationType.CU_MEM_LOCATION_TYPE_DEVICE
    access.location.id = gpu
    access.flags = libcuda.driver().CUmemAccess_flags.CU_MEM_ACCESS_FLAGS_PROT_READWRITE
    return access


def _peers(gpu: int) -> list[int]:
    """Return the GPUs that can access the memory of `gpu`, without it."""
    owner = libcuda.call("cuDeviceGet", gpu)
    others = (index for index in range(libcuda.count()) if index != gpu)
    return [
        index
        for index in others
        if libcuda.try_call("cuDeviceCanAccessPeer", libcuda.call("cuDeviceGet", index), owner)
        == (0, 1)
    ]


def _allow(gpu: int, address: int, size: int) -> bool:
    """Give another GPU access; False if the driver refuses it."""
    code, _ = libcuda.try_call("cuMemSetAccess", address, size, [_access_desc(gpu)], 1)
    return code == 0


def _synchronize(gpu: int) -> None:
    """Wait for the kernels of this process on a GPU, unless it has no context there."""
    _, active = libcuda.call("cuDevicePrimaryCtxGetState", libcuda.call("cuDeviceGet", gpu))
    if active:
        with libcuda.primary_context(gpu):
            libcuda.try_call("cuCtxSynchronize")


def _zero(address: int, size: int) -> None:
    """Zero memory on a new non-blocking stream, which does not wait for the user's kernels."""
    flag = libcuda.driver().CUstream_flags.CU_STREAM_NON_BLOCKING
    stream = libcuda.call("cuStreamCreate", flag)
    try:
        libcuda.call("cuMemsetD8Async", address, 0, size, stream)
        libcuda.call("cuStreamSynchronize", stream)
    finally:
        libcuda.try_call("cuStreamDestroy", stream)
