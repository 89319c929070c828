# SPDX-License-Identifier: Apache-2.0
"""A side that dies, stops, forks or is busy: the other one knows at once, and nothing is left."""

import contextlib
import gc
import os
import signal
import subprocess
import threading
import time
import warnings
import weakref
from pathlib import Path

import pytest
from support.processes.agents import agent, program, python
from support.processes.waiting import children, gone, held, steady, stop, until

import dgkit
from dgkit.errors import PeerLost, PeerTimeout, TransferError
from dgkit.wire import keys
from dgkit.wire.address import HEARTBEAT_S

MIB = 1 << 20
GIB = 1 << 30

CLIENT = """
import sys, dgkit
session = dgkit.connect(sys.argv[1] or None)
regions = [session.empty(int(size)) for size in sys.argv[2].split(",")]
there = session.empty(4 << 20, on="dpu")
session.write(regions[0], b"alive")
print(session.owned_pid, flush=True)
{then}
"""
COPY = "print('copying', flush=True)\nwhile True: session.copy(regions[0], regions[1])"
WAIT = "sys.stdin.read()"


def _client(address, sizes=(MIB,), then=WAIT):
    return program(CLIENT.format(then=then), address, ",".join(map(str, sizes)))


@pytest.fixture
def dpu():
    with agent() as running:
        yield running


