# SPDX-License-Identifier: Apache-2.0
"""Concurrent run of the checks under one deadline."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator, Sequence
from functools import partial
from typing import NamedTuple, TypeVar

import msgspec

from . import finding
from .automatic_goal import choose, nic_mode, signs
from .collect.live import (
    FAST_S,
    FULL_S,
    RECORD_COMMAND_S,
    RECORD_S,
    LiveReader,
    fast_limit,
)
from .collect.reader import Trace, tracing
from .data_paths import DataPath, judge_data_paths
from .diagnosis import Diagnosis
from .executor import Executor, Job
from .facts import kernel_log
from .facts.bluefield import side
from .finding import Finding, Verdict
from .finding_order import lead, order, quote_log
from .goals import Goal
from .machine import SIZE, Case, Machine
from .registry import Check, checks, named
from .remedies import fit, restart_once

T = TypeVar("T")
D = TypeVar("D")

Progress = Callable[[int, int], None]
_GRACE_S = 0.5  # time after the deadline for a check to report what it could not read
_FAST_GRACE_S = 0.15  # the same, of a fast run
_MAX_THREADS = 64  # more than there are checks, so that a check that hangs delays no other
# Checks of recorded machines never wait, so one thread runs them all; threads are added only if a
# check hangs. One thread per check would take twice as long.
_RECORDED_DELAY_S = 0.05


def live_machine(*, fast: bool = False, recorded: bool = False) -> Machine:
    """Return this machine, with a live reader that ends after 10 s, or 0.7 s if `fast`.

    The reader of a machine that is to be `recorded` ends after 60 s, and a command after 30 s.

    The 0.7 s count from the start of a program that was just started, such as `dgkit doctor`.

    Use it as a context manager: `with live_machine() as machine:`.
    """
    if recorded:
        return Machine(LiveReader(RECORD_S, RECORD_COMMAND_S))
    return Machine(LiveReader(fast_limit() if fast else FULL_S))


def diagnose(
    machines: Sequence[Machine],
    *,
    goal: Goal | None = None,
    only: Collection[str] = (),
    size: int = SIZE,
    limit_s: float = FULL_S,
    progress: Progress | None = None,
) -> Diagnosis:
    """Judge one machine, or a host and its DPU together.

    Args:
        machines: One machine, or a host and a DPU.
        goal: Goal to judge for; None derives it from devices and software (automatic_goal.py).
        only: Names of checks or families, all if empty. A check that does not count for the goal is
            not applicable.
        size: GPU memory to be exported at once, in bytes.
        limit_s: Time limit; the run ends at most half a second later.
        progress: Called with the number of completed checks and their total.

    Raises:
        ValueError: If a name is unknown, there is no machine, or two machines are the same side.
    """
    start = time.monotonic()
    run = _Run(machines, size, start + limit_s + (_FAST_GRACE_S if limit_s == FAST_S else _GRACE_S))
    chosen_goal, chosen = (goal, "") if goal else run.choose_goal(limit_s)
    counting = (check for check in checks() if chosen_goal in check.goals)
    selected = tuple(dict.fromkeys(named(only) if only else counting))
    found = run.findings(run.start(selected, chosen_goal), progress)
    findings = quote_log(order(restart_once(found), chosen_goal))
    case = run.case(run.main, chosen_goal)
    paths = () if only else run.data_paths(case, findings)
    findings = lead(findings, paths)
    took = time.monotonic() - start
    return Diagnosis(
        case=case,
        findings=findings,
        data_paths=paths,
        chosen=chosen,
        took_s=took,
        traces=run.traces,
    )


def read_everything(
    machine: Machine,
    *,
    size: int = SIZE,
    limit_s: float = FULL_S,
    progress: Progress | None = None,
) -> None:
    """Run each check for each of its goals, so that a recording has all their readings."""
    run = _Run([machine], size, time.monotonic() + limit_s + _GRACE_S)
    jobs = [
        job
        for goal in Goal
        for job in run.start([check for check in checks() if goal in check.goals], goal)
    ]
    run.findings(jobs, progress)


class _Judged(NamedTuple):
    """Result of a check, and the readings and facts that it used."""

    findings: tuple[Finding, ...]
    trace: Trace


class _CheckJob(NamedTuple):
    """Check that was started on one side."""

    check: Check
    side: str
    job: Job[_Judged]


class _Run:
    """Checks of the same machines, up to the same deadline.

    Attributes:
        until: Deadline, by `time.monotonic()`.
        sides: Machines by side, `host` and `dpu`.
        main: The host if there is one, else the DPU.
        traces: Readings and facts that the checks used, by name of the check and side.
    """

    def __init__(self, machines: Sequence[Machine], size: int, until: float) -> None:
        if not machines:
            raise ValueError("there is no machine to judge")
        self.size, self.until = size, until
        self.traces: dict[tuple[str, str], Trace] = {}
        delay_s = 0.0 if any(machine.read.waits for machine in machines) else _RECORDED_DELAY_S
        self.executor = Executor(
            "dgkit-doctor-check", max_threads=_MAX_THREADS, spawn_delay_s=delay_s
        )
        self.sides = self._sides(machines)
        self.main = self.sides.get("host") or machines[0]

    def _sides(self, machines: Sequence[Machine]) -> dict[str, Machine]:
        jobs = [(m, self.executor.submit(partial(m.know, side))) for m in machines]
        sides: dict[str, Machine] = {}
        for machine, job in jobs:
            name = self._result(job, "host")
            if name in sides:
                both = f"{sides[name].name} and {machine.name}"
                kind = "the Arm cores of a DPU" if name == "dpu" else "hosts"
                raise ValueError(f"{both} are both {kind}: judge a host and a DPU together")
            sides[name] = machine
        return sides

    def _result(self, job: Job[T], default: D, *, until: float | None = None) -> T | D:
        try:
            return job.result(self.until if until is None else until)
        except Exception:  # malformed readings, which the checks that depend on them report
            return default

    def data_paths(self, case: Case, findings: tuple[Finding, ...]) -> tuple[DataPath, ...]:
        """Return all data paths; () if the PCI devices are not read before the deadline."""
        try:
            job = self.executor.submit(partial(judge_data_paths, case, findings))
            return job.result(self.until)
        except TimeoutError:
            return ()

    def case(self, machine: Machine, goal: Goal) -> Case:
        """Return the input of checks of this machine."""
        host, dpu = self.sides.get("host"), self.sides.get("dpu")
        return Case(machine=machine, goal=goal, size=self.size, host=host, dpu=dpu)

    def start(self, selected: Sequence[Check], goal: Goal) -> list[_CheckJob]:
        """Start the checks, each on its sides."""
        return [
            _CheckJob(
                check,
                name,
                self.executor.submit(partial(_run_check, check, self.case(machine, goal))),
            )
            for check in selected
            for name, machine in self._machines_of(check)
        ]

    def _machines_of(self, check: Check) -> Iterator[tuple[str, Machine]]:
        if "pair" in check.sides:
            yield "pair", self.main
        yield from (item for item in self.sides.items() if item[0] in check.sides)

    def findings(self, jobs: Sequence[_CheckJob], progress: Progress | None) -> list[Finding]:
        """Return findings in the order of the jobs; UNKNOWN for checks past the deadline."""
        found: list[Finding] = []
        for index, (check, name, job) in enumerate(jobs):
            origin = {"check": check.name, "title": check.title, "side": name}
            results, trace = self._result_of(job)
            self.traces[check.name, name] = trace
            found += [finding.attribute(result, **origin) for result in results]
            if progress is not None:
                progress(index + 1, len(jobs))
        return found

    def _result_of(self, job: Job[_Judged]) -> _Judged:
        """Return the result of a job; unknown if it is late or raises (see prerequisites.py)."""
        try:
            return job.result(self.until)
        except TimeoutError:
            why = "It did not end before the deadline."
        except Exception as error:  # an exception in a check must not affect the others
            why = f"The check failed: {error!r}"
        return _Judged((finding.unknown("no answer", why=why),), Trace())

    def choose_goal(self, limit_s: float) -> tuple[Goal, str]:
        """Return the goal that fits the machine's devices and software, and the reason.

        Reading a card's mode needs a command: wait for it for at most a fifth of `limit_s`.
        """
        shown = self._result(self.executor.submit(partial(signs, self.sides)), None)
        if shown is None:
            return Goal.LAPTOP, "nothing could be read"
        if shown.has_dpu and (shown.reachable or not shown.gpus):
            job = self.executor.submit(partial(nic_mode, self.main))
            known = self._result(job, False, until=min(self.until, time.monotonic() + limit_s / 5))
            shown = msgspec.structs.replace(shown, nic_mode=known)
        return choose(shown)


def _run_check(check: Check, case: Case) -> _Judged:
    if case.goal in check.goals:
        with tracing() as trace:
            results = tuple(_with_log(case.machine, result) for result in check.findings(case))
        return _Judged(tuple(_fit_remedy(case.machine, result) for result in results), trace)
    goals = ", ".join(str(goal) for goal in Goal if goal in check.goals)
    needed = f"--goal {goals}"
    return _Judged((finding.n_a(f"{case.goal} does not need it", needed=needed),), Trace())


def _with_log(machine: Machine, result: Finding) -> Finding:
    """Quote the kernel's log where the remedy is to search it, if it has an error there."""
    for line in result.remedy if result.verdict >= Verdict.WARN else ():
        if line.startswith(kernel_log.SEARCH) and (said := kernel_log.errors(machine, line)):
            why = f"{result.why} {kernel_log.quoted(said)}".strip()
            remedy = tuple(other for other in result.remedy if other != line)
            return msgspec.structs.replace(result, why=why, remedy=remedy)
    return result


def _fit_remedy(machine: Machine, result: Finding) -> Finding:
    return msgspec.structs.replace(result, remedy=fit(machine, result.remedy))
