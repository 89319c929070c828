# SPDX-License-Identifier: Apache-2.0
"""A killed DPU is started again from every panel, and from every way to open a dashboard."""

import os
import signal
import time

import pytest
from support.jupyter.panels import PanelError
from support.processes.waiting import gone, until

import dgkit
from dgkit.widgets.allocate.allocate_panel import AllocatePanel
from dgkit.widgets.dashboard import dashboard
from dgkit.widgets.hexview.hexview import HexView
from dgkit.widgets.latency.latency_panel import LatencyPlot
from dgkit.widgets.transfer.transfer_panel import TransferPanel

RESTART = "Start the DPU again"


def kill_dpu(session):
    pid = session.owned_pid
    os.kill(pid, signal.SIGKILL)
    until(lambda: gone(pid), "the DPU has ended")
    until(lambda: session.lost or _asked(session), "it is noticed")


def _asked(session):
    try:
        session.stats()
    except dgkit.DgkitError:
        return True
    return False


@pytest.mark.parametrize("kind", [AllocatePanel, HexView, LatencyPlot, TransferPanel])
def test_each_panel_starts_a_lost_dpu_again_and_goes_on(own_session, view, kind):
    region = own_session.empty(4096, name="kept")
    own_session.write(region, b"kept")
    panel = view(kind(own_session))
    kill_dpu(own_session)
    panel.panel.fail(dgkit.errors.PeerLost("the DPU is gone"))
    error = panel.of("failed")[-1]["error"]
    assert error["restart"] == RESTART
    assert RESTART in error["hint"]
    panel.ask("restart")
    panel.wait_for("restarted")
    assert own_session.read(region, 4) == b"kept"
    panel.wait_for("session", lambda fields: fields["session"]["label"] == "software DPU")
    assert region in panel.panel.session.regions


def test_the_hex_view_shows_the_same_region_and_its_history_goes_on(own_session, view):
    own_session.empty(64, name="other")
    region = own_session.empty(4096, name="kept")
    panel = view(HexView(own_session, region, history="1M"))
    own_session.write(region, b"before")
    kill_dpu(own_session)
    with pytest.raises(PanelError):
        panel.ask("fetch", view="one", at=0, n=8)
    panel.ask("restart")
    panel.wait_for("restarted")
    own_session.write(region, b"after", 8)
    reply = panel.ask("fetch", view="one", at=0, n=16)
    assert reply["buffers"][0] == b"before\0\0after\0\0\0"
    assert panel.panel.state()["history"]["last"] == 2


def test_a_running_plot_names_the_button_and_measures_again(own_session, view):
    panel = view(LatencyPlot(own_session, size=64))
    panel.panel.start()
    until(lambda: panel.panel.position()[1], "it measures")
    kill_dpu(own_session)
    error = until(lambda: panel.ask("hello")["error"], "the plot has noticed")
    assert error["restart"] == RESTART
    panel.ask("restart")
    panel.wait_for("restarted")
    run, before = panel.panel.position()
    assert before > 0
    until(lambda: panel.panel.position()[1] > before, "it measures by itself")
    assert panel.panel.position()[0] == run
    assert panel.ask("hello")["error"] is None
    assert "before a restart" in panel.panel.report().where
    panel.panel.stop()


@pytest.mark.parametrize(("call", "goes_on"), [("stop", False), ("clear", True)])
def test_after_a_restart_a_plot_that_was_stopped_rests(own_session, view, call, goes_on):
    panel = view(LatencyPlot(own_session, size=64))
    panel.panel.start()
    until(lambda: panel.ask("hello")["run"], "it measures")
    kill_dpu(own_session)
    until(lambda: panel.ask("hello")["error"], "the plot has noticed")
    getattr(panel.panel, call)()
    panel.ask("restart")
    panel.wait_for("restarted")
    if goes_on:
        until(lambda: panel.panel._live.measuring, "it measures")
    time.sleep(0.2)
    assert panel.panel._live.measuring == goes_on


def test_a_plot_that_has_not_noticed_the_loss_measures_again(own_session, view, occupied):
    plot = view(LatencyPlot(own_session)).panel
    plot.start()
    monitor = plot._live.monitor
    kill_dpu(own_session)
    own_session.restart()
    occupied.set()
    until(lambda: plot._live.monitor not in (None, monitor), "it has another monitor")
    until(lambda: plot.position()[1], "it measures by itself")
    plot.stop()


def test_a_dashboard_of_a_given_session_starts_its_dpu_again(own_session, view):
    region = own_session.empty(64, name="kept")
    board = view(dashboard(own_session))
    board.ask("watch", view="one", on=True)
    kill_dpu(own_session)
    lost = board.wait_for("status", lambda status: status["lost"])["lost"]
    assert lost["restart"] == RESTART
    board.ask("restart")
    assert board.wait_for("restarted")["state"]["lost"] is None
    own_session.write(region, b"alive")
    board.ask("watch", view="one", on=False)


def test_a_cell_that_opens_the_dashboard_of_a_lost_session_again_starts_its_dpu(own_session, view):
    board = view(dashboard(own_session))
    kill_dpu(own_session)
    assert dashboard(own_session) is board.panel
    own_session.write(own_session.empty(64), b"alive")


def test_no_button_is_named_where_the_dpu_was_started_by_another(session, view):
    panel = view(HexView(session))
    panel.panel.fail(dgkit.errors.PeerLost("the DPU is gone"))
    error = panel.of("failed")[-1]["error"]
    assert "restart" not in error
    assert RESTART not in error["hint"]
    with pytest.raises(PanelError, match="did not start this DPU"):
        panel.ask("restart")
