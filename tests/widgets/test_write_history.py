# SPDX-License-Identifier: Apache-2.0
"""History of a region's bytes, against copies; what a session reports of its writes."""

import random
import threading
import time

import pytest
from support.processes.agents import agent
from support.processes.waiting import until

import dgkit
from dgkit.widgets.hexview.write_history import (
    MAX_ARRAY,
    OUTSIDE,
    UNKNOWN,
    Write,
    WriteHistory,
    record_writes,
)

HISTORIES = 10_000
WRITERS = ("host", "DPU", "client")


def write(number, offset, data, writer="host", begin_ns=None):
    now = time.monotonic_ns()
    return Write(number, writer, offset, len(data), data, number, begin_ns or now, now)


def replay(seed):
    """Make a random history, of a region that it knows or not, and copies of each moment."""
    chance = random.Random(seed)
    size = chance.randint(1, 24)
    region = bytearray(chance.randbytes(size))
    writers = [""] * size
    partly = chance.random() < 0.3
    budget = chance.choice([3 * size + 700, 2_500, 1 << 20])
    history = WriteHistory(size if partly else bytes(region), budget)
    copies = [(bytes(region), list(writers))]
    for number in range(1, chance.randint(2, 16)):
        start = chance.randrange(size)
        stop = chance.randint(start + 1, size)
        writer = chance.choice((*WRITERS, OUTSIDE))
        if partly:
            assert history.observe(0, bytes(region), time.monotonic_ns() + 1)
            if UNKNOWN in dict(map(reversed, history.at(history.last, 0, size).writers)):
                writer = "host"  # a change of bytes that are not known is none
        if writer == OUTSIDE:  # the CPU changes each of these bytes
            region[start:stop] = bytes(255 - byte for byte in region[start:stop])
            assert history.observe(0, bytes(region), time.monotonic_ns() + 1)
        else:
            region[start:stop] = chance.randbytes(stop - start)
            history.ended(write(number, start, bytes(region[start:stop]), writer))
        writers[start:stop] = [writer] * (stop - start)
        copies.append((bytes(region), list(writers)))
    return history, copies, chance


def test_each_moment_of_10000_random_histories_has_the_bytes_and_writers_of_then():
    dropped = unknown = 0
    for seed in range(HISTORIES):
        history, copies, chance = replay(seed)
        assert history.last == len(copies) - 1
        dropped += history.first
        moments = range(history.first, history.last + 1)
        for moment in {*chance.sample(moments, min(3, len(moments))), history.first, history.last}:
            data, writers = copies[moment]
            start = chance.randrange(len(data))
            stop = chance.randint(start + 1, len(data))
            past = history.at(moment, start, stop - start)
            named = [name for count, name in past.writers for _ in range(count)]
            unknown += named.count(UNKNOWN)
            for name, expected, *byte in zip(
                named, writers[start:stop], past.data, data[start:stop], strict=True
            ):
                assert byte[0] == (0 if name == UNKNOWN else byte[1]), (seed, moment)
                assert name in (expected, "", UNKNOWN), (seed, moment)  # "": forgotten
    assert dropped > HISTORIES  # so the budgets were small enough
    assert unknown > HISTORIES // 10


def test_the_budget_bounds_the_memory_and_the_ring_says_what_fell_out():
    history = WriteHistory(bytes(1000), 10_000)
    for number in range(1, 2001):
        history.ended(write(number, number % 990, bytes([number % 256] * 10)))
        assert history.cost <= 10_000
    assert history.last == 2000
    assert 0 < history.last - history.first < 40
    assert history.write(history.first) is None
    assert history.write(history.last).number == 2000
    with pytest.raises(ValueError, match="moment 3 is not among"):
        history.at(3, 0, 1)


def test_bytes_that_are_seen_keep_the_budget_of_a_region_that_is_not_known():
    history = WriteHistory(1 << 20, 64_000)
    for number in range(1, 46):
        history.ended(write(number, 1000 * number, bytes(1000)))
    for page in range(0, 1 << 20, 4096):
        assert history.observe(page, bytes(4096), time.monotonic_ns() + 1)
        assert history.cost <= 64_000


