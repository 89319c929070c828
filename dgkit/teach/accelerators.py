# SPDX-License-Identifier: Apache-2.0
"""Lab 6, Conspirator: the student's scheduler for jobs on two different accelerators, simulated.

A job has phases. The duration of each phase, in seconds, is known for each accelerator without
other jobs. The scheduler is called when a job arrives, begins another phase, or ends. Moving a job
to the other accelerator takes MOVE seconds, in which its state is moved. The baseline is naive
sharing: jobs are assigned to the accelerators in turn, and all jobs of an accelerator share it
equally.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from . import concepts, submission, verdict
from .verdict import expect

NAMES = ("big", "small")  # here; in jobs and answers, names of each student: see `variants`
MOVE = 1.0  # time to move the state of a job to the other accelerator, in seconds
_SHARED = 0.9  # total speed of an accelerator that several jobs share
_EVENTS = 400
_COLUMNS_SHOWN = 64
# So many that the verdict on a wrong schedule does not depend on the seed.
_WORKLOADS = 40
# Limits as fractions of naive sharing's figures, or of the shortest completion time. Over 100
# seeds, the instructor's solution needs at most 0.41, 0.53 and 1.04, with jobs that change 0.44 and
# 0.58; jobs as they arrive need 0.43 to 0.50, 0.62 to 0.68 and 1.13 to 1.21, with jobs that change
# 0.48 to 0.53 and 0.66 to 0.71.
_COMPLETION, _HOURS = 0.52, 0.58
_NEAR = 1.1

Phase = dict[str, float]


@dataclass(slots=True)
class Job:
    """A job, and its state.

    Attributes:
        number: Its number.
        arrival: Time of its arrival in seconds.
        phases: Seconds on each accelerator, for each phase.
        left: The fraction of the current phase that remains.
        on: The accelerator that holds its state; empty before it starts.
        moving: Seconds until its state has been moved to that accelerator.
    """

    number: int
    arrival: float
    phases: list[Phase]
    left: float = 1.0
    on: str = ""
    moving: float = 0.0

    def seconds(self, name: str) -> float:
        """Return the duration of the rest of the current phase on an accelerator, in seconds."""
        moving = self.moving if self.on == name else MOVE if self.on else 0.0
        return moving + self.left * self.phases[0][name]

    def fresh(self) -> Job:
        """Return a copy of the job in its initial state."""
        return Job(self.number, self.arrival, list(self.phases))


@dataclass(slots=True)
class Result:
    """The result of a schedule.

    Attributes:
        completion: Time in seconds at which the last job ended.
        busy_s: Seconds in which an accelerator had a job, summed over both accelerators.
        spans: Accelerator, job, start and end of each interval.
    """

    completion: float = 0.0
    busy_s: float = 0.0
    spans: list[tuple[str, int, float, float]] = field(default_factory=list)

    def add(self, name: str, job: int, start: float, end: float) -> None:
        """Add an interval."""
        self.busy_s += end - start
        self.completion = max(self.completion, end)
        self.spans.append((name, job, start, end))

    def picture(self) -> str:
        """Return a picture of each accelerator's jobs over time."""
        scale = max(1e-9, self.completion) / _COLUMNS_SHOWN
        lines = [f"{'':6} one column is {scale:.2f} s; a digit or letter is a job"]
        for name in NAMES:
            cells = ["."] * (_COLUMNS_SHOWN + 1)
            for where, job, start, end in self.spans:
                for at in range(round(start / scale), round(end / scale)):
                    if where == name:
                        cells[at] = "0123456789abcdefghijklmnopqrstuvwxyz"[job % 36]
            lines.append(f"{name:6} {''.join(cells).rstrip('.')}")
        return "\n".join(lines)


Scheduler = Callable[[list[dict[str, Any]]], Any]


