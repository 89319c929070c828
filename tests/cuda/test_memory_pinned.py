# SPDX-License-Identifier: Apache-2.0
"""dgkit.empty(on="pinned"): host memory that a GPU reaches in place."""

import errno
import gc
import mmap

import cupy
import numpy as np
import pytest
from support.gpu.memory import fds

import dgkit
from dgkit.errors import DeviceUnavailable, NativeError, OutOfMemory
from dgkit.memory import HostMemory, libcuda
from dgkit.types import is_memory


def registered(address):
    """Return whether CUDA knows the address as pinned host memory."""
    attribute = libcuda.driver().CUpointer_attribute.CU_POINTER_ATTRIBUTE_MEMORY_TYPE
    with libcuda.primary_context(0):
        code, _ = libcuda.try_call(
            "cuPointerGetAttribute", attribute, libcuda.driver().CUdeviceptr(address)
        )
    return code == 0


def address_of(memory):
    return np.frombuffer(memory.buffer, "u1").ctypes.data


def test_it_is_host_memory_and_its_place_is_pinned():
    with dgkit.empty((2, 3), "<u2", on="pinned", name="flags") as there:
        assert isinstance(there, HostMemory)
        assert is_memory(there)
        assert (there.place, there.size, there.gpu, there.name) == ("pinned", 12, None, "flags")
        assert there.fd >= 0
        assert not there.array.any()
        assert repr(there) == "<dgkit.PinnedMemory 'flags' (2, 3) <u2 = 12 bytes>"


@pytest.mark.any_gpu
def test_another_process_maps_it_as_it_does_all_host_memory():
    with dgkit.empty(4096, on="pinned") as there, mmap.mmap(there.fd, 4096) as elsewhere:
        there.gpu_array.fill(7)
        there.synchronize()
        assert elsewhere[:4] == b"\7\7\7\7"


@pytest.mark.any_gpu
def test_its_gpu_array_is_the_same_bytes():
    with dgkit.empty((2, 3), "<u2", on="pinned") as there:
        assert isinstance(there.gpu_array, cupy.ndarray)
        assert (there.gpu_array.shape, there.gpu_array.dtype) == ((2, 3), np.dtype("<u2"))
        there.array[1, 2] = 9
        assert there.gpu_array.get()[1, 2] == 9


def test_readonly_export_is_kept_by_pinned_memory_too():
    with dgkit.empty(4096, on="pinned", readonly_export=True) as there:
        there.gpu_array.fill(1)
        with pytest.raises(PermissionError):
            mmap.mmap(there.fd, 4096)


def test_it_is_registered_until_nothing_uses_it():
    there = dgkit.empty(4096, on="pinned")
    address, array = address_of(there), there.gpu_array
    assert registered(address)
    there.close()
    gc.collect()
    assert registered(address)
    array.fill(3)
    del array
    gc.collect()
    assert not registered(address)


def test_200_cycles_leave_nothing_behind():
    before = fds()
    for _ in range(200):
        with dgkit.empty(4096, on="pinned") as there:
            address = address_of(there)
    del there
    gc.collect()
    assert not registered(address)
    assert fds() == before


def test_its_producing_stream_is_waited_for(fake_cuda):
    with dgkit.empty(64, on="pinned") as there, dgkit.empty(64, on="gpu") as source:
        source.array.fill(5)
        stream = cupy.cuda.Stream(non_blocking=True)
        fake_cuda.order("copy_us=100000")
        with stream, libcuda.primary_context(0):
            where = (address_of(there), source.gpu.address, 64)
            libcuda.call("cuMemcpyDtoHAsync", *where, stream.ptr)
            assert libcuda.try_call("cuStreamQuery", stream.ptr)[0] == 600  # CUDA_ERROR_NOT_READY
            there.synchronize()
        assert there.array.tolist() == [5] * 64


@pytest.mark.parametrize(("code", "error"), [(2, OutOfMemory), (1, NativeError)])
def test_pages_that_cannot_be_pinned_are_given_back(fake_cuda, code, error):
    before = fds()
    fake_cuda.order(f"cuMemHostRegister={code}")
    with pytest.raises(error, match="cuMemHostRegister returned") as info:
        dgkit.empty(4096, on="pinned")
    assert info.value.errno == (errno.ENOMEM if code == 2 else errno.EINVAL)
    del info
    assert fds() == before


def test_without_a_gpu_nothing_is_allocated(fake_cuda):
    fake_cuda.order("gpus=0")
    with pytest.raises(DeviceUnavailable, match="sees no GPU"):
        dgkit.empty(4096, on="pinned")


def test_more_than_the_machine_has_is_refused(fake_cuda):
    with pytest.raises(OutOfMemory, match="bytes requested, "):
        dgkit.empty(1 << 50, on="pinned")
    assert fake_cuda.calls("cuMemHostRegister") == 0
