# SPDX-License-Identifier: Apache-2.0
"""What ends a LatencyPlot: it is closed, its DPU or session is gone, its cell is run again."""

import os
import signal

import pytest
from support.jupyter.latency import measured, taken
from support.jupyter.panels import PanelError, View
from support.processes.waiting import gone, stop, until

import dgkit
from dgkit import cell_lifetime
from dgkit.errors import ClosedError
from dgkit.session import Session
from dgkit.widgets.latency.latency_panel import LatencyPlot


@pytest.fixture
def session(own_session):
    return own_session


def test_closed_it_measures_no_more_and_keeps_no_session(session, plot):
    plot.start()
    monitor = plot._live.monitor
    plot.close()
    plot.close()
    assert monitor.closed
    with pytest.raises(ClosedError):
        plot.start()
    with pytest.raises(ClosedError):
        _ = plot.session


def test_a_killed_dpu_ends_it_with_words_and_what_was_measured_stays(plot, seen):
    plot.start()
    measured(plot)
    os.kill(plot.session.owned_pid, signal.SIGKILL)
    whole = seen.wait_for("full_state", lambda fields: fields["error"])
    assert not whole["running"]
    assert "gone" in whole["error"]["text"]
    assert "Start the DPU again" in whole["error"]["hint"]
    assert "stay on the plot" in whole["error"]["hint"]
    until(lambda: not plot.running, "its trait follows what the page was told")
    assert plot.report().percentiles.n >= 200
    assert seen.ask("hello")["error"] == whole["error"]  # a reloaded page shows it, too
    with pytest.raises(PanelError, match="gone"):
        seen.ask("start")
    assert taken(plot) >= 200


def test_after_another_connect_it_goes_on_there(plot, seen):
    plot.start()
    measured(plot)
    os.kill(plot.session.owned_pid, signal.SIGKILL)
    seen.wait_for("full_state", lambda fields: fields["error"])
    with dgkit.connect() as other:
        plot.session = other
        assert plot.report().percentiles.n >= 200
        plot.start()
        measured(plot)
        assert plot._view_model.run.number == 2
        assert seen.of("full_state")[-1]["error"] is None
        plot.close()


def test_a_closed_session_ends_it_with_words(plot, seen):
    plot.start()
    measured(plot)
    plot.session.close()
    whole = seen.wait_for("full_state", lambda fields: fields["error"])
    assert whole["label"] == "closed"
    assert "closed" in whole["error"]["text"]
    assert plot.report()


def test_a_region_that_is_freed_meanwhile_ends_it_with_words(session, plot, seen):
    region = session.empty(4096, name="mine")
    plot.start(region=region)
    measured(plot)
    region.close()
    whole = seen.wait_for("full_state", lambda fields: fields["error"])
    assert "'mine' was closed" in whole["error"]["text"]
    assert whole["setting"]["region"] == region.id
    plot.start(region=None)
    measured(plot)


def test_a_dpu_that_is_stopped_is_waited_for(plot, seen):
    plot.start()
    measured(plot)
    pid = plot.session.owned_pid
    stop(pid)
    try:
        assert seen.wait_for("waiting")["text"]
        assert plot.running
    finally:
        os.kill(pid, signal.SIGCONT)
    seen.wait_for("waiting", lambda fields: fields["text"] == "")
    before = taken(plot)
    measured(plot, before + 100)


@pytest.mark.usefixtures("occupied")
def test_stopped_before_its_first_step_it_leaves_no_monitor(plot):
    plot.start()
    plot.stop()
    assert not plot.session.monitors


def test_a_cell_that_is_run_again_closes_the_plot_of_its_last_run(session, monkeypatch):
    monkeypatch.setattr(cell_lifetime, "current_run", lambda: ("cell 1", "run 1"))
    first, beside = LatencyPlot(session), LatencyPlot(session)
    first.start()
    monkeypatch.setattr(cell_lifetime, "current_run", lambda: ("cell 2", "run 2"))
    elsewhere = LatencyPlot(session)
    monkeypatch.setattr(cell_lifetime, "current_run", lambda: ("cell 1", "run 3"))
    again = LatencyPlot(session)
    assert first.closed
    assert beside.closed
    assert not first.running
    assert not session.monitors
    assert not elsewhere.closed
    assert not again.closed
    elsewhere.close()
    again.close()


def test_outside_a_cell_no_plot_closes_another(session):
    first, second = LatencyPlot(session), LatencyPlot(session)
    assert not first.closed
    first.close()
    second.close()


def test_a_session_that_ended_is_not_kept_by_a_closed_plot():
    session = dgkit.connect()
    plot = LatencyPlot(session)
    plot.start()
    pid = session.owned_pid
    plot.close()
    session.close()
    until(lambda: gone(pid), "the DPU has ended")
    assert not [kept for kept in vars(plot).values() if isinstance(kept, Session)]


def test_the_provider_fault_is_named_everywhere(view):
    with dgkit.connect(provider="fault") as session:
        plot = view(LatencyPlot(session)).panel
        plot.start()
        measured(plot)
        state = View(plot).ask("hello")
        assert state["run"]["label"] == state["label"] == "software DPU, injected faults"
        assert "injected faults" in plot.to_csv()
        assert "injected faults" in plot.static_html()
        plot.close()
