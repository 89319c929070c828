"""Numbers from the caller: whole, not negative, no larger than 64 bits."""

from __future__ import annotations

import operator

from .errors import BoundsError

TYPE_CHECKING = False  # typing's own costs more to import than all of this
if TYPE_CHECKING:
    from typing import Any

__all__ = ["whole"]

LIMIT = (1 << 64) - 1


def whole(what: str, value: Any, least: int = 0) -> int:
    """`value` as an int. TypeError for fractions, ValueError or BoundsError outside its limits."""
    try:
        number = operator.index(value)
    except TypeError:
        raise TypeError(f"{what} is {value!r}; it must be a whole number") from None
    if number < 0:
        raise BoundsError(f"{what} is {number}; it cannot be negative")
    if number < least:
        raise BoundsError(f"{what} is {number}; it must be {least} or more")
    if number > LIMIT:
        raise BoundsError(f"{what} is {number}; the limit is 2^64 - 1")
    return number
