"""`dgkit mlx5`: programs of rdma-core with an adapter in software."""

from __future__ import annotations

import os
from pathlib import Path

import click

from .. import adapter_faults
from .. import software_adapter as adapter
from .console import print_json, say
from .exit_codes import OK
from .options import as_json
from .run_program import become, print_exports


@click.group(short_help="Run RDMA programs with a ConnectX adapter in software.")
def mlx5() -> None:
    """Run unmodified programs of libibverbs and libmlx5 with a ConnectX adapter in software.

    It needs no adapter, kernel module or root. Programs of one user on one machine reach each other
    by reliable connections (RC). Libraries are those of the distribution: rdma-core 44 was tried.

    \b
    Examples:
      dgkit mlx5 run -- ibv_devinfo
      dgkit mlx5 run -- ib_write_bw -x 0                # the server
      dgkit mlx5 run -- ib_write_bw -x 0 127.0.0.1      # in another shell: the client
    """


@mlx5.command(
    context_settings={"allow_interspersed_args": False}, short_help="Run a program with it."
)
@click.option(
    "--fault", "faults", metavar="RULE", multiple=True,
    help="Inject a fault: error, lose, drop, delay, corrupt or die, and fields as ops=write,skip=9",
)  # fmt: skip
@click.option(
    "--trace", type=click.Path(dir_okay=False, writable=True, path_type=Path), metavar="FILE",
    help="Append a line for each entry and completion to FILE; packets of RoCE v2 if it ends with "
    ".pcapng or .pcap.",
)  # fmt: skip
@click.argument("command", metavar="-- PROGRAM [ARGS]...", nargs=-1, type=click.UNPROCESSED)
def run(faults: tuple[str, ...], trace: Path | None, command: tuple[str, ...]) -> int:
    """Run a program that sees the adapter mlx5_0.

    Not reached: programs that are linked statically or run as another user (setuid). The exit code
    is the program's; 127 if there is no such program, 126 if it cannot be run.

    A fault rule acts on the program's work queue entries: error (a CQE with a syndrome), lose (no
    CQE), drop (nothing is moved), delay, corrupt (a bit is inverted), die (the program is killed).
    The fields are those of dgkit.FaultRule, with ops=write+send+read+atomic or receive, and
    syndrome and vendor of error. The first rule that matches acts.

    A trace is appended to, so that server and client can have the same file.

    \b
    Examples:
      dgkit mlx5 run -- ib_send_lat -x 0 &
      dgkit mlx5 run -- ib_send_lat -x 0 127.0.0.1
      dgkit mlx5 run -- ibv_rc_pingpong -g 0 -c         # -g 0 and -x 0: RoCE, by GID 0
      dgkit mlx5 run --fault error,ops=write,skip=99,syndrome=0x15 -- ib_write_bw -x 0 127.0.0.1
      dgkit mlx5 run --fault lose,skip=9,count=1 -- ib_write_lat -x 0 127.0.0.1      # hangs
      dgkit mlx5 run --trace lat.pcapng -- ib_write_lat -x 0 127.0.0.1
    """
    if not command:
        raise click.UsageError("no program given: put it after --")
    try:
        injected = adapter_faults.encode(faults)
    except ValueError as exc:
        raise click.BadParameter(str(exc), param_hint="--fault") from exc
    environment = os.environ | adapter.environment()
    if injected:
        environment[adapter_faults.VARIABLE] = injected
    if trace:
        trace.touch()
        environment[adapter.TRACE_VARIABLE] = str(trace.resolve())
    if reason := adapter.why_hidden(command[0]):
        say(f"dgkit: {command[0]} does not see the adapter: {reason}")
    return become(command, environment)


@mlx5.command(short_help="Print the environment with which programs see it.")
@as_json
def env(json_: bool) -> int:
    """Print shell commands that set the environment with which programs see the adapter.

    \b
    Example:
      eval "$(dgkit mlx5 env)" && ibv_devinfo
    """
    environment = adapter.environment()
    if json_:
        print_json({"device": adapter.DEVICE, "environment": environment})
        return OK
    about = "Programs of rdma-core: with a ConnectX adapter in software, within this machine."
    print_exports(about, "dgkit mlx5 env", environment)
    return OK
