# SPDX-License-Identifier: Apache-2.0
"""The doctor in a notebook.

doctor              DoctorPanel
diagnosis_task      one run of the doctor for a panel
serialize           a Diagnosis as plain values for views
topology_model      nodes, pairs and texts of the PCIe tree
topology_drawing    the PCIe tree as a Bokeh figure
"""

from typing import TYPE_CHECKING

from .doctor_panel import DoctorPanel

if TYPE_CHECKING:
    from .topology_drawing import show_topology as show_topology
    from .topology_drawing import topology_figure as topology_figure

__all__ = ["DoctorPanel", "show_topology", "topology_figure"]


def __getattr__(name: str) -> object:
    """Import Bokeh when the first tree is drawn."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from . import topology_drawing

    return getattr(topology_drawing, name)
