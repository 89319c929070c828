# SPDX-License-Identifier: Apache-2.0
"""A monitor: samples for as long as somebody looks, and an end that says why."""

import contextlib
import gc
import os
import select
import signal
import socket
import threading
import time
import warnings
from array import array

import pytest
import zmq
from support.processes.agents import agent
from support.processes.waiting import held, steady, stop, until

import dgkit
from dgkit.errors import (
    AccessDenied,
    BoundsError,
    ClosedError,
    LimitReached,
    PeerLost,
    PeerTimeout,
    TransferError,
)
from dgkit.schema import WatchTask
from dgkit.wire import keys
from dgkit.wire import messages as m
from dgkit.wire.address import parse
from dgkit.wire.client_socket import Subscriptions
from dgkit.wire.messages import SUBSCRIBED, Subscription, decode_published

MIB = 1 << 20


@pytest.fixture(scope="module")
def dpu():
    with agent() as running:
        yield running


@pytest.fixture(scope="module")
def host():
    with agent(role="host") as running:
        yield running


@pytest.fixture(scope="module")
def network(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CONFIG_HOME", str(tmp_path_factory.mktemp("keys")))
        keys.allow(keys.make().public, "this very client")
        with agent(address="tcp://127.0.0.1:0") as running:
            yield running


@pytest.fixture(params=["dpu", "host", "network"])
def session(request):
    """Over ipc, with the DPU in this process, over tcp."""
    with dgkit.connect(request.getfixturevalue(request.param).address) as made:
        yield made


@pytest.fixture
def mine(dpu):
    """One over ipc."""
    with dgkit.connect(dpu.address) as made:
        yield made


@pytest.fixture
def region(session):
    with session.empty(4096, name="r") as made:
        yield made


def blocks_of(monitor, count):
    """The next `count` blocks, at least."""
    blocks = []

    def enough():
        blocks.extend(monitor.read())
        return len(blocks) >= count

    until(enough, f"{count} blocks come", 10.0)
    return blocks


def raised(monitor, timeout=5.0):
    """What read() raises once the blocks are read."""

    def look():
        try:
            monitor.read()
        except Exception as error:
            return error
        return None

    return until(look, "read() raises", timeout)


@pytest.mark.parametrize("op", ["read", "write"])
def test_blocks_come_one_after_another_with_as_many_samples_as_were_asked_for(session, region, op):
    with session.monitor(region, 32, op, count=20, every_s=0.01, offset=64) as monitor:
        blocks = blocks_of(monitor, 5)
        assert [block.number for block in blocks] == list(range(len(blocks)))
        assert monitor.lost == 0
        for block in blocks:
            samples = block.latencies_ns
            assert samples.tolist() == array("Q", block.samples).tolist()
            assert len(samples) == 20
            assert 0 < min(samples) < max(samples) < 10**9
            assert (block.op, block.size, block.path) == (op, 32, monitor.path)
            assert (block.provider, block.source) == ("soft", "monitor")
        stamps = [block.t_ns for block in blocks]
        assert stamps == sorted(set(stamps))
        # the next is due at a multiple of every_s, so of three the last is one later, at least
        assert all(
            third - first > 0.0099e9 for first, third in zip(stamps[:-2], stamps[2:], strict=True)
        )
        assert abs(stamps[-1] - time.monotonic_ns()) < 10e9  # the DPU is on this machine


def test_a_monitor_says_what_it_is(session, region):
    with session.monitor(region, path="worker", every_s=0.01) as monitor:
        assert (monitor.path, monitor.provider, monitor.label) == ("worker", "soft", "software DPU")
        assert (monitor.size, monitor.op, monitor.count, monitor.every_s) == (64, "write", 50, 0.01)
        assert "r on host" in monitor.where
        assert monitor.machine.cpus >= 1
        assert blocks_of(monitor, 1)[0].path == "worker"
        assert "50 every 0.01 s, worker, software DPU>" in repr(monitor)
        assert "software DPU" in monitor._repr_html_()
    assert "closed" in repr(monitor)


def test_a_write_puts_its_bytes_where_it_was_told_and_nowhere_else(session, region):
    session.write(region, b"\xff" * 4096)
    with session.monitor(region, size=16, offset=100, every_s=0.01, destructive=True) as monitor:
        blocks_of(monitor, 1)
    data = session.read(region, 4096)
    assert data == b"\xff" * 100 + bytes(16) + b"\xff" * (4096 - 116)


def test_close_frees_all_on_both_sides(session, region):
    before = session.stats()
    with session.monitor(region, size=4096, every_s=0.01) as monitor:
        blocks_of(monitor, 1)
        if session.role == "host":
            now = session.stats()
            assert now["your_monitors"] == before["your_monitors"] + 1
            assert now["allocated"] == before["allocated"] + 4096
    after = session.stats()
    assert (after["your_monitors"], after["allocated"]) == (0, before["allocated"])
    assert not session.monitors
    monitor.close()
    with pytest.raises(ClosedError, match="monitor is closed"):
        monitor.read()


def test_many_monitors_leave_nothing_behind(session, region):
    def once():
        with session.monitor(region, every_s=0.01) as monitor:
            blocks_of(monitor, 1)

    there = session.agent.pid
    once()
    before = steady(held), steady(lambda: held(there))
    for _ in range(10):
        once()
    assert (steady(held), steady(lambda: held(there))) == before


def test_the_rest_of_the_session_works_meanwhile(session, region):
    with session.monitor(region, size=64, offset=2048, every_s=0.01) as monitor:
        session.write(region, b"hello")
        assert session.read(region, 5) == b"hello"
        assert session.latency(region, count=1000).percentiles.n == 1000
        other = session.empty(3 * MIB)
        data = os.urandom(3 * MIB)
        session.write(other, data)
        assert session.read(other, len(data)) == data
        other.close()
        assert blocks_of(monitor, 2)
        assert session.stats()["session_regions"] == 1


def test_the_dpu_samples_on_while_this_process_does_not_look(mine):
    with mine.empty(64) as region, mine.monitor(region, every_s=0.01) as monitor:
        first = blocks_of(monitor, 1)[-1]
        busy_until = time.monotonic() + 0.3
        while time.monotonic() < busy_until:
            pass
        blocks = monitor.read()
        assert len(blocks) > 10
        assert blocks[0].number == first.number + 1
        assert monitor.lost == 0


def _forward(near, far):
    """Forward both ways; what follows the client's READY command waits for 0.3 s."""
    with near, far, contextlib.suppress(OSError):
        while True:
            for source in select.select([near, far], [], [])[0]:
                data = source.recv(1 << 16)
                if not data:
                    return
                if source is far:
                    near.sendall(data)
                    continue
                at = data.find(b"\x05READY")  # behind the size of its frame; the greeting has none
                end = at + data[at - 1] if at >= 0 else len(data) if b"NULL" in data else 0
                far.sendall(data[:end])
                if data[end:]:
                    time.sleep(0.3)
                    far.sendall(data[end:])


def test_no_block_is_lost_while_the_subscription_is_on_its_way(mine, tmp_path, monkeypatch):
    slow, resolve = tmp_path / "slow.sock", Subscriptions._resolve
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(slow))
        server.listen()

        def forward(published):
            near, far = server.accept()[0], socket.socket(socket.AF_UNIX)
            far.connect(published.endpoint.removeprefix("ipc://"))
            _forward(near, far)

        def through(self, published):
            threading.Thread(target=forward, args=(resolve(self, published),), daemon=True).start()
            return parse(f"ipc://{slow}")

        monkeypatch.setattr(Subscriptions, "_resolve", through)
        with mine.empty(64) as region, mine.monitor(region, every_s=0.01) as monitor:
            assert blocks_of(monitor, 1)[0].number == 0
            assert monitor.lost == 0


