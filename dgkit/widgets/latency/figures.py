"""The figures of a LatencyPlot: times over time, how they spread, percentiles.

They are empty: a view fills their sources (draw.js names them) and sets their ranges, so
that the kernel does no Bokeh work for a frame. Times are microseconds.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import nan
from typing import Any

from bokeh.document import Document
from bokeh.models import (
    ColumnDataSource,
    FixedTicker,
    HoverTool,
    PrintfTickFormatter,
    Range1d,
)
from bokeh.models.annotations import Legend, LegendItem
from bokeh.models.renderers import GlyphRenderer
from bokeh.plotting import figure

__all__ = ["document"]

_NINES = 9
_TIPS = [
    ("ago", "@ago{0.0} s"),
    ("p50", "@p50{0,0.000} us"),
    ("p99", "@p99{0,0.000} us"),
    ("max", "@max{0,0.000} us"),
    ("samples", "@samples{0,0}"),
]


@dataclass(frozen=True, slots=True)
class _Colours:
    """Okabe and Ito's, which colour-blind people tell apart, in shades that the page bears."""

    p50: str
    p99: str
    max: str
    before: str
    line: str


_LIGHT = _Colours("#0072b2", "#b34700", "#5f6368", "#7b3294", "#d0d0d0")
_DARK = _Colours("#56b4e9", "#e69f00", "#b0b0b0", "#d9a6e0", "#4a4f55")


def document(dark: bool) -> Document:
    """Three roots, named `time`, `spread` and `curve`."""
    colours = _DARK if dark else _LIGHT
    made = Document()
    for root in (_time(colours), _spread(colours), _curve(colours)):
        made.add_root(root)
    return made


def _source(name: str, columns: str) -> ColumnDataSource:
    return ColumnDataSource(name=name, data={column: [] for column in columns.split()})


def _figure(name: str, title: str, colours: _Colours, **options: Any) -> Any:
    """A figure without a background of its own: the panel's shows."""
    made: Any = figure(
        name=name, title=title, height=260, sizing_mode="stretch_width", min_border_right=12,
        tools="pan,box_zoom,reset", toolbar_location="right", background_fill_alpha=0,
        border_fill_alpha=0, outline_line_color=colours.line, y_axis_type="log",
        x_range=Range1d(*options.pop("x")), y_range=Range1d(*options.pop("y")), **options,
    )  # fmt: skip
    made.toolbar.logo = None
    made.toolbar.autohide = True
    made.title.text_font_size = "12px"
    for axis in made.axis:  # not Bokeh's own 11px: a theme would change what is as it was
        axis.axis_label_text_font_size = axis.major_label_text_font_size = "11.5px"
        axis.axis_label_text_font_style = "normal"
    made.xaxis.name = f"{name}_axis"
    _ticks(made, "y", made.yaxis)
    if options.get("x_axis_type") == "log":
        _ticks(made, "x", made.xaxis)
    made.grid.grid_line_color = colours.line
    made.grid.grid_line_alpha = 0.5
    return made


def _ticks(made: Any, which: str, axis: Any) -> None:
    """Of a logarithmic axis; a view sets them with the range (`<figure>_<axis>`)."""
    axis.ticker = FixedTicker(name=f"{made.name}_{which}", ticks=[0.01, 0.1, 1, 10, 100, 1000])
    axis.formatter = PrintfTickFormatter(format="%g")


def _legend(made: Any, entries: list[tuple[str, list[Any]]]) -> None:
    """Above the plot; a view names its entries anew (`<figure>_legend`) and hides the empty."""
    items = [
        LegendItem(name=label.split()[0], label=label, renderers=[_still(made, r) for r in drawn])
        for label, drawn in entries
    ]
    legend: Any = Legend(
        items=items, name=f"{made.name}_legend", orientation="horizontal", location="left",
        label_text_font_size="11px", background_fill_alpha=0, border_line_alpha=0,
        margin=0, spacing=14, glyph_width=26,
    )  # fmt: skip
    legend.padding = 0
    made.add_layout(legend, "above")


