# SPDX-License-Identifier: Apache-2.0
"""`dgkit clean`: remove the folders that dgkit keeps of a user."""

from __future__ import annotations

import shutil
from typing import Literal

import click

from ..files import user_folder
from .exit_codes import FAILED, OK

# Kind of folder, what dgkit keeps there, and whether it is made again when needed.
_KEPT: tuple[tuple[Literal["CACHE", "DATA", "CONFIG"], str, bool], ...] = (
    ("CACHE", "compiled kernels, images of the testbed, wheels", True),
    ("DATA", "notebooks of the testbed's guests", False),
    ("CONFIG", "keys, the address of a BlueField", False),
)


@click.command(short_help="Remove what dgkit keeps of this user.")
@click.option("--all", "everything", is_flag=True, help="Also remove notebooks and keys.")
@click.option("--yes", is_flag=True, help="Do not ask.")
def clean(everything: bool, yes: bool) -> int:
    """Show the folders that dgkit keeps of this user, ask, and remove what can be made again.

    With --all also what cannot: the notebooks of the testbed's guests, keys, the address of a
    BlueField. The sockets of running processes go with these. A BlueField's Arm cores are cleaned
    by `dgkit bluefield down`.

    \b
    Examples:
      dgkit clean
      dgkit clean --all --yes; pip uninstall dgkit-dpu
    """
    from ..testbed import running
    from ..units import size_text

    chosen = []
    for kind, content, again in _KEPT:
        folder = user_folder(kind)
        if not folder.is_dir():
            continue
        removed = again or everything
        size = sum(file.lstat().st_size for file in folder.rglob("*") if not file.is_dir())
        click.echo(f"{'remove' if removed else 'keep  '}  {folder}  {size_text(size)}: {content}")
        chosen += [folder] * removed
    if not chosen:
        click.echo("nothing to remove")
        return OK
    if running() is not None:
        raise click.UsageError("the testbed is up, and its images are there: dgkit testbed down")
    if not yes and not click.confirm("Remove?", err=True):
        return FAILED
    for folder in chosen:
        shutil.rmtree(folder)
    return OK
