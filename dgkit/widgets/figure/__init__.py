"""Bokeh figures in a notebook, offline.

`figure`: the panel, and its base class for panels with figures.
`bokehjs`: BokehJS from the installed package, with bokehjs.js.
`inline`: figures in an exported page, interactive without a kernel.
"""

from .figure import show

__all__ = ["show"]