@pytest.mark.parametrize(
    ("values", "error", "words"),
    [
        ({"size": 4097}, BoundsError, "4,097 bytes at offset 0 leave region 'r', which has 4,096"),
        ({"offset": 4090}, BoundsError, "64 bytes at offset 4,090 leave region 'r'"),
        ({"size": 0}, ValueError, "size is 0"),
        ({"count": 0}, ValueError, "count is 0; it must be 1 to 4096"),
        ({"count": 4097}, ValueError, "count is 4097; it must be 1 to 4096"),
        ({"count": 1.5}, TypeError, "count"),
        ({"every_s": 0.009}, ValueError, "every_s is 0.009; it must be 0.01 or more, at most 60"),
        ({"every_s": 61}, ValueError, "every_s is 61; it must be 0.01 or more, at most 60"),
        ({"every_s": float("nan")}, ValueError, "every_s is nan"),
        ({"every_s": "1"}, TypeError, "every_s is '1'"),
        ({"op": "copy"}, ValueError, "op is 'copy'"),
        ({"path": "fast"}, ValueError, "path is 'fast'"),
    ],
    ids=repr,
)
def test_what_cannot_be_is_refused_before_anything_is_sent(session, region, values, error, words):
    before = session.stats()
    with pytest.raises(error, match=words):
        session.monitor(region, **values)
    assert session.stats()["jobs"] == before["jobs"]
    assert not session.monitors


def test_there_is_a_most_and_one_that_was_closed_makes_room(session, region):
    with contextlib.ExitStack() as stack:
        enter = stack.enter_context
        monitors = [enter(session.monitor(region, every_s=1)) for _ in range(m.MONITORS)]
        with pytest.raises(LimitReached, match=f"has {m.MONITORS} monitors open"):
            session.monitor(region)
        monitors[3].close()
        session.monitor(region).close()


