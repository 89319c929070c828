"""Cells of a heat map as a Bokeh figure: a row for each pair, a column for each op, path, size."""

from __future__ import annotations

from typing import Any

import numpy as np
from bokeh.models import ColumnDataSource, HoverTool, LinearColorMapper, Range1d
from bokeh.models.annotations import ColorBar
from bokeh.palettes import YlOrRd9
from bokeh.plotting import figure

SLOWEST = 2.0  # multiple of the median from which a cell has the full colour
_MOST_NAMES = 40  # most names of pairs on the axis
_ROW, _LEAST, _MOST = 18, 120, 640  # px: height of a row and of the figure
_PALETTE = tuple(reversed(YlOrRd9))


def cell_figure(pairs: list[str], kinds: list[str], values: Any) -> figure:
    """Return the figure; its cells are in the data source `cells`, row by row.

    Args:
        pairs: Names of the rows, from the top.
        kinds: Names of the columns.
        values: Times the median, shape (pairs, kinds); nan where there is none.
    """
    height = min(max(_ROW * len(pairs), _LEAST), _MOST) + 110
    made = figure(
        height=height, sizing_mode="stretch_width", toolbar_location=None, tools="",
        x_range=Range1d(start=-0.5, end=len(kinds) - 0.5),
        y_range=Range1d(start=len(pairs) - 0.5, end=-0.5),
    )  # fmt: skip
    rows, columns = np.divmod(np.arange(len(pairs) * len(kinds)), max(len(kinds), 1))
    source = ColumnDataSource(
        {
            "x": columns.tolist(),
            "y": rows.tolist(),
            "value": np.asarray(values, "f4").ravel().tolist(),
            "pair": [pairs[row] for row in rows],
            "kind": [kinds[column] for column in columns],
        },
        name="cells",
    )
    colours = LinearColorMapper(
        palette=_PALETTE, low=1.0, high=SLOWEST, nan_color="rgba(128,128,128,0.15)"
    )
    made.rect(
        "x", "y", width=1, height=1, source=source, line_color=None,
        fill_color={"field": "value", "transform": colours},
    )  # fmt: skip
    tips = [("", "@pair"), ("", "@kind"), ("times the median", "@value{0.00}")]
    made.add_tools(HoverTool(tooltips=tips))
    made.add_layout(ColorBar(color_mapper=colours, width=12, title="times"), "right")
    _label(made.xaxis[0], kinds, len(kinds))
    _label(made.yaxis[0], pairs, _MOST_NAMES)
    made.xaxis[0].major_label_orientation = 0.6
    made.grid.visible = False
    return made


def _label(axis: Any, names: list[str], most: int) -> None:
    """Label the rows or columns; if there are many, every n-th."""
    step = -(-len(names) // most) or 1
    axis.ticker = list(range(0, len(names), step))
    axis.major_label_overrides = {at: names[at] for at in axis.ticker.ticks}
