# SPDX-License-Identifier: Apache-2.0
"""Helpers of the GPU memory tests: free memory, allocations as in other libraries, arrays."""

import contextlib
import gc
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import numpy as np

from dgkit.memory import libcuda

MIB = 1 << 20


def free(gpu=0):
    """Return the free bytes of a GPU once all work on it has ended."""
    gc.collect()
    with libcuda.primary_context(gpu):
        libcuda.call("cuCtxSynchronize")
        return int(libcuda.call("cuMemGetInfo")[0])


def fds():
    """Return the fds of this process."""
    gc.collect()
    return set(Path("/proc/self/fd").iterdir())


def read(address, size):
    """Return bytes of GPU memory, read with the driver."""
    got = np.empty(size, "u1")
    with libcuda.primary_context(0):
        libcuda.call("cuMemcpyDtoH", got.ctypes.data, address, size)
    return got


class Shown:
    """Object that exposes an address by __cuda_array_interface__, version 3 by default."""

    def __init__(self, address, shape=(16,), typestr="|u1", readonly=False, **more):
        self.__cuda_array_interface__ = {
            "shape": shape,
            "typestr": typestr,
            "data": (address, readonly),
            "version": 3,
            **more,
        }


class OnlyDlpack:
    """Array that is exposed only by DLPack."""

    def __init__(self, array):
        self._array = array

    def __dlpack__(self, **options):
        return self._array.__dlpack__(**options)

    def __dlpack_device__(self):
        return self._array.__dlpack_device__()


@contextlib.contextmanager
def allocator() -> Iterator[SimpleNamespace]:
    """Yield functions that allocate with CUDA on the first GPU; free everything at the end."""
    given = []

    def keep(free_by, address):
        given.append((free_by, int(address)))
        return int(address)

    def malloc(size):
        return keep("cuMemFree", libcuda.call("cuMemAlloc", size))

    def managed(size):
        return keep("cuMemFree", libcuda.call("cuMemAllocManaged", size, 1))

    def pooled(size):
        stream = libcuda.driver().CUstream(0)
        address = libcuda.call("cuMemAllocAsync", size, stream)
        libcuda.call("cuStreamSynchronize", stream)
        return keep("cuMemFree", address)

    def host(size):
        return keep("cuMemFreeHost", libcuda.call("cuMemHostAlloc", size, 3))

    with libcuda.primary_context(0):
        yield SimpleNamespace(malloc=malloc, managed=managed, pooled=pooled, host=host)
        for free_by, address in given:
            libcuda.call(free_by, address)


@contextlib.contextmanager
def virtual(size, *, blocks=1, shareable=True) -> Iterator[int]:
    """Yield virtual memory as other libraries create it: `blocks` handles, mapped side by side."""
    driver = libcuda.driver()
    prop = driver.CUmemAllocationProp()
    prop.type = driver.CUmemAllocationType.CU_MEM_ALLOCATION_TYPE_PINNED
    prop.location.type = driver.CUmemLocationType.CU_MEM_LOCATION_TYPE_DEVICE
    if shareable:
        kinds = driver.CUmemAllocationHandleType
        prop.requestedHandleTypes = kinds.CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR
    address = int(libcuda.call("cuMemAddressReserve", size * blocks, 0, 0, 0))
    for number in range(blocks):
        handle = libcuda.call("cuMemCreate", size, prop, 0)
        libcuda.call("cuMemMap", address + number * size, size, 0, handle, 0)
        libcuda.call("cuMemRelease", handle)
    access = driver.CUmemAccessDesc()
    access.location = prop.location
    access.flags = driver.CUmemAccess_flags.CU_MEM_ACCESS_FLAGS_PROT_READWRITE
    libcuda.call("cuMemSetAccess", address, size * blocks, [access], 1)
    yield address
    libcuda.call("cuMemUnmap", address, size * blocks)
    libcuda.call("cuMemAddressFree", address, size * blocks)