@pytest.mark.filterwarnings(
    "ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning"
)
def test_a_monitor_that_is_forgotten_ends_and_makes_room(session, region):
    for _ in range(m.MONITORS + 1):
        session.monitor(region, every_s=1)
    assert not session.monitors
    until(lambda: not session.stats()["your_monitors"], "the agent has freed them")


def test_the_agent_has_the_same_limit(mine):
    region = mine.empty(64)
    task = WatchTask(offset=0, size=64, op=1, samples=1, path=0, every_s=60.0)
    for number in range(m.MONITORS):
        mine._link.ask(m.Watch(monitor=1 + number, region=region.handle, task=task))
    with pytest.raises(LimitReached, match=f"{m.MONITORS} monitors at an agent"):
        mine._link.ask(m.Watch(monitor=99, region=region.handle, task=task))
    assert mine.stats()["your_monitors"] == m.MONITORS


def test_access_that_the_region_does_not_give_is_refused_when_it_is_made(session):
    before = session.stats()
    with session.register(b"constant bytes", access="r") as region:
        with pytest.raises(AccessDenied):
            session.monitor(region, size=8)
        with session.monitor(region, size=8, op="read", every_s=0.01) as monitor:
            assert blocks_of(monitor, 1)
    assert not session.monitors
    now = session.stats()
    assert (now["your_monitors"], now["allocated"]) == (0, before["allocated"])


def test_a_region_that_is_closed_ends_its_monitor_with_an_error_that_names_it(session):
    region = session.empty(4096, name="short")
    monitor = session.monitor(region, every_s=0.01)
    blocks_of(monitor, 1)
    region.close()
    error = raised(monitor)
    assert isinstance(error, ClosedError)
    assert "'short' was closed while it was monitored" in str(error)
    assert str(raised(monitor)) == str(error)
    assert not session.monitors
    assert session.stats()["your_monitors"] == 0
    monitor.close()


def test_a_region_that_is_revoked_ends_its_monitor_with_a_typed_error(mine):
    region = mine.empty(4096)
    with mine.monitor(region, every_s=0.01, destructive=True) as monitor:
        blocks_of(monitor, 1)
        region.local.close()
        assert isinstance(raised(monitor), dgkit.DgkitError)
        until(lambda: mine.stats()["your_monitors"] == 0, "it ended at the agent")


def test_monitors_of_a_client_that_leaves_or_is_lost_end(dpu, mine):
    with dgkit.connect(dpu.address) as other:
        running = [other.monitor(other.empty(64), every_s=0.01)]
        running.append(other.monitor(other.empty(64, on="dpu"), every_s=60))
        assert mine.stats()["monitors"] == len(running)
    now = mine.stats()
    assert (now["monitors"], now["allocated"], now["regions"]) == (0, 0, 0)


def test_a_killed_agent_is_peer_lost_within_a_second():
    with agent() as running, dgkit.connect(running.address) as session:
        monitor = session.monitor(session.empty(64), every_s=0.01)
        blocks_of(monitor, 1)
        running.process.kill()
        started = time.monotonic()
        error = raised(monitor)
        assert time.monotonic() - started < 1.0
        assert isinstance(error, PeerLost)
        assert str(running.pid) in str(error)
        monitor.close()


def test_a_stopped_agent_is_a_timeout_and_it_goes_on_when_it_does():
    with agent() as running, dgkit.connect(running.address) as session:
        monitor = session.monitor(session.empty(64), every_s=0.01)
        blocks_of(monitor, 1)
        stop(running.pid)
        started = time.monotonic()
        error = raised(monitor)
        assert time.monotonic() - started < 1.0
        assert isinstance(error, PeerTimeout)
        running.send(signal.SIGCONT)
        until(lambda: _reads(monitor), "it goes on")


def _reads(monitor):
    try:
        return monitor.read()
    except PeerTimeout:
        return []


def test_an_agent_that_ends_takes_no_longer_for_its_monitors():
    with (
        agent() as running,
        dgkit.connect(running.address) as session,
        session.monitor(session.empty(64), every_s=60, count=1),
        session.monitor(session.empty(64), every_s=0.01),
    ):
        started = time.monotonic()
        running.process.terminate()
        until(lambda: running.process.poll() is not None, "the agent ends")
        assert running.process.returncode == 0
        assert time.monotonic() - started < 1.0


@pytest.mark.parametrize("here", [False, True], ids=["agent", "here"])
def test_a_sample_that_fails_ends_the_monitor_with_its_completion(host, here):
    rule = dgkit.FaultRule("error", ops="w", skip=100)
    with (
        dgkit.connect(host.address if here else None, provider="fault", rules=[rule]) as session,
        session.empty(64) as region,
    ):
        monitor = session.monitor(region, every_s=0.01, count=20)
        assert monitor.label == "software DPU, injected faults"
        error = raised(monitor)
        assert isinstance(error, TransferError)
        assert error.completion.status is dgkit.Status.IO_FAILED
        assert session.stats()["your_monitors"] == 0


