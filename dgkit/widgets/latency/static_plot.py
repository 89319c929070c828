"""Static picture of a LatencyPlot."""

from __future__ import annotations

from collections.abc import Mapping

from ...units import us
from ..base.chart import Axis, Chart
from ..base.picture import Picture
from .run import Run

__all__ = ["latency_picture"]

_COLOURS = {"p50": "#0072b2", "p99": "#b34700", "max": "#5f6368"}
_POINTS = 700  # of a line: the picture is not wider


def latency_picture(title: str, label: str, runs: Mapping[str, Run]) -> Picture:
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
    picture = Picture(f"{title}: {last.config.description}, {last.history.samples:,} samples")
    picture.heading(title, last.config.label)
    picture.chart(_over_time(last))
    for name, run in runs.items():
        figures = ", ".join(f"{key} {us(ns)}" for key, ns in run.history.figures().items())
        picture.text(f"{name}: {run.config.description}; {run.history.samples:,} samples")
        picture.text(f"{figures} µs")
    return picture


def _over_time(run: Run) -> Chart:
    rows = run.history.fine.all()
    rows = rows[:: -(-len(rows) // _POINTS) or 1]
    chart = Chart(
        run.config.description, Axis("seconds before the last sample"), Axis("µs (log scale)", True)
    )
    ago = (rows[:, 0] - rows[-1, 0]).tolist() if len(rows) else []
    for column, (name, colour) in enumerate(_COLOURS.items(), start=1):
        chart.line(ago, (rows[:, column] / 1000).tolist(), colour)
        chart.legend(name, colour)
    return chart
