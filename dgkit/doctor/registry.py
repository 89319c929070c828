"""The list of checks. A check is a function that is given a Case and yields Findings."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from difflib import get_close_matches
from importlib import import_module

import msgspec

from .finding import Finding
from .goals import ALL, Goal
from .machine import Case

__all__ = ["FAMILIES", "Check", "check", "checks", "named"]

# One module of `checks` each, in the order in which a page lists them.
FAMILIES = (
    *("dgkit", "kernel", "driver", "cuda", "dmabuf", "peermem", "gdrcopy", "bar1"),
    *("iommu", "acs", "topology", "link", "numa", "virtual", "platform"),
    *("bluefield", "firmware", "doca", "rdma", "limits", "pair"),
)

Judge = Callable[[Case], Iterable[Finding]]


class Check(msgspec.Struct, frozen=True):
    """`name` is what errors and `dgkit doctor NAME` call it; `asks` is its question, for people.

    `goals`: those that it counts for. `sides`: of "host" and "dpu", those it is asked on; a check
    on "pair" is asked once, of both together.
    """

    name: str
    title: str
    asks: str
    judge: Judge
    family: str
    goals: frozenset[Goal]
    sides: tuple[str, ...]


_CHECKS: dict[str, Check] = {}


def check(
    name: str,
    title: str,
    *,
    goals: Collection[Goal] = ALL,
    sides: tuple[str, ...] = ("host", "dpu"),
) -> Callable[[Judge], Judge]:
    """Makes a function a check; the first line of its docstring is the question it answers."""

    def add(judge: Judge) -> Judge:
        asks = (judge.__doc__ or "").strip().splitlines()[0]
        family = judge.__module__.rpartition(".")[2]
        made = Check(name, title, asks, judge, family, frozenset(goals), sides)
        if _CHECKS.setdefault(name, made).judge is not judge:
            raise ValueError(f"there are two checks called {name}")
        return judge

    return add


def checks() -> tuple[Check, ...]:
    """All of them, in the order of FAMILIES."""
    for family in FAMILIES:
        import_module(f"{__package__}.checks.{family}")
    order = {family: at for at, family in enumerate(FAMILIES)}
    return tuple(sorted(_CHECKS.values(), key=lambda one: order[one.family]))


def named(words: Collection[str]) -> Iterator[Check]:
    """Those with these names, or of families with these names, in capitals or not.

    ValueError names one that is not known.
    """
    known = checks()
    for word in words:
        found = [one for one in known if word.lower() in (one.name, one.family)]
        if not found:
            raise ValueError(f"there is no check {word!r};{_meant(word, known)}")
        yield from found


def _meant(word: str, known: Sequence[Check]) -> str:
    """What may have been meant, as the end of a sentence; and where all are."""
    names = dict.fromkeys([*(one.name for one in known), *FAMILIES])
    like = get_close_matches(word.lower(), names, n=3)
    meant = f" did you mean {' or '.join(like)}?" if like else ""
    return f"{meant} `dgkit doctor --list` has all"
