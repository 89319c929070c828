# SPDX-License-Identifier: Apache-2.0
"""`dgkit mlx5`: programs of rdma-core with an adapter in software."""

from __future__ import annotations

import os
import shlex
from pathlib import Path
from typing import Any

import click

from .. import adapter_faults
from .. import software_adapter as adapter
from ..errors import DeviceUnavailable
from ..units import plural, printable
from .console import print_json, say
from .exit_codes import NO_DEVICE, OK, explain
from .options import as_json
from .run_program import become, print_exports

_adapters = click.option(
    "--adapters", type=click.IntRange(1, adapter.MAX_ADAPTERS), default=1, show_default=True,
    help="Number of adapters that the program sees: mlx5_0, mlx5_1, and so on.",
)  # fmt: skip


@click.group(short_help="Run RDMA programs with a ConnectX adapter in software.")
def mlx5() -> None:
    """Run unmodified programs of libibverbs and libmlx5 with a ConnectX adapter in software.

    It needs no adapter, kernel module or root. Programs of one user on one machine reach each other
    by RC, UC and UD queue pairs, and by rdma_cm. Tried with rdma-core 44 and 64.

    \b
    Examples:
      dgkit mlx5 run -- ibv_devinfo
      dgkit mlx5 run -- ib_write_bw -x 0                # the server
      dgkit mlx5 run -- ib_write_bw -x 0 127.0.0.1      # in another shell: the client
      dgkit mlx5 info                                   # who is on the network
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
@_adapters
@click.argument("command", metavar="-- PROGRAM [ARGS]...", nargs=-1, type=click.UNPROCESSED)
def run(
    faults: tuple[str, ...], trace: Path | None, adapters: int, command: tuple[str, ...]
) -> int:
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
      dgkit mlx5 run --adapters 2 -- ib_write_bw -d mlx5_1 -x 0 127.0.0.1
    """
    if not command:
        raise click.UsageError("no program given: put it after --")
    try:
        injected = adapter_faults.encode(faults)
    except ValueError as exc:
        raise click.BadParameter(str(exc), param_hint="--fault") from exc
    environment = os.environ | adapter.environment(adapters)
    if injected:
        environment[adapter_faults.VARIABLE] = injected
    if trace:
        trace.touch()
        environment[adapter.TRACE_VARIABLE] = str(trace.resolve())
    if reason := adapter.why_hidden(command[0]):
        say(f"dgkit: {command[0]} does not see the adapter: {reason}")
    return become(command, environment)


@mlx5.command(short_help="Print the environment with which programs see it.")
@_adapters
@as_json
def env(adapters: int, json_: bool) -> int:
    """Print shell commands that set the environment with which programs see the adapter.

    \b
    Example:
      eval "$(dgkit mlx5 env)" && ibv_devinfo
    """
    environment = adapter.environment(adapters)
    if json_:
        devices = [adapter.device(number) for number in range(adapters)]
        print_json({"devices": devices, "environment": environment})
        return OK
    about = "Programs of rdma-core: with ConnectX adapters in software, within this machine."
    print_exports(about, "dgkit mlx5 env", environment)
    return OK


@mlx5.command(short_help="Show the adapter, and the processes that have it open.")
@as_json
def info(json_: bool) -> int:
    """Show the adapter that a program would see, and the processes that have it open now.

    All processes of one user on one machine that have it open are on one network. Where one of them
    sees several adapters, all are shown. The exit code is 3 if a program would not see the adapter,
    as rdma-core is not installed.

    \b
    Examples:
      dgkit mlx5 info
      dgkit mlx5 info --json | python3 -m json.tool
    """
    facts = _collect_facts()
    if json_:
        print_json(facts)
    else:
        _print_facts(facts)
    return OK if facts["usable"] else NO_DEVICE


def _collect_facts() -> dict[str, Any]:
    from ..dma import Device
    from ..dma.nic import adapter_processes

    try:
        libraries = {name: str(path) for name, path in adapter.rdma_core().items()}
        version, why = adapter.rdma_core_version(), ""
        adapter.library_path()
    except (DeviceUnavailable, FileNotFoundError) as exc:
        libraries, version, why = {}, "", explain(exc)
    with Device("soft") as device:
        processes = adapter_processes(device)
    seen = max(1, *(adapter.adapters_of(pid) for pid in [os.getpid(), *(p.pid for p in processes)]))
    return {
        "usable": not why,
        "why": why,
        "adapters": [
            {
                "device": adapter.device(number),
                "model": "ConnectX-7, in software",
                "port": 1,
                "state": "ACTIVE",
                "link_layer": "Ethernet",
                "gid": adapter.gid(number),
                "gid_index": 0,
                "counters": {} if why else adapter.counters(number, seen),
            }
            for number in range(seen)
        ],
        "paths": "preloaded",
        "rdma_core": {"version": version, "libraries": libraries},
        "processes": [
            {
                "pid": found.pid,
                "program": _program(found.pid),
                "queue_pairs": found.queue_pairs,
                "regions": found.keys,
                "why": found.why,
            }
            for found in processes
        ],
        "files": {name: str(path) for name, path in adapter.folders(seen).items()},
    }


def _program(pid: int) -> str:
    """Return the command line of a process; "" if it has ended."""
    try:
        words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    except OSError:
        return ""
    return " ".join(os.fsdecode(word) for word in words).strip()


def _print_facts(facts: dict[str, Any]) -> None:
    for about in facts["adapters"]:
        click.echo(f"Adapter    {about['device']}: {about['model']}, no hardware")
        click.echo(f"  port     {about['port']}: {about['state']}, {about['link_layer']} (RoCE v2)")
        click.echo(f"  GID      {about['gid_index']}: {about['gid']}   (-x 0, -g 0)")
        counts = about["counters"].items()
        counted = (f"{name} {n}" for name, n in counts if n and not name.startswith("unicast"))
        click.echo(f"  counters {', '.join(counted) or 'all 0'}")
    if facts["usable"]:
        version = facts["rdma_core"]["version"] or "of unknown version"
        click.echo(f"rdma-core  {version}: {facts['rdma_core']['libraries']['libibverbs.so.1']}")
        click.echo("  programs see the adapter by `dgkit mlx5 run -- PROGRAM`, also in /sys")
        click.echo("  (paths are preloaded, no namespace: not for static, setuid and Go programs)")
    else:
        click.echo(f"rdma-core  {facts['why']}")
    processes = facts["processes"]
    click.echo(f"Network    {_count(processes)}")
    for process in processes:
        click.echo(f"  {process['why'] or _process_line(process)}")
    click.echo("Files")
    for name, path in facts["files"].items():
        click.echo(f"  {name:<8} {path}")
    click.echo("  a program removes its own at its end, and those of killed ones when it starts")
    if not processes:
        click.echo(f"  to remove the rest: rm -r {shlex.quote(facts['files']['sysfs'])}")


def _count(processes: list[dict[str, Any]]) -> str:
    if not processes:
        return "no program has the adapter open"
    return f"{plural(len(processes), 'program')} {'has' if len(processes) == 1 else 'have'} it open"


def _process_line(process: dict[str, Any]) -> str:
    pairs = plural(process["queue_pairs"], "queue pair")
    regions = plural(process["regions"], "region")
    program = printable(process["program"], kept="")
    return f"pid {process['pid']}: {pairs}, {regions}: {program[:60]}"