def _still(made: Any, drawn: Any) -> Any:
    """A renderer that looks the same and never has a point.

    BokehJS builds a legend anew, and empty, with each change of the data of what it names.
    """
    still = GlyphRenderer(
        glyph=drawn.glyph,
        data_source=ColumnDataSource({name: [nan] for name in drawn.data_source.column_names}),
    )
    made.renderers.append(still)
    return still


def _time(colours: _Colours) -> Any:
    made = _figure("time", "Time of one operation", colours, x=(-30, 0), y=(0.1, 10))
    made.xaxis.axis_label = "seconds before the last sample"
    made.yaxis.axis_label = "us, log scale"
    source, before = _source("points", "x ago p50 p99 max samples"), _source("levels", "x p50 p99")
    slowest = made.scatter(
        "x", "max", source=source, marker="triangle", size=5, color=colours.max, alpha=0.8
    )
    p99 = made.line("x", "p99", source=source, color=colours.p99, line_width=1.8, line_dash=[6, 3])
    p50 = made.line("x", "p50", source=source, color=colours.p50, line_width=2.2)
    levels = [
        made.line("x", which, source=before, color=colours.before, line_width=1.6, line_dash=dash)
        for which, dash in (("p50", [2, 3]), ("p99", [8, 3, 2, 3]))
    ]
    _legend(made, [("p50", [p50]), ("p99", [p99]), ("max", [slowest]),
                   ("before p50", levels[:1]), ("before p99", levels[1:])])  # fmt: skip
    made.add_tools(HoverTool(renderers=[p50], mode="vline", tooltips=_TIPS))
    return made


def _spread(colours: _Colours) -> Any:
    made = _figure(
        "spread", "How the times spread", colours, x=(0.01, 10), y=(0.001, 100), x_axis_type="log"
    )
    made.xaxis.axis_label = "time of one operation, us, log scale"
    made.yaxis.axis_label = "% of the samples, log scale"
    source = _source("bins", "left right bottom top count")
    outline = _source("bins_before", "x y")
    bars = made.quad(
        "left", "right", "top", "bottom", source=source, fill_color=colours.p50, fill_alpha=0.55,
        line_color=colours.p50, line_width=0.5,
    )  # fmt: skip
    before = made.line("x", "y", source=outline, color=colours.before, line_width=1.6)
    _legend(made, [("now", [bars]), ("before", [before])])
    tips = [
        ("time", "@left{0,0.000} to @right{0,0.000} us"),
        ("samples", "@count{0,0} (@top{0.0000} %)"),
    ]
    made.add_tools(HoverTool(renderers=[bars], mode="vline", tooltips=tips))
    return made


def _curve(colours: _Colours) -> Any:
    made = _figure("curve", "Percentiles", colours, x=(1, 100), y=(0.1, 10), x_axis_type="log")
    made.xaxis.axis_label = "percentile, as many nines as there are samples for"
    made.yaxis.axis_label = "us, log scale"
    names = {2: "50"} | {10**nines: _nines(nines) for nines in range(1, _NINES + 1)}
    made.xaxis.ticker = FixedTicker(ticks=list(names), minor_ticks=[])
    made.xaxis.major_label_overrides = {tick: f"{name} %" for tick, name in names.items()}
    rows, before = (
        _source(name, "x us percentile") for name in ("percentiles", "percentiles_before")
    )
    now = made.line("x", "us", source=rows, color=colours.p50, line_width=2.2)
    dots = made.scatter("x", "us", source=rows, marker="circle", size=4, color=colours.p50)
    then = made.line(
        "x", "us", source=before, color=colours.before, line_width=1.8, line_dash=[6, 2]
    )
    _legend(made, [("now", [now, dots]), ("before", [then])])
    tips = [("percentile", "@percentile %"), ("time", "@us{0,0.000} us")]
    made.add_tools(HoverTool(renderers=[now, then], mode="vline", tooltips=tips))
    return made


def _nines(count: int) -> str:
    """90, 99, 99.9, 99.99..."""
    return "90" if count == 1 else "99" if count == 2 else "99." + "9" * (count - 2)
