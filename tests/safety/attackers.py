# SPDX-License-Identifier: Apache-2.0
"""Eight attackers and one honest client of an agent with 1024 file descriptors.

    tests/run attack                5 minutes
    tests/run attack --hours 1      by hand; CI does not run it

The honest client writes, reads, registers, allocates and connects anew, and compares every byte:
before and after beside eight programs that burn CPU and never touch the agent, in between beside
eight attackers, each with an allowed key of its own and a way of its own. Before that, agents with
256, 512, 1024 and 4096 descriptors get bursts of 3000 connections without a key. The verdict is
FAILED if anything of the honest client fails, if its p99 under attack is more than twice that
beside the burners, if an agent ends or has more than MAX_OWN_MIB of memory besides its clients', or
if an attacker does nothing.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import resource
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
DESCRIPTORS = 1024
MAX_RATIO = 2.0  # of the p99 under attack to that beside the burners
MAX_OWN_MIB = 512  # of the agent's private memory, without the memory that its clients allocate
BASELINE_S = 40.0  # at most, half of it before the attack and half after; of a short run, a third
PEAKS = ("agent_own_mib", "agent_rss_mib", "agent_fds")
BURST, BURST_DESCRIPTORS = 3000, (256, 512, 1024, 4096)  # connections; the agent's hard limits
BURSTS_S = 10.0  # at most, of each limit; of a short run, a 60th of it
CONNECT_EVERY_S = 1.0  # between two connections that the honest client opens anew
MIB = 1 << 20
EXPORTER = """
import sys
import dgkit
with dgkit.Device() as device:
    region = device.register(dgkit.empty(64))
    print(region.export().hex(), flush=True)
    sys.stdin.read()
"""
SPARSE = """
import fcntl, mmap, os, sys, types
import dgkit
size = 4 << 30
fd = os.memfd_create("sparse", os.MFD_ALLOW_SEALING)
os.ftruncate(fd, size)
fcntl.fcntl(fd, 1033, 2)
memory = types.SimpleNamespace(
    buffer=memoryview(mmap.mmap(fd, size)), size=size, fd=fd, fd_offset=0, place="host",
    share_process=False)
with dgkit.Device() as device:
    region = device.register(memory)
    print(region.export().hex(), flush=True)
    sys.stdin.read()
