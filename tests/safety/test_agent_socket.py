# SPDX-License-Identifier: Apache-2.0
"""An ipc:// socket in a folder that others reach: strangers are refused, locks hang nothing."""

import contextlib
import fcntl
import gc
import itertools
import os
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
import zmq
from support.agent_faults import running
from support.processes import cli
from support.processes.agents import agent
from support.processes.children import child
from support.processes.waiting import until
from support.processes.zmtp import Zmtp

import dgkit
from dgkit.agent import Agent, ServeOptions
from dgkit.wire import keys, listener, sockets
from dgkit.wire.address import Address
from dgkit.wire.connection import Connection

STRANGER = """
import os, sys
import zmq
from dgkit.wire import messages as m
hello = m.Hello(version=m.VERSION, pid=17, boot="boot", machine="machine", package="0.1.0")
os.setuid(65534)
with zmq.Context() as context, context.socket(zmq.DEALER) as raw:
    raw.linger = 0
    raw.connect(sys.argv[1])
    raw.send(m.encode(hello))
    assert raw.poll(5000)
    print(m.decode_reply(raw.recv()))
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
def test_another_user_is_refused(tmp_path):
    tmp_path.chmod(0o755)
    for folder in tmp_path.parents[:3]:
        folder.chmod(0o755)
    path = tmp_path / "x.sock"
    with agent(address=f"ipc://{path}") as one:
        path.chmod(0o777)
        done = subprocess.run(
            [sys.executable, "-c", STRANGER, one.address],
            capture_output=True, text=True, check=False, timeout=30,
        )  # fmt: skip
        assert "PeerRefused" in done.stdout, done.stderr
        assert "65534" in done.stdout
        with dgkit.connect(one.address) as session:
            session.write(session.empty(64), b"x")


LISTENER = """
import os, socket, sys
with socket.socket(socket.AF_UNIX) as server:
    os.setuid(65534)
    server.bind(sys.argv[1])
    server.listen()
    print("listens", flush=True)
    held = []
    while True:
        held.append(server.accept())
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
def test_a_client_refuses_the_socket_of_another_user_but_root_in_that_users_folder(tmp_path):
    for folder in (tmp_path, *tmp_path.parents[:3]):
        folder.chmod(0o755)
    own, shared = tmp_path / "own", tmp_path / "shared"
    for folder, mode in ((own, 0o755), (shared, 0o777)):
        folder.mkdir()
        folder.chmod(mode)
    os.chown(own, 65534, 65534)
    for folder, text in ((own, "no ZeroMQ peer answered"), (shared, "belongs to user 65534")):
        with child(LISTENER, f"{folder}/x.sock") as stranger:
            assert stranger.line() == "listens"
            with pytest.raises(dgkit.PeerError, match=text):
                dgkit.connect(f"ipc://{folder}/x.sock", timeout=1.0)


def test_a_caller_of_another_user_is_refused(monkeypatch, tmp_path):
    class Stranger(listener.Caller):
        def __init__(self, fd, pid, uid, key=""):
            super().__init__(fd, pid, uid if uid == -1 else 12345, key)

    monkeypatch.setattr(listener, "Caller", Stranger)
    with running(f"ipc://{tmp_path}/x.sock") as one:
        with pytest.raises(dgkit.PeerRefused, match="you are user 12345"):
            dgkit.connect(one.endpoint)
        monkeypatch.undo()
        dgkit.connect(one.endpoint).close()


def test_a_client_is_let_in_while_a_burst_of_connections_never_ends(monkeypatch, tmp_path):
    service = listener.Listener.service
    calls = itertools.count(1)

    def behind(self, **how):
        ended = service(self, **how)
        self.behind = next(calls)
        return ended

    monkeypatch.setattr(listener.Listener, "service", behind)
    with running(f"ipc://{tmp_path}/x.sock") as one, dgkit.connect(one.endpoint) as session:
        session.write(session.empty(64), b"x")


def test_a_subscriber_of_another_user_hears_nothing(monkeypatch, tmp_path):
    class Stranger(listener.Caller):
        def __init__(self, fd, pid, uid, key=""):
            super().__init__(fd, pid, uid if uid == -1 else 12345, key)

    def heard(session, near, far):
        endpoint, mine = session.telemetry_subscription()
        with zmq.Context() as context, context.socket(zmq.DEALER) as sub:
            sub.linger = 0
            sub.connect(endpoint)
            sub.send(mine)
            for _ in range(50):
                session.copy(near, far)
                if sub.poll(20):
                    return True
        return False

    with running(f"ipc://{tmp_path}/x.sock") as one, dgkit.connect(one.endpoint) as session:
        near, far = session.empty(64), session.empty(64, on="dpu")
        assert heard(session, near, far)
        with monkeypatch.context() as patch:
            patch.setattr(listener, "Caller", Stranger)
            assert not heard(session, near, far)
        assert heard(session, near, far)


def has_passrights():
    """Returns whether this kernel can refuse descriptors: Linux 6.16 and later."""
    with socket.socket(socket.AF_UNIX) as probe:
        try:
            return probe.getsockopt(socket.SOL_SOCKET, sockets._SO_PASSRIGHTS) == 1
        except OSError:
            return False


