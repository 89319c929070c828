# SPDX-License-Identifier: Apache-2.0
"""`dgkit doctor`: diagnose why a GPU and a DPU cannot reach each other."""

from __future__ import annotations

import shlex
import sys
import textwrap
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click

from ..units import plural
from .console import JSON_FILE, console, print_json, progress_bar, progress_bars, say
from .options import address, as_json, size

if TYPE_CHECKING:
    from ..doctor import Diagnosis
    from ..doctor.experiments.perform import Result
    from ..doctor.experiments.plan import Experiment
    from ..doctor.format.terminal import Line
    from ..doctor.registry import Check

_STYLES = {
    "fail": "bold red",
    "warn": "yellow",
    "unknown": "magenta",
    "ok": "green",
    "strong": "bold",
    "command": "cyan",
    "faint": "dim",
}
_MAX_WIDTH = 100


@click.command(short_help="Diagnose why a GPU and a DPU cannot reach each other.")
@click.argument("checks", nargs=-1, metavar="[CHECK]...")
@click.option(
    "--goal",
    default="auto",
    metavar="GOAL",
    help="arm-dma, host-dma, rdma, gpunetio, p2p, gpu, laptop, or auto, by the table above.",
)
@click.option(
    "--size",
    "exported",
    default="64M",
    type=size,
    metavar="SIZE",
    help="GPU memory to export at a time.",
)
@click.option("--quick", "fast", is_flag=True, help="Take less than 1 s instead of 10 s.")
@click.option("--fast", "old_fast", is_flag=True, hidden=True)
@click.option("--verbose", is_flag=True, help="Show all checks with their questions and sources.")
@click.option(
    "--explain",
    "explained",
    is_flag=True,
    help="Show the chain from the readings to the verdict, for the CHECKs or for all problems.",
)
@click.option(
    "--report",
    "reported",
    is_flag=True,
    help="Print one screen of text for a forum or an issue, with pseudonyms.",
)
@click.option(
    "--html",
    default="",
    show_default=False,
    metavar="FILE",
    help="With --report: also write it to FILE as a page for a browser.",
)
@click.option(
    "--symptom",
    metavar="TEXT",
    help="Explain an error text of another program: its causes, by what this machine shows. "
    "`-` reads a log from stdin.",
)
@click.option(
    "--try",
    "tries",
    is_flag=True,
    help="Also run harmless experiments, named first: contexts, copies, registrations, loopbacks.",
)
@click.option(
    "--program",
    default="",
    show_default=False,
    metavar="NAME",
    help="Is it the machine or the program? What nccl, ucx, nvshmem, deepep or llama.cpp needs.",
)
@click.option(
    "--compare",
    "pair",
    nargs=2,
    default=None,
    metavar="A B",
    help="Compare two recordings: what differs and matters for the goal, first.",
)
@click.option(
    "--peer",
    default=None,
    type=address,
    metavar="ADDRESS",
    help="With --try: also RDMA with the agent at ADDRESS (`dgkit serve --provider verbs`).",
)
@click.option(
    "--keys",
    default="",
    show_default=False,
    metavar="NAME",
    help="With --peer: this side's key pair.",
)
@click.option(
    "--nics",
    "maps",
    is_flag=True,
    help="Show which NIC serves which GPU: a table, the bridges, and what NCCL and UCX take.",
)
@click.option(
    "--from",
    "files",
    multiple=True,
    metavar="FILE",
    help="Diagnose a recorded machine. Repeatable.",
)
@click.option(
    "--record",
    "file",
    metavar="FILE",
    help="Record this machine to FILE, for a diagnosis elsewhere.",
)
@click.option(
    "--word",
    default="",
    show_default=False,
    metavar="WORD",
    help="With --record: secret from which pseudonyms are derived; use the same for both sides.",
)
@click.option(
    "--list", "list_", is_flag=True, help="List all checks by family, with their questions."
)
@as_json
def doctor(**options: Any) -> int:
    """Diagnose this machine, host or DPU: which data paths work, what blocks the better ones, and
    the commands to fix that. CHECK is the name of a check or of a family of checks.

    Changes nothing and needs no root; what it cannot read is listed. You decide which of the
    printed commands to run.

    `--explain` says what each check read, which facts follow, and why they give its verdict.
    `--report` prints what a thread needs, with pseudonyms, on one screen.

    `--symptom TEXT` explains an error of NCCL, UCX, NVSHMEM, DeepEP, NIXL, perftest, CUDA, DOCA or
    the kernel. Exit code 1: a cause was found here; 6: none was, or the text is not known.

    `--try` makes a CUDA context on each GPU, copies between each pair and compares, registers GPU
    memory with each RDMA device, and moves bytes by RDMA loopback and DOCA DMA: each in a process
    of its own with 30 s at most. A result overrules an inference, and the page says which it was.

    `--nics` shows, for each GPU, the nearest NIC that is up, their distance, the link in use, the
    GID and its network namespace, and what NCCL and UCX take. Exit code 1: no NIC is up.

    `--compare A B` judges two recordings for one goal: a machine that works and one that does not,
    or one before and after. Exit code 0: no verdict differs; 1: one does.

    `--program NAME` says whether the machine is fine for a program, and if so, which variables the
    program needs here. Exit code 0: the machine is fine; 1: it is not, or that is unknown.

    `--record FILE` stores the readings with pseudonyms for serial numbers, addresses and names;
    `--from FILE` diagnoses them elsewhere. A DPU's Arm cores cannot see the GPU, so record host and
    DPU with the same --word and diagnose both together.

    \b
    Goals (--goal) and what a machine has; auto takes the first line that fits:
      host-dma  no GPU on the host; a BlueField, not in NIC mode; DOCA
      arm-dma   the Arm side of a BlueField
      arm-dma   a GPU, not GeForce; a BlueField, not in NIC mode; DOCA or rshim
      rdma      a GPU, not GeForce; a NIC with RDMA of any vendor, or a BlueField
      p2p       several GPUs, not GeForce
      gpu       any other GPU
      laptop    no NVIDIA GPU
    gpunetio is never chosen automatically.

    \b
    Exit codes:
      0  everything works for this goal
      1  a failure: no data path to the goal works, or a check outside them fails
      5  works, with warnings; failures block other data paths only
      6  unknown: whether it works, or, if it does, the answer of a check
      2  wrong usage: unknown check, not a snapshot

    \b
    Examples:
      dgkit doctor
      dgkit doctor --goal gpunetio --size 4G
      dgkit doctor driver-flavour bar1-size --verbose
      dgkit doctor peermem --explain
      dgkit doctor --goal rdma --report
      dgkit doctor --symptom "ibv_modify_qp failed with error No such device"
      dgkit doctor --try
      dgkit doctor --program nccl
      dgkit doctor --nics
      dgkit doctor --compare good.snap bad.snap
      dgkit doctor --record host.snap --word rack7
      dgkit doctor --from host.snap --from dpu.snap
    """
    if options.pop("old_fast"):
        say("dgkit doctor: --fast is called --quick; the next release has no --fast")
        options["fast"] = True
    return _run(_Options(**options))


