# SPDX-License-Identifier: Apache-2.0
"""Long fills of AllocatePanel: progress, cancel, and resources that disappear meanwhile."""

import os
import signal
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from support.processes.waiting import gone, until

from dgkit.widgets.allocate.allocate_panel import AllocatePanel
from dgkit.widgets.base import fill_patterns
from dgkit.widgets.base.fill_patterns import BLOCK, Pattern

MIB = 1 << 20
FORM = {"shape": "16", "dtype": "u1", "on": "host", "fill": "zeros", "name": ""}


@pytest.fixture
def session(own_session):
    return own_session


@pytest.fixture
def panel(session, view):
    return view(AllocatePanel(session))


class Slow:
    """Small blocks."""

    def __init__(self, monkeypatch):
        monkeypatch.setattr(Pattern, "blocks", self.blocks)

    def blocks(self, size, dtype="u1"):
        for at in range(0, size, 1024):
            yield np.full(min(1024, size - at), 7, "u1")


@pytest.fixture
def slow(monkeypatch):
    """A fill of 64 MiB in blocks of 1 KiB, which lasts longer than any check of it."""
    return Slow(monkeypatch)


@pytest.mark.parametrize("on", ["host", "dpu"])
def test_a_fill_reports_progress_and_can_be_cancelled(panel, session, slow, on):
    job = panel.ask("make", **{**FORM, "shape": "64M", "fill": "ones", "on": on})["job"]
    seen = panel.wait_for("jobs", lambda fields: fields["jobs"] and fields["jobs"][0]["done"])
    assert seen["jobs"][0]["total"] == 64 * MIB
    assert panel.ask("hello")["jobs"][0]["id"] == job
    panel.ask("cancel", job=job)
    assert "cancelled after" in panel.wait_for("status")["text"]
    assert panel.ask("hello")["jobs"] == []
    (region,) = session.regions
    assert session.read(region, 1, offset=region.size - 1) == b"\0"
    panel.ask("cancel", job=job)


@pytest.mark.usefixtures("occupied")
def test_closed_before_its_first_step_a_fill_has_ended_for_who_waits(panel, session):
    with ThreadPoolExecutor() as pool:
        made = pool.submit(panel.panel.allocate, 64, fill="ones")
        until(lambda: any(job.task for job in panel.panel._jobs.values()), "the fill waits")
        panel.panel.close()
        assert made.result(20) is session.regions[0]
    assert panel.panel.closed


def test_a_region_that_is_being_filled_is_freed_only_when_that_is_meant(panel, session, slow):
    panel.ask("make", **{**FORM, "shape": "64M", "fill": "ones", "name": "big"})
    panel.wait_for("jobs", lambda fields: fields["jobs"] and fields["jobs"][0]["done"])
    (region,) = session.regions
    assert panel.ask("free", region=region.id)["in_use"] == "a fill is using big"
    assert not region.closed
    panel.ask("free", region=region.id, sure=True)
    panel.wait_for("status", lambda fields: fields["text"] == "big was freed")
    assert not session.regions


def test_a_fill_of_a_region_that_is_freed_elsewhere_says_so(panel, session, slow):
    panel.ask("make", **{**FORM, "shape": "64M", "fill": "ones"})
    panel.wait_for("jobs", lambda fields: fields["jobs"] and fields["jobs"][0]["done"])
    session.regions[0].close()
    until(lambda: panel.errors, "the fill ends")
    assert "was freed after" in panel.errors[0]


def test_a_killed_dpu_is_shown_and_nothing_hangs(panel, session):
    region = session.empty(16, name="mine")
    os.kill(session.owned_pid, signal.SIGKILL)
    until(lambda: gone(session.owned_pid), "it is dead")
    panel.ask(
        "make",
        **FORM,
    )
    assert panel.wait_for("failed")["error"]["kind"] == "PeerLost"
    panel.ask("free", region=region.id)
    panel.wait_for("status", lambda fields: fields["text"] == "mine was freed")


def test_a_dpu_that_is_killed_during_a_fill_ends_the_fill(panel, session, slow):
    panel.ask("make", **{**FORM, "shape": "64M", "fill": "ones", "on": "dpu"})
    panel.wait_for("jobs", lambda fields: fields["jobs"] and fields["jobs"][0]["done"])
    os.kill(session.owned_pid, signal.SIGKILL)
    assert panel.wait_for("failed")["error"]["kind"] == "PeerLost"
    panel.wait_for("jobs", lambda fields: not fields["jobs"])


def test_a_closed_session_is_shown_as_closed(session, view):
    panel = view(AllocatePanel(session))
    session.close()
    state = panel.ask("hello")
    assert (state["closed"], state["regions"]) == (True, [])
    panel.ask("make", **FORM)
    assert panel.wait_for("failed")["error"]["kind"] == "ClosedError"
    assert "The session is closed" in panel.panel.static_html()


def test_closing_the_panel_ends_its_fills_and_leaves_the_regions(session, view, slow):
    panel = view(AllocatePanel(session))
    panel.ask("make", **{**FORM, "shape": "64M", "fill": "ones"})
    panel.wait_for("jobs", lambda fields: fields["jobs"] and fields["jobs"][0]["done"])
    panel.panel.close()
    (region,) = session.regions
    assert region.array[-1] == 0


def test_a_step_fills_one_block(session):
    region = session.empty(3 * BLOCK + 5)
    steps = list(fill_patterns.fill_region(region, Pattern("counter"), "f8"))
    assert steps == [BLOCK, 2 * BLOCK, 3 * BLOCK, 3 * BLOCK + 5]
