# SPDX-License-Identifier: Apache-2.0
"""dashboard() without a browser: one a session, nothing twice, nothing left, a DPU that is lost."""

import gc
import itertools
import json
import os
import re
import signal
import sys
import threading
import time
from types import SimpleNamespace

import numpy as np
import pytest
from ipywidgets import Layout
from ipywidgets.widgets.widget import _instances
from support.jupyter.panels import PanelError
from support.processes.children import run
from support.processes.waiting import children, gone, held, steady, until
from traitlets import TraitError

import dgkit
from dgkit.errors import ClosedError, PeerLost
from dgkit.session import Session
from dgkit.session.connect import connect_to
from dgkit.widgets.base.session_model import SessionModel
from dgkit.widgets.dashboard import dashboard
from dgkit.widgets.hexview.fetch import Reader
from dgkit.widgets.transfer.transfer_panel import TransferPanel


@pytest.fixture
def dpus():
    """Returns the child processes that a test has started, without the DPU that all tests share."""
    before = set(children())
    return lambda: [pid for pid in children() if pid not in before]


@pytest.fixture
def session(own_session):
    return own_session


@pytest.fixture
def owned():
    """A dashboard that started its DPU."""
    made = dashboard()
    yield made
    made.close()


def kill_dpu(board):
    pid = board.session.owned_pid
    os.kill(pid, signal.SIGKILL)
    until(lambda: gone(pid), "the DPU has ended")


def idle():
    return "dgkit-frames" not in [thread.name for thread in threading.enumerate()]


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


def states(fields):
    return [step["state"] for step in fields["sample"]["steps"]]


def counted(status):
    names = ("DMA requests", "moved by them", "regions")
    counters = dict(status["counters"])
    return [counters.get(name) for name in names]


def test_its_counters_move_with_the_session(session, view):
    board = view(dashboard(session))
    board.ask("watch", view="one", on=True)
    board.wait_for("status", lambda status: counted(status) == ["0", "0 B", "0"])
    region = session.empty(3 << 20)
    session.write(region, bytes(4096))
    for size in (16, 3 << 20):
        Reader().read(region, ["dpu"], 0, size)  # as views do: not counted
    board.wait_for("status", lambda status: counted(status) == ["1", "4 KiB", "1"])
    assert counted(board.ask("hello")) == ["1", "4 KiB", "1"]


_SAID = (
    r"The software DPU wrote 64 KiB in 16 DMA writes of [\d.]+ µs: the image below\. "
    r"Then ([\d,]+) writes of 64 B took [\d.]+ µs at the median\."
)


def test_show_me_leaves_a_running_monitor_and_states_what_it_measured_itself(session, view):
    board = view(dashboard(session))
    plot = board.panel.panels.plot
    plot.start(count=4096)
    until(lambda: plot.position()[1] > 100_000, "it has measured before")
    run, before = plot.position()
    board.ask("show_me")
    shown = board.wait_for("sample", lambda fields: states(fields) == ["done"] * 4)["sample"]
    stated = int(re.fullmatch(_SAID, shown["said"])[1].replace(",", ""))
    assert plot.measuring
    assert plot.position()[0] == run
    assert 0 < stated <= plot.position()[1] - before
    plot.stop()


def test_a_stop_while_show_me_allocates_lasts(session, view, monkeypatch):
    board, empty, may = view(dashboard(session)), session.empty, threading.Event()
    monkeypatch.setattr(session, "empty", lambda *args, **kw: may.wait(10) and empty(*args, **kw))
    board.ask("show_me")
    board.ask("stop")
    time.sleep(0.05)  # the plot has stopped
    may.set()
    board.wait_for("sample", lambda fields: states(fields) == ["done"] * 4)
    assert not board.panel.panels.plot.measuring


def test_show_me_runs_while_a_cell_does(session, view, monkeypatch):
    monkeypatch.setattr(TransferPanel, "refresh_traits", lambda _: None)  # comes after the cell
    board = view(dashboard(session))
    board.ask("show_me")
    board.wait_for("sample", lambda fields: states(fields) == ["done"] * 4)


