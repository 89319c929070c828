"""Rows of a sweep: their columns in memory and in files, and the marking of stragglers."""

from __future__ import annotations

import html
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from ..html_cards import Html
from ..units import size_text
from .pair import natural_key

if TYPE_CHECKING:
    import numpy
    import pandas
    import pyarrow
    from numpy.typing import NDArray

KEY = ("pair", "op", "requested_path", "size")  # identifies a row

_TEXTS = ("pair", "host", "op", "requested_path", "path", "provider", "label", "region", "dgkit")
_WHOLE = ("size", "samples", "p50_ns", "p99_ns", "max_ns", "failed")
_REAL = ("floor_ns", "gb_per_s", "floor_gb_per_s", "started", "took_s")
_FLAGS = ("floor_moved",)
_IN_MEMORY = {"samples": "i4"}  # at most 1,000,000
_IN_MEMORY |= dict.fromkeys(("floor_ns", "gb_per_s", "floor_gb_per_s", "took_s"), "f4")  # 7 digits
_GROWTH = 1.25

_SPREAD = 0.03  # minimum deviation assumed, 3 %: a coarse clock can make all medians equal
_FEWEST = 4  # number of pairs needed before one of them can be called an outlier
# Limit of the modified z-score: Iglewicz and Hoaglin, How to Detect and Handle Outliers.
_LIMIT = 3.5
_LEAST = 1.25  # minimum slowness of a straggler relative to the median, even if others are alike


@lru_cache(maxsize=1)
def schema() -> pyarrow.Schema:
    """Return the columns of a file. Texts are dictionary-encoded."""
    import pyarrow as pa

    text = pa.dictionary(pa.int32(), pa.string())
    fields = [(name, text) for name in _TEXTS]
    fields += [(name, pa.int64()) for name in _WHOLE]
    fields += [(name, pa.float64()) for name in _REAL]
    return pa.schema(fields + [(name, pa.bool_()) for name in _FLAGS])


def as_table(rows: Sequence[Mapping[str, Any]]) -> pyarrow.Table:
    """Return rows as a table with the columns of schema()."""
    import pyarrow as pa

    return pa.Table.from_pylist(list(rows), schema=schema())


class RowTable:
    """Growable rows: one array for each column; a million rows take 100 MB.

    Texts are stored as small integer codes of categories. The DataFrame of frame() contains views
    of the arrays; the next sort replaces the arrays and never changes them in place.
    """

    def __init__(self) -> None:
        import numpy as np

        types = dict.fromkeys(_TEXTS, "i1") | dict.fromkeys(_WHOLE, "i8")
        types |= dict.fromkeys(_REAL, "f8") | dict.fromkeys(_FLAGS, "?") | _IN_MEMORY
        self._columns = {name: np.empty(0, types[name]) for name in schema().names}
        self._codes: dict[str, dict[str, int]] = {name: {} for name in _TEXTS}
        self._count = 0
        self._frame: pandas.DataFrame | None = None  # of all rows; None after append()

    def __len__(self) -> int:
        return self._count

    def append(self, table: pyarrow.Table) -> None:
        """Add the rows of a table with the columns of schema().

        Raises:
            ValueError: A figure is missing in a row.
        """
        count = table.num_rows
        columns = {name: self._values(name, table.column(name)) for name in self._columns}
        for name, values in columns.items():
            self._reserve(name, self._count + count)
            self._columns[name][self._count : self._count + count] = values
        self._count += count
        self._frame = None

    def _values(self, name: str, column: pyarrow.ChunkedArray) -> NDArray[Any]:
        import numpy as np

        if name in self._codes:
            parts = [self._encoded(name, chunk) for chunk in column.chunks]
            return np.concatenate(parts) if parts else np.empty(0, "i4")
        if column.null_count and name not in _REAL:
            raise ValueError(f"a row has no {name}")
        values: NDArray[Any] = column.to_numpy()
        return values

    def _encoded(self, name: str, chunk: pyarrow.DictionaryArray) -> NDArray[numpy.int32]:
        """Return this table's codes of texts; -1 for a missing text, as in pandas."""
        import numpy as np

        codes = self._codes[name]
        words = chunk.dictionary.to_pylist()
        ours = [codes.setdefault(word, len(codes)) for word in words]
        indices = chunk.indices.fill_null(-1) if chunk.null_count else chunk.indices
        found: NDArray[numpy.int32] = np.array([*ours, -1], "i4")[indices.to_numpy()]
        return found

    def _reserve(self, name: str, count: int) -> None:
        """Grow a column to `count` rows, and widen its type if its categories need it."""
        import numpy as np

        old = self._columns[name]
        dtype = _code_type(len(self._codes[name])) if name in self._codes else old.dtype
        if count <= len(old) and dtype == old.dtype:
            return
        size = len(old) if count <= len(old) else max(count, 1024, int(_GROWTH * len(old)))
        self._columns[name] = np.empty(size, dtype)
        self._columns[name][: self._count] = old[: self._count]

    def frame(self) -> pandas.DataFrame:
        """Return all rows, sorted by KEY, with the columns of _marks().

        The values are read-only; columns can be added.
        """
        import pandas as pd

        if self._frame is None:
            self._sort()
            columns = {name: self._column(name) for name in self._columns}
            columns |= _marks(self._view)
            self._frame = pd.DataFrame(columns, copy=False)
        return self._frame.copy(deep=False)

    def _view(self, name: str) -> NDArray[Any]:
        view = self._columns[name][: self._count]
        view.flags.writeable = False
        return view

    def _column(self, name: str) -> Any:
        import pandas as pd

        if name not in self._codes:
            return self._view(name)
        categories = pd.Index(list(self._codes[name]), dtype=str)
        dtype = pd.CategoricalDtype(categories)
        return pd.Categorical.from_codes(self._view(name), dtype=dtype, validate=False)

    def _sort(self) -> None:
        """Sort the categories of texts, then the rows by KEY, one column at a time."""
        import numpy as np

        for name in _TEXTS:
            self._sort_categories(name)
        order = np.lexsort([self._view(name) for name in reversed(KEY)])
        for name in self._columns:
            self._columns[name] = self._view(name)[order]

    def _sort_categories(self, name: str) -> None:
        import numpy as np

        words = sorted(self._codes[name])
        if words == list(self._codes[name]):
            return
        ranks = {word: rank for rank, word in enumerate(words)}
        new = np.array([*(ranks[word] for word in self._codes[name]), -1], _code_type(len(words)))
        self._columns[name] = new[self._view(name)]
        self._codes[name] = ranks


