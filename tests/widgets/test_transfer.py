# SPDX-License-Identifier: Apache-2.0
"""TransferPanel without a browser: its handlers, and the messages to its views."""

import os
import signal

import numpy as np
import pytest
from support.jupyter.panels import PanelError
from support.jupyter.transfer import ended, form, start
from support.processes.agents import agent
from support.processes.waiting import until

import dgkit
from dgkit.errors import AccessDenied, BoundsError, ClosedError
from dgkit.widgets.transfer import request
from dgkit.widgets.transfer.transfer_panel import MAX_COMPLETIONS, TransferPanel

MIB = 1 << 20


@pytest.fixture
def session(own_session):
    return own_session


@pytest.fixture
def panel(session, view):
    return view(TransferPanel(session))


@pytest.fixture
def region(session):
    with session.empty(MIB, name="r") as region:
        yield region


@pytest.fixture(scope="module")
def steady():
    """A session and a region for what starts nothing."""
    with dgkit.connect() as session:
        yield session, session.empty(MIB, name="r")


def test_a_write_is_started_and_its_completion_is_listed(panel, session, region):
    (record,) = start(panel, region, offset="0x10")
    assert bytes(region.array[14:23]) == b"\0\0hello\0\0"
    assert (record["status"], record["size"], record["what"]) == ("OK", 5, "write r")
    assert (record["offset"], record["dma"], record["provider"]) == (16, "WRITE", "soft")
    assert 0 <= record["post_ns"] <= record["complete_ns"]
    assert int(record["submit_ns"]) > 0
    assert min(record["read_ns"], record["write_ns"], record["chunks"]) > 0
    assert panel.of("run")[-1]["ended"] == "1 transfer completed."


def test_a_write_is_reported_to_the_panels_that_show_the_bytes(panel, session, region, view):
    other = view(TransferPanel(session))
    start(panel, region)
    written = other.wait_for("session", lambda fields: fields["change"] == "written")
    assert written["id"] == region.id


@pytest.mark.parametrize(
    ("kind", "given", "expected"),
    [
        ("text", "ab", b"ab"),
        ("hex", "de ad", b"\xde\xad"),
        ("pattern", "counter", bytes(range(64))),
        ("expression", "np.arange(3, dtype='u1')", b"\0\1\2"),
    ],
)
def test_each_kind_of_payload_arrives(panel, region, notebook, kind, given, expected):
    region.array[:] = 255
    start(panel, region, kind=kind, payload=given)
    assert region.array[: len(expected)].tobytes() == expected
    assert region.array[len(expected)] == 255


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"op": "swap"}, "op"),
        ({"region": 99}, "region"),
        ({"region": "r"}, "region"),
        ({"offset": ""}, "offset"),
        ({"offset": "x"}, "offset"),
        ({"offset": "-1"}, "offset"),
        ({"offset": "1M"}, "offset"),
        ({"offset": str((1 << 20) - 2)}, "payload"),
        ({"op": "read", "size": "1025K"}, "size"),
        ({"op": "read", "size": ""}, "size"),
        ({"op": "read", "size": "0"}, "size"),
        ({"op": "read", "size": "-4"}, "size"),
        ({"kind": "pattern", "payload": "zeros", "size": ""}, "size"),
        ({"kind": "pattern", "payload": "stripes"}, "payload"),
        ({"kind": "hex", "payload": "0g"}, "payload"),
        ({"kind": "text", "payload": ""}, "payload"),
        ({"kind": "expression", "payload": "1 +"}, "payload"),
        ({"kind": "verse"}, "payload"),
        ({"repeat": "0"}, "repeat"),
        ({"repeat": "1.5"}, "repeat"),
        ({"repeat": str(request.MAX_REPEAT + 1)}, "repeat"),
        ({"depth": ""}, "depth"),
        ({"depth": "65"}, "depth"),
    ],
)
def test_a_bad_field_is_named_before_anything_moved(steady, view, notebook, fields, field):
    session, region = steady
    panel = view(TransferPanel(session))
    with pytest.raises(PanelError) as caught:
        panel.ask("start", form=form(region, **fields))
    assert caught.value.field == field
    assert panel.ask("hello")["completions"] == []
    assert not region.array.any()
    assert session.stats()["moves"] == 0


def test_access_is_asked_before_anything_moves(panel, session):
    with session.register(bytearray(64), access="r", name="seen") as region:
        with pytest.raises(PanelError, match="access 'r'") as caught:
            panel.ask("start", form=form(region))
        assert (caught.value.kind, caught.value.field) == ("AccessDenied", "op")


def test_reads_in_flight_are_bounded(panel, region, monkeypatch):
    monkeypatch.setattr(request, "MAX_PAYLOAD", 1 << 16)
    with pytest.raises(PanelError, match="in flight") as caught:
        panel.ask("start", form=form(region, op="read", size="16K", repeat="8", depth="5"))
    assert caught.value.field == "depth"