"""

Count = Callable[[], None]


class Raw:
    """Client of bare messages, over CURVE, which need not read its replies."""

    def __init__(self, context: Any, address: str, key: str) -> None:
        import zmq

        from dgkit.wire import keys
        from dgkit.wire.address import parse
        from dgkit.wire.sockets import set_client_curve

        where, pair = parse(address), keys.load(key)
        self.socket = context.socket(zmq.DEALER)
        self.socket.linger = 0
        self.socket.reconnect_ivl = -1
        self.socket.sndtimeo = self.socket.rcvtimeo = 2000
        set_client_curve(self.socket, (pair.public, pair.secret), where.key)
        self.socket.connect(where.endpoint)
        self.number = 0

    def greet(self) -> bool:
        """Say Hello; return whether the agent has let it in."""
        import zmq

        from dgkit.wire import messages as m

        with contextlib.suppress(zmq.Again):
            hello = m.Hello(version=m.VERSION, pid=os.getpid(), boot="b", machine="m", package="0")
            self.socket.send(m.encode(hello))
            reply = m.decode_reply(self.socket.recv())
            self.number = getattr(reply, "first_id", 0)
        return self.number > 0

    def post(self, request: Any) -> None:
        """Send a request; the reply may wait for ever."""
        from dgkit.wire import messages as m

        request.id = self.number
        self.socket.send(m.encode(request))
        self.number += 1


@contextlib.contextmanager
def _raw(address: str, key: str) -> Iterator[Raw]:
    import zmq

    with zmq.Context() as context:
        raw = Raw(context, address, key)
        try:
            yield raw
        finally:
            raw.socket.close()


def connections(address: str, _key: str, count: Count) -> None:
    """Open plain TCP connections without a key, as many as this process may have."""
    from dgkit.wire.address import parse

    host, _, port = parse(address).endpoint.removeprefix("tcp://").rpartition(":")
    held: list[socket.socket] = []
    while True:
        try:
            held.append(socket.create_connection((host, int(port)), 1.0))
            held[-1].send(os.urandom(random.randrange(1, 64)))
            count()
        except OSError:
            time.sleep(0.01)
        if len(held) > DESCRIPTORS - 100:
            for one in held[: len(held) // 2]:
                one.close()
            del held[: len(held) // 2]


def silence(address: str, key: str, count: Count) -> None:
    """Authenticate, and never say Hello."""
    import zmq

    with zmq.Context() as context:
        held: list[Raw] = []
        while True:
            held.append(Raw(context, address, key))
            count()
            time.sleep(0.005)
            if len(held) > 200:
                held.pop(0).socket.close()


def malformed(address: str, key: str, count: Count) -> None:
    """Send requests whose bytes are changed."""
    import zmq

    from dgkit.wire import messages as m

    while True:
        with _raw(address, key) as raw, contextlib.suppress(zmq.Again):
            if not raw.greet():
                continue
            for _ in range(5000):
                move = m.Move(id=raw.number, src=1, src_offset=0, dst=2, dst_offset=0, size=64)
                body = bytearray(m.encode(move))
                body[random.randrange(len(body))] = random.randrange(256)
                raw.number += 1
                raw.socket.send(bytes(body) + os.urandom(random.choice([0, 0, 9, 60_000])))
                with contextlib.suppress(zmq.Again):
                    while raw.socket.recv(zmq.NOBLOCK):
                        pass
                count()


def subscriptions(address: str, key: str, count: Count) -> None:
    """Subscribe to any number of monitors at the telemetry, and to things that are none."""
    import zmq

    import dgkit
    from dgkit.wire.messages import Subscription, encode

    with dgkit.connect(address, keys=key) as session:
        endpoint = session.telemetry()
        while True:
            with _raw(endpoint, key) as raw, contextlib.suppress(zmq.Again):
                for number in range(500):
                    size = random.choice([0, 0, 0, 8, 900])
                    raw.socket.send(encode(Subscription(monitor=number)) + os.urandom(size))
                    count()


def unread(address: str, key: str, count: Count) -> None:
    """Ask for long measurements and many replies, and read none."""
    import zmq

    from dgkit.schema import LatencyTask
    from dgkit.wire import messages as m

    while True:
        with _raw(address, key) as raw, contextlib.suppress(zmq.Again):
            if not raw.greet():
                continue
            raw.post(m.Allocate(size=64, access=3, export=False, name=""))
            region = getattr(m.decode_reply(raw.socket.recv()), "region", 1)
            task = LatencyTask(offset=0, size=64, op=0, samples=1_000_000, path=0)
            raw.post(m.Latency(region=region, task=task))
            for _ in range(20_000):
                raw.post(m.Stats())
                count()


def regions(address: str, key: str, count: Count) -> None:
    """Allocate regions, small and large, until the agent refuses; then from the start."""
    import dgkit

    while True:
        with (
            contextlib.suppress(dgkit.DgkitError),
            dgkit.connect(address, keys=key, timeout=2.0) as session,
        ):
            for size in (64, 64, 64, 4 * MIB):
                with contextlib.suppress(dgkit.LimitReached, dgkit.OutOfMemory):
                    for _ in range(DESCRIPTORS):
                        session.empty(size, on="dpu")
                        count()


def imports(address: str, key: str, count: Count) -> None:
    """Import from a process that never answers, and from one that shares a sparse memfd."""
    from support.processes.agents import program

    import dgkit
    from dgkit.wire import messages as m

    with program(EXPORTER) as mute, program(SPARSE) as sparse:
        tokens = [bytes.fromhex(each.stdout.readline()) for each in (mute, sparse)]  # type: ignore[union-attr]
        mute.send_signal(signal.SIGSTOP)
        while True:
            with (
                contextlib.suppress(dgkit.DgkitError),
                dgkit.connect(address, keys=key) as session,
            ):
                for token in random.choices(tokens, k=50):
                    with contextlib.suppress(dgkit.PeerTimeout):
                        session._link.ask(m.Import(token=token))
                    count()


def storms(address: str, key: str, count: Count) -> None:
    """Connect and leave: in order, in the middle of a request, in the middle of a handshake."""
    import zmq

    from dgkit.wire import messages as m

    while True:
        with _raw(address, key) as raw, contextlib.suppress(zmq.Again):
            way = random.randrange(3)
            if way and raw.greet():
                raw.post(m.Allocate(size=MIB, access=3, export=False, name=""))
                if way == 2:
                    raw.post(m.Bye())
                    raw.socket.recv()
            count()


ATTACKS = (connections, silence, malformed, subscriptions, unread, regions, imports, storms)


def attack(name: str, address: str, tally: Path) -> None:
    """Attack until this process is killed; the file `tally` has the number of attempts."""
    attempts, written = 0, 0.0
    random.seed(name)

    def count() -> None:
        nonlocal attempts, written
        attempts += 1
        if time.monotonic() - written > 0.5:
            written = time.monotonic()
            tally.write_text(str(attempts))

    from dgkit.errors import DgkitError

    (way,) = (each for each in ATTACKS if each.__name__ == name)
    while True:
        with contextlib.suppress(DgkitError):  # refused, or too late on a busy machine
            way(address, name, count)


def burn() -> None:
    """Use one core until this process is killed."""
    while True:
        sum(range(10_000))


class Honest:
    """The honest client: what it does, how long each call took in ns, and what failed."""

    def __init__(self, address: str) -> None:
        self.address = address
        self.taken: dict[str, list[int]] = {}
        self.failures: list[str] = []
        self._chance = random.Random(1)
        self._connected = 0.0

    def _time(self, name: str, call: Callable[[], Any]) -> Any:
        began = time.monotonic_ns()
        try:
            return call()
        except Exception as error:
            self.failures.append(f"{name}: {type(error).__name__}: {error}"[:300])
        finally:
            self.taken.setdefault(name, []).append(time.monotonic_ns() - began)

    def _same(self, name: str, found: object, data: bytes) -> None:
        if found is not None and found != data:
            self.failures.append(f"{name}: bytes differ")

    def round(self, session: Any, region: Any) -> None:
        """Do each kind of work once."""
        data = self._chance.randbytes(self._chance.choice([1, 64, 4096, 65_536, MIB]))
        self._time("write", lambda: session.write(region, data))
        self._same("write", bytes(region.array[: len(data)]), data)
        self._same("read", self._time("read", lambda: session.read(region, len(data))), data)
        near = self._time("register", lambda: session.empty(len(data)))
        far = self._time("allocate", lambda: session.empty(len(data), on="dpu"))
        if near is not None and far is not None:
            near.array[:] = bytearray(data)
            self._time("copy", lambda: session.copy(near, far))
            self._same("copy", self._time("read", lambda: session.read(far, len(data))), data)
        for each in (near, far):
            if each is not None:
                self._time("close", each.close)
        if time.monotonic() - self._connected > CONNECT_EVERY_S:
            self._connected = time.monotonic()
            self._time("connect", lambda: self.connect().close())

    def connect(self) -> Any:
        """Open a session."""
        import dgkit

        return dgkit.connect(self.address, keys="honest", timeout=10.0)

    def run(self, seconds: float) -> None:
        """Work until the time is over."""
        end = time.monotonic() + seconds
        with self.connect() as session, session.empty(MIB) as region:
            while time.monotonic() < end and len(self.failures) < 20:
                self.round(session, region)

    def report(self) -> dict[str, Any]:
        """Return the failures and how long each call took, in ns by kind."""
        return {"failures": self.failures, "taken": self.taken}


def latencies(taken: dict[str, list[int]]) -> dict[str, dict[str, float]]:
    """Return, of each kind of call and of all, the latencies in us."""
    everything = [ns for name, each in taken.items() if name != "connect" for ns in each]
    return {name: summary(each) for name, each in (taken | {"all": everything}).items() if each}


def summary(taken: list[int]) -> dict[str, float]:
    """Return count, median, p99 and maximum in us of times in ns."""
    cuts = statistics.quantiles(taken, n=100, method="inclusive") if len(taken) > 1 else taken * 99
    return {
        "count": len(taken),
        "p50": round(statistics.median(taken) / 1e3, 1),
        "p99": round(cuts[98] / 1e3, 1),
        "max": round(max(taken) / 1e3, 1),
    }


def burst(address: str, seconds: float) -> int:
    """Open BURST connections at a time and close them, without a key; return their number."""
    from dgkit.wire.address import parse

    host, _, port = parse(address).endpoint.removeprefix("tcp://").rpartition(":")
    most = min(BURST, resource.getrlimit(resource.RLIMIT_NOFILE)[0] - 100)
    count, end = 0, time.monotonic() + seconds
    while time.monotonic() < end:
        with contextlib.ExitStack() as stack:
            for _ in range(most):
                each = stack.enter_context(socket.socket())
                each.setblocking(False)
                each.connect_ex((host, int(port)))
            time.sleep(0.1)  # in which the agent accepts as many as it can
        count += most
    return count


def burst_failures(descriptors: int, seconds: float, max_memory: int) -> list[str]:
    """Return what failed at an agent with this many descriptors, during bursts or after them."""
    with _process("--serve", str(max_memory), str(descriptors), stdout=subprocess.PIPE) as agent:
        assert agent.stdout is not None
        address = agent.stdout.readline().strip()
        count = burst(address, seconds)
        honest = Honest(address)
        with contextlib.suppress(Exception):  # noted by _time()
            session = honest._time("connect", honest.connect)
            with session, session.empty(MIB) as region:
                honest.round(session, region)
        failures = honest.failures
        if agent.poll() is not None:
            failures.append(f"the agent ended with {agent.returncode}")
        agent.terminate()
        try:
            agent.wait(5.0)
        except subprocess.TimeoutExpired:
            failures.append("the agent did not end at SIGTERM")
    where = f"{count:,} connections to an agent with {descriptors} descriptors"
    return [f"{where}: {each}" for each in failures]


def all_burst_failures(seconds: float, max_memory: int) -> list[str]:
    """Return what failed at agents with each number of descriptors that this machine permits."""
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return [
        text
        for descriptors in BURST_DESCRIPTORS
        if descriptors <= hard
        for text in burst_failures(descriptors, seconds, max_memory)
    ]


def serve(max_memory: int, descriptors: int) -> None:
    """Run the agent, which prints its address."""
    from dgkit.agent import serve as run_agent

    resource.setrlimit(resource.RLIMIT_NOFILE, (descriptors, descriptors))
    run_agent("tcp://127.0.0.1:0", max_memory=max_memory, ready=lambda at: print(at, flush=True))


def make_keys() -> None:
    """Make the keys of the agent and of its clients, and allow the clients'."""
    from dgkit.wire import keys

    keys.make()
    for name in ("honest", *(each.__name__ for each in ATTACKS)):
        keys.allow(keys.make(name).public)


