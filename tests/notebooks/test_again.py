# SPDX-License-Identifier: Apache-2.0
"""Cells that are run again in a real kernel: what their last run made does not pile up."""

import pytest
from support.jupyter.kernel import kernel
from support.processes.waiting import children, until


class Cells:
    """Runs code as the cells of a notebook do."""

    def __init__(self, started):
        self._started = started

    @property
    def agents(self):
        """The software DPUs that the kernel has."""
        return children(self._started.manager.provisioner.pid)

    def run(self, cell, code):
        """What the cell put out."""
        self._started.client.session.metadata = {"cellId": cell}
        reply, said = self._started.run(code)
        assert reply["status"] == "ok", reply
        return said

    def value(self, expression):
        said = self.run("", f"print({expression})")
        return "".join(part["text"] for kind, part in said if kind == "stream").strip()


@pytest.fixture
def cells(tmp_path):
    with kernel(tmp_path) as started:
        made = Cells(started)
        made.run("", "import dgkit")
        yield made


def test_a_cell_that_connects_and_shows_a_dashboard_leaves_one_agent_however_often(cells):
    for _ in range(4):
        cells.run("one", "session = dgkit.connect()\ndgkit.dashboard(session)")
        until(lambda: len(cells.agents) == 1, "the agent of the last run has ended")
    assert cells.value("session.closed") == "False"


def test_a_dashboard_whose_session_another_cell_made_is_the_same_one_each_time(cells):
    cells.run("session", "session = dgkit.connect()")
    for _ in range(3):
        cells.run("board", "board = dgkit.dashboard(session)\nboard")
        cells.run("", "first = globals().get('first', board)")
    assert cells.value("board is first and not board.closed") == "True"


def test_a_panel_is_closed_when_its_cell_runs_again_or_makes_none_any_more(cells):
    cells.run("session", "session = dgkit.connect()")
    for panel in ("AllocatePanel", "TransferPanel", "HexView", "LatencyPlot"):
        for name in ("a", "b"):
            cells.run(panel, f"{name} = dgkit.{panel}(session)\n{name}")
        assert cells.value("a.closed, b.closed") == "True False", panel
        cells.run(panel, "pass")
        assert cells.value("b.closed") == "True", panel
