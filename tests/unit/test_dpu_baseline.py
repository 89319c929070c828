# SPDX-License-Identifier: Apache-2.0
"""Baseline: measured over the same copy, in a time that does not depend on chance."""

from array import array
from contextlib import nullcontext

import pytest

from dgkit.dma import measure
from dgkit.dpu.benchmark import Baseline
from dgkit.errors import Unsupported
from dgkit.schema import LatencyTask, RateTask


class Queue:
    """A queue of a provider, as far as a baseline uses it."""

    class device:
        provider = "cuda"

    def __init__(self):
        self.prepared = []

    def prepare_write(self, local, remote, **shape):
        self.prepared.append(("write", local, remote, shape))
        return nullcontext("op")

    def prepare_read(self, local, remote, **shape):
        self.prepared.append(("read", local, remote, shape))
        return nullcontext("op")


class Remote:
    """A remote region, as far as a baseline uses it."""

    def __init__(self, method="gpu"):
        self.method = method

    def __repr__(self):
        return self.method


REMOTE = Remote()


@pytest.fixture
def bare(monkeypatch):
    """Answers `bare.ns` for each copy, and keeps what was asked for."""

    def loop(op, count, window):
        assert op == "op"
        loop.asked.append((count, window))
        return array("Q", [loop.ns] * count)

    loop.ns, loop.asked = 5000, []
    monkeypatch.setattr(measure, "measure_bare", loop)
    return loop


def latency(size=64, op=1, offset=128):
    return LatencyTask(offset=offset, size=size, op=op, samples=100, path=0)


def rate(size, window):
    return RateTask(size=size, op=0, window=window, seconds=1.0, path=0)


@pytest.mark.parametrize(("op", "name"), [(0, "read"), (1, "write")])
def test_it_is_the_driver_s_loop_over_the_very_copy_that_is_timed(bare, op, name):
    queue = Queue()
    assert Baseline(queue, "local", REMOTE, latency(op=op), handoff=True).measure_ns() == 5000
    shape = {"size": 64, "remote_offset": 128}
    assert set(map(repr, queue.prepared)) == {repr((name, "local", REMOTE, shape))}
    assert sum(count for count, _ in bare.asked) == 2000
    assert {window for _, window in bare.asked} == {1}


def test_where_the_plain_copy_takes_milliseconds_it_is_done_seldom(bare):
    bare.ns = 2_400_000
    assert Baseline(Queue(), "local", REMOTE, latency()).measure_ns() == 2_400_000
    assert sum(count for count, _ in bare.asked) * bare.ns < 300_000_000


@pytest.mark.parametrize("size", [1, 64, 1 << 20, 32 << 20, 1 << 30])
@pytest.mark.parametrize("window", [2, 32, 65536])
def test_of_a_window_it_is_the_mean_with_as_many_in_flight(bare, size, window):
    assert (
        Baseline(Queue(), "local", REMOTE, rate(size, window), window=window).measure_ns() == 5000
    )
    ((count, together),) = bare.asked
    assert 2 <= together <= window
    assert 5 * together <= count <= 500
    assert count * size <= 5 * max(64 << 20, 2 * size)


def test_what_takes_less_than_a_nanosecond_each_is_no_missing_floor(bare):
    bare.ns = 0
    assert Baseline(Queue(), "local", REMOTE, rate(8, 32), window=32).measure_ns() == 1


@pytest.mark.parametrize("window", [1, 32])
def test_where_the_provider_has_no_such_loop_there_is_no_floor(monkeypatch, window):
    def none(*_):
        raise Unsupported(95, "no floor of its own")

    monkeypatch.setattr(measure, "measure_bare", none)
    assert Baseline(Queue(), "local", REMOTE, rate(64, 32), window=window).measure_ns() == 0


def test_without_two_cpus_a_hand_off_has_no_floor(monkeypatch):
    monkeypatch.setattr("dgkit.dma.cpus", lambda: 1)
    queue = Queue()
    queue.device = type("Device", (), {"provider": "soft"})
    assert Baseline(queue, "local", Remote("map"), latency(), handoff=True).measure_ns() == 0
    assert Baseline(queue, "local", Remote("map"), latency(), handoff=False).measure_ns() > 0


def test_between_memories_of_the_host_it_is_one_memcpy_whatever_the_provider(bare, monkeypatch):
    asked = []
    monkeypatch.setattr(
        measure, "floor", lambda *_, handoff: asked.append(handoff) or array("Q", [7])
    )
    assert Baseline(Queue(), "local", Remote("map"), latency(), handoff=True).measure_ns() == 7
    assert Baseline(Queue(), "local", Remote("map"), rate(64, 32), window=32).measure_ns() == 7
    assert asked == [False, False]
    assert not bare.asked
