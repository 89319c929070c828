"""What a caller gives a session is checked here, before anything goes to the other side."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from ..types import Op, Path
from ..validate import whole

if TYPE_CHECKING:
    from ..dma import FaultRule
    from .session import Session

__all__ = ["fault_rules", "function", "name", "op", "path", "seconds", "stranger", "text", "within"]

LONGEST_S = 3600.0
NAME = 128  # characters of a region's name: a panel shows them, and a message carries them


def within(what: str, value: Any, least: int, most: int) -> int:
    """A whole number from `least` to `most`. TypeError, ValueError: it is none."""
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
    """A time in seconds, from `least` on; `zero`: 0, too. TypeError, ValueError: it is none."""
    if isinstance(value, str | bytes | bytearray) or not hasattr(value, "__float__"):
        raise TypeError(f"{what} is {value!r}; it must be a number of seconds")
    number = float(value)
    if not (number >= least if zero or least else number > 0) or number > most:
        start = f"{least:g} or more" if zero or least else "more than 0"
        limit = "" if most == float("inf") else f", at most {most:.0f}"
        raise ValueError(f"{what} is {value}; it must be {start}{limit} seconds")
    return number


def text(what: str, value: Any) -> None:
    """TypeError: neither text nor None."""
    if value is not None and not isinstance(value, str):
        raise TypeError(f"{what} is {value!r}; it must be text")


def name(value: Any) -> None:
    """Of a region. TypeError: neither text nor None. ValueError: it is too long."""
    text("name", value)
    if value is not None and len(value) > NAME:
        raise ValueError(f"name has {len(value)} characters; it may have {NAME}")


def function(what: str, value: Any) -> None:
    """TypeError: neither a function nor None."""
    if value is not None and not callable(value):
        raise TypeError(f"{what} is {value!r}; it must be a function, or None")


def op(value: Any) -> Op:
    """ValueError: neither "read" nor "write"."""
    if value not in ("read", "write"):
        raise ValueError(f"op is {value!r}; it must be 'read' or 'write'")
    return Op[value.upper()]


def path(value: Any) -> Path:
    """ValueError: it is no path."""
    if value not in ("auto", "inline", "worker"):
        raise ValueError(f"path is {value!r}; it must be 'auto', 'inline' or 'worker'")
    return Path[value.upper()]


def fault_rules(rules: Any) -> list[FaultRule]:
    """TypeError: not all of them are FaultRule."""
    if not rules and isinstance(rules, list | tuple):
        return []
    from ..dma import FaultRule

    if not isinstance(rules, Iterable):
        raise TypeError(f"rules is {rules!r}; it must be a list of FaultRule")
    found = list(rules)
    for rule in found:
        if not isinstance(rule, FaultRule):
            raise TypeError(f"rules has {rule!r} in it; each must be a FaultRule")
    return found


def stranger(session: Session, value: Any) -> Exception:
    """The error for what was given as a region and is none of this session's."""
    from .region import SessionRegion

    if isinstance(value, SessionRegion):
        return ValueError(
            f"region {value.name!r} is of another session; {session!r} can use only those that its "
            "own empty() and register() made"
        )
    return TypeError(
        f"region is a {type(value).__name__}; it must be a SessionRegion: session.empty() makes "
        "one, session.register(obj) makes one of memory that is there already"
    )
