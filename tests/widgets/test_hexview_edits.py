# SPDX-License-Identifier: Apache-2.0
"""Edits of the hex view that cannot start or end, and undo after that."""

import hashlib
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


def test_what_was_undone_can_be_made_again_until_the_next_edit(hexview, region):
    def known(**counts):
        hexview.wait_for("edited", lambda fields: counts.items() <= fields.items())

    hexview.ask("put", at=1, buffers=[b"\xaa"])
    hexview.ask("put", at=2, buffers=[b"\xbb"])
    known(undoable=2, redoable=0)
    hexview.ask("undo")
    hexview.ask("undo")
    known(undoable=0, redoable=2)
    assert hexview.ask("redo")["at"] == 1
    known(undoable=1, redoable=1)
    assert bytes(region.array[1:3]) == b"\xaa\0"
    hexview.ask("put", at=3, buffers=[b"\xcc"])
    with pytest.raises(PanelError, match="no edit to redo"):
        hexview.ask("redo")
    assert hexview.ask("hello")["redoable"] == 0


def test_a_redo_that_cannot_start_can_be_tried_again(session, hexview, region, monkeypatch):
    hexview.ask("put", at=3, buffers=[b"!"])
    hexview.wait_for("edited")
    hexview.ask("undo")
    hexview.wait_for("edited", lambda fields: fields["redoable"] == 1)

    def lost(*_args, **_kwargs):
        raise dgkit.PeerTimeout("the DPU is silent")

    with monkeypatch.context() as patch:
        patch.setattr(type(session), "start_write", lost)
        with pytest.raises(PanelError, match="silent"):
            hexview.ask("redo")
    assert hexview.ask("hello")["redoable"] == 1
    hexview.ask("redo")
    until(lambda: region.array[3] == ord("!"), "it is made again")


def test_the_edits_as_python_make_them_again(session, hexview, region):
    with pytest.raises(PanelError, match="no edits of this region"):
        hexview.ask("copy", start=0, stop=1, form="edits")
    hexview.ask("put", at=5, buffers=[b"one"])
    hexview.ask("put", at=6, buffers=[b"\xff"])
    hexview.wait_for("edited", lambda fields: fields["undoable"] == 2)
    wanted = bytes(region.array)
    copied = hexview.ask("copy", start=0, stop=1, form="edits")
    assert copied["edits"] == 2
    region.array[:] = 0
    exec(copied["text"], {"session": session})
    assert bytes(region.array) == wanted


def test_a_digest_is_of_all_selected_bytes(session, view):
    region = session.empty((65 << 20) + 1, name="large")
    hexview = view(HexView(session))
    region.array[(3 << 20) :] = 7
    reply = hexview.ask("copy", start=5, stop=(4 << 20) + 3, form="sha256")
    selected = bytes(region.array[5 : (4 << 20) + 3])
    assert reply["text"] == hashlib.sha256(selected).hexdigest()
    assert reply["copied"] == reply["asked"] == len(selected)
    with pytest.raises(PanelError, match=r"at most 64 MiB.*hashlib\.sha256"):
        hexview.ask("copy", start=0, stop=(64 << 20) + 1, form="sha256")


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
