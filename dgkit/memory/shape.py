"""Shapes and dtypes without NumPy, so that bytes alone do not cost its import."""

from __future__ import annotations

import contextlib
import math
import operator
from collections.abc import Iterable

TYPE_CHECKING = False  # typing's own costs more to import than all of this
if TYPE_CHECKING:
    from typing import Any, SupportsIndex

__all__ = ["as_shape", "total_size"]

_SIMPLE = frozenset(
    ("i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "f2", "f4", "f8", "b1", "c8")  # and a "<"
)


def as_shape(shape: SupportsIndex | Iterable[SupportsIndex]) -> tuple[int, ...]:
    """A shape as a tuple of ints. TypeError for fractions, ValueError for negative lengths."""
    try:
        result = tuple(operator.index(n) for n in _lengths(shape))
    except TypeError:
        raise TypeError(f"shape is {shape!r}; it must be a whole number or several") from None
    if any(n < 0 for n in result):
        raise ValueError(f"shape is {result}; a length cannot be negative")
    return result


def _lengths(shape: SupportsIndex | Iterable[SupportsIndex]) -> list[SupportsIndex]:
    # A NumPy array has __index__ whatever its shape; it works for a single number only.
    with contextlib.suppress(TypeError):
        return [operator.index(shape)]  # type: ignore[arg-type]
    return list(shape)  # type: ignore[arg-type]


def item_size(dtype: Any) -> int:
    """Bytes of one item: `"u1"`, `"<f4"` are read here, all else by NumPy. TypeError: objects."""
    code = dtype[1:] if isinstance(dtype, str) and dtype[:1] in "<>=|" else dtype
    if isinstance(code, str) and code in _SIMPLE:
        return int(code[1])
    import numpy as np

    known = np.dtype(dtype)
    if known.hasobject:
        raise TypeError(f"dtype is {known}; Python objects have no bytes that could be moved")
    return int(known.itemsize)


def total_size(shape: tuple[int, ...], dtype: Any) -> int:
    """Bytes of all items. ValueError for none: there is nothing to move."""
    size = math.prod(shape) * item_size(dtype)
    if size == 0:
        raise ValueError(f"shape {shape} has no bytes; a memory needs at least one")
    if size >= 1 << 63:
        raise ValueError(f"shape {shape} of {dtype!r} is {size} bytes; the limit is 2^63 - 1")
    return size
