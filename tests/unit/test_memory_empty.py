# SPDX-License-Identifier: Apache-2.0
"""dgkit.empty: shapes, dtypes, seals, and what is refused."""

import errno
import fcntl
import gc
import mmap
import os
import resource
from pathlib import Path

import numpy as np
import pytest

import dgkit
from dgkit.errors import ClosedError, OutOfMemory
from dgkit.memory import host
from dgkit.types import is_memory

F_GET_SEALS = 1034
SHRINK, GROW, FUTURE_WRITE, SEAL = 0x2, 0x4, 0x10, 0x1


def open_fds():
    gc.collect()  # what earlier tests left
    return set(Path("/proc/self/fd").iterdir())


@pytest.mark.parametrize(
    ("shape", "dtype", "size"),
    [
        (10, "u1", 10),
        ((), "u1", 1),
        ((3, 4), "<f4", 48),
        ([2, 2], ">i2", 8),
        (np.int64(5), "f8", 40),
        (np.array([2, 3]), np.float16, 12),
        (7, "c16", 112),
        (2, "b1", 2),
        (3, "c8", 24),
        (2, "U5", 40),
        (4, [("a", "<u2"), ("b", ">f4")], 24),
        (2, np.dtype("M8[ns]"), 16),
        (1, int, 8),
    ],
)
def test_size_is_that_of_numpy(shape, dtype, size):
    with dgkit.empty(shape, dtype) as memory:
        assert memory.size == size == memory.array.nbytes == memory.buffer.nbytes
        assert memory.array.dtype == np.dtype(dtype)
        assert memory.array.shape == np.empty(shape, dtype).shape


@pytest.mark.parametrize("shape", [{}, {3: 4}, {3, 4}, b"ab", None, "x"])
def test_what_has_no_order_or_is_data_is_no_shape(shape):
    with pytest.raises((TypeError, ValueError), match="shape"):
        dgkit.empty(shape)


def test_new_memory_is_zero_and_writable():
    memory = dgkit.empty(1 << 16)
    assert not any(memory.buffer)
    memory.array[:] = 7
    assert bytes(memory.buffer) == b"\7" * (1 << 16)


def test_array_and_buffer_are_the_same_bytes():
    memory = dgkit.empty((2, 3), "<u2")
    memory.array[1, 2] = 0x1234
    assert bytes(memory.buffer[-2:]) == b"\x34\x12"


def test_it_is_a_memory_on_the_host():
    memory = dgkit.empty(8, name="weights")
    assert is_memory(memory)
    assert (memory.place, memory.fd_offset, memory.share_process) == ("host", 0, False)
    assert repr(memory) == "<dgkit.HostMemory 'weights' (8,) u1 = 8 bytes>"
    assert "weights" in memory._repr_html_()
    memory.close()
    assert "Host memory (closed)" in memory._repr_html_()


def test_pages_are_reserved_and_the_memfd_sealed_against_resizing():
    memory = dgkit.empty(3 << 20)
    assert os.fstat(memory.fd).st_blocks * 512 >= 3 << 20
    seals = fcntl.fcntl(memory.fd, F_GET_SEALS)
    assert seals & (SHRINK | GROW) == SHRINK | GROW
    for size in (0, 1 << 20, 4 << 20):
        with pytest.raises(PermissionError):
            os.ftruncate(memory.fd, size)


class NotingMap(mmap.mmap):
    """Mapping that notes which of its bytes are mapped in each call."""

    parts: list[tuple[int, int]]  # first byte, size
    error = 0

    def madvise(self, option, start, length):
        self.__class__.parts.append((start, length))
        if self.error:
            raise OSError(self.error, os.strerror(self.error))
        super().madvise(option, start, length)


def faults():
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt


@pytest.mark.parametrize("error", [0, errno.EINVAL])
def test_every_page_is_mapped_by_the_allocation(monkeypatch, error):
    size = 40 << 20
    monkeypatch.setattr(NotingMap, "parts", [], raising=False)
    monkeypatch.setattr(NotingMap, "error", error)
    monkeypatch.setattr(host.HostMemory, "_mmap_class", NotingMap)
    with dgkit.empty(size) as made:
        pages, before = size // mmap.PAGESIZE, faults()
        assert not any(made.buffer[:: mmap.PAGESIZE])
        assert faults() - before < pages / 100  # a fault maps up to 16 pages
    assert NotingMap.parts


def test_other_threads_run_while_the_pages_are_mapped(monkeypatch):
    """A call holds the interpreter's lock, so none is for more than 4 MiB."""
    size = (9 << 20) + 4096
    monkeypatch.setattr(NotingMap, "parts", [], raising=False)
    monkeypatch.setattr(host.HostMemory, "_mmap_class", NotingMap)
    with dgkit.empty(size):
        starts, lengths = zip(*NotingMap.parts, strict=True)
        assert max(lengths) <= 4 << 20
        ends = [start + length for start, length in NotingMap.parts]
        assert list(starts) == [0, *ends[:-1]]
        assert ends[-1] >= size


def test_readonly_export_stops_every_later_writable_mapping():
    memory = dgkit.empty(4096, readonly_export=True)
    memory.buffer[:4] = b"mine"
    seals = fcntl.fcntl(memory.fd, F_GET_SEALS)
    assert seals == SHRINK | GROW | FUTURE_WRITE | SEAL
    with pytest.raises(PermissionError):
        mmap.mmap(memory.fd, 4096)
    with pytest.raises(PermissionError):
        os.pwrite(memory.fd, b"x", 0)
    with mmap.mmap(memory.fd, 4096, prot=mmap.PROT_READ) as view:
        assert view[:4] == b"mine"


