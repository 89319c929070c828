# SPDX-License-Identifier: Apache-2.0
"""`dgkit serve`: run an agent."""

from __future__ import annotations

import os
import sys
from dataclasses import fields
from typing import TYPE_CHECKING, Any

import click

from ..errors import PeerRefused
from ..types import DEFAULT_PROVIDER, provider_label
from .console import say
from .exit_codes import FAILED
from .options import choice, duration, size

if TYPE_CHECKING:
    from ..agent import ServeOptions


@click.command(short_help="Run an agent.")
@click.option(
    "--address",
    metavar="ADDRESS",
    help="Where to listen: ipc:///PATH or tcp://HOST:PORT (port 0: any free port). Default: a new "
    "socket in the runtime folder, for this user only.",
)
@click.option(
    "--role",
    type=click.Choice(["dpu", "host"]),
    default="dpu",
    help="dpu: move bytes. host: provide memory.",
)
@click.option(
    "--provider",
    type=choice("soft", "cuda", "verbs", "doca", "softdoca"),
    metavar="NAME",
    default=DEFAULT_PROVIDER,
    help="What moves the bytes: soft, cuda, verbs, doca, softdoca.",
)
@click.option(
    "--gpu",
    type=click.IntRange(0, 1 << 16),
    default=0,
    help="With --provider cuda: number of the GPU that copies.",
)
@click.option(
    "--pci",
    metavar="ADDRESS",
    help="With --provider doca or softdoca: PCI address of the function, such as 03:00.0. Default: "
    "the first that supports DMA.",
)
@click.option(
    "--rdma",
    metavar="NAME",
    help="With --provider verbs: name of the RDMA device, such as mlx5_0. Default: the first port "
    "with a link and an address.",
)
@click.option(
    "--max-memory",
    type=size,
    metavar="SIZE",
    help="Limit of the host memory that all clients together allocate, such as 4G. Default: half "
    "of the machine's, or of the container's limit.",
)
@click.option(
    "--keys", metavar="NAME", help='Key pair of this side, for tcp://. Default: "default".'
)
@click.option(
    "--max-clients",
    type=click.IntRange(1, 1 << 16),
    default=256,
    help="Limit of the clients at a time.",
)
@click.option(
    "--max-regions",
    type=click.IntRange(1, 1 << 20),
    default=100_000,
    help="Limit of the regions of one client; less where file descriptors are short (ulimit -Hn).",
)
@click.option(
    "--max-client-memory",
    type=size,
    metavar="SIZE",
    help="Limit of the host memory that one client allocates. Default: three quarters of "
    "--max-memory.",
)
@click.option(
    "--max-share",
    type=click.IntRange(1, 100),
    metavar="PERCENT",
    help="Limit of what all clients of one key, or of the user of an ipc:// address, have "
    "together: percent of the clients, regions, file descriptors, memory and telemetry "
    "subscriptions. "
    "Default: 100 divided by the number of allowed keys, but at least 6.25; 100 for a user.",
)
@click.option(
    "--shared-telemetry",
    is_flag=True,
    help="Let each client see the latency samples and totals of all clients. Default: its own.",
)
@click.option(
    "--telemetry-port",
    type=click.IntRange(0, 65535),
    default=0,
    show_default=False,
    metavar="PORT",
    help="With tcp://: port for latency samples, which a firewall or a tunnel must pass, too. "
    "Default: a free one.",
)
@click.option(
    "--heartbeat",
    type=duration(0.6, 30),
    default=0.6,
    metavar="SECONDS",
    help="With tcp://: seconds without a message after which either side ends the connection; "
    "more on a slow machine. Clients take it from the printed address.",
)
@click.option(
    "--print-unit", is_flag=True, help="Print a systemd user unit with these options and exit."
)
def serve(print_unit: bool, **options: Any) -> int:
    """Run an agent that serves this machine's DPU or memory to other processes.

    Prints its address, for dgkit.connect(), as the only line on stdout, and runs until Ctrl-C or
    SIGTERM. tcp:// requires keys on both sides: see `dgkit keys --help`.

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
        click.echo(agent.unit(_command_line(agent.ServeOptions(**options))), nl=False)
        return 0
    role, provider = options["role"], options["provider"]
    try:
        ended = agent.serve(
            **options, ready=lambda endpoint: _print_ready(endpoint, role, provider)
        )
    except (ValueError, PeerRefused) as exc:  # PeerRefused: this side has no key pair
        raise click.UsageError(str(exc)) from exc
    say("dgkit serve: stopped" if ended else "dgkit serve: stopped; a transfer is still running")
    if not ended:
        sys.stdout.flush()
        agent.leave(FAILED)  # the transfer's thread would keep this process alive
    return 0


def _command_line(options: ServeOptions) -> str:
    """Return the role, the provider and the options that differ from the default, for systemd."""
    from ..agent.systemd import quote

    given = [
        (field.name.replace("_", "-"), value)
        for field in fields(options)
        if (value := getattr(options, field.name)) != field.default
        or field.name in ("role", "provider")
    ]
    return " ".join(
        f"--{name}" if value is True else f"--{name} {quote(str(value))}" for name, value in given
    )


def _print_ready(endpoint: str, role: str, provider: str) -> None:
    print(endpoint, flush=True)
    work = f"provider {provider}, {provider_label(provider)}"
    say(f"Role {role}: {'provides memory' if role == 'host' else work}.")
    say(
        f'Connect with:  dgkit.connect("{endpoint}")\n'
        f'Measure with:  dgkit bench --address "{endpoint}"'
    )
    if endpoint.startswith("tcp://"):
        say('Add keys="NAME" or --keys NAME unless the client\'s key pair is "default".')
    if "0.0.0.0" in endpoint or "[::]" in endpoint:
        say("From another machine, use this machine's name or address as the host.")
    say(f"pid {os.getpid()}; stop with Ctrl-C.")
