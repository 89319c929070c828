# SPDX-License-Identifier: Apache-2.0
"""What one key or user, and one client, may have: beyond it LimitReached, and the others go on."""

import contextlib
import json
import threading

import pytest
import zmq
from support.agent_faults import running
from support.processes import cli
from support.processes.agents import agent
from support.processes.waiting import until

import dgkit
from dgkit.agent import worker
from dgkit.agent.agent_limits import Limits
from dgkit.agent.client import Client
from dgkit.agent.worker import MonitorEnd
from dgkit.dma import RemoteRegion
from dgkit.dpu.copier import Copier
from dgkit.wire import keys
from dgkit.wire.address import parse
from dgkit.wire.messages import Subscription, encode

MIB = 1 << 20


@pytest.fixture
def two_keys(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    keys.make()
    for name in ("one", "two"):
        keys.allow(keys.make(name).public)


def works(session):
    near, far = session.empty(64), session.empty(64, on="dpu")
    session.write(near, b"fine")
    session.copy(near, far)
    assert session.read(far, 4) == b"fine"
    near.close()
    far.close()


def _fill(sessions, size, count):
    for session in sessions * count:
        session.empty(size, on="dpu")


@pytest.mark.parametrize(
    ("size", "share", "says"),
    [
        (8 * MIB, None, r"67108864.*--max-memory.*--max-share"),
        (64, 2, r"file descriptors.*--max-share"),
    ],
)
def test_a_key_gets_its_share_and_no_more(two_keys, size, share, says):
    with (
        agent(
            address="tcp://127.0.0.1:0",
            max_memory=128 * MIB,
            shared_telemetry=False,
            max_share=share,
        ) as served,
        contextlib.ExitStack() as stack,
    ):
        other = stack.enter_context(dgkit.connect(served.address, keys="two"))
        greedy = [stack.enter_context(dgkit.connect(served.address, keys="one")) for _ in range(2)]
        with pytest.raises(dgkit.LimitReached, match=says):
            _fill(greedy, size, 1000)
        assert other.stats()["user_memory"] == 0
        works(other)
        for session in greedy:
            session.close()
        until(lambda: _has(served, "one", 1, 0), "everything is given back")


def _has(served, key, clients, regions):
    with dgkit.connect(served.address, keys=key) as session:
        counters = session.stats()
        names = ("user_clients", "user_regions", "user_memory", "user_subscriptions")
        return [counters[name] for name in names] == [clients, regions, 0, 0]


def test_a_key_with_all_its_clients_keeps_no_other_out(two_keys):
    with (
        agent(address="tcp://127.0.0.1:0", max_clients=4) as served,
        contextlib.ExitStack() as all_,
    ):
        for _ in range(2):
            all_.enter_context(dgkit.connect(served.address, keys="one"))
        with pytest.raises(dgkit.LimitReached, match=r"2 clients.*--max-clients.*--max-share"):
            dgkit.connect(served.address, keys="one")
        with dgkit.connect(served.address, keys="two") as other:
            works(other)


def test_a_client_leaves_memory_to_the_others():
    with agent(max_memory=64 * MIB) as served, dgkit.connect(served.address) as one:
        one.empty(40 * MIB, on="dpu")
        with pytest.raises(dgkit.LimitReached, match=r"8388608 of .*--max-client-memory"):
            one.empty(9 * MIB, on="dpu")
        with dgkit.connect(served.address) as two:
            two.empty(16 * MIB, on="dpu")
            with pytest.raises(dgkit.OutOfMemory, match="--max-memory"):
                two.empty(16 * MIB, on="dpu")


def test_the_options_set_the_limits():
    limits = Limits(clients=100, regions=1000, descriptors=4096, memory=100 * MIB)
    assert limits.memory_each == 75 * MIB
    assert Limits(memory=MIB, client_memory=2 * MIB).memory_each == MIB
    shares = [limits.quota(keys).memory for keys in (0, 1, 4, 16, 1000)]
    assert shares == [100 * MIB, 100 * MIB, 25 * MIB, 100 * MIB // 16, 100 * MIB // 16]
    quota = Limits(clients=100, memory=100 * MIB, share=30).quota(1000)
    assert (quota.clients, quota.memory) == (30, 30 * MIB)


def test_subscriptions_beyond_the_quota_end_that_connection_alone():
    with (
        agent(shared_telemetry=False, max_share=1) as served,
        dgkit.connect(served.address) as session,
        zmq.Context() as context,
    ):
        region = session.empty(64)
        endpoint = parse(session.telemetry()).endpoint
        most = session.stats()["max_user_subscriptions"]
        held = [_subscriber(context, endpoint, number + 1) for number in range(most)]
        until(lambda: session.stats()["user_subscriptions"] == most, "all are counted")
        with pytest.raises(dgkit.LimitReached, match=f"{most} subscriptions.*--max-share"):
            session.monitor(region, every_s=0.01)
        for each in held[: most // 2]:
            each.close()
        until(lambda: session.stats()["user_subscriptions"] < most, "some are given back")
        until(lambda: _monitors(session, region), "there is room again", 20.0)
        for each in held[most // 2 :]:
            each.close()


def _subscriber(context, endpoint, number):
    sub = context.socket(zmq.DEALER)
    sub.linger = 0
    sub.reconnect_ivl = -1
    sub.connect(endpoint)
    sub.send(encode(Subscription(monitor=number)))
    return sub


def _monitors(session, region):
    with contextlib.suppress(dgkit.LimitReached), session.monitor(region, every_s=0.01) as monitor:
        until(monitor.read, "a block")
        return True
    return False


def test_a_telemetry_connection_that_comes_and_goes_is_not_counted_for_ever():
    with agent(shared_telemetry=False) as served, dgkit.connect(served.address) as session:
        region = session.empty(64)
        for _ in range(100):
            with session.monitor(region, every_s=0.01):
                pass
        until(lambda: session.stats()["user_subscriptions"] <= 1, "they are given back")


def test_info_shows_the_limits_of_an_agent_and_what_is_used(tmp_path):
    with agent(shared_telemetry=False) as served, dgkit.connect(served.address) as session:
        session.empty(MIB, on="dpu")
        shown = cli.run(tmp_path, "info", "--address", served.address)
        told = cli.run(tmp_path, "info", "--address", served.address, "--json")
    assert (shown.returncode, shown.stderr) == (0, "")
    rows = {(row["limit"], row["of"]): row for row in json.loads(told.stdout)["limits"]}
    assert rows["memory", "key or user"]["used"] == MIB
    assert rows["clients", "key or user"]["used"] == 2
    assert rows["memory", "client"]["used"] == 0
    assert rows["memory", "agent"]["used"] is None  # of all clients: not this one's to know
    assert "1 MiB" in shown.stdout
    for row in rows.values():
        assert row["limit"] in shown.stdout
        assert row["option"] in shown.stdout


STEPS = {
    "moves": (worker.SerialWorker, "finish", "moves"),
    "measures": (worker.SerialWorker, "finish", "measures"),
    "waiting": (worker.SerialWorker, "join", "moves"),
    "monitors": (MonitorEnd, "end", ""),
    "queue": (Copier, "close", ""),
    "leave": (Client, "start_release", ""),
    "release": (Client, "_release_region", ""),
}


@pytest.mark.parametrize("step", STEPS)
def test_a_step_of_leaving_that_fails_keeps_no_region(monkeypatch, step):
    owner, name, which = STEPS[step]
    call, failures = getattr(owner, name), []

    def fails_once(self, *args, **options):
        if not failures and which in getattr(self, "_name", which):
            failures.append(step)
            raise MemoryError("injected")
        return call(self, *args, **options)

    with running() as one, dgkit.connect(one.endpoint) as other:
        session = dgkit.connect(one.endpoint)
        near, far = session.empty(64), session.empty(4 * MIB, on="dpu")
        big = session.empty(4 * MIB)
        session.copy(big, far)
        _monitor = session.monitor(near, every_s=0.01)
        monkeypatch.setattr(owner, name, fails_once)
        with contextlib.suppress(dgkit.DgkitError):
            session.close()
        if step != "release":  # that of one region was replaced as a whole
            until(lambda: other.stats()["allocated"] == 0, "its memory is free")
        until(lambda: other.stats()["user_clients"] == 1, "it has left")
        assert failures
        works(other)


def test_what_counts_against_the_memory_limit_is_freed_before_a_slow_import(monkeypatch):
    """To unmap 1 GiB takes 0.2 s of CPU time, which on a busy machine is a second."""
    unimport, slow = RemoteRegion.close, threading.Event()

    def waiting(region):
        if threading.current_thread().name.startswith("dgkit-control"):
            assert slow.wait(20)
        unimport(region)

    with running() as one, dgkit.connect(one.endpoint) as watcher:
        session = dgkit.connect(one.endpoint)
        session.empty(MIB)
        session.empty(4 * MIB, on="dpu")
        monkeypatch.setattr(RemoteRegion, "close", waiting)
        ending = threading.Thread(target=session.close)
        ending.start()
        try:
            until(lambda: watcher.stats()["allocated"] == 0, "its memory is free", 5)
        finally:
            slow.set()
            ending.join(20)
        works(watcher)
