# SPDX-License-Identifier: Apache-2.0
"""AllocatePanel without a browser: its handlers, and the messages to its views."""

import base64
import threading

import numpy as np
import pytest
from support.jupyter.panels import PanelError
from support.processes.agents import agent
from support.processes.waiting import until

import dgkit
from dgkit.errors import RegionBusy
from dgkit.units import size_text
from dgkit.widgets.allocate import allocate_panel
from dgkit.widgets.allocate.allocate_panel import AllocatePanel
from dgkit.widgets.base.fill_patterns import BLOCK, Pattern

MIB = 1 << 20
FORM = {"shape": "16", "dtype": "u1", "on": "host", "fill": "zeros", "name": ""}


@pytest.fixture
def panel(session, view):
    return view(AllocatePanel(session))


def listed(panel):
    """Return the regions of the last message to the views."""
    states = [message["session"] for message in panel.of("session") if "session" in message]
    return states[-1]["regions"] if states else []


def make(panel, **form):
    """Fills the form in and waits for the region."""
    before = {region.id for region in panel.panel._session.regions}
    said = len(panel.of("status"))
    panel.ask("make", **{**FORM, **form})
    until(lambda: panel.of("status")[said:] or panel.errors, "it is made")
    return next(r for r in panel.panel._session.regions if r.id not in before)


def test_a_new_view_gets_all_that_a_form_offers(panel):
    state = panel.ask("hello")
    assert state["dtypes"][0] == "u1"
    assert [kind for kind, _, _ in state["fills"]][:2] == ["zeros", "ones"]
    assert (state["label"], state["regions"], state["jobs"]) == ("software DPU", [], [])
    assert [place["value"] for place in state["places"]][:3] == ["host", "dpu", "pinned"]
    panel.wait_for("places")


def test_what_cannot_be_used_here_is_offered_with_the_reason(panel, monkeypatch):
    monkeypatch.setattr("dgkit.memory.why_no_gpu", lambda: "there is no driver")
    panel.ask("hello")
    places = {place["value"]: place for place in panel.wait_for("places")["places"]}
    assert {value for value, place in places.items() if not place["why"]} == {"host", "dpu", "auto"}
    assert places["gpu"]["why"] == places["pinned"]["why"] == "there is no driver"


def test_gpus_are_detected_outside_the_frame_thread(panel, monkeypatch):
    seen = []
    look = lambda: seen.append(threading.current_thread().name) or "there is no driver"  # noqa: E731
    monkeypatch.setattr("dgkit.memory.why_no_gpu", look)
    panel.ask("hello")
    panel.wait_for("places")
    assert seen == ["dgkit-background"]


def test_a_gpu_that_the_dpu_does_not_reach_says_what_to_call(session, view, monkeypatch):
    monkeypatch.setattr("dgkit.memory.why_no_gpu", lambda: "")
    gpu = type("Gpu", (), {"index": 0, "name": "a GPU", "total": 8 << 30, "free": None})
    monkeypatch.setattr("dgkit.memory.gpus", lambda: [gpu()])
    panel = view(AllocatePanel(session))
    panel.ask("hello")
    place = {place["value"]: place for place in panel.wait_for("places")["places"]}["cuda:0"]
    assert place["text"] == "GPU 0: a GPU, 8 GiB"
    assert "connect(provider='cuda')" in place["why"]


@pytest.mark.parametrize("on", ["host", "dpu"])
@pytest.mark.parametrize("fill", ["zeros", "ones", "counter", "random:3", "text:ab", "byte:7"])
def test_memory_is_made_and_filled_here_and_at_the_agent(panel, session, on, fill):
    region = make(panel, shape="1024, 1025", dtype="u2", on=on, fill=fill, name="grid")
    assert (region.name, region.size, region.on) == ("grid", 2 * 1024 * 1025, on)
    expected = b"".join(block.tobytes() for block in Pattern(fill).blocks(region.size, "u2"))
    assert session.read(region, region.size) == expected
    assert panel.wait_for("status")["text"].startswith("grid: 2.00 MiB on")


def test_several_blocks_are_filled_one_after_the_other(panel, session):
    region = make(panel, shape=str(2 * BLOCK + 8), fill="random:5")
    assert region.array.tobytes() == np.random.default_rng(5).bytes(region.size)


def test_a_region_that_was_made_is_the_one_that_is_looked_at(panel):
    first, second = make(panel, name="first"), make(panel, name="second")
    assert panel.ask("hello")["selected"] == second.id
    panel.ask("select", region=first.id)
    assert panel.ask("hello")["selected"] == first.id


@pytest.mark.parametrize(
    ("form", "field"),
    [
        ({"shape": ""}, "shape"),
        ({"shape": "12 monkeys"}, "shape"),
        ({"shape": "-1"}, "shape"),
        ({"shape": "0"}, "shape"),
        ({"shape": "4,,4"}, "shape"),
        ({"dtype": "O"}, "dtype"),
        ({"dtype": ""}, "dtype"),
        ({"fill": "byte:256"}, "fill"),
        ({"fill": "nonsense"}, "fill"),
    ],
)
def test_a_bad_field_is_named_before_anything_is_made(panel, session, form, field):
    with pytest.raises(PanelError) as caught:
        panel.ask("make", **{**FORM, **form})
    assert caught.value.field == field
    assert not session.regions


@pytest.mark.parametrize(
    ("form", "field"),
    [({"on": "moon"}, "on"), ({"on": "cuda:0"}, "on"), ({"shape": "99T"}, "shape")],
)
def test_what_the_session_refuses_is_about_its_field(panel, session, form, field):
    panel.ask("make", **{**FORM, **form})
    error = panel.wait_for("failed")["error"]
    assert error["field"] == field
    assert not session.regions
    assert panel.wait_for("jobs", lambda fields: not fields["jobs"])