def test_show_me_runs_each_step_and_names_its_python(session, view):
    board = view(dashboard(session))
    strip = view(board.panel.panels.hex)
    strip.ask("overview", view="one")
    board.ask("show_me")
    with pytest.raises(PanelError, match="the steps are running"):
        board.ask("show_me")
    done = lambda fields: states(fields) == ["done"] * 4  # noqa: E731
    shown = board.wait_for("sample", done)["sample"]
    [region] = SessionModel.of(session).regions  # without the memory of the plot
    panels, image = board.panel.panels, region.array.copy()
    assert (region.name, region.array.shape, image.min(), image.max()) == (
        "sample", (128, 512), 0, 254,
    )  # fmt: skip
    assert panels.transfer.last_completion["status"] == "OK"
    assert (panels.hex.region, panels.hex.value) == (region, image.tobytes()[:16])
    assert panels.hex.image["width"] == 0
    assert panels.plot.measuring
    assert re.fullmatch(_SAID, shown["said"])
    panels.plot.stop()
    seen = len(strip.of("overview"))
    strip.ask("overview", view="one")
    until(lambda: len(strip.of("overview")) > seen, "the overview is read")
    *_, changed = [message for message in strip.messages if message[0]["kind"] == "overview"][-1][1]
    assert not any(changed), "the image is not marked as a change"
    state = board.ask("hello")
    assert state["sample"] == shown
    assert re.fullmatch(r"[\d.]+ µs", state["latency"]["value"])
    assert "(software DPU)" in state["latency"]["text"]
    scope = {"session": session}
    exec("\n".join(step["python"] for step in shown["steps"]), scope)
    assert region.closed
    assert (scope["region"].array == image).all()
    board.ask("hide_sample")
    assert board.ask("hello")["sample"] == {"steps": [], "said": ""}


def test_a_view_of_a_dashboard_that_started_its_dpu_shows_at_once_what_it_can_do(view, session):
    given = view(dashboard(session))
    given.ask("watch", view="one", on=True)
    board = view(dashboard())
    board.ask("watch", view="one", on=True)
    board.wait_for("sample", lambda fields: states(fields)[0] == "running")
    given.wait_for("status")
    assert not given.of("sample")
    assert "“Show me” allocates one" in given.ask("hello")["sample"]["said"]
    session.empty(64)
    given.wait_for("sample", lambda fields: not fields["sample"]["said"])


@pytest.fixture
def in_a_cell(monkeypatch):
    monkeypatch.setattr("IPython.display.publish_display_data", lambda *_, **__: None)
    monkeypatch.setattr("dgkit.cell_lifetime.current_run", lambda: ("cell", "run"))


@pytest.mark.usefixtures("in_a_cell")
def test_displayed_in_a_cell_it_begins_before_the_page_has_its_panels(view):
    board = view(dashboard())
    board.panel._ipython_display_()
    board.wait_for("sample", lambda fields: states(fields)[0] == "running")


@pytest.mark.usefixtures("in_a_cell")
def test_its_frame_is_shown_before_the_dpu_runs_and_the_cell_fails_with_the_dpu(monkeypatch):
    may, shown = threading.Event(), []
    session = connect_to  # of a DPU that starts when the frame is there
    starts = sys.modules["dgkit.session.connect"]
    monkeypatch.setattr(starts, "connect_to", lambda dpu: may.wait(20) and session(dpu))
    monkeypatch.setattr(
        "IPython.display.publish_display_data", lambda *_, **__: shown.append(may.set())
    )
    board = dashboard()
    assert not board.opened
    board._ipython_display_()
    assert shown
    assert board.regions == board.session.regions
    board.close()
    monkeypatch.setattr(starts, "connect_to", lost)
    board = dashboard()
    with pytest.raises(PeerLost, match="it ended"):
        board._ipython_display_()
    assert board.closed


