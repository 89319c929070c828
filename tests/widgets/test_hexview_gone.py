# SPDX-License-Identifier: Apache-2.0
"""The hex view without a region, and when its region, its session or its DPU ends or stops."""

import gc
import os
import signal
import weakref

import pytest
from support.jupyter.panels import PanelError
from support.processes.waiting import stop, until

import dgkit
from dgkit.widgets.hexview.hexview import HexView


@pytest.fixture
def session(own_session):
    return own_session


@pytest.fixture
def region(session):
    return session.empty(4096, name="counters")


@pytest.fixture
def hexview(session, region, view):
    return view(HexView(session))


def fetch(view, at=0, n=64, name="one"):
    return view.ask("fetch", view=name, at=at, n=n)


def test_no_region_yet_and_then_one(session, view):
    hexview = view(HexView(session))
    state = hexview.ask("hello")
    assert state["region"] is None
    assert "session.empty" in state["empty_reason"]
    assert fetch(hexview)["region"] == 0
    session.empty(10, name="first")
    hexview.wait_for("state", lambda fields: (fields["region"] or {}).get("name") == "first")


def test_after_its_region_was_freed_it_follows_the_desk_to_another(session, hexview, region):
    fetch(hexview)
    session.empty(10, name="other")
    region.close()
    hexview.wait_for("state", lambda fields: (fields["region"] or {}).get("name") == "other")


def test_a_view_of_one_region_stays_with_it(session, region, view):
    session.empty(10, name="other")
    hexview = view(HexView(session, region))
    region.close()
    hexview.wait_for("state", lambda fields: "'counters' was freed" in fields["empty_reason"])
    assert hexview.ask("hello")["region"] is None


def test_a_freed_region_says_so_and_is_not_kept(hexview, region):
    fetch(hexview)
    hexview.ask("watch", on=True)
    hexview.ask("put", at=0, buffers=[b"!"])
    hexview.wait_for("edited")
    region.close()
    hexview.wait_for("state", lambda fields: "'counters' was freed" in fields["empty_reason"])
    assert fetch(hexview)["region"] == 0
    for name, fields in {
        "search": {"text": "a", "kind": "text", "start": 0},
        "copy": {"start": 0, "stop": 1, "form": "hex"},
        "undo": {},
        "redo": {},
    }.items():
        with pytest.raises(PanelError, match="was freed"):
            hexview.ask(name, **fields)
    with pytest.raises(dgkit.ClosedError, match="was freed"):
        hexview.panel.goto(0)
    assert not hexview.errors
    assert "was freed" in hexview.panel.static_html()


def test_a_search_ends_with_its_region(session, view):
    region = session.empty(1 << 28, name="large")
    hexview = view(HexView(session))
    hexview.ask("search", text="x", kind="text", start=0)
    region.close(timeout=5)
    hexview.wait_for("state", lambda fields: "was freed" in fields["empty_reason"])
    assert hexview.ask("hello")["search"] == {}


def test_a_closed_session_says_so(view):
    with dgkit.connect() as session:
        session.empty(10)
        hexview = view(HexView(session))
        fetch(hexview)
        hexview.ask("watch", on=True)
    hexview.wait_for("state", lambda fields: fields["closed"])
    assert hexview.ask("hello")["empty_reason"] == "the session is closed"
    assert fetch(hexview)["region"] == 0
    assert "closed" in hexview.panel.static_html()


def test_a_killed_dpu_is_said_once_and_watching_ends(session, hexview):
    fetch(hexview)
    hexview.ask("watch", on=True)
    os.kill(session.owned_pid, signal.SIGKILL)
    hexview.wait_for("failed")
    hexview.wait_for("state", lambda fields: not fields["live"])
    with pytest.raises(PanelError) as caught:
        fetch(hexview)
    assert caught.value.kind == "PeerLost"
    assert caught.value.hint
    assert len(hexview.errors) == 1
    with pytest.raises(PanelError):
        hexview.ask("put", at=0, buffers=[b"a"])
    hexview.ask("show", source="host")
    assert fetch(hexview)["size"] == 64, "the host still has its memory"


def test_a_stopped_dpu_costs_a_bounded_time_once_and_goes_on_when_it_does(session, hexview):
    fetch(hexview)
    stop(session.owned_pid)
    try:
        with pytest.raises(PanelError) as caught:
            fetch(hexview)
        assert caught.value.kind == "PeerTimeout"
        with pytest.raises(PanelError, match="still not answered"):
            fetch(hexview)
        with pytest.raises(PanelError, match="still not answered"):
            hexview.ask("put", at=0, buffers=[b"a"])
    finally:
        os.kill(session.owned_pid, signal.SIGCONT)

    def again():
        try:
            return fetch(hexview)
        except PanelError:
            return None

    assert until(again, "it answers")["size"] == 64


def test_a_closed_view_keeps_no_region_and_no_task(session, view):
    hexview = view(HexView(session))
    region = session.empty(1 << 24)
    hexview.wait_for("state", lambda fields: fields["region"])
    fetch(hexview)
    hexview.ask("watch", on=True)
    hexview.ask("search", text="x", kind="text", start=0)
    array = weakref.ref(region.local)
    hexview.panel.close()
    region.close(timeout=5)
    del region
    gc.collect()
    assert array() is None
