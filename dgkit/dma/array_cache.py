"""C pointers of NumPy arrays of work requests and completions."""

from __future__ import annotations

from ._ffi import ffi

TYPE_CHECKING = False  # typing's own costs more to import than all of this
if TYPE_CHECKING:
    from typing import Any

    import numpy as np

__all__ = ["ArrayCache"]

_CAPACITY = 8


class ArrayCache:
    """Cache of the C pointers of a queue's recent arrays: a new pointer costs as much as a batch.

    An array is identified by its identity and length. The cache holds it, so its memory stays
    valid.
    """

    __slots__ = ("_entries",)

    def __init__(self) -> None:
        self._entries: dict[int, tuple[Any, Any, int]] = {}

    def work_requests(self, array: np.ndarray[Any, Any]) -> Any:
        """Return a flat array of WR_DTYPE as `dg_wr *`. Raises TypeError for any other."""
        entry = self._entries.get(id(array))
        if entry is not None and entry[0] is array and entry[2] == len(array):
            return entry[1]
        from .dtypes import WR_DTYPE

        return self._add(array, WR_DTYPE, "WR", writable=False)

    def completions(self, array: np.ndarray[Any, Any]) -> Any:
        """Return a flat, writable array of WC_DTYPE as `dg_wc *`. Raises TypeError for others."""
        entry = self._entries.get(id(array))
        if entry is not None and entry[0] is array and entry[2] == len(array):
            return entry[1]
        from .dtypes import WC_DTYPE

        return self._add(array, WC_DTYPE, "WC", writable=True)

    def _add(self, array: Any, dtype: np.dtype[Any], name: str, *, writable: bool) -> Any:
        if getattr(array, "dtype", None) != dtype or array.ndim != 1:
            raise TypeError(f"a flat array of dgkit.{name}_DTYPE is needed, not {array!r:.80}")
        if not array.flags.c_contiguous or (writable and not array.flags.writeable):
            raise TypeError(f"the array of dgkit.{name}_DTYPE must be contiguous and writable")
        raw = ffi.from_buffer(f"dg_{name.lower()}[]", array, require_writable=writable)
        if len(self._entries) >= _CAPACITY:
            self._entries.clear()
        self._entries[id(array)] = (array, raw, len(array))
        return raw
