# SPDX-License-Identifier: Apache-2.0
"""Rows of a sweep: their columns in memory and in files."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from .stragglers import marks

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
        """Return all rows, sorted by KEY, with the columns of stragglers.marks().

        The values are read-only; columns can be added.
        """
        import pandas as pd

        if self._frame is None:
            self._sort()
            columns = {name: self._column(name) for name in self._columns}
            columns |= marks(self._view)
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
