# SPDX-License-Identifier: Apache-2.0
"""Memory on a real GPU: what CUDA, CuPy and the kernel's dma-bufs do with it."""

import pytest
from support.gpu.memory import MIB, free

import dgkit
from dgkit import memory
from dgkit.errors import OutOfMemory, Unsupported
from dgkit.memory import libcuda

pytestmark = pytest.mark.gpu


@pytest.fixture
def cupy():
    return libcuda.require_cupy()


def test_new_memory_is_zero_and_a_kernel_works_on_its_array(cupy):
    with dgkit.empty((1000, 1000), "f4", on="gpu") as there:
        array = there.array
        assert isinstance(array, cupy.ndarray)
        assert not array.any()
        kernel = cupy.ElementwiseKernel("T x", "T y", "y = x * 3 + i % 7", "three")
        kernel(cupy.ones_like(array), array)
        host = array.get()
        assert host[0, :9].tolist() == [3, 4, 5, 6, 7, 8, 9, 3, 4]
        assert float(array.sum()) == float(host.astype("f8").sum())


def test_what_dgkit_info_shows_is_known_here():
    first = memory.gpus()[0]
    assert first.total >= (first.free or 0) > 0
    assert first.flavour in ("open", "closed")
    assert first.driver[0].isdecimal()
    assert first.bar1_total is not None, first.bar1_why
    assert first.posix_fd


def test_nearly_all_of_the_card_can_be_had_and_comes_back():
    dgkit.empty(1, on="gpu").close()
    before = free()
    size = before * 9 // 10
    with dgkit.empty(size, on="gpu"):
        assert free() <= before - size
        with pytest.raises(OutOfMemory):
            dgkit.empty(size, on="gpu")
    assert free() == before


def test_the_cpu_reaches_the_bytes_in_place_or_is_told_what_to_install(cupy):
    with dgkit.empty(4096, on="gpu") as there:
        there.array[:] = cupy.arange(4096, dtype="u1")
        view, said = None, ""
        try:
            view = there.cpu_view()
        except Unsupported as why:
            said = str(why)
        if view is None:
            assert "By a dma-buf" in said
            assert "By GDRCopy" in said
        else:
            assert bytes(view[:5]) == bytes([0, 1, 2, 3, 4])
            view[0] = 77
            assert int(there.array[0]) == 77


def test_a_pytorch_tensor_is_used_in_place():
    torch = pytest.importorskip("torch")
    tensor = torch.arange(1 << 20, dtype=torch.float32, device="cuda")
    wrapped = memory.wrap(tensor, share_block=True)
    assert wrapped.size == 4 << 20
    assert wrapped.gpu.address == tensor.data_ptr()
    wrapped.synchronize(torch.cuda.current_stream())
    wrapped.array[3] = -1
    wrapped.synchronize()
    assert float(tensor[3]) == -1


def test_synchronize_waits_for_the_kernels_of_the_current_stream(cupy):
    with dgkit.empty(64 * MIB, on="gpu") as there, cupy.cuda.Stream(non_blocking=True) as stream:
        for value in range(40):
            there.array.fill(value)
        there.synchronize()
        assert stream.done
