# SPDX-License-Identifier: Apache-2.0
"""HeatMap: a sweep of a fleet while it runs, each pair against the median of all."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Protocol

import numpy as np
from bokeh.models import ColumnDataSource, FixedTicker, HoverTool, LinearColorMapper, Range1d
from bokeh.models.annotations import ColorBar
from bokeh.palettes import YlOrRd9
from bokeh.plotting import figure

from ... import html_cards
from ...units import size_text
from ..base import scheduler
from ..base.panel import Viewers, handler
from ..figure.figure import BokehPanel

if TYPE_CHECKING:
    import pandas
    from bokeh.document import Document
    from bokeh.model import Model
    from bokeh.models import Axis

    from ..base.page_input import Json, Reply


SLOWEST = 2.0  # multiple of the median from which a cell has the full colour
_MOST_NAMES = 40  # most names of pairs on the axis
_ROW, _LEAST, _MOST = 18, 120, 640  # px: height of a row and of the figure
_PALETTE = tuple(reversed(YlOrRd9))


def cell_figure(pairs: list[str], kinds: list[str], values: pandas.DataFrame) -> figure:
    """Return the figure; its cells are in the data source `cells`, row by row.

    Args:
        pairs: Names of the rows, from the top.
        kinds: Names of the columns.
        values: Times the median, shape (pairs, kinds); nan where there is none.
    """
    height = min(max(_ROW * len(pairs), _LEAST), _MOST) + 110
    plot = figure(
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
    plot.rect(
        "x", "y", width=1, height=1, source=source, line_color=None,
        fill_color={"field": "value", "transform": colours},
    )  # fmt: skip
    tips = [("", "@pair"), ("", "@kind"), ("times the median", "@value{0.00}")]
    plot.add_tools(HoverTool(tooltips=tips))
    plot.add_layout(ColorBar(color_mapper=colours, width=12, title="times"), "right")
    _label(plot.xaxis[0], kinds, len(kinds))
    _label(plot.yaxis[0], pairs, _MOST_NAMES)
    plot.xaxis[0].major_label_orientation = 0.6
    plot.grid.visible = False
    return plot


def _label(axis: Axis, names: list[str], most: int) -> None:
    """Label the rows or columns; if there are many, every n-th."""
    step = -(-len(names) // most) or 1
    ticks = range(0, len(names), step)
    axis.ticker = FixedTicker(ticks=[*ticks])
    axis.major_label_overrides = {at: names[at] for at in ticks}


_FIGURES = {"p50_ns": "latency", "gb_per_s": "time of a byte"}
_EVERY_S = 0.5  # interval of checks for new rows
_SLOW, _SHOWN = 1.25, 10  # table: least multiple of the median, and most rows


class _Sweep(Protocol):
    """Drawn sweep: a dgkit.fleet.Sweep."""

    total: int

    @property
    def rows(self) -> int: ...
    @property
    def done(self) -> bool: ...
    @property
    def labels(self) -> tuple[str, ...]: ...
    @property
    def failures(self) -> tuple[object, ...]: ...
    def cells(self, figure: str) -> pandas.DataFrame: ...
    def wait(self, timeout: float | None = None) -> bool: ...


class HeatMap(BokehPanel):
    """Heat map of a sweep: `HeatMap(fleet.start_sweep(...))`; it follows the sweep to its end.

    Args:
        sweep: The sweep, which runs or has ended.
        figure: "p50_ns" or "gb_per_s".

    Raises:
        ValueError: There is no such figure.
        TypeError: `sweep` is not a sweep.
    """

    name = "heatmap"
    title = "Heat map"

    def __init__(self, sweep: _Sweep, figure: str = "p50_ns") -> None:
        if not callable(getattr(sweep, "cells", None)):
            raise TypeError(f"sweep is {sweep!r}; it must be a sweep of dgkit.Fleet")
        self._sweep = sweep
        self._figure = _known(figure)
        self._viewers = Viewers()
        self._error: Exception | None = None
        super().__init__()
        self._task = scheduler.start(self._follow(), self.fail)

    @property
    def figure(self) -> str:
        """Drawn figure: "p50_ns" or "gb_per_s"."""
        return self._figure

    @property
    def changes(self) -> int:
        """A number that grows with each new row and each message to the views."""
        return self._changes + self._sweep.rows

    @handler
    def show(self, figure: str) -> None:
        """Draw another figure.

        Raises:
            ValueError: There is no such figure.
        """
        self._figure = _known(figure)
        self._send_frame()

    @handler
    def watch(self, view: str, on: bool) -> None:
        """Record that a view is visible (`on`) or hidden; hidden views are sent no frames."""
        self._viewers.update(view, on)

    @handler
    def cells(self) -> Reply:
        """Return the cells and the texts about them."""
        return self._frame()

    def _follow(self) -> scheduler.Steps:
        """Send new cells to the views, until the sweep has ended."""
        seen, ended, next_look = -1, False, 0.0
        while not ended:
            if time.monotonic() < next_look:
                yield
                continue
            next_look = time.monotonic() + _EVERY_S
            ended = self._sweep.done
            if ended or (self._sweep.rows != seen and self._viewers.due()):
                seen = self._sweep.rows
                self._send_frame()
            yield
        self._sweep.wait(0)  # raises the error that ended the sweep

    def _send_frame(self) -> None:
        fields, buffers = self._frame()
        self.broadcast("frame", buffers, **fields)

    def _frame(self) -> Reply:
        values = self._sweep.cells(self._figure)
        shape = list(values.shape)
        return self._texts(values) | {"shape": shape}, [values.to_numpy("f4").tobytes()]

    def _texts(self, values: pandas.DataFrame) -> Json:
        sweep = self._sweep
        state = "ended" if sweep.done else "running"
        failed = len(sweep.failures)
        line = f"{sweep.rows:,} of {sweep.total:,} rows, {state}"
        if failed:
            line += f", {failed:,} without a result"
        stacked = values.set_axis(_names(values.columns), axis=1).stack()
        slow = stacked[stacked >= _SLOW].sort_values(ascending=False)
        return {
            "line": line,
            "done": sweep.done,
            "figure": self._figure,
            "what": f"{_FIGURES[self._figure]}, times the median of all pairs",
            "slow": [[pair, kind, f"{value:.2f}"] for (pair, kind), value in slow[:_SHOWN].items()],
            "more": max(len(slow) - _SHOWN, 0),
            "label": ", ".join(sweep.labels),
        }

    def document(self, dark: bool) -> Document:  # noqa: ARG002 (its colours suit both)
        """Return the figure with the cells measured so far."""
        from bokeh.document import Document

        values = self._sweep.cells(self._figure)
        document = Document()
        document.add_root(cell_figure([*map(str, values.index)], _names(values.columns), values))
        return document

    def state(self) -> Json:
        """Return the texts; a view requests the cells when its figure is drawn."""
        values = self._sweep.cells(self._figure)
        return {**super().state(), "figures": list(_FIGURES.items()), **self._texts(values)}

    def end(self) -> None:
        """Stop following the sweep, which continues."""
        self._task.cancel()

    def static_html(self) -> str:
        """Return the state of the sweep and the slowest pairs as a card."""
        texts = self._texts(self._sweep.cells(self._figure))
        header = ("pair", "op, path, size", "times the median")
        body = html_cards.table("Slowest pairs", header, texts["slow"]) if texts["slow"] else ""
        rows = [("Figure", texts["what"]), ("Rows", texts["line"])]
        return html_cards.card(self.title, rows, badge=texts["label"], body=body)

    def static_figures(self) -> list[Model]:
        """Return the figure with the cells measured so far."""
        return self.document(dark=False).roots


def _known(figure: str) -> str:
    if figure not in _FIGURES:
        raise ValueError(f"figure is {figure!r}; it must be one of {', '.join(_FIGURES)}")
    return figure


def _names(columns: pandas.MultiIndex) -> list[str]:
    """Return the names of columns: `write, 4 KiB`, with the path if there are several."""
    paths = len({path for _, path, _ in columns}) > 1
    return [
        ", ".join([op, *([path] if paths else []), size_text(size)]) for op, path, size in columns
    ]
