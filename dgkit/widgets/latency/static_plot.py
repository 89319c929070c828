"""Static pictures of a LatencyPlot: of its runs, and of its sweep."""

from __future__ import annotations

from collections.abc import Mapping

from ...units import us
from ..base.chart import Axis, Chart
from ..base.picture import Picture
from .run import RunSummary
from .size_sweep import SizeSweep

_BAND, _FLOOR, _BEFORE = "#b9d5ea", "#3c763d", "#7b3294"
_MAX_SIZES = 9  # most sizes labelled on the axis
_COLOURS = {"p50": "#0072b2", "p99": "#b34700", "max": "#5f6368"}
_POINTS = 700  # most points of a line: the picture has no more columns


def latency_picture(title: str, label: str, runs: Mapping[str, RunSummary]) -> Picture:
    """Return latency over time of the last run, and the percentiles of all.

    Args:
        title: Heading.
        label: Label of the provider.
        runs: Runs with samples by name; may be empty.
    """
    if not runs:
        picture = Picture(f"{title}: no samples yet")
        picture.heading(title, label)
        picture.text("no samples yet")
        return picture
    *_, last = runs.values()
    picture = Picture(f"{title}: {last.config.description}, {last.samples:,} samples")
    picture.heading(title, last.config.label)
    picture.chart(_over_time(last))
    for name, run in runs.items():
        figures = ", ".join(f"{key} {us(ns)}" for key, ns in run.figures.items())
        picture.text(f"{name}: {run.config.description}; {run.samples:,} samples")
        picture.text(f"{figures} µs")
    return picture


def _over_time(run: RunSummary) -> Chart:
    rows = run.points
    rows = rows[:: -(-len(rows) // _POINTS) or 1]
    chart = Chart(
        run.config.description, Axis("seconds before the last sample"), Axis("µs (log scale)", True)
    )
    ago = (rows[:, 0] - rows[-1, 0]).tolist() if len(rows) else []
    for column, (name, colour) in enumerate(_COLOURS.items(), start=1):
        chart.line(ago, (rows[:, column] / 1000).tolist(), colour)
        chart.legend(name, colour)
    return chart


def sweep_picture(title: str, sweeps: Mapping[str, SizeSweep]) -> Picture:
    """Return latency over sizes of the last sweep, with its band and floor, over the previous one.

    Args:
        title: Heading.
        sweeps: Sweeps by name; at least one.
    """
    *_, last = sweeps.values()
    origin, rows = last.origin(), last.rows()
    picture = Picture(f"{title} over sizes: {origin['words']}")
    picture.heading(f"{title} over sizes", origin["label"])
    picture.chart(_over_sizes(sweeps))
    for name, sweep in sweeps.items():
        about = sweep.origin()
        picture.text(f"{name}: {about['words']}; {about['where']}; {about['machine']}")
    header = ("size", "path", "p50 µs", "band µs", "floor µs", "p50 / floor")
    cells = [
        (row["text"], row["path"], us(row["p50"]), f"{us(row['low'])} to {us(row['high'])}",
         us(row["floor"]) if row["floor"] else "none",
         f"{row['ratio']:.2f}" if row["ratio"] else "unsteady" if row["moved"] else "none")
        for row in rows
    ]  # fmt: skip
    picture.table(header, cells)
    return picture


def _over_sizes(sweeps: Mapping[str, SizeSweep]) -> Chart:
    *_, last = sweeps.values()
    rows = last.rows()
    sizes = [row["size"] for row in rows]
    labelled = rows[:: -(-len(rows) // _MAX_SIZES)]
    names = [(row["size"], row["text"]) for row in labelled]
    chart = Chart(
        last.description, Axis("bytes per operation (log scale)", True, names=names),
        Axis("µs (log scale)", True),
    )  # fmt: skip
    low, high, p50 = ([row[key] / 1000 for row in rows] for key in ("low", "high", "p50"))
    chart.area(sizes, low, high, _BAND)
    for name, sweep in sweeps.items():
        if sweep is not last:
            earlier = sweep.rows()
            p50s = [row["p50"] / 1000 for row in earlier]
            chart.line([row["size"] for row in earlier], p50s, _BEFORE, dashed=True)
            chart.legend(f"{name}: p50", _BEFORE)
    floors = [row for row in rows if row["floor"]]
    chart.line(
        [row["size"] for row in floors], [row["floor"] / 1000 for row in floors], _FLOOR,
        dashed=True,
    )  # fmt: skip
    chart.line(sizes, p50, _COLOURS["p50"])
    chart.points(sizes, p50, _COLOURS["p50"])
    chart.legend("p50, median of rounds", _COLOURS["p50"])
    chart.legend("p50, least to greatest", _BAND)
    chart.legend("floor", _FLOOR)
    return chart