def run(schedule: Scheduler, jobs: Sequence[Job], **names: str) -> Result:
    """Run jobs by a scheduler.

    Args:
        names: What the scheduler calls `big` and `small`.

    Raises:
        WrongAnswer: The scheduler's answer is malformed, or jobs wait forever.
    """
    coming = sorted((job.fresh() for job in jobs), key=lambda job: job.arrival)
    present: list[Job] = []
    made, now = Result(), 0.0
    for _ in range(_EVENTS):
        while coming and coming[0].arrival <= now:
            present.append(coming.pop(0))
        if not present and not coming:
            return made
        until = coming[0].arrival if coming else float("inf")
        running = _assignment(schedule, now, present, made, names) if present else {}
        stuck = not running and not coming
        expect(not stuck, f"jobs wait forever at {now:.2f} s\n{made.picture()}")
        ends = [now + job.seconds(name) for name, job in running.items()]
        end = min([until, *ends])
        for name, job in running.items():
            made.add(name, job.number, now, end)
            _advance(job, name, end - now)
        present = [job for job in present if job.phases]
        now = end
    raise verdict.WrongAnswer(f"no end after {_EVENTS} events\n{made.picture()}")


def _advance(job: Job, name: str, duration: float) -> None:
    """Advance a job that runs on an accelerator."""
    if job.on != name:
        job.moving, job.on = (MOVE if job.on else 0.0), name
    moved = min(job.moving, duration)
    job.moving -= moved
    job.left -= (duration - moved) / job.phases[0][name]
    if job.left * job.phases[0][name] + job.moving < 1e-9:
        job.phases.pop(0)
        job.left, job.moving = 1.0, 0.0


def _assignment(
    schedule: Scheduler, now: float, present: list[Job], made: Result, names: Mapping[str, str]
) -> dict[str, Job]:
    """Return the scheduler's job for each accelerator, without accelerators that get none."""
    named = {names.get(name, name): name for name in NAMES}
    jobs = [
        {
            "job": job.number,
            "on": names.get(job.on, job.on) or None,
            "seconds": {theirs: job.seconds(name) for theirs, name in named.items()},
        }
        for job in present
    ]
    got = schedule(jobs)
    known = {job.number: job for job in present}
    right = isinstance(got, dict) and all(
        name in named and (number is None or (type(number) is int and number in known))
        for name, number in got.items()
    )
    numbers = [number for number in got.values() if number is not None] if right else []
    expect(
        right and len(set(numbers)) == len(numbers),
        f"at {now:.2f} s it returned {got!r:.80}; it must return a dict from {tuple(named)} to one "
        f"of the jobs {sorted(known)} or None, each job once\n{made.picture()}",
    )
    return {named[name]: known[number] for name, number in got.items() if number is not None}


def naive_sharing(jobs: Sequence[Job]) -> Result:
    """Run jobs by naive sharing."""
    made = Result()
    ordered = sorted((job.fresh() for job in jobs), key=lambda job: job.arrival)
    for name, own in zip(NAMES, (ordered[::2], ordered[1::2]), strict=True):
        now, present, coming = 0.0, list[Job](), list(own)
        while present or coming:
            while coming and coming[0].arrival <= now:
                present.append(coming.pop(0))
            until = coming[0].arrival if coming else float("inf")
            slow = len(present) / (_SHARED if len(present) > 1 else 1.0)
            end = min([until, *(now + slow * job.seconds(name) for job in present)])
            for job in present:
                _advance(job, name, (end - now) / slow)
            if present:
                made.add(name, present[0].number, now, end)
            present, now = [job for job in present if job.phases], end
    return made


def _job(rng: random.Random, number: int, arrival: float, phases: int = 1) -> Job:
    """Return a job whose phases suit either the big accelerator or both accelerators.

    Of four consecutive jobs, two begin with each kind of phase, so that naive sharing assigns both
    kinds to both accelerators.
    """
    made, suits = [], number % 4 < 2
    for _ in range(phases):
        seconds = rng.uniform(6, 24)
        made.append({"big": seconds, "small": seconds * (rng.uniform(3, 5) if suits else 1.15)})
        suits = not suits
    return Job(number, arrival, made)


def _present(rng: random.Random, count: int = 6) -> list[Job]:
    """Return jobs of both kinds that are all present from the start."""
    return [_job(rng, number, 0.0) for number in range(count)]


def _arriving(rng: random.Random, count: int = 10, phases: int = 1) -> list[Job]:
    """Return jobs that arrive one after another."""
    jobs, now = [], 0.0
    for number in range(count):
        jobs.append(_job(rng, number, now, phases))
        now += rng.uniform(0, 9)
    return jobs


