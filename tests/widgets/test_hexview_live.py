"""The hex view watched live: what views are told, while its region goes, or another one comes."""

import threading

import pytest
from support.processes.waiting import until

from dgkit.session import SessionRegion
from dgkit.widgets.base import scheduler, viewers
from dgkit.widgets.hexview.fetch import Fetch
from dgkit.widgets.hexview.hexview import HexView


@pytest.fixture
def region(session):
    return session.empty(1 << 20, name="counters")


@pytest.fixture
def hexview(session, region, view):
    return view(HexView(session))


def look(view, at=0, n=64, name="one"):
    return view.ask("look", view=name, at=at, n=n)


def ticks(count):
    """Waits until the frame thread has had so many turns."""
    left = iter(range(count))

    def steps():
        for _ in left:
            yield

    task = scheduler.start(steps(), print)
    until(lambda: task.done, f"{count} ticks")


@pytest.fixture
def reads(hexview, monkeypatch):
    """The reads that watching has started."""
    started, start = [], hexview.panel.reader.start

    def counted(region, sources, at, size):
        started.append(at)
        return start(region, sources, at, size)

    monkeypatch.setattr(hexview.panel.reader, "start", counted)
    return started


def test_live_tells_a_view_what_changed_in_view_and_nothing_else(hexview, region):
    look(hexview, at=512, n=64)
    hexview.ask("watch", on=True)
    assert hexview.of("state")[-1]["live"]
    region.array[0] = 77  # out of view
    region.array[515] = 200
    news = hexview.wait_for("bytes")
    assert (news["view"], news["at"], news["size"]) == ("one", 512, 64)
    buffers = next(kept for told, kept in hexview.told if told["kind"] == "bytes")
    assert buffers[0][3] == 200
    assert buffers[1][3] == 1


def test_a_view_that_does_not_answer_is_told_once(hexview, region):
    look(hexview, name="slow")
    hexview.ask("watch", on=True)
    region.array[1] = 100
    hexview.wait_for("bytes")
    region.array[1] = 101
    look(hexview, at=64, name="other")
    region.array[64] = 102
    hexview.wait_for("bytes", lambda fields: fields["view"] == "other")
    assert [told["view"] for told in hexview.of("bytes")].count("slow") == 1
    hexview.ask("got", view="slow")
    until(lambda: [told["view"] for told in hexview.of("bytes")].count("slow") == 2, "the news")
    hexview.ask("seen", view="slow", on=False)
    hexview.ask("watch", on=False)
    assert not hexview.of("state")[-1]["live"]


@pytest.fixture
def half_freed(region, monkeypatch):
    """The region, once the DPU knows it no more and the session still does."""
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


def test_while_a_region_is_being_freed_nobody_hears_of_errors(request, session, hexview, region):
    look(hexview)
    hexview.ask("watch", on=True)
    half_freed = request.getfixturevalue("half_freed")
    assert half_freed in session.regions
    assert look(hexview)["region"] == 0
    ticks(5)
    hexview.ask("search", text="x", kind="text", start=0)
    assert hexview.wait_for("hunt", lambda fields: fields["now"] != "running")["now"] == "freed"
    assert not hexview.errors
    assert hexview.ask("hello")["live"]


def test_what_was_read_of_another_region_marks_nothing_as_changed(session, hexview, region):
    region.array[:] = 7
    other, reader = session.empty(4096, name="other"), hexview.panel.reader
    now = reader.now

    def then_another(*args):
        found = now(*args)
        hexview.panel.choose(other.id)
        reader.now = now
        return found

    reader.now = then_another
    assert look(hexview)["region"] == 0
    reply = look(hexview)
    assert (reply["region"], reply["flags"]) == (other.id, False)


def test_what_is_watched_when_another_region_comes_marks_nothing_there(
    session, hexview, region, monkeypatch
):
    region.array[:] = 7
    other, steps = session.empty(4096, name="other"), Fetch.steps
    look(hexview)
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
    reply = look(hexview)
    assert (reply["region"], reply["flags"]) == (other.id, False)
    assert not hexview.of("bytes")


def test_a_view_that_vanished_costs_few_reads_and_then_none(hexview, reads, monkeypatch):
    monkeypatch.setattr(viewers, "_SURE_S", -1.0)
    monkeypatch.setattr(viewers, "_SLOW_S", 1000.0)
    look(hexview)
    hexview.ask("watch", on=True)
    ticks(5)
    assert len(reads) == 2, "the look, and one"
    monkeypatch.setattr(viewers, "_PERHAPS_S", -1.0)
    monkeypatch.setattr(viewers, "_SLOW_S", 0.0)
    ticks(5)
    assert len(reads) == 2
    monkeypatch.undo()


def test_a_view_that_says_it_is_there_is_looked_at_again_and_one_that_left_is_not(hexview, reads):
    look(hexview)
    hexview.ask("seen", view="one", on=True)
    hexview.ask("seen", view="nobody", on=True)
    hexview.ask("watch", on=True)
    until(lambda: len(reads) > 3, "it is looked at")
    hexview.ask("seen", view="one", on=False)
    ticks(2)
    before = len(reads)
    ticks(5)
    assert len(reads) == before
