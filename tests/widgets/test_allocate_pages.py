# SPDX-License-Identifier: Apache-2.0
"""Memory of AllocatePanel that is still getting its pages: shown, and given back if cancelled."""

import threading

import pytest
from support.processes.waiting import until

from dgkit.errors import OutOfMemory
from dgkit.widgets.allocate.allocate_panel import AllocatePanel

FORM = {"shape": "64K", "dtype": "u1", "on": "host", "fill": "ones", "name": "big"}


@pytest.fixture
def panel(session, view):
    return view(AllocatePanel(session))


@pytest.fixture
def pages(session, monkeypatch):
    """Set, and the pages are there."""
    there, empty = threading.Event(), session.empty

    def slow(*args, **options):
        assert there.wait(10)
        return empty(*args, **options)

    monkeypatch.setattr(session, "empty", slow)
    yield there
    there.set()


def test_it_is_shown_while_it_takes_its_pages(panel, pages):
    number = panel.ask("make", **FORM)["job"]
    waiting = {"id": number, "name": "big", "done": 0, "total": 0}
    assert panel.of("jobs")[-1]["jobs"] == panel.ask("hello")["jobs"] == [waiting]
    pages.set()
    assert panel.wait_for("status")["text"].startswith("big: 64 KiB on")
    assert panel.ask("hello")["jobs"] == []


@pytest.mark.parametrize("started", [False, True])
def test_cancelled_meanwhile_no_region_is_left(panel, session, pages, started):
    made = panel.ask("make", **FORM)["job"]
    if started:
        until(
            lambda: "dgkit-background" in [each.name for each in threading.enumerate()], "it began"
        )
    panel.ask("cancel", job=made)
    assert panel.ask("hello")["jobs"] == []
    pages.set()
    until(lambda: "dgkit-frames" not in [each.name for each in threading.enumerate()], "it ended")
    assert session.regions == ()
    said = [fields["text"] for fields in panel.of("status")]
    assert not started or "big was cancelled and its memory freed" in said
    assert not panel.errors


def test_closing_the_panel_meanwhile_leaves_no_region(panel, session, pages):
    panel.ask("make", **FORM)
    until(lambda: "dgkit-background" in [each.name for each in threading.enumerate()], "it began")
    panel.panel.close()
    pages.set()
    until(lambda: "dgkit-frames" not in [each.name for each in threading.enumerate()], "it ended")
    assert session.regions == ()


def test_cancelled_meanwhile_that_there_is_too_little_memory_is_said(panel, session, monkeypatch):
    there = threading.Event()

    def none(*_args, **_options):
        assert there.wait(10)
        raise OutOfMemory(12, "no pages are left")

    monkeypatch.setattr(session, "empty", none)
    made = panel.ask("make", **FORM)["job"]
    until(lambda: "dgkit-background" in [each.name for each in threading.enumerate()], "it began")
    panel.ask("cancel", job=made)
    there.set()
    assert panel.wait_for("failed")["error"]["kind"] == "OutOfMemory"