def test_a_sample_whose_completion_is_lost_does_not_hang_it():
    rule = dgkit.FaultRule("lose", ops="w", skip=10)
    with dgkit.connect(provider="fault", rules=[rule]) as session, session.empty(64) as region:
        monitor = session.monitor(region, every_s=0.01, count=20)
        error = raised(monitor, 10.0)
        assert isinstance(error, TransferError)
        assert error.completion.status is dgkit.Status.TIMED_OUT


def test_a_gap_in_the_numbers_is_counted(mine):
    with mine.empty(64) as region, mine.monitor(region, every_s=0.01) as monitor:
        seen = blocks_of(monitor, 1)[-1]
        until(monitor._source.take, "a block that is dropped on its way")
        blocks_of(monitor, 1)
        assert monitor.lost >= 1
        assert monitor._next > seen.number + monitor.lost


def test_the_most_samples_of_the_most_bytes_do_not_hold_up_its_end(session):
    with session.empty(64 * MIB) as region:
        monitor = session.monitor(region, size=64 * MIB, count=4096, every_s=60)
        started = time.monotonic()
        assert monitor.read() == []
        monitor.close()
        assert time.monotonic() - started < 1.0
        assert session.stats()["your_monitors"] == 0


def test_in_a_forked_child_it_is_the_parents(session, region):
    monitor = session.monitor(region, every_s=0.01)
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            monitor.read()
        except ClosedError as error:
            monitor.close()
            code = 0 if "before fork" in str(error) else 2
        finally:
            os._exit(code)
    assert os.waitpid(pid, 0)[1] == 0
    assert blocks_of(monitor, 2)
    monitor.close()


def test_a_feed_that_nobody_answers_says_that_the_port_must_be_open(mine, monkeypatch):
    dead = "ipc:///nowhere/dgkit-no-such-socket"
    monkeypatch.setattr("dgkit.wire.client_socket.Subscriptions._resolve", lambda *_: parse(dead))
    mine.timeout = 0.2
    with mine.empty(64) as region, pytest.raises(PeerTimeout, match="let a firewall or a tu"):
        mine.monitor(region)
    assert not mine.monitors


def test_what_others_subscribe_to_keeps_its_numbers(mine):
    """Those of monitors are apart: one number each."""
    with mine.empty(64) as region, zmq.Context() as context, context.socket(zmq.DEALER) as sub:
        sub.linger = 0
        sub.connect(mine.telemetry())
        sub.send(m.encode(Subscription(monitor=0)))
        assert sub.recv() == SUBSCRIBED
        with mine.monitor(region, every_s=0.01) as monitor:

            def heard():
                mine.write(region, b"x")
                monitor.read()
                return sub.poll(0)

            blocks = []
            for _ in range(3):
                until(heard, "a block")
                blocks.append(decode_published(sub.recv()))
    assert {(each.monitor, each.block.source) for each in blocks} == {(0, "move")}
    assert [each.block.number - blocks[0].block.number for each in blocks] == [0, 1, 2]


def test_one_that_nobody_closed_goes_with_its_session_when_the_collector_comes(dpu, host):
    with dgkit.connect(dpu.address) as watcher:
        for address in (dpu.address, host.address):
            session = dgkit.connect(address)
            region = session.empty(64)
            monitor = session.monitor(region, every_s=0.01)
            blocks_of(monitor, 1)
            with warnings.catch_warnings(record=True) as said:
                warnings.simplefilter("always")
                del session, region, monitor
                gc.collect()
            assert any("<Session " in str(each.message) for each in said)
        until(lambda: watcher.stats()["clients"] == 1, "the agent let go of it")
        assert watcher.stats()["monitors"] == 0


def test_memory_that_the_agent_may_not_allocate_is_refused_when_it_is_made():
    with dgkit.connect(max_memory=MIB) as session, session.empty(2 * MIB) as region:
        with pytest.raises(dgkit.OutOfMemory, match="max-memory"):
            session.monitor(region, size=2 * MIB)
        with session.monitor(region, size=MIB, every_s=0.01) as monitor:
            assert blocks_of(monitor, 1)
        now = session.stats()
        assert (now["your_monitors"], now["allocated"]) == (0, 0)


def test_monitors_come_and_go_in_threads_while_regions_do(session):
    failed = []

    def work():
        try:
            for _ in range(8):
                region = session.empty(4096)
                monitor = session.monitor(region, every_s=0.01)
                blocks_of(monitor, 1)
                region.close()
                raised(monitor)
                monitor.close()
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60.0)
    assert not failed
    assert session.stats()["your_monitors"] == 0
    assert not session.regions
