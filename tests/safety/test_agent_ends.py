# SPDX-License-Identifier: Apache-2.0
"""However the software DPU ends, its process prints nothing and leaves no socket."""

import signal
import socket
import subprocess
from pathlib import Path

import pytest
from support.processes import cli
from support.processes.agents import program, python
from support.processes.waiting import gone, steady, stop, until

import dgkit
from dgkit.wire.messages import Start, encode

LEAVES = """
import threading, dgkit
from dgkit.agent import leave
device = dgkit.Device()
region = device.register(bytearray(64))
region.export()
print("there", flush=True)
input()
leave(7)
"""


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    """A runtime folder that nobody else uses."""
    for name, value in cli.environment(tmp_path).items():
        monkeypatch.setenv(name, value)
    return tmp_path / "run"


def sockets(folder):
    return [path.name for path in folder.rglob("*.sock")]


def test_a_process_that_leaves_takes_its_door_along(folder):
    with program(LEAVES) as process:
        process.stdout.readline()
        assert len(sockets(folder)) == 1
        process.stdin.write("\n")
        process.stdin.flush()
        assert process.wait(10) == 7
    assert not sockets(folder)


def test_a_software_dpu_that_must_be_killed_leaves_nothing(folder):
    session = dgkit.connect()
    session.write(session.empty(64), b"x")
    assert any(f"-{session.owned_pid}-" in name for name in sockets(folder))
    stop(session.owned_pid)
    session.close()
    assert not sockets(folder)


def test_a_software_dpu_whose_starter_went_meanwhile_ends_in_silence(folder):
    ours, theirs = socket.socketpair()
    with ours, theirs:
        ours.sendall(encode(Start(provider="soft", rules=[], max_memory=0)))
        ours.close()
        done = subprocess.run(
            python(
                "import runpy; runpy.run_module('dgkit.agent', run_name='__main__')",
                str(theirs.fileno()),
            ),
            pass_fds=[theirs.fileno()], capture_output=True, text=True, timeout=20, check=False,
        )  # fmt: skip
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert not sockets(folder)


def test_an_agent_ends_in_order_at_a_hangup(folder):
    with cli.started(folder.parent, "serve") as process:
        address = process.stdout.readline().strip()
        with dgkit.connect(address) as session:
            session.write(session.empty(64), b"x")
        cli.send(process, "SIGHUP")
        _, err = cli.ended(process)
    assert process.returncode == 0
    assert "Traceback" not in err
    assert not sockets(folder)


@pytest.mark.parametrize("name", ["SIGTERM", "SIGHUP", "SIGKILL"])
def test_a_process_that_is_killed_leaves_nothing_nor_does_its_software_dpu(folder, name):
    source = "import dgkit\ns = dgkit.connect()\ns.write(s.empty(64), b'x')\n"
    with program(source + "print(s.owned_pid, flush=True)\ninput()") as process:
        dpu = int(process.stdout.readline())
        process.send_signal(getattr(signal, name))
        process.wait(10)
        until(lambda: gone(dpu), "the software DPU ends")
    assert not sockets(folder)


# The main thread takes no SIGTERM, so the kernel gives it to the other one, which Python runs no
# handler in: as where the signal comes in the moment before the agent sleeps.
TAKEN_ELSEWHERE = """
import signal, threading
from dgkit.agent import serve
threading.Thread(target=threading.Event().wait, daemon=True).start()
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])
serve(ready=lambda address: print(address, flush=True))
print("ended", flush=True)
"""


def test_a_signal_that_another_thread_takes_ends_an_agent():
    with program(TAKEN_ELSEWHERE) as process:
        assert process.stdout.readline().startswith("ipc://")
        stat = Path(f"/proc/{process.pid}/task/{process.pid}/stat")
        assert steady(lambda: stat.read_text().rpartition(")")[2].split()[0]) == "S"
        process.terminate()
        until(lambda: process.poll() is not None, "the agent ends")
        assert process.stdout.read() == "ended\n"
