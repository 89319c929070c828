# SPDX-License-Identifier: Apache-2.0
"""The time machine of the hex view, without a browser: moments, writers, and changes outside."""

import pytest
from support.jupyter.panels import PanelError
from support.processes.waiting import until
from traitlets import TraitError

from dgkit.widgets.hexview.hexview import HexView
from dgkit.widgets.hexview.time_machine import WRITERS
from dgkit.widgets.hexview.write_history import MAX_ARRAY

HOST, DPU, OUTSIDE, UNKNOWN = map(WRITERS.index, ("host", "DPU", "outside", "unknown"))


@pytest.fixture
def region(session):
    return session.empty(4096, name="past")


@pytest.fixture
def hexview(session, region, view):
    return view(HexView(session, region, history="1M"))


def fetch(view, at=0, n=8):
    reply = view.ask("fetch", view="one", at=at, n=n)
    return reply["buffers"][0], reply["buffers"][-1] if reply["hues"] else b""


def past(view):
    return view.panel.state()["history"]


def test_without_history_the_view_follows_no_writes(session, region, view):
    shown = view(HexView(session, region))
    assert not session._observers.calls
    assert past(shown) is None
    assert not shown.ask("fetch", view="one", at=0, n=8)["hues"]
    with pytest.raises(PanelError, match="the view has no history"):
        shown.ask("moment", to=0)


def test_a_view_shows_the_bytes_of_each_moment_and_who_wrote_them(session, hexview, region):
    other = session.empty(4, name="other")
    session.write(region, b"abcd", 2)
    session.write(other, b"wxyz")
    session.copy(other, region)
    shown = []
    for moment in (0, 1, 2):
        hexview.ask("moment", to=moment)
        shown.append(fetch(hexview))
    assert shown == [
        (bytes(8), bytes(8)),
        (b"\0\0abcd\0\0", bytes([0, 0, HOST, HOST, HOST, HOST, 0, 0])),
        (b"wxyzcd\0\0", bytes([DPU] * 4 + [HOST] * 2 + [0] * 2)),
    ]
    assert "2 of 2: DPU wrote 4 bytes at 0x0" in past(hexview)["text"]
    hexview.ask("moment", to=None)
    session.write(region, b"!", 7)
    assert fetch(hexview)[0] == b"wxyzcd\0!"


def test_the_bytes_of_the_write_shown_are_flagged(session, hexview, region):
    session.write(region, b"ab", 2)
    session.write(region, b"c", 5)
    hexview.ask("moment", to=1)
    assert hexview.ask("fetch", view="one", at=0, n=8)["buffers"][1] == b"\0\0\3\3\0\0\0\0"
    assert past(hexview)["span"] == [2, 4]
    for at in (3, 64):
        flags = hexview.ask("fetch", view="one", at=at, n=8)["buffers"][1]
        assert flags == (b"\3" if at == 3 else b"\0") + bytes(7)


def test_a_store_of_the_cpu_is_changed_outside(hexview, region):
    region.array[3] = 9
    assert fetch(hexview) == (b"\0\0\0\x09\0\0\0\0", bytes([0, 0, 0, OUTSIDE, 0, 0, 0, 0]))
    text = past(hexview)["text"]
    assert "1 byte at 0x3 changed outside of the session's transfers" in text


def test_from_a_byte_to_its_write_and_back_to_earlier_ones(session, hexview, region):
    for number in (1, 2, 3):
        session.write(region, bytes([number]), number % 2)
    assert hexview.ask("last_write", at=1)["moment"] == 3
    assert past(hexview)["at"] == 3
    hexview.ask("moment", to=2)
    assert hexview.ask("last_write", at=1)["moment"] == 1
    assert hexview.ask("last_write", at=5)["moment"] == 0
    assert past(hexview)["at"] == 1


def test_an_edit_in_the_view_is_a_write_of_the_host(hexview):
    hexview.panel.edit(1, b"e")
    until(lambda: past(hexview)["last"] == 1, "the edit is recorded")
    assert fetch(hexview) == (b"\0e\0\0\0\0\0\0", bytes([0, HOST, 0, 0, 0, 0, 0, 0]))