def test_behind_a_write_that_is_too_large_to_keep_the_history_begins_again():
    history = WriteHistory(bytes(1 << 20), 3 << 20)
    history.ended(write(1, 0, b"kept"))
    history.ended(Write(2, "DPU", 0, 4 << 20, None, 0, 0, 0))
    assert history.first == history.last == 2
    assert history.at(2, 0, 8).writers == [(8, UNKNOWN)]


def test_bytes_objects_that_cover_the_region_are_not_copied():
    history = WriteHistory(bytes(100_000), 1 << 20)
    written = [bytes([number]) * 100_000 for number in range(50)]
    for number, data in enumerate(written, 1):
        history.ended(write(number, 0, data))
    assert history.first > 0
    (piece,) = history._base.within(0, 100_000)
    assert piece.data is written[history.first - 1]


def test_bytes_read_before_a_write_has_ended_prove_nothing():
    history = WriteHistory(bytes(8), 1 << 20)
    before = time.monotonic_ns()
    history.ended(write(1, 0, b"1"))
    assert not history.observe(0, bytes(8), before)
    assert history.observe(0, b"1" + bytes(7), time.monotonic_ns() + 1)
    assert history.last == 1


def test_bytes_found_while_a_write_was_in_flight_become_that_writes():
    history = WriteHistory(bytes(8), 1 << 20)
    begin = time.monotonic_ns()
    assert history.observe(0, b"12345\0\0x", begin)  # its first five bytes have arrived
    history.ended(write(1, 0, b"1234567", begin_ns=begin))
    moments = [history.write(moment) for moment in range(1, history.last + 1)]
    assert [(each.writer, each.data) for each in moments] == [(OUTSIDE, b"x"), ("host", b"1234567")]


def test_of_two_writes_at_the_same_time_the_bytes_tell_which_came_last():
    history = WriteHistory(bytes(8), 1 << 20)
    begin = time.monotonic_ns()
    history.ended(write(1, 0, b"1111", begin_ns=begin))
    history.ended(write(2, 2, b"2222", "client", begin_ns=begin))
    assert history.observe(0, b"111122\0\0", time.monotonic_ns() + 1)
    assert history.at(history.last, 0, 8).data == b"111122\0\0"
    assert history.write(history.last).number == 2


def test_bytes_of_a_failed_write_to_a_region_that_is_not_known_are_that_writes():
    history = WriteHistory(8, 1 << 20)
    history.ended(Write(7, "host", 2, 4, None, 0, 0, 0))
    history.observe(0, b"\0\0\1\1\0\0\2\0", time.monotonic_ns() + 1)
    assert (history.last, history.write(1).number) == (1, 7)
    assert history.at(0, 0, 8).writers == [(2, ""), (4, UNKNOWN), (2, "")]


def test_a_change_in_the_bytes_of_a_failed_write_is_that_writes():
    history = WriteHistory(bytes(8), 1 << 20)
    history.ended(Write(7, "host", 2, 4, None, 0, 0, 0))
    history.observe(0, b"\0\0\1\1\0\0\2\0", time.monotonic_ns() + 1)
    found = [history.write(moment) for moment in (1, 2)]
    assert [(each.number, each.writer, each.offset, each.data) for each in found] == [
        (7, "host", 2, b"\1\1"), (0, OUTSIDE, 6, b"\2"),
    ]  # fmt: skip
    history.observe(0, b"\0\0\1\1\3\0\2\0", time.monotonic_ns() + 1)
    assert history.write(3).writer == OUTSIDE  # what had changed by the write was known by then


@pytest.fixture(scope="module", params=["dpu", "host"], ids=["remote", "local"])
def session(request):
    with agent(role=request.param) as running, dgkit.connect(running.address) as made:
        yield made


def followed(session, size):
    region = session.empty(size, on="host")
    history = WriteHistory(session.read(region, size), 64 << 20)
    record_writes(session, region, history)
    return region, history


