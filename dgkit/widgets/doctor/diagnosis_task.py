"""One run of the doctor for a panel: of this machine or of snapshots, of all checks or of one."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from ...doctor.collect.snapshot import Recorded, load
from ...doctor.data_paths import ways
from ...doctor.diagnosis import Diagnosis, diagnose, here
from ...doctor.goals import Goal
from ...doctor.machine import SIZE, Machine
from ...doctor.registry import checks
from .topology_model import Picture, picture

__all__ = ["Judged", "Order", "judge", "machines"]

Progress = Callable[[int, int], None]


@dataclass(frozen=True, slots=True)
class Order:
    """What is to be run. `goal` None: as the machine looks. `check` "": all of them. `size`: of
    GPU memory that is lent at once."""

    goal: Goal | None
    check: str = ""
    size: int = SIZE


@dataclass(frozen=True, slots=True)
class Judged:
    """What a run gave. `picture` is None where no PCI device is to be seen."""

    diagnosis: Diagnosis
    picture: Picture | None


def machines(snapshots: Sequence[Path]) -> list[Machine]:
    """Those of the files, read now; else this one. ValueError, OSError: a file is no snapshot."""
    if not snapshots:
        return [here()]
    return [Machine(Recorded(load(path)), path.name) for path in snapshots]


def judge(
    snapshots: Sequence[Path], order: Order, before: Judged | None, progress: Progress
) -> Judged:
    """Takes as long as the doctor does: never called from the kernel's loop.

    One check is put into what was found `before`; ValueError as of `diagnose`.
    """
    with contextlib.ExitStack() as stack:
        found = [stack.enter_context(machine) for machine in machines(snapshots)]
        if not order.check or before is None:
            made = diagnose(found, goal=order.goal, size=order.size, progress=progress)
            return Judged(made, _pictured(made))
        old = before.diagnosis
        only = [order.check]
        new = diagnose(found, goal=old.goal, only=only, size=order.size, progress=progress)
        return Judged(_renewed(old, new, order.check), before.picture)


def _pictured(made: Diagnosis) -> Picture | None:
    try:
        return picture(made)
    except Exception:  # odd readings take the drawing, and nothing else
        return None


def _renewed(old: Diagnosis, new: Diagnosis, check: str) -> Diagnosis:
    at = {one.name: at for at, one in enumerate(checks())}
    kept = [one for one in old.findings if one.check != check]
    order = sorted([*kept, *new.findings], key=lambda one: (-one.verdict, at.get(one.check, 0)))
    return Diagnosis(
        case=new.case, findings=tuple(order), ways=ways(new.case, order),
        chosen=old.chosen, took_s=new.took_s,
    )  # fmt: skip
