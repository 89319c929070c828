# SPDX-License-Identifier: Apache-2.0
"""dgkit.doca: lists of buffers, gathered and scattered by one task, against plain bytes."""

import gc

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.doca.binding import copying

from dgkit import doca

SIZE = 5000


@pytest.fixture
def copy():
    with copying(SIZE, bufs=200) as made:
        yield made


def chained(take, mapped, parts):
    """The first of a list of the parts of a map."""
    first = take(mapped, *parts[0])
    for part in parts[1:]:
        first.chain(take(mapped, *part))
    return first


def joined(source, parts):
    return b"".join(bytes(source[at : at + size]) for at, size in parts)


@given(at=st.integers(0, SIZE - 1), to=st.integers(0, SIZE - 1), size=st.integers(1, SIZE))
def test_a_copy_of_any_part_to_any_place_moves_just_that(at, to, size):
    size = min(size, SIZE - at, SIZE - to)
    with copying(SIZE) as copy:
        copy.target[:] = b"\x55" * SIZE
        src = copy.inventory.buf_by_data(copy.source_map, at, size)
        dst = copy.inventory.buf_by_addr(copy.target_map, to)
        copy.dma.memcpy(src, dst).submit().wait(10)
        want = bytearray(b"\x55" * SIZE)
        want[to : to + size] = copy.source[at : at + size]
        assert copy.target == want
        assert bytes(dst.data) == copy.source[at : at + size]


def test_a_list_is_its_parts_in_their_order(copy):
    take = copy.inventory.buf_by_data
    a, b, c = (take(copy.source_map, at, 10) for at in (0, 10, 20))
    assert a.chain(b) is a
    a.chain(c)
    assert a.parts == (a, b, c)
    assert b.parts == (b, c)
    assert c.parts == (c,)


def test_only_whole_lists_are_chained(copy):
    take = copy.inventory.buf_by_data
    a, b, c = (take(copy.source_map, at, 10) for at in range(3))
    a.chain(b)
    for wrong in (lambda: b.chain(c), lambda: c.chain(b)):
        with pytest.raises(doca.NotPermitted, match="not the first of its list"):
            wrong()
    with pytest.raises(doca.DocaError):
        a.chain(a)
    assert a.parts == (a, b)
    assert c.parts == (c,)


def test_a_list_is_split_where_one_says(copy):
    take = copy.inventory.buf_by_data
    a, b, c, d = (take(copy.source_map, at, 10) for at in range(4))
    a.chain(b).chain(c).chain(d)
    assert a.unchain(c) is c
    assert a.parts == (a, b)
    assert c.parts == (c, d)
    with pytest.raises(doca.InvalidValue):
        a.unchain(d)
    c.chain(a)
    assert c.parts == (c, d, a, b)


def test_closing_the_first_gives_the_whole_list_back(copy):
    before = copy.inventory.free
    first = chained(copy.inventory.buf_by_data, copy.source_map, [(at, 10) for at in range(50)])
    parts = first.parts
    assert copy.inventory.free == before - 50
    first.close()
    assert copy.inventory.free == before
    assert all(part.closed for part in parts)


def test_closing_another_takes_it_out_of_the_list(copy):
    take = copy.inventory.buf_by_data
    a, b, c = (take(copy.source_map, at, 10) for at in (0, 10, 20))
    a.chain(b).chain(c)
    b.close()
    assert a.parts == (a, c)
    copy.dma.memcpy(a, copy.dst).submit().wait(10)
    assert bytes(copy.dst.data) == bytes(copy.source[:10] + copy.source[20:30])
    c.close()
    assert a.parts == (a,)


def test_the_first_holds_the_others(copy):
    first = chained(copy.inventory.buf_by_data, copy.source_map, [(0, 5), (100, 5), (200, 5)])
    copy.dma.memcpy(first, copy.dst).submit().wait(10)
    assert bytes(copy.dst.data) == joined(copy.source, [(0, 5), (100, 5), (200, 5)])


def test_a_list_that_is_forgotten_goes_back(copy):
    before = copy.inventory.free
    chained(copy.inventory.buf_by_data, copy.source_map, [(at, 10) for at in range(50)])
    assert copy.inventory.free == before


def test_a_context_stops_though_its_failed_task_is_collected_meanwhile(copy):
    parts = [(at, 1) for at in range(copy.device.info.max_list + 1)]
    task = copy.dma.memcpy(chained(copy.inventory.buf_by_data, copy.source_map, parts), copy.dst)
    with pytest.raises(doca.DocaError):
        task.submit().wait(10)
    cycle = [task]
    cycle.append(cycle)
    del task, cycle
    with copy.dma._lock:  # as close() holds it
        gc.collect()
        assert copy.dma.stop(1) == doca.State.IDLE
