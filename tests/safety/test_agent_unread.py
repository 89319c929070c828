# SPDX-License-Identifier: Apache-2.0
"""Clients that do not read cost little and end alone; one that reads slowly loses nothing."""

import contextlib
import os
import time
from pathlib import Path
from types import SimpleNamespace

import pytest
import zmq
from support.processes.agents import agent
from support.processes.waiting import until

import dgkit
from dgkit.agent import handlers
from dgkit.agent.client import Client
from dgkit.schema import LatencyTask
from dgkit.sizes import BLOCKS_AHEAD, SAMPLES_A_BLOCK, STAGE_BYTES, STAGE_SLOTS
from dgkit.wire import keys
from dgkit.wire import messages as m
from dgkit.wire.address import parse
from dgkit.wire.listener import Caller
from dgkit.wire.sockets import set_client_curve

ATTACKERS = 8
SAMPLES = 1_000_000
TASK = LatencyTask(offset=0, size=64, op=0, samples=SAMPLES, path=0)
PER_CLIENT = 6 << 20  # bytes, requests that wait included; without a bound it was 17 MiB


def memory_of(pid):
    pages = Path(f"/proc/{pid}/statm").read_text().split()[1]
    return int(pages) * os.sysconf("SC_PAGE_SIZE")


class Raw:
    """A client of bare messages, which reads when it is asked to."""

    def __init__(self, context, address, key=""):
        self.socket = context.socket(zmq.DEALER)
        self.socket.linger = 0
        self.socket.rcvhwm = 1
        self.socket.rcvbuf = 4096
        self.socket.sndhwm = 0
        self.socket.reconnect_ivl = -1
        if key:
            pair = keys.load(key)
            set_client_curve(self.socket, (pair.public, pair.secret), parse(address).key)
        self.socket.connect(parse(address).endpoint)
        self.number = self.ask(
            m.Hello(version=m.VERSION, pid=os.getpid(), boot="b", machine="m", package="0")
        ).first_id

    def ask(self, request):
        self.socket.send(m.encode(request))
        return self.reply()

    def reply(self):
        assert self.socket.poll(10_000), "no reply"
        return m.decode_reply(self.socket.recv())

    def post(self, request):
        request.id = self.number
        self.socket.send(m.encode(request))
        self.number += 1

    def region(self):
        self.post(m.Allocate(size=64, access=3, export=False, name=""))
        return self.reply().region


@pytest.fixture
def served():
    with agent(shared_telemetry=False) as one:
        yield one


@pytest.fixture
def raw(served):
    with zmq.Context() as context:
        made = [Raw(context, served.address) for _ in range(ATTACKERS)]
        yield made
        for each in made:
            each.socket.close()


def _works(session):
    near, far = session.empty(64), session.empty(64, on="dpu")
    session.copy(near, far)
    near.close()
    far.close()


def test_measurements_that_nobody_reads_take_little_memory(served, raw):
    with dgkit.connect(served.address) as session:
        regions = [each.region() for each in raw]
        before = memory_of(served.pid)
        for each, region in zip(raw, regions, strict=True):
            for _ in range(3):
                each.post(m.Latency(region=region, task=TASK))
        most, deadline = 0, time.monotonic() + 4.0
        while time.monotonic() < deadline:
            most = max(most, memory_of(served.pid) - before)
            _works(session)
        assert most < ATTACKERS * PER_CLIENT


@pytest.mark.parametrize("kind", ["replies", "errors"])
def test_a_client_that_reads_no_replies_is_disconnected(served, raw, kind):
    with dgkit.connect(served.address) as session:
        before = memory_of(served.pid)
        _flood(raw, kind, lambda: session.stats()["user_clients"] == 1)
        assert memory_of(served.pid) - before < ATTACKERS * PER_CLIENT
        _works(session)


def _flood(raw, kind, is_over):
    deadline = time.monotonic() + 30.0
    while not is_over():
        assert time.monotonic() < deadline, "they are still there"
        for each in raw:
            for _ in range(500):
                with contextlib.suppress(zmq.Again):
                    if kind == "replies":
                        each.post(m.Stats())
                    else:
                        each.post(m.Free(region=999, timeout=0.0))


