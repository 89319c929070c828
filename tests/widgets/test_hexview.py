# SPDX-License-Identifier: Apache-2.0
"""The hex view without a browser: requests of a view, messages to it, and errors."""

import pytest
from support.jupyter.panels import PanelError
from support.processes.waiting import until

import dgkit
from dgkit.widgets.hexview.hexview import HexView
from dgkit.widgets.hexview.view_pages import MAX_PAGE

SIZE = 5 << 20


@pytest.fixture
def region(session):
    region = session.empty(SIZE, name="counters")
    region.array[:] = [at % 251 for at in range(256)] * (SIZE // 256)
    return region


@pytest.fixture
def hexview(session, region, view):
    return view(HexView(session))


def fetch(view, at=0, n=64, name="one"):
    return view.ask("fetch", view=name, at=at, n=n)


def flagged(reply):
    """Offsets from the first byte shown, with their flags."""
    flags = reply["buffers"][-1] if reply["flags"] else b""
    return {at: flag for at, flag in enumerate(flags) if flag}


def ended(view):
    found = view.wait_for("search", lambda fields: fields["status"] != "running", seconds=30)
    for message in list(view.messages):  # one by one: the frame thread adds others meanwhile
        if message[0]["kind"] == "search":
            view.messages.remove(message)
    return found


def test_a_look_brings_the_bytes_in_view_as_a_binary_buffer(hexview, region):
    reply = fetch(hexview, at=1000, n=100)
    assert reply["buffers"] == [bytes(region.array[1000:1100])]
    assert (reply["region"], reply["at"], reply["size"]) == (region.id, 1000, 100)


@pytest.mark.parametrize(
    ("at", "n", "first", "size"),
    [(-5, 16, 0, 16), (SIZE - 4, 64, SIZE - 4, 4), (SIZE + 9, 1, SIZE - 1, 1),
     (0, 1 << 40, 0, MAX_PAGE), (7, -1, 7, 1)],
)  # fmt: skip
def test_no_view_gets_more_than_a_page_or_what_is_not_there(hexview, at, n, first, size):
    reply = fetch(hexview, at, n)
    assert (reply["at"], len(reply["buffers"][0])) == (first, size)


def test_both_views_come_side_by_side_and_what_changed_is_flagged(hexview, region):
    hexview.ask("show", source="both")
    assert flagged(fetch(hexview)) == {}
    region.array[3] = 255
    reply = fetch(hexview)
    assert reply["buffers"][0] == reply["buffers"][1] == bytes(region.array[:64])
    assert flagged(reply) == {3: 1 | 2}
    hexview.ask("mark")
    assert flagged(fetch(hexview)) == {}
    assert hexview.of("refresh")


def test_where_dpu_and_host_differ_is_flagged_found_and_counted(hexview, region, monkeypatch):
    """The host's bytes are altered here: two reads of the same memory never differ."""
    from dgkit.widgets.hexview import fetch as hexbytes

    def other(region, at, size):
        data = bytearray(region.array[at : at + size].tobytes())
        for wrong in (5, 6, 3 << 20):
            if at <= wrong < at + size:
                data[wrong - at] ^= 255
        return bytes(data)

    monkeypatch.setattr(hexbytes, "host_bytes", other)
    hexview.ask("show", source="both")
    assert flagged(fetch(hexview)) == {5: 4, 6: 4}
    hexview.ask("compare", start=0)
    assert ended(hexview)["at"] == 5
    hexview.wait_for("goto", lambda fields: fields["start"] == 5)
    hexview.ask("compare", start=6)
    assert ended(hexview)["at"] == 3 << 20
    hexview.ask("compare", start=5, backward=True)
    assert ended(hexview) | {"done": 0} == {
        "kind": "search", "mode": "difference", "length": 1, "status": "found", "done": 0,
        "size": SIZE, "at": 3 << 20, "wrapped": True,
    }  # fmt: skip
    hexview.ask("compare", start=9, count=True)
    counted = ended(hexview)
    assert (counted["status"], counted["bytes"], counted["runs"]) == ("counted", 3, 2)


@pytest.mark.parametrize("source", ["dpu", "host"])
def test_text_and_bytes_are_found_across_pieces_and_around_the_end(hexview, region, source):
    hexview.ask("show", source=source)
    at = (1 << 20) - 3  # across the border of two pieces
    region.array[at : at + 7] = list("größe".encode())
    hexview.ask("search", text="größe", kind="text", start=0)
    assert ended(hexview)["at"] == at
    assert hexview.wait_for("goto") == {"kind": "goto", "start": at, "stop": at + 7}
    hexview.ask("search", text="67 72 c3", kind="hex", start=at + 1)
    assert (hexview.wait_for("search")["mode"], ended(hexview)["wrapped"]) == ("find", True)
    hexview.ask("search", text="fe fe fe", kind="hex", start=0)
    assert ended(hexview)["status"] == "none"


def test_a_search_can_be_cancelled_and_a_new_one_takes_its_place(session, view):
    session.empty(1 << 28)
    hexview = view(HexView(session))
    hexview.ask("search", text="x", kind="text", start=0)
    hexview.ask("stop")
    assert ended(hexview)["status"] == "cancelled"
    assert hexview.ask("hello")["search"]["status"] == "cancelled"
    hexview.ask("stop")
    hexview.ask("search", text="x", kind="text", start=0)
    hexview.ask("search", text="00", kind="hex", start=0)
    hexview.wait_for("search", lambda fields: fields["status"] == "found")


@pytest.mark.parametrize(
    ("name", "fields", "words"),
    [
        ("search", {"text": "zz", "kind": "hex", "start": 0}, "hex digits"),
        ("search", {"text": "", "kind": "text", "start": 0}, "1 to 4,096"),
        ("show", {"source": "moon"}, "moon"),
        ("show", {"colour": "red"}, "colour"),
        ("choose", {"number": 99}, "no live region 99"),
        ("set_selection", {"start": 5, "stop": 5}, "not in region"),
        ("copy", {"start": 0, "stop": SIZE + 1, "form": "hex"}, "not in region"),
        ("undo", {}, "no edit to undo"),
    ],
)
def test_what_makes_no_sense_is_an_error_in_words(hexview, name, fields, words):
    with pytest.raises(PanelError, match=words):
        hexview.ask(name, **fields)


def test_at_most_one_mib_is_copied_and_the_view_is_told(hexview, region):
    assert hexview.ask("copy", start=1, stop=4, form="hex")["text"] == "01 02 03"
    reply = hexview.ask("copy", start=0, stop=SIZE, form="text")
    assert (reply["copied"], reply["asked"]) == (1 << 20, SIZE)


def test_a_typed_byte_is_a_dma_write_that_others_hear_of_and_can_be_undone(hexview, region):
    before = bytes(region.array[:4])
    hexview.ask("put", at=1, buffers=[b"\xaa"])
    assert hexview.wait_for("edited")["ok"]
    assert region.array[1] == 0xAA
    hexview.wait_for(
        "session", lambda fields: fields["change"] == "written" and fields["id"] == region.id
    )
    hexview.ask("put", at=2, buffers=[b"\xbb\xcc"])
    hexview.wait_for("edited", lambda fields: fields["undoable"] == 2)
    assert hexview.ask("undo")["at"] == 2
    assert hexview.ask("undo")["at"] == 1
    until(lambda: bytes(region.array[:4]) == before, "both are undone")
    with pytest.raises(PanelError, match="no edit to undo"):
        hexview.ask("undo")


def test_a_read_only_region_says_so_before_and_refuses(session, view):
    session.register(b"constants" * 10, access="r", name="table")
    hexview = view(HexView(session))
    assert "read-only" in hexview.ask("hello")["region"]["no_write"]
    with pytest.raises(PanelError, match="read-only") as caught:
        hexview.ask("put", at=0, buffers=[b"a"])
    assert caught.value.kind == "AccessDenied"
    with pytest.raises(dgkit.AccessDenied):
        hexview.panel.edit(0, b"a")


def test_a_region_that_the_dpu_may_not_read_is_shown_as_the_host_sees_it(session, view):
    session.register(bytearray(b"in the mail"), access="w", name="letterbox")
    hexview = view(HexView(session))
    state = hexview.ask("hello")
    assert state["source"] == "host"
    assert "not read" in state["region"]["no_dpu"]
    assert fetch(hexview)["buffers"] == [b"in the mail"]
    hexview.ask("put", at=0, buffers=[b"I"])
    assert hexview.wait_for("edited")["ok"]
    assert fetch(hexview)["buffers"][0] == b"In the mail"


def test_memory_of_the_dpu_has_no_hosts_view_and_says_why(session, view):
    session.empty(100, on="dpu", name="scratch")
    hexview = view(HexView(session))
    assert "DPU memory" in hexview.ask("hello")["region"]["no_host"]
    assert fetch(hexview)["buffers"] == [bytes(64)]
    with pytest.raises(PanelError, match="DPU memory"):
        hexview.ask("compare", start=0)


def test_the_cells_own_calls_say_what_is_wrong(hexview, region):
    panel = hexview.panel
    for wrong in (-1, SIZE):
        with pytest.raises(dgkit.BoundsError):
            panel.goto(wrong)
    for wrong in ("nowhere", ""):
        with pytest.raises(ValueError, match="not a size"):
            panel.goto(wrong)
    with pytest.raises(TypeError):
        panel.select("a", 3)
    with pytest.raises(dgkit.BoundsError):
        panel.edit(SIZE - 1, b"ab")
    with pytest.raises(ValueError, match="1 to 4,096"):
        panel.find(b"")
    panel.goto("0x10")
    hexview.wait_for("goto", lambda fields: fields["start"] == 16)
    panel.goto("end")
    hexview.wait_for("goto", lambda fields: fields["start"] == SIZE - 1)
    panel.select(3, 9)
    hexview.wait_for("goto", lambda fields: (fields["start"], fields["stop"]) == (3, 9))
    panel.edit(7, b"xyz")
    assert bytes(region.array[7:10]) == b"xyz"
    panel.find("xyz", start=0)
    hexview.wait_for("goto", lambda fields: fields["start"] == 7)
    panel.find(b"xyz", backward=True, start=SIZE)
    hexview.wait_for("search", lambda fields: fields.get("at") == 7)


def test_a_view_that_is_drawn_anew_gets_all_of_it_back(hexview, region):
    hexview.ask("show", source="both", dtype="u32", endian="big")
    fetch(hexview, at=4096)
    hexview.ask("set_selection", start=4100, stop=4104)
    hexview.ask("watch", on=True)
    hexview.ask("put", at=0, buffers=[b"!"])
    hexview.wait_for("edited")
    state = hexview.ask("hello")
    assert (state["source"], state["dtype"], state["endian"]) == ("both", "u32", "big")
    assert (state["at"], state["selection"], state["live"]) == (4096, [4100, 4104], True)
    assert state["undoable"] == 1
    assert state["label"] == "software DPU"


def test_it_follows_the_region_that_the_desk_selects(session, hexview, region):
    other = session.empty(10, name="other")
    hexview.wait_for("state", lambda fields: len(fields["regions"]) == 2)
    hexview.ask("choose", number=other.id)
    assert hexview.of("state")[-1]["region"]["name"] == "other"
    assert len(fetch(hexview)["buffers"][0]) == 10


def test_one_with_a_region_of_its_own_does_not_follow(session, region, view):
    other = session.empty(10, name="other")
    own = view(HexView(session, other))
    assert own.ask("hello")["region"]["name"] == "other"
    own.panel._selection.model.select(region.id)
    assert own.ask("hello")["region"]["name"] == "other"
    own.ask("choose", number=region.id)
    assert own.ask("hello")["region"]["name"] == "counters"


def test_a_reader_without_a_kernel_sees_the_first_bytes(hexview, region):
    region.array[:5] = list(b"<&>ab")
    text = hexview.panel.static_html()
    assert "00000000  3c 26 3e 61 62" in text
    assert "&lt;&amp;&gt;ab" in text
    assert "software DPU" in text
    for gone_in_untrusted in ("<script", "<style", "<svg", "class="):
        assert gone_in_untrusted not in text
    assert hexview.panel.static_text().startswith("<dgkit.HexView")


def test_a_region_of_another_session_is_refused(session, region):
    with dgkit.connect() as other, pytest.raises(ValueError, match="not a live region"):
        HexView(other, region)
