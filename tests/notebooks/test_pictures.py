"""Figures over NumPy arrays, which are in what the page is sent; static pictures of containers."""

import base64
import gzip
import json

import nbformat
import numpy as np
import pytest
from bokeh.plotting import figure
from support.jupyter.notebooks import WIDGET, run

from dgkit.widgets.base.picture import Picture
from dgkit.widgets.base.static_output import StaticOutput
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
    data = [[out.get("data", {}) for out in cell.outputs] for cell in done.cells[1:]]
    return [[one for one in cell if "text/plain" in one] for cell in data]  # but not the style


@pytest.mark.parametrize(
    "shown",
    [
        "W.HBox([dgkit.HexView(s)])",
        "W.Tab([W.Label('none'), W.VBox([dgkit.HexView(s)])])",
        "display(W.Accordion([dgkit.HexView(s)]))",
        "out = W.Output()\nwith out:\n    display(dgkit.HexView(s))\nout",
        "view = dgkit.HexView(s)\nout = W.Output()\ndisplay(out)\nwith out:\n    display(view)",
        "W.interact(lambda number: dgkit.HexView(s), number=(0, 3));",
    ],
)
def test_a_container_leaves_a_picture_of_its_panels(shown, tmp_path):
    (cell,) = outputs(tmp_path, shown)
    views = [data for data in cell if WIDGET in data]
    assert len(views) == 1, "the container, once"
    (image,) = [data for data in cell if "image/png" in data]
    assert image["text/plain"] == "Memory"


def test_a_container_without_panels_is_put_out_as_before(tmp_path):
    panel, plain, output = outputs(
        tmp_path, "dgkit.HexView(s)", "W.HBox([W.IntSlider()])", "W.Output()"
    )
    assert ["image/png" in data for data in panel] == [False, True]
    for (data,) in (plain, output):
        assert data["text/plain"].startswith(("HBox", "Output"))
        assert WIDGET in data


def test_without_a_page_a_picture_is_renewed_at_the_end_of_each_cell(tmp_path):
    view = "view = dgkit.HexView(s, region)\nview"
    ((_, before),) = outputs(tmp_path, view)
    (_, after), _ = outputs(tmp_path, view, "s.write(region, b'written later')\nview.goto(0)")
    assert before["image/png"] != after["image/png"]
    boxed = "view = dgkit.HexView(s, region)\nW.HBox([view])"
    (_, changed), _ = outputs(tmp_path, boxed, "s.write(region, b'written later')\nview.goto(0)")
    assert changed["image/png"] != before["image/png"]


def test_a_picture_that_has_not_changed_is_not_published_again(monkeypatch):
    published = []

    def publish(data, metadata=None, **options):
        if "image/png" in data:
            published.append(options)

    monkeypatch.setattr("IPython.display.publish_display_data", publish)
    text = ["one"]

    def draw():
        picture = Picture("alt")
        picture.text(text[0])
        return picture

    output = StaticOutput(draw)
    output.publish()
    assert not output.flush()
    text[0] = "two"
    assert output.flush()
    assert [options["update"] for options in published] == [False, True]
    output.end()
    text[0] = "three"
    assert not output.flush()