def _code_type(count: int) -> str:
    """Return the type that pandas uses for codes of `count` categories, which avoids a copy."""
    return "i1" if count < 127 else "i2" if count < 32767 else "i4"


def _marks(column: Callable[[str], NDArray[Any]]) -> dict[str, NDArray[Any]]:
    """Return the columns `slow_latency`, `slow_rate` (modified z-scores) and `straggler`.

    Rows with the same provider, op, path and size are compared by the logarithms of their figures.
    The modified z-score uses the median and the median absolute deviation, which stragglers hardly
    shift. `straggler` is true where a score exceeds 3.5 and the figure is at least 1.25 times as
    slow as the median. A row whose floor moved counts in the comparison, but is never marked.
    """
    import numpy as np

    count = len(column("size"))
    marks = {name: np.zeros(count, "f4") for name in ("slow_latency", "slow_rate")}
    straggler = np.zeros(count, bool)
    for rows in _groups([column(name) for name in ("provider", "op", "path", "size")]):
        for figure, name, sign in (("p50_ns", "slow_latency", 1), ("gb_per_s", "slow_rate", -1)):
            logs = sign * np.log(np.maximum(column(figure)[rows], 1e-9))
            excess = logs - np.median(logs)
            score = 0.6745 * excess / max(float(np.median(np.abs(excess))), _SPREAD)
            marks[name][rows] = score.round(2)
            straggler[rows] |= (score > _LIMIT) & (excess > np.log(_LEAST))
    straggler &= ~column("floor_moved")
    return {**marks, "straggler": straggler}


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


_FIGURES = ("p50_ns", "gb_per_s")
_FULL = 2.0  # slowness from which a cell has the full colour
_SHOWN = 200  # maximum number of pairs in the table
_MOST = 0.6  # opacity of the full colour, so that text stays readable on light and dark pages


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


def heat_map(frame: pandas.DataFrame, figure: str) -> Html:
    """Return slowness() as an HTML table whose cells are coloured from 1.0 (none) to 2.0 (full)."""
    cells = slowness(frame, figure)
    what = "latency" if figure == "p50_ns" else "time of a byte"
    what = f"{what}, times the median of all pairs"
    if len(cells) > _SHOWN:
        what = f"{what}; the slowest {_SHOWN} of {len(cells):,} pairs"
        cells = cells.loc[cells.max(axis=1).sort_values(ascending=False).index[:_SHOWN]]
    heads = [f"{op}, {path}, {size_text(size)}" for op, path, size in cells.columns]
    cells = cells.loc[sorted(cells.index, key=lambda pair: natural_key(str(pair)))]
    lines = [
        _row(str(pair), heads, values)
        for pair, values in zip(cells.index, cells.to_numpy().tolist(), strict=True)
    ]
    style = "padding:1px 6px;font-weight:normal;text-align:left;font-size:11px"
    head = "".join(f'<th scope="col" style="{style}">{html.escape(text)}</th>' for text in heads)
    return Html(
        '<div style="overflow:auto;max-height:480px"><table style="border-collapse:collapse;'
        f'margin:8px 0px 0px 0px"><caption style="text-align:left;font-size:12px">{what}'
        f'</caption><thead><tr><th scope="col" style="{style}">pair</th>'
        f"{head}</tr></thead><tbody>{''.join(lines)}</tbody></table></div>"
    )


def _row(pair: str, heads: list[str], values: list[float]) -> str:
    cells = "".join(
        _cell(f"{pair}, {head}", value) for head, value in zip(heads, values, strict=True)
    )
    style = "padding:1px 6px;font-weight:normal;text-align:left;font-size:11px;white-space:nowrap"
    return f'<tr><th scope="row" style="{style}">{html.escape(pair)}</th>{cells}</tr>'


def _cell(title: str, value: float) -> str:
    if value != value:
        return "<td></td>"
    share = min(max((value - 1) / (_FULL - 1), 0.0), 1.0)
    return (
        f'<td title="{html.escape(title)}" style="padding:1px 6px;text-align:right;font-size:11px;'
        f'background-color:rgba(216,67,21,{_MOST * share:.2f})">{value:.2f}</td>'
    )