def test_descriptors_that_a_client_sends_are_refused(tmp_path):
    refused = pytest.raises(PermissionError) if has_passrights() else contextlib.nullcontext()
    with running(f"ipc://{tmp_path}/x.sock") as one, dgkit.connect(one.endpoint) as session:
        for endpoint in (one.endpoint, session.telemetry()):
            with socket.socket(socket.AF_UNIX) as raw:
                raw.connect(endpoint.removeprefix("ipc://"))
                with refused:
                    socket.send_fds(raw, [b"x"], [0])
        session.write(session.empty(64), b"x")


def test_descriptors_that_an_agent_sends_are_refused(tmp_path):
    refused = pytest.raises(PermissionError) if has_passrights() else contextlib.nullcontext()
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(f"{tmp_path}/x.sock")
        server.listen()
        link = Connection(Address(f"ipc://{tmp_path}/x.sock"), None)
        with Zmtp(server.accept()[0], b"ROUTER") as peer:
            until(lambda: link.pump() or link.peer_state.connected, "the handshake")
            with refused:
                socket.send_fds(peer.socket, [b"x"], [0])
        link.close()


def test_a_signal_ends_a_start_that_waits_for_a_lock_at_once(tmp_path):
    fd = os.open(tmp_path, os.O_RDONLY)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX)
        with cli.started(tmp_path, "serve", "--address", f"ipc://{tmp_path}/x.sock") as process:
            until(lambda: _has_open(process.pid, tmp_path), "it waits for the lock")
            process.terminate()
            started = time.monotonic()
            _, err = cli.ended(process, 10)
            assert time.monotonic() - started < 1.0
            assert (process.returncode, "locked" in err) == (0, False), err
    finally:
        os.close(fd)


def _has_open(pid, folder):
    with contextlib.suppress(FileNotFoundError):
        return folder in [link.readlink() for link in Path(f"/proc/{pid}/fd").iterdir()]
    return False


def test_a_folder_that_another_program_has_locked_ends_the_start(tmp_path):
    fd = os.open(tmp_path, os.O_RDONLY)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX)
        started = time.monotonic()
        with pytest.raises(dgkit.NativeError, match="locked"):
            dgkit.wire.listener.Listener(f"ipc://{tmp_path}/x.sock", None)
        assert time.monotonic() - started < 5.0
        with cli.started(tmp_path, "serve", "--address", f"ipc://{tmp_path}/x.sock") as process:
            time.sleep(1.0)
            process.terminate()
            cli.ended(process, 10)
    finally:
        os.close(fd)


PEER = """
import sys
import dgkit
input()
session = dgkit.connect(sys.argv[1])
print("connected", flush=True)
input()
session.empty(64)
print("served", flush=True)
"""


def _connections(one):
    """Return the descriptors of an agent's connections, as far as events were read."""
    one._listener.service()
    return set(one._listener._acceptors[0]._connections)


@pytest.mark.parametrize("address", ["ipc://{}/x.sock", "tcp://127.0.0.1:0"], ids=["unix", "tcp"])
def test_a_late_hello_of_an_ended_connection_takes_no_other(tmp_path, monkeypatch, address):
    """The kernel gives a new connection the lowest number, which the ended one had."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    keys.allow(keys.make().public)
    gc.collect()  # now, rather than while a lower number would be given to the second one
    one = Agent(ServeOptions(address.format(tmp_path), max_clients=1))
    loop = threading.Thread(target=one.run)
    with contextlib.ExitStack() as undo:
        undo.callback(one.close)
        first = undo.enter_context(child(PEER, one.endpoint))
        second = undo.enter_context(child(PEER, one.endpoint))
        first.say("connect")
        until(lambda: _connections(one) and sockets.readable(one._listener.router), "its Hello")
        (number,) = _connections(one)
        first.kill()
        until(lambda: not Path(f"/proc/self/fd/{number}").exists(), "it is closed")
        second.say("connect")
        until(lambda: number in _connections(one), "the second connection has its number")
        loop.start()
        undo.callback(loop.join)
        undo.callback(one.stop)
        assert second.line() == "connected"
        assert second.ask("use it") == "served"


def test_a_client_whose_connection_has_ended_ends_no_other(tmp_path):
    gc.collect()
    with contextlib.ExitStack() as undo:
        it = listener.Listener(f"ipc://{tmp_path}/x.sock", None)
        undo.callback(it.close)
        waiting = undo.enter_context(socket.socket(socket.AF_UNIX))
        ended = undo.enter_context(socket.socket(socket.AF_UNIX))
        ended.connect(f"{tmp_path}/x.sock")
        acceptor = it._acceptors[0]
        until(lambda: it.service() and len(acceptor), "the first connection")
        (number,) = acceptor._connections
        ended.shutdown(socket.SHUT_RDWR)  # close() would free a lower number here
        until(lambda: not Path(f"/proc/self/fd/{number}").exists(), "it is closed")
        waiting.connect(f"{tmp_path}/x.sock")
        until(lambda: Path(f"/proc/self/fd/{number}").exists(), "its successor")
        until(lambda: acceptor.admit(-1) or acceptor._ended, "both events are read")
        it.disconnect(number)  # by the client of the first, which was not told of its end
        assert not acceptor._connections[number].ended
        assert it.service()[0] == [number]
        it.disconnect(number)
        assert acceptor._connections[number].ended
