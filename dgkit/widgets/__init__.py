# SPDX-License-Identifier: Apache-2.0
"""Notebook panels for memory, transfers, memory contents, latency and the doctor's findings.

`base`: what all panels share.
`allocate`: allocation, filling, export and registration of memory.
`transfer`: reads and writes, single or as a list.
`hexview`: the bytes of a region.
`latency`: the latency plot.
`doctor`: the findings of the doctor.
`heatmap`: a sweep over many pairs while it runs.
`queuepair`: a queue pair of the software NIC.
`packets`: the packets of a capture, as softdoca writes it.
`dashboard`: the panels of one session together.
`figure`: any Bokeh figure.

Each panel is a package of Python modules with its .js and .css files.
"""

TYPE_CHECKING = False
if TYPE_CHECKING:
    from .figure import save_figure as save_figure
    from .figure import show as show

__all__ = ["save_figure", "show"]


def __getattr__(name: str) -> object:
    """Import a function at first use; the package that defines it needs the extra `lab`."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from . import figure

    return getattr(figure, name)
