# SPDX-License-Identifier: Apache-2.0
"""Bokeh figures in a notebook, offline.

`figure`: the panel, and its base class for panels with figures.
`bokehjs`: BokehJS from the installed package, with bokehjs.js.
`matplotlib_drawing`: figures as files for a paper, and as the picture in a saved notebook.
`inline`: figures in an exported page, interactive without a kernel.
"""

from .figure import show
from .matplotlib_drawing import save_figure

__all__ = ["save_figure", "show"]
