# SPDX-License-Identifier: Apache-2.0
"""Checks of what a page sends to a panel: messages, traits and the fields of forms.

A page is not trusted: where the kernel serves pages that may not run code (Voila), any visitor
sends these messages.
"""

from __future__ import annotations

import contextlib
import inspect
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache
from typing import Any, SupportsIndex, TypeAlias

from ...units import parse_size

Json = dict[str, Any]  # a JSON object: a message between a panel and its views, or a part of one
JsonValue: TypeAlias = "bool | int | float | str | list[JsonValue] | dict[str, JsonValue] | None"
Buffers = Sequence[memoryview]
Reply = tuple[Json, list[bytes]]  # with buffers
Handler: TypeAlias = Callable[..., Reply | Json | None]  # a method that a view may call

_MAX_DEPTH = 8  # of lists and objects in a message; panels send four at most
_MAX_SHOWN = 60  # characters of a value in an error
_NEVER_SET = frozenset({"_esm", "_css", "_hosted"})
_TYPES: dict[str, type] = {  # by the annotation of a handler's parameter
    "bool": bool, "int": int, "str": str, "Json": dict, "Sequence[str]": list,
}  # fmt: skip


def check_json(value: JsonValue, depth: int = 0) -> None:
    """Raise ValueError for JSON that could not be sent back to a view.

    Numbers are finite, text is valid Unicode, and lists and objects are nested at most 8 deep.
    """
    if depth > _MAX_DEPTH:
        raise ValueError(f"invalid message to the panel: it is nested more than {_MAX_DEPTH} deep")
    if isinstance(value, float) and not math.isfinite(value):
        raise ValueError(f"invalid message to the panel: {value} is not a finite number")
    if isinstance(value, str):
        try:
            value.encode()
        except UnicodeEncodeError:
            text = f"{_shown(value)} is not valid Unicode (a lone surrogate)"
            raise ValueError(f"invalid message to the panel: {text}") from None
    if isinstance(value, dict):
        for key in value:
            check_json(key, depth)
        value = list(value.values())
    if isinstance(value, list):
        for item in value:
            check_json(item, depth + 1)


def check_fields(method: Handler, fields: Json) -> None:
    """Raise ValueError if a field has another type than the handler's parameter of that name."""
    for name, expected in _handler_annotations(method).items():
        value = fields.get(name)
        if name not in fields or expected not in _TYPES:
            continue
        is_number = isinstance(value, int) and not isinstance(value, bool)
        if not (is_number if expected == "int" else isinstance(value, _TYPES[expected])):
            text = f"{name} is {_shown(value)}; it must be {expected}"
            raise ValueError(f"invalid message to the panel: {text}")


def check_traits(state: Json) -> None:
    """Raise ValueError if a page must not set one of these traits, or not to its value.

    The code of a panel runs in each page of its kernel, so no page may replace it.
    """
    check_json(state)
    if forbidden := sorted(_NEVER_SET.intersection(state)):
        raise ValueError(f"a page cannot set {', '.join(forbidden)}: it is the code of the panel")


def reply_id(value: JsonValue) -> str | int | None:
    """Return the id of a request if it can be sent back, else None."""
    if isinstance(value, int) or (isinstance(value, str) and value.isascii()):
        return value
    return None


@cache
def _handler_annotations(method: Handler) -> dict[str, str]:
    return {
        parameter.name: str(parameter.annotation)
        for parameter in inspect.signature(method).parameters.values()
    }


def _shown(value: JsonValue) -> str:
    text = repr(value)
    return text if len(text) <= _MAX_SHOWN else f"{text[:_MAX_SHOWN]}..."


# Fields of forms


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


def to_shape(value: str | int | Iterable[int]) -> int | tuple[int, ...]:
    """Return `"1024, 1024"`, `"1M"`, `4096` or `(64, 64)` as a shape.

    Raises:
        ValueError: A length in the text is not a size.
    """
    if not isinstance(value, str):
        return value if isinstance(value, int) else tuple(value)
    words = value.strip().removeprefix("(").removesuffix(")")
    lengths = tuple(parse_size(word) for word in words.strip(" ,").split(","))
    return lengths if len(lengths) > 1 else lengths[0]


def to_size(value: str | SupportsIndex) -> int:
    """Return `"64K"` or `65536` as a number of bytes, at least 1.

    Raises:
        TypeError: The value is neither text nor an integer.
        ValueError: The text is not a size, or the size is 0 or negative.
    """
    return parse_size(value) if isinstance(value, str) else _checked_integer("the size", value, 1)


def to_offset(value: str | SupportsIndex) -> int:
    """Return `"0x100"` or `256` as a number of bytes, at least 0.

    Raises:
        TypeError: The value is neither text nor an integer.
        ValueError: The text is not a number of bytes, or the offset is negative.
    """
    if isinstance(value, str):
        return parse_size(value, least=0)
    return _checked_integer("the offset", value, 0)


def _checked_integer(name: str, value: SupportsIndex, minimum: int) -> int:
    if isinstance(value, bool) or not hasattr(value, "__index__"):
        raise TypeError(f"{name} is {value!r}; it must be an integer, or text such as '64K'")
    number = int(value)
    if number < minimum:
        raise ValueError(f"{name} is {number}; it must be {minimum} or more")
    return number


def bounded_int(name: str, value: str | int, minimum: int, maximum: int) -> int:
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
