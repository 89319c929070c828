# SPDX-License-Identifier: Apache-2.0
"""Checks of a session's arguments, before anything is sent to the other side."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from ..types import Op
from ..validate import whole

if TYPE_CHECKING:
    from ..dma import FaultRule

LONGEST_S = 3600.0
NAME = 128  # characters of a region's name, which panels show and messages carry
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\ud800-\udfff]")


def within(what: str, value: Any, least: int, most: int) -> int:
    """Return a whole number from `least` to `most`. Raises TypeError or ValueError if invalid."""
    try:
        number = whole(what, value)
    except ValueError:
        number = least - 1
    if not least <= number <= most:
        raise ValueError(f"{what} is {value}; it must be {least} to {most}")
    return number


def seconds(
    what: str, value: Any, *, zero: bool = False, least: float = 0.0, most: float = LONGEST_S
) -> float:
    """Return a time in seconds, more than 0 and at most `most`.

    Raises TypeError or ValueError if invalid.

    Args:
        what: Name of the argument, for the error.
        value: Value to check.
        zero: Whether 0 is valid as well.
        least: Smallest valid value, if not 0.
        most: Largest valid value.
    """
    if isinstance(value, str | bytes | bytearray | bool) or not hasattr(value, "__float__"):
        raise TypeError(f"{what} is {value!r}; it must be a number of seconds")
    number = float(value)
    if not (number >= least if zero or least else number > 0) or number > most:
        start = f"{least:g} or more" if zero or least else "more than 0"
        limit = "" if most == float("inf") else f", at most {most:.0f}"
        raise ValueError(f"{what} is {value}; it must be {start}{limit} seconds")
    return number


def text(what: str, value: Any) -> None:
    """Raise TypeError unless `value` is text or None."""
    if value is not None and not isinstance(value, str):
        raise TypeError(f"{what} is {value!r}; it must be text")


def name(value: Any, *, required: Any = False) -> None:
    """Check the name of a region, which replace=True requires.

    Raises:
        TypeError, ValueError: It is invalid, or missing; or `required` is not a bool.
    """
    if not isinstance(required, bool):
        raise TypeError(f"replace is {required!r}; it must be True or False")
    text("name", value)
    if required and not value:
        raise ValueError("replace=True replaces the region of a name: pass name=")
    if value is not None and len(value) > NAME:
        raise ValueError(f"name has {len(value)} characters; it may have at most {NAME}")
    if value is not None and _CONTROL.search(value):
        rule = "it must be text without control characters and lone surrogates"
        raise ValueError(f"name is {value!r}; {rule}")


def function(what: str, value: Any) -> None:
    """Raise TypeError unless `value` is a function or None."""
    if value is not None and not callable(value):
        raise TypeError(f"{what} is {value!r}; it must be a function, or None")


def op(value: Any) -> Op:
    """Return the operation named "read" or "write". Raises ValueError if invalid."""
    if value not in ("read", "write"):
        raise ValueError(f"op is {value!r}; it must be 'read' or 'write'")
    return Op[value.upper()]


def fault_rules(rules: Any) -> list[FaultRule]:
    """Return the rules as a list. Raises TypeError unless each is a FaultRule."""
    if not rules and isinstance(rules, list | tuple):
        return []
    from ..dma import FaultRule

    if not isinstance(rules, Iterable):
        raise TypeError(f"rules is {rules!r}; it must be a list of FaultRule")
    found = list(rules)
    for rule in found:
        if not isinstance(rule, FaultRule):
            raise TypeError(f"rules contains {rule!r}; each must be a FaultRule")
    return found
