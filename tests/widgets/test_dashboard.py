"""dashboard() without a browser: one a session, nothing twice, nothing left, a DPU that is lost."""

import gc
import json
import os
import signal

import pytest
from children import run
from ipywidgets.widgets.widget import _instances
from waiting import children, gone, held, steady, until

import dgkit
from dgkit.errors import PeerLost
from dgkit.widgets.dashboard.board import dashboard


@pytest.fixture
def owned():
    """A dashboard with a DPU of its own."""
    made = dashboard()
    yield made
    made.close()


def kill_dpu(board):
    pid = board.session.owned_pid
    os.kill(pid, signal.SIGKILL)
    until(lambda: gone(pid), "the DPU has ended")


def test_the_public_name_is_this_one():
    assert dgkit.dashboard is dashboard


def test_it_has_the_four_panels_of_the_session_that_was_given(session, view):
    board = dashboard(session)
    state = view(board).ask("hello")
    assert board.session is session
    assert not board.owned
    assert state["panels"] == {
        name: panel.model_id for name, panel in board.panels._asdict().items()
    }


def test_it_says_who_the_sides_are_and_why_no_better_provider(session, view):
    state = view(dashboard(session)).ask("hello")
    sides = dict(state["sides"])
    assert f"pid {session.agent.pid}" in sides["DPU"]
    assert sides["this process"] == f"host, pid {os.getpid()}"
    assert sides["address"] == session.info["address"]
    assert dict(state["why"]) == session.info["dpu"]["why"]
    assert state["label"] == "software DPU"


def test_its_counters_move_with_the_session(session, view):
    board = view(dashboard(session))
    before = dict(board.ask("hello")["counters"])
    session.write(session.empty(4096), bytes(4096))
    after = dict(board.ask("hello")["counters"])
    names = ("DMA requests of this session", "moved by them", "regions")
    assert [before[name] for name in names] == ["0", "0 B", "0"]
    assert [after[name] for name in names] == ["1", "4 KiB", "1"]


def test_called_again_it_is_the_same_one(session, owned):
    given = dashboard(session)
    assert dashboard(session) is given
    assert dashboard() is owned
    assert owned is not given
    given.close()


def test_closed_it_leaves_a_session_that_was_given_open(session):
    region = session.empty(64)
    dashboard(session).close()
    assert not session.closed
    assert session.regions == (region,)


def test_its_close_ends_the_dpu_that_it_started():
    board = dashboard()
    pid = board.session.owned_pid
    board.close()
    board.close()
    assert board.session.closed
    until(lambda: gone(pid), "the DPU has ended")


def test_made_and_closed_again_and_again_it_leaves_nothing():
    dashboard().close()
    gc.collect()
    before, widgets = steady(held), set(_instances)
    for _ in range(5):
        dashboard().close()
    gc.collect()
    assert steady(held) == before
    assert not children()
    assert set(_instances) == widgets


def test_one_of_a_closed_session_is_closed_by_the_next(session, owned):
    with dgkit.connect() as other:
        board = dashboard(other)
    assert board.comm is not None
    dashboard(session).close()
    assert board.comm is None


def test_a_view_that_is_seen_hears_of_new_counters_and_no_other(session, view):
    board = view(dashboard(session))
    board.ask("seen", view="one", now=True)
    first = board.wait_for("status")
    session.empty(64)
    board.wait_for("status", lambda told: told["counters"] != first["counters"])
    board.ask("seen", view="one", now=False)
    until(lambda: board.panel._watching is None, "it no longer looks")


def test_a_lost_dpu_is_said_with_what_to_do(view, owned):
    board = view(owned)
    board.ask("seen", view="one", now=True)
    kill_dpu(owned)
    lost = board.wait_for("status", lambda told: told["lost"])["lost"]
    assert lost["kind"] == PeerLost.__name__
    assert "again" in lost["way_out"]
    board.ask("seen", view="one", now=False)


def test_a_lost_dpu_is_started_again_and_the_plot_stays(view, owned):
    board = view(owned)
    before, plot = board.ask("hello"), owned.panels.plot
    kill_dpu(owned)
    board.ask("restart")
    renewed = board.of("renewed")[-1]["state"]
    assert renewed["lost"] is None
    assert owned.panels.plot is plot
    assert plot.session is owned.session
    same = {name for name, model in renewed["panels"].items() if before["panels"][name] == model}
    assert same == {"plot"}
    owned.session.write(owned.session.empty(64), b"alive")


def test_a_dpu_that_lives_is_not_started_again(view, owned):
    pid = owned.session.owned_pid
    board = view(owned)
    board.ask("restart")
    assert owned.session.owned_pid == pid
    assert not board.of("renewed")


def test_called_again_after_the_dpu_was_lost_it_has_another(owned):
    pid = owned.session.owned_pid
    kill_dpu(owned)
    assert dashboard() is owned
    assert owned.session.owned_pid not in (0, pid)


def test_the_dpu_of_somebody_else_is_not_started_again(session, view):
    board = view(dashboard(session))
    with pytest.raises(Exception, match="did not start this DPU"):
        board.ask("restart")


def test_it_starts_and_stops_the_monitor(session, view):
    board = view(dashboard(session))
    assert board.ask("start")["running"]
    assert board.panel.panels.plot.running
    assert not board.ask("stop")["running"]


def test_without_a_kernel_it_shows_the_session_and_what_to_do(session, view):
    board = view(dashboard(session)).panel
    bundle = board._repr_mimebundle_()
    data = bundle[0] if isinstance(bundle, tuple) else bundle
    assert "software DPU" in data["text/html"]
    assert "run the cell" in data["text/html"]
    assert str(session.agent.pid) in data["text/plain"]
    assert len(json.dumps(data)) < 20_000


def test_a_closed_session_is_shown_as_closed(view):
    with dgkit.connect() as session:
        board = view(dashboard(session))
    state = board.ask("hello")
    assert state["label"] == "closed"
    assert state["lost"]["kind"] == "ClosedError"


def test_a_process_that_ends_with_a_dashboard_open_leaves_no_dpu():
    out = run("import dgkit; board = dgkit.dashboard(); print(board.session.owned_pid)")
    until(lambda: gone(int(out)), "the DPU has ended")
