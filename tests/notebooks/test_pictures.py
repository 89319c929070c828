# SPDX-License-Identifier: Apache-2.0
"""Figures over NumPy arrays, which are in what the page is sent; saved notebooks of containers."""

import base64
import gzip
import json

import nbformat
import numpy as np
import pytest
from bokeh.plotting import figure
from support.jupyter.notebooks import WIDGET, run

from dgkit.widgets.figure import bokehjs
from dgkit.widgets.figure.figure import BokehView


def buffers(part):
    """The arrays' bytes in the JSON of a document, wherever they are."""
    if isinstance(part, dict):
        if part.get("type") == "bytes":
            return [part["data"]]
        part = list(part.values())
    return [found for inner in part for found in buffers(inner)] if isinstance(part, list) else []


def test_an_image_is_whole_in_its_snapshot():
    image = np.arange(64, dtype="u1").reshape(8, 8)
    drawn = figure()
    drawn.image([image], x=0, y=0, dw=8, dh=8)
    view = BokehView(drawn, alt="an image")
    text = bokehjs.snapshot(view.document(dark=False), dark=False)
    found = buffers(json.loads(text))
    view.close()
    arrays = [base64.b64decode(data) for data in found if isinstance(data, str)]
    assert image.tobytes() in [gzip.decompress(array) for array in arrays]


SESSION = """
import dgkit, ipywidgets as W
s = dgkit.connect()
region = s.empty(4096, name="pictured")
"""


def outputs(tmp_path, *sources):
    """The data of each output of each cell, after a session was made."""
    cells = [nbformat.v4.new_code_cell(source) for source in (SESSION, *sources)]
    done = run(nbformat.v4.new_notebook(cells=cells), tmp_path)
    return [[out.get("data", {}) for out in cell.outputs] for cell in done.cells[1:]]


def cards(cell):
    """The HTML of the cards in the outputs of a cell."""
    found = [data.get("text/html", "") for data in cell if WIDGET not in data]
    return [text for text in found if "dgkit-saved" in text]


CONTAINERS = (
    "W.HBox([dgkit.HexView(s)])",
    "W.Tab([W.Label('none'), W.VBox([dgkit.HexView(s)])])",
    "display(W.Accordion([dgkit.HexView(s)]))",
    "out = W.Output()\nwith out:\n    display(dgkit.HexView(s))\nout",
    "view = dgkit.HexView(s)\nout = W.Output()\ndisplay(out)\nwith out:\n    display(view)",
    "W.interact(lambda number: dgkit.HexView(s), number=(0, 3));",
)


def test_a_container_leaves_the_cards_of_its_panels(tmp_path):
    for shown, cell in zip(CONTAINERS, outputs(tmp_path, *CONTAINERS), strict=True):
        views = [data for data in cell if WIDGET in data]
        assert len(views) == 1, f"the container, once: {shown}"
        (card,) = cards(cell)
        assert "<strong>Memory</strong>" in card, shown


def test_a_container_without_panels_is_put_out_as_before(tmp_path):
    panel, plain, output = outputs(
        tmp_path, "dgkit.HexView(s)", "W.HBox([W.IntSlider()])", "W.Output()"
    )
    assert len(cards(panel)) == 1
    for (data,) in (plain, output):
        assert data["text/plain"].startswith(("HBox", "Output"))
        assert WIDGET in data


def test_without_a_page_a_card_is_renewed_at_the_end_of_each_cell(tmp_path):
    later = "s.write(region, b'written later')\nview.goto(0)"
    for shown in ("view", "W.HBox([view])"):
        cell, _ = outputs(tmp_path, f"view = dgkit.HexView(s, region)\n{shown}", later)
        (card,) = cards(cell)
        assert "written later" in card


def test_without_a_page_a_figure_is_drawn_at_the_end_of_its_cell(tmp_path):
    pytest.importorskip("matplotlib", reason="not for Python 3.15 yet")
    source = "from bokeh.plotting import figure\nfrom dgkit.widgets import show\n"
    source += "fig = figure(title='a line')\nfig.line([1, 2], [2, 1])\nshow(fig)"
    (cell,) = outputs(tmp_path, source)
    assert "image/png" in cell[-1]
    assert "a line" in cards(cell)[0]
