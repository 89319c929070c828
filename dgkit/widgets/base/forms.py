"""What a person filled in: which field an error is about, and texts as numbers."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

from ...units import parse_size

__all__ = ["bounded_int", "for_field", "to_offset", "to_shape", "to_size"]


@contextlib.contextmanager
def for_field(field: str) -> Iterator[None]:
    """An error from within is about this field of the form: a view marks it."""
    try:
        yield
    except Exception as error:
        if not hasattr(error, "field"):
            error.field = field  # type: ignore[attr-defined]
        raise


def to_shape(value: Any) -> int | tuple[int, ...]:
    """`"1024, 1024"`, `"1M"`, `4096`, `(64, 64)` as a shape. ValueError: a length is no size."""
    if not isinstance(value, str):
        return value if isinstance(value, int) else tuple(value)
    words = value.strip().removeprefix("(").removesuffix(")")
    lengths = tuple(parse_size(word) for word in words.strip(" ,").split(","))
    return lengths if len(lengths) > 1 else lengths[0]


def to_size(value: Any) -> int:
    """`"64K"` or 65536 in bytes, one or more. TypeError, ValueError."""
    return parse_size(value) if isinstance(value, str) else _whole("the size", value, 1)


def to_offset(value: Any) -> int:
    """`"0x100"` or 256 in bytes, zero or more. TypeError, ValueError."""
    return parse_size(value, least=0) if isinstance(value, str) else _whole("the offset", value, 0)


def _whole(what: str, value: Any, least: int) -> int:
    if isinstance(value, bool) or not hasattr(value, "__index__"):
        raise TypeError(f"{what} is {value!r}; it must be a whole number, or text as '64K'")
    number = int(value)
    if number < least:
        raise ValueError(f"{what} is {number}; it must be {least} or more")
    return number


def bounded_int(what: str, value: Any, least: int, most: int) -> int:
    """A whole number from `least` to `most`, as a number or as text. ValueError: it is none."""
    text = str(value).strip().replace(",", "").replace("_", "")
    if not text.isascii() or not text.isdecimal() or not least <= int(text) <= most:
        raise ValueError(f"{what} is {value!r}; it must be a whole number, {least} to {most:,}")
    return int(text)
