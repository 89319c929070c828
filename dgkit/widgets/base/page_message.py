"""Checks of what a page sends to a panel, before a handler or a trait receives it.

A page is not trusted: where the kernel serves pages that may not run code (Voila), any visitor
sends these messages.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable
from functools import cache
from typing import Any

Json = dict[str, Any]  # a JSON object: a message between a panel and its views, or a part of one

_MAX_DEPTH = 8  # of lists and objects in a message; panels send four at most
_MAX_SHOWN = 60  # characters of a value in an error
_NEVER_SET = frozenset({"_esm", "_css", "_hosted"})
_TYPES: dict[str, type] = {  # by the annotation of a handler's parameter
    "bool": bool, "int": int, "str": str, "Json": dict, "Sequence[str]": list,
}  # fmt: skip


def check_json(value: Any, depth: int = 0) -> None:
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


def check_fields(method: Callable[..., Any], fields: Json) -> None:
    """Raise ValueError if a field has another type than the handler's parameter of that name."""
    for name, expected in _annotations(method).items():
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


def reply_id(value: Any) -> str | int | None:
    """Return the id of a request if it can be sent back, else None."""
    is_id = isinstance(value, int) or (isinstance(value, str) and value.isascii())
    return value if is_id else None


@cache
def _annotations(method: Callable[..., Any]) -> dict[str, str]:
    return {one.name: str(one.annotation) for one in inspect.signature(method).parameters.values()}


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= _MAX_SHOWN else f"{text[:_MAX_SHOWN]}..."
