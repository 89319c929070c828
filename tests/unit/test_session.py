# SPDX-License-Identifier: Apache-2.0
"""Every call of a session, over a software DPU that connect() started."""

import asyncio
import contextlib
import copy
import gc
import hashlib
import os
import pickle
import signal
import subprocess
import sys
import threading

import pytest
from support.processes.agents import agent
from support.processes.waiting import gone, until

import dgkit
from dgkit import child
from dgkit.errors import (
    BoundsError,
    ClosedError,
    OutOfMemory,
    PeerError,
    PeerTimeout,
    TransferError,
)
from dgkit.session import spawn
from dgkit.session.connect import _request_timeout
from dgkit.types import Access, Op, Status
from dgkit.wire.messages import Move, Started, encode

MIB = 1 << 20


@pytest.fixture(scope="module")
def session():
    with dgkit.connect() as made:
        yield made


@pytest.fixture
def region(session):
    with session.empty(MIB, name="r") as made:
        yield made


def test_written_bytes_are_in_the_region_and_nowhere_else(session, region):
    report = session.write(region, b"hello", offset=7)
    assert bytes(region.array[6:13]) == b"\0hello\0"
    assert (report.status, report.size, report.op, report.provider) == (
        Status.OK,
        5,
        Op.WRITE,
        "soft",
    )
    assert report.submit_ns <= report.post_ns <= report.complete_ns
    assert report.read_ns > 0
    assert report.write_ns > 0
    assert report.latency_ns == report.complete_ns - report.submit_ns
    submit, post, complete = report.first_stamps  # of the READ from staging memory
    assert 0 < submit <= post <= complete <= report.submit_ns
    assert complete - submit == report.read_ns
    assert "5 bytes by soft" in repr(report)


@pytest.mark.parametrize("copied", [copy.copy, copy.deepcopy, pickle.dumps])
def test_a_copy_which_would_end_the_session_is_refused(session, region, copied):
    with session.monitor(region) as monitor:
        for each in (session, region, monitor):
            with pytest.raises(TypeError, match=f"a {type(each).__name__} cannot be copied"):
                copied(each)
    gc.collect()
    session.write(region, b"open")


def test_read_brings_the_bytes_of_the_region(session, region):
    region.array[100:105] = list(b"world")
    assert session.read(region, 5, offset=100) == b"world"


@pytest.mark.parametrize("size", [1, 64, 65536, 65537, 2 * MIB, 9 * MIB + 5])
@pytest.mark.parametrize("on", ["host", "dpu"])
def test_any_size_comes_back_as_it_went(session, size, on):
    data = os.urandom(size)
    with session.empty(size + 3, on=on) as region:
        report = session.write(region, data, offset=3)
        assert report.size == size
        assert session.read(region, size, offset=3) == data
        assert session.read(region, 3) == b"\0\0\0"


def test_data_may_be_any_buffer(session, region):
    np = pytest.importorskip("numpy")
    grid = np.arange(64, dtype="<u4").reshape(8, 8)
    session.write(region, grid.T)
    assert session.read(region, 256) == grid.T.tobytes()
    session.write(region, bytearray(b"abc"))
    assert session.read(region, 3) == b"abc"


def test_memory_that_the_process_has_is_registered_in_place(session):
    mine = bytearray(b"0123456789")
    with session.register(mine, access="rw", name="mine") as region:
        session.write(region, b"ab", offset=2)
        assert mine == b"01ab456789"
        assert session.read(region, 10) == mine
        assert bytes(region.array) == mine


def test_a_region_says_what_it_is(session):
    with session.empty((4, 256), "u1", name="grid") as region:
        assert (region.size, region.name, region.place, region.access) == (1024, "grid", "host", 3)
        assert region.array.shape == (4, 256)
        assert len(region.token) <= 512
        assert "'grid' on host, 1,024 bytes (uint8, shape (4, 256)), rw" in repr(region)
        shown = region._repr_html_()
        words = ("grid", "1,024 bytes", "uint8, shape (4, 256)", "read and write", "software")
        assert all(word in shown for word in words)
    assert region.closed
    assert "(closed)" in region._repr_html_()
    with pytest.raises(ClosedError):
        region.array  # noqa: B018
    region.close()


