# SPDX-License-Identifier: Apache-2.0
"""`dgkit bluefield`: set up a host's BlueField over SSH, and report what it does."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from .console import print_json, say
from .exit_codes import FAILED, NO_PEER, OK
from .options import as_json, choice

if TYPE_CHECKING:
    from ..bluefield.arm import Arm

_arm = click.option(
    "--arm",
    metavar="USER@ADDRESS",
    help="The Arm side, for ssh. Default: that of the last `up`, else ubuntu@192.168.100.2, which "
    "is the address over rshim.",
)
_ssh = click.option(
    "--ssh",
    metavar="COMMAND",
    help='ssh with its own options, such as "ssh -i ~/.ssh/card -J jumphost". Default: that of the '
    "last `up`, else ssh.",
)
_PLACES = {
    "host": "host memory",
    "gpu": "GPU memory",
    "bar": "host memory in the Arm side's PCI BAR",
}
_yes = click.option("--yes", is_flag=True, help="Do not ask.")


@click.group(short_help="Set up this host's BlueField, and report what it does.")
def bluefield() -> None:
    """Set up this host's BlueField over SSH: from nothing to a first transfer by one command.

    **dgkit has never been run on a BlueField**: what `report` writes on yours is of use to us,
    whatever happens. `up` shows what it will do on both sides before it changes anything, needs no
    root, and never reboots, flashes or configures the card. Run it again whenever it stopped: it
    goes on from there.

    \b
    Examples:
      dgkit bluefield up
      dgkit lab --bluefield
      dgkit bluefield status
      dgkit bluefield report
      dgkit bluefield down
    """


@bluefield.command(short_help="Set up both sides, to the first transfer.")
@_arm
@_ssh
@click.option(
    "--wheels",
    "folder",
    metavar="FOLDER",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    help="Folder that `dgkit bluefield pack` has filled. Default: one in ~/.cache, filled by `up`.",
)
@click.option(
    "--provider",
    type=choice("doca", "verbs", "soft", "softdoca"),
    metavar="NAME",
    help="Take this one only. Default: the first of doca, verbs, soft that both sides can use.",
)
@_yes
def up(
    arm: str | None, ssh: str | None, folder: Path | None, provider: str | None, yes: bool
) -> int:
    """Set up the Arm side and this host, and move the first bytes.

    ssh asks for the password once, and whether an unknown host key is right; `up` then offers to
    append your public key there. The Arm side needs Python 3.10 and no internet: this host's pip
    downloads the wheels.

    \b
    Examples:
      dgkit bluefield up
      dgkit bluefield up --arm ubuntu@10.0.0.7 --yes
      dgkit bluefield up --wheels wheels      # neither side has internet
    """
    from ..bluefield import card, setup
    from ..bluefield.transfers import bar_transfer, first_transfers

    host, before = card.this_host(), _stored()
    with _connect(host.destination(arm or before.get("arm")), ssh) as there:
        planned = setup.plan(there, host, folder=folder, provider=provider or "")
        click.echo("\n".join(planned.lines()))
        if not yes and not _confirmed():
            return FAILED
        _offer_ssh_key(there, yes)
        done = setup.up(there, planned, _say_when())
        _show_diagnoses(done["snapshots"])
        there.step = "transfer"
        found = [*first_transfers(), *bar_transfer(there)]
    for result in found:
        way = f" ({result.way})" if result.way else ""
        say(f"{_PLACES[result.place]}{way}: {'' if result.works else 'no: '}{result.text}")
    click.echo('In a notebook (`dgkit lab --bluefield`):  dgkit.connect("bluefield")')
    say("Please send what `dgkit bluefield report` writes: nobody has published these figures.")
    return OK if found[0].works else FAILED


def _offer_ssh_key(there: Arm, yes: bool) -> None:
    """Offer to log in with a key from now on, if a password was asked for; --yes is no answer."""
    from ..bluefield import setup

    if not there.by_password:
        return
    found = setup.own_ssh_key()
    if found is None:
        say(f"No password from now on: ssh-keygen -t ed25519; ssh-copy-id {there.destination}")
        return
    public, key = found
    if yes:
        say(f"No password from now on: ssh-copy-id -i {public} {there.destination}")
    elif click.confirm(
        f"Append {public} to ~/.ssh/authorized_keys there, so that no password is asked for "
        "again? `dgkit bluefield down` removes it",
        default=False,
        err=True,
    ):
        setup.install_ssh_key(there, key)


def _connect(destination: str, ssh: str | None) -> Arm:
    from ..bluefield.arm import Arm

    try:
        return Arm(destination, ssh or _stored().get("ssh") or "ssh")
    except ValueError as error:
        raise click.UsageError(str(error)) from None


def _say_when() -> Callable[[str], None]:
    """Return a function that prints a line with the time since now."""
    begin = time.monotonic()
    return lambda text: say(f"{time.monotonic() - begin:6.1f} s  {text}")


def _confirmed() -> bool:
    if not sys.stdin.isatty():
        raise click.UsageError("without a terminal to ask on, --yes agrees to the above")
    return click.confirm("Go on?", default=True, err=True)


def _show_diagnoses(snapshots: tuple[Path, Path]) -> None:
    from ..bluefield.setup import diagnoses
    from .doctor_command import show

    for diagnosis in diagnoses(snapshots):
        show(diagnosis, verbose=False)


@bluefield.command(short_help="Remove what `up` has put on both sides.")
@_arm
@_ssh
@click.option("--everybody", is_flag=True, help="End the agent also if other users use it.")
@_yes
def down(arm: str | None, ssh: str | None, everybody: bool, yes: bool) -> int:
    """Remove what `up` has put on both sides; the downloaded wheels in ~/.cache stay.

    \b
    Examples:
      dgkit bluefield down
    """
    from ..bluefield import setup

    destination = arm or _stored().get("arm")
    if destination is None:
        raise click.UsageError("no BlueField is set up here: --arm USER@ADDRESS names one")
    click.echo(
        f"At {destination}: the agent and ~/.dgkit-bluefield. Here: its address and key pair."
    )
    if not yes and not _confirmed():
        return FAILED
    with _connect(destination, ssh) as there:
        setup.down(there, say, everybody=everybody)
    return OK


def _stored() -> dict[str, Any]:
    from ..wire import saved

    return saved.load()


@bluefield.command(short_help="Say what is set up, and whether its agent answers.")
@as_json
def status(json_: bool) -> int:
    """Say what is set up, and whether its agent answers. Exit code 4: it does not.

    \b
    Examples:
      dgkit bluefield status
      dgkit bluefield status --json
    """
    from ..bluefield import card, setup

    found = setup.status() | {"host": list(card.this_host().lines)}
    if json_:
        print_json(found)
    else:
        for line in found["host"] or ["no BlueField in this machine"]:
            click.echo(line)
        if not found["set_up"]:
            click.echo("No BlueField is set up here: `dgkit bluefield up`")
            return OK
        click.echo(f"Arm side: {found['arm']}, provider {found['provider']}")
        for line in found["why"]:
            click.echo(f"  {line}")
        state = "answers" if found["answers"] else f"does not answer: {found['why_not']}"
        click.echo(f"Agent: {state}")
        if not found["answers"]:
            click.echo("`dgkit bluefield up` starts it again.")
    return OK if not found["set_up"] or found["answers"] else NO_PEER


@bluefield.command(short_help="Measure, and write a file that can be published.")
@click.argument("file", default="bluefield-report.zip", type=click.Path(path_type=Path))
def report(file: Path) -> int:
    """Measure through the agent of `up`, and write FILE: figures, both sides' recordings, a trace.

    It has no payload, and pseudonyms in the place of names of hosts and users, of addresses and
    serial numbers; at most 5 MB. It is a zip archive of text files: read them first, then attach it
    to an issue. The measurements take about a minute.

    \b
    Examples:
      dgkit bluefield report
      dgkit bluefield show bluefield-report.zip
    """
    from ..bluefield import archive

    try:
        archive.write(file, _say_when())
    except FileExistsError:
        raise click.UsageError(f"{file} exists: name another file") from None
    click.echo(
        f"{file}: `dgkit bluefield show {file}` shows it, `unzip -p {file} | less` all of it"
    )
    return OK


@bluefield.command(short_help="Show the file of a report: yours, or somebody else's.")
@click.argument("file", type=click.Path(path_type=Path))
@as_json
def show(file: Path, json_: bool) -> int:
    """Show a report: whether the Arm cores reach the GPU's memory, by which ways, at what latency
    and rate, over which PCIe path, and what would make it better.

    \b
    Examples:
      dgkit bluefield show bluefield-report.zip
    """
    from ..bluefield import archive

    try:
        found, diagnosed, nics = archive.read(file)
    except (ValueError, OSError) as error:
        raise click.UsageError(f"{error}") from None
    if json_:
        print_json(found)
    else:
        click.echo(archive.full_page(found, diagnosed, nics))
    return OK


@bluefield.command(short_help="Fill a folder with the wheels for an Arm side.")
@click.argument("folder", type=click.Path(file_okay=False, path_type=Path))
@click.option("--python", default="3.10", metavar="VERSION", help="Python there.")
@click.option("--glibc", default="2.35", metavar="VERSION", help="C library there.")
def pack(folder: Path, python: str, glibc: str) -> int:
    """Fill FOLDER with the wheels for an Arm side, for `up --wheels` where there is no internet.

    The defaults are those of Ubuntu 22.04 (24.04: --python 3.12 --glibc 2.39); `up` names them.

    \b
    Examples:
      dgkit bluefield pack wheels
      dgkit bluefield up --wheels wheels
    """
    from ..bluefield.pack import pack as fill

    minor = glibc.removeprefix("2.")
    if not minor.isdecimal() or not python.startswith("3.") or not python[2:].isdecimal():
        raise click.UsageError(
            f"--python {python} --glibc {glibc}: as in --python 3.10 --glibc 2.35"
        )
    found = fill(folder, python=python, glibc=int(minor))
    click.echo(f"{len(found)} wheels in {folder}: dgkit bluefield up --wheels {folder}")
    return OK
