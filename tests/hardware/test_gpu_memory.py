"""Memory on a real GPU: what CUDA, CuPy and the kernel's dma-bufs do with it."""

import contextlib
import gc
import os
from pathlib import Path

import pytest

import dgkit
from dgkit import memory
from dgkit.errors import DeviceUnavailable, ExportError, OutOfMemory, Unsupported
from dgkit.memory import libcuda

pytestmark = pytest.mark.gpu

MIB = 1 << 20


@pytest.fixture
def cupy():
    return libcuda.require_cupy()


def free():
    """Bytes of the first GPU that are free, once nothing is on its way any more."""
    gc.collect()
    with libcuda.primary_context(0):
        libcuda.call("cuCtxSynchronize")
        return int(libcuda.call("cuMemGetInfo")[0])


def open_fds():
    return len(list(Path("/proc/self/fd").iterdir()))


def link_of(fd):
    return Path(f"/proc/self/fd/{fd}").readlink().as_posix()


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


def test_the_whole_of_a_used_block_is_zero_again(cupy):
    for _ in range(3):
        with dgkit.empty(2 * MIB, on="gpu") as there:
            assert not there.array.any()
            there.array.fill(0xFF)
            there.synchronize()


def test_its_span_names_the_gpu_and_a_posix_fd(cupy):
    with dgkit.empty(100, on="cuda:0") as there:
        span = there.gpu
        assert (there.place, span.gpu, span.kind, span.offset) == ("cuda:0", 0, "vmm", 0)
        assert (span.size, span.block) == (100, 2 * MIB)
        assert os.fstat(span.fd)
        assert not os.get_inheritable(span.fd)
        assert memory.gpus()[0].uuid[4:].replace("-", "") == span.uuid.hex()


def test_what_dgkit_info_shows_is_known_here():
    first = memory.gpus()[0]
    assert first.total >= (first.free or 0) > 0
    assert first.flavour in ("open", "closed")
    assert first.driver[0].isdecimal()
    assert first.bar1_total is not None, first.bar1_why
    assert first.posix_fd


def test_an_array_keeps_the_bytes_of_a_closed_memory(cupy):
    there = dgkit.empty(4096, on="gpu")
    array = there.array
    array.fill(9)
    there.close()
    gc.collect()
    assert int(array.sum()) == 9 * 4096


def test_a_dma_buf_of_virtual_memory_keeps_the_offset_and_says_what_copies_do():
    with dgkit.empty(10_000, on="gpu") as there, there.dmabuf() as shared:
        assert "dmabuf" in link_of(shared.fd)
        assert (shared.offset, shared.size, shared.length) == (0, 10_000, 12288)
        assert not shared.sync_memops  # CUDA refuses it for virtual memory
        assert not os.get_inheritable(shared.fd)
    assert shared.closed


def test_a_dma_buf_of_a_part_begins_at_the_page_below_it(cupy):
    whole = cupy.zeros(MIB, "u1")
    part = memory.wrap(whole[5000:9000])
    with part.dmabuf() as shared:
        start = (part.gpu.address - shared.offset) % os.sysconf("SC_PAGE_SIZE")
        assert start == 0
        assert 0 <= shared.offset < os.sysconf("SC_PAGE_SIZE")
        assert shared.offset + shared.size <= shared.length
        assert shared.size == 4000


def sync_memops(address):
    attribute = libcuda.driver().CUpointer_attribute.CU_POINTER_ATTRIBUTE_SYNC_MEMOPS
    return libcuda.call("cuPointerGetAttribute", attribute, libcuda.driver().CUdeviceptr(address))


def test_a_dma_buf_of_cudamalloc_memory_makes_cudas_copies_synchronous(cupy):
    array = cupy.cuda.Memory(4 * MIB)
    pointer = cupy.cuda.MemoryPointer(array, 0)
    wrapped = memory.wrap(cupy.ndarray((4 * MIB,), "u1", memptr=pointer))
    assert wrapped.gpu.kind == "ipc"
    assert not sync_memops(wrapped.gpu.address)
    with wrapped.dmabuf() as shared:
        assert shared.sync_memops
        assert sync_memops(wrapped.gpu.address)


