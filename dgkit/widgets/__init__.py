"""Panels for a notebook: allocate memory, start transfers, look at bytes, watch latency.

`panel` is what they share (with panel.js and panel.css), `frames` the one thread they have, `desk`
what those of one session have in common; then one module a panel, its .js and .css beside it.
"""

TYPE_CHECKING = False
if TYPE_CHECKING:
    from .bokeh_view import show as show

__all__ = ["show"]


def __getattr__(name: str) -> object:
    """Bokeh is loaded when the first figure is shown."""
    if name != "show":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from .bokeh_view import show

    return show