def test_memory_made_without_readonly_export_has_no_write_seal():
    memory = dgkit.empty(4096)
    assert not fcntl.fcntl(memory.fd, F_GET_SEALS) & FUTURE_WRITE


def test_close_is_idempotent_and_use_after_it_is_a_closed_error():
    memory = dgkit.empty(8)
    assert not memory.closed
    memory.close()
    memory.close()
    assert memory.closed
    for use in ("fd", "buffer", "array"):
        with pytest.raises(ClosedError, match=r"HostMemory \(8,\) u1 = 8 bytes> is closed"):
            getattr(memory, use)


def test_close_gives_fds_and_mapping_back():
    before = open_fds()
    memory = dgkit.empty(1 << 20)
    assert open_fds() > before
    memory.close()
    gc.collect()
    assert open_fds() == before


def test_an_array_keeps_the_bytes_of_a_closed_memory():
    with dgkit.empty(16) as memory:
        array = memory.array
        array[:] = 3
    assert array.sum() == 48


def test_a_forgotten_memory_gives_its_fds_back():
    before = open_fds()
    dgkit.empty(1 << 20)
    gc.collect()
    assert open_fds() == before


@pytest.mark.parametrize("shape", [
    1.5, (2, 1.0), None, (2, "3"), object(), b"4", bytearray(b"4"), memoryview(b"4"),
])  # fmt: skip
def test_a_shape_that_is_not_whole_is_a_type_error_that_shows_it(shape):
    with pytest.raises(TypeError, match="shape is"):
        dgkit.empty(shape)


def test_a_text_is_a_number_of_items():
    with dgkit.empty("1.5K", "u4") as memory:
        assert (memory.array.shape, memory.size) == ((1536,), 6144)
    with pytest.raises(ValueError, match="shape: '64, 64' is not a size"):
        dgkit.empty("64, 64")


@pytest.mark.parametrize("shape", [-1, (4, -2)])
def test_a_negative_length_is_a_value_error(shape):
    with pytest.raises(ValueError, match="a length cannot be negative"):
        dgkit.empty(shape)


@pytest.mark.parametrize(("shape", "dtype"), [(0, "u1"), ((3, 0), "f8"), (4, "V0")])
def test_memory_of_no_bytes_is_a_value_error(shape, dtype):
    with pytest.raises(ValueError, match="has 0 bytes; the minimum is 1"):
        dgkit.empty(shape, dtype)


@pytest.mark.parametrize("shape", [1 << 63, (1 << 40, 1 << 40)])
def test_more_than_63_bits_of_bytes_is_a_value_error(shape):
    with pytest.raises(ValueError, match=r"the limit is 2\^63 - 1"):
        dgkit.empty(shape)


@pytest.mark.parametrize("dtype", ["f1", "b4", "c4", "u3", "nonsense"])
def test_a_dtype_that_numpy_does_not_know_is_refused_at_once(dtype):
    with pytest.raises(TypeError, match=r"data type|understood"):
        dgkit.empty(4, dtype)


@pytest.mark.parametrize("dtype", ["O", object, [("a", "u1"), ("b", "O")]])
def test_python_objects_have_no_bytes_to_move(dtype):
    with pytest.raises(TypeError, match="Python objects"):
        dgkit.empty(4, dtype)


@pytest.mark.parametrize("size", [1 << 50, (1 << 63) - 1])
def test_more_than_the_machine_has_is_refused_before_anything_is_taken(size):
    before = open_fds()
    with pytest.raises(OutOfMemory, match=rf"{size:,} bytes requested, [\d,]+ available"):
        dgkit.empty(size)
    assert open_fds() == before


def test_out_of_memory_is_also_pythons_memory_error():
    with pytest.raises(MemoryError) as info:
        dgkit.empty(1 << 60)
    assert info.value.errno == errno.ENOMEM


def test_memory_that_runs_out_while_it_is_reserved_leaves_no_fd(monkeypatch):
    def no_space(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "posix_fallocate", no_space)
    before = open_fds()
    with pytest.raises(OutOfMemory, match="4096 bytes could not be reserved: No space left") as e:
        dgkit.empty(4096)
    assert e.value.errno == errno.ENOSPC
    del e
    gc.collect()
    assert open_fds() == before


@pytest.mark.parametrize(
    ("code", "words"),
    [(errno.EMFILE, "ulimit -n"), (errno.ENFILE, "of the system"), (errno.ENOMEM, "max_map_count")],
)
def test_each_limit_of_the_system_is_named(monkeypatch, code, words):
    def refuse(*_, **__):
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(host.mmap, "mmap", refuse)
    with pytest.raises(dgkit.LimitReached, match=words) as info:
        dgkit.empty(4096)
    assert info.value.errno == code


@pytest.mark.parametrize(
    "made", [lambda: dgkit.empty((2, 3), dtype="u2"), lambda: dgkit.wrap(bytearray(6))]
)
def test_numpy_makes_an_array_over_the_bytes_and_not_of_one_object(made):
    with made() as memory:
        array = np.asarray(memory)
        assert (array.dtype, array.shape) == (memory.array.dtype, memory.array.shape)
        array[...] = 7
        assert (memory.array == 7).all(), "no copy"
        assert np.asarray(memory, dtype="f8").dtype == np.dtype("f8")
        del array
