# SPDX-License-Identifier: Apache-2.0
"""Memory for results: reused when nothing refers to it, bounded, and never seen to change."""

import gc
import mmap
import sys
import threading
from pathlib import Path

import numpy as np
import pytest

import dgkit
from dgkit.dma import bytes_memory
from dgkit.dma._ffi import ffi
from dgkit.dma.bytes_memory import fill
from dgkit.dpu import byte_pool
from dgkit.dpu.byte_pool import BytePool

MIB = 1 << 20
reuses = pytest.mark.skipif(sys.version_info >= (3, 14), reason="Python 3.14 counts otherwise")


def resident():
    return int(Path("/proc/self/statm").read_text().split()[1]) * mmap.PAGESIZE


def filled(pool, size, byte):
    data = pool.take(size)
    fill(data, 0, memoryview(bytes([byte]) * size))
    return data


def test_a_large_object_takes_no_pages_at_once():
    before = resident()
    pool = BytePool()
    made = pool.take(256 * MIB)
    assert resident() - before < 64 * MIB
    fill(made, 4096, memoryview(b"abc"))
    assert made[4095:4100] == b"\0abc\0"
    assert (type(made), len(made)) == (bytes, 256 * MIB)


@pytest.mark.parametrize("size", [1 << 62, 1 << 70])
def test_more_than_there_is_is_no_memory(size):
    with pytest.raises(MemoryError, match=f"no memory for the {size} bytes of a read"):
        BytePool().take(size)


@pytest.mark.parametrize("size", [3 * MIB, 11 * MIB])
def test_an_object_is_filled_in_pieces_of_any_size_at_any_place(size):
    pool, source = BytePool(), np.random.default_rng(1).integers(0, 256, size, "u1").tobytes()
    made, offset = pool.take(size), 0
    for step in (1, 63, 4097, MIB + 5, size):
        piece = source[offset : offset + step]
        fill(made, offset, memoryview(piece))
        offset += len(piece)
    assert made == source


@pytest.mark.parametrize(("offset", "size"), [(-1, 1), (2 * MIB, 1), (0, 2 * MIB + 1)])
def test_no_byte_is_copied_past_the_end(offset, size):
    pool = BytePool()
    data = filled(pool, 2 * MIB, 7)
    with pytest.raises(ValueError, match=f"{size} bytes at {offset} do not fit into {2 * MIB}"):
        fill(data, offset, memoryview(bytes(size)))
    assert data == b"\x07" * (2 * MIB)


def test_the_source_cannot_be_freed_while_an_object_is_filled(monkeypatch):
    source, refused = bytearray(b"7" * (8 * MIB)), []

    class Lib:
        def dg_copy_large(self, target, start, size):  # what another thread may do meanwhile
            with pytest.raises(BufferError):
                source.clear()
            refused.append(size)
            ffi.memmove(target, start, size)

    data = BytePool().take(8 * MIB)
    with monkeypatch.context() as patch:
        patch.setattr(bytes_memory, "lib", Lib())
        fill(data, 0, memoryview(source))
    assert refused == [len(source)]
    assert data == source


@reuses
def test_memory_that_nothing_refers_to_is_reused():
    assert byte_pool._REUSABLE
    pool = BytePool()
    address = id(filled(pool, 2 * MIB, 1))
    for number in range(5):
        data = filled(pool, 2 * MIB, number)
        assert id(data) == address
        del data


@reuses
def test_memory_of_a_peak_goes_back_to_the_system_while_fewer_objects_are_used():
    pool, source = BytePool(), memoryview(bytes(8 * MIB))

    def read():
        data = pool.take(8 * MIB)
        fill(data, 0, source)
        return data

    mine = read()  # the oldest, which does not keep the others
    peak = [read() for _ in range(8)]
    del peak
    before = resident()
    for _ in range(9 * byte_pool._UNUSED):
        read()
    assert len(pool._kept) == 2
    assert id(mine) in map(id, pool._kept)
    assert before - resident() > 50 * MIB


@reuses
def test_objects_that_are_used_in_turn_stay():
    pool = BytePool()
    sizes = [(2 + number) * MIB for number in range(5)]
    first = [id(filled(pool, size, 1)) for size in sizes]
    for _ in range(byte_pool._UNUSED):
        assert [id(filled(pool, size, 2)) for size in sizes] == first


USES = {
    "a name": lambda data: data,
    "a view": memoryview,
    "part of a view": lambda data: memoryview(data)[5:9],
    "a list": lambda data: [[data]],
    "a closure": lambda data: lambda: data,
    "an iterator": iter,
    "NumPy": lambda data: np.frombuffer(data, "u1")[7:],
}


