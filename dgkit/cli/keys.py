"""`dgkit keys`: who may talk over tcp."""

from __future__ import annotations

import click

from .console import print_json
from .options import as_json

__all__ = ["keys"]


@click.group(short_help="Keys for tcp.")
def keys() -> None:
    """Make, list, allow and remove the keys that tcp:// needs (CURVE, both sides).

    Each side makes a pair once; the side that serves lets the other's public key in. A pair with
    a NAME of its own is used by `--keys NAME` (serve, bench), or keys="NAME" in dgkit.connect().
    ipc:// needs none.

    \b
    Examples:
      dgkit keys make                 # on each side
      dgkit keys list                 # shows the public keys
      dgkit keys allow PUBLIC --name lab-host    # on the side that runs `dgkit serve`
    """


@keys.command()
@click.argument("name", default="default")
def make(name: str) -> int:
    """Make a pair of keys with this NAME (default: default).

    \b
    Example:
      dgkit keys make
    """
    from ..wire import keys as store

    try:
        pair = store.make(name)
    except FileExistsError as exc:
        raise click.UsageError(
            f"there is a key {name!r} in {store.folder()}; it is kept. Use another name"
        ) from exc
    except ValueError as exc:
        raise click.UsageError(str(exc)) from exc
    click.echo(pair.public)
    click.echo(
        f"The line above is the public key of {name!r}; the secret one stays in {store.folder()}.\n"
        f"On the side that runs `dgkit serve`: dgkit keys allow {pair.public}",
        err=True,
    )
    return 0


@keys.command("list")
@as_json
def list_(json_: bool) -> int:
    """List own keys and those that are let in.

    \b
    Example:
      dgkit keys list --json
    """
    from ..wire import keys as store

    rows = store.listing()
    if json_:
        names = ("name", "public", "own", "allowed")
        print_json([{name: getattr(row, name) for name in names} for row in rows])
        return 0
    if not rows:
        click.echo(f"There are no keys in {store.folder()}. Make one: dgkit keys make")
        return 0
    for row in rows:
        kinds = [word for word, yes in (("own", row.own), ("let in", row.allowed)) if yes]
        click.echo(f"{row.name or '(no name)'} ({', '.join(kinds)})\n  {row.public}")
    return 0


@keys.command()
@click.argument("public")
@click.option("--name", default="", help="Whose key it is, for `dgkit keys list`.")
def allow(public: str, name: str) -> int:
    """Let the client with this PUBLIC key (64 hex digits) in.

    A running `dgkit serve` sees it at the next connection.

    \b
    Example:
      dgkit keys allow 3f1c... --name lab-host
    """
    from ..wire import keys as store

    try:
        store.allow(public, name)
    except ValueError as exc:
        raise click.UsageError(str(exc)) from exc
    click.echo(f"{name or public} is let in")
    return 0


@keys.command()
@click.argument("public")
def remove(public: str) -> int:
    """Let the client with this PUBLIC key in no more.

    A running `dgkit serve` sees it at the next connection; one that is open stays open.

    \b
    Example:
      dgkit keys remove 3f1c...
    """
    from ..wire import keys as store

    try:
        name = store.remove(public)
    except ValueError as exc:
        raise click.UsageError(str(exc)) from exc
    click.echo(f"{name or public} is let in no more")
    return 0