@dataclass(frozen=True, slots=True)
class _Options:
    """Arguments and options of the command, by the names that click gives them."""

    checks: tuple[str, ...]
    goal: str
    exported: int
    fast: bool
    verbose: bool
    explained: bool
    reported: bool
    html: str
    symptom: str | None
    tries: bool
    program: str
    pair: tuple[str, str] | None
    peer: str | None
    keys: str
    maps: bool
    files: tuple[str, ...]
    file: str | None
    word: str
    list_: bool
    json_: bool


def _run(options: _Options) -> int:
    path = click.get_current_context().meta[JSON_FILE]
    if path is not None and str(path) in {check.name for check in _all_checks()}:
        raise click.UsageError(f"--json {path}: this is a check; CHECKs stand before --json")
    if options.list_:
        return _list_checks(options.checks, options.json_)
    if options.file is not None:
        return _record(options, options.file)
    if options.word:
        raise click.UsageError("--word requires --record FILE")
    _check_form(options)
    if options.html and not options.reported:
        raise click.UsageError("--html requires --report")
    if (options.peer and not options.tries) or (options.keys and not options.peer):
        raise click.UsageError("--peer requires --try, and --keys requires --peer")
    if options.program:
        return _program(options)
    if options.maps:
        return _nics(options)
    if options.pair:
        return _compare(options, *options.pair)
    if options.tries:
        diagnosis = _try(options)
        return _print_diagnosis(options, diagnosis)
    if options.symptom is not None:
        return _explain_symptom(options)
    if options.reported:
        return _report(options)
    if options.explained:
        names = _names(options.checks)
        diagnosis = _diagnose(options)
        _explain(diagnosis, names)
        return diagnosis.exit_code
    return _print_diagnosis(options, _diagnose(options, options.checks))


def _print_diagnosis(options: _Options, diagnosis: Diagnosis) -> int:
    if options.json_:
        print_json(diagnosis.as_dict())
    else:
        show(diagnosis, verbose=options.verbose)
    return diagnosis.exit_code


