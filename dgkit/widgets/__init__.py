"""Notebook panels for memory, transfers, memory contents, latency and the doctor's findings.

`base`: what all panels share.
`allocate`: allocation, filling, export and registration of memory.
`transfer`: reads and writes, single or as a list.
`hexview`: the bytes of a region.
`latency`: the latency plot.
`doctor`: the findings of the doctor.
`heatmap`: a sweep over many pairs while it runs.
`queuepair`: a queue pair of the software NIC.
`dashboard`: the panels of one session together.
`figure`: any Bokeh figure.

Each panel is a package of Python modules with its .js and .css files.
"""

TYPE_CHECKING = False
if TYPE_CHECKING:
    from .figure import show as show

__all__ = ["show"]


def __getattr__(name: str) -> object:
    """Import `show` at first use; the module that defines it needs the extra `lab`."""
    if name != "show":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from .figure import show

    return show
