"""Names of the runs and sweeps that a plot keeps for comparison."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar

BEFORE = "before"  # the name, if none is given
_PRESENT = ("run", "sweep", "after")  # names of what is being measured
_MOST = 40  # letters: a legend has room for them

T = TypeVar("T")


def check_name(name: object) -> str:
    """Return the name of a run or sweep to keep.

    Raises:
        TypeError: It is no text.
        ValueError: It is empty, too long, has control characters, or is that of the present run.
    """
    if not isinstance(name, str):
        raise TypeError(f"name is {name!r}; it must be text")
    if not (name.isprintable() and name.strip() and len(name) <= _MOST):
        raise ValueError(f"name is {name!r}; it must be 1 to {_MOST} printable characters")
    if name in _PRESENT:
        raise ValueError(f"name is {name!r}, which is the name of what is being measured")
    return name


def check_baseline(named: dict[str, T], baseline: str | None) -> str:
    """Return the name of what the others are compared with: the first if None.

    Raises:
        ValueError: There is nothing to compare, or nothing of that name.
    """
    if len(named) < 2:
        raise ValueError("there is only one to compare: keep it under a name, and measure again")
    if baseline is None:
        return next(iter(named))
    if baseline not in named:
        raise ValueError(f"baseline is {baseline!r}; there are: {', '.join(named)}")
    return baseline


def check_kept(kept: Mapping[str, T], name: str) -> None:
    """Raise ValueError if nothing was kept under that name."""
    if name not in kept:
        raise ValueError(f"nothing was kept as {name!r}; kept: {', '.join(kept) or 'nothing'}")


def current_name(kept: dict[str, T], otherwise: str) -> str:
    """Return the name of what is being measured: `after`, if only one was kept, as `before`."""
    return "after" if list(kept) == [BEFORE] else otherwise


def drop_named(kept: dict[str, T], name: str | None) -> None:
    """Remove what was kept under a name, or all.

    Raises:
        ValueError: Nothing was kept under that name.
    """
    if name is None:
        kept.clear()
    else:
        check_kept(kept, name)
        del kept[name]
