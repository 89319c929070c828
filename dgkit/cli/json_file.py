# SPDX-License-Identifier: Apache-2.0
"""Option `--json [FILE]` of the commands that measure."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from ..files import named
from .console import print_json, store

F = TypeVar("F", bound=Callable[..., Any])

STDOUT = "-"  # the option's value without FILE


def file_option(**settings: Any) -> Callable[[F], F]:
    """Return a decorator that adds the option `--json [FILE]`, whose value is FILE or STDOUT."""
    return click.option(
        "--json", "json_", is_flag=False, flag_value=STDOUT, metavar="[FILE]", **settings
    )


json_option = file_option(
    help="Write all reports to FILE; without FILE, print only JSON on stdout."
)


def output_file(json_: str | None) -> Path | None:
    """Check that the file can be written; return it, or None for stdout."""
    if json_ in (None, STDOUT):
        return None
    path = Path(json_ or "")
    if path.is_dir() or not path.parent.is_dir():
        raise click.UsageError(f"--json {path}: this is a folder, or its folder does not exist")
    if path.is_file() and not _is_json(path):
        raise click.UsageError(
            f"--json {path}: this file exists and is not JSON; an argument stands before --json"
        )
    if not os.access(path if path.exists() else path.parent, os.W_OK):
        raise click.UsageError(f"--json {path}: you may not write there")
    return path


def _is_json(path: Path) -> bool:
    """Return whether a file is empty or one JSON document, which `--json FILE` replaces."""
    with named(path):
        text = path.read_bytes()
    try:
        json.loads(text or "0")
    except ValueError:
        return False
    return True


def write_document(path: Path | None, kind: str, results: dict[str, Any]) -> None:
    """Write results as JSON, to stdout if `path` is None."""
    from .._version import __version__

    document = {"kind": kind, "dgkit": __version__, **results}
    if path is None:
        print_json(document)
    else:
        store(path, document)
