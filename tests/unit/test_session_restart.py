# SPDX-License-Identifier: Apache-2.0
"""Session.restart(): another software DPU in place of a lost one; session and regions remain."""

import os
import resource
import signal
import threading
from pathlib import Path

import numpy as np
import pytest
from support.processes.agents import agent
from support.processes.waiting import gone, until

import dgkit
from dgkit.errors import ClosedError


def kill(session):
    pid = session.owned_pid
    os.kill(pid, signal.SIGKILL)
    until(lambda: gone(pid), "the DPU has ended")


def descriptors():
    return len(list(Path("/proc/self/fd").iterdir()))


@pytest.fixture
def session():
    with dgkit.connect() as session:
        yield session


def test_the_session_and_its_regions_of_this_process_are_the_same_with_their_bytes(session):
    array = np.arange(64, dtype="u4")
    mine, given = session.empty(4096, name="mine"), session.register(array, name="given")
    theirs = session.empty(64, on="dpu", name="theirs")
    session.write(mine, b"kept")
    address, ids, changes = mine.array.ctypes.data, (mine.id, given.id), []
    session.on_change(lambda: changes.append(session.regions))
    kill(session)
    assert session.restart() == {}
    assert session.regions == (mine, given)
    assert (mine.id, given.id) == ids
    assert changes[-1] == (mine, given)
    assert mine.array.ctypes.data == address
    assert session.read(mine, 4) == b"kept"
    session.write(given, b"\xff" * 4)
    assert array[0] == 0xFFFFFFFF
    assert theirs.closed
    assert session.empty(8).id not in ids
    with pytest.raises(ClosedError):
        session.read(theirs, 1)


def test_a_dpu_that_answers_is_not_replaced(session):
    pid = session.owned_pid
    assert session.restart() == {}
    assert session.owned_pid == pid


def test_a_session_that_did_not_start_its_dpu_says_so():
    with agent() as running, dgkit.connect(running.address) as session:
        assert not session.restartable
        with pytest.raises(ValueError, match="did not start its DPU"):
            session.restart()


def test_a_closed_session_is_not_restarted():
    session = dgkit.connect()
    session.close()
    assert not session.restartable
    with pytest.raises(ClosedError):
        session.restart()


def test_the_new_dpu_has_the_options_of_the_lost_one():
    with dgkit.connect(max_memory=1 << 20) as session:
        kill(session)
        session.restart()
        with pytest.raises(dgkit.DgkitError, match="limit of 1048576"):
            session.empty(2 << 20, on="dpu")


def test_the_other_process_and_the_lost_connection_end_with_the_session(session):
    region = session.empty(64)
    before = descriptors()
    for _ in range(3):
        kill(session)
        session.restart()
        session.write(region, b"alive")
    until(lambda: descriptors() <= before + 4, "no descriptors are left")
    pid = session.owned_pid
    session.close()
    until(lambda: gone(pid), "the last DPU has ended")
    assert region.closed


def test_a_restart_without_descriptors_says_which_limit_it_met(session):
    region = session.empty(8)
    kill(session)
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        for room in (0, 5, 6, 20):  # libzmq aborted the process at 5 and 6
            resource.setrlimit(resource.RLIMIT_NOFILE, (descriptors() + room, before[1]))
            with pytest.raises(dgkit.LimitReached, match=r"descriptors.*ulimit -n"):
                session.restart()
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)
    assert session.restart() == {}
    session.write(region, b"alive")


def test_two_threads_that_restart_get_one_dpu(session):
    kill(session)
    pids, threads = [], []
    for _ in range(2):
        threads.append(threading.Thread(target=lambda: pids.append(session.restart())))
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert pids == [{}, {}]
    session.write(session.empty(8), b"one")


def test_a_session_that_is_closed_while_its_dpu_starts_leaves_none(session):
    kill(session)
    reopen, pids = session._resources.reopen, []

    def closed_meanwhile():
        new = reopen()
        pids.append(new.owned_pid)
        session.close()
        return new

    object.__setattr__(session._resources, "reopen", closed_meanwhile)
    with pytest.raises(ClosedError):
        session.restart()
    until(lambda: gone(pids[0]), "the new DPU has ended")


def test_monitors_of_the_lost_dpu_end_and_new_ones_open(session):
    region = session.empty(64)
    monitor = session.monitor(region)
    kill(session)
    session.restart()
    with pytest.raises(ClosedError):
        monitor.read()
    with session.monitor(region) as new:
        until(new.read, "samples of the new DPU")
