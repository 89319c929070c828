# SPDX-License-Identifier: Apache-2.0
"""A thread that fails ends its process with the reason; without free descriptors none fails."""

import contextlib
import os
import resource
import socket
import subprocess
from pathlib import Path
from queue import SimpleQueue

import pytest
from support.processes.agents import python

import dgkit
from dgkit.agent.worker import SerialWorker
from dgkit.wire import essential
from dgkit.wire.acceptor import Arrivals
from dgkit.wire.inflow import Growth, Spare, Stream, heap_trimmer
from dgkit.wire.listener import Listener
from dgkit.wire.wakeup import Wakeup

_DEAF = """
import dgkit.agent
from dgkit.wire.wakeup import Wakeup

def ready(address):
    print(address, flush=True)
    input()  # until a session is open
    Wakeup._check_memory = lambda *_, **__: 1 / 0

dgkit.agent.serve(ready=ready)
"""


@contextlib.contextmanager
def no_free_descriptors():
    """Take every descriptor that this process may have."""
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = max(int(each.name) for each in Path("/proc/self/fd").iterdir())
    resource.setrlimit(resource.RLIMIT_NOFILE, (most + 1, limits[1]))
    held = []
    try:
        with contextlib.suppress(OSError):  # EMFILE
            while True:
                held.append(os.dup(0))
        yield
    finally:
        for each in held:
            os.close(each)
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)


def talk(address):
    with dgkit.connect(address) as session:
        while True:
            session.stats()


def wakeup():
    listener = Listener(None, None)
    try:
        with Wakeup(listener, (), -1):
            yield
    finally:
        listener.close()


def worker():
    def refuse(exc):
        raise exc

    one = SerialWorker("dgkit-moves-1", refuse)
    one.submit(lambda: 1 / 0)
    yield
    assert one.join(5.0)


@pytest.mark.parametrize("thread", [wakeup, worker])
def test_a_thread_of_an_agent_that_fails_ends_the_process_with_its_reason(
    thread, monkeypatch, caplog
):
    codes = SimpleQueue()
    monkeypatch.setattr(essential, "leave", codes.put)
    monkeypatch.setattr(Wakeup, "_check_memory", lambda *_, **__: 1 / 0)
    for _ in thread():
        assert codes.get(timeout=5.0) == os.EX_SOFTWARE
    assert "has failed, so this process ends with exit code 70: ZeroDivisionError" in caplog.text


def test_an_agent_whose_watching_thread_fails_exits_with_the_reason_and_its_clients_learn_it():
    pipes = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
    with subprocess.Popen(python(_DEAF), text=True, **pipes) as agent:
        address = agent.stdout.readline().strip()
        agent.stdin.write("\n")
        agent.stdin.flush()
        with pytest.raises(dgkit.PeerError):
            talk(address)
        assert agent.wait(5.0) == os.EX_SOFTWARE
        assert "the thread dgkit-wakeup has failed" in agent.stderr.read()
    assert not Path(address.removeprefix("ipc://")).exists()


def test_every_thread_of_a_process_of_dgkits_own_is_essential_or_serves_one_request():
    package = Path(dgkit.__file__).parent
    sources = [
        path for part in ("agent", "wire", "testbed") for path in (package / part).glob("*.py")
    ]
    starting = {path.name: path.read_text().count("Thread(") for path in sources}
    assert {name: n for name, n in starting.items() if n} == {
        "doorbell.py": 2,  # in a user's process, which must not end
        "essential.py": 1,
        "supervisor.py": 1,  # answers one request of the testbed's socket
    }


def test_what_the_watching_thread_does_needs_no_free_descriptor():
    growth, trim, arrivals, spare = Growth(), heap_trimmer(), Arrivals(), Spare()
    near, far = socket.socketpair()
    stream = Stream(far.fileno(), spare.duplicate)
    with no_free_descriptors():
        growth()
        trim()
        arrivals.add(far.fileno())
        arrivals.rearm()
        arrivals.take()
        assert not stream.is_endless(0)
        stream.end()
    assert near.recv(1) == b""
    for each in (growth, arrivals, spare, near, far):
        each.close()
