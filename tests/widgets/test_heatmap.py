# SPDX-License-Identifier: Apache-2.0
"""HeatMap: cells of a sweep as they come, the choice of the figure, its picture."""

import math
import struct
from types import SimpleNamespace

import pandas as pd
import pytest
from support.jupyter.panels import PanelError

import dgkit

PAIRS = ["a/0", "a/1", "b/0", "b/1"]
KINDS = pd.MultiIndex.from_product([["write", "read"], ["auto"], [64, 4096]])


class Sweep(SimpleNamespace):
    """A sweep whose rows a test adds."""

    def __init__(self):
        super().__init__(rows=0, total=16, done=False, labels=("software DPU",), failures=())
        self.error = None

    def cells(self, figure):
        frame = pd.DataFrame(math.nan, PAIRS, KINDS)
        for row in range(self.rows):
            value = 1.0 if row != 5 else (3.0 if figure == "p50_ns" else 1.5)
            frame.iloc[row // 4, row % 4] = value
        return frame

    def wait(self, _timeout=None):
        if self.error:
            raise self.error
        return self.done


@pytest.fixture
def sweep():
    made = Sweep()
    yield made
    made.done = True


def cells_of(reply):
    rows, columns = reply["shape"]
    return struct.unpack(f"{rows * columns}f", reply["buffers"][0])


def test_a_view_gets_the_figure_and_the_cells(sweep, view):
    sweep.rows = 6
    shown = view(dgkit.HeatMap(sweep))
    state = shown.ask("hello")
    assert state["line"] == "6 of 16 rows, running"
    assert state["label"] == "software DPU"
    assert state["slow"] == [["a/1", "write, 4 KiB", "3.00"]]
    assert [name for name, _ in state["figures"]] == ["p50_ns", "gb_per_s"]
    document = shown.ask("figures", dark=True)["document"]
    assert all(pair in document for pair in PAIRS)
    assert "read, 4 KiB" in document
    cells = cells_of(shown.ask("cells"))
    assert cells[:6] == (1, 1, 1, 1, 1, 3)
    assert all(map(math.isnan, cells[6:]))


def test_a_view_that_is_visible_gets_new_rows_until_the_sweep_ends(sweep, view):
    shown = view(dgkit.HeatMap(sweep))
    shown.ask("watch", view="one", on=True)
    sweep.rows = 3
    shown.wait_for("frame", lambda fields: fields["line"] == "3 of 16 rows, running")
    sweep.rows, sweep.done = 16, True
    shown.wait_for("frame", lambda fields: fields["done"] and "16 of 16" in fields["line"])


def test_another_figure_is_drawn_when_it_is_chosen(sweep, view):
    sweep.rows = 16
    shown = view(dgkit.HeatMap(sweep))
    shown.ask("show", figure="gb_per_s")
    assert shown.panel.figure == "gb_per_s"
    assert shown.wait_for("frame", lambda fields: fields["figure"] == "gb_per_s")["slow"] == [
        ["a/1", "write, 4 KiB", "1.50"]
    ]
    with pytest.raises(PanelError, match="figure is 'took_s'"):
        shown.ask("show", figure="took_s")
    with pytest.raises(TypeError, match="must be a sweep"):
        dgkit.HeatMap(7)


def test_an_error_that_ended_the_sweep_is_shown(sweep, view):
    shown = view(dgkit.HeatMap(sweep))
    sweep.error = dgkit.PeerLost("the scheduler is lost")
    sweep.done = True
    shown.wait_for("failed")
    assert shown.errors == ["the scheduler is lost"]


def test_a_saved_notebook_has_the_cells_and_the_slowest_pairs(sweep, view):
    sweep.rows, sweep.failures = 16, (1, 2)
    panel = view(dgkit.HeatMap(sweep)).panel
    page = panel.static_html()
    assert "16 of 16 rows, running, 2 without a result" in page
    assert "times the median" in page
    (figure,) = panel.static_figures()
    assert len(figure.renderers[0].data_source.data["value"]) == 16
