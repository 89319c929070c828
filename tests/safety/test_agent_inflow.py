"""A message whose parts never end takes little memory, and ends the connection that sends it."""

import contextlib
import os
import socket
import time
from pathlib import Path
from types import SimpleNamespace

import pytest
from support.processes.agents import agent
from support.processes.waiting import until
from support.processes.zmtp import Zmtp, own_bytes

import dgkit
from dgkit.wire import inflow
from dgkit.wire import messages as m
from dgkit.wire.address import parse

MIB = 1 << 20
SENT = 4096 * MIB
AT_MOST = 1024 * MIB  # what arrives in a tenth of a second; 32 MiB apart from it


@contextlib.contextmanager
def client_of(address):
    connected = socket.socket(socket.AF_UNIX)
    connected.connect(str(parse(address).path))
    with Zmtp(connected, b"DEALER") as client:
        yield client


def greet(client):
    client.send(m.encode(m.Hello(0, m.VERSION, os.getpid(), "b", "m", "0")))
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
