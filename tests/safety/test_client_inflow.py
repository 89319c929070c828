# SPDX-License-Identifier: Apache-2.0
"""A hostile agent that sends without end takes little memory of its client, which gets an error."""

import contextlib
import fcntl
import socket
import struct
import termios
import threading
import time

import pytest
import zmq
from support.processes.agents import program
from support.processes.waiting import until
from support.processes.zmtp import PART, Zmtp, frame, own_bytes

from dgkit.schema import Moved, Sampled
from dgkit.wire import messages as m
from dgkit.wire.address import Address
from dgkit.wire.connection import Connection
from dgkit.wire.host_id import boot_id
from dgkit.wire.messages import SUBSCRIBED
from dgkit.wire.subscriber import Subscriber

MIB = 1 << 20
AT_MOST = 200 * MIB  # of memory that a client takes
ENDS_S = 15.0  # all calls have a limit below it
SENT = 20_480 * MIB
MOVED = Moved(
    size=1, op=1, path=0, submit_ns=1, post_ns=2, complete_ns=3, read_ns=1, write_ns=1, chunks=1,
    first_submit_ns=1, first_post_ns=2, first_complete_ns=3,
)  # fmt: skip

CLIENT = """
import sys, time
import dgkit
from dgkit.wire.address import Address
from dgkit.wire.connection import Connection
from dgkit.wire.messages import Stats

def connect(session):
    pass

def stats(session):
    session.stats()

def latency(session):
    session.latency(session.empty(64), size=8, count=1000)

def monitor(session):
    with session.monitor(session.empty(64), size=8) as monitor:
        for _ in range(250):
            monitor.read()
            time.sleep(0.02)

def unread(session):
    monitor = session.monitor(session.empty(64), size=8)
    region = session.empty(64)
    for _ in range(500):
        session.write(region, b"x")
        time.sleep(0.01)

print("ready", flush=True)
sys.stdin.readline()
try:
    if sys.argv[1].startswith("tcp"):
        Connection(Address(sys.argv[1]), None).ask(Stats())
    else:
        session = dgkit.connect(sys.argv[1], timeout=5.0)
        globals()[sys.argv[2]](session)
    print("no error", flush=True)
except dgkit.DgkitError as error:
    print(type(error).__name__, error, flush=True)
sys.stdin.readline()  # a session that failed is open until then
"""

SUBSCRIBER = """
import sys, zmq
import dgkit
from dgkit.wire.address import Address
from dgkit.wire.subscriber import Subscriber
subscriber = Subscriber(zmq.Context(), Address(sys.argv[1]), None, 1)
sys.stdin.readline()
try:
    while True:
        subscriber.take()
except dgkit.DgkitError as error:
    print(type(error).__name__, flush=True)
subscriber.close()
"""

IDLE = """
import sys
import dgkit
from dgkit.wire.address import Address
from dgkit.wire.connection import Connection
from dgkit.wire.messages import Stats
link = Connection(Address(sys.argv[1]), None)
sys.stdin.readline()
try:
    link.ask(Stats())
except dgkit.DgkitError as error:
    print(type(error).__name__, flush=True)
"""

MACHINE = {
    "cpu": "a", "cpus": 2, "arch": "x86_64", "kernel": "6.1", "page_size": 4096, "virtual": None,
    "engine": "",
}  # fmt: skip


