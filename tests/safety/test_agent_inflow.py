# SPDX-License-Identifier: Apache-2.0
"""What is never complete, or not taken yet, takes little memory, and ends its connection."""

import contextlib
import os
import socket
import time
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import patch

import pytest
import zmq
from support.processes.agents import SLOW_AGENT, agent, program
from support.processes.waiting import until
from support.processes.zmtp import Zmtp, own_bytes

import dgkit
from dgkit.agent import account as accounts
from dgkit.agent import handshake, state
from dgkit.wire import acceptor, inflow, keys
from dgkit.wire import messages as m
from dgkit.wire.address import parse
from dgkit.wire.sockets import set_client_curve

MIB = 1 << 20
SENT = 4096 * MIB
AT_MOST = 1024 * MIB  # what arrives in a tenth of a second; 32 MiB apart from it
UNDER_ATTACK = 512 * MIB  # an agent's own memory, SECURITY.md


@contextlib.contextmanager
def client_of(address):
    connected = socket.socket(socket.AF_UNIX)
    connected.connect(str(parse(address).path))
    with Zmtp(connected, b"DEALER") as client:
        yield client


def greet(client):
    client.send(
        m.encode(
            m.Hello(id=0, version=m.VERSION, pid=os.getpid(), boot="b", machine="m", package="0")
        )
    )
    return m.decode_reply(client.read_frame()).first_id


def most_during(pid, flood):
    """The most memory that the agent had while a child floods it, and the child's exit code."""
    child = os.fork()
    if child == 0:
        with contextlib.suppress(BaseException):
            os._exit(0 if flood() else 3)
        os._exit(4)
    most = 0
    while not (ended := os.waitpid(child, os.WNOHANG))[0]:
        most = max(most, own_bytes(pid))
        time.sleep(0.005)
    return max(most, own_bytes(pid)), os.waitstatus_to_exitcode(ended[1])


def switches(pid):
    """How often the threads of a process have given up a CPU."""
    tasks = Path(f"/proc/{pid}/task").glob("*/status")
    lines = [line for task in tasks for line in task.read_text().splitlines() if "ctxt" in line]
    return sum(int(line.split()[1]) for line in lines)


def rests(pid):
    """Whether a process has nothing to do, for a part of a second."""
    before = switches(pid)
    time.sleep(0.3)
    return switches(pid) - before <= 3


@pytest.mark.parametrize("known", [False, True])
@pytest.mark.parametrize("rested", [False, True])
def test_parts_without_end_end_the_connection(known, rested):
    with agent() as served, dgkit.connect(served.address) as session:
        before = own_bytes(served.pid)
        for _ in range(2):  # the second finds no memory that the first has left
            with client_of(served.address) as client:
                if known:
                    assert greet(client)
                if rested:
                    until(lambda: rests(served.pid), "the agent rests")
                most, code = most_during(served.pid, lambda c=client: c.flood(SENT))
            assert code == 0, "the agent has taken four gigabytes"
            assert most - before < AT_MOST
        with session.empty(MIB) as region:
            session.write(region, b"x" * MIB)
            assert session.read(region, MIB) == b"x" * MIB


@pytest.fixture
def tcp():
    with socket.create_server(("127.0.0.1", 0)) as server:
        near = socket.create_connection(server.getsockname())
        far, _ = server.accept()
        with near, far:
            yield near, far


@pytest.fixture
def curve():
    """A pair of sockets as between agent and client."""
    with zmq.Context() as context, context.socket(zmq.ROUTER) as router:
        public, secret = zmq.curve_keypair()
        router.curve_server, router.curve_secretkey, router.linger = True, secret, 0
        port = router.bind_to_random_port("tcp://127.0.0.1")
        with context.socket(zmq.DEALER) as dealer:
            dealer.linger = 0
            dealer.curve_publickey, dealer.curve_secretkey = zmq.curve_keypair()
            dealer.curve_serverkey = public
            dealer.connect(f"tcp://127.0.0.1:{port}")
            yield router, dealer


def _send_all(near, far, size):
    left = size
    while left:
        near.sendall(b"x" * min(left, MIB))
        taken = min(left, MIB)
        while taken:
            taken -= len(far.recv(taken))
        left -= min(left, MIB)


def test_bytes_over_tcp_are_counted_since_the_last_message(tcp):
    near, far = tcp
    seen = inflow.Inflow()
    assert not seen.is_endless(far.fileno(), 5)
    for number in range(6, 10):
        _send_all(near, far, 6 * MIB)
        assert not seen.is_endless(far.fileno(), number)
    _send_all(near, far, 6 * MIB)
    assert not seen.is_endless(far.fileno(), 9)
    _send_all(near, far, 3 * MIB)
    assert seen.is_endless(far.fileno(), 9)


def test_a_connection_without_a_message_may_send_little(tcp):
    near, far = tcp
    seen = inflow.Inflow()
    assert not seen.is_endless(far.fileno(), 0)
    _send_all(near, far, 9 * MIB)
    assert seen.is_endless(far.fileno(), 0)
    late = inflow.Inflow()  # first looked at when it has sent all of it
    assert late.is_endless(far.fileno(), 0)


