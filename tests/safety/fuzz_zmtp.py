# SPDX-License-Identifier: Apache-2.0
"""Damaged bytes on TCP connections of clients and agents: neither process may end.

libzmq aborts its process where an assertion of its own fails. So a client and an agent, each in a
process of its own, get connections of these kinds:

    proxy    between both, with keys: bits flipped, bytes inserted, removed or repeated, an end or a
             reset anywhere, from the greeting to encrypted messages
    flood    from an agent whose key the client trusts: more replies than the client reads, then the
             end
    requests from a client with a key to the agent: more requests and PINGs than its loop reads,
             then the end
    server   to the client: greetings, commands and frames of ZMTP as raw bytes, any lengths
    raw      to the agent: the same, also to its telemetry
    blocks   as proxy, between a client's monitor and the agent's telemetry
    credit   from a client with a key to the agent's telemetry: subscriptions with any credit, other
             bytes and PINGs, partly damaged, more than the agent reads, then the end

    python tests/safety/fuzz_zmtp.py --minutes 5
"""

from __future__ import annotations

import argparse
import contextlib
import os
import random
import select
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import IO, Any

ROOT = Path(__file__).resolve().parents[2]
KINDS = ("proxy", "flood", "server", "blocks", "raw", "requests", "credit")
OF_CLIENT = KINDS[:4]
CLIENTS = 4  # at a time
CLIENT = """
import concurrent.futures, random, sys, time, traceback
import dgkit
def say(line):
    sys.stdout.write(f"{line}\\n")  # at once, not as print() does
    sys.stdout.flush()
def use(address):
    try:
        with dgkit.connect(address, timeout=1.0) as session:
            time.sleep(random.choice((0, 0, 0.7)))  # heartbeats go on meanwhile
            region = session.empty(64, on="dpu")
            session.write(region, b"x" * 64)
            if address == sys.argv[2]:  # its telemetry is damaged
                with session.monitor(region, size=8, every_s=0.01) as monitor:
                    for _ in range(40):
                        monitor.read()
                        time.sleep(0.01)
            assert session.read(region, 64) == b"x" * 64
        say("used")
    except dgkit.DgkitError as error:
        say(type(error).__name__)
    except BaseException as error:
        frames = traceback.extract_tb(error.__traceback__)[-3:]
        where = [f"{each.filename}:{each.lineno}" for each in frames]
        say(f"WRONG {error!r} {where}")
with concurrent.futures.ThreadPoolExecutor(int(sys.argv[1])) as pool:
    for line in sys.stdin:
        pool.submit(use, line.strip())
"""
# Answers Hello with more messages than a client's queue of libzmq took, and dies behind them.
FLOOD = """
import random, sys, zmq
from dgkit.wire import keys, messages as m
from dgkit.wire.host_id import boot_id
from dgkit.wire.sockets import z85_of
pair = keys.load("default")
router = zmq.Context().socket(zmq.ROUTER)
router.sndhwm, router.heartbeat_ivl, router.linger = 0, 50, 0
router.curve_server, router.curve_secretkey = True, z85_of(pair.secret)
print(router.bind("tcp://127.0.0.1:0") and "" or router.last_endpoint.decode(), flush=True)
while True:
    route, body = router.recv_multipart()
    number = getattr(m.decode_request(body), "id", 0)
    welcome = m.Welcome(
        id=number, version=m.VERSION, first_id=5, role="dpu", provider="soft", why={}, pid=0,
        boot=boot_id(), machine="machine", cpus=2, max_memory=1 << 30, max_size=1 << 30,
        inline_max=0, spinning=False, engine="", package="0",
    )
    router.send_multipart([route, m.encode(welcome)])
    for _ in range(random.choice((1, 400, 1100, 3000))):
        router.send_multipart([route, m.encode(m.Progress(id=number + 77, done=1, total=2))])
"""
# Names the proxy's port, the second of the two, as that of the telemetry.
TELEMETRY = """
import dgkit.agent
from dgkit.agent.telemetry_publisher import Telemetry
Telemetry.endpoint = property(
    lambda self: self.own.replace(":{0}?", ":{1}?"), lambda self, own: setattr(self, "own", own))
original = dgkit.agent.serve
dgkit.agent.serve = lambda *args, **options: original(*args, telemetry_port={0}, **options)
"""
# Lets those who flooded an agent return at once.
NO_PENALTY = "from dgkit.agent import account\naccount._PENALTY_S = 0.0\n"
GREETING = b"\xff" + b"\0" * 7 + b"\x01\x7f"