def test_what_a_client_sends_after_it_has_left_is_dropped(served, raw):
    raw[0].post(m.Bye())
    for _ in range(5000):
        raw[0].post(m.Stats())
    assert type(raw[0].reply()) is m.Done
    with dgkit.connect(served.address) as session:
        _works(session)
    assert not raw[0].socket.poll(300)


def test_a_measurement_waits_for_a_client_that_reads_slowly(served, raw):
    one = raw[0]
    region = one.region()
    one.post(m.Latency(region=region, task=TASK))
    time.sleep(1.0)
    samples = 0
    while type(reply := one.reply()) is not m.LatencyDone:
        if type(reply) is m.Block:
            samples += len(reply.samples) // 8
            time.sleep(0.001)
    assert samples == SAMPLES


def test_what_an_agent_sends_ahead_to_an_honest_client_is_below_the_limit_of_unread_replies():
    client = Client(b"", Caller(0, 0, 0), 1 << 47, None, None)
    for number in range(BLOCKS_AHEAD):
        block = m.Block(id=client.next_id, number=number, samples=bytes(8 * SAMPLES_A_BLOCK))
        assert client.queue_reply(m.encode(block))
        assert client.queue_reply(
            m.encode(m.Progress(id=client.next_id, done=number, total=SAMPLES))
        )
    for number in range(STAGE_SLOTS):
        assert client.queue_reply(
            m.encode(m.Fetched(id=client.next_id + number, data=bytes(STAGE_BYTES)))
        )


def test_a_session_that_is_busy_elsewhere_gets_all_its_replies(served):
    with dgkit.connect(served.address) as session:
        near, far = session.empty(64), session.empty(64, on="dpu")
        move = m.Move(src=near.handle, src_offset=0, dst=far.handle, dst_offset=0, size=64)
        session.copy(near, far)
        link = session._link
        posted = [link.post(move) for _ in range(900)]
        time.sleep(1.0)  # its own thread reads nothing meanwhile
        for each in posted:
            assert link.wait(each, 10.0)
            assert each.result().moved.size == 64


def test_a_client_that_does_not_read_gets_no_reports_of_progress(monkeypatch):
    monkeypatch.setattr(handlers, "_PROGRESS_S", -1.0)
    sent, client = [], SimpleNamespace(unsent=[], leaving=False, cancelled=())
    state = SimpleNamespace(send=lambda _client, message: sent.append(message.done))
    step = handlers.Handlers(state)._stepper(client, 1, 4)
    for done, unsent in enumerate([[], [b"a reply"], [b"a reply"], []]):
        client.unsent = unsent
        step(done)
    assert sent == [0, 3]


def test_blocks_that_a_subscriber_does_not_read_take_little_memory(served):
    with dgkit.connect(served.address) as session, zmq.Context() as context:
        region = session.empty(64)
        endpoint, mine = session.telemetry_subscription()
        before = memory_of(served.pid)
        subs = []
        for _ in range(16):
            sub = context.socket(zmq.DEALER)
            sub.linger, sub.rcvhwm, sub.rcvbuf = 0, 1, 4096
            sub.connect(parse(endpoint).endpoint)
            sub.send(mine)
            subs.append(sub)
        until(lambda: session.stats()["user_subscriptions"] == 16, "they subscribe")
        for _ in range(4):
            session.latency(region, size=8, count=SAMPLES)
        assert memory_of(served.pid) - before < 16 * PER_CLIENT
        for sub in subs:
            sub.close()


def test_connections_that_end_in_a_flood_do_not_end_the_agent(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    names = [f"flood{number}" for number in range(16)]  # each is refused once it has flooded
    for name in ("default", *names):
        keys.allow(keys.make(name).public)
    with agent(address="tcp://127.0.0.1:0") as served, dgkit.connect(served.address) as session:
        end = time.monotonic() + 5.0
        for name in names:
            if time.monotonic() > end:
                break
            with zmq.Context() as context:
                made = [Raw(context, served.address, name) for _ in range(4)]
                for each in made:
                    for _ in range(3000):
                        each.post(m.Stats())
                for each in made:
                    each.socket.close()
            session.stats()
        time.sleep(1.0)  # libzmq's heartbeats, of 300 ms, ended it
        _works(session)
