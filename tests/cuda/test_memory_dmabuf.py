# SPDX-License-Identifier: Apache-2.0
"""dma-bufs of GPU memory, and the older way by nvidia-peermem."""

import os
from types import SimpleNamespace

import cupy
import numpy as np
import pytest
from support.gpu.memory import MIB, fds

import dgkit
from dgkit.errors import DeviceUnavailable, ExportError
from dgkit.memory import dmabuf, gpu_info, libcuda

PAGE = os.sysconf("SC_PAGE_SIZE")
EXPORT = "cuMemGetHandleForAddressRange"
DMA_BUF_SUPPORTED = "attr124=0"


@pytest.fixture
def there():
    with dgkit.empty(10_000, on="gpu") as memory:
        yield memory


@pytest.fixture
def array():
    """An array of cudaMalloc memory, a whole block."""
    return cupy.zeros(4 * MIB, "u1")


@pytest.mark.any_gpu
def test_a_dma_buf_holds_the_pages_of_the_bytes_from_an_offset_on(there):
    with there.dmabuf() as shared:
        assert (shared.way, shared.offset, shared.size) == ("dmabuf", 0, 10_000)
        assert shared.length == -(-10_000 // PAGE) * PAGE
        assert os.fstat(shared.fd)
        assert not os.get_inheritable(shared.fd)


@pytest.mark.any_gpu
@pytest.mark.parametrize(("start", "size"), [(0, 1), (5000, 4000), (PAGE - 1, 2), (PAGE, PAGE)])
def test_a_part_keeps_its_offset_in_the_page_that_it_begins_in(array, start, size):
    part = dgkit.wrap(array[start : start + size])
    with part.dmabuf() as shared:
        assert (part.gpu.address - shared.offset) % PAGE == 0
        assert 0 <= shared.offset < PAGE
        assert shared.length % PAGE == 0
        assert shared.offset + shared.size <= shared.length < shared.offset + shared.size + PAGE
        assert shared.size == size


def test_the_fd_names_the_bytes_of_the_memory(fake_cuda, there):
    fake_cuda.order("dmabuf_mmap=1")
    there.array[:4] = cupy.asarray(np.arange(4, dtype="u1"))
    with there.dmabuf() as shared, shared.map() as mapped:
        assert mapped[shared.offset : shared.offset + 4] == bytes([0, 1, 2, 3])


def test_closing_is_idempotent_and_a_forgotten_one_is_closed(there):
    before = fds()
    shared = there.dmabuf()
    shared.close()
    shared.close()
    assert (shared.closed, shared.fd) == (True, -1)
    assert "closed" in repr(shared)
    there.dmabuf()
    assert fds() == before


def test_the_producing_stream_is_waited_for_first(fake_cuda, there):
    fake_cuda.order("")
    there.dmabuf().close()
    assert fake_cuda.calls("cuStreamSynchronize") == 1


def array_at(address):
    """4 MiB as a CuPy array."""
    block = cupy.cuda.UnownedMemory(address, 4 * MIB, None, 0)
    return cupy.ndarray((4 * MIB,), "u1", memptr=cupy.cuda.MemoryPointer(block, 0))


@pytest.mark.any_gpu
def test_cudamalloc_memory_is_made_to_copy_synchronously(cuda_memory):
    there = dgkit.wrap(array_at(cuda_memory.malloc(4 * MIB)))
    attribute = libcuda.driver().CUpointer_attribute.CU_POINTER_ATTRIBUTE_SYNC_MEMOPS
    pointer = libcuda.driver().CUdeviceptr(there.gpu.address)
    assert not libcuda.call("cuPointerGetAttribute", attribute, pointer)
    with there.dmabuf() as shared:
        assert shared.sync_memops
        assert "are synchronous" in repr(shared)
    assert libcuda.call("cuPointerGetAttribute", attribute, pointer)


@pytest.mark.any_gpu
def test_virtual_memory_cannot_be_and_says_what_there_is_instead(there):
    with there.dmabuf() as shared:
        assert not shared.sync_memops
        assert "CU_CTX_SYNC_MEMOPS" in repr(shared)
        assert "CU_CTX_SYNC_MEMOPS" in (dmabuf.DmaBuf.__doc__ or "")


def test_the_flag_of_the_users_own_context_counts(there):
    with libcuda.primary_context(0):
        before = libcuda.call("cuCtxGetFlags")
        libcuda.call("cuCtxSetFlags", libcuda.driver().CUctx_flags.CU_CTX_SYNC_MEMOPS)
        try:
            with there.dmabuf() as shared:
                assert shared.sync_memops
        finally:
            libcuda.call("cuCtxSetFlags", before)


@pytest.mark.any_gpu
def test_managed_memory_has_none_by_any_way(cuda_memory):
    there = dgkit.wrap(array_at(cuda_memory.managed(4 * MIB)))
    for way in (there.dmabuf, there.dmabuf_or_peermem):
        with pytest.raises(ExportError, match=r"managed memory .*dgkit\.empty"):
            way()


def test_a_block_of_no_whole_pages_would_share_what_lies_beside_it(monkeypatch, array):
    monkeypatch.setattr(dmabuf.os, "sysconf", lambda _: 16 * MIB)  # pages larger than the block
    with pytest.raises(ExportError, match=r"whole pages \(16777216 bytes\).*share_block=True"):
        dgkit.wrap(array).dmabuf()


def kernel_modules(flavour):
    return lambda: ("580.159.04", flavour, "")


def linux(release):
    return lambda: SimpleNamespace(release=release)


REFUSALS = [
    ("801", "attr124=0", "closed", "6.18.0", "closed ones: install the open"),
    ("801", "attr124=0", "open", "5.4.0-42-generic", r"Linux is 5\.4\.0.* 5\.12 .*DOCA 6\.2"),
    ("801", "attr124=0", "open", "6.18.0", "Turing or later"),
    ("801", "", "open", "6.18.0", "for this kind of memory"),
    ("1", "", "open", "6.18.0", "does not begin and end on page boundaries"),
    ("304", "", "open", "6.18.0", "ulimit -n"),
    ("999", "", "open", "6.18.0", "dmesg"),
]


@pytest.mark.parametrize(("code", "knob", "flavour", "release", "words"), REFUSALS)
def test_each_refusal_of_cuda_names_cause_and_remedy(
    fake_cuda, there, monkeypatch, code, knob, flavour, release, words
):
    monkeypatch.setattr(gpu_info, "kernel_modules", kernel_modules(flavour))
    monkeypatch.setattr(dmabuf.os, "uname", linux(release))
    fake_cuda.order(f"{EXPORT}={code},{knob}")
    with pytest.raises(ExportError, match=words) as info:
        there.dmabuf()
    assert f"({code})" in str(info.value)


def test_a_lost_context_is_not_taken_for_a_missing_dma_buf(fake_cuda, there):
    fake_cuda.order(f"{EXPORT}=700")
    with pytest.raises(DeviceUnavailable, match="context of this process is lost"):
        there.dmabuf_or_peermem()


@pytest.fixture
def peermem(monkeypatch, tmp_path):
    """Where the kernel shows nvidia-peermem when it is loaded."""
    monkeypatch.setattr(dmabuf, "_PEERMEM", tmp_path / "nvidia_peermem")
    return tmp_path / "nvidia_peermem"


def test_a_dma_buf_is_taken_where_there_is_one(there, peermem):
    with there.dmabuf_or_peermem() as found:
        assert found.way == "dmabuf"


def test_without_one_the_address_goes_to_nvidia_peermem(fake_cuda, there, peermem):
    fake_cuda.order(f"{EXPORT}=801,{DMA_BUF_SUPPORTED}")
    found = there.dmabuf_or_peermem()
    assert (found.way, found.address, found.size) == ("nvidia-peermem", there.gpu.address, 10_000)
    assert "CUDA_ERROR_NOT_SUPPORTED" in found.why
    assert not found.loaded
    assert "sudo modprobe nvidia-peermem" in found.remedy
    assert "sudo modprobe nvidia-peermem" in repr(found)
    with found as same:
        assert same is found
    peermem.mkdir()
    again = there.dmabuf_or_peermem()
    assert (again.loaded, again.remedy) == (True, "")
    assert "nvidia-peermem is loaded" in repr(again)


def test_a_gpu_without_gpudirect_has_no_such_way_either(fake_cuda, there, peermem):
    fake_cuda.order(f"{EXPORT}=801,attr116=0")
    with pytest.raises(ExportError, match="no dma-buf of this memory"):
        there.dmabuf_or_peermem()
