# SPDX-License-Identifier: Apache-2.0
"""Regions of a session whose DPU is lost, taken over by another session."""

import os
import signal

import pytest
from support.processes.waiting import gone, until

import dgkit
from dgkit.errors import ClosedError


def lost_session():
    made = dgkit.connect()
    return made, [made.empty(64, name="mine"), made.empty(64, on="dpu", name="its own")]


def kill(session):
    os.kill(session.owned_pid, signal.SIGKILL)
    until(lambda: gone(session.owned_pid), "the DPU has ended")
    until(lambda: session._link.dead is not None or _asked(session), "it is noticed")


def _asked(session):
    try:
        session.stats()
    except dgkit.DgkitError:
        return True
    return False


def test_the_same_objects_are_regions_of_the_new_session_and_outlive_the_lost_one():
    lost, (mine, other) = lost_session()
    lost.write(mine, b"kept")
    number = id(mine)
    kill(lost)
    with dgkit.connect() as session:
        session.empty(8, name="was here")
        assert session.take_over(lost) == {mine: None}
        lost.close()
        assert id(session.regions[1]) == number
        assert mine.session is session
        assert session.read(mine, 4) == b"kept"
        assert other.closed
        mine.close()
        assert mine.closed
        with pytest.raises(ClosedError):
            session.read(mine, 4)


def test_a_session_cannot_take_over_from_itself():
    with dgkit.connect() as session, pytest.raises(ValueError, match="not another session"):
        session.take_over(session)


def test_what_is_left_of_a_closed_session_is_nothing():
    lost, _ = lost_session()
    lost.close()
    with dgkit.connect() as session:
        assert session.take_over(lost) == {}
