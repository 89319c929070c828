"""Edits of the hex view that cannot start or end, and undo after that."""

import threading

import pytest
from support.jupyter.panels import PanelError
from support.processes.waiting import until

import dgkit
from dgkit.widgets.hexview import edit
from dgkit.widgets.hexview.edit import EditHistory
from dgkit.widgets.hexview.hexview import HexView


@pytest.fixture
def region(session):
    return session.empty(4096, name="counters")


@pytest.fixture
def hexview(session, region, view):
    return view(HexView(session))


def test_an_undo_that_cannot_start_can_be_tried_again(session, hexview, region, monkeypatch):
    hexview.ask("put", at=3, buffers=[b"!"])
    hexview.wait_for("edited")

    def lost(*_args, **_kwargs):
        raise dgkit.PeerTimeout("the DPU is silent")

    with monkeypatch.context() as patch:
        patch.setattr(type(session), "start_write", lost)
        with pytest.raises(PanelError, match="silent"):
            hexview.ask("undo")
    assert hexview.ask("hello")["undoable"] == 1
    hexview.ask("undo")
    until(lambda: region.array[3] == 0, "it is undone")


def test_undo_and_edits_that_end_meanwhile_lose_nothing(session, region, monkeypatch):
    monkeypatch.setattr(edit, "MAX_IN_FLIGHT", 1000)
    ended, failed = [], []
    edits = EditHistory(lambda change, error: ended.append((change, error)), failed.append)

    def write():
        for at in range(90):
            edits.start(region, at, b"!", b"\0").transfer.wait(5)

    writer = threading.Thread(target=write)
    writer.start()
    undone = 0
    while writer.is_alive():
        try:
            edits.undo(region).transfer.wait(5)
        except ValueError:
            continue
        undone += 1
    writer.join()
    until(lambda: len(ended) == 90 + undone, "all writes have ended")
    assert not failed
    assert edits.undoable == 90 - undone


def test_an_unanswered_write_is_given_up(session, region, monkeypatch):
    class Silent:
        progress, cancelled = 0.0, False

        def poll(self, _seconds):
            return False

        def cancel(self):
            self.cancelled = True

    silent, ended = Silent(), []
    monkeypatch.setattr(type(session), "start_write", lambda *_args, **_kwargs: silent)
    monkeypatch.setattr(edit, "TIMEOUT_S", 0.05)
    edits = EditHistory(lambda _, error: ended.append(error), ended.append)
    edits.start(region, 0, b"!", b"\0")
    until(lambda: ended, "it is given up")
    assert isinstance(ended[0], dgkit.PeerTimeout)
    assert silent.cancelled
    assert not edits.undoable
