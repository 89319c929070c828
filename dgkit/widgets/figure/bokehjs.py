"""BokehJS as a page needs it: from the installed package, so that it works offline.

The scripts and their version are found without an import of bokeh, which takes half a second: a
panel is there at once, and its figures follow.
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

__all__ = ["DARK", "components", "scripts", "snapshot", "version"]

DARK = "dark_minimal"
_PARTS = ("widgets", "tables", "gl")


@lru_cache(maxsize=1)
def version() -> str:
    """Of BokehJS, as its own `Bokeh.version`. PackageNotFoundError: bokeh is not installed."""
    return installed("bokeh")


def scripts(names: Sequence[str]) -> list[bytes]:
    """The source of BokehJS (`bokeh`) or of parts of it, in this order.

    ValueError: there is no such part.
    """
    unknown = sorted({*names} - {"bokeh", *_PARTS})
    if unknown:
        raise ValueError(f"BokehJS has no part {unknown[0]!r}; it has {', '.join(_PARTS)}")
    spec = find_spec("bokeh")
    if spec is None or spec.origin is None:
        raise ModuleNotFoundError("bokeh is not installed", name="bokeh")
    folder = Path(spec.origin).parent / "server/static/js"
    files = ["bokeh.min.js" if name == "bokeh" else f"bokeh-{name}.min.js" for name in names]
    return [(folder / file).read_bytes() for file in files]


def components(document: Document) -> list[str]:
    """Which parts of BokehJS the models of a document need."""
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


def snapshot(document: Document, *, dark: bool) -> str:
    """The document as JSON for `Document.from_json`, in the theme of a dark page or of a light."""
    from bokeh.core.json_encoder import serialize_json
    from bokeh.themes import built_in_themes, default

    document.theme = built_in_themes[DARK] if dark else default
    made: Any = document.to_json(deferred=False)  # NumPy arrays in the text, not beside it
    return serialize_json(made)
