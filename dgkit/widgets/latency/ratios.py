# SPDX-License-Identifier: Apache-2.0
"""Comparison of runs or sweeps: the ratio of a percentile, with its 95 % confidence interval.

Samples of one run depend on each other: a slow second has many slow samples. The percentile is
therefore taken of each of 20 equal parts of the run, in the order of time (of each round of a
sweep), and the parts are what is compared: sectioning, S. Asmussen and P. W. Glynn, "Stochastic
Simulation", 2007, III.5. The interval of the ratio is Welch's, of the logarithms.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from math import exp, log, sqrt
from statistics import fmean, variance

from ... import html_cards
from ...units import size_text, us
from .export import latex_table
from .run import Run
from .size_sweep import SizeSweep

_LEAST_PARTS = 3  # rounds of a sweep: of two, the deviation is unknown
_Z = 1.959964  # 97.5 % quantile of the normal distribution


@dataclass(frozen=True, slots=True)
class Ratio:
    """A percentile of one run or sweep over that of another.

    Attributes:
        name: Run or sweep.
        baseline: The one that it is compared with.
        size: Bytes per operation.
        figure: `p50`, `p99` or `p99.9`.
        ns: The percentile: the geometric mean of those of the parts.
        ratio: It, divided by that of the baseline.
        low: Lower end of the 95 % confidence interval of the ratio; None: too few samples.
        high: Its upper end, or None.
    """

    name: str
    baseline: str
    size: int
    figure: str
    ns: float
    ratio: float
    low: float | None
    high: float | None

    @property
    def interval(self) -> str:
        """The interval as text: `0.91 to 0.95`."""
        if self.low is None or self.high is None:
            return "too few samples"
        return f"{self.low:.3f} to {self.high:.3f}"

    @property
    def verdict(self) -> str:
        """`faster`, `slower` or `no difference shown`: whether the interval excludes 1."""
        if self.low is None or self.high is None:
            return ""
        return "faster" if self.high < 1 else "slower" if self.low > 1 else "no difference shown"


@dataclass(frozen=True, slots=True)
class Comparison:
    """Ratios of runs or sweeps to a baseline; shown as a table."""

    rows: tuple[Ratio, ...]

    def to_csv(self) -> str:
        """Return a row per ratio as CSV."""
        out = io.StringIO()
        writer = csv.DictWriter(out, [each.name for each in fields(Ratio)], lineterminator="\n")
        writer.writeheader()
        writer.writerows(asdict(row) for row in self.rows)
        return out.getvalue()

    def to_latex(self) -> str:
        """Return a row per ratio for LaTeX (package booktabs)."""
        return latex_table(_HEAD, list(self._cells()), ["95 % confidence intervals"], texts=4)

    def _cells(self) -> Iterator[list[str]]:
        for row in self.rows:
            names = [row.name, row.baseline, size_text(row.size), row.figure]
            yield [*names, us(row.ns), f"{row.ratio:.3f}", row.interval, row.verdict]

    def __str__(self) -> str:
        cells = [list(_HEAD), *self._cells()]
        widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
        lines = [
            "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True))
            for row in cells
        ]
        return "\n".join(line.rstrip() for line in lines)

    def _repr_html_(self) -> str:
        body = html_cards.table("Ratio, with its 95 % confidence interval", _HEAD, self._cells())
        return html_cards.card("Comparison of latencies", (), body=body)


_HEAD = ("run", "over", "size", "figure", "µs", "ratio", "95 % interval", "")


def compare_runs(runs: Mapping[str, Run], baseline: str) -> Comparison:
    """Compare each run with the baseline: p50, p99 and p99.9 of the samples that it kept."""
    parts = {name: run.history.sections() for name, run in runs.items()}
    base = parts[baseline]
    return Comparison(tuple(
        _ratio(name, baseline, run.config.size, figure, parts[name][figure], base[figure])
        for name, run in runs.items() if name != baseline
        for figure in parts[name] if figure in base
    ))  # fmt: skip


def compare_sweeps(sweeps: Mapping[str, SizeSweep], baseline: str) -> Comparison:
    """Compare each sweep with the baseline: p50 of each size that both measured."""
    rounds = {
        name: {size: [float(r.p50_ns) for r in reports] for size, reports in sweep.reports.items()}
        for name, sweep in sweeps.items()
    }
    return Comparison(tuple(
        _ratio(name, baseline, size, "p50", p50s, rounds[baseline][size])
        for name, by_size in rounds.items() if name != baseline
        for size, p50s in by_size.items() if size in rounds[baseline]
    ))  # fmt: skip


def _ratio(
    name: str, baseline: str, size: int, figure: str, ns: Sequence[float], base: Sequence[float]
) -> Ratio:
    """Return the ratio of the geometric means of two lists of parts, with its interval."""
    logs, base_logs = ([log(max(each, 1)) for each in part] for part in (ns, base))
    difference = fmean(logs) - fmean(base_logs)
    low = high = None
    if min(len(logs), len(base_logs)) >= _LEAST_PARTS:
        half = _half_width(logs, base_logs)
        low, high = exp(difference - half), exp(difference + half)
    return Ratio(name, baseline, size, figure, exp(fmean(logs)), exp(difference), low, high)


def _half_width(first: Sequence[float], second: Sequence[float]) -> float:
    """Return half of the 95 % interval of a difference of means (Welch)."""
    errors = [variance(part) / len(part) for part in (first, second)]
    total = sum(errors)
    if not total:
        return 0.0
    freedom = total**2 / sum(
        error**2 / (len(part) - 1) for error, part in zip(errors, (first, second), strict=True)
    )
    return _t(freedom) * sqrt(total)


def _t(freedom: float) -> float:
    """Return the 97.5 % quantile of Student's t, within 4 % (Abramowitz and Stegun 26.7.5)."""
    z = _Z
    terms = (
        (z**3 + z) / 4,
        (5 * z**5 + 16 * z**3 + 3 * z) / 96,
        (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384,
    )
    return z + sum(term / freedom**power for power, term in enumerate(terms, start=1))
