# SPDX-License-Identifier: Apache-2.0
"""Shapes and dtypes without NumPy, so that plain bytes do not import it."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterable, Mapping, Set

from ..validate import byte_count, index

TYPE_CHECKING = False  # typing's own costs more to import than all of this
if TYPE_CHECKING:
    from typing import Any, SupportsIndex

_SIMPLE = frozenset(("i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "f2", "f4", "f8", "b1", "c8"))


def as_shape(shape: str | SupportsIndex | Iterable[SupportsIndex]) -> tuple[int, ...]:
    """Return a shape as a tuple of ints; a text such as "16M" is one length (K is 1024).

    Raises:
        TypeError: A length is not an integer.
        ValueError: A length is negative, or the text is not a size.
    """
    try:
        result = tuple(index(n) for n in _axis_lengths(shape))
    except TypeError:
        raise TypeError(f"shape is {shape!r}; it must be a whole number or several") from None
    if any(n < 0 for n in result):
        raise ValueError(f"shape is {result}; a length cannot be negative")
    return result


def _axis_lengths(shape: str | SupportsIndex | Iterable[SupportsIndex]) -> list[SupportsIndex]:
    # Every NumPy array has __index__, but it works only for a single number.
    if isinstance(shape, str):
        return [byte_count("shape", shape)]
    with contextlib.suppress(TypeError):
        return [index(shape)]
    # Data, whose bytes are no lengths, and what has no order.
    if isinstance(shape, (bytes, bytearray, memoryview, Mapping, Set)):
        raise TypeError
    return list(shape)  # type: ignore[arg-type]


def item_size(dtype: Any) -> int:
    """Return the bytes of one item. Raises TypeError for Python objects.

    Names like `"u1"` and `"<f4"` are read without NumPy, everything else by NumPy.
    """
    code = dtype[1:] if isinstance(dtype, str) and dtype[:1] in "<>=|" else dtype
    if isinstance(code, str) and code in _SIMPLE:
        return int(code[1])
    import numpy as np

    known = np.dtype(dtype)
    if known.hasobject:
        raise TypeError(f"dtype is {known}; Python objects cannot be moved as bytes")
    return int(known.itemsize)


def total_size(shape: tuple[int, ...], dtype: Any) -> int:
    """Return the bytes of all items. Raises ValueError for 0 bytes or more than 2^63 - 1."""
    size = math.prod(shape) * item_size(dtype)
    if size == 0:
        raise ValueError(f"shape {shape} has 0 bytes; the minimum is 1")
    if size >= 1 << 63:
        raise ValueError(f"shape {shape} of {dtype!r} is {size} bytes; the limit is 2^63 - 1")
    return size
