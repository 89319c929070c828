"""The doctor in a notebook: what blocks GPU and DPU, what to type, and the PCIe tree drawn."""

from typing import TYPE_CHECKING

from .doctor import DoctorPanel

if TYPE_CHECKING:
    from .topology_drawing import show_topology as show_topology
    from .topology_drawing import topology_figure as topology_figure

__all__ = ["DoctorPanel", "show_topology", "topology_figure"]


def __getattr__(name: str) -> object:
    """Bokeh is loaded when the first tree is drawn."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from . import topology_drawing

    return getattr(topology_drawing, name)
