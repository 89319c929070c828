# SPDX-License-Identifier: Apache-2.0
"""`dgkit fleet`: many pairs of host and DPU, on a Dask cluster."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from ..errors import DgkitError
from ..installation import NeedsExtra
from .console import console, progress_bar, progress_bars, say
from .exit_codes import FAILED, OK
from .json_file import STDOUT, json_option, output_file, write_document
from .options import (
    choice,
    comma_separated,
    count_option,
    ops_option,
    seconds_option,
    size,
)
from .tables import plain_table

if TYPE_CHECKING:
    from ..fleet import Fleet, Sweep

F = TypeVar("F", bound=Callable[..., Any])

_SHOWN = 20  # most pairs, stragglers and failures on the screen; --json has all of them


@click.group(short_help="Measure and diagnose many pairs of host and DPU, on Dask.")
def fleet() -> None:
    """Measure and diagnose many pairs of host and DPU, on a Dask cluster (extra `fleet`).

    Each worker of the cluster opens a session, with a software DPU where no agent is given. Two
    pairs of one machine are never measured at the same time. Whoever reaches a Dask scheduler can
    run code on the cluster, so TLS is required beyond this machine, with the certificates of Dask's
    configuration.

    \b
    Examples:
      dgkit fleet demo
      dgkit fleet sweep --scheduler tls://head:8786 --folder monday
      dgkit fleet sweep --scheduler tls://head:8786 --folder monday --resume
      dgkit fleet doctor --scheduler tls://head:8786
    """


def _sweep_options(command: F) -> F:
    """Add the options of a sweep."""
    options = (
        click.option(
            "--sizes",
            type=comma_separated(size),
            default="64,4K,64K,1M",
            metavar="LIST",
            help="Bytes per operation; K is 1024.",
        ),
        ops_option,
        click.option(
            "--paths",
            type=comma_separated(choice("auto", "inline", "worker")),
            default="auto",
            metavar="LIST",
            help="inline: the caller copies; worker: the provider's thread copies; auto: the "
            "faster one.",
        ),
        count_option,
        seconds_option,
        click.option(
            "--folder",
            type=click.Path(file_okay=False, path_type=Path),
            help="Folder for Parquet files, one for each pair, op and path.",
        ),
        click.option("--resume", is_flag=True, help="Continue from the files in --folder."),
        json_option,
    )
    for option in reversed(options):
        command = option(command)
    return command


def _scheduler(text: str) -> str:
    """Check that text looks like a Dask address; return it unchanged."""
    if not re.fullmatch(r"(tcp|tls|wss?|ucx|inproc)://\S+(:\d+|/\S*)", text):
        raise click.BadParameter(f"{text!r} is not an address such as tls://head:8786")
    return text


def _cluster_options(command: F) -> F:
    """Add the options that name a cluster."""
    options = (
        click.option(
            "--scheduler",
            type=_scheduler,
            required=True,
            metavar="ADDRESS",
            help="Address of a Dask scheduler.",
        ),
        click.option(
            "--insecure",
            is_flag=True,
            help="Accept a cluster that other machines can reach without TLS.",
        ),
    )
    for option in reversed(options):
        command = option(command)
    return command


@fleet.command(short_help="Sweep software pairs of this machine.")
@click.option(
    "--pairs",
    type=click.IntRange(1, 64),
    default=8,
    help="Workers, each with a software DPU.",
)
@_sweep_options
def demo(pairs: int, json_: str | None, **options: Any) -> int:
    """Start a cluster of software pairs on this machine, sweep them, and end it.

    \b
    Examples:
      dgkit fleet demo
      dgkit fleet demo --pairs 2 --sizes 64,1M --json result.json
    """
    demo_cluster = _demo_cluster()

    path = _output_of(json_, options)
    say(f"dgkit fleet: starting {pairs} workers, each with a software DPU")
    with demo_cluster.local(pairs) as client:
        return _run(client, path, json_, insecure=False, **options)


@fleet.command(short_help="Measure latency and rate of all pairs.")
@_cluster_options
@_sweep_options
def sweep(scheduler: str, insecure: bool, json_: str | None, **options: Any) -> int:
    """Measure latency and rate of each pair, and list the pairs that are slower than the others.

    Each row also has floors: the least time that the machine needs for the same bytes.

    Rows in --folder survive Ctrl-C, a lost scheduler and a lost worker: the same command with
    --resume continues from there.

    \b
    Examples:
      dgkit fleet sweep --scheduler tcp://127.0.0.1:8786
      dgkit fleet sweep --scheduler tls://head:8786 --folder monday --resume --json monday.json
    """
    demo_cluster = _demo_cluster()

    path = _output_of(json_, options)
    with demo_cluster.connected(scheduler, insecure=insecure) as client:
        return _run(client, path, json_, insecure=insecure, **options)


@fleet.command(short_help="Judge all machines, grouped by verdict.")
@_cluster_options
@click.option(
    "--goal",
    type=click.Choice(["auto", "arm-dma", "host-dma", "rdma", "gpunetio", "p2p", "gpu", "laptop"]),
    default="auto",
    help="What the machines are meant for, as for `dgkit doctor`.",
)
@json_option
def doctor(scheduler: str, insecure: bool, goal: str, json_: str | None) -> int:
    """Read each machine of a cluster once, judge it, and group the machines, outliers first.

    Nothing is changed on the machines. The exit code is that of `dgkit doctor` for the worst one.

    \b
    Examples:
      dgkit fleet doctor --scheduler tls://head:8786
      dgkit fleet doctor --scheduler tls://head:8786 --goal arm-dma --json racks.json
    """
    demo_cluster = _demo_cluster()
    from ..fleet import Fleet

    path = output_file(json_)
    with (
        demo_cluster.connected(scheduler, insecure=insecure) as client,
        Fleet(client, insecure=insecure) as found,
    ):
        diagnosis = found.doctor(goal)
    if json_ != STDOUT:
        console().print(str(diagnosis), markup=False, soft_wrap=True)
    if json_:
        write_document(path, "dgkit fleet doctor", diagnosis.as_dict())
    return diagnosis.exit_code


def _demo_cluster() -> Any:
    """Import the module; if the extra `fleet` is missing, raise an error that names it."""
    try:
        from ..fleet import demo_cluster
    except ModuleNotFoundError as exc:
        NeedsExtra("fleet", exc.name or "", "fleet")()
    return demo_cluster


def _output_of(json_: str | None, options: Mapping[str, Any]) -> Path | None:
    """Return the file for JSON, after the checks that need no cluster."""
    if options["resume"] and options["folder"] is None:
        raise click.UsageError("--resume needs --folder")
    return output_file(json_)


def _run(
    client: Any, path: Path | None, json_: str | None, *, insecure: bool, **options: Any
) -> int:
    """Sweep the pairs of a cluster and show or write the result."""
    from ..fleet import Fleet

    with Fleet(client, insecure=insecure) as found:
        if json_ != STDOUT:
            _show_fleet(found)
        done = _sweep(found, **options)
    if json_ != STDOUT:
        _show_sweep(done)
    if json_:
        pairs = found.table.to_dict("records")
        document = {"pairs": pairs, "differences": list(found.differences), **done.as_dict()}
        write_document(path, "dgkit fleet sweep", document)
    return FAILED if done.failures else OK


def _sweep(found: Fleet, **options: Any) -> Sweep:
    """Sweep the pairs of a fleet; on Ctrl-C, say which rows are kept and how to continue."""
    try:
        started = found.start_sweep(**options)
    except ValueError as error:  # about the folder, or a cluster without usable pairs
        raise DgkitError(str(error)) from error
    try:
        with progress_bars() as bars, progress_bar(bars, "rows") as advance:
            started.wait(progress=advance)
    except BaseException as error:
        started.stop()
        if isinstance(error, (KeyboardInterrupt, OSError)):
            _show_kept(started, options["folder"])
        raise
    return started


def _show_kept(stopped: Sweep, folder: Path | None) -> None:
    rows = f"{stopped.rows:,} of {stopped.total:,} rows"
    if folder is None:
        say(f"dgkit fleet: {rows} were measured; --folder would have kept them")
    else:
        say(f"dgkit fleet: {rows} are in {folder}; the same command with --resume continues")


def _show_fleet(found: Fleet) -> None:
    out = console()
    rows = [
        (pair.name, pair.role, pair.dpu, pair.provider, pair.arch, pair.state or "usable")
        for pair in found.pairs[:_SHOWN]
    ]
    out.print(repr(found), markup=False, soft_wrap=True)
    out.print(plain_table("Pairs", ("pair", "role", "DPU", "provider", "arch", "state"), rows))
    _show_more(len(found.pairs))
    for line in found.differences[:_SHOWN]:
        out.print(line, style="yellow", markup=False, soft_wrap=True)


def _show_sweep(done: Sweep) -> None:
    from ..units import size_text, us

    out = console()
    header = ("op", "path", "size", "pairs", "p50 µs", "slowest", "floor", "GB/s", "slowest")
    rows = [
        (
            row.op, row.requested_path, size_text(row.size), row.pairs, us(row.p50_ns),
            us(row.worst_p50_ns), _figure(row.floor_ns, us), f"{row.gb_per_s:,.2f}",
            f"{row.worst_gb_per_s:,.2f}",
        )
        for row in done.summary.itertuples()
    ]  # fmt: skip
    out.print("", plain_table("Median of all pairs, and the slowest pair", header, rows))
    if moved := int(done.summary["floors_moved"].sum()):
        out.print(
            f"The floor of {moved:,} of {done.rows:,} rows moved: the machines were also busy with "
            "other work. These rows are not compared.", soft_wrap=True,
        )  # fmt: skip
    _show_stragglers(done)
    for failure in done.failures[:_SHOWN]:
        say(f"{failure.pair}, {failure.op}, {failure.path}: {failure.why}")
    _show_more(len(done.failures))


def _figure(value: float, text: Callable[[float], str]) -> str:
    return "none" if value != value else text(value)


def _show_stragglers(done: Sweep) -> None:
    from ..units import size_text, us

    slow = done.stragglers
    if not len(slow):
        console().print("No stragglers.")
        return
    header = ("straggler", "op", "path", "size", "p50 µs", "GB/s", "z latency", "z rate")
    rows = [
        (
            row.pair, row.op, row.requested_path, size_text(row.size), us(row.p50_ns),
            f"{row.gb_per_s:,.2f}", f"{row.slow_latency:.1f}", f"{row.slow_rate:.1f}",
        )
        for row in slow.head(_SHOWN).itertuples()
    ]  # fmt: skip
    console().print("", plain_table("Slower than the other pairs", header, rows))
    _show_more(len(slow))


def _show_more(count: int) -> None:
    if count > _SHOWN:
        console().print(f"... and {count - _SHOWN:,} more; --json lists all of them")