@pytest.mark.usefixtures("in_a_cell")
def test_its_frame_has_a_number_before_the_panels_are_imported(view, monkeypatch):
    panels = sys.modules["dgkit.widgets.dashboard.dashboard_panel"]
    may, there = threading.Event(), panels.import_all
    monkeypatch.setattr(panels, "import_all", lambda: may.wait(20) and there())
    board = view(dashboard())
    shown = threading.Thread(target=board.panel._ipython_display_)
    shown.start()
    latency = board.wait_for("first")["latency"]
    assert not board.panel.opened
    may.set()
    shown.join()
    assert re.fullmatch(r"[\d,.]+ µs", latency["value"])
    assert latency["text"].startswith("p50 of the first 200 samples: write 64 B")


def lost(dpu):
    dpu.close()
    raise PeerLost("it ended")


@pytest.mark.usefixtures("in_a_cell")
def test_each_cell_that_opens_it_moves_it_until_the_user_stops_it(owned):
    plot = owned.panels.plot
    owned.session.empty(64)  # it measures, and leaves the user's region alone
    for _ in range(2):
        dashboard()._ipython_display_()
        until(lambda: plot.measuring, "it measures")
        owned.stop()
        until(lambda: not plot.measuring, "it is stopped")
        owned._ipython_display_()
        owned.watch("one", True)
        until(lambda: owned._sent_status, "a view was updated")
        assert not plot.measuring
        owned.watch("one", False)
    assert len(owned.session.regions) == 2  # one is the plot's


@pytest.mark.usefixtures("in_a_cell")
def test_one_that_was_stopped_before_it_is_shown_does_nothing_by_itself(view):
    board = view(dashboard())
    board.panel.stop()
    board.panel._ipython_display_()
    board.ask("watch", view="one", on=True)
    board.wait_for("status")
    assert not board.of("sample")
    assert not board.panel.session.regions


def test_its_panels_are_in_rows_or_in_tabs_in_all_views(session, view):
    board = view(dashboard(session))
    first = {"arrangement": "rows", "tab": "hex"}
    assert board.ask("hello")["arranged"] == first
    board.ask("arrange", arrangement="tabs", tab="hex")
    chosen = {"arrangement": "tabs", "tab": "hex"}
    assert [fields["arranged"] for fields in board.of("arranged")] == [chosen]
    assert board.ask("hello")["arranged"] == chosen
    with pytest.raises(PanelError, match="arrangement is 'heap'; it must be one of"):
        board.ask("arrange", arrangement="heap", tab="plot")
    with pytest.raises(PanelError, match="tab is 'Plot'; it must be one of"):
        board.ask("arrange", arrangement="rows", tab="Plot")
    panel = board.panel
    assert (panel.arrangement, panel.tab) == ("tabs", "hex")
    panel.tab = "plot"
    assert board.of("arranged")[-1]["arranged"]["tab"] == "plot"
    with pytest.raises(TraitError, match="arrangement is 'heap'"):
        panel.arrangement = "heap"
    assert (panel.arrangement, panel.tab) == ("tabs", "plot")


def test_in_tabs_each_step_of_show_me_is_in_view(session, view):
    board = view(dashboard(session))
    board.ask("arrange", arrangement="tabs", tab="plot")
    board.ask("show_me")
    done = lambda fields: states(fields) == ["done"] * 4  # noqa: E731
    board.wait_for("sample", done)
    tabs = [fields["arranged"]["tab"] for fields in board.of("arranged")]
    assert tabs == ["plot", "allocate", "transfer", "hex", "plot"]


def test_it_shows_the_load_of_the_machine(session, view):
    board = view(dashboard(session))
    assert board.ask("hello")["gauges"] == []
    board.panel._gauges.read = lambda: [{"name": f"reading {next(serial)}"}]
    serial = itertools.count()
    board.ask("watch", view="one", on=True)
    board.wait_for("status")
    second = board.wait_for("gauges", lambda fields: fields["gauges"] == [{"name": "reading 1"}])
    assert board.ask("hello")["gauges"][0]["name"] >= second["gauges"][0]["name"]