def test_views_hear_of_new_writes(session, hexview, region):
    session.write(region, b"news")
    heard = hexview.wait_for("history", lambda fields: fields["history"]["last"] == 1)
    assert heard["history"]["at"] is None
    assert "DPU wrote 4 bytes at 0x0, bytes from the host, at" in heard["history"]["text"]


def test_writes_beyond_the_memory_fall_out_and_the_view_says_so(session, region, view):
    shown = view(HexView(session, region, history=16_384))
    for number in range(40):
        session.write(region, bytes([number]) * 1000, number)
    state = past(shown)
    assert state["last"] == 40
    assert 0 < state["first"] < 40
    shown.ask("moment", to=state["first"])
    kept = 40 - state["first"]
    assert f"{kept} writes kept, {state['first']} older ones fell out" in past(shown)["text"]
    with pytest.raises(PanelError, match="moment 0 is not among"):
        shown.ask("moment", to=0)


def test_the_history_of_a_region_of_any_size_has_what_was_written_and_seen(session, view):
    region = session.empty(1 << 20, name="large")
    shown = view(HexView(session, region, history="64K"))
    assert fetch(shown) == (bytes(8), bytes(8))
    session.write(region, b"seen", 2)
    session.write(region, b"new", 4096)
    assert fetch(shown, 4096) == (b"new" + bytes(5), bytes([HOST] * 3 + [0] * 5))
    shown.ask("moment", to=1)
    assert fetch(shown) == (b"\0\0seen\0\0", bytes([0, 0, HOST, HOST, HOST, HOST, 0, 0]))
    assert fetch(shown, 4096) == (bytes(8), bytes([UNKNOWN] * 3 + [0] * 5))
    shown.ask("moment", to=0)
    assert fetch(shown) == (bytes(8), bytes(8))
    assert "··" in past(shown)["text"]
    session.write(region, bytes(100_000))  # more than the history has room for
    session.write(region, b"last", 4)
    assert (past(shown)["first"], past(shown)["last"]) == (3, 4)


def test_behind_an_array_too_large_to_copy_the_history_begins_again_and_says_so(session, view):
    region = session.empty(MAX_ARRAY + 1)
    shown = view(HexView(session, region, history="16M"))
    session.write(region, bytearray(MAX_ARRAY))
    session.write(region, bytes(MAX_ARRAY + 1))
    assert (past(shown)["first"], past(shown)["last"]) == (0, 2)
    session.write(region, bytearray(b"x" * (MAX_ARRAY + 1)))
    assert (past(shown)["first"], past(shown)["last"]) == (3, 3)
    assert "Arrays over 64 KiB are not kept" in past(shown)["text"]
    session.write(region, b"later", 8)
    shown.ask("moment", to=3)
    assert fetch(shown)[0] == b"x" * 8
    assert fetch(shown, 8)[1] == bytes([UNKNOWN] * 5 + [0] * 3)


def test_the_size_of_the_history_is_a_trait(session, hexview, region):
    session.write(region, b"a")
    panel = hexview.panel
    assert panel.history == 1 << 20
    panel.history = "64K"
    assert (panel.history, past(hexview)["last"]) == (1 << 16, 0)
    session.write(region, b"b")
    assert past(hexview)["last"] == 1
    panel.history = None
    assert past(hexview) is None
    assert not session._observers.calls
    with pytest.raises(TraitError, match="history"):
        panel.history = 12


def test_another_region_has_its_own_history_and_a_closed_view_follows_none(session, region, view):
    shown = view(HexView(session, history="1M"))
    second = session.empty(64, name="second")
    shown.ask("choose", number=second.id)
    session.write(region, b"first")
    session.write(second, b"2nd")
    assert past(shown)["last"] == 1
    shown.panel.close()
    assert not session._observers.calls


@pytest.mark.parametrize("history", ["1 parsec", 12, True, 1.5])
def test_a_history_that_is_no_size_is_refused(session, history):
    with pytest.raises((ValueError, TypeError)):
        HexView(session, history=history)
