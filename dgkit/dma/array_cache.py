"""NumPy arrays of records as C pointers."""

from __future__ import annotations

from ._ffi import ffi

TYPE_CHECKING = False  # typing's own costs more to import than all of this
if TYPE_CHECKING:
    from typing import Any

    import numpy as np

__all__ = ["Arrays"]

_REMEMBERED = 8


class Arrays:
    """The last few arrays of a queue with their pointers: asking anew costs as much as a batch.

    An array is known by its identity and length, and kept, so that its memory stays where it is.
    """

    __slots__ = ("_known",)

    def __init__(self) -> None:
        self._known: dict[int, tuple[Any, Any, int]] = {}

    def records(self, array: np.ndarray[Any, Any]) -> Any:
        """A flat array of WR_DTYPE as `dg_wr *`. TypeError for any other."""
        known = self._known.get(id(array))
        if known is not None and known[0] is array and known[2] == len(array):
            return known[1]
        from .dtypes import WR_DTYPE

        return self._learn(array, WR_DTYPE, "WR", writable=False)

    def completions(self, array: np.ndarray[Any, Any]) -> Any:
        """A flat, writable array of WC_DTYPE as `dg_wc *`. TypeError for any other."""
        known = self._known.get(id(array))
        if known is not None and known[0] is array and known[2] == len(array):
            return known[1]
        from .dtypes import WC_DTYPE

        return self._learn(array, WC_DTYPE, "WC", writable=True)

    def _learn(self, array: Any, dtype: np.dtype[Any], name: str, *, writable: bool) -> Any:
        if getattr(array, "dtype", None) != dtype or array.ndim != 1:
            raise TypeError(f"a flat array of dgkit.{name}_DTYPE is needed, not {array!r:.80}")
        if not array.flags.c_contiguous or (writable and not array.flags.writeable):
            raise TypeError(f"the array of dgkit.{name}_DTYPE must be contiguous and writable")
        raw = ffi.from_buffer(f"dg_{name.lower()}[]", array, require_writable=writable)
        if len(self._known) >= _REMEMBERED:
            self._known.clear()
        self._known[id(array)] = (array, raw, len(array))
        return raw