@pytest.mark.parametrize("op", ["read", "write"])
@pytest.mark.parametrize("depth", [1, 4, 64])
def test_a_repeat_has_figures_of_the_completions_stamps(panel, session, region, op, depth):
    start(panel, region, op=op, repeat="200", depth=str(depth), kind="pattern", payload="ones")
    state = panel.ask("hello")
    summary = state["summary"]
    assert (summary["what"], summary["count"], summary["bytes"]) == (f"{op} r", 200, 200 * 64)
    assert session.stats()["moves"] == 200
    for _, least, middle, most in summary["rows"]:
        assert 0 < least <= middle <= most
    assert len(state["completions"]) == MAX_COMPLETIONS
    assert [each["number"] for each in state["completions"]] == list(range(151, 201))


def test_the_figures_are_those_of_the_stamps():
    from dgkit.widgets.transfer.request_runner import Timings

    class Report:
        size = 10

        def __init__(self, latency_ns):
            self.latency_ns, self.read_ns, self.write_ns = latency_ns, 0, 2 * latency_ns

    timings = Timings()
    timings.add(Report(7))
    assert timings.summary() is None
    for ns in (1, 9, 3):
        timings.add(Report(ns))
    summary = timings.summary()
    assert [row[1:] for row in summary["rows"]] == [[1, 5.0, 9], [2, 10.0, 18]]
    assert (summary["count"], summary["bytes"]) == (4, 40)


def test_from_python_a_run_can_be_waited_for(panel, session, region):
    run = panel.panel.transfer("write", region, np.arange(4, dtype="u1"), offset=2)
    assert run.wait(10) is run
    assert region.array[:7].tolist() == [0, 0, 0, 1, 2, 3, 0]
    run = panel.panel.transfer("write", region, pattern="byte:9", size="4K", repeat=3, depth=2)
    assert run.wait(10).ended
    assert region.array[:4096].tolist() == [9] * 4096
    assert repr(run) == "<Run of 3 transfers, 3 done, ended>"


def test_from_python_what_is_wrong_is_raised_and_nothing_starts(panel, session, region):
    start = panel.panel.transfer
    with pytest.raises(BoundsError):
        start("write", region, b"x", offset=MIB)
    with pytest.raises(ValueError, match="op is"):
        start("swap", region, size=1)
    with pytest.raises(TypeError):
        start("write", region)
    with pytest.raises(ValueError, match="needs a size"):
        start("read", region)
    with dgkit.connect() as other, pytest.raises(ValueError, match="another session"):
        TransferPanel(other).transfer("read", region, size=1)
    with session.register(bytearray(4), access="w") as mine, pytest.raises(AccessDenied):
        start("read", mine, size=1)
    region.close()
    with pytest.raises(ClosedError):
        start("read", region, size=1)
    assert session.stats()["moves"] == 0


def test_a_new_view_gets_the_progress_and_the_completions(panel, session, region, view):
    start(panel, region)
    state = view(panel.panel).ask("hello")
    assert len(state["completions"]) == 1
    assert state["run"] is None
    assert not {"timeline", "clock"} & state.keys()  # made when a view asks
    clock = panel.ask("timeline")["clock"]
    assert "software DPU, process" in clock
    assert str(session.owned_pid) in clock


def test_where_this_process_is_the_dpu_it_moves_the_bytes(view):
    with agent(role="host") as lender, dgkit.connect(lender.address) as session:
        panel = view(TransferPanel(session))
        region = session.empty(8 * MIB, name="theirs")
        start(panel, region, kind="pattern", payload="counter", size="5M", repeat="2", depth="2")
        (record, _) = start(panel, region, op="read", size="256")[-2:]
        assert (record["status"], record["read_ns"], record["chunks"]) == ("OK", 0, 3)
        assert panel.ask("hello")["read_result"]["lines"][1].startswith("00000010  10 11 12")
        assert f"process {os.getpid()}" in panel.ask("timeline")["clock"]


def test_a_reader_without_a_kernel_sees_the_last_completions(panel, session, region):
    with session.empty(64, name="<i>odd</i>") as odd:
        start(panel, odd)
        start(panel, region, repeat="20")
        shown = panel.panel.static_html()
    assert "software DPU" in shown
    assert shown.count("<tr>") > 10
    assert all(f"<{tag}" not in shown for tag in ("svg", "script", "style>", "i>"))
    assert "CLOCK_MONOTONIC" in shown


def test_a_payload_is_bounded(panel, region, monkeypatch):
    monkeypatch.setattr(request, "MAX_PAYLOAD", 64)
    with pytest.raises(PanelError, match="the limit is 64 B") as caught:
        panel.ask("start", form=form(region, payload="x" * 65))
    assert caught.value.field == "payload"


def test_a_closed_session_is_shown_and_starts_nothing(session, view):
    panel = view(TransferPanel(session))
    region = session.empty(64)
    number = region.id
    session.close()
    assert panel.ask("hello")["closed"]
    fields = form(region, region=number)
    with pytest.raises(PanelError):
        panel.ask("start", form=fields)
    assert "The session is closed" in panel.panel.static_html()


def test_a_lost_dpu_is_reported_again_at_the_next_start(panel, session, region):
    os.kill(session.owned_pid, signal.SIGKILL)
    for count in (1, 2):
        panel.ask("start", form=form(region))
        record = ended(panel, count)["completions"][-1]
        assert record["status"] == "PEER_LOST"
        assert until(lambda: panel.of("failed"), "it is shown")[-1]["error"]["kind"] == "PeerLost"
