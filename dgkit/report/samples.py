# SPDX-License-Identifier: Apache-2.0
"""Percentiles and histograms of times.

Percentiles use the nearest rank: the smallest sample such that at least the given share of the
samples do not exceed it, so each percentile is a measured time. This is definition 1 of R. J.
Hyndman and Y. Fan, "Sample Quantiles in Statistical Packages", The American Statistician 50(4),
1996.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import floor, log10, sqrt
from operator import mul


@dataclass(frozen=True, slots=True)
class Percentiles:
    """Nearest-rank percentiles of `n` times in ns. With n < 1000, p99.9 is the maximum.

    `mean_ns` and `stdev_ns` (of the samples: divided by n - 1) are None in reports stored before
    they were computed.
    """

    n: int
    min_ns: int
    p50_ns: int
    p90_ns: int
    p99_ns: int
    p999_ns: int
    max_ns: int
    mean_ns: float | None = None
    stdev_ns: float | None = None

    @classmethod
    def of(cls, ordered: Sequence[int]) -> Percentiles:
        """Compute the percentiles of at least one time, in ascending order."""
        n = len(ordered)
        shares = (500, 900, 990, 999)  # per mille; the rank is this share of n, rounded up
        p50, p90, p99, p999 = (ordered[-(-n * share // 1000) - 1] for share in shares)
        total, squares = sum(ordered), sum(map(mul, ordered, ordered))
        variance = (n * squares - total**2) / (n * max(n - 1, 1))  # exact: the times are integers
        ends = p50, p90, p99, p999, ordered[-1]
        return cls(n, ordered[0], *ends, mean_ns=total / n, stdev_ns=sqrt(variance))

    def rows(self) -> list[tuple[str, int]]:
        """Return (name, ns) pairs in ascending order."""
        names = ("min", "p50", "p90", "p99", "p99.9", "max")
        figures = (self.min_ns, self.p50_ns, self.p90_ns, self.p99_ns, self.p999_ns, self.max_ns)
        return list(zip(names, figures, strict=True))


@dataclass(frozen=True, slots=True)
class Histogram:
    """Times in logarithmic bins: bin i counts edges_ns[i] <= t < edges_ns[i+1]."""

    edges_ns: tuple[int, ...]
    counts: tuple[int, ...]

    @classmethod
    def of(cls, ordered: Sequence[int]) -> Histogram:
        """Count times in ascending order, in about 70 bins or fewer."""
        low, high = max(ordered[0], 1), max(ordered[-1], 1)
        decades = log10(high / low)
        per_decade = next((n for n in (80, 40, 20) if decades * n <= 70), 10)
        edges = list(_edges(floor(per_decade * log10(low)) - 1, per_decade, high))
        while edges[1] <= ordered[0]:  # the first bin would be empty
            del edges[0]
        edges[0] = min(edges[0], ordered[0])
        starts = [bisect_left(ordered, edge) for edge in edges]
        return cls(tuple(edges), tuple(end - start for start, end in pairwise(starts)))


def _edges(k: int, rate: int, high: int) -> Iterator[int]:
    """Yield 10^(k/rate), 10^((k+1)/rate)... rounded and unique, up to the first above `high`."""
    last = 0
    while last <= high:
        edge = round(10 ** (k / rate))
        if edge > last:
            yield edge
            last = edge
        k += 1
