# SPDX-License-Identifier: Apache-2.0
"""From a transfer to the bytes that it touched, in the hex views of the session."""

import os
import signal

import pytest
from support.jupyter.panels import PanelError
from support.processes.waiting import stop, until

import dgkit


@pytest.fixture
def session(own_session):
    return own_session


@pytest.fixture
def panel(session, view):
    return view(dgkit.TransferPanel(session))


@pytest.fixture
def region(session):
    return session.empty(4096, name="page")


def written(panel, region, **how):
    """Write and return the number of the completion."""
    panel.panel.transfer("write", region, b"marked", **how).wait()
    return panel.panel.last_completion["number"]


def test_the_hex_views_that_follow_the_session_select_its_bytes(session, view, panel, region):
    hexview = view(dgkit.HexView(session))
    number = written(panel, region, offset=100)
    other = session.empty(64, name="other")
    hexview.ask("choose", number=other.id)
    reply = panel.ask("show_bytes", number=number)
    assert reply["text"] == f"No. {number}: 6 bytes of page at offset 100, shown in the hex view."
    assert hexview.panel.region is region
    assert hexview.panel.selection == (100, 106)
    assert hexview.panel.value == b"marked"
    assert hexview.of("goto")[-1] == {"kind": "goto", "start": 100, "stop": 106}


def test_a_hex_view_of_another_region_stays_and_that_is_said(session, view, panel, region):
    other = session.empty(64, name="other")
    fixed = view(dgkit.HexView(session, other))
    reply = panel.ask("show_bytes", number=written(panel, region))
    assert "no hex view shows page" in reply["text"]
    assert fixed.panel.region is other
    assert fixed.of("goto") == []


def test_a_closed_hex_view_is_not_asked(session, view, panel, region):
    view(dgkit.HexView(session)).panel.close()
    reply = panel.ask("show_bytes", number=written(panel, region))
    assert "no hex view shows page" in reply["text"]


def test_of_a_transfer_that_was_cancelled_the_bytes_that_it_moved_are_shown(session, view, panel):
    hexview = view(dgkit.HexView(session))
    region = session.empty(32 << 20, name="large")
    run = panel.panel.transfer("write", region, pattern="ones", size=31 << 20, offset=7, repeat=999)
    panel.wait_for("run", lambda fields: fields["run"] and fields["run"]["fraction"] > 0)
    stop(session.owned_pid)  # else a transfer may end before it is cancelled
    try:
        until(lambda: run.silent_s > 0.2, "what had ended is recorded, and one is in flight")
        run.cancel()
        run.wait(10)
    finally:
        os.kill(session.owned_pid, signal.SIGCONT)
    record = panel.panel.last_completion
    assert record["status"] == "CANCELLED"
    panel.ask("show_bytes", number=record["number"])
    assert hexview.panel.selection == (7, 7 + max(1, record["size"]))


def test_what_cannot_be_shown_is_said(panel, region):
    number = written(panel, region)
    with pytest.raises(PanelError, match="no completion 999 is listed"):
        panel.ask("show_bytes", number=999)
    region.close()
    with pytest.raises(PanelError, match=f"region 'page' of transfer No. {number} was freed"):
        panel.ask("show_bytes", number=number)