def mutate(rng: random.Random, chunk: bytes) -> bytes:
    """Return damaged bytes."""
    at, data = rng.randrange(len(chunk)), bytearray(chunk)
    how = rng.randrange(5)
    if how == 0:
        data[at] ^= 1 << rng.randrange(8)
    elif how == 1:
        data[at:at] = rng.randbytes(rng.choice((1, 9, 200)))
    elif how == 2:
        del data[at : at + rng.choice((1, 8, 64))]
    elif how == 3:
        data[at:at] = data[at:]
    else:
        data[at:] = rng.randbytes(len(data) - at)
    return bytes(data)


def reset(end: socket.socket) -> None:
    """Close a connection by RST."""
    end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    end.close()


def finish(rng: random.Random, end: socket.socket) -> None:
    """End a connection in one of the ways that TCP has."""
    how = rng.choice(("reset", "fin", "half", "hold"))
    with contextlib.suppress(OSError):
        if how == "half":
            end.shutdown(socket.SHUT_WR)
        if how in ("half", "hold"):
            time.sleep(rng.choice((0.01, 0.8)))
    reset(end) if how != "fin" else end.close()


def script(rng: random.Random) -> bytes:
    """Return what a raw peer sends: a greeting, then frames, most of them nearly well-formed."""
    version, minor = rng.choice(((3, 1), (3, 1), (3, 0), (2, 0), (1, 0), (0, 0), (255, 255)))
    mechanism = rng.choice((b"CURVE", b"CURVE", b"NULL", b"PLAIN", b"GSSAPI", rng.randbytes(20)))
    greeting = GREETING + bytes((version, minor)) + mechanism.ljust(20, b"\0")
    sent = greeting + bytes((rng.randrange(3),)) + b"\0" * 31
    if rng.random() < 0.1:
        sent = rng.choice((b"\x01\x00", GREETING + b"\x01\x05", b"GET / HTTP/1.1\r\n"))
    for _ in range(rng.randrange(8)):
        name = rng.choice(("HELLO", "WELCOME", "INITIATE", "READY", "ERROR", "MESSAGE", "PING",
                           "PONG", "SUBSCRIBE", "CANCEL", "X" * 255)).encode()  # fmt: skip
        sizes = {b"HELLO": 194, b"WELCOME": 160, b"INITIATE": 250, b"PING": 2, b"ERROR": 9}
        fill = rng.randbytes(sizes.get(name, rng.randrange(1, 40)) + rng.choice((0, 0, -1, 1, 300)))
        if name == b"HELLO":
            fill = b"\x01\0" + bytes(72) + fill[74:]
        body = bytes((len(name),)) + name + fill
        flags = rng.choice((4, 4, 4, 0, 1, 2, 3, 6, 6, 7, 255))
        size = rng.choice((len(body), len(body), len(body), 0, 1, 2**31, 2**63, 2**64 - 1))
        head = struct.pack(">Q", size) if flags & 2 else bytes((size & 255,))
        sent += bytes((flags,)) + head + body
    return sent if rng.random() < 0.7 or len(sent) < 2 else mutate(rng, sent)