def example() -> list[Job]:
    """Return the jobs of the lab's story."""
    return _arriving(random.Random("story"), 8)


def _shortest(jobs: Sequence[Job]) -> float:
    """Return the shortest completion time without moves, for jobs that are all present."""
    return min(
        max(
            sum(job.seconds(name) for job, name in zip(jobs, names, strict=True) if name == each)
            for each in NAMES
        )
        for names in itertools.product(NAMES, repeat=len(jobs))
    )


Function = Callable[..., Any]
Workload = Callable[[random.Random], list[Job]]


@dataclass(slots=True)
class _Totals:
    """Totals over several workloads, of a student's scheduler and of naive sharing.

    Attributes:
        shortest: Sum of the shortest completion times; 0 if jobs arrive later.
        last: The result of the last workload.
    """

    own: Result
    naive: Result
    shortest: float
    last: Result

    def expect(self, what: str, limit: float) -> None:
        """Raise WrongAnswer if a figure exceeds `limit` times the figure of naive sharing."""
        own, naive = getattr(self.own, what), getattr(self.naive, what)
        title = {"completion": "completion time", "busy_s": "accelerator time"}[what]
        expect(
            own <= limit * naive,
            f"{title}: {own:.0f} s in all, {own / naive:.0%} of naive sharing's {naive:.0f} s; the "
            f"limit is {limit:.0%}. The last workload:\n{self.last.picture()}",
        )


def measured(
    schedule: Scheduler,
    rng: random.Random,
    workload: Workload,
    **names: str,
) -> _Totals:
    """Run a scheduler on several workloads."""
    totals = _Totals(Result(), Result(), 0.0, Result())
    for _ in range(_WORKLOADS):
        jobs = workload(rng)
        totals.last = run(schedule, jobs, **names)
        for total, result in ((totals.own, totals.last), (totals.naive, naive_sharing(jobs))):
            total.completion += result.completion
            total.busy_s += result.busy_s
        together = not any(job.arrival for job in jobs)
        totals.shortest += _shortest(jobs) if together else 0.0
    return totals


def test_schedule(schedule: Function, **names: str) -> None:
    """Test completion time and accelerator hours in comparison with naive sharing."""
    rng, report = verdict.seeded("schedule"), verdict.Report(concepts.LAB6)
    with submission.local(schedule) as (function,):
        totals = None
        with report.case("jobs that are all present: all end, no later", "all jobs", required=True):
            totals = measured(function, rng, _present, **names)
            totals.expect("completion", 1.0)
        if totals:
            with report.case("jobs that are all present: close to the optimum", "completion"):
                _check_near(totals)
        totals = None
        with report.case("jobs that arrive: all end, soon", "completion"):
            totals = measured(function, rng, _arriving, **names)
            totals.expect("completion", _COMPLETION)
        with report.case("jobs that arrive: few accelerator hours", "hours"):
            expect(totals is not None, "not all jobs ended")
            assert totals
            totals.expect("busy_s", _HOURS)
    report.finish()


def _check_near(totals: _Totals) -> None:
    """Raise WrongAnswer if completion takes over _NEAR times the shortest time without moves."""
    ratio = totals.own.completion / totals.shortest
    expect(
        ratio <= _NEAR,
        f"completion time: {totals.own.completion:.0f} s in all; {totals.shortest:.0f} s are "
        f"possible without moving a job. The limit is {_NEAR:.0%}, this is {ratio:.0%}. "
        f"The last workload:\n{totals.last.picture()}",
    )


def changing(rng: random.Random) -> list[Job]:
    """Return jobs of which most run better on the other accelerator in their second phase."""
    return _arriving(rng, 8, 2)


def test_few_hours(schedule: Function, **names: str) -> None:
    """Test the bonus: naive sharing's accelerator hours divided by the scheduler's.

    It requires the completion time of test_schedule.
    """
    rng, report = verdict.seeded("few hours"), verdict.Report(concepts.LAB6)
    ratio = 0.0
    with (
        submission.local(schedule) as (function,),
        report.case("jobs that arrive", "hours", required=True),
    ):
        totals = measured(function, rng, _arriving, **names)
        totals.expect("completion", _COMPLETION)
        ratio = totals.naive.busy_s / totals.own.busy_s
    report.bonus(ratio)
    report.finish()
