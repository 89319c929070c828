# SPDX-License-Identifier: Apache-2.0
"""Figures of measured runs and sweeps, each in its own colour, for cells and for papers.

`figures` has the figures of the live panel, which are empty: a view fills them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import cycle
from typing import Literal, TypeVar

import numpy as np
from bokeh.models import FixedTicker
from bokeh.plotting import figure

from .figures import NINES, nines
from .history import Floats
from .run import Run
from .size_sweep import SizeSweep

_COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000")
_PALE = "#a8a8a8"
_US = "latency (µs)"

Runs = Mapping[str, Run]
Sweeps = Mapping[str, SizeSweep]
T = TypeVar("T", Run, SizeSweep)


def _new_figure(title: str, x: str, y: str, *, x_log: bool = False, y_log: bool = False) -> figure:
    scales: dict[bool, Literal["log", "linear"]] = {True: "log", False: "linear"}
    return figure(
        title=title, x_axis_label=x, y_axis_label=y, x_axis_type=scales[x_log],
        y_axis_type=scales[y_log], width=640, height=400, tools="pan,box_zoom,wheel_zoom,reset",
    )  # fmt: skip


def _draw_line(
    fig: figure, x: Iterable[float], y: Iterable[float], colour: str, name: str = "", **style: str
) -> None:
    legend = {"legend_label": name} if name else {}
    fig.line(list(x), list(y), color=colour, line_width=2, **legend, **style)


def _coloured(named: Mapping[str, T]) -> Iterator[tuple[str, T, str]]:
    """Yield each run or sweep with its name ("" if it is the only one) and its colour."""
    for (name, each), colour in zip(named.items(), cycle(_COLOURS), strict=False):
        yield name if len(named) > 1 else "", each, colour


def _time_figure(runs: Runs) -> figure:
    single = len(runs) == 1
    title = "Latency over time" if single else "Latency over time: p50, and p99 dashed"
    fig = _new_figure(title, "time since the start (s)", _US, y_log=True)
    for name, run, colour in _coloured(runs):
        seconds, *figures, _ = run.history.fine.all().T
        p50, p99, most = (ns / 1e3 for ns in figures)
        if single:
            fig.scatter(seconds, most, size=3, color=_PALE, legend_label="max")
        _draw_line(fig, seconds, p99, _COLOURS[1] if single else colour, "p99" if single else "",
              line_dash="dashed")  # fmt: skip
        _draw_line(fig, seconds, p50, colour, name or "p50")
    return fig


def _histogram_figure(runs: Runs) -> figure:
    fig = _new_figure("Distribution of latency", _US, "samples (%)", x_log=True)
    for name, run, colour in _coloured(runs):
        low, high, count = run.history.histogram().T
        share = 100 * count / count.sum()
        x = np.column_stack((low, high)).ravel() / 1e3
        y = np.repeat(share, 2)
        _draw_line(fig, [x[0], *x, x[-1]], [0, *y, 0], colour, name)
    return fig


def _percentiles(runs: Runs) -> figure:
    """Draw latency over 1 / (1 - p): 2 is p50, and 10**n is n nines."""
    fig = _new_figure("Percentiles of latency", "percentile (%)", _US, x_log=True, y_log=True)
    names = {2: "50"} | {10**count: nines(count) for count in range(1, NINES + 1)}
    fig.xaxis.ticker = FixedTicker(ticks=list(names), minor_ticks=[])
    fig.xaxis.major_label_overrides = names
    for name, run, colour in _coloured(runs):
        inverse, ns = run.history.curve().T
        _draw_line(fig, inverse, ns / 1e3, colour, name)
    return fig


def _steps(cumulative: Floats) -> tuple[Floats, Floats]:
    """Return the corners of a step function: µs, and the share of samples up to that time."""
    ns, share = cumulative.T
    return np.repeat(ns, 2) / 1e3, np.append(0, np.repeat(share, 2)[:-1])


def _cdf_figure(runs: Runs) -> figure:
    fig = _new_figure("Cumulative distribution of latency", _US, "share of samples", x_log=True)
    for name, run, colour in _coloured(runs):
        us, share = _steps(run.history.cumulative())
        _draw_line(fig, us, share, colour, name)
    return fig


def _ccdf_figure(runs: Runs) -> figure:
    fig = _new_figure(
        "Complementary cumulative distribution of latency", _US, "share of samples above",
        x_log=True, y_log=True,
    )  # fmt: skip
    for name, run, colour in _coloured(runs):
        us, share = _steps(run.history.cumulative())
        above = share < 1  # the last step, to a share of 0, has no logarithm
        _draw_line(fig, us[above], 1 - share[above], colour, name)
    return fig


def _over_sizes(sweeps: Sweeps, title: str, y: str) -> figure:
    fig = _new_figure(title, "bytes per operation", y, x_log=True, y_log=True)
    rows = {row["size"]: row["text"] for sweep in sweeps.values() for row in sweep.rows()}
    labels = {size: text.replace("iB", "").replace(" B", "").replace(" ", "")
              for size, text in rows.items()}  # fmt: skip
    fig.xaxis.ticker = FixedTicker(ticks=sorted(labels), minor_ticks=[])
    fig.xaxis.major_label_overrides = labels
    return fig


def _sweep_figure(sweeps: Sweeps) -> figure:
    fig = _over_sizes(sweeps, "Latency over sizes", _US)
    single = len(sweeps) == 1
    for name, sweep, colour in _coloured(sweeps):
        rows = sweep.rows()
        size = [row["size"] for row in rows]
        low, high, p50 = ([row[key] / 1e3 for row in rows] for key in ("low", "high", "p50"))
        fig.varea(size, low, high, fill_color=colour, fill_alpha=0.25)
        _draw_line(fig, size, p50, colour, name or "p50")
        fig.scatter(size, p50, size=5, color=colour)
        for key, style, shade in (("p99", "dashed", _COLOURS[1]), ("floor", "dotted", _COLOURS[2])):
            known = [row for row in rows if row[key] and single]
            if known:
                ns = [row[key] / 1e3 for row in known]
                _draw_line(fig, [row["size"] for row in known], ns, shade, key, line_dash=style)
    return fig


def _rate_figure(sweeps: Sweeps) -> figure:
    fig = _over_sizes(sweeps, "Rate over sizes, one operation at a time", "rate (GB/s)")
    for name, sweep, colour in _coloured(sweeps):
        rows = sweep.rows()
        size = [row["size"] for row in rows]
        slow, fast = ([row["size"] / row[key] for row in rows] for key in ("high", "low"))
        fig.varea(size, slow, fast, fill_color=colour, fill_alpha=0.25)
        rate = [row["gb_per_s"] for row in rows]
        _draw_line(fig, size, rate, colour, name)
        fig.scatter(size, rate, size=5, color=colour)
    return fig


OF_RUNS: dict[str, Callable[[Runs], figure]] = {
    "time": _time_figure, "histogram": _histogram_figure, "percentiles": _percentiles,
    "cdf": _cdf_figure, "ccdf": _ccdf_figure,
}  # fmt: skip
OF_SWEEPS: dict[str, Callable[[Sweeps], figure]] = {"sweep": _sweep_figure, "rate": _rate_figure}


def caption(runs: Mapping[str, Run] | Mapping[str, SizeSweep]) -> str:
    """Return what was measured, by what and where, as text below a figure."""
    return ". ".join(f"{name}: {_origin_text(each)}" for name, each in runs.items())


def _origin_text(each: Run | SizeSweep) -> str:
    if isinstance(each, SizeSweep):
        about = each.origin()
        return f"{about['words']} ({about['label']}; {about['machine']})"
    config, samples = each.config, each.history.samples
    return f"{config.description}, {samples:,} samples ({config.label}; {config.machine})"
