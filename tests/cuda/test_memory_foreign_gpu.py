# SPDX-License-Identifier: Apache-2.0
"""dgkit.wrap of arrays on a GPU: whose they may be, what is refused, what is waited for."""

import ctypes
import gc

import cupy
import numpy as np
import pytest
from support.gpu.memory import MIB, OnlyDlpack, Shown, virtual

import dgkit
from dgkit import memory
from dgkit.errors import AccessDenied, ClosedError, Unsupported
from dgkit.memory import libcuda
from dgkit.memory.wrap_gpu import ForeignGpuMemory
from dgkit.types import is_memory

ARRAYS = {
    "flat": lambda: cupy.zeros(24, "u1"),
    "two dimensions": lambda: cupy.zeros((2, 3), "<u4"),
    "fortran order": lambda: cupy.zeros((2, 3), "<u4").T,
    "0-d": lambda: cupy.zeros((), "f8"),
    "view of the middle": lambda: cupy.zeros(20, "u1")[4:12],
    "rows of a matrix": lambda: cupy.zeros((4, 6), "f4")[1:3],
    "one column, one row": lambda: cupy.zeros((4, 1), "f4")[:, 0:1],
    "complex": lambda: cupy.zeros(2, "c16"),
}


@pytest.mark.parametrize("kind", ARRAYS)
def test_any_contiguous_array_is_used_in_place(fake_cuda, kind):
    array = ARRAYS[kind]()
    with dgkit.wrap(array, name="mine") as there:
        assert isinstance(there, ForeignGpuMemory)
        assert is_memory(there)
        assert (there.size, there.name, there.kind) == (array.nbytes, "mine", "ndarray")
        assert (there.place, there.fd, there.share_process) == ("cuda:0", -1, False)
        assert there.gpu.address == array.data.ptr
        assert there.array.data.ptr == array.data.ptr
        assert not hasattr(there, "buffer")


@pytest.mark.parametrize(
    "array",
    [
        lambda: cupy.zeros(8)[::2],
        lambda: cupy.zeros((4, 4))[:, 1],
        lambda: cupy.zeros(8)[::-1],
        lambda: cupy.zeros((4, 4, 4))[:, :2],
        lambda: cupy.zeros((2, 3, 4)).transpose()[:, :1],
    ],
)
def test_what_is_not_contiguous_is_unsupported_and_says_what_to_do(fake_cuda, array):
    with pytest.raises(Unsupported, match="is not contiguous: register the whole array") as info:
        dgkit.wrap(array())
    assert info.value.errno == 95
    assert "write_2d or read_2d" in str(info.value)


@pytest.mark.parametrize("shape", [0, (3, 0), (0, 3)])
def test_no_bytes_is_a_value_error(fake_cuda, shape):
    array = cupy.zeros(shape)
    for shown in (array, OnlyDlpack(array)):
        kind = type(shown).__name__
        with pytest.raises(ValueError, match=f"{kind} has 0 bytes; the minimum is 1"):
            dgkit.wrap(shown)


def test_a_masked_array_is_unsupported(cuda_memory):
    address = cuda_memory.malloc(16)
    with pytest.raises(Unsupported, match="masked: register its data and its mask"):
        dgkit.wrap(Shown(address, mask=Shown(address)))


def test_an_address_that_is_none_of_cudas_is_a_value_error(fake_cuda):
    here = np.zeros(16, "u1")
    with pytest.raises(ValueError, match="is not an address of CUDA memory in this process"):
        dgkit.wrap(Shown(here.ctypes.data))


def test_bytes_beyond_the_allocation_are_a_value_error(cuda_memory):
    address = cuda_memory.malloc(4096)
    assert dgkit.wrap(Shown(address, (4096,))).size == 4096
    for size in (4097, 1 << 40):
        with pytest.raises(
            ValueError, match=f"{size} bytes .* which ends 4096 bytes after that address"
        ):
            dgkit.wrap(Shown(address, (size,)))
    with pytest.raises(ValueError, match="which ends 96 bytes after that address"):
        dgkit.wrap(Shown(address + 4000, (97,)), share_block=True)


@pytest.mark.parametrize("blocks", [1, 2])
def test_bytes_beyond_what_is_mapped_are_a_value_error(fake_cuda, blocks):
    with virtual(2 * MIB, blocks=blocks) as address:
        assert dgkit.wrap(Shown(address, (2 * MIB * blocks,))).size == 2 * MIB * blocks
        with pytest.raises(ValueError, match="exceed their allocation"):
            dgkit.wrap(Shown(address, (2 * MIB * blocks + 1,)))


@pytest.mark.parametrize("shape", [(-1,), (2, -3)])
def test_a_negative_length_is_a_value_error(cuda_memory, shape):
    with pytest.raises(ValueError, match="a length cannot be negative"):
        dgkit.wrap(Shown(cuda_memory.malloc(16), shape))


def test_readonly_is_that_of_the_object(cuda_memory):
    address = cuda_memory.malloc(16)
    assert dgkit.wrap(Shown(address, readonly=True)).readonly
    assert not dgkit.wrap(Shown(address)).readonly