@pytest.mark.parametrize(
    ("offset", "size", "error"),
    [
        (MIB, 1, BoundsError),
        (0, MIB + 1, BoundsError),
        (-1, 1, BoundsError),
        (2**63, 1, BoundsError),
        (0, 2**63, BoundsError),
        (0, 0, ValueError),
        (0, -1, ValueError),
        (0, 1.5, TypeError),
        (0.5, 1, TypeError),
    ],
)
def test_a_span_that_leaves_the_region_is_refused_before_anything_moves(
    session, region, offset, size, error
):
    with pytest.raises(error):
        session.read(region, size, offset)
    with pytest.raises(error):
        session.start_read(region, size, offset)
    with pytest.raises(error):
        session.digest(region, size, offset)


def test_a_started_transfer_ends_and_may_be_waited_for_twice(session):
    data = os.urandom(12 * MIB)
    with session.empty(len(data)) as region:
        write = session.start_write(region, data)
        assert write.wait() is write.wait()
        assert write.progress == 1.0
        assert write.done()
        read = session.start_read(region, len(data))
        until(read.done, "the read ends while it is only asked", 20.0)
        assert read.data == data
        with pytest.raises(ValueError, match="returns no data"):
            write.data  # noqa: B018


def test_a_wait_that_is_too_short_leaves_the_transfer_going_on(session):
    data = os.urandom(64 * MIB)
    with session.empty(len(data)) as region:
        session.write(region, data[:MIB])  # creates the staging memory, which needs the agent
        os.kill(session.agent.pid, signal.SIGSTOP)  # else it may be done before the wait
        try:
            write = session.start_write(region, data)
            with pytest.raises(dgkit.PeerTimeout, match="bytes moved"):
                write.wait(timeout=1e-9)
        finally:
            os.kill(session.agent.pid, signal.SIGCONT)
        assert write.wait().size == len(data)
        assert hashlib.sha256(data).hexdigest() == session.digest(region)


def test_transfers_can_be_awaited_side_by_side(session):
    data = os.urandom(5 * MIB)

    async def all_of_it():
        with session.empty(5 * MIB) as one, session.empty(5 * MIB) as two:
            writes = [session.start_write(one, data), session.start_write(two, data)]
            ticks = 0

            async def tick():
                nonlocal ticks
                while True:
                    ticks += 1
                    await asyncio.sleep(0)

            ticking = asyncio.ensure_future(tick())
            reports = await asyncio.gather(*[_await(write) for write in writes])
            ticking.cancel()
            assert [report.size for report in reports] == [len(data)] * 2
            assert ticks > 1
            read = session.start_read(two, len(data))
            await read
            assert read.data == data

    asyncio.run(all_of_it())


async def _await(transfer):
    return await transfer


def test_the_dpu_copies_between_regions_of_both_sides(session):
    data = os.urandom(3 * MIB + 1)
    with (
        session.empty(len(data)) as first,
        session.empty(len(data), on="dpu") as second,
        session.empty(len(data), on="dpu") as third,
        session.empty(len(data) + 1) as fourth,
    ):
        session.write(first, data)
        for src, dst in ((first, second), (second, third), (third, fourth)):
            report = session.copy(src, dst)
            assert report.size == len(data)
        assert bytes(fourth.array[: len(data)]) == data
        with pytest.raises(BoundsError):
            session.copy(fourth, first)


def test_a_digest_is_the_sha256_of_the_bytes(session, region):
    session.write(region, b"some bytes")
    assert session.digest(region, 10) == hashlib.sha256(b"some bytes").hexdigest()
    assert session.digest(region) == hashlib.sha256(bytes(region.array)).hexdigest()
    assert session.digest(region, offset=5, size=5) == hashlib.sha256(b"bytes").hexdigest()


@pytest.mark.parametrize("on", ["host", "dpu"])
def test_latency_reports_every_sample_and_the_floor_beside_them(session, on):
    told = []
    with session.empty(4096, on=on) as region:
        report = session.latency(
            region, size=64, op="read", count=9000, progress=lambda *now: told.append(now)
        )
    assert sum(report.histogram.counts) == 9000
    assert report.size == 64
    assert report.provider == "soft"
    assert report.path == "inline"
    assert len(report.floor_ns) == 2
    assert told[-1] == (9000, 9000)


