"""One run of the doctor for a panel: this machine or snapshots, all checks or one."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from ...doctor.api import load_machine
from ...doctor.causes import order
from ...doctor.data_paths import judge_data_paths
from ...doctor.diagnosis import Diagnosis
from ...doctor.goals import Goal
from ...doctor.machine import SIZE, Machine
from ...doctor.registry import checks
from ...doctor.runner import diagnose, live_machine
from .topology_model import TopologyModel, topology_model

Progress = Callable[[int, int], None]


@dataclass(frozen=True, slots=True)
class Request:
    """Requested run.

    Attributes:
        goal: Goal to judge for; None chooses one by what the machine shows.
        check: Name of the only check to run, "" for all.
        size: GPU memory to be exported at once, in bytes.
    """

    goal: Goal | None
    check: str = ""
    size: int = SIZE


@dataclass(frozen=True, slots=True)
class Result:
    """Result of a run; `topology` is None if no PCI device is visible."""

    diagnosis: Diagnosis
    topology: TopologyModel | None


def open_machines(snapshots: Sequence[Path]) -> list[Machine]:
    """Return the machines of the snapshots, or this machine if there are none.

    Raises:
        ValueError: If a file is not a snapshot.
        OSError: If a file cannot be read.
    """
    return [load_machine(path) for path in snapshots] or [live_machine()]


def run(
    snapshots: Sequence[Path], request: Request, before: Result | None, progress: Progress
) -> Result:
    """Run the doctor. Blocks for seconds: never call it on the kernel's event loop.

    The findings of a single check and of its consequences replace the corresponding ones in the
    result `before`.

    Raises:
        ValueError: As `diagnose`.
    """
    with contextlib.ExitStack() as stack:
        machines = [stack.enter_context(machine) for machine in open_machines(snapshots)]
        size = request.size
        if not request.check or before is None:
            made = diagnose(machines, goal=request.goal, size=size, progress=progress)
            return Result(made, _topology(made))
        old = before.diagnosis
        only = _with_consequences(old, request.check)
        new = diagnose(machines, goal=old.goal, only=only, size=size, progress=progress)
        return Result(_merge(old, new, only), before.topology)


def _topology(made: Diagnosis) -> TopologyModel | None:
    try:
        return topology_model(made)
    except Exception:  # malformed readings prevent only the drawing
        return None


def _with_consequences(old: Diagnosis, check: str) -> list[str]:
    """Return a check and its consequences, whose findings have no remedies of their own."""
    only = [check]
    for cause in only:  # the list grows: a consequence may cause others
        follow = {one.check for one in old.findings if one.follows == cause}
        only += sorted(follow.difference(only))
    return only


def _merge(old: Diagnosis, new: Diagnosis, only: Sequence[str]) -> Diagnosis:
    position = {known.name: index for index, known in enumerate(checks())}
    others = [finding for finding in old.findings if finding.check not in only]
    found = sorted([*others, *new.findings], key=lambda finding: position.get(finding.check, 0))
    findings = order(found, new.goal)
    return Diagnosis(
        case=new.case, findings=findings, data_paths=judge_data_paths(new.case, findings),
        chosen=old.chosen, took_s=new.took_s,
    )  # fmt: skip
