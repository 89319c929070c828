# SPDX-License-Identifier: Apache-2.0
"""Transfers of several parts: gather, scatter, rows."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.dma import pattern, rig

from dgkit.errors import BoundsError, QueueFull

PATHS = ["auto", "inline", "worker"]


@pytest.fixture(
    params=[("soft", "auto"), ("soft", "inline"), ("soft", "worker"), ("fault", "auto")]
)
def r(request):
    provider, path = request.param
    with rig(provider, path=path, size=1 << 16) as opened:
        yield opened


def test_gather_puts_parts_one_behind_another(r):
    other = bytearray(b"other memory")
    region = r.device.register(other, "r")
    r.local_bytes[:] = pattern(1 << 16)
    parts = [(r.local, 10, 100), (region, 0, 5), (r.local, 0, 1), (region, 6, 6)]
    done = r.queue.gather(parts, r.remote, remote_offset=50).wait(5)
    expected = r.local_bytes[10:110] + b"other" + r.local_bytes[:1] + b"memory"
    assert done.size == len(expected) == 112
    assert r.remote_bytes[50 : 50 + 112] == expected
    assert not any(r.remote_bytes[162:])
    assert r.queue.pending == 0


def test_scatter_brings_bytes_to_parts_in_turn(r):
    r.remote_bytes[:] = pattern(1 << 16)
    done = r.queue.scatter(r.remote, [(r.local, 100, 10), (r.local, 0, 5)], remote_offset=1).wait(5)
    assert done.size == 15
    assert r.local_bytes[100:110] == r.remote_bytes[1:11]
    assert r.local_bytes[:5] == r.remote_bytes[11:16]


def test_gather_of_nothing_or_of_nonsense_is_refused():
    with rig() as r:
        with pytest.raises(ValueError, match="no segments"):
            r.queue.gather([], r.remote)
        with pytest.raises(BoundsError, match=r"record 1 of 2.*offset 4,090"):
            r.queue.gather([(r.local, 0, 1), (r.local, 4090, 7)], r.remote)
        with pytest.raises(BoundsError, match="record 1 of 2: remote region"):
            r.queue.gather([(r.local, 0, 4096), (r.local, 0, 1)], r.remote)
        for part in ((r.local, 0), (r.local, 0, 8, 9), 5):
            with pytest.raises(TypeError, match=r"\(region, offset, size\)"):
                r.queue.gather([part], r.remote)
        with pytest.raises(TypeError, match=r"size is 1\.5"):
            r.queue.scatter(r.remote, [(r.local, 0, 1.5)])
        assert r.queue.pending == 0


def test_gather_of_more_parts_than_the_queue_holds_is_refused():
    with rig(depth=4, path="worker") as r, pytest.raises((QueueFull, ValueError), match="5"):
        r.queue.gather([(r.local, 0, 1)] * 5, r.remote)


@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_rows_move_as_numpy_would_move_them(data):
    size = data.draw(st.integers(1, 70))
    rows = data.draw(st.integers(1, 12))
    strides = [size + data.draw(st.integers(0, 40)) for _ in range(2)]
    offsets = [data.draw(st.integers(0, 50)) for _ in range(2)]
    write = data.draw(st.booleans())
    path = data.draw(st.sampled_from(PATHS))
    with rig(path=path, size=2048) as r:
        r.local_bytes[:], r.remote_bytes[:] = pattern(2048), pattern(2048, 2)
        before = [np.frombuffer(bytes(m), "u1").copy() for m in (r.local_bytes, r.remote_bytes)]
        move = r.queue.write_2d if write else r.queue.read_2d
        done = move(
            *r.pair, size=size, rows=rows, local_stride=strides[0], remote_stride=strides[1],
            local_offset=offsets[0], remote_offset=offsets[1],
        ).wait(5)  # fmt: skip
        views = [
            np.lib.stride_tricks.as_strided(m[o:], (rows, size), (s, 1))
            for m, o, s in zip(before, offsets, strides, strict=True)
        ]
        source, target = views if write else reversed(views)
        target[:] = source
        assert done.size == size * rows
        assert bytes(before[0]) == r.local_bytes
        assert bytes(before[1]) == r.remote_bytes


def test_a_source_stride_may_be_zero_and_a_target_stride_may_not():
    with rig() as r:
        r.local_bytes[:2] = b"ab"
        r.queue.write_2d(*r.pair, size=2, rows=3, local_stride=0, remote_stride=2).wait(5)
        assert r.remote_bytes[:8] == b"ababab\0\0"
        with pytest.raises(ValueError, match="destination stride of 1 bytes overlap"):
            r.queue.write_2d(*r.pair, size=2, rows=3, local_stride=2, remote_stride=1)
        with pytest.raises(ValueError, match="destination stride of 0 bytes overlap"):
            r.queue.read_2d(*r.pair, size=2, rows=3, remote_stride=2)


@pytest.mark.parametrize(
    ("shape", "error", "words"),
    [
        ({"size": 8, "rows": 0}, ValueError, "rows is 0"),
        ({"size": 8, "rows": -1}, BoundsError, "rows is -1"),
        ({"size": 8, "rows": 1 << 32}, BoundsError, "rows is 4294967296; the limit is 4294967295"),
        ({"size": 8, "rows": 1.5}, TypeError, "rows is 1.5"),
        ({"rows": 2}, TypeError, "size is missing"),
        ({"size": 8, "colour": 1}, TypeError, "unknown fields: colour; use local_offset"),
    ],
)
def test_rows_that_make_no_sense_are_refused(shape, error, words):
    with rig() as r, pytest.raises(error, match=words):
        r.queue.write_2d(*r.pair, **shape)
