# SPDX-License-Identifier: Apache-2.0
"""`dgkit testbed`: a virtual host and a virtual Arm DPU."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ..units import printable
from .console import print_json, progress_bar, progress_bars, say
from .options import as_json, duration, size

if TYPE_CHECKING:
    from ..testbed import Testbed

_SHOWN = {"agent": "agent", "ssh": "SSH server", "lab": "JupyterLab", "saved": "notebooks"}
_guest = click.argument("guest", type=click.Choice(["host", "dpu"]))


@click.group(short_help="Run a virtual host and a virtual Arm DPU.")
def testbed() -> None:
    """Run a virtual host and a virtual Arm DPU, joined by RDMA in software (Soft-RoCE).

    QEMU runs both. The host guest has this machine's architecture and sees this machine's files,
    read-only; the DPU guest has Cortex-A72 cores, like a BlueField-2, and arm64 packages. Each has
    a Linux kernel with an RDMA device, rxe0, for the provider verbs. Times measured there are those
    of an emulator.

    \b
    Examples:
      dgkit testbed up
      dgkit testbed run dpu -- rdma link
      dgkit testbed run host -- dgkit info
      dgkit testbed down
    """


@testbed.command(short_help="Start the two guests.")
@click.option(
    "--host-memory",
    type=size,
    metavar="SIZE",
    help="Memory of the host guest.  [default: 1G; with --lab 1536M]",
)
@click.option(
    "--dpu-memory",
    type=size,
    metavar="SIZE",
    help="Memory of the DPU guest.  [default: 1G; with --lab 1536M]",
)
@click.option(
    "--share",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    help="Folder that both guests see as /run/share, read-only.",
)
@click.option(
    "--agents",
    metavar="FOLDER",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    help="Run an agent in each guest. FOLDER has the wheels of dgkit for aarch64, which "
    "native/wheelhouse.py makes.",
)
@click.option(
    "--timeout",
    type=duration(1, 86_400),
    metavar="SECONDS",
    help="Time limit of the start, not counting downloads.  [default: 300; with --lab 900]",
)
@click.option("--ssh", is_flag=True, help="Run an SSH server in each guest.")
@click.option(
    "--lab",
    is_flag=True,
    help="Run JupyterLab in each guest. It needs --agents, with the wheels of --extra lab.",
)
def up(**options: Any) -> int:
    """Start the two guests and return when they are ready. They run until `dgkit testbed down`.

    The first call downloads about 210 MB of packages, and keeps 150 MB of images in
    ~/.cache/dgkit/testbed. It needs Debian or Ubuntu, but no root, and installs nothing; root on a
    terminal is asked whether to install packages that are missing, without recommended ones. Each
    user of a machine has a separate testbed, which does not listen on any network.

    With --agents, `dgkit serve` runs in each guest with the provider verbs, and listens on
    127.0.0.1 of this machine. The guests make new keys at each start, and allow this user's key
    pair "default", which is created if missing. The wheels are unpacked beside the images: with
    those of --extra lab, the folder has 466 MB.

    --ssh prints a command that opens a shell in each guest; --lab prints the URL of each guest's
    JupyterLab, with its token: it opens host.ipynb or dpu.ipynb, a pair of notebooks that share
    memory. Their ports are on 127.0.0.1 of this machine, and keys and tokens are new at each start.
    The host guest uses this Python's JupyterLab.

    \b
    Examples:
      dgkit testbed up
      dgkit testbed up --ssh
      dgkit testbed up --share build --host-memory 3G
      native/wheelhouse.py wheels --python 3.11 && dgkit testbed up --agents wheels
      native/wheelhouse.py wheels --python 3.11 --extra lab
      dgkit testbed up --agents wheels --lab
    """
    from .. import testbed as package

    _install_missing(ssh=options["ssh"])
    with progress_bars() as bars, progress_bar(bars, "testbed"):
        task = bars.task_ids[-1]

        def progress(text: str) -> None:
            bars.update(task, note=text)
            if not sys.stderr.isatty():
                say(f"dgkit testbed: {text}")

        try:
            bed = package.up(detach=True, progress=progress, **options)
        except ValueError as exc:
            raise click.UsageError(str(exc)) from exc
    _show(bed.status())
    say("They run until `dgkit testbed down`. Next: dgkit testbed run dpu -- rdma link")
    return 0


def _install_missing(*, ssh: bool) -> None:
    """Offer root on a terminal to install the packages that are missing."""
    from ..testbed import requirements

    if os.geteuid() or not sys.stdin.isatty() or not requirements.has_apt():
        return
    packages = requirements.missing(ssh=ssh)
    if packages and click.confirm(f"The testbed needs {' '.join(packages)}. Install them now?"):
        requirements.install(packages)


@testbed.command(short_help="Show the state of the guests.")
@as_json
def status(json_: bool) -> int:
    """Show the state of the guests that `dgkit testbed up` has started, and the size of the images.

    \b
    Examples:
      dgkit testbed status
      dgkit testbed status --json
    """
    from .. import testbed as package
    from ..testbed import images
    from ..units import size_text

    bed = package.running()
    state = bed.status() if bed else None
    cache, used = images.cache(), images.size()
    if json_:
        print_json(
            {"up": bed is not None, "cache": str(cache), "cache_bytes": used} | (state or {})
        )
        return 0
    if state:
        _show(state)
    else:
        click.echo("No testbed is up. Start one with: dgkit testbed up")
    click.echo(f"Images: {size_text(used)} in {cache}")
    return 0


@testbed.command(short_help="Run a command in a guest.")
@_guest
@click.option(
    "--timeout",
    type=duration(0.001, 31_536_000),
    metavar="SECONDS",
    help="End the command after this time.",
)
@click.argument("command", metavar="-- COMMAND [ARGS]...", nargs=-1, type=click.UNPROCESSED)
def run(guest: str, timeout: float | None, command: tuple[str, ...]) -> int:
    """Run a command as root in a guest, and exit with its exit status.

    The command's standard input is empty. It starts in the current folder in the host guest, and
    in /run/share in the DPU guest. Ctrl-C ends it, and child processes that still run end with it.

    \b
    Examples:
      dgkit testbed run dpu -- uname -m
      dgkit testbed run dpu -- sh -c 'rdma link && ip address'
      dgkit testbed run host --timeout 60 -- dgkit info
    """
    if not command:
        raise click.UsageError("no command given: put it after --")
    ended = 0
    try:
        for kind, content in _running().start(guest, command, timeout=timeout):
            if kind == b"d":
                ended = int(content)
            else:
                stream = sys.stdout if kind == b"o" else sys.stderr
                stream.buffer.write(content)
                stream.buffer.flush()
    except TimeoutError:
        from ..errors import TestbedError

        raise TestbedError(f"the command did not end within {timeout:g} s") from None
    return ended


@testbed.command(short_help="End the guests.")
def down() -> int:
    """End the guests that `dgkit testbed up` has started; return when all their processes are gone.

    Files that were written in the guests are gone, but for the notebooks of JupyterLab.

    \b
    Example:
      dgkit testbed down
    """
    from .. import testbed as package

    if bed := package.running():
        guests = bed.status()["guests"].values()
        bed.down()
        say("dgkit testbed: ended. Discarded: what was written to the guests' /tmp, /run and /dev")
        if saved := [guest["saved"] for guest in guests if "saved" in guest]:
            say(f"dgkit testbed: kept: the notebooks in {printable(' and '.join(saved))}")
    else:
        say("dgkit testbed: none was up")
    return 0


@testbed.command(short_help="Remove the images.")
def clean() -> int:
    """Remove the images from ~/.cache/dgkit/testbed. The next `up` downloads them again.

    \b
    Example:
      dgkit testbed down; dgkit testbed clean
    """
    from .. import testbed as package
    from ..units import size_text

    say(f"dgkit testbed: removed {size_text(package.clean())}")
    return 0


def _running() -> Testbed:
    """Return the testbed that is up, or raise TestbedError."""
    from .. import testbed as package
    from ..errors import TestbedError

    bed = package.running()
    if bed is None:
        raise TestbedError("no testbed is up: `dgkit testbed up` starts one")
    return bed


def _show(state: dict[str, Any]) -> None:
    """Print a line for each guest."""
    for name, guest in state["guests"].items():
        click.echo(
            f"{name:<5}{printable(guest['state']):<10}{guest['machine']:<9}{guest['address']:<11}"
            f"by {guest['runs_by']}, pid {guest['pid']}"
        )
        for key, title in _SHOWN.items():
            if why := guest.get(f"{key}_ended"):
                first, *others = why.splitlines()
                if others:  # a traceback
                    first = f"{first.partition(':')[0]}: {others[-1]}"
                click.echo(printable(f"     its {title} ended: {first}"))
            elif address := guest.get(key):
                click.echo(printable(f"     {key:<6}{address}"))
