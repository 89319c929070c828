# SPDX-License-Identifier: Apache-2.0
"""Measuring: what the C loops give, and what they refuse."""

import pytest
from support.dma import rig

import dgkit
from dgkit import FaultRule, dma
from dgkit.dma import measure
from dgkit.errors import BoundsError, Unsupported


@pytest.mark.parametrize("op", ["write", "read"])
@pytest.mark.parametrize("path", ["inline", "worker"])
def test_latency_takes_as_many_samples_as_asked_for(op, path):
    with rig(path=path) as r:
        seen = []
        found = measure.latency(
            r.queue, *r.pair, op=op, size=64, count=5000, local_offset=8, progress=seen.append
        )
        assert len(found.ns) == 5000
        assert found.ns.typecode == "Q"
        assert 0 < min(found.ns) <= max(found.ns) < 10**10
        assert (found.path, found.provider) == (path, "soft")
        assert seen == sorted(seen)
        assert seen[-1] == 1.0
        assert r.queue.pending == 0


def test_latency_moves_the_bytes_that_it_says():
    with rig(path="worker") as r:
        r.local_bytes[8:12] = b"here"
        measure.latency(r.queue, *r.pair, size=4, count=1, local_offset=8, remote_offset=100)
        assert r.remote_bytes[96:108] == b"\0\0\0\0here\0\0\0\0"


def test_latency_stops_at_the_first_failure():
    with (
        rig("fault", rules=[FaultRule("error", skip=10)]) as r,
        pytest.raises(dgkit.TransferError, match="IO_FAILED"),
    ):
        measure.latency(r.queue, *r.pair, count=100)


@pytest.mark.parametrize(
    ("shape", "error", "words"),
    [
        ({"op": "copy"}, ValueError, "op is 'copy'; it must be 'read' or 'write'"),
        ({"size": 0}, ValueError, "size is 0"),
        ({"size": 4097}, BoundsError, "size 4,097"),
        ({"size": 1.5}, TypeError, r"size is 1\.5"),
        ({"remote_offset": 4090}, BoundsError, "offset 4,090"),
    ],
)
def test_nonsense_is_refused(shape, error, words):
    with rig() as r:
        with pytest.raises(error, match=words):
            measure.latency(r.queue, *r.pair, **{"count": 1, **shape})
        with pytest.raises(error, match=words):
            measure.rate(r.queue, *r.pair, **{"seconds": 0.001, "window": 1, **shape})


@pytest.mark.parametrize("count", [0, -1, 1.5])
def test_a_count_that_is_none_is_refused(count):
    with rig() as r, pytest.raises((ValueError, TypeError), match="count is"):
        measure.latency(r.queue, *r.pair, count=count)
    with pytest.raises((ValueError, TypeError), match="count is"):
        measure.floor(64, count)


@pytest.mark.parametrize(
    ("path", "window"), [("auto", 1), ("auto", 8), ("inline", 4), ("worker", 1)]
)
def test_rate_counts_what_it_moved(path, window):
    with rig(path=path) as r:
        seen = []
        found = measure.rate(
            r.queue, *r.pair, op="read", size=256, window=window, seconds=0.02, progress=seen.append
        )
        assert found.ops > 0
        assert found.bytes == found.ops * 256
        assert 20_000_000 <= found.elapsed_ns < 5 * 10**9
        assert found.failed == 0
        assert found.path == ("worker" if path == "worker" else "inline")
        assert found.provider == "soft"
        assert seen[-1] == 1.0
        assert r.queue.pending == 0


def test_rate_counts_failures():
    with rig("fault", rules=[FaultRule("error", every=2)]) as r:
        found = measure.rate(r.queue, *r.pair, size=64, window=4, seconds=0.01)
        assert found.failed > 0
        assert found.bytes == (found.ops - found.failed) * 64


def test_rate_covers_both_regions_from_their_offsets_on():
    with rig(path="worker") as r:
        r.local_bytes[:] = b"x" * 4096
        measure.rate(
            r.queue, *r.pair, size=1000, window=3, seconds=0.001, local_offset=96, remote_offset=96
        )
        assert not any(r.remote_bytes[:96])
        assert r.remote_bytes[96:3096] == b"x" * 3000
        assert not any(r.remote_bytes[3096:])


@pytest.mark.parametrize("window", [0, -1, 1.5, 17])
def test_a_window_that_does_not_fit_is_refused(window):
    with rig(depth=16) as r, pytest.raises((ValueError, TypeError), match="window"):
        measure.rate(r.queue, *r.pair, size=8, window=window, seconds=0.001)


@pytest.mark.parametrize("seconds", [-1, float("nan"), float("inf"), None])
def test_seconds_that_are_none_are_refused(seconds):
    with rig() as r, pytest.raises((ValueError, TypeError), match="seconds is"):
        measure.rate(r.queue, *r.pair, window=4, seconds=seconds)


def test_a_rate_needs_a_queue_with_nothing_posted():
    with rig("fault", rules=[FaultRule("lose")]) as r:
        lost = r.queue.write(*r.pair, size=8)
        with pytest.raises(dgkit.RegionBusy, match="1 operations are posted"):
            measure.rate(r.queue, *r.pair, window=4, seconds=0.001)
        del lost


def test_the_floor_is_that_many_samples():
    one = measure.floor(64, 500, handoff=False)
    assert len(one) == 500
    assert max(one) < 10**9
    if dma.cpus() > 1:
        assert sorted(measure.floor(64, 500))[250] > sorted(one)[250]
    else:
        with pytest.raises(Unsupported, match="needs 2 CPUs"):
            measure.floor(64, 500)


@pytest.mark.parametrize("size", [0, -1, 1.5])
def test_a_floor_of_no_size_is_refused(size):
    with pytest.raises((ValueError, TypeError), match="size is"):
        measure.floor(size)
