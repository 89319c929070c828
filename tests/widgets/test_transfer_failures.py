# SPDX-License-Identifier: Apache-2.0
"""Transfers of TransferPanel that are cancelled, or whose DPU, region or session disappears."""

import os
import signal

import pytest
from support.processes.waiting import gone, stop, until

from dgkit.widgets.base import scheduler
from dgkit.widgets.transfer.transfer_panel import TransferPanel

MIB = 1 << 20
LONG = {"pattern": "ones", "size": 32 * MIB, "repeat": 10_000}  # minutes of it


@pytest.fixture
def session(own_session):
    return own_session


@pytest.fixture
def panel(session, view):
    return view(TransferPanel(session))


@pytest.fixture
def region(session):
    return session.empty(32 * MIB, name="r")


def long_run(panel, region, depth=1):
    """A run that is on its way: some of it is done."""
    run = panel.panel.transfer("write", region, **LONG, depth=depth)
    panel.wait_for("run", lambda fields: fields["run"] and fields["run"]["fraction"] > 0)
    return run


def cancelled(records):
    return len([record for record in records if record["status"] == "CANCELLED"])


def results(panel):
    return until(lambda: panel.of("results"), "results")[-1]["completions"]


def test_progress_is_reported_and_a_new_view_sees_it(panel, region, view):
    run = long_run(panel, region)
    state = view(panel.panel).ask("hello")["run"]
    assert (state["what"], state["repeat"]) == ("write r", 10_000)
    assert 0 < state["fraction"] < 1
    run.cancel()
    run.wait(10)


def test_a_second_start_is_refused_while_one_runs(panel, region):
    run = long_run(panel, region)
    with pytest.raises(ValueError, match="transfers are running"):
        panel.panel.transfer("read", region, size=1)
    run.cancel()
    run.wait(10)
    panel.panel.transfer("read", region, size=1).wait(10)


@pytest.mark.parametrize("depth", [1, 4])
def test_cancel_ends_what_is_in_flight_and_each_of_it_is_listed(panel, session, region, depth):
    run = long_run(panel, region, depth)
    panel.ask("cancel")
    assert run.wait(10) is run
    records = results(panel)
    assert {record["status"] for record in records[-depth:]} <= {"CANCELLED", "OK"}
    assert len(records) == run.done + cancelled(records)
    assert panel.of("run")[-1]["ended"].endswith("then the run was cancelled.")
    assert not panel.of("failed")
    panel.ask("cancel")
    assert session.read(region, 1) == b"\xff"
    assert panel.panel.transfer("write", region, b"x").wait(10).error is None


@pytest.mark.parametrize("depth", [1, 4])
def test_a_killed_dpu_ends_all_that_is_pending_as_peer_lost(panel, session, region, depth):
    run = long_run(panel, region, depth)
    os.kill(session.owned_pid, signal.SIGKILL)
    until(lambda: gone(session.owned_pid), "it is dead")
    with pytest.raises(ConnectionError):
        run.wait(5)
    assert [each["status"] for each in results(panel)[-depth:]] == ["PEER_LOST"] * depth
    assert panel.of("run")[-1]["ended"].endswith("then one failed.")
    assert panel.wait_for("failed")["error"]["kind"] == "PeerLost"


def test_a_region_that_is_freed_meanwhile_ends_the_run_with_an_error_text(panel, session, region):
    run = long_run(panel, region)
    panel.panel._session.regions[0].close(timeout=10)
    with pytest.raises(Exception, match=r"closed|revoked|region"):
        run.wait(10)
    assert panel.wait_for("failed")["error"]["text"]
    assert results(panel)[-1]["status"] != "OK"
    assert session.write(session.empty(8), b"goes on").size == 7


def test_a_session_that_is_closed_meanwhile_ends_the_run(session, view):
    panel = view(TransferPanel(session))
    run = long_run(panel, session.empty(32 * MIB, name="r"))
    session.close()
    with pytest.raises(ValueError, match="closed"):
        run.wait(10)
    assert panel.wait_for("failed")["error"]["kind"] == "ClosedError"


def test_a_stopped_dpu_is_reported_as_stalled_and_given_up(panel, session, region, monkeypatch):
    monkeypatch.setattr(scheduler, "STALL_TIMEOUT_S", 2.0)
    run = long_run(panel, region)
    stop(session.owned_pid)
    try:
        with pytest.raises(TimeoutError, match="no progress"):
            run.wait(20)
        assert any(fields["run"] and fields["run"]["silent_s"] > 0.2 for fields in panel.of("run"))
        assert results(panel)[-1]["status"] == "CANCELLED"
    finally:
        os.kill(session.owned_pid, signal.SIGCONT)


def test_cancel_works_while_the_dpu_is_stopped(panel, session, region):
    run = long_run(panel, region)
    stop(session.owned_pid)
    try:
        panel.ask("cancel")
        run.wait(10)
        assert results(panel)[-1]["status"] == "CANCELLED"
    finally:
        os.kill(session.owned_pid, signal.SIGCONT)
    assert panel.panel.transfer("write", region, b"x").wait(10).error is None


def test_closing_the_panel_ends_its_transfers(session, region, view):
    panel = view(TransferPanel(session))
    run = long_run(panel, region)
    panel.panel.close()
    assert run.ended
    assert session.write(region, b"x").size == 1


@pytest.mark.usefixtures("occupied")
def test_closed_before_the_first_step_a_run_has_ended_for_who_waits(session, region, view):
    panel = view(TransferPanel(session))
    run = panel.panel.transfer("write", region, b"x")
    panel.panel.close()
    assert run.wait(5).ended
    assert run.outcome().endswith("then the run was cancelled.")
    assert not session.regions[0].closed


def test_an_unforeseen_error_ends_the_run_and_is_shown(panel, region, monkeypatch):
    monkeypatch.setattr("dgkit.widgets.transfer.request_runner.success_record", lambda *_: 1 / 0)
    run = panel.panel.transfer("write", region, b"x")
    with pytest.raises(ZeroDivisionError):
        run.wait(10)
    assert "division" in panel.wait_for("failed")["error"]["text"]