def test_a_pool_array_shares_its_whole_block_only_if_it_may(cupy):
    pool = cupy.cuda.MemoryPool()
    with cupy.cuda.using_allocator(pool.malloc):
        array = cupy.zeros(3000, "u1")
    shy = memory.wrap(array)
    assert shy.gpu.kind == "none"
    assert "share_block=True" in shy.gpu.why
    assert f"{shy.gpu.block}" in shy.gpu.why or "2097152" in shy.gpu.why
    open_handed = memory.wrap(array, share_block=True)
    assert (open_handed.gpu.kind, len(open_handed.gpu.handle)) == ("ipc", 64)
    assert open_handed.gpu.offset + 3000 <= open_handed.gpu.block


def test_a_stream_ordered_pool_is_not_shared_and_says_what_to_do(cupy):
    pool = cupy.cuda.MemoryAsyncPool()
    with cupy.cuda.using_allocator(pool.malloc):
        array = cupy.ones(MIB, "u1")
    wrapped = memory.wrap(array, share_block=True)
    assert wrapped.gpu.kind == "none"
    assert "cudaMallocAsync" in wrapped.gpu.why


def test_managed_memory_has_no_dma_buf_and_is_not_shared(cupy):
    array = cupy.ndarray((4096,), "u1", memptr=cupy.cuda.malloc_managed(4096))
    wrapped = memory.wrap(array, share_block=True)
    assert wrapped.gpu.kind == "none"
    assert "managed" in wrapped.gpu.why
    for way in (wrapped.dmabuf, wrapped.dmabuf_or_peermem):
        with pytest.raises(ExportError, match="managed memory"):
            way()


def test_more_than_the_card_has_is_refused_and_changes_nothing():
    dgkit.empty(1, on="gpu").close()
    before = free()
    total = memory.gpus()[0].total
    with pytest.raises(OutOfMemory, match=rf"{total + MIB:,} bytes requested, [\d,]+ free"):
        dgkit.empty(total + MIB, on="gpu")
    assert free() == before


def test_nearly_all_of_the_card_can_be_had_and_comes_back():
    dgkit.empty(1, on="gpu").close()
    before = free()
    size = before * 9 // 10
    with dgkit.empty(size, on="gpu"):
        assert free() <= before - size
        with pytest.raises(OutOfMemory):
            dgkit.empty(size, on="gpu")
    assert free() == before


def test_200_cycles_leave_the_cards_memory_as_it_was(cupy):
    def cycle():
        with dgkit.empty(8 * MIB, on="gpu") as there, contextlib.suppress(ExportError):
            there.array.fill(1)
            there.dmabuf().close()

    cycle()
    before, fds = free(), open_fds()
    for _ in range(200):
        cycle()
    assert free() == before
    assert open_fds() == fds


def test_a_wrong_number_is_refused_by_name():
    with pytest.raises(DeviceUnavailable, match=r"there is no cuda:99"):
        dgkit.empty(1, on="cuda:99")


def test_pinned_memory_is_written_by_a_kernel_and_read_by_the_cpu(cupy):
    with dgkit.empty(4096, "u4", on="pinned") as pinned:
        assert pinned.place == "pinned"
        double = cupy.ElementwiseKernel("", "T y", "y = i * 2", "double_index")
        double(pinned.gpu_array)
        pinned.synchronize()
        assert pinned.array.tolist() == list(range(0, 8192, 2))
        pinned.array[:] = 5
        assert int(pinned.gpu_array.sum()) == 5 * 4096


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


class OnlyDlpack:
    """An array that shows itself by DLPack alone."""

    def __init__(self, array):
        self._array = array

    def __dlpack__(self, **options):
        return self._array.__dlpack__(**options)

    def __dlpack_device__(self):
        return self._array.__dlpack_device__()


def test_what_shows_itself_by_dlpack_alone_is_used_in_place(cupy):
    array = cupy.zeros((16, 16), "f4")
    wrapped = memory.wrap(OnlyDlpack(array))
    assert wrapped.gpu.address == array.data.ptr
    wrapped.array[2, 3] = 6
    wrapped.synchronize()
    assert float(array[2, 3]) == 6


def test_the_array_of_a_memory_is_that_memory_and_needs_no_share_block(cupy):
    with dgkit.empty(1000, on="gpu") as there:
        assert memory.wrap(there.array).gpu.kind == "vmm"
        assert memory.wrap(there.array[10:]).gpu.kind == "none"


def test_synchronize_waits_for_the_kernels_of_the_current_stream(cupy):
    with dgkit.empty(64 * MIB, on="gpu") as there, cupy.cuda.Stream(non_blocking=True) as stream:
        for value in range(40):
            there.array.fill(value)
        there.synchronize()
        assert stream.done