def test_from_python_memory_is_there_when_the_call_returns(panel, session):
    region = panel.panel.allocate((4, 4), "f4", fill="counter", name="mine")
    assert region.name == "mine"
    assert region.array.tolist() == np.arange(16.0).reshape(4, 4).tolist()
    assert panel.panel.allocate("1K", on="dpu").size == 1024
    with pytest.raises(ValueError, match="unknown pattern"):
        panel.panel.allocate(4, fill="nothing")
    assert panel.ask("hello")["jobs"] == []


def test_from_python_a_fill_that_fails_raises(panel, session, monkeypatch):
    def broken(*_args):
        raise MemoryError("no pages")
        yield 1

    monkeypatch.setattr(allocate_panel, "fill_region", broken)
    with pytest.raises(MemoryError, match="no pages"):
        panel.panel.allocate(4, fill="ones")
    assert panel.ask("hello")["jobs"] == []


def test_free_closes_the_region_and_the_views_are_notified(panel, session):
    region = make(panel, name="mine")
    assert panel.ask("free", region=region.id) == {"buffers": []}
    panel.wait_for("status", lambda fields: fields["text"] == "mine was freed")
    assert region.closed
    until(lambda: listed(panel) == [], "the table is empty")
    with pytest.raises(PanelError, match="no live region"):
        panel.ask("free", region=region.id)


def test_a_region_in_a_transfer_stays_and_says_what_to_do(panel, session, monkeypatch):
    region = make(panel, name="busy")
    closes = []

    def busy(self, timeout=1.0):
        closes.append(timeout)
        raise RegionBusy(16, "a transfer is still in flight")

    monkeypatch.setattr(allocate_panel, "_FREE_TIMEOUT_S", 0.1)
    monkeypatch.setattr(type(region), "close", busy)
    panel.ask("free", region=region.id)
    error = panel.wait_for("failed")["error"]
    assert (error["kind"], error["hint"]) == (
        "RegionBusy",
        "Wait for the transfers that use it, then try again.",
    )
    assert len(closes) > 1
    assert max(closes) < 0.02
    assert [each["name"] for each in panel.ask("hello")["regions"]] == ["busy"]
    monkeypatch.undo()
    panel.ask("free", region=region.id)
    panel.wait_for("status", lambda fields: fields["text"] == "busy was freed")


def test_export_gives_the_descriptor_and_says_what_it_is(panel, session):
    region = make(panel, fill="counter", name="mine")
    reply = panel.ask("export", region=region.id)
    token = bytes.fromhex(reply["hex"])
    assert token == base64.b64decode(reply["base64"]) == region.token
    assert "capability" in reply["what"]
    assert "read and write" in reply["what"]
    with dgkit.Device("soft") as device, device.import_region(token) as remote:
        assert remote.size == 16
    assert token.hex() not in panel.panel.static_html()


def test_memory_of_the_agent_has_no_descriptor_here_and_says_so(panel, session):
    region = make(panel, on="dpu")
    with pytest.raises(PanelError, match="is at the agent"):
        panel.ask("export", region=region.id)


def test_a_variable_is_registered_in_place(panel, session, notebook):
    notebook["raw"] = bytearray(b"0123456789")
    assert [each["name"] for each in panel.ask("variables")["variables"]] == ["raw"]
    panel.ask("register", variable="raw", access="r")
    panel.wait_for("status")
    (region,) = session.regions
    assert (region.name, str(region.access), region.size) == ("raw", "r", 10)
    notebook["raw"][0] = 65
    assert session.read(region, 3) == b"A12"


@pytest.mark.parametrize("variable", ["", "missing", "a.b", "1"])
def test_a_name_of_no_variable_is_about_the_variable(panel, notebook, variable):
    with pytest.raises(PanelError) as caught:
        panel.ask("register", variable=variable)
    assert caught.value.field == "variable"


@pytest.mark.parametrize(
    ("value", "access"), [(4, "rw"), (b"read-only", "rw"), (bytearray(4), "x"), (bytearray(), "r")]
)
def test_what_cannot_be_registered_is_shown(panel, session, notebook, value, access):
    notebook["it"] = value
    panel.ask("register", variable="it", access=access)
    assert panel.wait_for("failed")["error"]["field"] == "variable"
    assert not session.regions


def test_two_views_get_the_same_messages(session, view):
    panel = AllocatePanel(session)
    first, second = view(panel), view(panel)
    make(first, name="mine")
    assert [each["name"] for each in second.ask("hello")["regions"]] == ["mine"]
    assert second.of("status") == first.of("status")


def test_where_this_process_is_the_dpu_the_places_are_named_from_there(view):
    with agent(role="host") as lender, dgkit.connect(lender.address) as session:
        panel = view(AllocatePanel(session))
        panel.ask("hello")
        texts = {place["value"]: place["text"] for place in panel.wait_for("places")["places"]}
        assert texts["host"] == "host, at the agent"
        region = make(panel, on="host", fill="counter")
        assert session.read(region, 4) == b"\0\1\2\3"
        assert panel.ask("export", region=region.id)["hex"] == region.token.hex()


def test_a_reader_without_a_kernel_sees_the_regions(panel, session):
    make(panel, name="<b>grid</b>", shape="4K")
    shown = panel.panel.static_html()
    assert all(words in shown for words in ("&lt;b&gt;grid", size_text(4096), "software DPU"))
    assert "<script" not in shown
    assert "<svg" not in shown
    assert "var(" not in shown.replace("border-color:var(--jp-border-color1,#8a8a8a)", "")