class Fuzz:
    """The processes under test, and the servers that they connect to.

    Attributes:
        ended: Connections by kind, and results of the client by the name of its error.
    """

    def __init__(self, seed: int, stack: contextlib.ExitStack) -> None:
        import zmq
        from support.processes.agents import SLOW_AGENT, python

        from dgkit.wire import keys

        keys.allow(keys.make().public)
        self._rng, self._lock = random.Random(seed), threading.Lock()
        self.ended: Counter[str] = Counter()
        with socket.create_server(("127.0.0.1", 0)) as free:
            self._telemetry_at = free.getsockname()[:2]
        telemetry = self._serve(stack, lambda *of: self._proxy(*of, self._telemetry_at, 0.6))
        prelude = NO_PENALTY + TELEMETRY.format(self._telemetry_at[1], telemetry)
        self.agent = self._child(stack, python(prelude + SLOW_AGENT, "0.001"))
        self.address = self._line(self.agent.stdout)
        self._key = "?" + self.address.partition("?")[2]
        self._context = stack.enter_context(zmq.Context())
        self._requests = stack.enter_context(ThreadPoolExecutor(CLIENTS))
        self._agent_at = self._place(self.address)
        self.flood = self._child(stack, python(FLOOD))
        self._flood_at = self._place(self._line(self.flood.stdout))
        self.client = self._child(stack, python(CLIENT, str(CLIENTS), self.address))
        self._servers = {
            "proxy": self._serve(stack, lambda *of: self._proxy(*of, self._agent_at, 0.6)),
            "flood": self._serve(stack, lambda *of: self._proxy(*of, self._flood_at, 0.0)),
            "requests": self._serve(stack, lambda *of: self._proxy(*of, self._agent_at, 0.0)),
            "server": self._serve(stack, self._raw),
            "credit": telemetry,
        }

    @staticmethod
    def _child(stack: contextlib.ExitStack, command: list[str]) -> subprocess.Popen[str]:
        pipes: dict[str, Any] = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
        child = stack.enter_context(subprocess.Popen(command, text=True, **pipes))
        stack.callback(child.kill)
        return child

    @staticmethod
    def _line(stream: IO[str] | None) -> str:
        assert stream is not None
        return stream.readline().strip()

    @staticmethod
    def _place(endpoint: str) -> tuple[str, int]:
        host, _, port = endpoint.partition("?")[0].removeprefix("tcp://").rpartition(":")
        return host, int(port)

    def _random(self) -> random.Random:
        with self._lock:
            return random.Random(self._rng.getrandbits(64))

    def _serve(
        self, stack: contextlib.ExitStack, run: Callable[[random.Random, socket.socket], None]
    ) -> int:
        """Start a server; return its port."""
        server = stack.enter_context(socket.create_server(("127.0.0.1", 0), backlog=64))
        stack.callback(server.shutdown, socket.SHUT_RDWR)

        def accept() -> None:
            with contextlib.suppress(OSError):
                while True:
                    end = server.accept()[0]
                    threading.Thread(target=one, args=(end,), daemon=True).start()

        def one(end: socket.socket) -> None:
            with contextlib.suppress(OSError):
                run(self._random(), end)

        threading.Thread(target=accept, daemon=True).start()
        return int(server.getsockname()[1])

    def _raw(self, rng: random.Random, end: socket.socket) -> None:
        """Send a script in pieces, reading what comes, then end."""
        sent, end_s = script(rng), time.monotonic() + 2
        end.settimeout(0.02)
        while sent and time.monotonic() < end_s:
            n = rng.choice((len(sent), len(sent), 1, 10, 64))
            end.sendall(sent[:n])
            sent = sent[n:]
            with contextlib.suppress(TimeoutError):
                end.recv(4096)
        finish(rng, end)

    def _proxy(
        self, rng: random.Random, end: socket.socket, to: tuple[str, int], damages: float
    ) -> None:
        """Forward both ways; at some byte of one way, damage what follows once, or end."""
        other = socket.create_connection(to)
        left, way = rng.randrange(rng.choice((70, 400, 2500, 200_000))), rng.randrange(2)
        damage, ends = rng.random() < damages, (end, other)
        stop = time.monotonic() + 4
        while time.monotonic() < stop:
            for source in select.select(ends, (), (), 0.1)[0]:
                chunk = source.recv(1 << 16)
                if source is ends[way] and left is not None:
                    left -= len(chunk)
                    if left < 0 and not damage:
                        finish(rng, end)
                        return finish(rng, other)
                    if left < 0 and chunk:
                        chunk, left = mutate(rng, chunk), 1 << 60
                if not chunk:
                    end.close()
                    return other.close()
                ends[source is end].sendall(chunk)
        finish(rng, end)
        return finish(rng, other)

    def _send_requests(self, rng: random.Random) -> None:
        """Send more requests than the agent's loop reads, with heartbeats among them, then end."""
        import zmq

        from dgkit.wire import keys
        from dgkit.wire import messages as m
        from dgkit.wire.sockets import set_client_curve

        with contextlib.suppress(zmq.ZMQError), self._context.socket(zmq.DEALER) as dealer:
            dealer.linger, dealer.reconnect_ivl, dealer.sndhwm, dealer.sndtimeo = 0, -1, 0, 1000
            dealer.heartbeat_ivl = rng.choice((0, 1, 20))
            pair = keys.load("default")
            set_client_curve(dealer, (pair.public, pair.secret), self._key.removeprefix("?key="))
            dealer.connect(f"tcp://127.0.0.1:{self._servers['requests']}")
            dealer.send(
                m.encode(
                    m.Hello(
                        id=0, version=m.VERSION, pid=os.getpid(), boot="b", machine="m", package="0"
                    )
                )
            )
            if not dealer.poll(1000):
                return
            first = getattr(m.decode_reply(dealer.recv()), "first_id", 1)
            for number in range(rng.choice((1, 400, 1100, 3000, 20_000))):
                dealer.send(m.encode(m.Stats(id=first + number)), zmq.NOBLOCK)
            time.sleep(rng.choice((0.0, 0.1, 0.7)))

    def _subscribe(self, rng: random.Random) -> None:
        """Send subscriptions, other bytes and PINGs, reading some of what comes, then end."""
        import zmq

        from dgkit.wire import keys
        from dgkit.wire.messages import Subscription, encode
        from dgkit.wire.sockets import set_client_curve

        with contextlib.suppress(zmq.ZMQError), self._context.socket(zmq.DEALER) as dealer:
            dealer.linger, dealer.reconnect_ivl, dealer.sndhwm = 0, -1, 0
            dealer.heartbeat_ivl = rng.choice((0, 1, 20))
            pair = keys.load("default")
            set_client_curve(dealer, (pair.public, pair.secret), self._key.removeprefix("?key="))
            dealer.connect(f"tcp://127.0.0.1:{self._servers['credit']}")
            monitor = rng.choice((0, 1, rng.getrandbits(48)))
            credits = [rng.choice((0, 1, 500, 1000, rng.getrandbits(62))) for _ in range(3)]
            for number in range(rng.choice((1, 10, 400, 3000))):
                body = encode(Subscription(monitor=monitor, credit=credits[number % 3]))
                if rng.random() < 0.02:
                    body = rng.choice((b"", rng.randbytes(rng.randrange(2000)), mutate(rng, body)))
                dealer.send(body, zmq.NOBLOCK | rng.choice((0, 0, 0, zmq.SNDMORE)))
                if rng.random() < 0.1 and dealer.poll(1):
                    dealer.recv()
            time.sleep(rng.choice((0.0, 0.1, 0.7)))

    def check(self) -> None:
        """Raise AssertionError if a process has ended."""
        for name, process in (("agent", self.agent), ("client", self.client)):
            if process.poll() is not None:
                said = process.stderr.read()[-500:] if process.stderr else ""
                raise AssertionError(f"the {name} ended with {process.returncode}: {said}")

    def one(self, kind: str) -> None:
        """Make one connection of a kind; those of the client go on in the background."""
        self.ended[kind] += 1
        if kind == "raw":
            rng = self._random()
            with contextlib.suppress(OSError):
                to = rng.choice((self._agent_at, self._telemetry_at))
                self._raw(rng, socket.create_connection(to))
            return
        if kind in ("requests", "credit"):
            send = self._send_requests if kind == "requests" else self._subscribe
            self._requests.submit(send, self._random())
            return
        assert self.client.stdin is not None
        proxied = f"tcp://127.0.0.1:{self._servers.get(kind)}{self._key}"
        self.client.stdin.write(f"{self.address if kind == 'blocks' else proxied}\n")
        self.client.stdin.flush()

    def results(self) -> None:
        """Read the client's results until it ends."""
        assert self.client.stdout is not None
        for line in self.client.stdout:
            self.ended[line.split()[0]] += 1
            if line.startswith("WRONG"):
                self.ended[line.strip()] += 1

    def waiting(self) -> int:
        """Return the connections of the clients that have not ended, or not begun."""
        asked = sum(self.ended[kind] for kind in OF_CLIENT)
        done = sum(n for name, n in self.ended.items() if name not in KINDS)
        return asked - done + self._requests._work_queue.qsize()


