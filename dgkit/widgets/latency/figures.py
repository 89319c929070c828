"""Bokeh figures of a LatencyPlot: latency over time, its distribution, percentiles, over sizes.

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
    ColumnDataSource,
    FixedTicker,
    HoverTool,
    PrintfTickFormatter,
    Range1d,
)
from bokeh.models.annotations import Legend, LegendItem, Title
from bokeh.models.renderers import GlyphRenderer
from bokeh.plotting import figure

NINES = 9
_TIPS = [
    ("ago", "@ago{0.0} s"),
    ("p50", "@p50{0,0.000} µs"),
    ("p99", "@p99{0,0.000} µs"),
    ("max", "@max{0,0.000} µs"),
    ("samples", "@samples{0,0}"),
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
    """Return the figures as a document with the roots `time`, `spread`, `curve` and `sizes`."""
    colours = _DARK if dark else _LIGHT
    doc = Document()
    for root in (_time(colours), _distribution(colours), _curve(colours), _sizes(colours)):
        doc.add_root(root)
    return doc


def _source(name: str, columns: str) -> ColumnDataSource:
    return ColumnDataSource(name=name, data={column: [] for column in columns.split()})


def _figure(name: str, title: str, colours: _Colours, **options: Any) -> figure:
    """Return a figure with a transparent background."""
    fig = figure(
        name=name, title=Title(text=title, text_font_size="12px"), height=260,
        sizing_mode="stretch_width", min_border_right=12,
        tools="pan,box_zoom,reset", toolbar_location="right", background_fill_alpha=0,
        border_fill_alpha=0, outline_line_color=colours.line, y_axis_type="log",
        x_range=Range1d(*options.pop("x")), y_range=Range1d(*options.pop("y")), **options,
    )  # fmt: skip
    fig.toolbar.logo = None
    fig.toolbar.autohide = True
    for axis in fig.axis:  # a theme overrides Bokeh's default of 11px
        axis.axis_label_text_font_size = axis.major_label_text_font_size = "11.5px"
        axis.axis_label_text_font_style = "normal"
    fig.xaxis.name = f"{name}_axis"
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


def _time(colours: _Colours) -> figure:
    fig = _figure("time", "Latency over time", colours, x=(-30, 0), y=(0.1, 10))
    fig.xaxis.axis_label = "seconds before the last sample"
    fig.yaxis.axis_label = "latency, µs (log scale)"
    source, before = (
        _source("points", "x ago p50 p99 max drawn samples"),
        _source("levels", "x p50 p99"),
    )
    maximum = fig.scatter(
        "x", "drawn", source=source, marker="triangle", size=5, color=colours.max, alpha=0.8
    )
    p99 = fig.line("x", "p99", source=source, color=colours.p99, line_width=1.8, line_dash=[6, 3])
    p50 = fig.line("x", "p50", source=source, color=colours.p50, line_width=2.2)
    levels = [
        fig.line("x", which, source=before, color=colours.before, line_width=1.6, line_dash=dash)
        for which, dash in (("p50", [2, 3]), ("p99", [8, 3, 2, 3]))
    ]
    _legend(fig, [("p50", [p50]), ("p99", [p99]), ("max", [maximum]),
                   ("before p50", levels[:1]), ("before p99", levels[1:])])  # fmt: skip
    fig.add_tools(HoverTool(renderers=[p50], mode="vline", tooltips=_TIPS))
    return fig


def _distribution(colours: _Colours) -> figure:
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


def _curve(colours: _Colours) -> figure:
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


def _sizes(colours: _Colours) -> figure:
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