class Hostile:
    """An agent that answers requests as an honest one does, but those of some kinds by a flood."""

    def __init__(self, folder, floods, telemetry, tcp):
        self._folder, self._floods, self._telemetry = folder, floods, telemetry
        self._servers = [self._listen("agent", self._serve), self._listen("blocks", self._publish)]
        self.address = f"ipc://{folder}/agent.sock"
        if tcp:  # without keys, which dgkit.connect() refuses
            server = socket.create_server(("127.0.0.1", 0))
            self._servers.append(self._start(server, self._serve))
            self.address = f"tcp://127.0.0.1:{server.getsockname()[1]}"

    def _listen(self, name, run):
        server = socket.socket(socket.AF_UNIX)
        server.bind(f"{self._folder}/{name}.sock")
        server.listen()
        return self._start(server, run)

    def _start(self, server, run):
        threading.Thread(target=self._accept, args=(server, run), daemon=True).start()
        return server

    def close(self):
        for server in self._servers:
            server.shutdown(socket.SHUT_RDWR)
            server.close()

    def _accept(self, server, run):
        with contextlib.suppress(OSError):
            while True:
                peer = server.accept()[0]
                threading.Thread(target=self._run, args=(peer, run), daemon=True).start()

    def _run(self, peer, run):
        with contextlib.suppress(OSError):
            run(peer)

    def _serve(self, connected):
        with Zmtp(connected, b"ROUTER") as client:
            while True:
                request = m.decode_request(client.read_frame())
                flood = self._floods.get(type(request))
                if flood is not None:
                    client.flood(SENT, flood(request.id))
                client.send(m.encode(self._answer(request)))

    def _publish(self, connected):
        with Zmtp(connected, b"ROUTER") as subscriber:
            subscriber.read_frame()
            subscriber.send(SUBSCRIBED)
            if self._telemetry is not None:
                subscriber.flood(SENT, self._telemetry(0))
            subscriber.read_frame()

    def _answer(self, request):
        number, path = request.id, f"ipc://{self._folder}/blocks.sock"
        known = {
            m.Hello: lambda: m.Welcome(
                id=number, version=m.VERSION, first_id=5, role="dpu", provider="soft", why={},
                pid=0, boot=boot_id(), machine="machine", cpus=2, max_memory=1 << 30,
                max_size=1 << 30, inline_max=0, spinning=False, engine="", package="0",
            ),
            m.Import: lambda: m.Imported(id=number, region=1, size=1 << 20, access=3, method="map"),
            m.Subscribe: lambda: m.Subscribed(id=number, endpoint=path, monitor=1),
            m.Watch: lambda: m.Watching(id=number, path="inline", machine=MACHINE),
            m.Move: lambda: m.MoveDone(id=number, moved=MOVED),
            m.Outstanding: lambda: m.OutstandingDone(id=number, numbers=[]),
        }  # fmt: skip
        return known.get(type(request), lambda: m.Done(id=number))()


def _parts(_number):
    return PART


def _strays(number):
    """Replies to a request that was not made."""
    return frame(m.encode(m.Done(id=number + 77))) * 100 + frame(bytes(60_000))


def _ended(number):
    """The end of monitors that were not started; the first is longer than it need be."""
    failed = m.Failed(id=number, kind="PeerError", text="x" * 100_000, errno=0, completion=None)
    return frame(m.encode(m.Ended(id=number + 77, failed=failed)))


def _progress(number):
    return frame(m.encode(m.Progress(id=number + 77, done=1, total=2))) * 1000


def _samples(number):
    return b"".join(
        frame(m.encode(m.Block(id=number, number=n, samples=bytes(8 * 4096)))) for n in range(8)
    )


def _blocks(number):
    """Blocks of samples, of which the client accepts a limited number."""
    block = Sampled(
        number=number, t_ns=0, provider="soft", source="monitor", samples=bytes(8 * 4096),
        op="write", size=8,
    )  # fmt: skip
    return frame(m.encode(m.Published(monitor=1, block=block))) * 4


@contextlib.contextmanager
def client_of(folder, use, floods, telemetry=None, *, tcp=False):
    """Yields a process that is to use a hostile agent once it is told to."""
    hostile = Hostile(folder, floods, telemetry, tcp)
    with contextlib.closing(hostile), program(CLIENT, hostile.address, use) as client:
        assert client.stdout.readline() == "ready\n"
        yield client