@contextlib.contextmanager
def _process(*args: str, **more: Any) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, __file__, *args]
    with subprocess.Popen(command, text=True, start_new_session=True, **more) as process:
        try:
            yield process
        finally:
            with contextlib.suppress(ProcessLookupError):  # it has ended, with its children
                os.killpg(process.pid, signal.SIGKILL)


def _held(pid: int) -> tuple[int, int, int]:
    """Return a process's private memory and all of its memory in MiB, and its descriptors."""
    from support.processes.zmtp import own_bytes

    status = Path(f"/proc/{pid}/status").read_text().split("VmRSS:")[1]
    fds = len(list(Path(f"/proc/{pid}/fd").iterdir()))
    return own_bytes(pid) // MIB, int(status.split()[0]) // 1024, fds


def phase(seconds: float, others: list[list[str]], max_memory: int) -> dict[str, Any]:
    """Run an agent, the honest client and eight other processes; return what happened.

    Args:
        seconds: How long.
        others: Command lines of the others; ADDRESS stands for the agent's address.
        max_memory: Bytes that the agent's clients may allocate.
    """
    with contextlib.ExitStack() as stack:
        start = lambda *args, **more: stack.enter_context(_process(*args, **more))  # noqa: E731
        agent = start("--serve", str(max_memory), str(DESCRIPTORS), stdout=subprocess.PIPE)
        address = agent.stdout.readline().strip()
        quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        for each in others:
            start(*(address if word == "ADDRESS" else word for word in each), **quiet)
        told = stack.enter_context(tempfile.TemporaryFile("w+"))  # more than a pipe takes
        honest = start("--honest", address, str(seconds), stdout=told)
        peak = (0, 0, 0)
        while honest.poll() is None and agent.poll() is None:
            with contextlib.suppress(OSError, IndexError):  # it ends just now
                peak = tuple(map(max, peak, _held(agent.pid)))
            time.sleep(0.2)
        ended = agent.poll()
        report = {"failures": [], "taken": {}}
        if ended is None:
            told.seek(0)
            report = json.loads(told.read() or json.dumps(report))
        if ended is not None:
            report["failures"].append(f"the agent ended with {ended}")
        elif honest.returncode:
            report["failures"].append(f"the honest client ended with {honest.returncode}")
    return report | dict(zip(PEAKS, peak, strict=True)) | {"load": os.getloadavg()[0]}


