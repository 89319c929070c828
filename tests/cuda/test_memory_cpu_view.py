# SPDX-License-Identifier: Apache-2.0
"""GPU memory for the CPU, in place: by a dma-buf, by GDRCopy, or refused."""

import ctypes
import gc
import shutil
import subprocess
from types import SimpleNamespace

import cupy
import pytest
from support.gpu.memory import MIB, fds, free

import dgkit
from dgkit.errors import Unsupported
from dgkit.memory import libcuda

EXPORT = "cuMemGetHandleForAddressRange"


@pytest.fixture
def there():
    with dgkit.empty(10_000, on="gpu") as memory:
        yield memory


@pytest.fixture
def array():
    """An array of cudaMalloc memory, a whole block."""
    return cupy.zeros(4 * MIB, "u1")


@pytest.fixture
def no_gdrcopy(monkeypatch, tmp_path):
    monkeypatch.setenv("GDRCOPY_PATH_L", str(tmp_path))
    monkeypatch.setattr("dgkit.memory.cpu_mapping._NAMES", ("libgdrapi-not-here.so",))


def test_the_cpu_reaches_the_bytes_where_the_driver_maps_a_dma_buf(fake_cuda, no_gdrcopy):
    fake_cuda.order("dmabuf_mmap=1")
    there = dgkit.empty((2, 3), "<u2", on="gpu")
    view = there.cpu_view()
    assert (view.nbytes, view.format, view.readonly) == (12, "B", False)
    view[:2] = b"\x34\x12"
    assert there.array.get()[0, 0] == 0x1234
    there.close()
    gc.collect()
    assert bytes(view[:2]) == b"\x34\x12"


def test_a_view_for_the_cpu_leaves_no_fd_and_no_memory_behind(fake_cuda, no_gdrcopy):
    fake_cuda.order("dmabuf_mmap=1")
    before, open_before = free(), fds()
    view = dgkit.empty(100, on="gpu").cpu_view()
    assert free() < before
    del view
    assert free() == before
    assert fds() == open_before


def test_where_it_cannot_both_ways_are_named_with_what_to_install(there, no_gdrcopy):
    with pytest.raises(Unsupported, match=r"By a dma-buf: .*By GDRCopy: .*github\.com/NVIDIA") as e:
        there.cpu_view()
    assert e.value.errno == 95


def test_a_driver_that_says_it_maps_none_is_believed(fake_cuda, there, no_gdrcopy):
    number = libcuda.driver().CUdevice_attribute.CU_DEVICE_ATTRIBUTE_DMA_BUF_MMAP_SUPPORTED
    fake_cuda.order(f"dmabuf_mmap=1,attr{int(number)}=0")
    with pytest.raises(Unsupported, match="By a dma-buf: the driver does not map dma-bufs"):
        there.cpu_view()
    assert fake_cuda.calls(EXPORT) == 0


# GDRCopy's functions over the fake driver, whose GPU memory the CPU can read: pages of 64 KiB.
GDRCOPY = """
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
struct handle { unsigned long h; };
struct info {
	uint64_t va, mapped_size; uint32_t page_size; uint64_t tm_cycles; uint32_t cycles_per_ms;
	unsigned flags; int type;
};
static unsigned long start, size;
int open_count, pinned_count, mapped_count, fail_at;
void *gdr_open(void) { if (fail_at == 1) return NULL; open_count++; return &open_count; }
int gdr_close(void *g) { open_count--; return 0; }
int gdr_pin_buffer(void *g, unsigned long addr, size_t bytes, uint64_t t, uint32_t v,
	struct handle *h)
{
	if (fail_at == 2) return 22;
	start = addr & ~65535ul;
	size = ((addr + bytes + 65535) & ~65535ul) - start;
	h->h = 42; pinned_count++;
	return 0;
}
int gdr_unpin_buffer(void *g, struct handle h) { pinned_count -= h.h == 42; return 0; }
int gdr_get_info_v2(void *g, struct handle h, struct info *info)
{
	if (fail_at == 3) return 22;
	info->va = start; info->mapped_size = size; info->page_size = 65536;
	return h.h == 42 ? 0 : 22;
}
int gdr_map(void *g, struct handle h, void **va, size_t bytes)
{
	if (fail_at == 4) return 12;
	*va = (void *)start; mapped_count++;
	return bytes == size ? 0 : 22;
}
int gdr_unmap(void *g, struct handle h, void *va, size_t bytes)
{
	mapped_count -= va == (void *)start && bytes == size;
	return 0;
}
"""


@pytest.fixture(scope="session")
def gdr_folder(tmp_path_factory):
    compiler = shutil.which("cc") or shutil.which("gcc")
    assert compiler, "these tests need a C compiler"
    folder = tmp_path_factory.mktemp("gdrcopy")
    (folder / "gdr.c").write_text(GDRCOPY)
    command = [compiler, "-shared", "-fPIC", "-o", folder / "libgdrapi.so", folder / "gdr.c"]
    subprocess.run(command, check=True)
    return folder


@pytest.fixture
def gdrcopy(gdr_folder, monkeypatch):
    """The library of GDRCopy, in the folder that DOCA's variable names."""
    monkeypatch.setenv("GDRCOPY_PATH_L", str(gdr_folder))
    library = ctypes.CDLL(str(gdr_folder / "libgdrapi.so"))

    def counts():
        names = ("open_count", "pinned_count", "mapped_count")
        return tuple(ctypes.c_int.in_dll(library, name).value for name in names)

    def fail(at):
        ctypes.c_int.in_dll(library, "fail_at").value = at

    yield SimpleNamespace(counts=counts, fail=fail)
    fail(0)
    gc.collect()
    assert counts() == (0, 0, 0)


def test_gdrcopy_is_taken_where_the_driver_maps_no_dma_buf(gdrcopy, array):
    part = dgkit.wrap(array[100_000:100_100])
    view = part.cpu_view()
    assert gdrcopy.counts() == (1, 1, 1)
    assert (view.nbytes, view.format, view.ndim) == (100, "B", 1)
    view[:3] = b"abc"
    assert bytes(array[100_000:100_003].get()) == b"abc"
    half = view[50:]
    del view
    gc.collect()
    assert gdrcopy.counts() == (1, 1, 1)
    del half


@pytest.mark.parametrize(
    ("at", "words"),
    [
        (1, "sudo modprobe gdrdrv"),
        (2, "gdr_pin_buffer fails: Invalid argument"),
        (3, "gdr_get_info_v2 fails"),
        (4, "gdr_map fails: Cannot allocate memory"),
    ],
)
def test_a_gdrcopy_that_fails_says_where_and_leaves_nothing(gdrcopy, there, at, words):
    gdrcopy.fail(at)
    with pytest.raises(Unsupported, match=words):
        there.cpu_view()
    assert gdrcopy.counts() == (0, 0, 0)


def test_another_library_of_that_name_is_passed_over(monkeypatch, tmp_path, there):
    (tmp_path / "libgdrapi.so").write_bytes(b"no library")
    monkeypatch.setenv("GDRCOPY_PATH_L", str(tmp_path))
    with pytest.raises(Unsupported, match=r"libgdrapi\.so is not installed"):
        there.cpu_view()
