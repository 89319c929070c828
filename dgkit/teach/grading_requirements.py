# SPDX-License-Identifier: Apache-2.0
"""Checks of `dgkit teach doctor`: what this machine lacks for grading the labs."""

from __future__ import annotations

import json
import os
import socket
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, distribution, version
from pathlib import Path
from urllib.parse import unquote, urlsplit

from ..errors import DgkitError
from ..gpu_initiated import compiler
from ..installation import install_command
from . import course, sandbox

HUB_PORT = 8000  # of the configuration that `dgkit teach hub` prints


@dataclass(frozen=True, slots=True)
class Check:
    """A result.

    Attributes:
        verdict: "fine", "note" or "WRONG".
        what: What was checked, and found.
        remedy: What to do; empty if nothing.
    """

    verdict: str
    what: str
    remedy: str = ""


def checks() -> Iterator[Check]:
    """Check this machine for grading; the limits of submissions are tried by exceeding them."""
    yield _check_nbgrader()
    yield _check_isolation()
    yield _check_compiler()
    for labs in course.labs_folder(), *_clone():
        yield _solutions(labs)
    yield _check_port(HUB_PORT)
    if os.geteuid() == 0:
        yield Check("note", "you are root", "jupyter lab --allow-root")


def _check_nbgrader() -> Check:
    try:
        return Check("fine", f"nbgrader {version('nbgrader')}")
    except PackageNotFoundError:
        return Check("WRONG", "nbgrader is not installed", install_command("teach"))


def _check_isolation() -> Check:
    here = Path.cwd()
    hidden: tuple[str, ...] = (str(course.labs_folder()),)
    if (here / course.SEED_FILE).is_file():
        hidden = course.hidden_folders(here)
    found = sandbox.isolation(hidden)
    if not found.method:
        return Check("WRONG", str(found), "apt install bubblewrap, or grade as root")
    if found.missing:
        return Check("note", str(found), 'notebooks/labs/README.md, "What usually goes wrong"')
    return Check("fine", str(found))


def _check_compiler() -> Check:
    try:
        return Check("fine", f"{compiler.find_compiler()} compiles the kernels of lab 7")
    except DgkitError as exc:
        return Check("WRONG", f"lab 7: {exc}")


def _solutions(labs: Path) -> Check:
    """Check who can read the solutions of dgkit-labs."""
    if not labs.is_dir():
        return Check("WRONG", "the labs are not installed", "pip install ./notebooks/labs")
    folders = (labs, *labs.parents)
    if all(folder.stat().st_mode & stat.S_IXOTH for folder in folders):
        return Check(
            "note",
            f"each account of this machine can read the solutions in {labs}",
            f"chmod -R o= {labs}, unless students have no account here",
        )
    return Check("fine", f"other accounts cannot read the solutions in {labs}")


def _clone() -> list[Path]:
    """Return the labs in the folder from which pip installed them, if it is there."""
    try:
        text = distribution("dgkit-labs").read_text("direct_url.json")
    except PackageNotFoundError:
        return []
    url = urlsplit(json.loads(text or "{}").get("url", ""))
    labs = Path(unquote(url.path)) / "source"
    return [labs] if url.scheme == "file" and labs.is_dir() else []


def _check_port(port: int) -> Check:
    with socket.socket() as sock:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            sock.bind(("127.0.0.1", port))
        except OSError as exc:
            taken = f"port {port}, of `dgkit teach hub`: {exc.strerror}"
            return Check("note", taken, "change c.JupyterHub.bind_url")
    return Check("fine", f"port {port}, of `dgkit teach hub`, is free")
