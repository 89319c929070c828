# SPDX-License-Identifier: Apache-2.0
"""Hostile messages of a page: each is refused in words, nothing is logged, no byte is written."""

import inspect
import json
import math

import pytest
from doctor.snapshots import snapshot_file
from support.hostile import HOSTILE_JSON
from support.jupyter.panels import PanelError

import dgkit
from dgkit.widgets.base.page_input import check_json

# A valid value for each field, so that one hostile value at a time reaches the code behind it.
FORM = {
    "region": 1, "op": "write", "kind": "text", "payload": "x", "offset": "0", "size": "4",
    "repeat": "1", "depth": "1",
}  # fmt: skip
FIELDS = {
    "form": FORM, "shape": "64", "dtype": "u1", "on": "host", "fill": "zeros", "name": "",
    "region": 1, "number": 1, "request": 1, "job": 1, "sure": False, "variable": "x", "view": "v",
    "at": 0, "n": 1, "start": 0, "stop": 4, "text": "00", "kind": "hex", "by": 1, "key": "k",
    "size": 4, "offset": 0, "figure": "p50", "arrangement": "tabs", "tab": "transfer",
}  # fmt: skip
OPTIONS = ("dtype", "columns", "endian", "source", "width", "format", "size", "op", "rate", "path")
ENDS_IT = {"free", "restart", "start_sweep", "show_me"}  # what a user may ask for, and takes long

PANELS = {
    "allocate": dgkit.AllocatePanel,
    "transfer": dgkit.TransferPanel,
    "hexview": dgkit.HexView,
    "latency": dgkit.LatencyPlot,
    "dashboard": dgkit.dashboard,
    "doctor": lambda _: dgkit.DoctorPanel(snapshot_file("pix")),
}


def handlers(panel):
    """Yield the name of each handler of a panel, and the fields that it takes."""
    for receiver in (panel, *panel.models()):
        for name, method in inspect.getmembers_static(type(receiver), inspect.isfunction):
            if hasattr(method, "_dgkit_handler") and name not in ENDS_IT:
                taken = list(inspect.signature(method).parameters.values())[1:]
                named = [one.name for one in taken if one.kind is not one.VAR_KEYWORD]
                yield name, [*named, *(OPTIONS if len(named) < len(taken) else ())]


def hostile_calls(panel):
    for name, fields in handlers(panel):
        good = {key: FIELDS[key] for key in fields if key in FIELDS}
        for value in HOSTILE_JSON:
            yield from ((name, {**good, key: value}) for key in fields if key != "buffers")
            for key in FORM if "form" in fields else ():
                yield name, {"form": {**FORM, key: value}}
                yield name, {"form": {one: FORM[one] for one in FORM if one != key}}


@pytest.mark.parametrize("kind", PANELS)
def test_no_hostile_message_is_logged_or_writes_or_goes_unanswered(session, view, kind, caplog):
    regions = [session.empty(4096) for _ in range(2)]
    for region in regions:
        session.write(region, b"\x5a" * 4096)
    watched = view(PANELS[kind](session))
    panel = watched.panel
    refused = 0
    for number, (name, fields) in enumerate(hostile_calls(panel)):
        panel._handle_custom_msg({"id": number, "call": name, "fields": fields}, [])
        replies = watched.of("reply")
        assert [reply["id"] for reply in replies] == [number], (name, fields)
        refused += "error" in replies[0]
        for content, _ in watched.messages:
            json.dumps(content, allow_nan=False, ensure_ascii=False).encode()
        watched.messages.clear()
    assert refused
    assert not caplog.records
    if kind != "transfer":  # whose forms ask for writes
        assert all(session.read(region, 4096) == b"\x5a" * 4096 for region in regions)


@pytest.mark.parametrize("value", [*HOSTILE_JSON[-1:], "\ud800", math.nan, {"x": math.inf}])
@pytest.mark.parametrize("part", ["id", "call", "fields", "nested"])
def test_what_json_of_a_page_cannot_hold_is_refused(view, part, value, caplog):
    watched = view(dgkit.DoctorPanel(snapshot_file("pix")))
    message = {"id": 1, "call": "check", "fields": {}}
    message |= {"fields": {"check": value}} if part == "nested" else {part: value}
    watched.panel._handle_custom_msg(message, [])
    assert not [record for record in caplog.records if record.exc_info]
    for content, _ in watched.messages:
        json.dumps(content, allow_nan=False, ensure_ascii=False).encode()


@pytest.mark.parametrize("trait", ["layout", "_esm", "tooltip"])
@pytest.mark.parametrize("value", [HOSTILE_JSON[-1], "\ud800", math.nan])
def test_a_hostile_trait_is_refused_in_words(view, trait, value):
    watched = view(dgkit.DoctorPanel(snapshot_file("pix")))
    before = getattr(watched.panel, trait)
    watched.panel.set_state({trait: value})
    assert getattr(watched.panel, trait) is before
    assert watched.errors


def test_a_page_cannot_replace_the_code_of_a_panel(view):
    """It would run in each other page of the kernel."""
    watched = view(dgkit.DoctorPanel(snapshot_file("pix")))
    before = watched.panel._esm, watched.panel._css
    watched.panel.set_state({"_esm": "export default {}", "_css": "*{}"})
    assert (watched.panel._esm, watched.panel._css) == before
    assert "_css, _esm" in watched.errors[-1]


def test_a_refusal_is_short(view):
    watched = view(dgkit.DoctorPanel(snapshot_file("pix")))
    with pytest.raises(PanelError) as caught:
        watched.ask("aim", goal="x" * 100_000)
    assert len(str(caught.value)) <= 2000


def test_ordinary_json_passes():
    check_json({"form": {"deep": [[1, -2.5, "½ 👩‍💻"]], "none": None, "yes": True}})
