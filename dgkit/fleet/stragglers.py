# SPDX-License-Identifier: Apache-2.0
"""Stragglers of a sweep, and the slowness of each pair relative to the median of all pairs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pandas
    from numpy.typing import NDArray

_SPREAD = 0.03  # minimum deviation assumed, 3 %: a coarse clock can make all medians equal
_FEWEST = 4  # number of pairs needed before one of them can be called an outlier
# Limit of the modified z-score: Iglewicz and Hoaglin, How to Detect and Handle Outliers.
_LIMIT = 3.5
_LEAST = 1.25  # minimum slowness of a straggler relative to the median, even if others are alike

_FIGURES = ("p50_ns", "gb_per_s")


def marks(column: Callable[[str], NDArray[Any]]) -> dict[str, NDArray[Any]]:
    """Return the columns `slow_latency`, `slow_rate` (modified z-scores) and `straggler`.

    Rows with the same provider, op, path and size are compared by the logarithms of their figures.
    The modified z-score uses the median and the median absolute deviation, which stragglers hardly
    shift. `straggler` is true where a score exceeds 3.5 and the figure is at least 1.25 times as
    slow as the median. A row whose floor moved counts in the comparison, but is never marked.
    """
    import numpy as np

    count = len(column("size"))
    scores = {name: np.zeros(count, "f4") for name in ("slow_latency", "slow_rate")}
    straggler = np.zeros(count, bool)
    for rows in _groups([column(name) for name in ("provider", "op", "path", "size")]):
        for figure, name, sign in (("p50_ns", "slow_latency", 1), ("gb_per_s", "slow_rate", -1)):
            logs = sign * np.log(np.maximum(column(figure)[rows], 1e-9))
            excess = logs - np.median(logs)
            score = 0.6745 * excess / max(float(np.median(np.abs(excess))), _SPREAD)
            scores[name][rows] = score.round(2)
            straggler[rows] |= (score > _LIMIT) & (excess > np.log(_LEAST))
    straggler &= ~column("floor_moved")
    return {**scores, "straggler": straggler}


def _groups(keys: Sequence[NDArray[Any]]) -> Iterator[NDArray[Any]]:
    """Yield the row numbers of each group with equal keys that is large enough for an outlier."""
    import numpy as np

    order = np.lexsort(keys)
    starts = np.zeros(len(order), bool)
    starts[:1] = True
    for key in keys:
        ordered = key[order]
        starts[1:] |= ordered[1:] != ordered[:-1]
    bounds = np.append(np.flatnonzero(starts), len(order))
    for index in np.flatnonzero(np.diff(bounds) >= _FEWEST):
        yield order[bounds[index] : bounds[index + 1]]


def slowness(frame: pandas.DataFrame, figure: str) -> pandas.DataFrame:
    """Return a table of slownesses: a row for each pair, a column for each op, path and size.

    A cell is the pair's latency divided by the median of all pairs, or the median rate divided by
    the pair's: above 1 is slower. It is NaN where a pair has no such row.

    Raises:
        ValueError: `figure` is neither "p50_ns" nor "gb_per_s".
    """
    if figure not in _FIGURES:
        raise ValueError(f"figure is {figure!r}; it must be one of {', '.join(_FIGURES)}")
    import numpy as np
    import pandas as pd

    columns = ["op", "requested_path", "size"]
    kinds = frame[columns].drop_duplicates().sort_values(columns)
    numbers = {kind: number for number, kind in enumerate(kinds.itertuples(index=False, name=None))}
    pairs = frame["pair"].cat.categories
    cells = np.full((len(pairs), len(numbers)), np.nan)
    for kind, rows in frame.groupby(columns, observed=True, sort=False).indices.items():
        where = frame["pair"].cat.codes.to_numpy()[rows]
        cells[where, numbers[kind]] = frame[figure].to_numpy()[rows]
    cells = cells / np.nanmedian(cells, axis=0)
    index = pd.MultiIndex.from_frame(kinds)
    return pd.DataFrame(cells if figure == "p50_ns" else 1 / cells, list(pairs), index)
