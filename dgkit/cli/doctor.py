"""`dgkit doctor`: why GPU and DPU do not talk, and what to type."""

from __future__ import annotations

import shlex
import textwrap
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import click

from .console import console, print_json, step, steps
from .options import as_json, size

if TYPE_CHECKING:
    from ..doctor import Diagnosis
    from ..doctor.format.terminal import Line

__all__ = ["doctor"]

_STYLES = {
    "fail": "bold red",
    "warn": "yellow",
    "cannot tell": "magenta",
    "ok": "green",
    "strong": "bold",
    "command": "cyan",
    "faint": "dim",
}
_WIDEST = 100


@click.command(short_help="Why GPU and DPU do not talk, and what to do.")
@click.argument("checks", nargs=-1, metavar="[CHECK]...")
@click.option(
    "--goal",
    default="auto",
    metavar="GOAL",
    help="arm-dma, rdma, gpunetio or laptop; auto is what this machine looks like.",
)
@click.option(
    "--size", "lent", default="64M", type=size, help="GPU memory to be lent at once.  [64M]"
)
@click.option("--fast", is_flag=True, help="Take 2 s at most, instead of 10 s.")
@click.option("--verbose", is_flag=True, help="Show all checks, their questions and sources.")
@click.option(
    "--from", "files", multiple=True, metavar="FILE", help="Judge a recorded machine. Repeatable."
)
@click.option("--record", "file", metavar="FILE", help="Store what is read, for others to judge.")
@click.option(
    "--word",
    default="",
    metavar="WORD",
    help="With --record: the same word, the same pseudonyms. Take one that nobody guesses.",
)
@click.option("--list", "list_", is_flag=True, help="List families, checks and what each asks.")
@as_json
def doctor(
    checks: tuple[str, ...],
    goal: str,
    lent: int,
    fast: bool,
    verbose: bool,
    files: tuple[str, ...],
    file: str | None,
    word: str,
    list_: bool,
    json_: bool,
) -> int:
    """Read this machine, host or DPU, and say in one page which way of moving bytes works, what
    blocks the better ones, and the commands that mend it. CHECK is a check or a family of them.

    It changes nothing and needs no root: what it cannot see, it names. A command that it prints is
    for you to run.

    `--record FILE` stores what it reads, with pseudonyms in place of serial numbers, addresses and
    names; `--from FILE` judges that elsewhere. The Arm cores cannot see the GPU, so record host and
    DPU with the same --word, and judge them together.

    \b
    Exit codes:
      0  all is well, for this goal
      1  something fails: no way to the goal works, or a check that no way rests on fails
      5  it works, with warnings; what fails blocks other ways only
      6  something cannot be told: whether it works; or it does, and a check has no answer
      2  wrong usage: no such check, no snapshot

    \b
    Examples:
      dgkit doctor
      dgkit doctor --goal gpunetio --size 4G
      dgkit doctor driver-flavour bar1-size --verbose
      dgkit doctor --record host.snap --word rack7
      dgkit doctor --from host.snap --from dpu.snap
    """
    if list_:
        return _list(checks, json_)
    if file is not None:
        _check_recording(file, checks, files)
        return _record(file, word=word, lent=lent, json_=json_)
    if word:
        raise click.UsageError("--word goes with --record FILE")
    found = _judged(checks, goal=goal, lent=lent, fast=fast, files=files)
    if json_:
        print_json(found.as_dict())
    else:
        _show(found, verbose=verbose)
    return found.exit_code


def _judged(checks: tuple[str, ...], *, files: tuple[str, ...], **how: Any) -> Diagnosis:
    from ..doctor.api import examine

    if "" in files:
        raise click.UsageError("--from takes the name of a file, not ''")
    with _usage(*files), _progress("Judging" if files else "Reading this machine") as progress:
        return examine(
            how["goal"].lower(),
            checks=checks,
            size=how["lent"],
            fast=how["fast"],
            snapshots=files or None,
            progress=progress,
        )


@contextmanager
def _usage(*files: str) -> Iterator[None]:
    """A name that is not known and a file that is no snapshot are the caller's: one line."""
    try:
        yield
    except ValueError as error:
        raise click.UsageError(f"{error}") from None
    except OSError as error:
        name = error.filename or ", ".join(files)  # to read may fail, too, and then has no name
        raise click.UsageError(f"{name}: {error.strerror or error}") from None


@contextmanager
def _progress(text: str) -> Iterator[Callable[[int, int], None]]:
    with steps() as progress, step(progress, text) as advance:
        yield advance


def _show(found: Diagnosis, *, verbose: bool) -> None:
    from ..doctor.format.terminal import page

    out = console()
    for line in page(found, verbose=verbose, width=min(out.width, _WIDEST)):
        out.print(_styled(line), soft_wrap=True)


def _styled(line: Line) -> Any:
    from rich.text import Text

    return Text.assemble(*((span.text, _STYLES.get(span.style, "")) for span in line))


_REPLACED = (
    *("serial numbers", "GUIDs", "UUIDs", "MAC addresses", "IP addresses"),
    *("host names", "user names", "disks", "folders"),
)


def _check_recording(file: str, checks: tuple[str, ...], files: tuple[str, ...]) -> None:
    if file == "-":
        raise click.UsageError("--record takes the name of a file that is not there yet, not `-`")
    if checks or files:
        given = checks[0] if checks else "--from"
        raise click.UsageError(f"--record stores what all checks read here: leave {given} out")


def _record(file: str, *, word: str, lent: int, json_: bool) -> int:
    from ..doctor.api import record

    with _usage(file), _progress("Recording this machine") as progress:
        made = record(file, word=word, size=lent, progress=progress)
    if json_:
        print_json({"file": file, "readings": len(made.readings), "replaced": _REPLACED})
        return 0
    click.echo(f"{file}: {len(made.readings)} readings of this machine.")
    click.echo(f"Replaced by pseudonyms: {', '.join(_REPLACED)}.")
    click.echo(
        "It is text: look it through, then send it to whoever is to help (an issue, a forum)."
    )
    click.echo(f"They judge it by:\n  dgkit doctor --from {shlex.quote(file)}")
    if not word:
        click.echo("To go with a recording of the other side, both need the same --word.")
    return 0


def _list(words: tuple[str, ...], json_: bool) -> int:
    from ..doctor.registry import checks, named

    with _usage():
        known = tuple(dict.fromkeys(named(words))) if words else checks()
    if json_:
        print_json([{"name": c.name, "family": c.family, "asks": c.asks} for c in known])
        return 0
    wide = max(len(one.name) for one in known) + 4
    family = ""
    for one in known:
        if one.family != family:
            family = one.family
            click.echo(family)
        first, *rest = textwrap.wrap(one.asks, _WIDEST - wide)
        click.echo("\n".join([f"  {one.name:<{wide - 2}}{first}", *(" " * wide + r for r in rest)]))
    return 0