@pytest.fixture
def own_keys(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    keys.allow(keys.make().public)


def _for_ever(call):
    while True:
        call()


def _holds(session, **wanted):
    now = session.stats()
    return all(now[name] == value for name, value in wanted.items())


FORK = """
import ctypes
libc = ctypes.CDLL(None)
child = libc.fork()  # Python's own fork() would tell the session
if child == 0:
    libc.pause()
print(child, flush=True)
sys.stdin.read()
"""


def test_a_client_that_is_killed_holds_nothing_though_its_child_has_its_sockets(dpu):
    with dgkit.connect(dpu.address) as watcher:
        before = watcher.stats()
        with _client(dpu.address, (MIB, MIB), FORK) as client:
            client.stdout.readline()
            child = int(client.stdout.readline())
            try:
                assert _holds(watcher, clients=2)
                client.kill()
                until(lambda: _holds(watcher, clients=1, regions=before["regions"]), "it is gone")
                os.kill(child, 0)  # it lives
            finally:
                os.kill(child, signal.SIGKILL)


@pytest.mark.parametrize(
    ("sizes", "then"), [((MIB,), WAIT), ((GIB, GIB), COPY)], ids=["idle", "copy"]
)
def test_a_client_that_is_killed_takes_all_that_it_had_along_within_a_second(dpu, sizes, then):
    with dgkit.connect(dpu.address) as watcher:
        with _client(dpu.address, (MIB, MIB), "session.copy(*regions)") as first:
            first.communicate()  # what the agent makes once, it keeps
        until(lambda: _holds(watcher, clients=1), "the first client is gone")
        before = steady(lambda: held(dpu.pid))
        with _client(dpu.address, sizes, then) as client:
            assert client.stdout.readline() == "0\n"
            if then is COPY:
                assert client.stdout.readline() == "copying\n"
            assert _holds(watcher, clients=2, allocated=4 * MIB)
            client.kill()
            started = time.monotonic()
            until(lambda: _holds(watcher, clients=1, allocated=0, regions=0), "all is freed", 2.0)
            assert time.monotonic() - started < 1.0
        # The kernel takes 0.4 s of CPU time to unmap 2 GiB: seconds on a busy machine.
        until(lambda: held(dpu.pid) == before, "its memory is unmapped")


def test_an_agent_killed_in_the_middle_of_a_1_gib_copy_is_peer_lost_within_a_second(dpu):
    with dgkit.connect(dpu.address) as session:
        src, dst = session.empty(GIB), session.empty(GIB)
        caught = []

        def copy():
            try:
                while True:
                    session.copy(src, dst)
            except (PeerLost, TransferError) as error:
                caught.append((error, time.monotonic()))

        copying = threading.Thread(target=copy)
        copying.start()
        until(lambda: dst.array[64 * MIB - 1] == 0 and session._link.pending, "it copies")
        killed = time.monotonic()
        dpu.process.kill()
        copying.join(5.0)
        ((error, when),) = caught
        assert when - killed < 1.0
        assert isinstance(error, PeerLost)
        assert str(dpu.pid) in str(error)
        with pytest.raises(PeerLost):
            session.write(src, b"x")
        src.close()


def test_a_software_dpu_that_is_killed_is_peer_lost_and_close_cleans_up():
    session = dgkit.connect()
    region = session.empty(64)
    path = Path(session.info["address"].removeprefix("ipc://"))
    os.kill(session.owned_pid, signal.SIGKILL)
    with pytest.raises(PeerLost, match="is gone"):
        _for_ever(lambda: session.write(region, b"x"))
    session.close()
    assert not path.exists()


def _lose(session, region):
    """Kill the agent under reads and what else keeps its error; return what must be freed."""
    started = [session.start_read(region, region.size) for _ in range(4)]
    os.kill(session.owned_pid, signal.SIGKILL)
    for call in (*(each.wait for each in started), session.stats, lambda: session.read(region, 1)):
        with contextlib.suppress(PeerLost, TransferError):
            call()
    return [weakref.ref(each) for each in (*started, *(each._job for each in started))]


def test_the_error_of_a_lost_agent_keeps_no_variable_of_its_callers():
    with dgkit.connect() as session, session.empty(4 * MIB) as region:
        gc.disable()
        try:
            assert [each() for each in _lose(session, region)] == [None] * 8
        finally:
            gc.enable()


def test_a_host_killed_under_a_dpu_fails_its_transfers_and_requests_at_once():
    with agent(role="host") as host, dgkit.connect(host.address) as session:
        region = session.empty(256 * MIB)
        data = bytes(256 * MIB)
        transfer = session.start_write(region, data)
        host.process.kill()
        host.process.wait()
        with pytest.raises((PeerLost, TransferError)):
            _for_ever(lambda: transfer.wait(2.0) and session.write(region, data))
        with pytest.raises(PeerLost):
            session.empty(64)


def test_a_stopped_agent_is_a_timeout_that_says_so_and_goes_on_when_it_does(dpu):
    with dgkit.connect(dpu.address) as session:
        region = session.empty(64)
        stop(dpu.pid)
        started = time.monotonic()
        with pytest.raises(PeerTimeout, match=rf"process {dpu.pid} is stopped.*kill -CONT"):
            session.write(region, b"x")
        assert time.monotonic() - started < 1.0
        dpu.send(signal.SIGCONT)
        session.write(region, b"again")
        assert session.read(region, 5) == b"again"


def test_a_stopped_agent_over_tcp_is_noticed_within_a_second(own_keys):
    with agent(address="tcp://127.0.0.1:0") as far, dgkit.connect(far.address) as session:
        region = session.empty(64)
        stop(far.pid)
        started = time.monotonic()
        with pytest.raises(PeerTimeout, match="is stopped"):
            session.write(region, b"x")
        assert time.monotonic() - started < 1.0


def test_with_a_longer_heartbeat_a_stop_of_either_side_ends_no_connection(own_keys):
    served = agent(address="tcp://127.0.0.1:0", heartbeat=20)
    with served as far, dgkit.connect(far.address) as session:
        assert far.address.endswith("&heartbeat=20")
        then = "sys.stdin.readline()\nprint(session.stats()['clients'])"
        with _client(far.address, then=then) as client:
            assert client.stdout.readline() == "0\n"
            stop(client.pid)
            _stays_for_longer_than_a_heartbeat(lambda: _holds(session, clients=2))
            client.send_signal(signal.SIGCONT)
            assert client.communicate("\n")[0] == "2\n"
        stop(far.pid)
        _stays_for_longer_than_a_heartbeat(lambda: session._link.pump() or not session._link.dead)
        far.send(signal.SIGCONT)
        until(lambda: _holds(session, clients=1), "the client has gone")


def _stays_for_longer_than_a_heartbeat(holds):
    end = time.monotonic() + 2 * HEARTBEAT_S + 0.3
    while time.monotonic() < end:
        assert holds()
        time.sleep(0.05)


def test_a_stopped_client_keeps_its_local_lease_and_holds_up_nobody(dpu):
    with dgkit.connect(dpu.address) as watcher, _client(dpu.address) as client:
        assert client.stdout.readline() == "0\n"
        stop(client.pid)
        region = watcher.empty(64)
        deadline = time.monotonic() + 1.5
        while time.monotonic() < deadline:
            watcher.write(region, b"x")
        assert _holds(watcher, clients=2)
        client.kill()
        until(lambda: _holds(watcher, clients=1), "killed while stopped, it is gone", 1.0)


def test_a_client_over_tcp_that_stops_loses_its_lease_and_is_told(own_keys):
    with agent(address="tcp://127.0.0.1:0") as far, dgkit.connect(far.address) as watcher:
        then = (
            "sys.stdin.readline()\ntry: session.stats()\nexcept dgkit.PeerLost as e: print('lost')"
        )
        with _client(far.address, then=then) as client:
            assert client.stdout.readline() == "0\n"
            stop(client.pid)
            until(lambda: _holds(watcher, clients=1, allocated=0), "its lease ends", 1.5)
            client.send_signal(signal.SIGCONT)
            assert client.communicate("\n")[0] == "lost\n"


@pytest.mark.parametrize("tcp", [False, True], ids=["ipc", "tcp"])
def test_a_client_whose_python_is_busy_for_three_seconds_keeps_its_lease(own_keys, tcp):
    # One C call that never lets the interpreter go: no Python code runs in that time.
    then = (
        "import time\nstarted = time.monotonic()\n"
        "n = 3 << 20\n"
        "while time.monotonic() - started < 3.0: sum(range(30_000_000))\n"
        "session.write(regions[0], b'still')\nprint(bytes(regions[0].array[:5]))"
    )
    where = {"address": "tcp://127.0.0.1:0"} if tcp else {}
    with agent(**where) as one, _client(one.address, then=then) as client:
        assert client.communicate()[0].splitlines() == ["0", "b'still'"]


def test_a_killed_parent_leaves_no_process_and_no_file(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    for sizes, then in (((MIB,), WAIT), ((GIB // 2, GIB // 2), COPY)):
        with _client("", sizes, then) as client:
            dpu = int(client.stdout.readline())
            assert not gone(dpu)
            client.kill()
            started = time.monotonic()
            until(lambda dpu=dpu: gone(dpu), "the software DPU ends", 2.0)
            assert time.monotonic() - started < 1.0
        assert [path for path in tmp_path.rglob("*") if not path.is_dir()] == []


def test_a_parent_killed_while_its_dpu_is_stopped_leaves_none_once_that_goes_on():
    with _client("") as client:
        dpu = int(client.stdout.readline())
        stop(dpu)
        client.kill()
        client.wait()
        os.kill(dpu, signal.SIGCONT)
        until(lambda: gone(dpu), "the software DPU ends", 2.0)


def test_closing_a_session_whose_dpu_is_stopped_ends_it():
    session = dgkit.connect()
    pid = session.owned_pid
    stop(pid)
    started = time.monotonic()
    session.close()
    assert gone(pid)
    assert time.monotonic() - started < 3.0


def test_a_session_after_fork_is_closed_in_the_child_and_lives_on_in_the_parent():
    source = """
import gc, os, sys, dgkit
session = dgkit.connect()
region = session.empty(64)
child = os.fork()
if child == 0:
    try:
        session.write(region, b"x")
    except dgkit.ClosedError as error:
        code = 7 if "fork" in str(error) else 1
    session.close()
    del session, region
    sys.exit(code)
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
session.write(region, b"parent")
print(session.read(region, 6))
session.close()
"""
    done = subprocess.run(python(source), capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == ["7", "b'parent'"]


@pytest.mark.parametrize("fork", ["os.fork()", "ctypes.CDLL(None).fork()"])
def test_a_forked_child_that_lives_on_does_not_keep_the_dpu_of_a_killed_parent(fork):
    then = f"import ctypes, os\nif {fork} == 0: sys.stdin.read(); os._exit(0)\nsys.stdin.read()"
    with _client("", then=then) as client:
        dpu = int(client.stdout.readline())
        until(lambda: len(children(client.pid)) == 2, "the child is there")
        (child,) = [pid for pid in children(client.pid) if pid != dpu]
        client.kill()
        until(lambda: gone(dpu), "the software DPU ends", 2.0)
        assert not gone(child)
        os.kill(child, signal.SIGKILL)


def test_ctrl_c_in_a_wait_leaves_the_session_usable_and_the_dpu_alive():
    source = """
import os, signal, threading, dgkit
session = dgkit.connect()
src, dst = session.empty(1 << 30), session.empty(1 << 30)
small = session.empty(64)
for _ in range(3):
    threading.Timer(0.05, os.kill, (0, signal.SIGINT)).start()
    try:
        while True:
            session.copy(src, dst)
    except KeyboardInterrupt:
        session.write(small, b"usable")
        print(session.read(small, 6), flush=True)
data = bytes(256 << 20)
threading.Timer(0.02, os.kill, (0, signal.SIGINT)).start()
try:
    while True:
        session.write(src, data)
except KeyboardInterrupt:
    session.write(src, b"whole" * 1000, 7)
    print(session.read(src, 5, 7), flush=True)
session.close()
"""
    done = subprocess.run(
        python(source),
        capture_output=True, text=True, check=False, start_new_session=True,
    )  # fmt: skip
    assert done.stdout.splitlines() == ["b'usable'"] * 3 + ["b'whole'"], done.stderr
    assert done.returncode == 0


def test_two_hundred_sessions_of_a_running_agent_leave_nothing_behind(dpu):
    def cycle():
        with dgkit.connect(dpu.address) as session:
            region = session.empty(4096)
            session.write(region, b"x")

    for _ in range(3):
        cycle()
    gc.collect()  # what earlier tests left to the collector
    folder = Path(dpu.address.removeprefix("ipc://")).parent
    before = steady(lambda: (held(), held(dpu.pid)))
    files = set(folder.iterdir())
    for _ in range(200):
        cycle()
    assert steady(lambda: (held(), held(dpu.pid))) == before
    assert set(folder.iterdir()) <= files


def test_ten_sessions_with_a_dpu_of_their_own_leave_nothing_behind(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))

    def cycle():
        with dgkit.connect() as session:
            session.write(session.empty(4096), b"x")

    cycle()
    gc.collect()  # what earlier tests left to the collector
    before = steady(lambda: (held(), children()))
    for _ in range(10):
        cycle()
    assert steady(lambda: (held(), children())) == before
    assert not list((tmp_path / "dgkit").glob("agent-*"))


def test_a_session_that_nobody_closed_goes_with_its_regions_when_the_collector_comes():
    session = dgkit.connect()
    pid = session.owned_pid
    region = session.empty(64)
    session.write(region, b"x")
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        del session, region
        gc.collect()
    assert any("<Session " in str(each.message) for each in said)
    until(lambda: gone(pid), "its software DPU has ended")