def test_a_step_that_fails_says_so_and_ends_the_steps(session, view, monkeypatch):
    board = view(dashboard(session))

    def refuse(*_args, **_how):
        raise dgkit.AccessDenied("not today")

    monkeypatch.setattr(session, "empty", refuse)
    board.ask("show_me")
    board.wait_for("sample", lambda fields: states(fields) == ["failed"] + 3 * ["waiting"])
    until(lambda: board.errors == ["not today"], "the error is shown")


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
    session = board.session
    board.close()
    board.close()
    assert session.closed
    with pytest.raises(ClosedError):
        _ = board.session
    until(lambda: gone(pid), "the DPU has ended")


def test_made_and_closed_again_and_again_it_leaves_models_that_are_closed_and_nothing_else(dpus):
    def owners():
        gc.collect()
        return [one for one in gc.get_objects() if isinstance(one, Session) and one.owned_pid]

    dashboard().close()
    others = owners()  # of IPython's namespace, where other tests have bound them
    before, widgets = steady(held), set(_instances)
    for _ in range(5):
        dashboard().close()
    gc.collect()
    assert steady(held) == before
    assert not dpus()
    left = [_instances[key] for key in set(_instances) - widgets]
    assert all(isinstance(one, Layout) or one.closed for one in left)

    def nothing_refers_to_a_session():
        """A thread that ends may still have one in a frame."""
        return not any(one not in others for one in owners())

    until(nothing_refers_to_a_session, "the closed sessions have gone")


def test_one_of_a_closed_session_is_closed_by_the_next(session, owned):
    with dgkit.connect() as other:
        board = dashboard(other)
    assert not board.closed
    dashboard(session).close()
    assert board.closed


def test_a_view_that_is_visible_hears_of_new_counters_and_no_other(session, view):
    board = view(dashboard(session))
    board.ask("watch", view="one", on=True)
    first = board.wait_for("status")
    session.empty(64)
    board.wait_for("status", lambda status: status["counters"] != first["counters"])
    board.ask("watch", view="one", on=False)
    until(lambda: board.panel._updates is None, "it no longer looks")


def test_a_lost_dpu_is_said_with_what_to_do(view, owned):
    board = view(owned)
    board.ask("watch", view="one", on=True)
    kill_dpu(owned)
    lost = board.wait_for("status", lambda status: status["lost"])["lost"]
    assert lost["kind"] == PeerLost.__name__
    assert "again" in lost["hint"]
    board.ask("watch", view="one", on=False)


def test_a_lost_dpu_is_started_again_and_the_panels_stay(view, owned):
    board = view(owned)
    before, plot = board.ask("hello"), owned.panels.plot
    kill_dpu(owned)
    board.ask("restart")
    restarted = board.wait_for("restarted")["state"]
    assert restarted["lost"] is None
    assert owned.panels.plot is plot
    assert plot.session is owned.session
    same = {name for name, model in restarted["panels"].items() if before["panels"][name] == model}
    assert same == set(before["panels"])
    owned.session.write(owned.session.empty(64), b"alive")


def test_a_dpu_that_is_started_again_has_the_regions_of_the_host_and_no_memory_of_the_last(
    view, owned
):
    board, lost = view(owned), owned.session
    array = np.arange(64, dtype="u4")
    kept = [lost.empty(4096, name="first"), lost.register(array, name="array")]
    lost.empty(64, on="dpu", name="at the DPU")
    lost.write(kept[0], b"bytes of the host")
    pointer = kept[0].array.ctypes.data
    SessionModel.of(lost).select(kept[1].id)
    owned.panels.plot.change(region=kept[0], size=64)
    plot = view(owned.panels.plot)
    kill_dpu(owned)
    board.ask("restart")
    restarted = board.wait_for("restarted")
    until(idle, "it has ended")
    new = owned.session
    assert new.regions == tuple(kept)
    assert [region.name for region in new.regions] == ["first", "array"]
    assert all(region.session is new and region.token and not region.closed for region in kept)
    assert kept[0].array.ctypes.data == pointer
    assert new.read(kept[0], 17) == b"bytes of the host"
    assert new.read(kept[1], array.nbytes) == array.tobytes()
    new.write(kept[1], b"\xff" * 4)
    assert array[0] == 0xFFFFFFFF
    assert board.ask("hello")["lost"] is None
    names = [one["name"] for one in view(owned.panels.hex).ask("hello")["regions"]]
    assert names == ["first", "array"]
    assert SessionModel.of(new).selected == kept[1].id
    assert owned.panels.plot.setting.region == kept[0].id
    assert restarted["state"]["lost"] is None
    states = [*plot.of("full_state"), *(one["session"] for one in plot.of("session"))]
    assert states[-1]["label"] == "software DPU"
    owned.panels.plot.start()


