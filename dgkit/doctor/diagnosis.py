"""All checks, side by side, under one deadline; and what they come to."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, TypeVar

import msgspec

from . import finding
from .collect.live import FAST_S, FULL_S, Live
from .data_paths import Way, ways
from .executor import Crew, Job
from .facts import pci
from .facts.side import side
from .finding import Finding, Verdict, worst
from .goals import Goal
from .machine import SIZE, Case, Machine
from .registry import Check, checks, named

__all__ = ["Diagnosis", "diagnose", "here", "read_everything"]

T = TypeVar("T")

Progress = Callable[[int, int], None]
_GRACE_S = 0.5  # for a check to say what it could not read
_CREW = 64  # more than there are checks: one that hangs holds up no other
_EXIT_CODES = {Verdict.FAIL: 1, Verdict.WARN: 5, Verdict.CANNOT_TELL: 6}


class Diagnosis(msgspec.Struct, frozen=True, kw_only=True):
    """What `dgkit doctor` shows. `findings`: the worst first, then in the order of the checks.

    `ways`: the better ones first; none if only some of the checks were asked for. `chosen`: why
    this goal, "" if it was asked for. `took_s`: seconds that the checks took.
    """

    case: Case
    findings: tuple[Finding, ...]
    ways: tuple[Way, ...]
    chosen: str
    took_s: float

    @property
    def goal(self) -> Goal:
        """What the machine was judged for."""
        return self.case.goal

    @property
    def best(self) -> Way | None:
        """The best way that works, None if none does."""
        return next((one for one in self.ways if one.works), None)

    @property
    def verdict(self) -> Verdict:
        """FAIL if no way serves the goal, CANNOT_TELL if nobody knows whether one does.

        Where one does, a failure that only blocks other ways is WARN.
        """
        serving = [one for one in self.ways if one.serves and one.verdict]
        if serving and all(one.verdict is Verdict.FAIL for one in serving):
            return Verdict.FAIL
        level = worst(self.findings)
        spared = {check for one in self.ways for check in one.blocked_by}
        failed = {one.check for one in self.findings if one.verdict is Verdict.FAIL}
        if not serving or not failed <= spared:
            return level
        if not any(one.works for one in serving):
            return Verdict.CANNOT_TELL
        return min(level, Verdict.WARN)

    @property
    def exit_code(self) -> int:
        """Of `dgkit doctor`: 0 fine, 1 something fails, 5 warnings, 6 cannot tell."""
        return _EXIT_CODES.get(self.verdict, 0)

    @property
    def counts(self) -> str:
        """How many findings of each verdict, the worst first: `1 fail, 3 ok`."""
        many = {level: sum(one.verdict is level for one in self.findings) for level in Verdict}
        said = [f"{many[level]} {level}" for level in sorted(Verdict, reverse=True) if many[level]]
        return ", ".join(said) or "nothing was found"

    def of(self, check: str) -> tuple[Finding, ...]:
        """The findings of one check."""
        return tuple(one for one in self.findings if one.check == check)

    def summary(self) -> str:
        """One sentence: the best way, and what blocks the better ones."""
        best = self.best
        if best is None:
            return f"{self.counts}." if not self.ways else "No way of moving bytes works."
        said = f"{best.title} {best.word}"
        better = [one for one in self.ways[: self.ways.index(best)] if one.verdict]
        if better and all(one.verdict is Verdict.FAIL for one in better) and not best.serves:
            said = f"Only {best.title} {best.word}"
        return f"{said}{_beside(better)}. {best.proviso}".rstrip()

    def as_dict(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        sides = {"host": self.case.host, "dpu": self.case.dpu}
        return {
            "goal": str(self.goal),
            "chosen": self.chosen,
            "verdict": str(self.verdict),
            "summary": self.summary(),
            "best": self.best.name if self.best is not None else None,
            "machines": {name: one.name for name, one in sides.items() if one is not None},
            "ways": [{**msgspec.structs.asdict(w), "verdict": str(w.verdict)} for w in self.ways],
            "findings": [one.as_dict() for one in self.findings],
            "took_s": round(self.took_s, 3),
        }

    def __repr__(self) -> str:
        return f"<Diagnosis of {self.case.machine.name}: {self.goal}, {self.verdict}>"

    def __str__(self) -> str:
        from .format.notebook import text

        return text(self)

    def _repr_html_(self) -> str:
        from .format.notebook import html

        return html(self)


def here(*, fast: bool = False) -> Machine:
    """This machine, to be read from now on for at most 10 s, or 2 s; `with here() as machine:`."""
    return Machine(Live(FAST_S if fast else FULL_S))


def diagnose(
    machines: Sequence[Machine],
    *,
    goal: Goal | None = None,
    only: Collection[str] = (),
    size: int = SIZE,
    limit_s: float = FULL_S,
    progress: Progress | None = None,
) -> Diagnosis:
    """Judges one machine, or a host and a DPU together; ends `limit_s` and half a second later.

    `only`: the names of checks or of families, all if there are none; those that do not count for
    the goal are not applicable. `size`: bytes of GPU memory
    to be lent at once. `progress`: called with how many checks of how many have ended. ValueError:
    a name is not known, there is no machine, or two machines are the same side.
    """
    start = time.monotonic()
    run = _Run(machines, size, start + limit_s + _GRACE_S)
    chosen_goal, chosen = (goal, "") if goal else run.choose()
    counting = (one for one in checks() if chosen_goal in one.goals)
    wanted = tuple(dict.fromkeys(named(only) if only else counting))
    found = run.findings(run.begin(wanted, chosen_goal), progress)
    ordered = tuple(sorted(found, key=lambda one: -one.verdict))
    case = run.case(run.main, chosen_goal)
    known = () if only else run.ways(case, ordered)
    took = time.monotonic() - start
    return Diagnosis(case=case, findings=ordered, ways=known, chosen=chosen, took_s=took)


def read_everything(
    machine: Machine,
    *,
    size: int = SIZE,
    limit_s: float = FULL_S,
    progress: Progress | None = None,
) -> None:
    """Lets each check look for each goal, so that a recording has what any judgement needs."""
    run = _Run([machine], size, time.monotonic() + limit_s + _GRACE_S)
    jobs = [
        job
        for goal in Goal
        for job in run.begin([one for one in checks() if goal in one.goals], goal)
    ]
    for _ in run.findings(jobs, progress):
        pass


_Asked = tuple[Check, str, Job[tuple[Finding, ...]]]


class _Run:
    """Checks at work on the same machines until the same time."""

    def __init__(self, machines: Sequence[Machine], size: int, until: float) -> None:
        if not machines:
            raise ValueError("there is no machine to judge")
        self.size, self.until = size, until
        self.crew = Crew("dgkit-doctor-check", most=_CREW)
        self.sides = self._sides(machines)
        self.main = self.sides.get("host") or machines[0]

    def _sides(self, machines: Sequence[Machine]) -> dict[str, Machine]:
        jobs = [(one, self.crew.start(partial(one.know, side))) for one in machines]
        sides: dict[str, Machine] = {}
        for machine, job in jobs:
            name = self._of(job, "host")
            if name in sides:
                both = f"{sides[name].name} and {machine.name}"
                what = "the Arm cores of a DPU" if name == "dpu" else "hosts"
                raise ValueError(f"{both} are both {what}: judge a host and a DPU together")
            sides[name] = machine
        return sides

    def _of(self, job: Job[T], otherwise: T) -> T:
        try:
            return job.result(self.until)
        except Exception:  # odd readings; the checks that rest on them say so
            return otherwise

    def ways(self, case: Case, findings: tuple[Finding, ...]) -> tuple[Way, ...]:
        """All of them; none if the PCI devices are not known before the deadline."""
        try:
            return self.crew.start(partial(ways, case, findings)).result(self.until)
        except TimeoutError:
            return ()

    def case(self, machine: Machine, goal: Goal) -> Case:
        """As a check on this machine is given it."""
        host, dpu = self.sides.get("host"), self.sides.get("dpu")
        return Case(machine=machine, goal=goal, size=self.size, host=host, dpu=dpu)

    def begin(self, wanted: Sequence[Check], goal: Goal) -> list[_Asked]:
        """Starts the checks, each on the sides it is asked on."""
        return [
            (check, name, self.crew.start(partial(_judged, check, self.case(machine, goal))))
            for check in wanted
            for name, machine in self._asked(check)
        ]

    def _asked(self, check: Check) -> Iterator[tuple[str, Machine]]:
        if "pair" in check.sides:
            yield "pair", self.main
        yield from ((name, one) for name, one in self.sides.items() if name in check.sides)

    def findings(self, jobs: Sequence[_Asked], progress: Progress | None) -> list[Finding]:
        """Of all of them, in their order; what has not ended by the deadline cannot be told."""
        found: list[Finding] = []
        for at, (check, name, job) in enumerate(jobs):
            words = {"check": check.name, "title": check.title, "side": name}
            found += [finding.named(one, **words) for one in self._found(job)]
            if progress is not None:
                progress(at + 1, len(jobs))
        return found

    def _found(self, job: Job[tuple[Finding, ...]]) -> tuple[Finding, ...]:
        try:
            return job.result(self.until)
        except TimeoutError:
            return (finding.unknown("no answer", why="It did not end before the deadline."),)
        except Exception as error:  # one check that fails takes nothing from the others
            return (finding.unknown("no answer", why=f"The check failed: {error!r}"),)

    def choose(self) -> tuple[Goal, str]:
        """The goal that the machine looks like, and why."""
        nothing = (Goal.LAPTOP, "nothing could be read")
        return self._of(self.crew.start(partial(_choose, self.sides)), nothing)


def _judged(check: Check, case: Case) -> tuple[Finding, ...]:
    if case.goal in check.goals:
        return tuple(check.judge(case))
    goals = ", ".join(str(goal) for goal in Goal if goal in check.goals)
    return (finding.n_a(f"{case.goal} does not ask for it", needed=f"--goal {goals}"),)


def _choose(sides: Mapping[str, Machine]) -> tuple[Goal, str]:
    if "dpu" in sides:
        both = "these are a host and the Arm side of a BlueField"
        return Goal.ARM_DMA, both if "host" in sides else "this is the Arm side of a BlueField"
    devices = sides["host"].know(pci.tree)
    if devices.bluefields:
        return Goal.ARM_DMA, f"there is a {devices.bluefields[0].bluefield}"
    if devices.gpus and any(one.vendor == pci.MELLANOX for one in devices.nics):
        return Goal.RDMA, "there are a GPU and a NIC, and no BlueField"
    if devices.gpus:
        return Goal.ARM_DMA, "there is a GPU, and no BlueField yet"
    return Goal.LAPTOP, "there is neither a GPU nor a BlueField"


def _beside(better: Sequence[Way]) -> str:
    """Of the best of those that are better and do not work: why not."""
    if not better:
        return ""
    first, why = better[0], better[0].why.rstrip(".")
    if first.verdict is Verdict.CANNOT_TELL:
        return f"; whether {first.title} does cannot be told{f' ({why})' if why else ''}"
    by = f" by {_and(first.blocked_by)}" if first.blocked_by else f": {why}"
    return f"; {first.title} is blocked{by}"


def _and(names: Sequence[str]) -> str:
    return " and ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else names)
