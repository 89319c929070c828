# SPDX-License-Identifier: Apache-2.0
"""Registry of checks. A check is a function that takes a Case and returns or yields Findings."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from difflib import get_close_matches
from importlib import import_module

import msgspec

from .finding import Finding, Verdict
from .goals import ALL, Goal
from .machine import Case
from .prerequisites import Requirement
from .references import Source

# Each family is a module of `checks`, in the order in which findings are listed.
FAMILIES = (
    *("kernel_log", "dgkit", "kernel", "driver", "cuda", "dmabuf", "peermem", "gdrcopy"),
    *("bar1", "iommu", "acs", "peers", "imex", "topology", "link", "numa", "virtual", "platform"),
    *("bluefield", "firmware", "doca", "rdma", "limits", "programs", "pair"),
)

Judge = Callable[[Case], Finding | Iterable[Finding]]


class Check(msgspec.Struct, frozen=True):
    """Registered check.

    Attributes:
        name: Name in error messages, JSON and `dgkit doctor NAME`.
        title: Title of its findings.
        asks: Question that the check answers.
        judge: Function that performs the check.
        family: Module of `checks` that contains it.
        goals: Goals that the check counts for.
        sides: Sides on which it runs, "host" or "dpu"; a check of "pair" runs once, for both sides.
        needed: What its findings need, except those that say so themselves or do not apply.
        sources: Sources of its findings, with the same exceptions.
        requires: Requirements, in order; the first unmet requirement provides the finding.
    """

    name: str
    title: str
    asks: str
    judge: Judge
    family: str
    goals: frozenset[Goal]
    sides: tuple[str, ...]
    needed: str = ""
    sources: tuple[Source, ...] = ()
    requires: tuple[Requirement, ...] = ()

    def findings(self, case: Case) -> Iterator[Finding]:
        """Yield the finding of the first unmet requirement, or else those of the check."""
        unmet = (requirement(case) for requirement in self.requires)
        missing = next((found for found in unmet if found is not None), None)
        judged = self.judge(case) if missing is None else missing
        for found in [judged] if isinstance(judged, Finding) else judged:
            if found.verdict is Verdict.NOT_APPLICABLE:
                yield found
            else:
                needed, sources = found.needed or self.needed, found.sources or self.sources
                yield msgspec.structs.replace(found, needed=needed, sources=sources)


_CHECKS: dict[str, Check] = {}


def check(
    name: str,
    title: str,
    *,
    asks: str,
    goals: Collection[Goal] = ALL,
    sides: tuple[str, ...] = ("host", "dpu"),
    needed: str = "",
    sources: Iterable[Source] = (),
    requires: Iterable[Requirement] = (),
) -> Callable[[Judge], Judge]:
    """Register the decorated function as a check; the arguments are those of `Check`.

    Raises:
        ValueError: If another function is registered under this name.
    """

    def add(judge: Judge) -> Judge:
        family = judge.__module__.rpartition(".")[2]
        registered = Check(
            name, title, asks, judge, family, frozenset(goals), sides,
            needed=needed, sources=tuple(sources), requires=tuple(requires),
        )  # fmt: skip
        if _CHECKS.setdefault(name, registered).judge is not judge:
            raise ValueError(f"there are two checks called {name}")
        return judge

    return add


def checks() -> tuple[Check, ...]:
    """Return all checks, in the order of FAMILIES."""
    for family in FAMILIES:
        import_module(f"{__package__}.checks.{family}")
    order = {family: index for index, family in enumerate(FAMILIES)}
    return tuple(sorted(_CHECKS.values(), key=lambda check: order[check.family]))


def named(names: Collection[str]) -> Iterator[Check]:
    """Yield the checks with these names or of these families; case is ignored.

    Raises:
        ValueError: If a name is unknown; the message suggests similar ones.
    """
    known = checks()
    for name in names:
        found = [check for check in known if name.lower() in (check.name, check.family)]
        if not found:
            raise ValueError(f"there is no check {name!r};{_suggestion(name, known)}")
        yield from found


def _suggestion(name: str, known: Sequence[Check]) -> str:
    """Return the end of the error message: similar names, and how to list all."""
    names = dict.fromkeys([*(check.name for check in known), *FAMILIES])
    similar = get_close_matches(name.lower(), names, n=3)
    question = f" did you mean {' or '.join(similar)}?" if similar else ""
    return f"{question} `dgkit doctor --list` lists all"
