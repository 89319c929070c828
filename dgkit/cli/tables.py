# SPDX-License-Identifier: Apache-2.0
"""Reports as tables of at most 80 columns."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise
from math import log10
from statistics import median
from typing import TYPE_CHECKING

from ..report import (
    BandwidthReport,
    Histogram,
    LatencyReport,
    PostedLatencyReport,
    PostedRateReport,
)
from ..types import DOCA
from ..units import size_text, us

if TYPE_CHECKING:
    from rich.table import Table

_LEVELS = " ▁▂▃▄▅▆▇█"


def spark(histogram: Histogram, width: int = 7) -> str:
    """Draw a histogram as one line of block characters, with both axes logarithmic."""
    edges, counts = histogram.edges_ns, histogram.counts
    low, high = log10(max(edges[0], 1)), log10(max(edges[-1], 2))
    cells = [0] * width
    for (left, right), count in zip(pairwise(edges), counts, strict=True):
        middle = (log10(max(left, 1)) + log10(max(right, 1))) / 2
        at = int(width * (middle - low) / (high - low)) if high > low else 0
        cells[min(max(at, 0), width - 1)] += count
    top = log10(max(cells) + 1)
    steps = len(_LEVELS) - 2
    return "".join(_LEVELS[round(steps * log10(n + 1) / top) + 1 if n else 0] for n in cells)


def bar(share: float, width: int = 10) -> str:
    """Draw a share from 0 to 1 as a bar, in steps of an eighth of a cell."""
    full, eighths = divmod(round(max(0.0, min(share, 1.0)) * width * 8), 8)
    return "█" * full + ("▏▎▍▌▋▊▉"[eighths - 1] if eighths else "")


def _table(title: str, columns: Sequence[str], *, left: Sequence[str]) -> Table:
    from rich.table import Table

    table = Table(title=title, title_justify="left", title_style="bold", box=None)
    table.padding, table.pad_edge = (0, 2, 0, 0), False
    for name in columns:
        table.add_column(name, justify="left" if name in left else "right", no_wrap=True)
    return table


def plain_table(title: str, columns: Sequence[str], rows: Iterable[Sequence[object]]) -> Table:
    """Return a table of arbitrary cells, all of them left-aligned, as plain text."""
    from rich.text import Text

    from ..units import one_line

    table = _table(title, columns, left=columns)
    for row in rows:
        table.add_row(*(Text(one_line(str(cell))) for cell in row))
    return table


def latency_table(reports: Sequence[LatencyReport], title: str) -> Table:
    """Return a table with one row per report of the same op; times in µs."""
    columns = ("path", "size", "p50", "p99", "max", "floor", "x floor", "spread")
    table = _table(title, columns, left=("path", "spread"))
    for r in reports:
        figures = [us(ns) for ns in (r.p50_ns, r.p99_ns, r.percentiles.max_ns)]
        floor = us(median(r.floor_ns)) if r.floor_ns else "none"
        drawn = spark(r.histogram)
        table.add_row(r.path, size_text(r.size), *figures, floor, _ratio(r, _digits(r)), drawn)
    return table


def rate_table(reports: Sequence[BandwidthReport], title: str) -> Table:
    """Return a table with one row per report of the same op.

    The bar is relative to the fastest row. The floor column names the floor: the driver's copy for
    a GPU's copy engine, DOCA's own calls for DOCA, memcpy for a CPU.
    """
    columns = ("path", "size", "depth", "ops/s", "GB/s", _floor_column(reports), "")
    table = _table(title, columns, left=("path", ""))
    top = max((r.gb_per_s for r in reports), default=1.0)
    for r in reports:
        rate = (f"{r.ops_per_s:,.0f}", f"{r.gb_per_s:,.2f}", _ratio(r, 2))
        drawn = bar(r.gb_per_s / top) if top else ""
        table.add_row(r.path, size_text(r.size), str(r.window), *rate, drawn)
    return table


def _floor_column(reports: Sequence[BandwidthReport]) -> str:
    if any(r.provider in DOCA for r in reports):
        return "of DOCA"
    return "of driver" if any(r.by_gpu for r in reports) else "of memcpy"


def legend(reports: Sequence[BandwidthReport]) -> str:
    """Return an explanation of the columns of both tables."""
    floor = _floor_column(reports)
    single = "; it is timed copy by copy, so that small transfers may be faster"
    return (
        "x floor: p50 divided by the floor. spread: how many samples took how long, from the "
        "fastest (left) to the slowest, both axes logarithmic. "
        f"{floor}: the rate divided by that of {floor.removeprefix('of ')} for the same bytes"
        f"{single if floor == 'of memcpy' else ''}."
    )


_FENCED = {True: "yes", False: "no", None: "-"}
_HOW = ("memory", "fenced", "owner", "proxy", "GPU")


def _how(report: PostedLatencyReport | PostedRateReport) -> tuple[str, ...]:
    """Return the five cells for the columns of _HOW."""
    gpu = "emulated" if report.emulated else "real"
    fenced = _FENCED[report.fenced]
    return report.memory, fenced, report.owner, report.proxy.split()[0], gpu


def posted_latency_table(reports: Sequence[PostedLatencyReport], title: str) -> Table:
    """Return a table with one row for each latency of a kernel's operations; times in µs."""
    columns = ("operation", *_HOW, "p50", "p99", "floor", "x floor")
    table = _table(title, columns, left=("operation", *_HOW))
    for r in reports:
        name = f"{r.op} {size_text(r.size)}" if r.size else r.op
        figures = [us(ns) for ns in (r.p50_ns, r.p99_ns, int(median(r.floor_ns)))]
        table.add_row(name, *_how(r), *figures, _ratio(r, 2))
    return table


def posted_rate_table(reports: Sequence[PostedRateReport], title: str) -> Table:
    """Return a table with one row for each rate of a kernel's operations, in millions/s."""
    columns = ("queues x threads", *_HOW, "rate", "floor", "of floor")
    table = _table(title, columns, left=("queues x threads", *_HOW))
    for r in reports:
        floor = median(r.floor_gb_per_s) * 1e3 / r.size
        rates = (f"{r.ops_per_s / 1e6:,.2f}", f"{floor:,.2f}")
        table.add_row(f"{r.rings} x {r.threads}", *_how(r), *rates, _ratio(r, 2))
    return table


def _digits(report: LatencyReport) -> int:
    """Return the decimals of the ratio: two for a copy engine, whose ratio is close to 1."""
    return 2 if report.by_gpu else 1


def _ratio(report: LatencyReport | BandwidthReport, digits: int) -> str:
    if report.floor_moved:
        return "moved"
    return "-" if report.floor_ratio is None else f"{report.floor_ratio:.{digits}f}"


_MOVED = (
    "moved: the floor changed by more than half meanwhile, or exceeds the figure; do not compare "
    "the row"
)


def floor_note(reports: Sequence[LatencyReport | BandwidthReport]) -> str:
    """Return an explanation of `moved` and `none` in a table; "" if neither occurs."""
    moved = [_MOVED] if any(report.floor_moved for report in reports) else []
    missing = dict.fromkeys(report.no_floor for report in reports if report.no_floor)
    return "; ".join([*moved, *(f"no floor: {why}" for why in missing)])
