"""What was measured: points over time, a histogram, percentiles and the last samples. All bounded.

Times are nanoseconds, but for the first column of the points: seconds since the run began, on the
DPU's clock.
"""

from __future__ import annotations

from collections import deque
from typing import Any

import numpy as np

__all__ = ["COARSE", "EDGES_NS", "FINE", "TAIL", "History", "Ring", "percentile"]

FINE = 2400  # points: 20 a second for 2 minutes
COARSE = 3600  # points: one a second for an hour
TAIL = 1_000_000  # samples that are kept as they are
GAP = (np.nan, np.nan, np.nan, 0.0)  # the rest of a point where blocks are missing

_FOR_P99, _ENOUGH = 100, 1000  # samples
_AT_ONCE = 20  # blocks

_FINE_BINS = 200  # a power of ten: a percentile from them is within 0.6 % of a sample
_SHOWN = 5  # of them make one bin that is drawn: 40 a power of ten
_DECADES = 11  # from 1 ns to 100 s
EDGES_NS = 10.0 ** (np.arange(_DECADES * _FINE_BINS // _SHOWN + 1) * _SHOWN / _FINE_BINS)

_NAMED = (("p50", 0.5, 2), ("p90", 0.9, 10), ("p99", 0.99, 100), ("p99.9", 0.999, 1000))

Floats = Any  # np.ndarray of float64: NumPy's own name for it differs between its versions
_CURVE = 10.0 ** (np.arange(9 * 24 + 1) / 24)  # 1/(1-p): 24 percentiles for each nine


def percentile(ordered: Any, share: int, of: int = 100) -> int:
    """The sample that `share` in `of` samples do not exceed (nearest rank), of rising ones."""
    return int(ordered[-(-len(ordered) * share // of) - 1])


class Ring:
    """The last `capacity` rows of `width` numbers each, in the order they came."""

    def __init__(self, capacity: int, width: int) -> None:
        self.total = 0  # rows that ever came
        self._capacity = capacity
        self._rows = np.zeros((capacity, width))

    def __len__(self) -> int:
        return min(self.total, self._capacity)

    def add(self, *row: float) -> None:
        """One row more; the oldest goes if it is full."""
        self._rows[self.total % self._capacity] = row
        self.total += 1

    def since(self, total: int) -> Floats:
        """A copy of the rows that came after the first `total` ones, as far as they are kept."""
        count = min(self.total - total, len(self))
        places = np.arange(self.total - count, self.total) % self._capacity
        return self._rows[places]

    def all(self) -> Floats:
        """A copy of what is kept."""
        return self.since(0)


class Tail:
    """The last `capacity` samples. Its memory is taken at once: it does not grow."""

    def __init__(self, capacity: int) -> None:
        self.total = 0
        self._kept = np.empty(capacity, np.uint64)
        self._kept.fill(0)

    def add(self, samples: Any) -> None:
        """Samples in the order they were taken."""
        capacity = len(self._kept)
        kept = samples[-capacity:]
        start = (self.total + len(samples) - len(kept)) % capacity
        first = min(len(kept), capacity - start)
        self._kept[start : start + first] = kept[:first]
        self._kept[: len(kept) - first] = kept[first:]
        self.total += len(samples)

    def all(self) -> Any:
        """A copy of what is kept, u64, in no order."""
        return self._kept[: min(self.total, len(self._kept))].copy()


class History:
    """One run. `add` takes a block of samples; who draws takes the rings and the histogram.

    When a block was taken is Python's stamp of its end: it places the block on the axis, no more.

    The columns of `fine` (a point a block) and `coarse` (a point a second): seconds, p50, p99, max,
    samples. A point of NaN is a gap: blocks were lost there, or nothing was measured. p99 is of the
    block and of those before it, up to a second or 1,000 samples; of less than 100 there is none.
    """

    def __init__(self, *, fine: int = FINE, coarse: int = COARSE, tail: int = TAIL) -> None:
        self.fine, self.coarse, self._tail = Ring(fine, 5), Ring(coarse, 5), Tail(tail)
        self.lost = 0  # blocks
        self.samples = 0  # in all
        self._min_ns = self._max_ns = 0
        self._bins = np.zeros(_DECADES * _FINE_BINS, np.int64)
        self._began: int | None = None
        self._last_s = 0.0
        self._paced, self._paced_s = 0, 0.0  # samples that came after others without a gap
        self._gap = False
        self._second: list[Any] = []
        self._recent: deque[tuple[float, Any]] = deque()
        self._in_recent = 0
        self._uncounted: list[Any] = []

    @property
    def tail(self) -> Tail:
        """The last samples as they are."""
        self._count()
        return self._tail

    @property
    def seconds(self) -> float:
        """From the first block to the last."""
        return self._last_s

    @property
    def rate(self) -> float:
        """Samples a second while it was measured, gaps left out; 0: too few to know."""
        return self._paced / self._paced_s if self._paced_s else 0.0

    def counted(self) -> dict[str, Any]:
        """How many there are, how many blocks are not, and how fast they came."""
        return {"samples": self.samples, "lost": self.lost, "rate": self.rate}

    def gap(self, lost: int = 0) -> None:
        """Before the next block `lost` ones are missing, or it was stopped."""
        self.lost += lost
        self._gap = self._began is not None

    def add(self, t_ns: int, samples: Any) -> None:
        """A block: u64 ns each, the last taken at `t_ns` of the DPU's clock. Empty: nothing."""
        if not len(samples):
            return
        if self._began is None:
            self._began = t_ns
        second = (t_ns - self._began) / 1e9
        if self._gap:
            self._break((self._last_s + second) / 2)
        elif self.samples:
            self._paced, self._paced_s = (
                self._paced + len(samples), self._paced_s + second - self._last_s,
            )  # fmt: skip
        ordered = np.sort(samples)
        p50, _, most, count = _point(ordered)
        self.fine.add(second, p50, self._p99(second, samples), most, count)
        if int(second) > int(self._last_s):
            self._close_second()
        self._second.append(samples)
        self._last_s = second
        self.samples += len(samples)
        self._uncounted.append(samples)
        if len(self._uncounted) == _AT_ONCE:
            self._count()

    def _p99(self, second: float, samples: Any) -> float:
        recent = self._recent
        recent.append((second, samples))
        self._in_recent += len(samples)
        while True:
            began, oldest = recent[0]
            left = self._in_recent - len(oldest)
            if left < _FOR_P99 or (left < _ENOUGH and second - began <= 1):
                break
            recent.popleft()
            self._in_recent = left
        if self._in_recent < _FOR_P99:
            return float("nan")
        rank = -(-99 * self._in_recent // 100) - 1
        return float(np.partition(np.concatenate([block for _, block in recent]), rank)[rank])

    def _break(self, second: float) -> None:
        self._gap = False
        self._recent.clear()
        self._in_recent = 0
        self._close_second()
        self.fine.add(second, *GAP)
        self.coarse.add(second, *GAP)

    def _close_second(self) -> None:
        if self._second:
            self.coarse.add(self._last_s, *_point(np.sort(np.concatenate(self._second))))
            self._second = []

    def _count(self) -> None:
        """What was not counted yet, at once: a call for each block would cost ten times as much."""
        if not self._uncounted:
            return
        samples, self._uncounted = np.concatenate(self._uncounted), []
        places = np.log10(np.maximum(samples, 1)) * _FINE_BINS
        top = len(self._bins) - 1
        counts = np.bincount(np.minimum(places, top).astype(np.int64))
        self._bins[: len(counts)] += counts
        low, high = int(samples.min()), int(samples.max())
        self._min_ns = min(self._min_ns, low) if self._tail.total else low
        self._max_ns = max(self._max_ns, high)
        self._tail.add(samples)

    def histogram(self) -> Floats:
        """Rows (from, to, count), ns: 40 bins a power of ten, from the first to the last used."""
        self._count()
        counts = self._bins.reshape(-1, _SHOWN).sum(axis=1)
        used = np.flatnonzero(counts)
        if not len(used):
            return np.zeros((0, 3))
        bins = slice(used[0], used[-1] + 1)
        edges = EDGES_NS[used[0] : used[-1] + 2]
        return np.column_stack((edges[:-1], edges[1:], counts[bins]))

    def curve(self) -> Floats:
        """Rows (1/(1-p), ns): the percentile p from 0 (the least) to as many nines as there are
        samples for: of n, none beyond 1-1/n. Each within 0.6 % of a sample."""
        kept = _CURVE[: np.searchsorted(_CURVE, self.samples, side="right")]
        return np.column_stack((kept, self._times(1 - 1 / kept)))

    def at(self, share: float) -> float:
        """One percentile in ns, within 0.6 %; NaN without a sample."""
        return float(self._times(np.array([share]))[0]) if self.samples else float("nan")

    def _times(self, shares: Floats) -> Floats:
        self._count()
        ranks = np.maximum(np.ceil(shares * self.samples - 1e-6), 1)
        bins = np.searchsorted(np.cumsum(self._bins), ranks)
        return np.clip(10.0 ** ((bins + 0.5) / _FINE_BINS), self._min_ns, self._max_ns)

    def figures(self) -> dict[str, float]:
        """What a table of the run shows, ns: of the percentiles those that it has samples for."""
        if not self.samples:
            return {}
        named = [(name, share) for name, share, least in _NAMED if self.samples >= least]
        times = self._times(np.array([share for _, share in named]))
        known = {name: float(ns) for (name, _), ns in zip(named, times, strict=True)}
        return {"min": self._min_ns, **known, "max": self._max_ns}


def _point(ordered: Any) -> tuple[float, float, float, float]:
    """p50, p99 (NaN of too few), max and how many, of samples in rising order."""
    count = len(ordered)
    p99 = float(percentile(ordered, 99)) if count >= _FOR_P99 else float("nan")
    return float(percentile(ordered, 50)), p99, float(ordered[-1]), float(count)
