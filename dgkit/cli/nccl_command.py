# SPDX-License-Identifier: Apache-2.0
"""`dgkit nccl`: the environment for NCCL's RMA plugin, and a test of it."""

from __future__ import annotations

import click

from .. import nccl as plugin
from .console import print_json, say
from .exit_codes import FAILED, OK
from .options import as_json
from .run_program import print_exports


@click.group(short_help="Run puts and signals of NCCL's kernels with dgkit.")
def nccl() -> None:
    """Run the puts, gets and signals of NCCL's kernels (GIN) with dgkit.

    NCCL 2.30.3 and later hand them to an RMA plugin. dgkit's needs no network card: a GPU's copy
    engine moves the bytes, between ranks that are threads or processes of one machine, also on one
    GPU. Kernels and programs are unmodified.

    \b
    Examples:
      eval "$(dgkit nccl env)" && ./alltoall_gin     # an example of NCCL's device API
      dgkit nccl selftest --processes                # without NCCL and without a GPU
    """


def _check_local(_: click.Context, __: click.Parameter, value: str | None) -> str | None:
    if value is not None and not value.startswith("ipc://"):
        raise click.BadParameter(f"{value!r} is not the address of an agent here: ipc:///PATH")
    return value


_dpu = click.option(
    "--dpu",
    metavar="ADDRESS",
    callback=_check_local,
    help="Agent of this machine (`dgkit serve`) that moves the bytes: GPU memory with --provider "
    "cuda; host memory with soft, verbs, doca or softdoca, too. Default: NCCL's own process.",
)


@nccl.command(short_help="Print the environment with which NCCL loads the plugin.")
@_dpu
@click.option(
    "--copy-service",
    is_flag=True,
    help="A kernel makes small copies on the GPU: sooner, for a GPU that one process uses. It has "
    "one multiprocessor's 1,024 threads until 0.5 ms after the last copy.",
)
@as_json
def env(dpu: str | None, copy_service: bool, json_: bool) -> int:
    """Print shell commands that set the environment with which NCCL loads the plugin.

    \b
    Examples:
      eval "$(dgkit nccl env)"
      eval "$(dgkit nccl env --dpu ipc:///run/user/1000/dgkit/agent-1234-0.sock)"
    """
    if dpu and copy_service:
        raise click.UsageError("--copy-service is for NCCL's own process: it excludes --dpu")
    environment = plugin.environment(dpu=dpu, copy_service=copy_service)
    if json_:
        print_json({"environment": environment})
        return OK
    about = "NCCL's puts, gets and signals from kernels: by dgkit, within this machine."
    print_exports(about, "dgkit nccl env", environment)
    return OK


@nccl.command(short_help="Test the plugin without NCCL.")
@click.option("--ranks", type=click.IntRange(1, 16), default=4, help="Number of ranks.")
@click.option("--rounds", type=click.IntRange(1, 1_000_000), default=100, help="Rounds to run.")
@click.option("--seed", type=click.IntRange(0, 2**64 - 1), default=1, help="Seed of the rounds.")
@click.option("--processes", is_flag=True, help="Each rank is a process, not a thread.")
@click.option("--kill", is_flag=True, help="Kill a rank in the end; needs --processes.")
@click.option("--gpu", is_flag=True, help="Use memory of the first GPU, not of the host.")
@_dpu
@as_json
def selftest(
    ranks: int,
    rounds: int,
    seed: int,
    processes: bool,
    kill: bool,
    gpu: bool,
    dpu: str | None,
    json_: bool,
) -> int:
    """Drive the plugin in the place of NCCL, and check each byte and each counter.

    In a round each rank starts 12 random puts, gets, signals and flushes. A signal must not be seen
    before its bytes; wrong calls must be refused; a killed rank must be noticed within 2 s.

    \b
    Examples:
      dgkit nccl selftest --ranks 8 --rounds 1000
      dgkit nccl selftest --processes --kill
    """
    if kill and (not processes or ranks < 2):
        raise click.UsageError("--kill needs --processes and at least 2 ranks")
    try:
        done = plugin.selftest(
            ranks, rounds=rounds, seed=seed, processes=processes, kill=kill, gpu=gpu, dpu=dpu
        )
    except AssertionError as exc:
        say(f"dgkit: {exc}")
        return FAILED
    if json_:
        print_json(done)
        return OK
    click.echo(
        f"{ranks} ranks ({done['ranks_are']}), {done['memory']} memory, {rounds} rounds: "
        f"{done['puts']} puts, {done['gets']} gets, {done['signals']} signals, "
        f"{done['bytes']} bytes put; each byte and counter is right"
    )
    if kill:
        click.echo(f"the other ranks noticed the killed one within {done['loss_noticed_ms']} ms")
    return OK
