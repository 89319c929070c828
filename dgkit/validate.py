# SPDX-License-Identifier: Apache-2.0
"""Validation of numeric arguments."""

from __future__ import annotations

import operator

from .errors import BoundsError

TYPE_CHECKING = False  # importing typing costs more than this whole module
if TYPE_CHECKING:
    from typing import Any

LIMIT = (1 << 64) - 1


def index(value: Any) -> int:
    """Return `value` as an int.

    Raises:
        TypeError: Not an integer, or True or False, which are none where a size or count is meant.
    """
    if isinstance(value, bool):
        raise TypeError(f"{value} is no number")
    return operator.index(value)


def whole(what: str, value: Any, least: int = 0) -> int:
    """Return `value` as an int from `least` to 2^64 - 1.

    Args:
        what: The argument's name, for the message.
        value: The argument.
        least: The smallest value to accept.

    Raises:
        TypeError: Not an integer.
        BoundsError: Out of range.
    """
    try:
        number = index(value)
    except TypeError:
        raise TypeError(f"{what} is {value!r}; it must be a whole number") from None
    if number < 0 <= least:
        raise BoundsError(f"{what} is {number}; it cannot be negative")
    if number < least:
        raise BoundsError(f"{what} is {number}; it must be {least} or more")
    if number > LIMIT:
        raise BoundsError(f"{what} is {number}; the limit is 2^64 - 1")
    return number


def byte_count(what: str, value: Any, least: int = 0) -> int:
    """Return a size or an offset, given as whole() takes it or as text such as `"64K"`.

    Raises:
        TypeError, BoundsError: As whole().
        ValueError: The text is not a size, or less than `least`.
    """
    if not isinstance(value, str):
        return whole(what, value, least)
    from .units import parse_size  # imported late: connect() must be quick

    try:
        return parse_size(value, least=least)
    except ValueError as error:
        raise ValueError(f"{what}: {error}") from None


def real(what: str, value: Any, least: float, most: float) -> float:
    """Return `value` as a float from `least` to `most`.

    Args:
        what: The argument's name, for the message.
        value: The argument.
        least: The smallest value to accept.
        most: The largest value to accept.

    Raises:
        TypeError: Not a number.
        ValueError: Out of range, or nan.
    """
    try:
        if isinstance(value, (str, bytes, bool)):
            raise TypeError
        number = float(value)
    except TypeError:
        raise TypeError(f"{what} is {value!r}; it must be a number") from None
    if not least <= number <= most:
        raise ValueError(f"{what} is {value!r}; it must be {least:,} to {most:,}")
    return number
