# SPDX-License-Identifier: Apache-2.0
"""Memory of one GPU while another is current: kernels there may use it, or the array is refused."""

import cupy
import pytest
from support.gpu.memory import free

import dgkit
from dgkit.errors import Unsupported
from dgkit.memory import libcuda
from dgkit.memory.gpu import GpuMemory


def fill_by(gpu: int, memory: GpuMemory, value: int) -> int:
    """Have a GPU fill memory, as a kernel of it would; the driver's result code."""
    with libcuda.primary_context(gpu):
        code, _ = libcuda.try_call("cuMemsetD8Async", memory.gpu.address, value, memory.size, 0)
        libcuda.call("cuCtxSynchronize")
    return code


@pytest.mark.parametrize(("owner", "other"), [(0, 1), (1, 0), (2, 0)])
def test_every_gpu_with_peer_access_may_use_new_memory(fake_cuda, owner, other):
    fake_cuda.order("gpus=3")
    with dgkit.empty(4096, on=f"cuda:{owner}") as there, cupy.cuda.Device(other):
        array = there.array
        assert fill_by(other, there, 7) == 0
        assert array.get().tolist() == [7] * 4096


def test_without_peer_access_the_array_is_refused_while_another_gpu_is_current(fake_cuda):
    fake_cuda.order("gpus=2,peer=0")
    with dgkit.empty(16, on="cuda:1") as there:
        with pytest.raises(Unsupported, match=r"cuda:1.*cuda:0.*cupy\.cuda\.Device\(1\)"):
            _ = there.array
        with cupy.cuda.Device(1):
            there.array.fill(3)
            assert there.array.get().tolist() == [3] * 16
        assert fill_by(1, there, 1) == 0


def test_memory_whose_peers_are_refused_by_the_driver_is_that_of_its_own_gpu(fake_cuda):
    fake_cuda.order("gpus=2,cuMemSetAccess=1@2")
    with dgkit.empty(16, on="cuda:0") as there:
        assert there.array.get().tolist() == [0] * 16
        with cupy.cuda.Device(1), pytest.raises(Unsupported, match="cuda:1 is current"):
            _ = there.array


def test_memory_is_unmapped_only_when_every_gpu_is_done_with_it(fake_cuda):
    fake_cuda.order("gpus=2")
    before = free()
    there = dgkit.empty(16, on="cuda:0")
    with cupy.cuda.Device(1):
        cupy.cuda.Stream(non_blocking=True)
    calls = fake_cuda.calls("cuCtxSynchronize")
    there.close()
    assert fake_cuda.calls("cuCtxSynchronize") - calls == 2
    assert free() == before
