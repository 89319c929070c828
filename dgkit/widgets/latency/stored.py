"""Kept runs as JSON, for the metadata of the notebook that shows the plot.

A run takes 2 to 10 kB, since a notebook is read by version control and by people: exact percentiles
and histogram of its report, those of its 20 parts (for the confidence interval), the bins of its
distribution, and at most 120 points over time. The raw samples are not stored.

Pages send these records, and a page is not trusted: `restored` checks each value.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import numpy as np

from ...report import Histogram, Machine, Percentiles
from .history import GAP, OF_PARTS, PARTS, Floats, History
from .run import Run, RunConfig

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ..base.page_input import Json, JsonValue

_POINTS = 120
_TEXT = 400  # most characters of a text such as the machine
_MOST_NS = 1e15
_BINS = len(History(fine=1, coarse=1, tail=1).bins())


def stored(run: Run) -> Json:
    """Return a kept run as JSON. Lists of numbers are text: a notebook has a line per list item."""
    history = run.history
    percentiles, histogram = history.exact()
    figures = history.figures()
    return {
        "id": run.key, "kept": run.kept, "config": _config(run.config), "samples": history.samples,
        "seconds": history.seconds, "rate": history.rate, "lost": history.lost,
        "range_ns": [int(figures["min"]), int(figures["max"])],
        "bins": _bins_text(history.bins()),
        "percentiles": asdict(percentiles),
        "edges_ns": _join(histogram.edges_ns), "counts": _join(histogram.counts),
        "parts": {name: _join(map(int, each)) for name, each in history.sections().items()},
        "points": " ".join(map(_point_text, _points(history))),
    }  # fmt: skip


def restored(record: Json, number: int) -> Run:
    """Return a run from stored() output, also after JSON.

    Args:
        record: A record of a notebook.
        number: The run's number in this plot.

    Raises:
        ValueError: A value is missing, or is not one that stored() returns.
    """
    try:
        run = Run(
            number, _read_config(record["config"]), _StoredHistory(record),
            key=_text(record["id"]), kept=_text(record["kept"]), recalled=True,
        )  # fmt: skip
        run.state(), run.report()  # raise TypeError for a field of another type
        return run
    except (LookupError, TypeError, ValueError, AttributeError, OverflowError) as error:
        reason = f"{error.args[0]!r} is missing" if isinstance(error, KeyError) else error
        raise ValueError(f"it is not a run that dgkit stored: {reason}") from error


class _StoredHistory(History):
    """The samples of a run as far as a record has them."""

    def __init__(self, record: Json) -> None:
        points = _read_points(_text(record["points"], _POINTS * 80))
        super().__init__(fine=len(points) or 1, coarse=1, tail=1)
        for second, p50, p99, most, count in points:
            self.fine.add(second, p50, p99, most, count)
            self.windows.add(p50, p99, most, count)
        _read_bins(_text(record["bins"], _BINS * 24), self.bins())
        self._min_ns, self._max_ns = map(_count, record["range_ns"])
        self.samples, self.lost = _count(record["samples"]), _count(record["lost"])
        self._last_s, self._paced_s = _number(record["seconds"]), 1.0
        self._paced = _number(record["rate"])
        if not self.samples or self.samples != self._bins.sum():
            raise ValueError(f"its bins do not have its {self.samples:,} samples")
        self._exact = _read_exact(record)
        self._sections = _read_parts(record["parts"])

    def exact(self) -> tuple[Percentiles, Histogram]:
        """Return the percentiles and the histogram, as they were stored."""
        return self._exact

    def sections(self) -> dict[str, list[float]]:
        """Return the percentiles of the parts, as they were stored."""
        return self._sections


def _join(numbers: Iterable[int]) -> str:
    return " ".join(map(str, numbers))


def _bins_text(bins: NDArray[np.int64]) -> str:
    """Return the counts that are not 0; `9:4` is that of bin 9, and `5` after it that of bin 10."""
    used = np.flatnonzero(bins)
    starts = set(used[np.diff(used, prepend=-2) > 1].tolist())
    return " ".join(f"{at}:{bins[at]}" if at in starts else str(bins[at]) for at in used.tolist())


def _read_bins(text: str, bins: NDArray[np.int64]) -> None:
    at = 0
    for word in text.split():
        start, colon, count = word.rpartition(":")
        at = _count(start) if colon else at + 1
        bins[at] = _count(count)


def _config(config: RunConfig) -> Json:
    known = {name: getattr(config, name) for name in RunConfig.__dataclass_fields__}
    return known | {"machine": asdict(config.machine), "posted": dict(config.posted)}


def _read_config(data: Json) -> RunConfig:
    known = {name: _scalar(data[name]) for name in RunConfig.__dataclass_fields__
             if name not in ("machine", "posted")}  # fmt: skip
    machine = Machine(**{name: _scalar(value) for name, value in data["machine"].items()})
    posted = tuple((_text(name), _scalar(value)) for name, value in data["posted"].items())
    known |= {"size": _count(known["size"]), "count": _count(known["count"])}
    known |= {"every_s": _number(known["every_s"])}
    return RunConfig(**known, machine=machine, posted=posted)


def _points(history: History) -> Floats:
    """Return points per second, the last 120; per block of a run that is shorter than 6 s."""
    fine, coarse = history.fine.all(), history.coarse.all()
    if len(fine) <= _POINTS:
        return np.column_stack((fine[:, :1], history.windows.all()))
    return coarse[-_POINTS:]


def _point_text(point: Floats) -> str:
    second, *figures, count = point
    shown = ("" if math.isnan(ns) else f"{ns:.0f}" for ns in figures)
    return ",".join((f"{second:.2f}", *shown, f"{count:.0f}"))


def _read_points(text: str) -> list[tuple[float, ...]]:
    points: list[tuple[float, ...]] = []
    for word in text.split():
        second, *figures, count = word.split(",")
        p50, p99, most = (_number(float(ns)) if ns else GAP[0] for ns in figures)
        points.append((_number(float(second)), p50, p99, most, _number(float(count))))
    return points


def _read_exact(record: Json) -> tuple[Percentiles, Histogram]:
    percentiles = Percentiles(
        **{name: _number(value) for name, value in record["percentiles"].items()}
    )
    edges, counts = (
        tuple(_count(word) for word in _text(record[key], 200 * 24).split())
        for key in ("edges_ns", "counts")
    )
    if len(edges) != len(counts) + 1:
        raise ValueError(f"its histogram has {len(edges)} edges of {len(counts)} counts")
    return percentiles, Histogram(edges, counts)


def _read_parts(data: Json) -> dict[str, list[float]]:
    found = {}
    for name, _, _ in OF_PARTS:
        if name in data:
            found[name] = [float(_count(ns)) for ns in _text(data[name], PARTS * 20).split()]
            if len(found[name]) not in (1, PARTS):
                raise ValueError(f"{name} is of {len(found[name])} parts; it must be of {PARTS}")
    return found


def _text(value: JsonValue, most: int = _TEXT) -> str:
    if not isinstance(value, str) or len(value) > most or not value.isprintable():
        raise ValueError(f"a text of at most {most:,} printable characters was expected")
    return value


def _scalar(value: JsonValue) -> Any:
    if isinstance(value, str):
        return _text(value)
    return value if value is None or isinstance(value, bool) else _number(value)


def _number(value: JsonValue) -> Any:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ValueError(f"{type(value).__name__} where a number was expected")
    if not 0 <= value <= _MOST_NS:
        raise ValueError(f"{value} is out of range")
    return value


def _count(value: JsonValue) -> int:
    """Return a number that has no fraction, also from text."""
    number = int(value) if isinstance(value, str) and value.isdecimal() else value
    if not isinstance(number, int):
        raise ValueError(f"{type(value).__name__} where a whole number was expected")
    return int(_number(number))
