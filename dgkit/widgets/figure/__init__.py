"""Bokeh figures in a notebook, offline.

`figure`: the panel, and its base class for panels with figures.
`bokehjs`: BokehJS from the installed package, with bokehjs.js.
`paper`: figures as PDF, SVG and PNG files for a paper (extra `paper`).
`inline`: figures in an exported page, interactive without a kernel.
"""

from .figure import show
from .paper import save_figure

__all__ = ["save_figure", "show"]