def merged(phases: list[dict[str, Any]]) -> dict[str, Any]:
    """Return several phases as one, with the latencies of all calls."""
    taken: dict[str, list[int]] = {}
    for each in phases:
        for name, ns in each["taken"].items():
            taken.setdefault(name, []).extend(ns)
    return {
        "failures": [text for each in phases for text in each["failures"]],
        "latency_us": latencies(taken),
        **{key: max(each[key] for each in phases) for key in PEAKS},
        "load": [round(each["load"], 1) for each in phases],
    }


def judge(
    baseline: dict[str, Any],
    attacked: dict[str, Any],
    attempts: dict[str, int],
    bursts: list[str],
) -> dict[str, Any]:
    """Return the report with its verdict; `bursts` are the failures of the bursts."""
    failures = bursts + [f"beside burners: {each}" for each in baseline["failures"]]
    failures += attacked["failures"]
    failures += [f"the attacker {name} did nothing" for name, each in attempts.items() if not each]
    own = attacked.get("agent_own_mib", 0)
    if own > MAX_OWN_MIB:
        failures.append(f"the agent had {own} MiB of its own; the limit is {MAX_OWN_MIB}")
    ratio = None
    if all("all" in each.get("latency_us", {}) for each in (baseline, attacked)):
        p99 = [each["latency_us"]["all"]["p99"] for each in (baseline, attacked)]
        ratio = round(p99[1] / p99[0], 2)
        if ratio > MAX_RATIO:
            failures.append(
                f"p99 is {p99[1]:,} us under attack, {ratio} times the {p99[0]:,} us beside "
                f"programs that burn CPU; the limit is {MAX_RATIO}"
            )
    return {
        "ok": not failures, "failures": failures, "ratio": ratio, "baseline": baseline,
        "attacked": attacked, "attempts": attempts,
    }  # fmt: skip


