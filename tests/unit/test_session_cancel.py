# SPDX-License-Identifier: Apache-2.0
"""A transfer tells how far it is; one that is cancelled ends early, and the session goes on."""

import os
import signal
import threading
import time

import pytest

import dgkit
from dgkit.wire.connection import Connection

SIZE = 64 << 20


@pytest.fixture(scope="module")
def session():
    with dgkit.connect() as session:
        yield session


@pytest.mark.parametrize("kind", ["read", "write"])
def test_a_cancelled_transfer_ends_and_the_next_one_works(session, kind):
    with session.empty(SIZE) as region:
        data = bytes(SIZE)
        session.write(region, data)  # creates the staging memory, which needs the agent
        os.kill(session.owned_pid, signal.SIGSTOP)  # else it may be done before the cancel
        try:
            if kind == "write":
                transfer = session.start_write(region, data)
            else:
                transfer = session.start_read(region, SIZE)
            transfer.cancel()
        finally:
            os.kill(session.owned_pid, signal.SIGCONT)
        with pytest.raises(dgkit.PeerError, match="interrupted"):
            transfer.wait(timeout=20)
        assert transfer.progress < 1.0
        session.write(region, b"after")
        assert session.read(region, 5) == b"after"


def test_cancelling_what_is_done_changes_nothing(session):
    with session.empty(100) as region:
        transfer = session.start_write(region, b"hello")
        report = transfer.wait()
        transfer.cancel()
        assert transfer.wait() is report


def test_ctrl_c_before_a_wait_sleeps_does_not_keep_the_next_from_hearing_that_the_dpu_died(
    monkeypatch,
):
    def interrupted(*_):
        raise KeyboardInterrupt

    with dgkit.connect() as session, session.empty(1 << 20) as region:
        with monkeypatch.context() as patch:
            patch.setattr(Connection, "_sleep", interrupted)
            with pytest.raises(KeyboardInterrupt):
                session.bandwidth(region, seconds=60)
        killer = threading.Timer(0.3, os.kill, (session.owned_pid, signal.SIGKILL))
        killer.start()
        began = time.monotonic()
        with pytest.raises(dgkit.PeerLost):
            session.bandwidth(region, seconds=60)
        assert time.monotonic() - began < 10
        killer.join()
