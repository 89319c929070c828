# SPDX-License-Identifier: Apache-2.0
"""dgkit.empty(on="gpu"): its bytes, its place, its end."""

import contextlib
import os

import cupy
import numpy as np
import pytest
from support.gpu.memory import MIB, fds, free, read

import dgkit
from dgkit import memory
from dgkit.errors import ClosedError, DeviceUnavailable, ExportError
from dgkit.memory import HostMemory, libcuda
from dgkit.memory.gpu import GpuMemory
from dgkit.types import GpuSpan, is_memory


@pytest.mark.parametrize(
    ("shape", "dtype", "size"),
    [(10, "u1", 10), ((), "f8", 8), ((3, 4), "<f4", 48), ([2, 2], bool, 4)],
)
def test_its_array_has_the_shape_and_the_dtype_and_is_zero(shape, dtype, size):
    with dgkit.empty(shape, dtype, on="gpu", name="weights") as there:
        assert isinstance(there, GpuMemory)
        assert isinstance(there.array, cupy.ndarray)
        assert (there.size, there.name) == (size, "weights")
        assert there.array.shape == np.empty(shape).shape
        assert there.array.dtype == np.dtype(dtype)
        assert not there.array.get().any()


def test_it_is_a_memory_of_a_gpu():
    with dgkit.empty(100, on="gpu") as there:
        assert is_memory(there)
        assert isinstance(there.gpu, GpuSpan)
        assert (there.place, there.fd, there.fd_offset) == ("cuda:0", -1, 0)
        assert not there.share_process
        assert not hasattr(there, "buffer")
        assert repr(there) == "<dgkit.GpuMemory (100,) u1 = 100 bytes on cuda:0>"
        assert "cuda:0" in there._repr_html_()


@pytest.mark.any_gpu
def test_its_span_says_how_another_process_imports_it():
    with dgkit.empty(3 * MIB, on="gpu") as there:
        span = there.gpu
        assert (span.kind, span.size, span.block, span.offset) == ("vmm", 3 * MIB, 4 * MIB, 0)
        assert span.address == there.array.data.ptr
        assert (span.gpu, len(span.uuid)) == (0, 16)
        assert os.fstat(span.fd)
        assert not os.get_inheritable(span.fd)
        assert memory.gpus()[0].uuid[4:].replace("-", "") == span.uuid.hex()


@pytest.mark.any_gpu
def test_the_padding_of_its_block_is_zero_too():
    for _ in range(3):
        with dgkit.empty(100, on="gpu") as there:
            assert not read(there.gpu.address, there.gpu.block).any()
        with dgkit.empty(2 * MIB, on="gpu") as there:  # which may be that block again
            assert not there.array.any()
            there.array.fill(0xFF)
            there.synchronize()


def test_all_arrays_of_it_are_the_same_bytes():
    with dgkit.empty((2, 3), "<u2", on="gpu") as there:
        there.array[1, 2] = 0x1234
        assert there.array.get()[1, 2] == 0x1234
        assert bytes(read(there.gpu.address, 12)[-2:]) == b"\x34\x12"


def test_close_is_idempotent_and_use_after_it_is_a_closed_error():
    there = dgkit.empty(8, on="gpu")
    assert not there.closed
    there.close()
    there.close()
    assert there.closed
    assert "closed" in there._repr_html_()
    for use in ("gpu", "array", "place"):
        with pytest.raises(ClosedError, match=r"GpuMemory \(8,\) u1 = 8 bytes> is closed"):
            getattr(there, use)
    for use in (there.synchronize, there.dmabuf, there.cpu_view):
        with pytest.raises(ClosedError):
            use()


@pytest.mark.any_gpu
def test_200_cycles_leave_the_gpus_memory_and_the_fds_as_they_were():
    def cycle():
        with dgkit.empty(8 * MIB, on="gpu") as there, contextlib.suppress(ExportError):
            there.array.fill(1)
            there.dmabuf().close()

    cycle()
    before, open_before = free(), fds()
    for _ in range(200):
        cycle()
    assert free() == before
    assert fds() == open_before