def run(seconds: float, max_memory: int = 256 * MIB) -> dict[str, Any]:
    """Run all phases in a home of their own, and return the report."""
    with tempfile.TemporaryDirectory(prefix="dgkit-") as home:
        previous = os.environ.get("XDG_CONFIG_HOME")
        os.environ["XDG_CONFIG_HOME"] = home
        try:
            make_keys()
            bursts = all_burst_failures(min(BURSTS_S, seconds / 60), max_memory)
            resource.setrlimit(resource.RLIMIT_NOFILE, (DESCRIPTORS, DESCRIPTORS))
            burners = [["--burn"]] * len(ATTACKS)
            part = min(BASELINE_S, max(5.0, seconds / 3)) / 2
            beside = [phase(part, burners, max_memory)]
            tallies = {each.__name__: Path(home) / each.__name__ for each in ATTACKS}
            attackers = [["--attack", name, "ADDRESS", str(at)] for name, at in tallies.items()]
            attacked = phase(seconds, attackers, max_memory)
            attempts = {name: int(at.read_text() or 0) if at.exists() else 0 for name, at in
                        tallies.items()}  # fmt: skip
            beside.append(phase(part, burners, max_memory))
        finally:
            del os.environ["XDG_CONFIG_HOME"]
            if previous is not None:
                os.environ["XDG_CONFIG_HOME"] = previous
    return judge(merged(beside), merged([attacked]), attempts, bursts)