@pytest.mark.parametrize("path", ["inline", "worker"])
def test_the_path_of_a_measurement_is_the_one_that_was_asked_for(session, region, path):
    assert session.latency(region, count=100, path=path).path == path


def test_bandwidth_counts_what_moved(session, region):
    report = session.bandwidth(region, size=65536, seconds=0.25, window=8)
    assert report.bytes == report.ops * 65536
    assert report.failed == 0
    assert report.elapsed_ns >= 250_000_000


def test_stats_count_what_was_moved(session, region):
    before = session.stats()
    session.write(region, b"12345678")
    after = session.stats()
    assert after["moves"] == before["moves"] + 1
    assert after["bytes"] == before["bytes"] + 8
    assert after["clients"] == 1


def test_info_tells_of_both_sides_and_says_that_the_dpu_is_software(session):
    info = session.info
    assert info["role"] == "host"
    assert info["host"]["pid"] == os.getpid()
    assert info["dpu"]["pid"] == session.owned_pid
    assert info["dpu"]["software"]
    assert "cuda" not in info["dpu"]["provider"]
    for shown in (repr(session), session._repr_html_()):
        assert "software DPU" in shown
        assert str(session.owned_pid) in shown


def test_the_other_side_runs_in_a_process_session_of_its_own(session):
    assert os.getsid(session.owned_pid) == session.owned_pid


def test_many_threads_may_use_one_session(session):
    wrong = []

    def work(number):
        data = bytes([number]) * (200_000 if number % 2 else 64)
        with session.empty(len(data)) as region:
            for _ in range(20):
                session.write(region, data)
                if session.read(region, len(data)) != data:
                    wrong.append(number)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_what_is_used_after_close_is_a_closed_error():
    session = dgkit.connect()
    pid, region = session.owned_pid, session.empty(64)
    session.close()
    session.close()
    assert gone(pid)
    for call in (
        lambda: session.empty(64),
        lambda: session.write(region, b"x"),
        lambda: session.read(region, 1),
        session.stats,
        lambda: session.register(bytearray(8)),
    ):
        with pytest.raises(ClosedError):
            call()
    assert "closed" in repr(session)


def test_a_region_of_a_session_that_went_on_is_closed_once_on_both_sides(session):
    before = session.stats()["your_regions"]
    region = session.empty(64, on="dpu")
    assert session.stats()["your_regions"] == before + 1
    region.close()
    assert session.stats()["your_regions"] == before
    with pytest.raises(ClosedError):
        session.write(region, b"x")


def test_memory_is_bounded_where_the_limit_says():
    with dgkit.connect(max_memory=4 * MIB) as session:
        with pytest.raises(OutOfMemory, match="4194304"):
            session.empty(5 * MIB, on="dpu")
        first = session.empty(3 * MIB, on="dpu")
        with pytest.raises(OutOfMemory):
            session.empty(2 * MIB, on="dpu")
        first.close()
        session.empty(4 * MIB, on="dpu").close()
        assert session.stats()["allocated"] == 0


@pytest.mark.parametrize(
    ("wrong", "error"),
    [
        ({"provider": "warp"}, dgkit.DeviceUnavailable),
        ({"timeout": 0}, ValueError),
        ({"address": "nonsense"}, ValueError),
    ],
    ids=repr,
)
def test_a_session_that_cannot_be_says_why_and_leaves_no_process(wrong, error):
    from support.processes.waiting import children

    before = children()
    with pytest.raises(error):
        dgkit.connect(**wrong)
    assert children() == before


def test_an_injected_fault_arrives_as_the_transfer_error_that_it_is():
    rule = dgkit.FaultRule("error", ops="w", status=Status.IO_FAILED, skip=1, count=1)
    with dgkit.connect(provider="fault", rules=[rule]) as session:
        region = session.empty(64)
        session.write(region, b"first")
        with pytest.raises(TransferError, match="IO_FAILED") as caught:
            session.write(region, b"second")
        assert caught.value.completion.status is Status.IO_FAILED
        session.write(region, b"third")
        assert session.read(region, 6) == b"third\0"


@pytest.mark.parametrize("shape", [0, (), (4, 0), -1])
def test_memory_of_no_bytes_is_a_value_error(session, shape):
    if shape == ():
        assert session.empty((), on="dpu").size == 1
        return
    for on in ("host", "dpu"):
        with pytest.raises(ValueError):  # noqa: PT011 (the words are those of two modules)
            session.empty(shape, on=on)


