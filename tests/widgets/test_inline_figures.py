# SPDX-License-Identifier: Apache-2.0
"""InlineFigures: which figures of a notebook an exported page has, and what stays a picture."""

import json

import nbformat
import pytest
from bokeh.models import Slider
from bokeh.plotting import figure

from dgkit.widgets.figure import figure as bokeh_view
from dgkit.widgets.figure.figure import BokehView
from dgkit.widgets.figure.inline import InlineFigures

STATE = "application/vnd.jupyter.widget-state+json"
VIEW = "application/vnd.jupyter.widget-view+json"


def line():
    made = figure(title="a line", height=200)
    made.line([1, 2, 3], [3, 1, 2])
    return made


@pytest.fixture
def page(view):
    """Export figures, whose widgets' states `change` may alter; give the outputs of each cell."""

    def export(*roots, change=lambda state: state):
        cells, states = [], {}
        for number, root in enumerate(roots):
            panel = view(BokehView(root)).panel
            state = json.loads(json.dumps(panel.get_state(["saved"])))
            states[panel.model_id] = {"state": change(state)}
            mark = {"dgkit": {"picture": f"p{number}"}}
            data = (
                ({VIEW: {"model_id": panel.model_id}}, {}),
                ({"text/html": "<style>"}, mark),
                ({"image/png": ""}, mark),
                ({"text/plain": "another output"}, {}),
            )
            outputs = [
                nbformat.v4.new_output("display_data", data=one, metadata=about)
                for one, about in data
            ]
            cells.append(nbformat.v4.new_code_cell("show(figure)", outputs=outputs))
        book = nbformat.v4.new_notebook(cells=cells)
        book.metadata.widgets = {STATE: {"state": states}}
        cells[0].id = '"></div><img src=x onerror=alert(2)>'  # nbconvert does not validate ids
        done, _ = InlineFigures().preprocess(book, {})
        return [[output["data"] for output in cell.outputs] for cell in done.cells]

    return export


def test_figures_come_in_the_place_of_their_pictures_with_bokehjs_once(page):
    first, second = page(line(), line())
    for outputs in (first, second):
        assert [list(data) for data in outputs] == [["text/html"], ["text/plain"]]
    assert len(first[0]["text/html"]) > 1_000_000
    assert len(second[0]["text/html"]) < 50_000


def test_a_part_of_bokehjs_comes_with_the_first_figure_that_needs_it(page):
    plain, slider = page(line(), Slider(start=0, end=1, value=0))
    assert "bokeh-widgets" not in plain[0]["text/html"]
    assert len(slider[0]["text/html"]) > 100_000


@pytest.mark.parametrize(
    "change",
    [lambda _: {}, lambda state: {"saved": state["saved"] | {"bokeh": "2.4.3"}}],
    ids=["no state", "another BokehJS"],
)
def test_a_figure_that_cannot_be_drawn_keeps_its_picture(page, change):
    (outputs,) = page(line(), change=change)
    assert [next(iter(data)) for data in outputs] == [VIEW, "text/html", "image/png", "text/plain"]


def test_no_text_of_a_figure_ends_its_script(page):
    made = line()
    made.title.text = "</script><script>alert(1)"
    ((drawn, *_),) = page(made)
    assert "alert(1)" in drawn["text/html"]
    assert "<script>alert" not in drawn["text/html"]


def test_the_id_of_a_cell_adds_nothing_to_the_page(page):
    ((drawn, *_),) = page(line())
    assert "alert(2)" not in drawn["text/html"]


def test_a_figure_that_is_too_large_is_not_in_the_state_and_a_closed_one_has_none(
    view, monkeypatch
):
    panel = view(BokehView(line())).panel
    assert panel.saved["roots"]
    panel.close()
    assert panel.get_state(["saved"])["saved"] == {}
    monkeypatch.setattr(bokeh_view, "_MAX_SAVED", 10)
    assert view(BokehView(line())).panel.saved == {}
