# SPDX-License-Identifier: Apache-2.0
"""dgkit.wrap of arrays on a GPU: what another process can import of them, and why not."""

import os

import cupy
import pytest
from support.gpu.memory import MIB, Shown, free, virtual

import dgkit


def test_cudamalloc_memory_that_is_a_block_of_its_own_is_shared_by_ipc(cuda_memory):
    address = cuda_memory.malloc(4 * MIB)
    span = dgkit.wrap(Shown(address, (MIB,), "<f4")).gpu
    assert (span.kind, span.offset, span.block, span.why) == ("ipc", 0, 4 * MIB, "")
    assert len(span.handle) == 64
    assert any(span.handle)
    assert (span.gpu, len(span.uuid), span.fd) == (0, 16, -1)


@pytest.mark.any_gpu
def test_a_part_of_a_block_is_shared_only_if_the_whole_block_may_be(cuda_memory):
    address = cuda_memory.malloc(4 * MIB)
    part = Shown(address + 4096, (100,))
    shy, open_handed = dgkit.wrap(part), dgkit.wrap(part, share_block=True)
    assert (shy.share_block, open_handed.share_block) == (False, True)
    assert (shy.gpu.kind, shy.gpu.handle) == ("none", b"")
    for words in ("100 bytes", f"{4 * MIB}", "share_block=True"):
        assert words in shy.gpu.why
    assert (open_handed.gpu.kind, open_handed.gpu.offset) == ("ipc", 4096)
    assert open_handed.gpu.block == 4 * MIB


@pytest.mark.any_gpu
def test_an_array_of_cupys_pool_takes_share_block():
    array = cupy.zeros(100, "u1")
    assert "share_block=True" in dgkit.wrap(array).gpu.why
    span = dgkit.wrap(array, share_block=True).gpu
    assert span.kind == "ipc"
    assert span.offset + span.size <= span.block


def test_a_small_block_shares_what_cudamalloc_put_beside_it(cuda_memory):
    whole = Shown(cuda_memory.malloc(4096), (4096,))
    assert f"blocks of {2 * MIB} bytes" in dgkit.wrap(whole).gpu.why
    assert dgkit.wrap(whole, share_block=True).gpu.kind == "ipc"


KINDS = {
    "managed": ("managed", "dgkit.empty(on='gpu')"),
    "pooled": ("cudaMallocAsync", "set_allocator"),
    "host": ("host memory", "on='pinned'"),
}


@pytest.mark.any_gpu
@pytest.mark.parametrize("kind", KINDS)
def test_what_cuda_shares_with_nobody_says_why_and_what_to_do(cuda_memory, kind):
    address = getattr(cuda_memory, kind)(MIB)
    there = dgkit.wrap(Shown(address, (MIB,)), share_block=True)
    assert (there.gpu.kind, there.size) == ("none", MIB)
    for words in KINDS[kind]:
        assert words in there.gpu.why
    assert there.managed == (kind == "managed")


def test_cudamalloc_memory_without_an_ipc_handle_says_what_cuda_says(cuda_memory, fake_cuda):
    address = cuda_memory.malloc(2 * MIB)
    fake_cuda.order("cuIpcGetMemHandle=801")
    span = dgkit.wrap(Shown(address, (2 * MIB,))).gpu
    assert span.kind == "none"
    assert "CUDA_ERROR_NOT_SUPPORTED" in span.why


def test_virtual_memory_with_a_posix_fd_is_shared_by_it(cuda_memory):
    with virtual(2 * MIB) as address:
        there = dgkit.wrap(Shown(address, (2 * MIB,)))
        assert (there.gpu.kind, there.gpu.block) == ("vmm", 2 * MIB)
        number = there.gpu.fd
        assert os.fstat(number)
        assert not os.get_inheritable(number)
        there.close()
        with pytest.raises(OSError, match="Bad file descriptor"):
            os.fstat(number)


def test_virtual_memory_without_one_is_not_shared(cuda_memory):
    with virtual(2 * MIB, shareable=False) as address:
        span = dgkit.wrap(Shown(address, (2 * MIB,))).gpu
        assert (span.kind, span.fd) == ("none", -1)
        assert "without a POSIX fd" in span.why


def test_an_array_across_two_allocations_is_not_shared(cuda_memory):
    with virtual(2 * MIB, blocks=2) as address:
        across = Shown(address + MIB, (2 * MIB,))
        span = dgkit.wrap(across, share_block=True).gpu
        assert span.kind == "none"
        assert "several physical allocations" in span.why
        within = dgkit.wrap(Shown(address + 3 * MIB, (MIB,)), share_block=True).gpu
        assert (within.kind, within.offset) == ("vmm", MIB)


def test_no_handle_of_a_block_stays_open(cuda_memory):
    before = free()
    with virtual(2 * MIB) as address:
        for share_block in (False, True):
            dgkit.wrap(Shown(address, (100,)), share_block=share_block).close()
    assert free() == before


@pytest.mark.any_gpu
def test_the_array_of_a_memory_is_that_memory_and_needs_no_share_block():
    with dgkit.empty(1000, on="gpu") as there:
        span = dgkit.wrap(there.array).gpu
        assert (span.kind, span.size, span.block) == ("vmm", 1000, 2 * MIB)
        assert dgkit.wrap(there.array[10:]).gpu.kind == "none"
