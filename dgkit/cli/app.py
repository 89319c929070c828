# SPDX-License-Identifier: Apache-2.0
"""Entry point `main` and the command group `dgkit`, which imports a command only to run it."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import sys
import traceback
from collections.abc import Iterator, Sequence
from difflib import get_close_matches
from importlib import import_module
from pathlib import Path
from types import FrameType
from typing import Any, NoReturn

import click

from .exit_codes import (
    EXIT_CODES,
    INTERRUPTED,
    OK,
    TERMINATED,
    USAGE,
    exit_code,
    explain,
)

_COMMANDS = {
    "demo": "Copy a file by DMA through a DPU process, verify it, time transfers.",
    "info": "List usable providers, DOCA devices and GPUs, and why others are not.",
    "doctor": "Diagnose why a GPU and a DPU cannot reach each other.",
    "serve": "Run an agent that other processes connect to.",
    "lab": "Start JupyterLab and a software DPU for its notebooks.",
    "bench": "Measure latency and bandwidth.",
    "bluefield": "Set up this host's BlueField by one command, and report what it does.",
    "keys": "Manage the key pairs of tcp:// addresses.",
    "fleet": "Measure and diagnose many pairs of host and DPU, on Dask.",
    "testbed": "Run a virtual host and a virtual Arm DPU.",
    "softdoca": "Build and run DOCA programs without a BlueField.",
    "nccl": "Run puts and signals of NCCL's kernels with dgkit.",
    "mlx5": "Run RDMA programs with a ConnectX adapter in software.",
    "teach": "Make and check graded labs.",
    "clean": "Remove what dgkit keeps of this user.",
}
_EXAMPLES = """\
  dgkit demo                      check that everything works
  dgkit info                      see what this machine can do
  dgkit doctor                    find out why a provider does not work
  dgkit lab                       open the notebooks
  dgkit COMMAND --help            options and examples of a command"""


class Terminated(BaseException):
    """Raised on SIGTERM, so that the stack unwinds and everything is closed, as after Ctrl-C."""


class Dgkit(click.Group):
    """Command group.

    Attributes:
        traceback: Whether --traceback was given, before or after the command's name.
    """

    def __init__(self) -> None:
        super().__init__(
            "dgkit",
            help="Read and write host or GPU memory by DMA from a DPU.\n\n"
            "On a BlueField, its DMA engine moves the bytes through NVIDIA's DOCA. Elsewhere a "
            "software DPU takes its place: a second process on this machine that copies with the "
            "CPU or with a GPU's copy engine. Every figure names what copied.",
            epilog=f"\b\nExamples:\n{_EXAMPLES}\n\n\b\nExit codes:\n{EXIT_CODES}",
            context_settings={
                "help_option_names": ["-h", "--help"],
                "max_content_width": 100,
                "show_default": True,
            },
        )
        self.traceback = False
        self.params += [self._traceback(), _version()]

    def list_commands(self, _ctx: click.Context) -> list[str]:
        """List the commands in the order in which a newcomer needs them."""
        return list(_COMMANDS)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command; suggest one with a similar name."""
        if similar := () if args[0] in _COMMANDS else get_close_matches(args[0], _COMMANDS, n=1):
            ctx.fail(f"No such command {args[0]!r}. Did you mean {similar[0]!r}?")
        return super().resolve_command(ctx, args)

    def get_command(self, _ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import the module of a command, and return the command."""
        if cmd_name not in _COMMANDS:
            return None
        command = getattr(import_module(f"dgkit.cli.{cmd_name}_command"), cmd_name)
        assert isinstance(command, click.Command)
        if not any(option.name == "traceback" for option in command.params):
            command.params.append(self._traceback())
        return command

    def format_commands(self, _ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the table of commands without importing any of them."""
        with formatter.section("Commands"):
            formatter.write_dl(list(_COMMANDS.items()))

    def format_epilog(self, _ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the epilog without wrapping its lines."""
        formatter.write_paragraph()
        for line in (self.epilog or "").replace("\b\n", "").splitlines():
            formatter.write(f"  {line}\n" if line[:1].isdigit() else f"{line}\n")

    def _traceback(self) -> click.Option:
        def remember(_: click.Context, __: click.Parameter, value: bool) -> None:
            self.traceback = self.traceback or value

        return click.Option(
            ["--traceback"],
            is_flag=True,
            expose_value=False,
            callback=remember,
            help="Print the Python traceback of an error.",
        )


def _version() -> click.Option:
    def show(ctx: click.Context, _: click.Parameter, value: bool) -> None:
        if value:
            from .._version import __version__

            click.echo(f"dgkit {__version__}")
            ctx.exit()

    return click.Option(
        ["--version"],
        is_flag=True,
        is_eager=True,
        expose_value=False,
        callback=show,
        help="Print the version and exit.",
    )


@contextlib.contextmanager
def _sigterm_as_exception() -> Iterator[None]:
    def end(_: int, __: FrameType | None) -> NoReturn:
        raise Terminated

    before = signal.signal(signal.SIGTERM, end)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def main(args: Sequence[str] | None = None) -> int:
    """Run a command line, by default that of sys.argv, and return its exit code."""
    _open_streams()
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(AttributeError):  # replaced by an object without reconfigure()
            stream.reconfigure(errors="replace")  # type: ignore[union-attr]
    group, to_null = Dgkit(), _writes_to_null()
    try:
        with _sigterm_as_exception():
            return _result(group.main(args, prog_name="dgkit", standalone_mode=False))
    except click.UsageError as exc:
        _show_usage(exc)
        return USAGE
    except (click.Abort, KeyboardInterrupt):
        return _report_interrupt()
    except Terminated:
        return TERMINATED
    except SystemExit:  # what click and Rich make of a BrokenPipeError
        if to_null or not _reader_has_ended():
            raise
        # It has what it wants (`dgkit info | head -1`): no message, also none at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return OK
    except Exception as exc:
        if group.traceback:
            traceback.print_exc()
        return _failed(exc)


def _reader_has_ended() -> bool:
    """Return whether stdout is a pipe without a reader, or the /dev/null that Rich made of it."""
    if _writes_to_null():
        return True
    poll = select.poll()
    poll.register(sys.stdout.fileno(), 0)
    return bool(poll.poll(0))


def _writes_to_null() -> bool:
    with contextlib.suppress(OSError, AttributeError):  # replaced by an object without fileno()
        return os.path.samestat(os.fstat(sys.stdout.fileno()), Path(os.devnull).stat())
    return False


def _open_streams() -> None:
    """Open /dev/null for standard streams that are closed at the start (`>&-`).

    Otherwise the next file or socket would get the descriptor 0, 1 or 2, and output meant for the
    stream would be written to it.
    """
    for fd, name in enumerate(("stdin", "stdout", "stderr")):
        if getattr(sys, name) is not None:
            continue
        null = os.open(os.devnull, os.O_RDWR)
        try:
            os.fstat(fd)
        except OSError:
            os.dup2(null, fd)
        setattr(sys, name, os.fdopen(null, "w" if fd else "r"))


def _failed(error: Exception) -> int:
    """Print the error and return its exit code.

    If the error occurred while Ctrl-C or SIGTERM unwound the stack, report the signal instead.
    """
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, Terminated):
            return TERMINATED
        if isinstance(cause, KeyboardInterrupt):
            click.echo(err=True)  # new line after the terminal's ^C, as click does
            return _report_interrupt()
        cause = cause.__context__
    from .console import say

    say(f"dgkit: {explain(error)}")
    return exit_code(error)


def _report_interrupt() -> int:
    click.echo("dgkit: stopped", err=True)
    return INTERRUPTED


def _show_usage(error: click.UsageError) -> None:
    """Print a usage error in one line that refers to --help; without arguments, print the help."""
    from .console import say

    message = error.format_message()
    if "\n" not in message:
        path = error.ctx.command_path if error.ctx else "dgkit"
        end = "" if message.endswith("?") else "."
        message = f"dgkit: {message.rstrip('.')}{end} See `{path} --help`"
    say(message)


def _result(value: Any) -> int:
    return value if isinstance(value, int) else OK
