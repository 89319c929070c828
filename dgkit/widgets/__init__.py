"""Panels for a notebook: memory, transfers, bytes, latency, and what the doctor found.

`base` is what they share; then one package a panel, its .js and .css beside its Python. `figure` is
for any figure of Bokeh.
"""

TYPE_CHECKING = False
if TYPE_CHECKING:
    from .figure import show as show

__all__ = ["show"]


def __getattr__(name: str) -> object:
    """Bokeh is loaded when the first figure is shown."""
    if name != "show":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from .figure import show

    return show
