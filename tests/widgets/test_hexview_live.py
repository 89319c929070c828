# SPDX-License-Identifier: Apache-2.0
"""Live viewing in the hex view, also while the region is freed or replaced."""

import threading

import pytest
from support.processes.waiting import until

from dgkit.session import SessionRegion
from dgkit.widgets.base import panel as base_panel
from dgkit.widgets.base import scheduler
from dgkit.widgets.hexview.fetch import Fetch
from dgkit.widgets.hexview.hexview import HexView


@pytest.fixture
def region(session):
    return session.empty(1 << 20, name="counters")


@pytest.fixture
def hexview(session, region, view):
    return view(HexView(session))


def fetch(view, at=0, n=64, name="one"):
    return view.ask("fetch", view=name, at=at, n=n)


def ticks(count):
    """Wait until the frame thread has run this many ticks."""
    left = iter(range(count))

    def steps():
        for _ in left:
            yield

    task = scheduler.start(steps(), print)
    until(lambda: task.done, f"{count} ticks")


@pytest.fixture
def reads(hexview, monkeypatch):
    """The reads that live viewing has started."""
    started, start = [], hexview.panel.reader.start

    def counted(region, sources, at, size):
        started.append(at)
        return start(region, sources, at, size)

    monkeypatch.setattr(hexview.panel.reader, "start", counted)
    return started


def test_live_viewing_sends_a_view_changes_in_view_and_nothing_else(hexview, region):
    fetch(hexview, at=512, n=64)
    hexview.ask("watch", on=True)
    assert hexview.of("state")[-1]["live"]
    region.array[0] = 77  # out of view
    region.array[515] = 200
    news = hexview.wait_for("bytes")
    assert (news["view"], news["at"], news["size"]) == ("one", 512, 64)
    buffers = next(kept for told, kept in hexview.messages if told["kind"] == "bytes")
    assert buffers[0][3] == 200
    assert buffers[1][3] == 1


def test_a_view_that_does_not_answer_is_sent_one_page(hexview, region):
    fetch(hexview, name="slow")
    hexview.ask("watch", on=True)
    region.array[1] = 100
    hexview.wait_for("bytes")
    region.array[1] = 101
    fetch(hexview, at=64, name="other")
    region.array[64] = 102
    hexview.wait_for("bytes", lambda fields: fields["view"] == "other")
    assert [told["view"] for told in hexview.of("bytes")].count("slow") == 1
    hexview.ask("ack", view="slow")
    until(lambda: [told["view"] for told in hexview.of("bytes")].count("slow") == 2, "the news")
    hexview.ask("visible", view="slow", on=False)
    hexview.ask("watch", on=False)
    assert not hexview.of("state")[-1]["live"]


@pytest.fixture
def half_freed(region, monkeypatch):
    """The region, deregistered at the DPU but still listed in the session."""
    go, let_go, free = threading.Event(), threading.Event(), SessionRegion.free

    def slow(self, timeout):
        let_go.set()
        assert go.wait(10)
        free(self, timeout)

    with monkeypatch.context() as patch:
        patch.setattr(SessionRegion, "free", slow)
        closer = threading.Thread(target=region.close)
        closer.start()
        until(let_go.is_set, "the DPU has let it go")
        yield region
        go.set()
        closer.join()


def test_while_a_region_is_being_freed_no_error_is_shown(request, session, hexview, region):
    fetch(hexview)
    hexview.ask("watch", on=True)
    half_freed = request.getfixturevalue("half_freed")
    assert half_freed in session.regions
    assert fetch(hexview)["region"] == 0
    ticks(5)
    hexview.ask("search", text="x", kind="text", start=0)
    assert (
        hexview.wait_for("search", lambda fields: fields["status"] != "running")["status"]
        == "freed"
    )
    assert not hexview.errors
    assert hexview.ask("hello")["live"]


def test_what_was_read_of_another_region_marks_nothing_as_changed(session, hexview, region):
    region.array[:] = 7
    other, reader = session.empty(4096, name="other"), hexview.panel.reader
    read = reader.read

    def then_another(*args):
        found = read(*args)
        hexview.panel.choose(other.id)
        reader.read = read
        return found

    reader.read = then_another
    assert fetch(hexview)["region"] == 0
    reply = fetch(hexview)
    assert (reply["region"], reply["flags"]) == (other.id, False)


def test_what_is_watched_when_another_region_comes_marks_nothing_there(
    session, hexview, region, monkeypatch
):
    region.array[:] = 7
    other, steps = session.empty(4096, name="other"), Fetch.steps
    fetch(hexview)
    chosen = threading.Event()

    def then_another(fetch):
        found = yield from steps(fetch)
        if not chosen.is_set():
            hexview.panel.choose(other.id)
            chosen.set()
        return found

    monkeypatch.setattr(Fetch, "steps", then_another)
    hexview.ask("watch", on=True)
    until(chosen.is_set, "another is chosen")
    reply = fetch(hexview)
    assert (reply["region"], reply["flags"]) == (other.id, False)
    assert not hexview.of("bytes")


def test_a_view_that_vanished_costs_few_reads_and_then_none(hexview, reads, monkeypatch):
    monkeypatch.setattr(base_panel, "_RECENT_S", -1.0)
    monkeypatch.setattr(base_panel, "_SLOW_S", 1000.0)
    fetch(hexview)
    hexview.ask("watch", on=True)
    ticks(5)
    assert len(reads) == 2, "the look, and one"
    monkeypatch.setattr(base_panel, "_EXPIRED_S", -1.0)
    monkeypatch.setattr(base_panel, "_SLOW_S", 0.0)
    ticks(5)
    assert len(reads) == 2
    monkeypatch.undo()


def test_a_visible_view_is_read_for_and_a_hidden_one_is_not(hexview, reads):
    fetch(hexview)
    hexview.ask("visible", view="one", on=True)
    hexview.ask("visible", view="unknown", on=True)
    hexview.ask("watch", on=True)
    until(lambda: len(reads) > 3, "the page is read again")
    hexview.ask("visible", view="one", on=False)
    ticks(2)
    before = len(reads)
    ticks(5)
    assert len(reads) == before
