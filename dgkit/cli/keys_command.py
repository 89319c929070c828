# SPDX-License-Identifier: Apache-2.0
"""`dgkit keys`: key pairs and allowed clients of tcp:// addresses."""

from __future__ import annotations

import click

from .console import print_json
from .options import as_json


@click.group(short_help="Manage the key pairs of tcp:// addresses.")
def keys() -> None:
    """Make, list, allow and remove the CURVE keys that tcp:// addresses require.

    Each side makes a key pair once; the side that runs `dgkit serve` allows the public key of the
    other. `--keys NAME` (serve, bench, info) and keys="NAME" (dgkit.connect()) select a pair other
    than "default". ipc:// addresses need no keys.

    \b
    Examples:
      dgkit keys make                            # on each side
      dgkit keys list                            # shows the public keys
      dgkit keys allow PUBLIC --name lab-host    # on the side of `dgkit serve`
    """


@keys.command(short_help="Make a key pair and print its public key.")
@click.argument("name", default="default")
def make(name: str) -> int:
    """Make a key pair called NAME (default: default) and print its public key.

    \b
    Examples:
      dgkit keys make
      dgkit keys make lab
    """
    from ..wire import keys as store

    try:
        pair = store.make(name)
    except FileExistsError as exc:
        raise click.UsageError(
            f"{store.folder()} already has a key pair {name!r}, which is kept: use another name"
        ) from exc
    except ValueError as exc:
        raise click.UsageError(str(exc)) from exc
    click.echo(pair.public)
    click.echo(
        f"Above is the public key of {name!r}; the secret key stays in {store.folder()}.\n"
        f"On the side that runs `dgkit serve`: dgkit keys allow {pair.public}",
        err=True,
    )
    return 0


@keys.command("list")
@as_json
def list_(json_: bool) -> int:
    """List the key pairs of this side and the allowed keys of others.

    \b
    Examples:
      dgkit keys list
      dgkit keys list --json
    """
    from ..wire import keys as store

    rows = store.listing()
    if json_:
        names = ("name", "public", "own", "allowed")
        print_json([{name: getattr(row, name) for name in names} for row in rows])
        return 0
    if not rows:
        click.echo(f"No keys in {store.folder()}. Make a pair with: dgkit keys make")
        return 0
    for row in rows:
        kinds = [name for name, yes in (("own", row.own), ("allowed", row.allowed)) if yes]
        click.echo(f"{row.name or '(no name)'} ({', '.join(kinds)})\n  {row.public}")
    return 0


@keys.command()
@click.argument("public")
@click.option(
    "--name", default="", show_default=False, help="Name of the client, for `dgkit keys list`."
)
def allow(public: str, name: str) -> int:
    """Allow the client with this PUBLIC key (64 hex digits).

    A running `dgkit serve` applies it to the next connection.

    \b
    Example:
      dgkit keys allow 3f1c... --name lab-host
    """
    from ..wire import keys as store

    try:
        store.allow(public, name)
    except ValueError as exc:
        raise click.UsageError(str(exc)) from exc
    click.echo(f"allowed: {name or public}")
    return 0


@keys.command()
@click.argument("public")
def remove(public: str) -> int:
    """Remove the client with this PUBLIC key from the allowed ones.

    A running `dgkit serve` applies it to the next connection; open connections stay open.

    \b
    Example:
      dgkit keys remove 3f1c...
    """
    from ..wire import keys as store

    try:
        name = store.remove(public)
    except ValueError as exc:
        raise click.UsageError(str(exc)) from exc
    click.echo(f"no longer allowed: {name or public}")
    return 0