def test_heartbeats_of_a_quiet_connection_are_no_flood(tcp, monkeypatch):
    near, far = tcp
    seen = inflow.Inflow()
    assert not seen.is_endless(far.fileno(), 5)
    _send_all(near, far, 16 * MIB)
    later = time.monotonic() + 12 * 3600
    monkeypatch.setattr(inflow, "time", SimpleNamespace(monotonic=lambda: later))
    assert not seen.is_endless(far.fileno(), 5)
    _send_all(near, far, 64 * MIB)
    assert seen.is_endless(far.fileno(), 5)


def test_messages_that_are_not_taken_are_counted_however_many_were(tcp):
    near, far = tcp
    seen, taken = inflow.Inflow(), 0
    for _ in range(5):
        _send_all(near, far, 3 * MIB)
        taken += 2 * MIB
        ahead = seen.ahead(far.fileno(), taken)
    assert 5 * MIB - 16_000 <= ahead <= 5 * MIB
    assert seen.ahead(far.fileno(), taken + 5 * MIB) == 0


def test_a_quiet_connection_earns_no_right_to_send_more(tcp, monkeypatch):
    near, far = tcp
    seen = inflow.Inflow()
    _send_all(near, far, 16 * MIB)  # heartbeats of 12 hours
    for hours in (12, 24):
        later = time.monotonic() + hours * 3600
        monkeypatch.setattr(inflow, "time", SimpleNamespace(monotonic=lambda at=later: at))
        assert seen.ahead(far.fileno(), 0) == 0
    _send_all(near, far, 9 * MIB)
    assert seen.ahead(far.fileno(), 0) == 9 * MIB


@pytest.mark.parametrize("size", [0, 1, 222, 223, 60_000])
def test_the_bytes_of_a_message_are_those_that_cross_the_wire(size, curve):
    router, dealer = curve
    seen = inflow.Inflow()
    dealer.send(bytes(size))
    _, frame = router.recv_multipart(copy=False)
    far = frame.get(zmq.SRCFD)
    before = seen._received(far)
    for _ in range(100):
        dealer.send(bytes(size))
    for _ in range(100):
        router.recv_multipart()
    assert seen._received(far) - before == 100 * inflow.wire_bytes(size)


@pytest.mark.parametrize(
    ("ahead", "ends"),
    [
        ([8, 8, 8], []),
        ([8, 9, 0], [1]),
        ([1, *[8] * 8], [1]),  # 65 in all
        ([1] * 64, []),
        ([1] * 66, [0, 1]),
    ],
)
def test_the_connections_with_most_are_ended(ahead, ends):
    assert acceptor.excess_connections({fd: size * MIB for fd, size in enumerate(ahead)}) == ends


