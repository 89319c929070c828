# SPDX-License-Identifier: Apache-2.0
"""BokehJS from the installed package, so that figures work offline.

The scripts and their version are found without importing bokeh, which takes half a second: a panel
appears at once, and its figures follow.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from importlib.metadata import version as installed
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from bokeh.document import Document

    from ..base.page_input import Json

_PARTS = ("widgets", "tables", "gl")


@lru_cache(maxsize=1)
def version() -> str:
    """Return the version of BokehJS, equal to its `Bokeh.version`.

    Raises:
        PackageNotFoundError: bokeh is not installed.
    """
    return installed("bokeh")


def scripts(names: Sequence[str]) -> list[bytes]:
    """Return the source text of BokehJS components.

    Args:
        names: `bokeh` for the core, or `widgets`, `tables`, `gl`.

    Returns:
        One script per name, in the same order.

    Raises:
        ModuleNotFoundError: bokeh is not installed.
        ValueError: A name is unknown.
    """
    unknown = sorted({*names} - {"bokeh", *_PARTS})
    if unknown:
        raise ValueError(f"BokehJS has no part {unknown[0]!r}; known: bokeh, {', '.join(_PARTS)}")
    spec = find_spec("bokeh")
    if spec is None or spec.origin is None:
        raise ModuleNotFoundError("bokeh is not installed", name="bokeh")
    folder = Path(spec.origin).parent / "server/static/js"
    files = ["bokeh.min.js" if name == "bokeh" else f"bokeh-{name}.min.js" for name in names]
    return [(folder / file).read_bytes() for file in files]


def components(document: Document) -> list[str]:
    """Return the parts of BokehJS that the models of a document need, besides the core."""
    needed = set()
    for model in document.models:
        module = type(model).__module__
        if module.startswith("bokeh.models.widgets.tables"):
            needed |= {"widgets", "tables"}
        elif module.startswith("bokeh.models.widgets"):
            needed.add("widgets")
        if getattr(model, "output_backend", "") == "webgl":
            needed.add("gl")
    return [name for name in _PARTS if name in needed]


@lru_cache(maxsize=1)
def _dark_theme() -> Any:
    """Return the colours of Bokeh's dark theme on the page's background.

    Its fonts and distances are left out, so that a figure has the same layout on either page.
    """
    from bokeh.themes import Theme, built_in_themes

    attributes: dict[str, Json] = {
        model: {name: value for name, value in values.items() if _is_colour(model, name)}
        for model, values in built_in_themes["dark_minimal"]._json["attrs"].items()
    }
    attributes["Plot"] |= {"background_fill_alpha": 0, "border_fill_alpha": 0}
    light = attributes["Title"]["text_color"]
    attributes["Label"] = {"text_color": light}
    groups = {"group_text_color": light, "subgroup_text_color": light}
    attributes["CategoricalAxis"] = {**groups, "separator_line_color": light}
    return Theme(json={"attrs": attributes})


def _is_colour(model: str, name: str) -> bool:
    """Return whether an attribute of a theme is a colour; axes are as opaque as by default."""
    return name.endswith("_color") or (name.endswith("_alpha") and "Axis" not in model)


def snapshot(document: Document, *, dark: bool) -> str:
    """Return a document as JSON for `Document.from_json`, in the theme of a dark or light page."""
    from bokeh.core.json_encoder import serialize_json
    from bokeh.themes import default

    document.theme = _dark_theme() if dark else default
    content: Any = document.to_json(deferred=False)  # NumPy arrays inline, not as buffers
    return serialize_json(content)
