"""An exporter that stalls delays the client that imports from it, and no other."""

import contextlib
import re
import socket
import threading
import time
from pathlib import Path

import pytest
from support.processes.agents import agent, program

import dgkit
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
                    handle = session._link.ask(m.Import, token, timeout=30.0).region
                    session._link.ask(m.Free, handle, 1.0, timeout=30.0)
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
            handle = session._link.ask(m.Import, honest, timeout=30.0).region
            with session.empty(64) as near, session.empty(64, on="dpu") as far:
                session.write(near, b"fine")
                session.copy(near, far)
                assert session.read(far, 4) == b"fine"
            session._link.ask(m.Free, handle, 1.0, timeout=30.0)
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
