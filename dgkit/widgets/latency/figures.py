# SPDX-License-Identifier: Apache-2.0
"""Bokeh figures of a LatencyPlot: latency and load over time, distribution, latency over sizes.

They are empty: a view fills their data sources and sets their ranges (draw.js finds them by name),
so the kernel does no Bokeh work per frame. Times are microseconds.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import nan
from typing import Any, Literal

from bokeh.document import Document
from bokeh.models import (
    Axis,
    BasicTicker,
    ColumnDataSource,
    CrosshairTool,
    DataRange1d,
    FixedTicker,
    HoverTool,
    PrintfTickFormatter,
    Range1d,
    RangeTool,
)
from bokeh.models.annotations import Legend, LegendItem, Span, Title
from bokeh.models.renderers import GlyphRenderer
from bokeh.plotting import figure

from .history import LOAD

NINES = 9
_LEFT_PX = 62  # of the figures over time, so that their axes are below each other
# One tip for all figures over time; a view drops the lines of which it has no values.
_TIPS = [
    ("ago", "@ago{0.0} s"),
    ("p50", "@p50{0,0.000} µs"),
    ("p99", "@p99{0,0.000} µs"),
    ("max", "@max{0,0.000} µs"),
    ("samples", "@samples{0,0}"),
    ("CPUs", "@cpu{0} %"),
    ("GPUs", "@gpu{0} %"),
    ("PCIe", "in @pcie_in{0.00}, out @pcie_out{0.00} GB/s"),
    ("NVLink", "in @nvlink_in{0.00}, out @nvlink_out{0.00} GB/s"),
]


@dataclass(frozen=True, slots=True)
class _Colours:
    """Palette of Okabe and Ito, safe for colour-blind readers, adapted to the background."""

    p50: str
    p99: str
    max: str
    before: str
    floor: str
    line: str


_LIGHT = _Colours("#0072b2", "#b34700", "#5f6368", "#7b3294", "#00705a", "#d0d0d0")
_DARK = _Colours("#56b4e9", "#e69f00", "#b0b0b0", "#d9a6e0", "#2ec7a0", "#4a4f55")


def document(dark: bool) -> Document:
    """Return the figures as a document, whose roots are those of latency.js, in its order."""
    colours = _DARK if dark else _LIGHT
    doc = Document()
    others = _distribution_figure(colours), _curve_figure(colours), _size_figure(colours)
    for root in (*_over_time(colours), *others):
        doc.add_root(root)
    return doc


def _source(name: str, columns: str) -> ColumnDataSource:
    return ColumnDataSource(name=name, data={column: [] for column in columns.split()})


def _figure(name: str, title: str, colours: _Colours, **options: Any) -> figure:
    """Return a figure with a transparent background; `x` and `y` are ranges or their bounds."""
    x, y = (
        Range1d(start=each[0], end=each[1]) if isinstance(each, tuple) else each
        for each in (options.pop("x"), options.pop("y"))
    )
    wanted: dict[str, Any] = {
        "title": Title(text=title, text_font_size="12px"), "height": 260, "y_axis_type": "log",
        "tools": "pan,box_zoom,reset", "toolbar_location": "right",
    }  # fmt: skip
    fig = figure(
        name=name, sizing_mode="stretch_width", min_border_right=12, background_fill_alpha=0,
        border_fill_alpha=0, outline_line_color=colours.line, x_range=x, y_range=y,
        **wanted | options,
    )  # fmt: skip
    fig.toolbar.logo = None
    fig.toolbar.autohide = True
    for axis in fig.axis:  # a theme overrides Bokeh's default of 11px
        axis.axis_label_text_font_size = axis.major_label_text_font_size = "11.5px"
        axis.axis_label_text_font_style = "normal"
    fig.xaxis.name = f"{name}_axis"
    if "y_axis_type" not in options:
        _ticks(fig, "y", fig.yaxis)
    if options.get("x_axis_type") == "log":
        _ticks(fig, "x", fig.xaxis)
    fig.grid.grid_line_color = colours.line
    fig.grid.grid_line_alpha = 0.5
    return fig


def _ticks(fig: figure, which: str, axis: Axis) -> None:
    """Set the ticks of a logarithmic axis; a view updates them by name (`<figure>_<axis>`)."""
    axis.ticker = FixedTicker(name=f"{fig.name}_{which}", ticks=[0.01, 0.1, 1, 10, 100, 1000])
    axis.formatter = PrintfTickFormatter(format="%g")


def _legend(
    fig: figure,
    entries: list[tuple[str, list[GlyphRenderer[Any]]]],
    orientation: Literal["horizontal", "vertical"] = "horizontal",
) -> None:
    """Add a legend above the plot; a view relabels and hides its items (`<figure>_legend`)."""
    items = [
        LegendItem(
            name=label.split()[0],
            label=label,
            renderers=[_legend_only(fig, glyph) for glyph in drawn],
        )
        for label, drawn in entries
    ]
    legend: Any = Legend(
        items=items, name=f"{fig.name}_legend", orientation=orientation, location="left",
        label_text_font_size="11px", background_fill_alpha=0, border_line_alpha=0,
        margin=0, spacing=14 if orientation == "horizontal" else 0, glyph_width=26, glyph_height=14,
    )  # fmt: skip
    legend.padding = 0
    fig.add_layout(legend, "above")


def _legend_only(fig: figure, drawn: GlyphRenderer[Any]) -> GlyphRenderer[Any]:
    """Return a renderer with the same look and no points.

    BokehJS rebuilds a legend, and leaves it empty, whenever the data of its renderers change.
    """
    source = drawn.data_source
    assert isinstance(source, ColumnDataSource)
    renderer = GlyphRenderer(
        glyph=drawn.glyph,
        data_source=ColumnDataSource({name: [nan] for name in source.column_names}),
    )
    fig.renderers.append(renderer)
    return renderer


def _over_time(colours: _Colours) -> list[figure]:
    """Return latency, load and traffic over one time axis, and the strip that chooses its range."""
    source = _source("points", f"x ago p50 p99 max drawn samples {' '.join(LOAD)}")
    fig = _time_figure(colours, source)
    load = _lines(fig, source, colours, "load", "load, %",
                  [("cpu", "CPUs", colours.p50), ("gpu", "GPUs", colours.p99)])  # fmt: skip
    traffic = _lines(fig, source, colours, "traffic", "GB/s",
                     [("pcie_in", "PCIe in", colours.p50), ("pcie_out", "PCIe out", colours.p99),
                      ("nvlink_in", "NVLink in", colours.floor),
                      ("nvlink_out", "NVLink out", colours.before)])  # fmt: skip
    load.y_range = Range1d(start=0, end=105)
    crosshair = Span(
        name="crosshair", dimension="height", line_color=colours.max, line_dash="dotted"
    )
    for each in (fig, load, traffic):
        each.min_border_left = _LEFT_PX
        now: Any = next(line for line in each.renderers if line.name == "now")
        each.add_tools(
            CrosshairTool(dimensions="height", overlay=crosshair, visible=False),
            HoverTool(name=f"{each.name}_tip", renderers=[now], mode="vline", tooltips=_TIPS),
        )
    strip = _figure("brush", "", colours, x=(-30, 0), y=fig.y_range, height=40,
                    tools="", toolbar_location=None)  # fmt: skip
    strip.line("x", "p99", source=source, color=colours.p99)
    strip.line("x", "p50", source=source, color=colours.p50)
    strip.axis.visible = strip.grid.visible = False
    brush = RangeTool(x_range=fig.x_range, start_gesture="pan")
    brush.overlay.update(fill_color=colours.p50, fill_alpha=0.15)
    strip.add_tools(brush)
    return [fig, load, traffic, strip]


def _lines(
    over: figure, source: ColumnDataSource, colours: _Colours, name: str, label: str,
    series: list[tuple[str, str, str]],
) -> figure:  # fmt: skip
    """Return a low figure below another one, with its time axis."""
    fig = _figure(name, "", colours, x=over.x_range, y=DataRange1d(start=0), height=110,
                  y_axis_type="linear", tools="pan,reset")  # fmt: skip
    fig.xaxis.visible = False
    fig.yaxis.axis_label = label
    fig.yaxis.ticker = BasicTicker(desired_num_ticks=3)
    fig.yaxis.minor_tick_line_color = None
    lines = [
        fig.line("x", column, source=source, color=colour, line_width=1.6, name="now")
        for column, _, colour in series
    ]
    _legend(fig, [(title, [line]) for (_, title, _), line in zip(series, lines, strict=True)])
    return fig


def _time_figure(colours: _Colours, source: ColumnDataSource) -> figure:
    fig = _figure("time", "Latency over time", colours, x=(-30, 0), y=(0.1, 10))
    fig.xaxis.axis_label = "seconds before the last sample"
    fig.yaxis.axis_label = "latency, µs (log scale)"
    before = _source("levels", "x p50 p99")
    maximum = fig.scatter(
        "x", "drawn", source=source, marker="triangle", size=5, color=colours.max, alpha=0.8
    )
    p99 = fig.line("x", "p99", source=source, color=colours.p99, line_width=1.8, line_dash=[6, 3])
    p50 = fig.line("x", "p50", source=source, color=colours.p50, line_width=2.2, name="now")
    levels = [
        fig.line("x", which, source=before, color=colours.before, line_width=1.6, line_dash=dash)
        for which, dash in (("p50", [2, 3]), ("p99", [8, 3, 2, 3]))
    ]
    _legend(fig, [("p50", [p50]), ("p99", [p99]), ("max", [maximum]),
                   ("before p50", levels[:1]), ("before p99", levels[1:])])  # fmt: skip
    return fig


def _distribution_figure(colours: _Colours) -> figure:
    fig = _figure(
        "spread", "Distribution", colours, x=(0.01, 10), y=(0.001, 100), x_axis_type="log"
    )
    fig.xaxis.axis_label = "latency, µs (log scale)"
    fig.yaxis.axis_label = "samples, % (log scale)"
    source = _source("bins", "left right bottom top count")
    outline = _source("bins_before", "x y")
    bars = fig.quad(
        "left", "right", "top", "bottom", source=source, fill_color=colours.p50, fill_alpha=0.55,
        line_color=colours.p50, line_width=0.5,
    )  # fmt: skip
    before = fig.line("x", "y", source=outline, color=colours.before, line_width=1.6)
    _legend(fig, [("now", [bars]), ("before", [before])], "vertical")
    tips = [
        ("time", "@left{0,0.000} to @right{0,0.000} µs"),
        ("samples", "@count{0,0} (@top{0.0000} %)"),
    ]
    fig.add_tools(HoverTool(renderers=[bars], mode="vline", tooltips=tips))
    return fig


def _curve_figure(colours: _Colours) -> figure:
    fig = _figure("curve", "Percentiles", colours, x=(1, 100), y=(0.1, 10), x_axis_type="log")
    fig.xaxis.axis_label = "percentile of the samples"
    fig.yaxis.axis_label = "latency, µs (log scale)"
    names = {2: "50"} | {10**count: nines(count) for count in range(1, NINES + 1)}
    fig.xaxis.ticker = FixedTicker(ticks=list(names), minor_ticks=[])
    fig.xaxis.major_label_overrides = {tick: f"{name} %" for tick, name in names.items()}
    rows, before = (
        _source(name, "x us percentile") for name in ("percentiles", "percentiles_before")
    )
    current = fig.line("x", "us", source=rows, color=colours.p50, line_width=2.2)
    dots = fig.scatter("x", "us", source=rows, marker="circle", size=4, color=colours.p50)
    earlier = fig.line(
        "x", "us", source=before, color=colours.before, line_width=1.8, line_dash=[6, 2]
    )
    _legend(fig, [("now", [current, dots]), ("before", [earlier])], "vertical")
    tips = [("percentile", "@percentile %"), ("time", "@us{0,0.000} µs")]
    fig.add_tools(HoverTool(renderers=[current, earlier], mode="vline", tooltips=tips))
    return fig


def _size_figure(colours: _Colours) -> figure:
    fig = _figure(
        "sizes", "Latency over sizes", colours, x=(8, 1024), y=(0.1, 10), x_axis_type="log"
    )
    fig.height = 340
    fig.xaxis.axis_label = "bytes per operation (log scale)"
    fig.yaxis.axis_label = "latency, µs (log scale)"
    rows = _source("sizes_rows", "x text path low high p50 p99 floor ratio")
    earlier = _source("sizes_before", "x text p50")
    band = fig.varea("x", "low", "high", source=rows, fill_color=colours.p50, fill_alpha=0.25)
    before = fig.line(
        "x", "p50", source=earlier, color=colours.before, line_width=1.8, line_dash=[6, 2]
    )
    old = fig.scatter("x", "p50", source=earlier, marker="square", size=5, color=colours.before)
    floor = fig.line("x", "floor", source=rows, color=colours.floor, line_width=2, line_dash=[2, 3])
    p99 = fig.line("x", "p99", source=rows, color=colours.p99, line_width=1.4, line_dash=[6, 3])
    p50 = fig.line("x", "p50", source=rows, color=colours.p50, line_width=2.2)
    dots = fig.scatter("x", "p50", source=rows, marker="circle", size=6, color=colours.p50)
    others = fig.scatter(
        "x", "us", source=_source("sizes_published", "x us what source"), marker="diamond",
        size=11, fill_alpha=0, line_color=colours.max, line_width=1.6,
    )  # fmt: skip
    _legend(fig, [("p50, median of rounds", [p50, dots]), ("band: p50 of the rounds", [band]),
                  ("p99", [p99]), ("floor", [floor]), ("before: p50", [before, old]),
                  ("published by others", [others])])  # fmt: skip
    tips = [
        ("size", "@text, @path"), ("p50", "@p50{0,0.000} µs"),
        ("rounds", "@low{0,0.000} to @high{0,0.000} µs"), ("p99", "@p99{0,0.000} µs"),
        ("floor", "@floor{0,0.000} µs"), ("p50 / floor", "@ratio{0.00}"),
    ]  # fmt: skip
    fig.add_tools(HoverTool(renderers=[dots], mode="vline", tooltips=tips))
    tips = [("published", "@what"), ("time", "@us{0,0.00} µs"), ("source", "@source")]
    fig.add_tools(HoverTool(renderers=[others], tooltips=tips))
    return fig


def nines(count: int) -> str:
    """Return 90, 99, 99.9, 99.99, ..."""
    return "90" if count == 1 else "99" if count == 2 else "99." + "9" * (count - 2)