def _run(client):
    """Has the client use the agent; returns what it prints and the most memory that it took."""
    before, said = own_bytes(client.pid), []
    reader = threading.Thread(target=lambda: said.append(client.stdout.readline()), daemon=True)
    reader.start()
    client.stdin.write("\n")
    client.stdin.flush()
    most, end, last = 0, time.monotonic() + ENDS_S, None
    while time.monotonic() < end and (last is None or time.monotonic() < last):
        most = max(most, own_bytes(client.pid) - before)
        if said and last is None:
            last = time.monotonic() + 1.0  # the flood does not go on behind the error
        time.sleep(0.002)
    return said[0] if said else "", most


@pytest.mark.parametrize(
    ("use", "floods"),
    [
        ("connect", {m.Hello: _parts}),
        ("stats", {m.Stats: _parts}),
        ("stats", {m.Stats: _strays}),
        ("stats", {m.Stats: _ended}),
        ("stats", {m.Stats: _progress}),
        ("latency", {m.Latency: _parts}),
        ("latency", {m.Latency: _samples}),
    ],
    ids=["hello", "parts", "strays", "ended", "progress", "parts of samples", "samples"],
)
def test_a_reply_without_end_is_an_error(tmp_path, use, floods):
    with client_of(tmp_path, use, floods) as client:
        said, most = _run(client)
    assert said.startswith("PeerError "), said
    assert most < AT_MOST


def test_a_reply_without_end_over_tcp_is_an_error(tmp_path):
    with client_of(tmp_path, "stats", {m.Stats: _parts}, tcp=True) as client:
        said, most = _run(client)
    assert said.startswith("PeerError "), said
    assert most < AT_MOST


@pytest.mark.parametrize("use", ["monitor", "unread"])
@pytest.mark.parametrize("telemetry", [_parts, _blocks], ids=["parts", "blocks"])
def test_telemetry_without_end_takes_little_memory(tmp_path, use, telemetry):
    with client_of(tmp_path, use, {}, telemetry) as client:
        said, most = _run(client)
    if use == "monitor":
        assert said.startswith("PeerError "), said
    assert most < AT_MOST


@pytest.mark.parametrize("source", [IDLE, SUBSCRIBER], ids=["replies", "blocks"])
def test_a_connection_that_ends_behind_unread_messages_and_pings_does_not_end_the_process(source):
    unread = (
        frame(m.encode(m.Progress(id=77, done=1, total=2))) * 1001 + b"\x04\x07\x04PING\0\0" * 50
    )
    with (
        socket.create_server(("127.0.0.1", 0)) as server,
        program(source, f"tcp://127.0.0.1:{server.getsockname()[1]}") as client,
    ):
        with Zmtp(server.accept()[0], b"ROUTER") as agent:
            agent.socket.sendall(unread)
            until(lambda: not unacknowledged(agent.socket), "libzmq reads all")
            reset = struct.pack("ii", 1, 0)
            agent.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, reset)
        client.stdin.write("\n")
        client.stdin.flush()
        assert client.stdout.readline() in ("PeerLost\n", "PeerError\n")  # the end, or strays
        assert client.wait(10) == 0


def test_a_message_that_ended_with_its_connection_is_none(monkeypatch):
    always = type("Always", (), {"__rand__": lambda *_: 1})()
    monkeypatch.setattr("dgkit.wire.connection.POLLIN", always)
    monkeypatch.setattr("dgkit.wire.subscriber.readable", lambda _socket: True)
    with socket.create_server(("127.0.0.1", 0)) as server, zmq.Context() as context:
        address = Address(f"tcp://127.0.0.1:{server.getsockname()[1]}")
        with contextlib.closing(Connection(address, None)) as link:
            link.pump()
        with contextlib.closing(Subscriber(context, address, None, 1)) as subscriber:
            assert subscriber.take() == []


def unacknowledged(connected):
    """Returns how many bytes the other side's kernel has not acknowledged."""
    (size,) = struct.unpack("i", fcntl.ioctl(connected, termios.TIOCOUTQ, bytes(4)))
    return size
