"""dgkit.doca: lists of buffers, gathered and scattered by one task, against plain bytes."""

import gc
from itertools import pairwise

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


def pieces(most):
    """Up to `most` (offset, size) in SIZE bytes, in any order; they may lie over each other."""
    piece = st.integers(0, SIZE - 1).flatmap(
        lambda at: st.tuples(st.just(at), st.integers(1, min(600, SIZE - at)))
    )
    return st.lists(piece, min_size=1, max_size=most)


def cuts(most):
    """Pieces of SIZE bytes side by side, as a destination's are: (offset, size), none shared."""
    marks = st.lists(st.integers(1, SIZE - 1), min_size=1, max_size=most, unique=True)
    return marks.map(lambda found: [0, *sorted(found), SIZE]).map(
        lambda edges: [(a, b - a) for a, b in pairwise(edges)]
    )


def chained(take, mapped, parts):
    """The first of a list of the parts of a map."""
    first = take(mapped, *parts[0])
    for part in parts[1:]:
        first.chain(take(mapped, *part))
    return first


def joined(source, parts):
    return b"".join(bytes(source[at : at + size]) for at, size in parts)


@given(sources=pieces(20), targets=cuts(20), order=st.randoms(use_true_random=False))
def test_a_task_gathers_and_scatters_as_slices_of_bytes_do(sources, targets, order):
    order.shuffle(targets)
    with copying(SIZE, bufs=64) as copy:
        want = bytearray(SIZE)
        data = joined(copy.source, sources)[:SIZE]
        sources = shortened(sources, SIZE)
        src = chained(copy.inventory.buf_by_data, copy.source_map, sources)
        dst = chained(copy.inventory.buf_by_addr, copy.target_map, targets)
        copy.dma.memcpy(src, dst).submit().wait(10)
        left = data
        for (at, size), part in zip(targets, dst.parts, strict=True):
            want[at : at + len(left[:size])] = left[:size]
            assert part.data_size == len(left[:size])
            left = left[size:]
        assert copy.target == want


def shortened(parts, most):
    """The parts, as far as they hold `most` bytes together."""
    kept, left = [], most
    for at, size in parts:
        if left:
            kept.append((at, min(size, left)))
            left -= min(size, left)
    return kept


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


def test_a_list_is_chained_behind_a_list(copy):
    take = copy.inventory.buf_by_data
    a, b, c, d = (take(copy.source_map, at, 10) for at in range(4))
    a.chain(b)
    c.chain(d)
    a.chain(c)
    assert a.parts == (a, b, c, d)
    assert d.parts == (d,)


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


def test_a_list_that_is_longer_than_the_device_takes_fails(copy):
    parts = [(at, 1) for at in range(copy.device.info.max_list + 1)]
    first = chained(copy.inventory.buf_by_data, copy.source_map, parts)
    with pytest.raises(doca.DocaError):
        copy.dma.memcpy(first, copy.dst).submit().wait(10)
    assert copy.target == bytes(SIZE)


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


def test_a_source_that_is_no_first_of_a_list_is_refused(copy):
    a, b = (copy.inventory.buf_by_data(copy.source_map, at, 10) for at in (0, 10))
    a.chain(b)
    with pytest.raises(doca.InvalidValue):
        copy.dma.memcpy(b, copy.dst).submit()


def test_a_destination_with_too_little_room_takes_nothing(copy):
    dst = chained(copy.inventory.buf_by_addr, copy.target_map, [(0, 10), (100, 20)])
    src = copy.inventory.buf_by_data(copy.source_map, 0, 31)
    with pytest.raises(doca.IoFailed, match="room for 30 bytes behind its data"):
        copy.dma.memcpy(src, dst).submit().wait(10)
    assert copy.target == bytes(SIZE)