def test_each_write_of_a_session_is_in_the_history_with_its_bytes(session):
    chance = random.Random(32)
    region, history = followed(session, 300_000)
    source = session.empty(4096)
    shadow, copies = bytearray(300_000), []
    for _ in range(150):
        at = chance.randrange(300_000)
        data = chance.randbytes(chance.choice([1, 64, 5_000, 60_000]))[: 300_000 - at]
        kind = chance.choice(["bytes", "array", "start", "copy"])
        if kind == "copy":
            at, data = 0, data[:4096].ljust(4096)
            session.write(source, data)
            session.copy(source, region)
        elif kind == "start":
            session.start_write(region, bytearray(data), at).wait()
        else:
            session.write(region, data if kind == "bytes" else bytearray(data), at)
        shadow[at : at + len(data)] = data
        copies.append((bytes(shadow), "DPU" if kind == "copy" else session.role))
        until(lambda: history.last == len(copies), "the write is recorded")
    for moment, (copy, writer) in enumerate(copies, 1):
        if moment >= history.first:
            assert history.at(moment, 0, 300_000).data == copy
        if moment > history.first:
            assert history.write(moment).writer.lower() == writer.lower()
    assert session.read(region, 300_000) == bytes(shadow)


@pytest.mark.parametrize("size", [10_001, MAX_ARRAY])
def test_the_history_has_an_array_as_it_was_when_it_was_written(session, size):
    chance = random.Random(size)
    region = session.empty(size, on="host")
    history = WriteHistory(bytes(size), 8 * size)
    record_writes(session, region, history)
    data, written = bytearray(size), []
    for _ in range(12):
        written.append(chance.randbytes(size))
        data[:] = written[-1]
        session.write(region, data)
        data[:] = bytes(size)  # after the write
        for moment in range(max(1, history.first), history.last + 1):
            assert history.at(moment, 0, size).data == written[moment - 1]
    region.close()


def test_a_write_that_was_refused_ends_in_the_history_and_later_ones_follow(session):
    region, history = followed(session, 64)
    with pytest.raises(TypeError):
        session.write(region, 7)
    session.write(region, b"later", 8)
    assert history.at(history.last, 8, 5).data == b"later"
    assert history.observe(0, session.read(region, 64), time.monotonic_ns())


def test_concurrent_writes_to_the_same_bytes_end_with_the_bytes_that_are_there(session):
    region, history = followed(session, 100_000)
    ended = []
    session.on_write(ended.append)

    def work(letter):
        for _ in range(20):
            session.start_write(region, letter * 100_000).wait()

    threads = [threading.Thread(target=work, args=(letter,)) for letter in (b"a", b"b")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    until(lambda: len(ended) == 40, "all writes are recorded")
    since = time.monotonic_ns()
    there = session.read(region, 100_000)
    assert history.observe(0, there, since)
    assert history.at(history.last, 0, 100_000).data == there


def test_writes_are_reported_until_the_function_is_removed(session):
    region, written = session.empty(64), []
    undo = session.on_write(lambda write: written.append((write.offset, bytes(write.data))))
    session.write(region, b"y", 3)
    session.read(region, 8)
    undo()
    session.write(region, b"z")
    assert written == [(3, b"y")]


def test_a_function_that_fails_is_a_warning_and_the_write_has_succeeded(session):
    region = session.empty(64)
    undo = session.on_write(lambda _: 1 / 0)
    with pytest.warns(RuntimeWarning, match="called after a write of a session, failed: ZeroDiv"):
        session.write(region, b"y")
    undo()
    assert session.read(region, 1) == b"y"


@pytest.mark.parametrize("op", ["read", "write"])
def test_a_destructive_measurement_is_a_write_of_the_dpu(session, op):
    region, written = session.empty(64), []
    undo = session.on_write(written.append)
    session.latency(region, 8, op, 20, destructive=True)
    session.bandwidth(region, 8, op, 0.01, destructive=True)
    undo()
    spans = [(write.region, write.offset, write.size, write.data) for write in written]
    assert spans == [(region, 0, 8, None), (region, 0, 64, None)] * (op == "write")


def test_a_write_that_fails_is_reported_as_failed(session, monkeypatch):
    region, written = session.empty(64), []
    undo = session.on_write(written.append)
    monkeypatch.setattr(type(session.dpu), "write", lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        session.write(region, b"y")
    undo()
    assert [write.failed for write in written] == [True]