@pytest.mark.any_gpu
def test_what_shows_itself_by_dlpack_alone_is_used_in_place():
    array = cupy.zeros((4, 4), "f4")
    there = dgkit.wrap(OnlyDlpack(array))
    assert there.gpu.address == array.data.ptr
    assert there.kind == "OnlyDlpack"
    there.array[1, 2] = 5
    assert array.get()[1, 2] == 5


def test_the_object_lives_as_long_as_its_memory(fake_cuda):
    array = cupy.zeros(24, "u1")
    freed = []
    array.data.mem.freed = type("Told", (), {"__del__": lambda _: freed.append(True)})()
    there = dgkit.wrap(array)
    keep = there.keep
    del array
    there.close()
    gc.collect()
    assert not freed
    del keep
    gc.collect()
    assert freed


def test_close_is_idempotent_and_use_after_it_is_a_closed_error(fake_cuda):
    there = dgkit.wrap(cupy.zeros(24, "u1"))
    there.close()
    there.close()
    assert there.closed
    for use in ("gpu", "array", "place"):
        with pytest.raises(ClosedError, match="ForeignGpuMemory ndarray of 24 bytes> is closed"):
            getattr(there, use)


@pytest.mark.parametrize(
    ("version", "stream", "waits"),
    [
        (3, {"stream": 1}, "cuStreamSynchronize"),
        (3, {"stream": 2}, "cuStreamSynchronize"),
        (3, {"stream": None}, "cuCtxSynchronize"),
        (2, {}, "cuCtxSynchronize"),
    ],
)
def test_the_stream_that_is_named_is_waited_for_else_all(
    cuda_memory, fake_cuda, version, stream, waits
):
    there = dgkit.wrap(Shown(cuda_memory.malloc(16), version=version, **stream))
    fake_cuda.order("")
    there.synchronize()
    others = {"cuStreamSynchronize", "cuCtxSynchronize"} - {waits}
    assert fake_cuda.calls(waits) == 1
    assert [fake_cuda.calls(other) for other in others] == [0]


def test_the_stream_is_the_one_that_is_named_when_it_is_waited_for(cuda_memory, fake_cuda):
    there = dgkit.wrap(cupy.zeros(16, "u1"))
    stream = cupy.cuda.Stream(non_blocking=True)
    source = np.full(16, 7, "u1")
    fake_cuda.order("copy_us=100000")
    with stream:
        where = (there.gpu.address, source.ctypes.data, 16)
        libcuda.call("cuMemcpyHtoDAsync", *where, stream.ptr)
        assert libcuda.try_call("cuStreamQuery", stream.ptr)[0] == 600  # CUDA_ERROR_NOT_READY
        there.synchronize()
        assert libcuda.try_call("cuStreamQuery", stream.ptr)[0] == 0


def test_wrapping_an_array_of_the_second_gpu_names_it(fake_cuda):
    fake_cuda.order("gpus=2")
    with cupy.cuda.Device(1):
        array = cupy.zeros(16, "u1")
    with libcuda.primary_context(0):
        there = dgkit.wrap(array)
        assert there.place == "cuda:1"
        there.synchronize()
        assert int(libcuda.call("cuCtxGetDevice")) == 0


def test_an_array_on_a_gpu_is_known_as_one(fake_cuda):
    assert memory.is_gpu_array(cupy.zeros(3))
    assert memory.is_gpu_array(OnlyDlpack(cupy.zeros(3)))


class Frozen(OnlyDlpack):
    """An array whose DLPack says that it is read-only (DLPack 1.0), as JAX's."""

    flags = 1

    def __dlpack__(self, *, max_version=None, **options):
        if max_version is None:
            return super().__dlpack__(**options)
        new = ctypes.pythonapi.PyCapsule_New
        new.restype, new.argtypes = (
            ctypes.py_object,
            [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p],
        )
        self._versioned = (ctypes.c_uint64 * 10)(1, 0, 0, self.flags)
        return new(ctypes.addressof(self._versioned), b"dltensor_versioned", None)


class Writable(Frozen):
    flags = 2  # a copy


@pytest.mark.parametrize("made", ["interface", "DLPack"])
def test_a_read_only_array_gives_a_region_to_read(fake_cuda, device, made):
    array = cupy.zeros(16, "u1")
    shown = Frozen(array) if made == "DLPack" else Shown(array.data.ptr, readonly=True)
    memory = dgkit.wrap(shown, share_block=True)
    assert memory.readonly
    assert device.register(memory).access == dgkit.Access.READ
    with pytest.raises(AccessDenied, match="register it with access='r'"):
        device.register(memory, "rw")


@pytest.mark.parametrize("kind", [OnlyDlpack, Writable])
def test_dlpack_without_the_flag_may_be_written(fake_cuda, device, kind):
    memory = dgkit.wrap(kind(cupy.zeros(16, "u1")), share_block=True)
    assert not memory.readonly
    assert device.register(memory).access == dgkit.Access.RW


def test_a_tensor_that_requires_grad_is_refused_with_the_remedy(fake_cuda):
    class Tensor:
        requires_grad = True

        @property
        def __cuda_array_interface__(self):
            raise RuntimeError("Can't get __cuda_array_interface__ on Variable that requires grad.")

    for call in (dgkit.wrap, memory.is_gpu_array):
        with pytest.raises(Unsupported, match=r"Tensor requires grad, .* tensor\.detach\(\)"):
            call(Tensor())