def test_a_dpu_that_lives_is_not_started_again(view, owned):
    pid = owned.session.owned_pid
    board = view(owned)
    board.ask("restart")
    until(idle, "it has looked")
    assert owned.session.owned_pid == pid
    assert not board.of("restarted")


def test_called_again_after_the_dpu_was_lost_it_has_another(owned):
    pid = owned.session.owned_pid
    kill_dpu(owned)
    assert dashboard() is owned
    assert owned.session.owned_pid not in (0, pid)


def test_a_dpu_of_another_owner_is_not_started_again(software_dpu, view):
    with dgkit.connect(software_dpu) as session:
        board = view(dashboard(session))
        with pytest.raises(Exception, match="did not start this DPU"):
            board.ask("restart")


def test_it_starts_and_stops_the_monitor(session, view):
    board = view(dashboard(session))
    board.ask("start")
    board.wait_for("status", lambda status: status["running"])
    assert board.panel.panels.plot.running
    board.panel._query_agent()
    assert counted(board.ask("hello"))[2] == "0", "the plot's own memory is none of the regions"
    board.ask("stop")
    until(lambda: not board.of("status")[-1]["running"], "it is reported")
    assert not board.panel.panels.plot.running


def test_two_views_that_start_a_lost_dpu_again_start_one(dpus, view, owned):
    board = view(owned)
    kill_dpu(owned)
    for _ in range(2):
        board.ask("restart")
    board.wait_for("restarted")
    until(idle, "both have ended")
    assert len(board.of("restarted")) == 1
    assert dpus() == [owned.session.owned_pid]


def test_closed_while_it_starts_a_dpu_again_it_leaves_none(dpus, view, owned):
    board = view(owned)
    kill_dpu(owned)
    board.ask("restart")
    owned.close()
    until(idle, "it has ended")
    until(lambda: not dpus(), "no DPU is left")


def test_an_agent_that_does_not_answer_holds_no_other_panel_up(session, view, monkeypatch):
    board, asked, go = view(dashboard(session)), threading.Event(), threading.Event()

    def stats():
        asked.set()
        assert go.wait(20)
        return {}

    monkeypatch.setattr(session, "stats", stats)
    board.ask("watch", view="one", on=True)
    assert asked.wait(20)
    with session.empty(64) as region:
        board.panel.panels.transfer.transfer("write", region, b"x").wait(20)
    go.set()


def test_it_can_be_closed_while_the_frame_thread_looks_who_sees_it(session, view, monkeypatch):
    board = view(dashboard(session))
    looks, go = threading.Event(), threading.Event()
    look = board.panel._is_visible

    def is_seen(_board):
        looks.set()
        assert go.wait(20)
        return look()

    monkeypatch.setattr(type(board.panel), "_is_visible", is_seen)
    board.ask("watch", view="one", on=True)
    assert looks.wait(20)
    closing = threading.Thread(target=board.panel.close)
    closing.start()
    until(lambda: board.panel._ending or board.panel.closed, "close() has begun")
    go.set()
    closing.join(20)
    assert not closing.is_alive()


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


class Document:
    def on_session_destroyed(self, call):
        self.end = call


def test_each_document_of_panel_has_a_dashboard_that_ends_with_it(monkeypatch):
    state = SimpleNamespace(curdoc=None)
    monkeypatch.setitem(sys.modules, "panel.io.state", SimpleNamespace(state=state))
    first, second = Document(), Document()
    boards = []
    for state.curdoc in (first, second, first):
        boards.append(dashboard())
    assert boards[2] is boards[0] is not boards[1]
    first.end(None)
    second.end(None)
    assert all(board.closed for board in boards)