def _print_page(page: Callable[..., Iterable[Line]], *of: object, **options: object) -> None:
    """Print the lines that a function makes for the width of the terminal."""
    out = console()
    for line in page(*of, **options, width=min(out.width, _MAX_WIDTH)):
        out.print(_styled(line), soft_wrap=True)


def _compare(options: _Options, first: str, second: str) -> int:
    """Compare two recordings; 0 if no verdict differs, else 1."""
    from ..doctor.api import compared
    from ..doctor.format.pages import comparison_page

    with _usage(first, second):
        found = compared(first, second, options.goal.lower(), size=options.exported)
    if options.json_:
        print_json(found.as_dict())
    else:
        _print_page(comparison_page, found)
    return int(any(each.is_relevant for each in found.differences))


def _program(options: _Options) -> int:
    """Say whether the machine is fine for a program, and what that needs."""
    from ..doctor.api import needs
    from ..doctor.format.pages import needs_page

    files = options.files
    if len(files) > 1:
        raise click.UsageError(f"--program is about one machine: omit --from {files[1]}")
    with _usage(*files), _progress("Reading this machine") as progress:
        file = files[0] if files else None
        found = needs(options.program.lower(), file, fast=options.fast, progress=progress)
    if options.json_:
        print_json(found.as_dict())
    else:
        _print_page(needs_page, found)
    return 0 if found.fine else 1


def _nics(options: _Options) -> int:
    """Show which NIC serves which GPU."""
    from ..doctor.api import nics

    if len(options.files) > 1:
        raise click.UsageError(f"--nics is about one machine: omit --from {options.files[1]}")
    with _usage(*options.files):
        found = nics(options.files[0] if options.files else None)
    if options.json_:
        print_json(found.as_dict())
    else:
        click.echo(str(found))
    return 0 if any(choice.nic for choice in found.choices) else 1


def _try(options: _Options) -> Diagnosis:
    """Run the experiments; name them, and each result, on stderr."""
    from ..doctor.api import attempt

    def announce(experiments: Sequence[Experiment]) -> None:
        say(f"{plural(len(experiments), 'experiment')}, each for at most 30 s:")
        for experiment in experiments:
            say(f"  {experiment.does}")

    def done(result: Result) -> None:
        found = result.as_dict()
        say(f"{found['verdict']}: {found['subject']}: {found['experiment']}: {found['said']}")

    with _usage():
        return attempt(
            options.goal.lower(),
            size=options.exported,
            peer=options.peer or "",
            keys=options.keys,
            announce=announce,
            done=done,
        )


def _diagnose(options: _Options, checks: tuple[str, ...] = ()) -> Diagnosis:
    from ..doctor.api import examine

    files = options.files
    if "" in files:
        raise click.UsageError("--from requires the name of a file, not ''")
    text = "Diagnosing" if files else "Reading this machine"
    shown = nullcontext() if options.fast else _progress(text)
    with _usage(*files), shown as progress:
        return examine(
            options.goal.lower(),
            checks=checks,
            size=options.exported,
            fast=options.fast,
            snapshots=files or None,
            progress=progress,
        )


def _check_form(options: _Options) -> None:
    """Refuse options that ask for different forms of the answer."""
    explained, reported = options.explained, options.reported
    forms = {"--explain": explained, "--report": reported}
    forms |= {"--verbose": options.verbose, "--json": options.json_}
    if options.symptom is not None:
        forms |= {"--symptom": True, "--json": False, "CHECK": bool(options.checks)}
    if options.tries:
        forms |= {"--try": True, "--verbose": False, "--json": False, "--quick": options.fast}
        forms |= {"CHECK": bool(options.checks), "--from": bool(options.files)}
    if options.program:
        forms |= {"--program": True, "--json": False, "CHECK": bool(options.checks)}
    if options.pair:
        forms |= {"--compare": True, "--json": False, "CHECK": bool(options.checks)}
        forms |= {"--from": bool(options.files), "--quick": options.fast}
    if options.maps:
        forms |= {"--nics": True, "--json": False, "CHECK": bool(options.checks)}
    given = [name for name, wanted in forms.items() if wanted]
    forms_of_their_own = (explained, reported, options.symptom is not None, options.tries)
    single = any((*forms_of_their_own, options.maps, options.pair, options.program))
    if len(given) > 1 and single:
        raise click.UsageError(f"{' and '.join(given)} exclude each other")
    if reported and options.checks:
        raise click.UsageError(f"--report is about the whole machine: omit {options.checks[0]}")