@pytest.fixture
def own_keys(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    for name in ("default", "flood"):
        keys.allow(keys.make(name).public)


@pytest.fixture
def slow_agent(own_keys):
    """An agent that reads slowly, and its address."""
    with program(SLOW_AGENT, "0.05") as served:
        yield served, served.stdout.readline().strip()


def _flood(dealer):
    """Send large requests until the connection ends."""
    with contextlib.suppress(zmq.Again):
        while True:
            yield dealer.send(bytes(60_000), copy=False)


@contextlib.contextmanager
def _dealer(address):
    with zmq.Context() as context, context.socket(zmq.DEALER) as dealer:
        dealer.linger, dealer.reconnect_ivl, dealer.sndtimeo = 0, -1, 1500
        pair = keys.load("flood")
        set_client_curve(dealer, (pair.public, pair.secret), parse(address).key)
        dealer.connect(parse(address).endpoint)
        yield dealer


@contextlib.contextmanager
def _flooder(address, first):
    """Yield a client of bare messages that has sent the first, and its reply."""
    with _dealer(address) as dealer:
        dealer.send(m.encode(first))
        assert dealer.poll(20_000)
        yield dealer, m.decode_reply(dealer.recv())


def _is_barred(address, key="flood"):
    try:
        dgkit.connect(address, keys=key, timeout=20.0).close()
    except dgkit.LimitReached as error:
        return "than the agent could serve" in str(error)
    return False


def test_what_a_slow_loop_has_not_taken_is_little_and_bars_its_sender(slow_agent):
    served, address = slow_agent
    before = most = own_bytes(served.pid)
    hello = m.Hello(id=0, version=m.VERSION, pid=os.getpid(), boot="b", machine="m", package="0")
    with dgkit.connect(address, timeout=20.0), _flooder(address, hello) as (dealer, _):
        for _ in _flood(dealer):
            most = max(most, own_bytes(served.pid))
    assert most - before < UNDER_ATTACK
    assert _is_barred(address)
    assert not _is_barred(address, "default")


def _arrive(account, monkeypatch, times):
    clock = SimpleNamespace(monotonic=lambda: clock.now)
    monkeypatch.setattr(accounts, "time", clock)
    for clock.now in times:
        account.record_arrival()


@pytest.mark.parametrize(
    ("owner", "times", "is_penalized"),
    [
        ("key 1", [0.3 * n for n in range(24)], True),
        ("key 1", [-50, -40, -30, *(0.3 * n for n in range(24))], True),
        ("key 1", [0.3 * n for n in range(23)], False),
        ("key 1", [0.5 * n for n in range(24)], False),
        ("user 0", [0.3 * n for n in range(24)], False),  # its processes are not told apart
    ],
)
def test_growth_that_no_connection_explains_bars_the_keys_that_connect_often(
    owner, times, is_penalized, monkeypatch
):
    # libzmq still has what their connections sent before they ended
    account = accounts.Account(owner, None)
    _arrive(account, monkeypatch, times)
    state.AgentState.penalize_frequent(SimpleNamespace(_accounts={owner: account}))
    assert account.penalized is is_penalized


def test_a_key_that_connects_often_connects_25_times_a_second():
    account = accounts.Account("key 1", None)
    clock = SimpleNamespace(monotonic=lambda: clock.now, now=0.0)
    with patch.object(accounts, "time", clock):
        for _ in range(23):
            account.record_arrival()
        assert account.may_connect
        account.record_arrival()
        assert not account.may_connect
        clock.now = 0.041
        assert account.may_connect
        clock.now = 10.1
        account.record_arrival()
        assert account.may_connect


def test_hellos_of_a_key_beyond_a_burst_wait_for_their_turn(own_keys):
    burst, more = 24, 10
    with agent(address="tcp://127.0.0.1:0") as served, contextlib.ExitStack() as stack:
        began = time.monotonic()
        dealers = [stack.enter_context(_dealer(served.address)) for _ in range(burst + more)]
        for dealer in dealers:
            dealer.send(
                m.encode(
                    m.Hello(
                        id=0, version=m.VERSION, pid=1, boot="boot", machine="machine", package="0"
                    )
                )
            )
        for dealer in dealers:
            assert dealer.poll(20_000)
            assert isinstance(m.decode_reply(dealer.recv()), m.Welcome)
        assert time.monotonic() - began >= more * accounts._PACE_S


def test_hellos_of_connections_that_have_ended_are_not_kept():
    waiting = handshake.Hellos(8)
    waiting.add(b"mine", handshake.WaitingHello(None, False, "1"))
    for number in range(20):
        waiting.add(b"%d" % number, handshake.WaitingHello(None, False, "2"))
    assert list(waiting) == [b"mine", *(b"%d" % number for number in range(13, 20))]


def test_not_each_turn_looks_at_all_hellos_that_wait():
    looks = []
    waiting = handshake.Hellos(300)
    for number in range(300):
        waiting.add(b"%d" % number, SimpleNamespace(is_due=lambda: looks.append(None)))
    clock = SimpleNamespace(monotonic=lambda: clock.now, now=1.0)
    with patch.object(handshake, "time", clock):
        for clock.now in (1.0, 1.001, 1.004, 1.006):
            assert waiting.take_due() is None
    assert len(looks) == 2 * 300


def test_who_does_not_wait_for_the_reply_to_hello_is_barred(slow_agent):
    _, address = slow_agent
    with _flooder(address, m.Stats(id=1)) as (dealer, reply):
        assert type(reply) is m.Failed
        for _ in range(200):
            dealer.send(b"neither Hello nor patience")
        until(lambda: _is_barred(address), "its key is barred")
    with pytest.raises(dgkit.PeerRefused, match="has flooded the agent"):
        until(lambda: not _is_barred(address), "it is refused at the handshake")
    assert not _is_barred(address, "default")


def test_bytes_that_wait_at_two_looks_tell_on_a_unix_socket():
    near, far = socket.socketpair()
    with near, far:
        seen = inflow.Inflow()
        near.sendall(b"x")
        assert not seen.is_endless(far.fileno(), 3)
        assert not seen.is_endless(far.fileno(), 4)  # a message has come meanwhile
        assert seen.is_endless(far.fileno(), 4)
        far.recv(1)
        assert not seen.is_endless(far.fileno(), 5)
        assert not seen.is_endless(far.fileno(), 5)


def test_a_unix_socket_whose_bytes_wait_at_each_check_of_a_growing_process_is_a_flood():
    near, far = socket.socketpair()
    with near, far:
        seen = inflow.Inflow()
        near.sendall(b"xx")
        for taken in range(8):
            assert seen.ahead(far.fileno(), taken) == 0
        assert seen.ahead(far.fileno(), 8) > inflow.MOST
        far.recv(2)
        assert seen.ahead(far.fileno(), 9) == 0


def test_a_descriptor_that_is_closed_is_no_flood():
    near, far = socket.socketpair()
    number = far.fileno()
    near.close()
    far.close()
    assert not inflow.Inflow().is_endless(number, 1)


def test_growth_is_of_this_process_own_memory():
    grown = inflow.Growth(step=16 * MIB)
    assert not grown()
    held = bytearray(os.urandom(1)) * (48 * MIB)
    assert grown()
    assert not grown()
    del held
    assert not grown()
    held = bytearray(os.urandom(1)) * (48 * MIB)
    assert grown()
    del held
