"""All checks, side by side, under one deadline; and what they come to."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator, Sequence
from functools import partial
from typing import Any

import msgspec

from . import finding
from .crew import Crew, Job
from .facts import pci
from .facts.side import side
from .finding import Finding, Verdict, worst
from .goals import Goal
from .live import FAST_S, FULL_S, Live
from .machine import Case, Machine
from .registry import Check, checks, named
from .ways import Way, ways

__all__ = ["Diagnosis", "diagnose", "here"]

Progress = Callable[[int, int], None]
_GRACE_S = 0.5  # for a check to say what it could not read


class Diagnosis(msgspec.Struct, frozen=True, kw_only=True):
    """What `dgkit doctor` shows. `findings`: the worst first, then in the order of the checks.

    `chosen`: why this goal, "" if it was asked for. `took_s`: seconds that the checks took.
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
    def verdict(self) -> Verdict:
        """The worst of all findings."""
        return worst(self.findings)

    def of(self, check: str) -> tuple[Finding, ...]:
        """The findings of one check."""
        return tuple(one for one in self.findings if one.check == check)

    def as_dict(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        sides = {"host": self.case.host, "dpu": self.case.dpu}
        return {
            "goal": str(self.goal),
            "chosen": self.chosen,
            "verdict": str(self.verdict),
            "machines": {name: one.name for name, one in sides.items() if one is not None},
            "ways": [{**msgspec.structs.asdict(w), "verdict": str(w.verdict)} for w in self.ways],
            "findings": [one.as_dict() for one in self.findings],
            "took_s": round(self.took_s, 3),
        }


def here(*, fast: bool = False) -> Machine:
    """This machine, to be read from now on for at most 10 s, or 2 s."""
    return Machine(Live(FAST_S if fast else FULL_S))


def diagnose(
    machines: Sequence[Machine],
    *,
    goal: Goal | None = None,
    only: Collection[str] = (),
    size: int = 64 << 20,
    limit_s: float = FULL_S,
    progress: Progress | None = None,
) -> Diagnosis:
    """Judges one machine, or a host and a DPU together.

    `only`: the names of checks or of families, all if there are none. `size`: bytes of GPU memory
    to be lent at once. ValueError: a name is not known, or two machines are the same side.
    """
    start = time.monotonic()
    until = start + limit_s + _GRACE_S
    wanted = tuple(named(only)) if only else checks()
    crew = Crew("dgkit-doctor-check")
    sides = _sides(machines, crew, until)
    chosen_goal, chosen = (goal, "") if goal else _choose(sides)
    host, dpu = sides.get("host"), sides.get("dpu")

    def case(machine: Machine) -> Case:
        return Case(machine=machine, goal=chosen_goal, size=size, host=host, dpu=dpu)

    def start_one(check: Check, name: str) -> Job[tuple[Finding, ...]]:
        machine = sides.get(name, machines[0])
        return crew.start(lambda: tuple(check.judge(case(machine))))

    jobs = [
        (check, name, start_one(check, name))
        for check in wanted
        for name in _asked(check, sides, chosen_goal)
    ]
    found: list[Finding] = []
    for at, (check, name, job) in enumerate(jobs):
        found += _findings(check, name, job, until)
        if progress is not None:
            progress(at + 1, len(jobs))
    ordered = tuple(sorted(found, key=lambda one: -one.verdict))
    main = case(host or dpu or machines[0])
    took = time.monotonic() - start
    known = ways(main, ordered)
    return Diagnosis(case=main, findings=ordered, ways=known, chosen=chosen, took_s=took)


def _sides(machines: Sequence[Machine], crew: Crew, until: float) -> dict[str, Machine]:
    jobs = [(one, crew.start(partial(one.know, side))) for one in machines]
    sides: dict[str, Machine] = {}
    for machine, job in jobs:
        try:
            name = job.result(until)
        except TimeoutError:
            name = "host"
        if name in sides:
            both = f"{sides[name].name} and {machine.name}"
            what = "the Arm cores of a DPU" if name == "dpu" else "hosts"
            raise ValueError(f"{both} are both {what}: judge a host and a DPU together")
        sides[name] = machine
    return sides


def _asked(check: Check, sides: dict[str, Machine], goal: Goal) -> Iterator[str]:
    """The sides on which a check is asked."""
    if goal not in check.goals:
        return
    if "pair" in check.sides:
        yield "pair"
    yield from (name for name in sides if name in check.sides)


def _findings(
    check: Check, name: str, job: Job[tuple[Finding, ...]], until: float
) -> Iterator[Finding]:
    try:
        found = job.result(until)
    except TimeoutError:
        found = (finding.unknown("no answer", why="It did not end before the deadline."),)
    except Exception as error:  # one check that fails takes nothing from the others
        found = (finding.unknown("no answer", why=f"The check failed: {error!r}"),)
    for one in found:
        yield msgspec.structs.replace(one, check=check.name, title=check.title, side=name)


def _choose(sides: dict[str, Machine]) -> tuple[Goal, str]:
    """What the machine looks like."""
    if "dpu" in sides:
        return Goal.ARM_DMA, "this is the Arm side of a BlueField"
    devices = sides["host"].know(pci.tree)
    if devices.bluefields:
        return Goal.ARM_DMA, f"there is a {devices.bluefields[0].bluefield}"
    if devices.gpus and any(one.vendor == pci.MELLANOX for one in devices.nics):
        return Goal.RDMA, "there are a GPU and a NIC, and no BlueField"
    if devices.gpus:
        return Goal.ARM_DMA, "there is a GPU, and no BlueField yet"
    return Goal.LAPTOP, "there is neither a GPU nor a BlueField"


