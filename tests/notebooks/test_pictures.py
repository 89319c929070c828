"""A figure over NumPy arrays: they are in what the page is sent, for nothing else brings them."""

import base64
import gzip
import json

import numpy as np
from bokeh.plotting import figure

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
