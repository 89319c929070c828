# SPDX-License-Identifier: Apache-2.0
"""`dgkit.doctor()`: the package as a callable, with plain values as arguments."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from contextlib import ExitStack
from os import PathLike
from pathlib import Path
from secrets import token_hex
from types import ModuleType
from typing import TYPE_CHECKING, Any

from msgspec import structs

from ..validate import byte_count
from .collect.live import FAST_S, FULL_S
from .collect.snapshot import RecordedReader, Snapshot, load
from .diagnosis import Diagnosis
from .experiments.overrule import overrule
from .experiments.perform import Result, perform
from .experiments.plan import Experiment, plan
from .finding import Verdict
from .goals import Goal
from .machine import SIZE, Machine
from .program_needs import TITLES, Answer, answer, goal_of
from .record import record as store
from .redact.redactor import Redactor
from .registry import named
from .runner import Progress, diagnose, live_machine
from .snapshot_comparison import Comparison, compare
from .symptoms import Explanations, explain, kernel_words, matches, needed_checks, taken_apart

if TYPE_CHECKING:
    from .format.nics import NicMap


def parse_goal(goal: Goal | str | None) -> Goal | None:
    """Return the goal with this name; None if the name is "auto" or None.

    Raises:
        ValueError: If there is no such goal.
    """
    if goal is None or isinstance(goal, Goal) or goal == "auto":
        return goal if isinstance(goal, Goal) else None
    try:
        return Goal(goal)
    except ValueError:
        names = ", ".join(map(str, Goal))
        raise ValueError(f"there is no goal {goal!r}; choose auto, {names}") from None


def snapshot_paths(
    snapshots: str | PathLike[str] | Sequence[str | PathLike[str]] | None,
) -> list[Path]:
    """Return the paths of snapshots; an empty list for None, which stands for this machine.

    Raises:
        ValueError: If it is an empty list.
    """
    if snapshots is None:
        return []
    files = [snapshots] if isinstance(snapshots, (str, PathLike)) else snapshots
    if not files:
        raise ValueError("snapshots is empty; leave it out to judge this machine")
    return [Path(file) for file in files]


def load_machine(path: str | PathLike[str]) -> Machine:
    """Return the machine of a snapshot.

    Raises:
        ValueError: If the file is not a snapshot, and of no program that is known (`_load`).
        OSError: If it cannot be read.
    """
    return Machine(RecordedReader(_load(Path(path))), Path(path).name)


def _load(path: Path) -> Snapshot:
    """Return a snapshot, or the readings of a file of another program, by its content."""
    from .collect import bug_report, packed, rdma_topo, sysinfo

    others = (
        (bug_report.is_log, bug_report.read),
        (rdma_topo.is_dump, rdma_topo.read),
        (sysinfo.is_archive, sysinfo.read),
    )
    if path.is_file():
        with path.open("rb") as file:
            first = file.read(1 << 16)
            for fits, read in others:
                if fits(packed.head(first)):
                    try:
                        return read(first + file.read(packed.MAX_BYTES))
                    except ValueError as error:
                        raise ValueError(f"{path}: {error}") from None
    return load(path)


def examine(
    goal: Goal | str | None = None,
    *,
    checks: str | Collection[str] = (),
    size: int | str = SIZE,
    fast: bool = False,
    snapshots: str | PathLike[str] | Sequence[str | PathLike[str]] | None = None,
    progress: Progress | None = None,
) -> Diagnosis:
    """Read this machine or snapshots; judge which data paths work and what blocks the others.

    Nothing on the machine is changed.

    Args:
        goal: "arm-dma", "host-dma", "rdma", "gpunetio", "p2p", "gpu" or "laptop"; None chooses a
            goal from the devices and software of the machine (automatic_goal.py).
        checks: Names of checks or families, all if empty.
        size: GPU memory to be exported at once, in bytes or as "4G".
        fast: Take less than 1 s instead of 10 s.
        snapshots: Files recorded on other machines: of a host, a DPU, or both.
        progress: Called with the number of completed checks and their total.

    Raises:
        ValueError: If a name is unknown, a file is not a snapshot, both files are of the same side,
            or `snapshots` is empty.
        OSError: If a file cannot be read.
    """
    wanted = parse_goal(goal)
    n_bytes, files = byte_count("size", size, 1), snapshot_paths(snapshots)
    only = [checks] if isinstance(checks, str) else checks
    options: dict[str, Any] = {
        "size": n_bytes,
        "limit_s": FAST_S if fast else FULL_S,
        "progress": progress,
    }
    with ExitStack() as stack:  # kills the commands that are still running
        machines = [load_machine(path) for path in files]
        machines = machines or [stack.enter_context(live_machine(fast=fast))]
        found = diagnose(machines, goal=wanted, only=only, **options)
        others = _other_goals(only, found.goal) if wanted is None else []
        again = [diagnose(machines, goal=goal, only=only, **options) for goal in others]
        if not again:
            return found
        best = next(
            (finding for finding in again if finding.verdict is not Verdict.NOT_APPLICABLE),
            again[0],
        )
        return structs.replace(best, chosen=f"the goal {found.goal} needs none of these checks")


def attempt(
    goal: Goal | str | None = None,
    *,
    size: int | str = SIZE,
    peer: str = "",
    keys: str = "",
    announce: Callable[[Sequence[Experiment]], None] | None = None,
    done: Callable[[Result], None] | None = None,
    progress: Progress | None = None,
) -> Diagnosis:
    """Read this machine, run the experiments that fit it, and let their results overrule.

    Each experiment runs in a child process for at most 30 s. None changes a setting: contexts,
    memory, registrations and queues are made and freed again.

    Args:
        goal: As for `examine`.
        size: As for `examine`.
        peer: Address of an agent of provider verbs on another machine (`dgkit serve --provider
            verbs`): its or this machine's memory is written and read by RDMA.
        keys: Name of this side's key pair, for `peer`.
        announce: Called with the experiments before the first one runs.
        done: Called with each result.
        progress: As for `examine`.
    """
    wanted, n_bytes = parse_goal(goal), byte_count("size", size, 1)
    with live_machine() as machine:
        diagnosis = diagnose([machine], goal=wanted, size=n_bytes, progress=progress)
        experiments = plan(machine, peer, keys)
    if announce is not None:
        announce(experiments)
    results = []
    for experiment in experiments:
        results.append(perform(experiment))
        if done is not None:
            done(results[-1])
    return overrule(diagnosis, results)


def compared(
    first: str | PathLike[str],
    second: str | PathLike[str],
    goal: Goal | str | None = None,
    *,
    size: int | str = SIZE,
) -> Comparison:
    """Compare two snapshots, of two machines or of one machine at two times, for a goal.

    Args:
        first: File A.
        second: File B.
        goal: As for `examine`; None takes that of A.
        size: As for `examine`.

    Raises:
        ValueError: If a file is not a snapshot, or there is no such goal.
        OSError: If a file cannot be read.
    """
    machines = [load_machine(first), load_machine(second)]
    return compare(*machines, goal=parse_goal(goal), size=byte_count("size", size, 1))


def needs(
    program: str,
    snapshot: str | PathLike[str] | None = None,
    *,
    fast: bool = False,
    progress: Progress | None = None,
) -> Answer:
    """Return whether the machine is fine for a program, and if so what the program needs.

    Args:
        program: "nccl", "ucx", "nvshmem", "deepep" or "llama.cpp".
        snapshot: A file recorded on another machine; None reads this machine.
        fast: Take less than 1 s instead of 10 s.
        progress: As for `examine`.

    Raises:
        ValueError: If there is no such program, or the file is not a snapshot.
        OSError: If the file cannot be read.
    """
    if program not in TITLES:
        raise ValueError(f"there is no program {program!r}; choose {', '.join(TITLES)}")
    limit = FAST_S if fast else FULL_S
    with ExitStack() as stack:
        machine = None if snapshot is None else load_machine(snapshot)
        machine = machine or stack.enter_context(live_machine(fast=fast))
        goal = goal_of(program, machine)
        found = diagnose([machine], goal=goal, limit_s=limit, progress=progress)
        return answer(program, machine, found)


def nics(snapshot: str | PathLike[str] | None = None) -> NicMap:
    """Return which NIC serves which GPU of this machine or of a snapshot: a table and a drawing.

    Args:
        snapshot: A file recorded on another machine; None reads this machine.

    Raises:
        ValueError: If the file is not a snapshot.
        OSError: If it cannot be read.
    """
    from .format.nics import nic_map

    if snapshot is not None:
        return nic_map(load_machine(snapshot))
    with live_machine() as machine:
        return nic_map(machine)


def explain_text(
    text: str,
    goal: Goal | str | None = None,
    *,
    size: int | str = SIZE,
    fast: bool = False,
    snapshots: str | PathLike[str] | Sequence[str | PathLike[str]] | None = None,
    progress: Progress | None = None,
) -> Explanations:
    """Explain the error texts of other programs in a log, by what this machine or snapshots show.

    Args:
        text: The log.
        goal: As for `examine`; None takes the goal of those who see the text.
        size: GPU memory to be exported at once, in bytes or as "4G".
        fast: Take less than 1 s instead of 10 s.
        snapshots: Files recorded on other machines.
        progress: Called with the number of completed checks and their total.

    Raises:
        ValueError: As `examine`, or if the text is empty.
        OSError: If a file cannot be read.
    """
    if not text.strip():
        raise ValueError("the error text is empty")
    found = matches(text) or taken_apart(text)
    wanted = parse_goal(goal) or (found[0].symptom.goal if found else Goal.RDMA)
    only = needed_checks(found) or ("kernel-version",)
    limit = FAST_S if fast else FULL_S
    n_bytes, files = byte_count("size", size, 1), snapshot_paths(snapshots)
    with ExitStack() as stack:
        machines = [load_machine(path) for path in files]
        machines = machines or [stack.enter_context(live_machine(fast=fast))]
        kernel, unread = kernel_words(machines[0])
        diagnosis = diagnose(
            machines, goal=wanted, only=only, size=n_bytes, limit_s=limit, progress=progress
        )
    return Explanations(tuple(explain(found, diagnosis)), tuple(kernel), unread)


def _other_goals(only: Collection[str], chosen: Goal) -> list[Goal]:
    """Return the goals of the requested checks; [] if a check counts for the chosen goal."""
    wanted = list(named(only))
    if not wanted or any(chosen in check.goals for check in wanted):
        return []
    return [goal for goal in Goal if goal in wanted[0].goals]


def record(
    path: str | PathLike[str],
    *,
    word: str = "",
    size: int = SIZE,
    progress: Progress | None = None,
) -> Snapshot:
    """Store all readings of all checks on this machine in a new file that is safe to share.

    Recording takes at most 60 s, most of them on slow Arm cores.

    Args:
        path: The file; it must not exist.
        word: Secret from which the pseudonyms of serial numbers, GUIDs, UUIDs, addresses and names
            are derived. The same word gives the same pseudonyms, so that the files of a host and
            its DPU match. Anybody who knows the word can test guesses of the original values.
        size: GPU memory to be exported at once, in bytes.
        progress: Called with the number of completed checks and their total.

    Raises:
        FileExistsError: If the file exists.
        OSError: If it cannot be written.
    """
    file = Path(path)
    file.open("xb").close()  # before the checks run, as the folder may not be writable
    try:
        with live_machine(recorded=True) as machine:
            snapshot = store(machine, word=word, size=size, progress=progress)
        snapshot.save(file)
    except BaseException:
        file.unlink(missing_ok=True)
        raise
    return snapshot


def redacted_machine(snapshot: Snapshot, name: str, word: str) -> Machine:
    """Return a snapshot's machine with new pseudonyms, in place of the snapshot's own, too."""
    hidden = Redactor(word).redact(snapshot.readings)
    return Machine(RecordedReader(structs.replace(snapshot, readings=hidden)), name)


def report(
    goal: Goal | str | None = None,
    *,
    size: int | str = SIZE,
    snapshots: str | PathLike[str] | Sequence[str | PathLike[str]] | None = None,
    html: str | PathLike[str] = "",
    progress: Progress | None = None,
) -> str:
    """Return one screen of text about this machine, or snapshots, that is safe to publish.

    Text that identifies a machine or a person is replaced by pseudonyms before the checks run. A
    report takes at most 10 s.

    Args:
        goal: As in `examine`.
        size: As in `examine`.
        snapshots: As in `examine`.
        html: File in which the whole page is written, too; it must not exist.
        progress: As in `examine`.

    Raises:
        ValueError: As in `examine`.
        OSError: If a file cannot be read or written.
    """
    from .format.report import html_page
    from .format.report import report as write

    wanted, n_bytes, word = parse_goal(goal), byte_count("size", size, 1), token_hex(16)
    files = snapshot_paths(snapshots)
    machines = [redacted_machine(_load(path), path.name, word) for path in files]
    if not machines:
        with live_machine() as machine:
            found = store(machine, word=word, size=n_bytes, limit_s=FULL_S, progress=progress)
        machines = [Machine(RecordedReader(found), "this machine")]
    diagnosis = diagnose(machines, goal=wanted, size=n_bytes)
    if html:
        with Path(html).open("x", encoding="utf-8") as file:
            file.write(html_page(diagnosis))
    return write(diagnosis)


class CallableModule(ModuleType):
    """Class of the module `dgkit.doctor`: calling the module calls `examine`."""

    __call__ = staticmethod(examine)
    needs = staticmethod(needs)
    nics = staticmethod(nics)
    compare = staticmethod(compared)
    attempt = staticmethod(attempt)
    diagnose = staticmethod(diagnose)
    load = staticmethod(load)
    record = staticmethod(record)
    report = staticmethod(report)


doctor: CallableModule  # type of `dgkit.doctor`, for type checkers