def test_regions_take_access_as_flags(session):
    with session.register(bytearray(8), access=Access.READ) as region:
        assert region.access == Access.READ
    with pytest.raises(ValueError, match="access"):
        session.register(bytearray(8), access="x")


def test_a_measurement_of_a_region_that_is_closed_meanwhile_fails_by_name(session):
    region = session.empty(4096, on="dpu")
    handle = region.handle
    region.close()
    from dgkit.wire.messages import Digest

    with pytest.raises(ClosedError, match="unknown to the agent"):
        session._link.ask(Digest(region=handle, offset=0, size=64))


def test_stats_tell_this_sessions_requests_from_those_of_others(session, region):
    with agent() as running, dgkit.connect(running.address) as mine:
        mine.write(mine.empty(64), bytes(64))
        with dgkit.connect(running.address) as other:
            large = other.empty(4 * MIB)
            other.write(large, bytes(4 * MIB))
            assert (other.stats()["your_moves"], other.stats()["your_bytes"]) == (2, 4 * MIB)
        mine_now = mine.stats()
    assert (mine_now["your_moves"], mine_now["your_bytes"]) == (1, 64)
    assert (mine_now["moves"], mine_now["bytes"]) == (3, 4 * MIB + 64)


def test_stats_do_not_count_what_was_cancelled_or_refused(session):
    with session.empty(64 * MIB) as large:
        session.read(large, MIB)  # creates the staging memory, which needs the agent
        before = session.stats()["your_bytes"]
        os.kill(session.agent.pid, signal.SIGSTOP)  # else it may be done before the cancel
        try:
            transfer = session.start_read(large, large.size)
            transfer.cancel()
        finally:
            os.kill(session.agent.pid, signal.SIGCONT)
        with pytest.raises(PeerError):
            transfer.wait(timeout=20)
        assert session.stats()["your_bytes"] - before < large.size
    held = session.empty(64)
    before = session.stats()
    with pytest.raises(ClosedError):
        session._link.ask(Move(src=held.handle, src_offset=0, dst=10_000, dst_offset=0, size=64))
    after = session.stats()
    assert (after["moves"], after["bytes"]) == (before["moves"], before["bytes"])


def slow_dpu(monkeypatch, before):
    """Software DPUs start as a program that does something first."""
    program = f"""
import os, socket, sys, time
{before}
socket.socket(fileno=int(sys.argv[1])).send(bytes.fromhex(os.environ["ANSWER"]))
time.sleep(60)
"""

    def start(module, theirs):
        with theirs:
            return subprocess.Popen(
                [sys.executable, "-c", program, str(theirs.fileno())], pass_fds=[theirs.fileno()]
            )

    monkeypatch.setattr(child, "start", start)
    monkeypatch.setattr(spawn, "_START_S", 0.8)
    monkeypatch.setattr(spawn, "_LEAST_S", 0.01)
    monkeypatch.setenv("ANSWER", encode(Started(endpoint="ipc:///x", failed=None)).hex())
    return spawn.SoftwareDpu()


WORKS = "end = time.process_time() + 1.5\nwhile time.process_time() < end: pass"


def listen(dpu, timeout):
    return dpu.listen("soft", rules=(), gpu=0, max_memory=None, timeout=timeout)


def test_a_software_dpu_that_works_is_waited_for(monkeypatch):
    with contextlib.closing(slow_dpu(monkeypatch, WORKS)) as dpu:
        assert listen(dpu, None) == "ipc:///x"


@pytest.mark.parametrize(
    ("before", "timeout"), [(WORKS, 0.3), ("time.sleep(60)", None)], ids=["limit", "stands still"]
)
def test_a_software_dpu_that_stands_still_or_has_a_limit_is_not(monkeypatch, before, timeout):
    with (
        contextlib.closing(slow_dpu(monkeypatch, before)) as dpu,
        pytest.raises(PeerTimeout, match="was not ready within"),
    ):
        listen(dpu, timeout)


def test_a_request_to_an_agent_on_a_slow_machine_may_take_its_heartbeat():
    key = "a" * 64
    assert _request_timeout(f"tcp://10.0.0.1:1?key={key}&heartbeat=20") == 20
    assert _request_timeout(f"tcp://10.0.0.1:1?key={key}") == 5
