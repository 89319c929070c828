"""`dgkit serve`: the agent as a command."""

from __future__ import annotations

import os
import shlex
import sys

import click

from ..html_cards import provider_label
from .console import say
from .exit_codes import FAILED
from .options import size

__all__ = ["serve"]


@click.command(short_help="Run an agent.")
@click.option(
    "--address",
    help="ipc:///PATH or tcp://HOST:PORT (port 0: a free one). Default: a socket of its own in the "
    "runtime folder, for this user alone.",
)
@click.option(
    "--role",
    type=click.Choice(["dpu", "host"]),
    default="dpu",
    show_default=True,
    help="dpu: it moves the bytes. host: it lends its memory.",
)
@click.option(
    "--provider",
    default="soft",
    show_default=True,
    help="What moves the bytes: soft, cuda, doca, softdoca.",
)
@click.option(
    "--gpu",
    type=click.IntRange(0, 1 << 16),
    default=0,
    show_default=True,
    help="With --provider cuda: the number of the GPU that copies.",
)
@click.option(
    "--pci",
    metavar="ADDRESS",
    help="With --provider doca or softdoca: the function's address, as 03:00.0. Default: the first "
    "that does DMA.",
)
@click.option(
    "--max-memory",
    type=size,
    metavar="SIZE",
    help="What all clients together may allocate of the host's memory: 512M, 4G. Default: half.",
)
@click.option("--keys", metavar="NAME", help='Own key pair for tcp. Default: "default".')
@click.option("--print-unit", is_flag=True, help="Print a systemd user unit for this, and end.")
def serve(
    address: str | None,
    role: str,
    provider: str,
    gpu: int,
    pci: str | None,
    max_memory: int | None,
    keys: str | None,
    print_unit: bool,
) -> int:
    """Serve this machine's memory, or its DPU, to other processes until Ctrl-C or SIGTERM.

    The address is the one line on stdout; give it to dgkit.connect(). tcp:// needs keys on both
    sides: see `dgkit keys --help`.

    \b
    Examples:
      dgkit serve --max-memory 4G
      dgkit serve --provider cuda
      dgkit serve --provider doca --pci 03:00.0 --address tcp://0.0.0.0:0
      dgkit serve --address tcp://0.0.0.0:0 --role host
      dgkit serve --print-unit > ~/.config/systemd/user/dgkit.service
      systemctl --user enable --now dgkit
    """
    from .. import agent

    if print_unit:
        options = {"address": address, "role": role, "provider": provider, "keys": keys}
        options["max-memory"] = None if max_memory is None else str(max_memory)
        options["gpu"], options["pci"] = str(gpu) if gpu else None, pci
        given = [f"--{name} {shlex.quote(text)}" for name, text in options.items() if text]
        click.echo(agent.unit(" ".join(given)), nl=False)
        return 0
    try:
        ended = agent.serve(
            address, role=role, provider=provider, gpu=gpu, pci=pci, max_memory=max_memory,
            keys=keys, ready=lambda endpoint: _tell(endpoint, role, provider),
        )  # fmt: skip
    except ValueError as exc:
        raise click.UsageError(str(exc)) from exc
    say("dgkit serve: stopped" if ended else "dgkit serve: stopped; a transfer did not end in time")
    if not ended:
        sys.stdout.flush()
        agent.leave(FAILED)  # its thread would hold this process
    return 0


def _tell(endpoint: str, role: str, provider: str) -> None:
    print(endpoint, flush=True)
    moves = f"moves bytes by the provider {provider}: {provider_label(provider)}"
    say(f"It {'lends its memory' if role == 'host' else moves}.")
    say(
        f'Connect with:  dgkit.connect("{endpoint}")\n'
        f'Time it with:  dgkit bench --address "{endpoint}"'
    )
    if endpoint.startswith("tcp://"):
        say('Each adds keys="NAME", or --keys NAME, unless its key pair is "default".')
    if "0.0.0.0" in endpoint or "[::]" in endpoint:
        say("From another machine, put this machine's name or address in its place.")
    say(f"pid {os.getpid()}; Ctrl-C stops it.")
