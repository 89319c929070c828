# SPDX-License-Identifier: Apache-2.0
"""InlineFigures: figures of an exported page that are interactive without a kernel.

A preprocessor of nbconvert, for its option `--HTMLExporter.preprocessors`. It replaces the views
and pictures of show() by the figures themselves, where the notebook has their widget state, and
adds BokehJS once. A figure without a state keeps its picture.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import takewhile
from typing import Any

from nbconvert.preprocessors import Preprocessor

from . import bokehjs

_VIEW = "application/vnd.jupyter.widget-view+json"
_STATE = "application/vnd.jupyter.widget-state+json"
_DRAW = """<script>(() => {
const {document: text, roots} = %s;
const content = Bokeh.require("document").Document.from_json(JSON.parse(text));
const places = content.roots().map(({id}) => {
  const place = document.createElement("div");
  if (roots.includes(id)) document.getElementById("%s").append(place);
  return place;
});
Bokeh.require("embed/standalone").add_document_standalone(content, places[0], places);
})()</script>"""


class InlineFigures(Preprocessor):
    """Replaces pictures of figures by the figures, and adds BokehJS once."""

    def preprocess(self, nb: Any, resources: Any) -> tuple[Any, Any]:
        """Return the notebook with its figures, and the resources as they were."""
        states = nb.metadata.get("widgets", {}).get(_STATE, {}).get("state", {})
        have: set[str] = set()  # parts of BokehJS already in the page
        for number, cell in enumerate(nb.cells):
            for at, output in _views(cell):
                saved = states.get(output["data"][_VIEW]["model_id"], {}).get("state", {})
                figure = saved.get("saved") or {}
                if not figure:
                    continue
                if figure["bokeh"] != bokehjs.version():
                    self.log.warning(
                        "a figure of BokehJS %s keeps its picture: %s is installed",
                        figure["bokeh"], bokehjs.version(),
                    )  # fmt: skip
                    continue
                lacking = {"bokeh", *figure["components"]} - have
                have |= lacking
                output["data"] = {"text/html": _html(figure, f"dgkit-{number}-{at}", lacking)}
                output["metadata"] = {}
                below = cell.outputs[at + 1 :]  # what a saved notebook shows, see static_output
                del cell.outputs[at + 1 : at + 1 + sum(1 for _ in takewhile(_is_static, below))]
        return nb, resources


def _is_static(output: Any) -> bool:
    return bool(output.get("metadata", {}).get("dgkit", {}).get("picture"))


def _views(cell: Any) -> Iterator[tuple[int, Any]]:
    """Yield the outputs of a cell that are views of widgets, with their numbers."""
    for at, output in enumerate(cell.get("outputs", ())):
        if _VIEW in output.get("data", {}):
            yield at, output


def _html(figure: dict[str, Any], place: str, lacking: set[str]) -> str:
    """Return a figure as HTML, preceded by the parts of BokehJS that the page lacks."""
    order = [name for name in ("bokeh", "widgets", "tables", "gl") if name in lacking]
    scripts = [f"<script>{script.decode()}</script>" for script in bokehjs.scripts(order)]
    text = json.dumps({name: figure[name] for name in ("document", "roots")})
    drawing = _DRAW % (text.replace("<", "\\u003c"), place)
    return f'{"".join(scripts)}<div id="{place}"></div>{drawing}'