@contextlib.contextmanager
def _own_keys() -> Iterator[None]:
    with tempfile.TemporaryDirectory() as folder:
        os.environ["XDG_CONFIG_HOME"] = folder
        yield


def run(seconds: float, seed: int, kinds: tuple[str, ...] = KINDS) -> str:
    """Make connections for some seconds; return their numbers.

    Raises:
        AssertionError: The client or the agent ended, or raised an error that is not dgkit's, or
            the agent does not serve afterwards.
    """
    import dgkit

    with _own_keys(), contextlib.ExitStack() as stack:
        fuzz = Fuzz(seed, stack)
        threading.Thread(target=fuzz.results, daemon=True).start()
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            for kind in kinds:
                fuzz.one(kind)
            while fuzz.waiting() > 2 * CLIENTS:
                fuzz.check()
                time.sleep(0.01)
            fuzz.check()
        limit = time.monotonic() + 30
        while fuzz.waiting() and time.monotonic() < limit:
            fuzz.check()
            time.sleep(0.05)
        assert fuzz.waiting() <= 0, f"{fuzz.waiting()} calls of the client hang"
        assert not fuzz.ended["WRONG"], fuzz.ended
        with dgkit.connect(fuzz.address) as session:
            session.stats()
        fuzz.check()
        return ", ".join(f"{count:,} {name}" for name, count in sorted(fuzz.ended.items()))


def main() -> int:
    """Run the fuzzer; return the exit status."""
    parser = argparse.ArgumentParser(description="damaged bytes between clients and agents")
    parser.add_argument("--minutes", type=float, default=1.0)
    parser.add_argument("--seed", type=int, default=int.from_bytes(os.urandom(4), "little"))
    parser.add_argument("kinds", nargs="*", default=KINDS, help=f"default: {' '.join(KINDS)}")
    args = parser.parse_args()
    print(f"seed {args.seed}", flush=True)
    print(run(60 * args.minutes, args.seed, tuple(args.kinds)))
    return 0


if __name__ == "__main__":
    sys.path.insert(0, str(ROOT / "tests"))
    sys.exit(main())
