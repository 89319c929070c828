"""Validation of form fields: texts as numbers, and the field that an error belongs to."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

from ...units import parse_size


@contextlib.contextmanager
def for_field(field: str) -> Iterator[None]:
    """Attribute an error raised in the block to a field of the form, which a view then marks.

    An error that is already attributed to a field keeps it.
    """
    try:
        yield
    except Exception as error:
        if not hasattr(error, "field"):
            error.field = field  # type: ignore[attr-defined]
        raise


def to_shape(value: Any) -> int | tuple[int, ...]:
    """Return `"1024, 1024"`, `"1M"`, `4096` or `(64, 64)` as a shape.

    Raises:
        ValueError: A length in the text is not a size.
    """
    if not isinstance(value, str):
        return value if isinstance(value, int) else tuple(value)
    words = value.strip().removeprefix("(").removesuffix(")")
    lengths = tuple(parse_size(word) for word in words.strip(" ,").split(","))
    return lengths if len(lengths) > 1 else lengths[0]


def to_size(value: Any) -> int:
    """Return `"64K"` or `65536` as a number of bytes, at least 1.

    Raises:
        TypeError: The value is neither text nor an integer.
        ValueError: The text is not a size, or the size is 0 or negative.
    """
    return parse_size(value) if isinstance(value, str) else _integer("the size", value, 1)


def to_offset(value: Any) -> int:
    """Return `"0x100"` or `256` as a number of bytes, at least 0.

    Raises:
        TypeError: The value is neither text nor an integer.
        ValueError: The text is not a number of bytes, or the offset is negative.
    """
    if isinstance(value, str):
        return parse_size(value, least=0)
    return _integer("the offset", value, 0)


def _integer(name: str, value: Any, minimum: int) -> int:
    if isinstance(value, bool) or not hasattr(value, "__index__"):
        raise TypeError(f"{name} is {value!r}; it must be an integer, or text such as '64K'")
    number = int(value)
    if number < minimum:
        raise ValueError(f"{name} is {number}; it must be {minimum} or more")
    return number


def bounded_int(name: str, value: Any, minimum: int, maximum: int) -> int:
    """Return an integer from `minimum` to `maximum`, given as a number or as text.

    Args:
        name: Name of the value in the error text.
        value: The number, or text with optional thousands separators.
        minimum: Smallest valid number.
        maximum: Largest valid number.

    Raises:
        ValueError: The value is not an integer in that range.
    """
    text = str(value).strip().replace(",", "").replace("_", "")
    if not text.isascii() or not text.isdecimal() or not minimum <= int(text) <= maximum:
        raise ValueError(
            f"{name} is {value!r}; it must be an integer from {minimum} to {maximum:,}"
        )
    return int(text)
