# SPDX-License-Identifier: Apache-2.0
"""One run of the doctor for a panel: this machine or snapshots, all checks or one."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeVar

from ...doctor.api import load_machine
from ...doctor.data_paths import judge_data_paths
from ...doctor.diagnosis import Diagnosis
from ...doctor.experiments.overrule import overrule
from ...doctor.experiments.perform import perform
from ...doctor.experiments.plan import Experiment, plan
from ...doctor.finding_order import order
from ...doctor.format.nics import NicMap, nic_map
from ...doctor.goals import Goal
from ...doctor.machine import SIZE, Machine
from ...doctor.registry import checks
from ...doctor.runner import diagnose, live_machine
from .topology_model import TopologyModel, topology_model

T = TypeVar("T")
Progress = Callable[[int, int], None]


@dataclass(frozen=True, slots=True)
class Request:
    """Requested run.

    Attributes:
        goal: Goal to judge for; None chooses one by what the machine shows.
        check: Name of the only check to run, "" for all.
        experiment: Name of the kind of experiment to run instead of checks, "" for none.
        size: GPU memory to be exported at once, in bytes.
    """

    goal: Goal | None
    check: str = ""
    size: int = SIZE
    experiment: str = ""


@dataclass(frozen=True, slots=True)
class Result:
    """Result of a run.

    Attributes:
        diagnosis: The diagnosis; results of experiments overrule it.
        topology: Model of the PCIe tree; None if no PCI device is visible.
        nics: NICs of each GPU; None if malformed readings prevent it.
        planned: Experiments that fit this machine; none for a snapshot.
        inferred: The diagnosis without experiments.
    """

    diagnosis: Diagnosis
    topology: TopologyModel | None
    nics: NicMap | None = None
    planned: tuple[Experiment, ...] = ()
    inferred: Diagnosis | None = None


def open_machines(snapshots: Sequence[Path]) -> list[Machine]:
    """Return the machines of the snapshots, or this machine if there are none.

    Raises:
        ValueError: If a file is not a snapshot.
        OSError: If a file cannot be read.
    """
    return [load_machine(path) for path in snapshots] or [live_machine()]


def run(
    snapshots: Sequence[Path],
    request: Request,
    before: Result | None,
    progress: Progress,
) -> Result:
    """Run the doctor. Blocks for seconds: never call it on the kernel's event loop.

    The findings of a single check and of its consequences replace the corresponding ones in the
    result `before`.

    Raises:
        ValueError: As `diagnose`.
    """
    if request.experiment and before is not None:
        return _after_experiments(before, request.experiment, progress)
    with contextlib.ExitStack() as stack:
        machines = [stack.enter_context(machine) for machine in open_machines(snapshots)]
        size = request.size
        if not request.check or before is None:
            diagnosis = diagnose(machines, goal=request.goal, size=size, progress=progress)
            experiments = () if snapshots else tuple(_optional(lambda: plan(machines[0])) or ())
            nics = _optional(lambda: nic_map(diagnosis.case.machine))
            topology = _optional(lambda: topology_model(diagnosis))
            return Result(diagnosis, topology, nics, experiments, diagnosis)
        old = before.diagnosis
        only = _with_consequences(old, request.check)
        new = diagnose(machines, goal=old.goal, only=only, size=size, progress=progress)
        return replace(before, diagnosis=_merge(old, new, only))


def _optional(make: Callable[[], T]) -> T | None:
    """Return a part of the result; None if malformed readings prevent it."""
    try:
        return make()
    except Exception:
        return None


def _after_experiments(before: Result, kind: str, progress: Progress) -> Result:
    """Run the experiments of a kind; their results replace those of the last time."""
    chosen = [experiment for experiment in before.planned if experiment.name == kind]
    assert before.inferred is not None
    results = [result for result in before.diagnosis.tried if result.experiment.name != kind]
    for at, experiment in enumerate(chosen):
        progress(at, len(chosen))
        results.append(perform(experiment))
    order = {experiment: at for at, experiment in enumerate(before.planned)}
    results.sort(key=lambda result: order[result.experiment])
    return replace(before, diagnosis=overrule(before.inferred, results))


def _with_consequences(old: Diagnosis, check: str) -> list[str]:
    """Return a check and its consequences, whose findings have no remedies of their own."""
    only = [check]
    for cause in only:  # the list grows: a consequence may cause others
        follow = {finding.check for finding in old.findings if finding.follows == cause}
        only += sorted(follow.difference(only))
    return only


def _merge(old: Diagnosis, new: Diagnosis, only: Sequence[str]) -> Diagnosis:
    """Return a diagnosis with the findings of the checks `only` from `new`, others from `old`."""
    position = {known.name: index for index, known in enumerate(checks())}
    others = [finding for finding in old.findings if finding.check not in only]
    found = sorted([*others, *new.findings], key=lambda finding: position.get(finding.check, 0))
    findings = order(found, new.goal)
    return Diagnosis(
        case=new.case, findings=findings, data_paths=judge_data_paths(new.case, findings),
        chosen=old.chosen, took_s=new.took_s,
    )  # fmt: skip
