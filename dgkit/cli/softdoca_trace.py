# SPDX-License-Identifier: Apache-2.0
"""`dgkit softdoca record` and `compare`: traces of the calls that programs make of DOCA."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from .console import print_json, progress_bar, progress_bars, say
from .exit_codes import FAILED, OK
from .options import as_json
from .run_program import not_run

if TYPE_CHECKING:
    from ..doca_trace import Comparison
    from ..doca_trace.comparison import Replayed
_MOST_SHOWN = 50  # differences of a trace on the terminal


@click.command(
    context_settings={"allow_interspersed_args": False},
    short_help="Record the DOCA calls of a program.",
)
@click.option(
    "-o",
    "--output",
    default="doca-trace.jsonl",
    type=click.Path(dir_okay=False, path_type=Path),
    help="File to write; further processes of the program write to FILE.2 and so on.",
)
@click.argument("command", metavar="-- PROGRAM [ARGS]...", nargs=-1, type=click.UNPROCESSED)
def record(output: Path, command: tuple[str, ...]) -> int:
    """Run a program, and record its calls of DOCA, with their results, callbacks and times.

    For people who own a BlueField: a trace shows where softdoca differs from it. The program uses
    the DOCA that it finds. A trace has numbers in place of handles, addresses and texts: no
    payload, no names of hosts, users, devices or files. The exit code is the program's.

    \b
    Examples:
      dgkit softdoca record -- ./dma_local_copy
      dgkit softdoca record -o host.jsonl -- ./dma_copy_host     # on the host, and
      dgkit softdoca record -o dpu.jsonl -- ./dma_copy_dpu       # on the BlueField
    """
    if not command:
        raise click.UsageError("no program given: put it after --")
    from ..doca_trace import record as record_program

    try:
        code = record_program(command, output)
    except OSError as exc:
        if exc.filename != command[0]:
            raise
        return not_run(exc, command[0])
    if output.exists():
        say(f"recorded in {output}; `dgkit softdoca compare {output}` replays it")
    else:
        say(
            "dgkit: no call of DOCA was recorded: the program made none, is linked statically, or "
            "runs with the rights of another user (setuid)"
        )
    return code


@click.command(short_help="Replay traces against softdoca, and list what differs.")
@click.argument(
    "traces",
    nargs=-1,
    required=True,
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
)
@as_json
def compare(traces: tuple[Path, ...], json_: bool) -> int:
    """Replay TRACES of `dgkit softdoca record` against softdoca, and list each difference.

    A difference is another result, value or state, another order of callbacks, or a callback that
    is missing or additional. Several traces, such as those of host and DPU, are replayed at the
    same time. The exit code is 1 if something differs.

    GPUs are emulated, and kernels are not replayed; received frames are the replay's own. Calls
    that are not replayed are counted by function, with the reason: those of an object that a call
    of a library that dgkit does not know returned, those after a callback that may wait for a
    kernel or a frame, and those that failed with a structure, which is not in the trace.

    \b
    Examples:
      dgkit softdoca compare doca-trace.jsonl
      dgkit softdoca compare host.jsonl dpu.jsonl --json
    """
    from ..doca_trace import compare as compare_traces

    with progress_bars() as progress, progress_bar(progress, "comparing") as advance:
        comparison = compare_traces(traces, advance)
    if json_:
        print_json(_comparison_json(comparison))
    else:
        for trace in comparison.traces:
            _print_replay(trace)
    return FAILED if comparison.differences else OK


def _comparison_json(comparison: Comparison) -> dict[str, Any]:
    return {
        "traces": [
            asdict(trace)
            | {
                "skipped": [
                    {"function": name, "reason": reason, "calls": count}
                    for (name, reason), count in sorted(trace.skipped.items())
                ]
            }
            for trace in comparison.traces
        ]
    }


def _print_replay(trace: Replayed) -> None:
    library = "softdoca" if trace.is_softdoca else "DOCA"
    cut = "" if trace.is_complete else ", the end is missing"
    click.echo(f"{trace.path}: {trace.calls} calls of {library} {trace.doca}{cut}")
    if trace.skipped:
        click.echo(f"  not replayed: {trace.skipped.total()} of {trace.calls} calls")
    for (name, reason), count in sorted(trace.skipped.items()):
        click.echo(f"    {count} of {name}: {reason}")
    for difference in trace.differences[:_MOST_SHOWN]:
        click.echo(
            f"  call {difference.call}, {difference.function}: {difference.kind}: recorded "
            f"{difference.recorded}, replayed {difference.replayed}"
        )
    count = len(trace.differences)
    if count > _MOST_SHOWN:
        click.echo(f"  and {count - _MOST_SHOWN} more; --json lists all")
    click.echo(f"  {count} differences" if count else "  no difference")
