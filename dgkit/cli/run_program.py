# SPDX-License-Identifier: Apache-2.0
"""Programs that commands of dgkit start: becoming one, and why one could not be started."""

from __future__ import annotations

import errno
import os
import shlex
import signal
import sys
from collections.abc import Mapping
from pathlib import Path

import click

from .console import say

_NOT_EXECUTABLE, _NOT_FOUND = 126, 127  # as a shell returns (POSIX, "Exit Status for Commands")


def become(command: tuple[str, ...], environment: dict[str, str]) -> int:
    """Replace this process with a program; if that fails, print why and return the exit code."""
    sys.stdout.flush()
    for name in ("SIGPIPE", "SIGXFSZ"):  # Python ignores them, and exec would inherit that
        signal.signal(getattr(signal, name), signal.SIG_DFL)
    try:
        os.execvpe(command[0], command, environment)
    except OSError as exc:
        return not_run(exc, command[0])


def print_exports(about: str, command: str, environment: Mapping[str, str]) -> None:
    """Print shell commands that set environment variables, below two comments.

    Args:
        about: What the variables are for.
        command: The command of dgkit that prints them.
        environment: The variables.
    """
    click.echo(f"# {about}")
    click.echo(f'# In a shell: eval "$({command})"')
    for name, value in environment.items():
        click.echo(f"export {name}={shlex.quote(value)}")


def not_run(error: OSError, program: str) -> int:
    """Print why a program was not run; return the exit code."""
    say(f"dgkit: {program}: {_start_failure(error, program)}")
    return _NOT_FOUND if error.errno == errno.ENOENT else _NOT_EXECUTABLE


def _start_failure(error: OSError, program: str) -> str:
    if error.errno == errno.ENOENT:
        on_path = os.sep not in program  # only PATH was searched, not this folder
        hint = f" on PATH; did you mean ./{program}?" if on_path and Path(program).is_file() else ""
        return f"no such program{hint}"
    if error.errno == errno.ENOEXEC:
        return "not a program for this machine"
    return os.strerror(error.errno or 0)