@reuses
@pytest.mark.parametrize("use", USES)
def test_memory_that_something_refers_to_is_left_alone(use):
    pool = BytePool()
    data = filled(pool, 2 * MIB, 7)
    address, used = id(data), USES[use](data)
    del data
    others = [filled(pool, 2 * MIB, 9) for _ in range(3)]
    assert address not in map(id, others)
    del used, others
    gc.collect()
    assert address in {id(one) for one in pool._kept}
    again = [filled(pool, 2 * MIB, byte) for byte in range(4)]
    assert address in map(id, again)


def test_the_count_may_change_with_the_code_that_reads_it(monkeypatch):
    """A later version, or a hotter loop, may hold one reference fewer during the call."""
    pool, count = BytePool(), byte_pool._references
    monkeypatch.setattr(byte_pool, "_references", lambda *of: count(*of) - 1)
    data = filled(pool, 2 * MIB, 7)
    other = filled(pool, 2 * MIB, 9)
    assert other is not data
    assert data == b"\x07" * (2 * MIB)


@pytest.mark.parametrize("gil", [True, False])
def test_nothing_is_reused_by_a_free_threaded_build(monkeypatch, gil):
    monkeypatch.setattr(sys, "abiflags", "t")
    monkeypatch.setattr(sys, "_is_gil_enabled", lambda: gil, raising=False)
    assert not byte_pool._reusable()


@pytest.mark.parametrize("count", [1, 2, 1 << 30])
def test_nothing_is_reused_where_the_count_does_not_show_who_refers(monkeypatch, count):
    monkeypatch.setattr(sys, "getrefcount", lambda _: count)
    assert not byte_pool._reusable()


@reuses
def test_an_object_whose_hash_was_taken_is_not_reused():
    pool = BytePool()
    first = filled(pool, 2 * MIB, 7)
    address = id(first)
    seen = {first: "sevens"}
    del seen, first
    kept = [filled(pool, 2 * MIB, 9) for _ in range(3)]
    assert address not in map(id, kept)
    assert all(hash(one) == hash(b"\x09" * (2 * MIB)) for one in kept)


@reuses
def test_no_more_than_the_limit_is_kept():
    pool = BytePool(most=8 * MIB)
    lent = [pool.take(3 * MIB) for _ in range(5)]
    assert sum(map(len, pool._kept)) == 6 * MIB
    assert [id(one) for one in pool._kept] == [id(one) for one in lent[-2:]]
    assert all(id(pool.take(9 * MIB)) not in map(id, pool._kept) for _ in range(2))
    assert all(id(pool.take(100)) not in map(id, pool._kept) for _ in range(2))
    pool.clear()
    assert not pool._kept
    assert [len(one) for one in lent] == [3 * MIB] * 5


def test_reads_give_back_the_memory_that_they_took():
    with dgkit.connect() as session, session.empty(64 * MIB) as region:
        for _ in range(3):
            session.read(region, 64 * MIB)
        gc.collect()
        before = resident()
        for size in range(30, 64, 2):
            session.read(region, size * MIB)
        assert resident() - before < 300 * MIB
    gc.collect()
    assert resident() - before < 64 * MIB


def test_what_was_read_never_changes():
    size = 3 * MIB
    with dgkit.connect() as session, session.empty(size) as region:
        seen = []
        for number in range(12):
            session.write(region, bytes([number]) * size)
            data = session.read(region, size)
            started = session.start_read(region, size)
            assert started.data == data
            assert started.data is started.data
            if number % 3:
                seen.append((number, data))
        assert all(data == bytes([number]) * size for number, data in seen)


def test_threads_never_share_an_object():
    pool, wrong = BytePool(), []

    def use(byte):
        for _ in range(200):
            data = filled(pool, MIB, byte)
            kept = sys.getrefcount(data) >= 3 or not byte_pool._REUSABLE
            if data[0] != byte or data[-1] != byte or not kept:
                wrong.append(byte)
            del data

    threads = [threading.Thread(target=use, args=(byte,)) for byte in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_a_finalizer_in_the_middle_of_a_take_may_take_too(monkeypatch):
    pool, inner, outer = BytePool(), [], []
    create = byte_pool._create

    def create_as_a_collection_starts(size):
        if not inner:
            inner.append(None)
            inner[0] = pool.take(2 * MIB)  # by the finalizer
            pool.clear()  # as at the close of a session
        return create(size)

    monkeypatch.setattr(byte_pool, "_create", create_as_a_collection_starts)
    thread = threading.Thread(target=lambda: outer.append(pool.take(2 * MIB)), daemon=True)
    thread.start()
    thread.join(10)
    assert not thread.is_alive()
    assert outer[0] is not inner[0]
    assert len(pool.take(2 * MIB)) == 2 * MIB
