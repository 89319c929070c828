"""C pointers of NumPy arrays of work requests and completions."""

from __future__ import annotations

from ._ffi import ffi

TYPE_CHECKING = False  # typing's own costs more to import than all of this
if TYPE_CHECKING:
    from typing import Any

    from ._ffi import native

__all__ = ["completions", "work_requests"]


def work_requests(array: Any) -> native.Array:
    """Return a flat array of WR_DTYPE as `dg_wr[]`. Raises TypeError for any other."""
    from .dtypes import WR_DTYPE

    return _pointer(array, WR_DTYPE, "WR", writable=False)


def completions(array: Any) -> native.Array:
    """Return a flat, writable array of WC_DTYPE as `dg_wc[]`. Raises TypeError for others."""
    from .dtypes import WC_DTYPE

    return _pointer(array, WC_DTYPE, "WC", writable=True)


def _pointer(array: Any, dtype: Any, name: str, *, writable: bool) -> native.Array:
    if getattr(array, "dtype", None) != dtype or array.ndim != 1:
        raise TypeError(f"a flat array of dgkit.{name}_DTYPE is needed, not {array!r:.80}")
    if not array.flags.c_contiguous or (writable and not array.flags.writeable):
        raise TypeError(f"the array of dgkit.{name}_DTYPE must be contiguous and writable")
    return ffi.from_buffer(f"dg_{name.lower()}[]", array, require_writable=writable)
