# SPDX-License-Identifier: Apache-2.0
"""An exporter that stalls delays the client that imports from it, and no other."""

import contextlib
import re
import select
import socket
import threading
import time
from pathlib import Path

import pytest
from support.processes.agents import agent, program

import dgkit
from dgkit import PeerTimeout
from dgkit.dpu.region_ref import RegionRef
from dgkit.wire import messages as m

BOUND_S = 2.0  # for what takes milliseconds, on a machine that is busy
ATTACK_S = 4.0
EXPORTER = """
import os, sys
import dgkit
with dgkit.Device() as device:
    region = device.register(dgkit.empty(64))
    print(region.export().hex(), flush=True)
    sys.stdin.readline()
"""
SPARSE = """
import fcntl, mmap, os, sys
from dataclasses import dataclass
import dgkit

@dataclass(frozen=True)
class Own:
    buffer: memoryview
    size: int
    fd: int
    fd_offset: int = 0
    place: str = "host"
    share_process: bool = False

size = 4 << 30
fd = os.memfd_create("own", os.MFD_ALLOW_SEALING)
os.ftruncate(fd, size)
fcntl.fcntl(fd, 1033, 2)
with dgkit.Device() as device:
    region = device.register(Own(memoryview(mmap.mmap(fd, size)), size, fd))
    print(region.export().hex(), flush=True)
    sys.stdin.readline()
    print(os.fstat(fd).st_blocks * 512, flush=True)
    sys.stdin.readline()
"""


@pytest.fixture
def served():
    with agent(shared_telemetry=False) as one:
        yield one


@contextlib.contextmanager
def attacked(address, token, attackers=3):
    """Clients that import a region again and again, as others work; what each import raised."""
    errors, ending = [], threading.Event()

    def attack():
        with dgkit.connect(address, timeout=30.0) as session:
            while not ending.is_set():
                try:
                    handle = session._link.ask(m.Import(token=token), timeout=30.0).region
                    session._link.ask(m.Free(region=handle, timeout=1.0), timeout=30.0)
                except dgkit.DgkitError as error:
                    errors.append(error)

    threads = [threading.Thread(target=attack) for _ in range(attackers)]
    for thread in threads:
        thread.start()
    try:
        yield errors
    finally:
        ending.set()
        for thread in threads:
            thread.join()


def longest(address, honest):
    """The longest time that an import, an allocation or a copy of another client takes."""
    most, end = 0.0, time.monotonic() + ATTACK_S
    with dgkit.connect(address) as session:
        while time.monotonic() < end:
            began = time.monotonic()
            handle = session._link.ask(m.Import(token=honest), timeout=30.0).region
            with session.empty(64) as near, session.empty(64, on="dpu") as far:
                session.write(near, b"fine")
                session.copy(near, far)
                assert session.read(far, 4) == b"fine"
            session._link.ask(m.Free(region=handle, timeout=1.0), timeout=30.0)
            most = max(most, time.monotonic() - began)
    return most


def _token(process):
    return bytes.fromhex(process.stdout.readline().strip())


def _stop(process):
    process.send_signal(19)
    while "T (stopped)" not in Path(f"/proc/{process.pid}/status").read_text():
        time.sleep(0.001)


def _fill_backlog(token, stack):
    """Connect to the share server of a process that is stopped, until no more is queued."""
    path = re.search(rb"/[^\0]+\.sock", token)[0]
    while True:
        one = stack.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET))
        one.setblocking(False)
        try:
            one.connect(path)
        except BlockingIOError:
            return


@pytest.mark.parametrize("backlog", ["free", "full"])
def test_an_exporter_that_never_answers_delays_no_other_client(served, backlog):
    with program(EXPORTER) as mute, program(EXPORTER) as honest, contextlib.ExitStack() as stack:
        token = _token(mute)
        _stop(mute)
        if backlog == "full":
            _fill_backlog(token, stack)
        with attacked(served.address, token) as errors:
            assert longest(served.address, _token(honest)) < BOUND_S
        assert errors
        assert {type(error) for error in errors} == {dgkit.PeerTimeout}


def test_a_sparse_memfd_delays_no_other_client_and_takes_no_memory(served):
    with program(SPARSE) as sparse, program(EXPORTER) as honest:
        token = _token(sparse)
        with attacked(served.address, token, attackers=1) as errors:
            assert longest(served.address, _token(honest)) < BOUND_S
            sparse.stdin.write("\n")
            sparse.stdin.flush()
            assert int(sparse.stdout.readline()) == 0, "its pages were populated"
        assert not errors


def test_an_import_that_waits_delays_that_of_no_other_region(monkeypatch):
    waits, goes_on = threading.Event(), threading.Event()

    class Slow:
        size, device, method = 64, None, "map"

        def export(self):
            return b""

        def import_region(self, _token):
            waits.set()
            assert goes_on.wait(10)
            return self

    class Prompt(Slow):
        def import_region(self, _token):
            return self

    for kind in (Slow, Prompt):
        kind.device = kind()
    imported = lambda device, token: device.import_region(token)  # noqa: E731
    monkeypatch.setattr("dgkit.dpu.region_ref.RemoteRegion", imported)
    slow, prompt = RegionRef(region=Slow()), RegionRef(region=Prompt())
    thread = threading.Thread(target=slow.as_remote)
    thread.start()
    assert waits.wait(10)
    done = threading.Thread(target=prompt.as_remote)
    done.start()
    done.join(10)
    assert not done.is_alive()
    goes_on.set()
    thread.join()


class Relay(threading.Thread):
    """Relays one connection to an agent's Unix socket, until it is told to hold everything back."""

    def __init__(self, address, folder):
        super().__init__(daemon=True)
        self.holds = False
        self.address = f"ipc://{folder}/relay.sock"
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(self.address.removeprefix("ipc://"))
        self._listener.listen()
        self._agent = socket.socket(socket.AF_UNIX)
        self._agent.connect(address.removeprefix("ipc://"))
        self.start()

    def run(self):
        with self._listener, self._agent, self._listener.accept()[0] as client:
            to = {client: self._agent, self._agent: client}
            while True:
                for source in select.select([*to], [], [])[0]:
                    data = source.recv(1 << 16)
                    if not data:
                        return
                    if not self.holds:
                        to[source].sendall(data)


def test_calls_behind_a_relay_that_holds_everything_back_end_by_the_timeout(tmp_path, served):
    relay = Relay(served.address, tmp_path)
    with dgkit.connect(relay.address, timeout=0.5) as session:
        region = session.empty(16 << 20)
        calls = [
            lambda: session.write(region, b"x"),
            lambda: session.write(region, bytes(16 << 20)),
            lambda: session.read(region, 1 << 20),
            lambda: session.digest(region, 64),
            lambda: session.latency(region, count=100, destructive=True),
        ]
        for call in calls:
            call()
        relay.holds = True
        for call in calls:
            start = time.monotonic()
            with pytest.raises(PeerTimeout, match=r"relay.sock has sent nothing for 0\.5 s"):
                call()
            assert time.monotonic() - start < 10  # 30 s before
    relay.join(10)


def test_an_agent_that_works_for_longer_than_the_timeout_is_not_silent():
    slow = dgkit.FaultRule("delay", ops="w", delay_us=1_500_000, count=1)
    with dgkit.connect(provider="fault", rules=[slow]) as session:
        session.dpu.link.timeout = 0.4
        region = session.empty(64)
        start = time.monotonic()
        session.write(region, b"x")
        assert time.monotonic() - start > 1
