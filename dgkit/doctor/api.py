"""`dgkit.doctor()`: the package is called like a function, with plain values for everything."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from contextlib import ExitStack
from operator import index
from os import PathLike
from pathlib import Path
from types import ModuleType
from typing import Any

from msgspec import structs

from ..units import parse_size
from .collect.live import FAST_S, FULL_S
from .collect.snapshot import Recorded, Snapshot, load
from .collect.snapshot import record as store
from .diagnosis import Diagnosis, Progress, diagnose, here
from .goals import Goal
from .machine import SIZE, Machine
from .registry import named

__all__ = ["Callable", "ask", "files_of", "goal_of", "record", "recorded", "size_of"]


def goal_of(goal: Goal | str | None) -> Goal | None:
    """A goal by its name; None for "auto". ValueError names those that there are."""
    if goal is None or isinstance(goal, Goal) or goal == "auto":
        return goal if isinstance(goal, Goal) else None
    try:
        return Goal(goal)
    except ValueError:
        names = ", ".join(str(one) for one in Goal)
        raise ValueError(f"there is no goal {goal!r}; there are auto, {names}") from None


def size_of(size: int | str) -> int:
    """Bytes, of a number or a text like "4G". TypeError, ValueError: it is no size."""
    lent = parse_size(size) if isinstance(size, str) else index(size)
    if lent < 1:
        raise ValueError(f"size is {lent}; it must be one byte or more")
    return lent


def files_of(
    snapshots: str | PathLike[str] | Sequence[str | PathLike[str]] | None,
) -> list[Path]:
    """The files; none where this machine is meant. ValueError: a list of files with none in it."""
    if snapshots is None:
        return []
    files = [snapshots] if isinstance(snapshots, (str, PathLike)) else snapshots
    if not files:
        raise ValueError("there is no file in snapshots; without snapshots this machine is judged")
    return [Path(one) for one in files]


def recorded(path: str | PathLike[str]) -> Machine:
    """The machine of a snapshot. ValueError: the file is none; OSError."""
    return Machine(Recorded(load(Path(path))), Path(path).name)


def ask(
    goal: Goal | str | None = None,
    *,
    checks: str | Collection[str] = (),
    size: int | str = SIZE,
    fast: bool = False,
    snapshots: str | PathLike[str] | Sequence[str | PathLike[str]] | None = None,
    progress: Progress | None = None,
) -> Diagnosis:
    """Reads this machine, or the snapshots, and judges it: what works, what blocks the rest, why.

    `goal`: "arm-dma", "rdma", "gpunetio" or "laptop"; None takes what the machine looks like.
    `checks`: names of checks or families, all if there are none. `size`: GPU memory that is lent at
    once, in bytes or as "4G". `fast`: 2 s instead of 10 s. `snapshots`: files that were recorded
    elsewhere, of a host, a DPU, or both. ValueError: a name is not known, a file is no snapshot,
    both files are of the same side, or there is no file in `snapshots`; OSError. Nothing on the
    machine is changed.
    """
    wanted = goal_of(goal)
    lent, files = size_of(size), files_of(snapshots)
    only = [checks] if isinstance(checks, str) else checks
    how: dict[str, Any] = {
        "size": lent,
        "limit_s": FAST_S if fast else FULL_S,
        "progress": progress,
    }
    with ExitStack() as stack:  # Ctrl-C leaves no command behind
        machines = [recorded(path) for path in files] or [stack.enter_context(here(fast=fast))]
        found = diagnose(machines, goal=wanted, only=only, **how)
        other = _goal_for(only, found.goal) if wanted is None else None
        if other is None:
            return found
        again = diagnose(machines, goal=other, only=only, **how)
        return structs.replace(again, chosen=f"{found.goal} asks for none of these checks")


def _goal_for(only: Collection[str], chosen: Goal) -> Goal | None:
    """Another goal, if none of the checks that were asked for by name count for the one chosen."""
    wanted = list(named(only))
    if not wanted or any(chosen in one.goals for one in wanted):
        return None
    return next(goal for goal in Goal if goal in wanted[0].goals)


def record(
    path: str | PathLike[str],
    *,
    word: str = "",
    size: int = SIZE,
    progress: Progress | None = None,
) -> Snapshot:
    """Stores all that any check reads of this machine in a new file, fit to be shown to others.

    Serial numbers, GUIDs, UUIDs, addresses and names are replaced; with the same `word` by the same
    pseudonyms, so that a host's file and its DPU's fit together. Whoever knows the word can try out
    what stands behind a pseudonym. FileExistsError; OSError. It takes 10 s at most.
    """
    file = Path(path)
    file.open("xb").close()  # before anything is read: a folder may not be writable
    try:
        with here() as machine:
            made = store(machine, word=word, size=size, limit_s=FULL_S, progress=progress)
        made.save(file)
    except BaseException:
        file.unlink(missing_ok=True)
        raise
    return made


class Callable(ModuleType):
    """The class of the module `dgkit.doctor`: a module that is called as `ask` is."""

    __call__ = staticmethod(ask)
    diagnose = staticmethod(diagnose)
    load = staticmethod(load)
    record = staticmethod(record)


doctor: Callable  # what `dgkit.doctor` is, for type checkers