def _names(checks: tuple[str, ...]) -> tuple[str, ...]:
    """Return the names of the requested checks and of those of requested families."""
    from ..doctor.registry import named

    with _usage():
        return tuple(check.name for check in named(checks))


def _explain(diagnosis: Diagnosis, names: tuple[str, ...]) -> None:
    from ..doctor.format.explain import explain

    _print_page(explain, diagnosis, names)


def _explain_symptom(options: _Options) -> int:
    from ..doctor.api import explain_text

    text, files = options.symptom or "", options.files
    if text == "-":
        text = sys.stdin.buffer.read().decode("utf-8", "replace")
    with _usage(*files), _progress("Reading this machine") as progress:
        found = explain_text(
            text,
            options.goal.lower(),
            size=options.exported,
            fast=options.fast,
            snapshots=files or None,
            progress=progress,
        )
    if options.json_:
        print_json(found.as_dict())
    else:
        from ..doctor.format.pages import symptom_page

        _print_page(symptom_page, found)
    return found.exit_code


def _report(options: _Options) -> int:
    from ..doctor.api import report

    files = options.files
    page = [options.html] if options.html else []
    with _usage(*files, *page), _progress("Reading this machine") as progress:
        text = report(
            options.goal.lower(), size=options.exported, snapshots=files or None,
            html=options.html, progress=progress,
        )  # fmt: skip
    click.echo(text)
    return 0


@contextmanager
def _usage(*files: str) -> Iterator[None]:
    """Turn errors about unknown names and unreadable files into usage errors."""
    try:
        yield
    except ValueError as error:
        raise click.UsageError(f"{error}") from None
    except OSError as error:
        name = error.filename or ", ".join(files)  # an error while reading has no file name
        raise click.UsageError(f"{name}: {error.strerror or error}") from None


@contextmanager
def _progress(text: str) -> Iterator[Callable[[int, int], None]]:
    with progress_bars() as progress, progress_bar(progress, text) as advance:
        yield advance


def show(diagnosis: Diagnosis, *, verbose: bool) -> None:
    """Print the page of a diagnosis."""
    from ..doctor.format.terminal import page

    _print_page(page, diagnosis, verbose=verbose)


def _styled(line: Line) -> Any:
    from rich.text import Text

    return Text.assemble(*((span.text, _STYLES.get(span.style, "")) for span in line))


_REPLACED = (
    *("serial numbers", "GUIDs", "UUIDs", "MAC addresses", "IP addresses"),
    *("host names", "user names", "disks", "folders"),
)


def _check_recording(options: _Options) -> None:
    if options.file == "-":
        raise click.UsageError("--record requires the name of a new file, not `-`")
    if options.checks or options.files:
        given = options.checks[0] if options.checks else "--from"
        raise click.UsageError(
            f"--record stores the readings of all checks on this machine: omit {given}"
        )


def _record(options: _Options, file: str) -> int:
    from ..doctor.api import record

    _check_recording(options)
    with _usage(file), _progress("Recording this machine") as progress:
        snapshot = record(file, word=options.word, size=options.exported, progress=progress)
    if options.json_:
        print_json({"file": file, "readings": len(snapshot.readings), "replaced": _REPLACED})
        return 0
    click.echo(f"{file}: {len(snapshot.readings)} readings of this machine.")
    click.echo(f"Replaced by pseudonyms: {', '.join(_REPLACED)}.")
    click.echo("The file is text: review it before you share it (an issue, a forum).")
    click.echo(f"Diagnose it with:\n  dgkit doctor --from {shlex.quote(file)}")
    if not options.word:
        click.echo("To combine it with a recording of the other side, record both with one --word.")
    return 0


def _all_checks() -> Sequence[Check]:
    from ..doctor.registry import checks

    return checks()


def _list_checks(names: tuple[str, ...], json_: bool) -> int:
    from ..doctor.registry import checks, named

    with _usage():
        listed = tuple(dict.fromkeys(named(names))) if names else checks()
    if json_:
        print_json([{"name": c.name, "family": c.family, "asks": c.asks} for c in listed])
        return 0
    width = max(len(check.name) for check in listed) + 4
    family = ""
    for check in listed:
        if check.family != family:
            family = check.family
            click.echo(family)
        first, *rest = textwrap.wrap(check.asks, _MAX_WIDTH - width)
        rest = [" " * width + line for line in rest]
        click.echo("\n".join([f"  {check.name:<{width - 2}}{first}", *rest]))
    return 0
