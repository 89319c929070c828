# SPDX-License-Identifier: Apache-2.0
"""Traits of the panels: what they are, what assigning them does, and where observers are called."""

import asyncio
import threading
import time

import ipywidgets
import pytest
from support.jupyter.panels import View
from support.jupyter.transfer import ended, form
from support.processes.waiting import until
from traitlets import TraitError

import dgkit
from dgkit.errors import ClosedError
from dgkit.widgets.base.traits import State

SIZE = 1 << 20
NAMES = {
    "HexView": {
        "region",
        "offset",
        "selection",
        "value",
        "columns",
        "source",
        "history",
        "structure",
        "structure_offset",
        "image",
    },
    "LatencyPlot": {"running", "region", "op", "size", "path", "p50_ns", "p99_ns", "max_ns"},
    "TransferPanel": {"last_completion", "transfers"},
    "AllocatePanel": {"regions", "selected"},
    "dashboard": {"regions", "selected", "arrangement", "tab"},
}
READ_ONLY = {
    "HexView": {"value"},
    "LatencyPlot": {"p50_ns", "p99_ns", "max_ns"},
    "TransferPanel": {"last_completion", "transfers"},
    "AllocatePanel": {"regions"},
    "dashboard": {"regions"},
}


@pytest.fixture
def region(session):
    region = session.empty(SIZE, name="bytes")
    region.array[:] = [at % 251 for at in range(256)] * (SIZE // 256)
    return region


@pytest.fixture
def hexview(session, region, view):
    return view(dgkit.HexView(session)).panel


def changes(panel, name):
    """Collect the new values of a trait."""
    seen = []
    panel.observe(lambda change: seen.append(change["new"]), names=[name])
    return seen


def sent(panel):
    """Record the traits that pages are sent, as (name, value)."""
    values = []
    send = panel.comm.send

    def record(data=None, **more):
        if (data or {}).get("method") == "update":
            values.extend(data["state"].items())
        return send(data=data, **more)

    panel.comm.send = record
    return values


@pytest.mark.parametrize("name", NAMES)
def test_the_traits_are_synced_and_documented(session, view, name):
    panel = view(getattr(dgkit, name)(session)).panel
    own = {key: trait for key, trait in panel.traits().items() if isinstance(trait, State)}
    assert own.keys() == NAMES[name]
    for key, trait in own.items():
        assert trait.metadata["sync"]
        assert len(trait.help) > 10
        documented = next(kind.__doc__ for kind in type(panel).__mro__ if kind.__doc__)
        assert f"        {key}: " in documented
    assert panel.get_state().keys() >= NAMES[name]


@pytest.mark.parametrize("name", READ_ONLY)
def test_what_only_the_panel_can_know_is_read_only(session, view, name):
    panel = view(getattr(dgkit, name)(session)).panel
    for key in READ_ONLY[name]:
        before = getattr(panel, key)
        with pytest.raises(TraitError, match=rf"{key} is read-only; 'x' was assigned"):
            setattr(panel, key, "x")
        assert getattr(panel, key) == before


@pytest.mark.parametrize(
    ("name", "value", "text"),
    [
        ("region", "nowhere", "region is 'nowhere'; it must be a live region .*'bytes'"),
        ("region", True, "region is True; it must be a live region"),
        ("offset", SIZE, "offset is 1048576; it must be 0 to 1,048,575: .*'bytes'"),
        ("offset", -1, "offset is -1; it must be 0 to 1,048,575"),
        ("offset", "0", "offset is '0'; it must be 0 to"),
        ("selection", (0, SIZE + 1), "1,048,577 are not in region 'bytes', which has 1,048,576"),
        ("selection", 5, r"selection is 5; it must be \(start, stop\)"),
        ("selection", (1.5, 2), "whole numbers, not 1.5"),
        ("columns", 7, "columns is 7; it must be one of: 0, 8, 16, 32, 64"),
        ("columns", False, "columns is False"),
        ("source", "moon", "source is 'moon'; it must be one of: dpu, host, both"),
    ],
)
def test_a_bad_value_of_a_hex_view_names_value_and_limit_and_changes_nothing(
    hexview, name, value, text
):
    before, seen = hexview.get_state(), changes(hexview, name)
    with pytest.raises(TraitError, match=text):
        setattr(hexview, name, value)
    assert hexview.get_state() == before
    assert not seen


@pytest.mark.parametrize(
    ("name", "value", "text"),
    [
        ("running", 1, "running is 1; it must be True or False"),
        ("region", 99, "region is 99; it must be a live region .*'bytes'"),
        ("size", 0, "size is 0: .* 1 or more"),
        ("size", SIZE + 1, "size is 1,048,577; it must be 1 to 1,048,576, the size of .*'bytes'"),
        ("op", "erase", "op is 'erase': .*not one of: read, write"),
        ("path", "by road", "path is 'by road': .*not one of: auto, inline, worker"),
    ],
)
@pytest.mark.parametrize("running", [False, True])
def test_a_bad_value_of_a_plot_names_value_and_limit_and_changes_nothing(
    plot, region, running, name, value, text
):
    plot.region, plot.running = region, running
    before = plot.setting
    if name == "size" and value and running:
        text = "size is 1048577: 1,048,577 bytes .*1,048,576"
    with pytest.raises(TraitError, match=text):
        setattr(plot, name, value)
    assert (plot.setting, plot.running) == (before, running)


def test_the_selected_region_is_that_of_all_panels(session, region, view):
    other = session.empty(64, name="other")
    panels = [view(getattr(dgkit, name)(session)).panel for name in ("AllocatePanel", "dashboard")]
    hexview = view(dgkit.HexView(session)).panel
    for panel, wanted in zip((*panels, panels[0]), (other, "bytes", other.id), strict=True):
        panel.selected = wanted
        found = session.regions[0] if wanted == "bytes" else other
        assert [one.selected for one in panels] == [found, found]
        assert hexview.region is found
    hexview.region = region
    assert [one.selected for one in panels] == [region, region]
    with pytest.raises(TraitError, match="region is 'gone'; it must be a live region"):
        panels[0].selected = "gone"


def test_regions_follow_the_session(session, view):
    panel = view(dgkit.AllocatePanel(session)).panel
    seen = changes(panel, "regions")
    assert (panel.regions, panel.selected) == ((), None)
    region = session.empty(64, name="new")
    until(lambda: panel.regions == (region,) and panel.selected is region, "it is listed")
    region.close()
    until(lambda: panel.regions == () and panel.selected is None, "it is gone")
    assert seen == [(region,), ()]
    assert panel.allocate(100, name="made").name == "made"
    assert [one.name for one in panel.regions] == ["made"]


def test_a_hex_view_goes_where_its_traits_say(hexview, region):
    recorded = View(hexview)
    hexview.offset = 4096
    assert recorded.of("scroll") == [{"kind": "scroll", "at": 4096}]
    hexview.selection = (100, 104)
    assert recorded.of("goto") == [{"kind": "goto", "start": 100, "stop": 104}]
    assert hexview.value == bytes(region.array[100:104])
    assert hexview.offset == 100
    hexview.columns, hexview.source = 32, "both"
    shown = recorded.of("state")[-1]
    assert (shown["columns"], shown["source"]) == (32, "both")


def test_the_traits_of_a_hex_view_follow_its_views(hexview, region):
    recorded = View(hexview)
    seen = {name: changes(hexview, name) for name in ("offset", "selection", "value", "source")}
    recorded.ask("fetch", view="one", at=0, n=64)
    recorded.ask("fetch", view="one", at=768, n=64, scrolled=True)
    recorded.ask("set_selection", start=5, stop=8)
    recorded.ask("show", source="host")
    assert seen == {
        "offset": [768], "selection": [(5, 8)], "source": ["host"], "value": [b"\0", b"\5\6\7"],
    }  # fmt: skip


def test_the_value_is_the_first_64_kib_and_follows_writes(session, hexview, region):
    hexview.selection = (1, SIZE)
    assert hexview.value == bytes(region.array[1 : 1 + (64 << 10)])
    hexview.selection = (7, 10)
    panel = dgkit.TransferPanel(session)
    panel.transfer("write", region, b"new", offset=7).wait()
    until(lambda: hexview.value == b"new", "the bytes that were written")
    panel.close()
    other = session.empty(2, name="other")
    hexview.region = other
    assert (hexview.selection, hexview.value, hexview.offset) == ((0, 1), b"\0", 0)
    region.close()
    other.close()
    until(lambda: hexview.region is None, "there is no region")
    assert hexview.value == b""


def test_a_hex_view_that_nobody_looks_at_reads_nothing(session, view):
    reads = lambda: session.stats()["your_moves"]  # noqa: E731
    hexview = view(dgkit.HexView(session)).panel
    region = session.empty(64, name="new")
    until(lambda: hexview.region is region, "it is shown")
    assert reads() == 0
    assert (hexview.value, reads()) == (b"\0", 1)
    assert (hexview.value, reads()) == (b"\0", 1)


def test_a_source_that_a_region_does_not_have_is_refused(session, view):
    session.empty(100, on="dpu", name="scratch")
    hexview = view(dgkit.HexView(session)).panel
    with pytest.raises(TraitError, match="source is 'host': 'scratch' is DPU memory"):
        hexview.source = "host"
    assert hexview.source == "dpu"


def test_a_plot_is_started_changed_and_stopped_by_its_traits(plot, region):
    seen = changes(plot, "running")
    assert (plot.region, plot.p50_ns, plot.p99_ns, plot.max_ns) == (None, None, None, None)
    plot.running = True
    plot.size, plot.op, plot.path, plot.region = 4096, "read", "worker", "bytes"
    until(lambda: plot.p99_ns is not None, "there are samples")
    setting = plot.setting
    assert (setting.size, setting.op, setting.path) == (4096, "read", "worker")
    assert (setting.region, plot.region) == (region.id, region)
    assert 0 < plot.p50_ns <= plot.p99_ns <= plot.max_ns
    plot.running = False
    assert seen == [True, False]
    assert plot.report().op == "read"
    plot.clear()
    assert (plot.p50_ns, plot.max_ns) == (None, None)


def test_pages_are_sent_the_figures_of_a_plot_only_while_one_shows_it(plot):
    values, seen = sent(plot), changes(plot, "max_ns")
    plot.start()
    until(lambda: seen, "there are figures")
    assert ("running", True) in values
    assert "max_ns" not in dict(values)
    View(plot).ask("watch", view="one", on=True)
    assert dict(values).keys() >= {"p50_ns", "p99_ns", "max_ns"}
    before = len(seen)
    until(lambda: len(seen) > before or plot.clear(), "a new maximum")
    until(lambda: ("max_ns", plot.max_ns) in values, "the page has it")


def test_completions_are_observed_and_there_after_wait(session, region, view):
    panel = view(dgkit.TransferPanel(session)).panel
    seen = changes(panel, "last_completion")
    assert (panel.last_completion, panel.transfers) == (None, ())
    panel.transfer("write", region, b"abc", offset=3).wait()
    last = panel.last_completion
    assert (last["op"], last["region"], last["offset"], last["size"]) == ("write", "bytes", 3, 3)
    assert (last["status"], panel.transfers) == ("OK", (last,))
    assert 0 <= last["post_ns"] <= last["complete_ns"] < last["submit_ns"]
    assert panel.get_state()["last_completion"]["submit_ns"] == str(last["submit_ns"])
    panel.transfer("read", region, size=8, repeat=70).wait()
    assert len(panel.transfers) == 50
    assert panel.transfers[-1] == panel.last_completion
    assert panel.last_completion["number"] == 71
    assert seen[0] == last
    recorded = View(panel)
    recorded.ask("start", form=form(region, op="read", size="4"))
    ended(recorded)
    until(lambda: panel.last_completion["number"] == 72, "a click is seen, too")


def test_two_panels_are_linked_both_ways(session, region, view):
    other = session.empty(64, name="other")
    allocate = view(dgkit.AllocatePanel(session)).panel
    hexview = view(dgkit.HexView(session, region)).panel
    plot = view(dgkit.LatencyPlot(session)).panel
    ipywidgets.link((allocate, "selected"), (hexview, "region"))
    ipywidgets.dlink((hexview, "region"), (plot, "region"))
    allocate.selected = other
    assert (hexview.region, plot.region) == (other, other)
    hexview.region = region
    assert (allocate.selected, plot.region) == (region, region)


def test_a_slider_is_linked_both_ways(hexview):
    slider = ipywidgets.IntSlider(max=SIZE - 1)
    ipywidgets.link((slider, "value"), (hexview, "offset"))
    slider.value = 640
    assert hexview.offset == 640
    View(hexview).ask("fetch", view="one", at=64, n=64, scrolled=True)
    assert slider.value == 64
    slider.close()


def test_the_selected_bytes_are_an_argument_of_interact(hexview, region):
    seen = []
    made = ipywidgets.interactive(lambda data: seen.append(bytes(data)), data=hexview)
    assert hexview in made.children
    hexview.selection = (2, 5)
    assert seen == [b"\0", b"\2\3\4"]
    made.close()


def test_a_page_sets_traits_and_is_corrected_where_it_is_wrong(hexview, region):
    recorded, values = View(hexview), sent(hexview)
    hexview.set_state({"selection": [3, 6], "source": "host"})
    assert (hexview.selection, hexview.value) == ((3, 6), b"\3\4\5")
    assert hexview.source == "host"
    values.clear()
    hexview.set_state({"offset": SIZE})
    assert "offset is 1048576; it must be 0 to 1,048,575" in recorded.errors[-1]
    assert values == [("offset", hexview.offset)]
    hexview.set_state({"value": "x"})
    assert "read-only" in recorded.errors[-1]


def test_the_layout_is_that_of_any_widget(hexview):
    hexview.layout.width = "500px"
    assert hexview.layout.get_state()["width"] == "500px"


@pytest.mark.parametrize("name", NAMES)
def test_a_closed_panel_has_no_values_and_refuses_them(session, region, name):
    panel = getattr(dgkit, name)(session)
    seen = changes(panel, sorted(NAMES[name])[0])
    panel.close()
    assert {key: getattr(panel, key) for key in NAMES[name]} == dict.fromkeys(NAMES[name])
    for key in NAMES[name] - READ_ONLY[name]:
        with pytest.raises(ClosedError, match=f"the panel is closed: .*{key} was assigned"):
            setattr(panel, key, None)
    assert not seen


def test_observers_are_called_on_the_kernels_loop_when_the_cell_has_ended(session, region):
    threads = []

    async def kernel():
        panel = dgkit.AllocatePanel(session)
        panel.observe(lambda change: threads.append(threading.current_thread()), ["regions"])
        made = session.empty(64, name="during the cell")
        time.sleep(0.3)  # the cell is busy; the frame thread is not
        assert made not in panel.regions
        panel.selected = made  # but a cell that assigns a trait need not wait
        assert panel.selected is made
        end = time.monotonic() + 10
        while made not in panel.regions and time.monotonic() < end:
            await asyncio.sleep(0.01)
        assert made in panel.regions
        panel.close()

    asyncio.run(kernel())
    assert set(threads) == {threading.main_thread()}
