# SPDX-License-Identifier: Apache-2.0
"""File descriptors and connections: short of them, the agent refuses, and its clients go on."""

import contextlib
import socket
import subprocess
import time
from pathlib import Path

import pytest
from support.processes.agents import python
from support.processes.waiting import until

import dgkit
from dgkit.schema import LatencyTask, RateTask, WatchTask
from dgkit.wire import keys
from dgkit.wire import messages as m
from dgkit.wire.address import parse

AGENT = """
import resource, sys, time
from dgkit.agent import serve
resource.setrlimit(resource.RLIMIT_NOFILE, tuple(eval(sys.argv[2])))
def ready(where):
    print(where, flush=True)
    time.sleep(float(sys.argv[3]))
serve(**eval(sys.argv[1]), shared_telemetry=True, ready=ready)
"""


@contextlib.contextmanager
def agent(limit=(1024, 1024), delay=0, **options):
    command = python(AGENT, repr(options), repr(limit), str(delay))
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield process.stdout.readline().strip(), process
            assert process.poll() is None, "the agent has ended"
        finally:
            process.kill()


@pytest.fixture
def own_keys(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    keys.allow(keys.make().public)


def descriptors(pid):
    return len(list(Path(f"/proc/{pid}/fd").iterdir()))


def _fill(sessions, each):
    for session in sessions * each:
        session.empty(64, on="dpu")


def works(session):
    near, far = session.empty(64), session.empty(64, on="dpu")
    session.copy(near, far)
    near.close()
    far.close()


def test_the_soft_limit_is_raised_to_the_hard_one():
    with agent((256, 4096)) as (address, _), dgkit.connect(address) as session:
        assert session.stats()["max_descriptors"] == 4096


def test_regions_beyond_the_limit_are_refused_and_those_that_it_has_and_other_clients_go_on():
    with agent() as (address, process), dgkit.connect(address) as one:
        first = one.empty(1 << 20, on="dpu")
        with pytest.raises(dgkit.LimitReached, match="--max-regions"):
            _fill([one], 1000)
        assert one.stats()["your_regions"] == one.stats()["max_regions"]
        for size in (64, first.size):  # each size has staging memory of its own
            one.write(first, b"w" * size)
            assert one.read(first, size) == b"w" * size
        assert descriptors(process.pid) < 900
        with dgkit.connect(address) as two:
            works(two)


def test_descriptors_keep_a_reserve_whatever_takes_them():
    with agent() as (address, _), contextlib.ExitStack() as stack:
        before = stack.enter_context(dgkit.connect(address))
        sessions = [stack.enter_context(dgkit.connect(address)) for _ in range(10)]
        with pytest.raises(dgkit.LimitReached, match="file descriptors"):
            _fill(sessions, 200)
        with dgkit.connect(address):  # the reserve lets a client in
            assert before.stats()["regions"] > 100


def _connections(address, count):
    where = parse(address).endpoint
    with contextlib.ExitStack() as stack:
        for _ in range(count):
            if where.startswith("tcp://"):
                host, _, port = where.removeprefix("tcp://").rpartition(":")
                one = socket.socket()
                target = (host, int(port))
            else:
                one = socket.socket(socket.AF_UNIX)
                target = where.removeprefix("ipc://")
            stack.enter_context(one)
            one.settimeout(0.2)
            with contextlib.suppress(OSError):  # the queue of those that wait is full
                one.connect(target)
        return stack.pop_all()


@pytest.mark.parametrize("kind", ["ipc", "tcp"])
def test_plain_connections_without_end_hold_up_a_client_for_seconds_only(own_keys, kind):
    where = {"address": "tcp://127.0.0.1:0"} if kind == "tcp" else {}
    with agent(**where) as (address, process), dgkit.connect(address) as before:
        with _connections(address, 400):
            works(before)
            assert descriptors(process.pid) < 800
            until(lambda: _connects(address), "a new client is served", 20.0)
        works(before)


def _connects(address):
    with contextlib.suppress(dgkit.PeerError):
        dgkit.connect(address, timeout=1.0).close()
        return True
    return False


@pytest.mark.parametrize("delay", [0, 0.5], ids=["", "connected-before-the-agent-serves"])
def test_a_client_that_never_says_hello_is_disconnected(delay):
    import zmq

    with agent(delay=delay) as (address, _), zmq.Context() as context:
        mute = context.socket(zmq.DEALER)
        mute.linger = 0
        mute.reconnect_ivl = -1
        monitor = mute.get_monitor_socket(zmq.EVENT_DISCONNECTED)
        started = time.monotonic()
        mute.connect(address)
        with dgkit.connect(address) as session:
            assert monitor.poll(9000), "it is disconnected"
            assert time.monotonic() - started > 4.0
            works(session)
        mute.disable_monitor()
        monitor.close()
        mute.close()


def test_more_clients_than_allowed_are_refused_by_name():
    with agent(max_clients=2) as (address, _):
        with dgkit.connect(address) as one, dgkit.connect(address):
            with pytest.raises(dgkit.LimitReached, match=r"2 clients.*--max-clients"):
                dgkit.connect(address)
            works(one)
        until(lambda: _connects(address), "there is room again")


@pytest.mark.parametrize(
    "request_of",
    [
        lambda size: m.Rate(
            region=1, task=RateTask(size=size, op=1, window=1, seconds=0.001, path=0)
        ),
        lambda size: m.Latency(
            region=1, task=LatencyTask(offset=0, size=size, op=1, samples=1, path=0)
        ),
        lambda size: m.Watch(
            monitor=1,
            region=1,
            task=WatchTask(offset=0, size=size, op=1, samples=1, path=0, every_s=1.0),
        ),
        lambda size: m.Digest(region=1, offset=0, size=size),
        lambda size: m.Move(src=1, src_offset=0, dst=1, dst_offset=0, size=size),
    ],
    ids=["rate", "latency", "watch", "digest", "move"],
)
def test_more_bytes_than_a_region_has_are_refused_before_memory_is_taken(tmp_path, request_of):
    with (
        agent(address=f"ipc://{tmp_path}/x.sock") as (address, _),
        dgkit.connect(address) as session,
        session.empty(4096, on="dpu") as region,
    ):
        assert region.handle == 1
        request = request_of(session.stats()["max_memory"] + 1)
        with pytest.raises(dgkit.BoundsError, match=r"4,?096 bytes"):
            session._link.ask(request)
