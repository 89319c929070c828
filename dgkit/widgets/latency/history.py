# SPDX-License-Identifier: Apache-2.0
"""Samples of a run in bounded memory: points over time, histogram, percentiles, last samples.

Times are nanoseconds, except the first column of the points: seconds since the start of the run,
on the DPU's clock.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from ...report import Histogram, Percentiles

if TYPE_CHECKING:
    from ..base.page_input import Json

FINE = 2400  # points: 20 per second for 2 minutes
COARSE = 3600  # points: one per second for an hour
TAIL = 1_000_000  # raw samples
LOAD_ROWS = 1800  # one per 2 seconds for an hour
# Columns of the machine's load after the time: CPUs and GPUs in %, the others in GB/s of all GPUs.
LOAD = ("cpu", "gpu", "pcie_in", "pcie_out", "nvlink_in", "nvlink_out")
GAP = (np.nan, np.nan, np.nan, 0.0)  # the columns after the time, where blocks are missing

_P99_LEAST, _P99_ENOUGH = 100, 1000  # samples
_FLUSH_BLOCKS = 20

_FINE_BINS = 200  # per power of ten: a percentile from them is within 0.6 % of a sample
_SHOWN = 5  # fine bins per drawn bin: 40 drawn bins per power of ten
_DECADES = 11  # from 1 ns to 100 s
EDGES_NS = 10.0 ** (np.arange(_DECADES * _FINE_BINS // _SHOWN + 1) * _SHOWN / _FINE_BINS)

_NAMED = (("p50", 0.5, 2), ("p90", 0.9, 10), ("p99", 0.99, 100), ("p99.9", 0.999, 1000))

PARTS = 20
# Name, share in thousandths, and the least samples of a part: with fewer its percentile is the
# maximum, which grows with the number of samples.
OF_PARTS = (("p50", 500, 20), ("p99", 990, 100), ("p99.9", 999, 1000))

Floats = NDArray[np.float64]
Samples = NDArray[np.uint64]
_CURVE = 10.0 ** (np.arange(9 * 24 + 1) / 24)  # 1/(1-p): 24 percentiles per nine


def percentile(ordered: Samples, share: int, of: int = 100) -> int:
    """Return a percentile by nearest rank: `share` of `of` samples do not exceed it.

    Args:
        ordered: The samples in ascending order.
        share: The percentile, in units of 1/`of`.
        of: The scale of `share`.
    """
    return int(ordered[-(-len(ordered) * share // of) - 1])


class Ring:
    """Ring buffer of the last `capacity` rows of `width` numbers, in order of arrival."""

    def __init__(self, capacity: int, width: int) -> None:
        self.total = 0  # rows ever added
        self._capacity = capacity
        self._rows = np.zeros((capacity, width))

    def __len__(self) -> int:
        return min(self.total, self._capacity)

    def add(self, *row: float) -> None:
        """Add a row; if the buffer is full, it replaces the oldest."""
        self._rows[self.total % self._capacity] = row
        self.total += 1

    def since(self, total: int) -> Floats:
        """Return a copy of the rows added after the first `total` that are still available."""
        count = min(self.total - total, len(self))
        start = (self.total - count) % self._capacity
        first = self._rows[start : start + count]
        return np.concatenate((first, self._rows[: count - len(first)]))

    def all(self) -> Floats:
        """Return a copy of all rows."""
        return self.since(0)


class Tail:
    """The last `capacity` samples, in memory that is allocated once."""

    def __init__(self, capacity: int) -> None:
        self.total = 0
        self._kept = np.empty(capacity, np.uint64)
        self._kept.fill(0)

    def add(self, samples: Samples) -> None:
        """Add samples in the order they were taken."""
        capacity = len(self._kept)
        kept = samples[-capacity:]
        start = (self.total + len(samples) - len(kept)) % capacity
        first = min(len(kept), capacity - start)
        self._kept[start : start + first] = kept[:first]
        self._kept[: len(kept) - first] = kept[first:]
        self.total += len(samples)

    def all(self) -> Samples:
        """Return a copy of the samples, u64, in the order they were taken."""
        kept: Samples = self._kept[: self.total]
        wrapped = self.total % len(self._kept) if self.total > len(self._kept) else 0
        return np.roll(kept, -wrapped)


class History:
    """Samples of one run.

    `fine` has a point per block, `coarse` a point per second. Columns: seconds, p50, p99, max,
    samples. A point of NaN is a gap: blocks were lost, or measuring was stopped. p99 covers the
    block and the blocks before it, up to one second or 1,000 samples; it is NaN for fewer than
    100 samples. `windows` has, for each point of `fine`, p50, p99, max and samples of that window.

    `load` has rows of seconds and LOAD: each reading covers the time since the row before.

    The time of a block is stamped by Python at its end; it serves only as the position on the
    time axis.
    """

    def __init__(self, *, fine: int = FINE, coarse: int = COARSE, tail: int = TAIL) -> None:
        self.fine, self.coarse, self._tail = Ring(fine, 5), Ring(coarse, 5), Tail(tail)
        self.windows = Ring(fine, 4)
        self.load = Ring(LOAD_ROWS, 1 + len(LOAD))
        self.lost = 0  # blocks
        self.samples = 0  # total
        self._min_ns = self._max_ns = 0
        self._bins = np.zeros(_DECADES * _FINE_BINS, np.int64)
        self._start_ns: int | None = None
        self._last_s = 0.0
        self._paced, self._paced_s = 0, 0.0  # samples without a gap before them, and their time
        self._gap = False
        self._second: list[Samples] = []
        self._recent: deque[tuple[float, Samples]] = deque()
        self._in_recent = 0
        self._pending: list[Samples] = []

    @property
    def tail(self) -> Tail:
        """The last raw samples."""
        self._flush()
        return self._tail

    @property
    def seconds(self) -> float:
        """Time from the first block to the last, in seconds."""
        return self._last_s

    @property
    def rate(self) -> float:
        """Samples per second, excluding gaps; 0 if there are too few blocks."""
        return self._paced / self._paced_s if self._paced_s else 0.0

    def counts(self) -> Json:
        """Return the number of samples, of lost blocks, and the samples per second."""
        return {"samples": self.samples, "lost": self.lost, "rate": self.rate}

    def gap(self, lost: int = 0) -> None:
        """Record a gap before the next block: `lost` blocks are missing, or measuring stopped."""
        self.lost += lost
        self._gap = self._start_ns is not None

    def add(self, t_ns: int, samples: Samples) -> None:
        """Add a block; an empty one is ignored.

        Args:
            t_ns: The time at the end of the block on the DPU's clock, in ns.
            samples: Latencies in ns, u64.
        """
        if not len(samples):
            return
        if self._start_ns is None:
            self._start_ns = t_ns
        second = (t_ns - self._start_ns) / 1e9
        if self._gap:
            self._insert_gap((self._last_s + second) / 2)
        elif self.samples:
            self._paced, self._paced_s = (
                self._paced + len(samples), self._paced_s + second - self._last_s,
            )  # fmt: skip
        ordered = np.sort(samples)
        p50, _, most, count = _point(ordered)
        window = self._window(second, samples)
        self.fine.add(second, p50, window[1], most, count)
        self.windows.add(*window)
        if int(second) > int(self._last_s):
            self._close_second()
        self._second.append(samples)
        self._last_s = second
        self.samples += len(samples)
        self._pending.append(samples)
        if len(self._pending) == _FLUSH_BLOCKS:
            self._flush()

    def _window(self, second: float, samples: Samples) -> tuple[float, float, float, float]:
        """Return p50, p99 (NaN if too few), max and samples of a block and those before it."""
        recent = self._recent
        recent.append((second, samples))
        self._in_recent += len(samples)
        while True:
            start, oldest = recent[0]
            left = self._in_recent - len(oldest)
            if left < _P99_LEAST or (left < _P99_ENOUGH and second - start <= 1):
                break
            recent.popleft()
            self._in_recent = left
        return _point(np.sort(np.concatenate([block for _, block in recent])))

    def _insert_gap(self, second: float) -> None:
        self._gap = False
        self._recent.clear()
        self._in_recent = 0
        self._close_second()
        self.fine.add(second, *GAP)
        self.windows.add(*GAP)
        self.coarse.add(second, *GAP)

    def _close_second(self) -> None:
        if self._second:
            self.coarse.add(self._last_s, *_point(np.sort(np.concatenate(self._second))))
            self._second = []

    def _flush(self) -> None:
        """Add pending blocks to the histogram; one call per block would cost ten times as much."""
        if not self._pending:
            return
        samples, self._pending = np.concatenate(self._pending), []
        bins = np.log10(np.maximum(samples, 1)) * _FINE_BINS
        top = len(self._bins) - 1
        counts = np.bincount(np.minimum(bins, top).astype(np.int64))
        self._bins[: len(counts)] += counts
        low, high = int(samples.min()), int(samples.max())
        self._min_ns = min(self._min_ns, low) if self._tail.total else low
        self._max_ns = max(self._max_ns, high)
        self._tail.add(samples)

    def histogram(self) -> Floats:
        """Return the histogram: 40 bins per power of ten, from the first to the last used.

        Returns:
            Rows of (from ns, to ns, count).
        """
        self._flush()
        counts = self._bins.reshape(-1, _SHOWN).sum(axis=1)
        used = np.flatnonzero(counts)
        if not len(used):
            return np.zeros((0, 3))
        bins = slice(used[0], used[-1] + 1)
        edges = EDGES_NS[used[0] : used[-1] + 2]
        return np.column_stack((edges[:-1], edges[1:], counts[bins]))

    def curve(self) -> Floats:
        """Return the percentile curve, each value within 0.6 % of a sample.

        Returns:
            Rows of (1/(1-p), ns), for p from 0 (the minimum) up to 1 - 1/n for n samples.
        """
        kept = _CURVE[: np.searchsorted(_CURVE, self.samples, side="right")]
        return np.column_stack((kept, self._percentiles(1 - 1 / kept)))

    def cumulative(self) -> Floats:
        """Return the cumulative distribution, each time within 1.2 % of a sample.

        Returns:
            Rows of (ns, share of the samples up to it), from the minimum to (maximum, 1).
        """
        self._flush()
        used = np.flatnonzero(self._bins)
        ns = 10.0 ** ((used + 1) / _FINE_BINS)
        share = np.cumsum(self._bins[used]) / self.samples
        return np.column_stack((np.clip(ns, self._min_ns, self._max_ns), share))

    def at(self, share: float) -> float:
        """Return the percentile `share` (0 to 1) in ns, within 0.6 %; NaN without samples."""
        return float(self._percentiles(np.array([share]))[0]) if self.samples else float("nan")

    def exact(self) -> tuple[Percentiles, Histogram]:
        """Return percentiles and histogram of the last raw samples.

        Raises:
            ValueError: There are no samples yet.
        """
        samples = np.sort(self.tail.all()).tolist()
        if not samples:
            raise ValueError("no samples yet: call start() first")
        return Percentiles.of(samples), Histogram.of(samples)

    def sections(self) -> dict[str, list[float]]:
        """Return percentiles of 20 equal parts of the last raw samples, in the order of time.

        A percentile for which the parts are too small is that of all samples, alone.
        """
        samples = self.tail.all()
        parts = [np.sort(part) for part in np.array_split(samples, PARTS)]
        whole = np.sort(samples)
        found: dict[str, list[float]] = {}
        for name, share, least in OF_PARTS:
            if len(parts[-1]) >= least:
                found[name] = [float(percentile(part, share, 1000)) for part in parts]
            elif len(whole) >= least:
                found[name] = [float(percentile(whole, share, 1000))]
        return found

    def _percentiles(self, shares: Floats) -> Floats:
        self._flush()
        ranks = np.maximum(np.ceil(shares * self.samples - 1e-6), 1)
        bins = np.searchsorted(np.cumsum(self._bins), ranks)
        return np.clip(10.0 ** ((bins + 0.5) / _FINE_BINS), self._min_ns, self._max_ns)

    def figures(self) -> dict[str, float]:
        """Return min, max and the percentiles for which there are enough samples, in ns."""
        if not self.samples:
            return {}
        named = [(name, share) for name, share, least in _NAMED if self.samples >= least]
        times = self._percentiles(np.array([share for _, share in named]))
        known = {name: float(ns) for (name, _), ns in zip(named, times, strict=True)}
        return {"min": self._min_ns, **known, "max": self._max_ns}


def _point(ordered: Samples) -> tuple[float, float, float, float]:
    """Return p50, p99 (NaN if too few), max and the number of samples in ascending order."""
    count = len(ordered)
    p99 = float(percentile(ordered, 99)) if count >= _P99_LEAST else float("nan")
    return float(percentile(ordered, 50)), p99, float(ordered[-1]), float(count)