def test_a_forgotten_memory_gives_itself_back_without_a_word():
    before, open_before = free(), fds()
    dgkit.empty(MIB, on="gpu")
    assert free() == before
    assert fds() == open_before


@pytest.mark.any_gpu
def test_an_array_keeps_the_bytes_of_a_closed_memory():
    with dgkit.empty(16, on="gpu") as there:
        there.array.fill(3)  # its kernel is loaded now
    del there
    before = free()
    with dgkit.empty(16, on="gpu") as there:
        array = there.array
        array.fill(3)
    assert free() == before - 2 * MIB
    assert array.get().tolist() == [3] * 16
    del array
    assert free() == before


def test_keep_holds_the_bytes_as_long_as_anybody_needs_them():
    before = free()
    there = dgkit.empty(16, on="gpu")
    keep, fd = there.keep, there.gpu.fd
    there.close()
    assert os.fstat(fd)
    del keep
    assert free() == before


def test_work_on_the_gpu_is_waited_for_before_the_bytes_go(fake_cuda):
    there = dgkit.empty(MIB, on="gpu")
    fake_cuda.order("")
    there.close()
    assert fake_cuda.calls("cuCtxSynchronize") == 1
    assert fake_cuda.calls("cuMemUnmap") == 1


@pytest.fixture
def two_gpus(fake_cuda):
    fake_cuda.order("gpus=2")
    return fake_cuda


def test_each_gpu_has_its_own_name(two_gpus):
    with dgkit.empty(8, on="cuda:1") as second, dgkit.empty(8, on="cuda:0") as first:
        assert (first.place, second.place) == ("cuda:0", "cuda:1")
        assert first.gpu.uuid != second.gpu.uuid


def test_gpu_is_the_one_whose_context_is_current_else_the_first(two_gpus):
    with dgkit.empty(8, on="gpu") as there:
        assert there.place == "cuda:0"
    with libcuda.primary_context(1), dgkit.empty(8, on="gpu") as there:
        assert there.place == "cuda:1"


def test_the_users_context_stays_current(two_gpus):
    with libcuda.primary_context(1):
        before = int(libcuda.call("cuCtxGetCurrent"))
        with dgkit.empty(8, on="cuda:0") as there:
            there.synchronize()
            there.dmabuf().close()
        assert int(libcuda.call("cuCtxGetCurrent")) == before


@pytest.mark.parametrize(("gpus", "has"), [(1, "1 GPU, cuda:0"), (2, "2 GPUs, cuda:0 to cuda:1")])
def test_a_gpu_that_is_not_there_is_refused_by_its_number(fake_cuda, monkeypatch, gpus, has):
    fake_cuda.order(f"gpus={gpus}")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,3")
    with pytest.raises(DeviceUnavailable, match=rf"no cuda:7.* has {has}; CUDA_VISIBLE_DEVICES is"):
        dgkit.empty(8, on="cuda:7")


def test_auto_takes_the_gpu_and_says_so():
    with dgkit.empty(8, on="auto") as there:
        assert there.place == "cuda:0"
        assert "a GPU can be used here" in there.chosen
        assert "on='auto' chose GPU memory" in repr(there)


def test_auto_takes_the_host_for_what_a_gpu_cannot_promise():
    with dgkit.empty(8, on="auto", readonly_export=True) as there:
        assert isinstance(there, HostMemory)
        assert "readonly_export" in there.chosen


def test_what_dgkit_info_shows_of_a_gpu(fake_cuda):
    fake_cuda.order("gpus=2,attr117=0,attr118=200")
    first, second = memory.gpus()
    assert (first.index, second.index) == (0, 1)
    assert first.name == "dgkit fake GPU"
    assert (first.total, first.cuda) == (1 << 30, "13.0")
    assert first.free == free()
    assert first.uuid.startswith("GPU-")
    assert first.uuid != second.uuid
    assert first.dma_buf
    assert first.posix_fd
    assert first.writes_ordering in ("none", "owner", "all devices")
    assert first.bar1_total is None
    assert first.bar1_why
    assert memory.why_no_gpu() == ""
