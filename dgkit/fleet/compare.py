# SPDX-License-Identifier: Apache-2.0
"""Comparison of two sweeps: rows that became slower."""

from __future__ import annotations

from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .part_files import read_folder
from .row_table import KEY
from .sweep import Sweep

if TYPE_CHECKING:
    import pandas

_FIGURES = ["p50_ns", "floor_ns", "gb_per_s", "floor_gb_per_s", "floor_moved"]


def diff(old: Any, new: Any, *, threshold: float = 1.25) -> pandas.DataFrame:
    """Compare two sweeps row by row; the largest slowdown comes first.

    Args:
        old: The earlier sweep: a Sweep, its table, or its folder.
        new: The later sweep, in the same forms.
        threshold: Ratio of latencies or rates from which a row counts as `slower`.

    Returns:
        One row for each pair, op, path and size: the figures of both sweeps, `latency_ratio` and
        `rate_ratio` (above 1 where the new sweep is slower), `slower`, and `only`, which is "old"
        or "new" for a row that is missing in the other sweep. A row is `slower` by what its ratio
        exceeds that of its floor; one whose floor moved during either sweep never is.

    Raises:
        TypeError, ValueError: `old` or `new` is not a sweep.
    """
    if not threshold > 1:
        raise ValueError(f"threshold is {threshold!r}; it must be more than 1")
    columns = [*KEY, *_FIGURES]
    before, after = (
        _result_frame(each)[columns].astype(dict.fromkeys(KEY[:3], str)) for each in (old, new)
    )
    both = before.merge(
        after, on=list(KEY), how="outer", suffixes=("_old", "_new"), indicator="only"
    )
    both["only"] = (
        both["only"].map({"left_only": "old", "right_only": "new", "both": ""}).astype(str)
    )
    both["latency_ratio"] = both["p50_ns_new"] / both["p50_ns_old"]
    both["rate_ratio"] = both["gb_per_s_old"] / both["gb_per_s_new"]
    worst = both[["latency_ratio", "rate_ratio"]].max(axis=1)
    latency_floor = (both["floor_ns_new"] / both["floor_ns_old"]).fillna(1).clip(lower=1)
    rate_floor = (both["floor_gb_per_s_old"] / both["floor_gb_per_s_new"]).fillna(1).clip(lower=1)
    slower = (both["latency_ratio"] / latency_floor >= threshold) | (
        both["rate_ratio"] / rate_floor >= threshold
    )
    moved = (both["floor_moved_old"] == True) | (both["floor_moved_new"] == True)  # noqa: E712
    both["floor_moved"] = moved
    both["slower"] = slower & ~moved
    order = worst.sort_values(ascending=False, na_position="last").index
    kept = [*KEY, "p50_ns_old", "p50_ns_new", "latency_ratio", "gb_per_s_old", "gb_per_s_new"]
    kept += ["rate_ratio", "slower", "floor_moved", "only"]
    return both.loc[order, kept].reset_index(drop=True)


def _result_frame(each: Any) -> pandas.DataFrame:
    import pandas as pd

    if isinstance(each, Sweep):
        return each.table
    if isinstance(each, pd.DataFrame):
        if missing := [name for name in (*KEY, *_FIGURES) if name not in each.columns]:
            raise ValueError(f"the table has no column {missing[0]!r}: it is not that of a sweep")
        return each
    if isinstance(each, (str, PathLike)):
        return read_folder(Path(each)).frame()
    raise TypeError(f"{each!r} is not a Sweep, its table or its folder")
