"""The ways that bytes can go on this machine: which work, and what blocks the better ones.

`plans` lists them; here each is put beside what the checks found.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial
from typing import Any

import msgspec

from .data_path_specs import ANY_WILL_DO, PLANS, Plan, Thing
from .facts import pci
from .finding import Finding, Verdict, worst
from .machine import Case

__all__ = ["Way", "ways"]


class Way(msgspec.Struct, frozen=True, kw_only=True):
    """One way. `what`: in one sentence. `serves`: the goal asks for it; others stand in for those.

    `verdict`: OK, it works; WARN, it works slower, or with what `warned_by` says; FAIL, it is
    blocked; CANNOT_TELL; NOT_APPLICABLE, it is not set up, and another does without. `why`: in a
    sentence. `blocked_by`, `warned_by`: names of checks, worst first. A way that lacks a device may
    be blocked by no check: then `why` says what is missing. `proviso`: why it should work, rather
    than works: something that it rests on was not seen.
    """

    name: str
    title: str
    what: str
    serves: bool
    verdict: Verdict
    why: str = ""
    proviso: str = ""
    blocked_by: tuple[str, ...] = ()
    warned_by: tuple[str, ...] = ()

    @property
    def works(self) -> bool:
        """Whether bytes go this way, be it slower."""
        return self.verdict in (Verdict.OK, Verdict.WARN)

    @property
    def word(self) -> str:
        """The verdict, for people."""
        if self.works:
            how = ", with warnings" if self.warned_by else ""
            slower = ", but slower" if self.verdict is Verdict.WARN and not self.warned_by else ""
            return f"{'should work' if self.proviso else 'works'}{slower}{how}"
        return _WORDS[self.verdict]


_WORDS = {
    Verdict.FAIL: "blocked",
    Verdict.CANNOT_TELL: "cannot tell",
    Verdict.NOT_APPLICABLE: "not set up",
}


def ways(case: Case, findings: Sequence[Finding]) -> tuple[Way, ...]:
    """All that there are for the goal, the better ones first."""
    there, levels = _things(case), _Levels(findings)
    return tuple(_way(plan, case, there, levels) for plan in PLANS if case.goal in plan.goals)


class _Levels:
    """What the findings come to, check by check."""

    def __init__(self, findings: Iterable[Finding]) -> None:
        self._of: dict[str, list[Finding]] = {}
        self._na: dict[str, Finding] = {}
        for one in findings:
            if one.verdict is Verdict.NOT_APPLICABLE:
                self._na[one.check] = one
            else:
                self._of.setdefault(one.check, []).append(one)

    def __contains__(self, check: str) -> bool:
        return check in self._of

    def of(self, check: str) -> Verdict:
        """The worst of a check's findings; NOT_APPLICABLE if it has none that count.

        Where several devices were looked at and one will do, a bad one is no more than a warning.
        """
        found = self._of.get(check, [])
        level = worst(found)
        good = any(one.verdict is Verdict.OK for one in found)
        if check in ANY_WILL_DO and good and level is Verdict.FAIL:
            return Verdict.WARN
        return level

    def shuts(self, check: str) -> bool:
        """Whether a check of an `either` blocks: a warning there says to take another way."""
        if self.of(check) is not Verdict.WARN:
            return self.of(check) is Verdict.FAIL
        found = self._of[check]
        if check in ANY_WILL_DO and any(one.verdict is Verdict.OK for one in found):
            return False
        return not all(one.disagree for one in found if one.verdict is Verdict.WARN)

    def does_not_apply(self, check: str) -> bool:
        """Whether all that a check found is that."""
        return check in self._na and check not in self._of

    def with_level(self, checks: Iterable[str], level: Verdict) -> list[str]:
        """Those of the checks that are at that level, each once."""
        return [check for check in dict.fromkeys(checks) if self.of(check) is level]

    def why(self, checks: Sequence[str]) -> str:
        """What the first of these checks says of its worst finding."""
        found = self._of.get(checks[0], []) if checks else []
        if not found and checks and checks[0] in self._na:
            return f"{checks[0]}: {self._na[checks[0]].found}."
        return max(found, key=lambda one: one.verdict).why if found else ""


def _things(case: Case) -> dict[Thing, bool | None]:
    """Which devices are there; None where nobody can tell."""
    tree = case.host.know(pci.tree) if case.host is not None else None
    if tree is None or tree.why:
        arm = True if case.dpu is not None else None
        return {Thing.GPU: None, Thing.BLUEFIELD: arm, Thing.NIC: arm}
    return {
        Thing.GPU: bool(tree.gpus),
        Thing.BLUEFIELD: bool(tree.bluefields) or case.dpu is not None,
        Thing.NIC: any(one.vendor == pci.MELLANOX for one in tree.nics),
    }


def _way(plan: Plan, case: Case, there: dict[Thing, bool | None], levels: _Levels) -> Way:
    lacking = [one for one in plan.things if there[one] is False]
    if lacking:
        looked = (check for one in lacking for check in one.checks)
        shut = tuple(levels.with_level(looked, Verdict.FAIL))
        why = " ".join(one.missing for one in lacking)
        return _made(plan, case, Verdict.FAIL, why, blocked_by=shut)
    shut, turned, dark, taken = _either(plan, levels)
    rest = (*plan.needs, *plan.wants)
    shut = tuple(dict.fromkeys((*shut, *levels.with_level(rest, Verdict.FAIL))))
    if shut:
        return _made(plan, case, Verdict.FAIL, levels.why(shut), blocked_by=shut)
    unseen = [one for one in plan.things if there[one] is None]
    if dark and not unseen and all(map(levels.does_not_apply, dark)):
        return _made(plan, case, Verdict.NOT_APPLICABLE, levels.why(dark))
    dark = [*dark, *levels.with_level(plan.needs, Verdict.CANNOT_TELL)]
    if dark or unseen:
        return _made(plan, case, Verdict.CANNOT_TELL, _dark(case, levels, dark))
    proviso = _proviso(plan, case, levels)
    warned = (*turned, *levels.with_level((*taken, *rest), Verdict.WARN))
    instead = tuple(levels.with_level(plan.stands_in, Verdict.WARN))
    slow = "" if instead else plan.slow
    made = partial(_made, plan, case, proviso=proviso, serves=bool(instead))
    if warned or slow:
        return made(Verdict.WARN, levels.why(warned) or slow, warned_by=warned)
    return made(Verdict.OK, levels.why(instead) or proviso)


def _made(plan: Plan, case: Case, verdict: Verdict, why: str, **more: Any) -> Way:
    serves = more.pop("serves", False) or case.goal in plan.serves
    return Way(
        name=plan.name, title=plan.title, what=plan.what, serves=serves, verdict=verdict, why=why,
        **more,
    )  # fmt: skip


_Either = tuple[tuple[str, ...], tuple[str, ...], list[str], tuple[str, ...]]


def _either(plan: Plan, levels: _Levels) -> _Either:
    """Checks that block all sets, those for which a set was turned down, those with no answer,
    and the set that is taken."""
    shut: list[str] = []
    dark: list[str] = []
    for checks in plan.either:
        here = [check for check in checks if levels.shuts(check)]
        silent = [checks[0]] if checks[0] not in levels else []
        silent += levels.with_level(checks, Verdict.CANNOT_TELL)
        if not here and not silent:
            return (), tuple(dict.fromkeys(shut)), [], checks
        shut += here
        dark += [] if here else silent
    return (() if dark else tuple(dict.fromkeys(shut))), (), dark, ()


def _dark(case: Case, levels: _Levels, checks: Sequence[str]) -> str:
    if case.host is None:
        return "The GPU is on the host: judge both sides together."
    said = levels.why(checks)
    return said or (f"{checks[0]} has no answer." if checks else "The PCI devices are not known.")


def _proviso(plan: Plan, case: Case, levels: _Levels) -> str:
    """What was not seen of that on which the way rests."""
    said = [plan.untried] if plan.untried else []
    if Thing.BLUEFIELD in plan.things and case.dpu is None:
        said.append("The DPU was not looked at.")
    silent = levels.with_level(plan.wants, Verdict.CANNOT_TELL)
    if silent:
        said.append(f"No answer: {', '.join(silent)}.")
    return " ".join(said)