def show(report: dict[str, Any]) -> None:
    """Print the report as text."""
    for title in ("baseline", "attacked"):
        part = report[title]
        print(
            f"{title}: agent {part['agent_rss_mib']} MiB, {part['agent_own_mib']} of them its own, "
            f"{part['agent_fds']} fds at most, load of "
            f"the machine {' and '.join(map(str, part['load']))}"
        )
        for kind, row in part.get("latency_us", {}).items():
            print(
                f"  {kind:<9} {row['count']:>8,} calls  p50 {row['p50']:>10,} us  "
                f"p99 {row['p99']:>10,} us  max {row['max']:>12,} us"
            )
    print("attempts:", ", ".join(f"{name} {each:,}" for name, each in report["attempts"].items()))
    for failure in report["failures"]:
        print(f"FAILED: {failure}")
    print(f"p99 ratio {report['ratio']} (limit {MAX_RATIO})")
    print("ok" if report["ok"] else "FAILED", flush=True)


def _parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--minutes", type=float, default=5.0, help="of the attack (5)")
    parser.add_argument("--hours", type=float, help="the same in hours")
    parser.add_argument("--json", type=Path, help="file for the report")
    parser.add_argument("--serve", nargs=2, type=int, help=argparse.SUPPRESS)
    parser.add_argument("--honest", nargs=2, help=argparse.SUPPRESS)
    parser.add_argument("--attack", nargs=3, help=argparse.SUPPRESS)
    parser.add_argument("--burn", action="store_true", help=argparse.SUPPRESS)
    return parser.parse_args()


def main() -> int:
    """Read the command line; play one part, or run all and print the report: 1 if it failed."""
    given = _parsed()
    if given.burn:
        burn()
    if given.serve:
        serve(*given.serve)
        return 0
    if given.attack:
        attack(given.attack[0], given.attack[1], Path(given.attack[2]))
    if given.honest:
        honest = Honest(given.honest[0])
        honest.run(float(given.honest[1]))
        print(json.dumps(honest.report()))
        return 0
    report = run(given.hours * 3600 if given.hours else given.minutes * 60)
    show(report)
    if given.json:
        given.json.write_text(json.dumps(report) + "\n", encoding="utf-8")
    return 0 if report["ok"] else 1


if __name__ == "__main__":
    sys.path.insert(0, str(ROOT / "tests"))
    sys.exit(main())
