"""The group: it knows the commands by name and loads one when it is called."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import traceback
from collections.abc import Iterator, Sequence
from importlib import import_module
from types import FrameType
from typing import Any, NoReturn

import click

from .exit_codes import (
    EXIT_CODES,
    FAILED,
    INTERRUPTED,
    OK,
    TERMINATED,
    USAGE,
    exit_code,
    explain,
)

__all__ = ["Dgkit", "main"]

_COMMANDS = {
    "demo": "Move a file through a DPU process by DMA, check every byte, time it.",
    "info": "What is usable on this machine, and exactly why the rest is not.",
    "doctor": "Why GPU and DPU do not talk, and the commands that mend it.",
    "serve": "Run an agent: the process that other processes connect to.",
    "lab": "Start JupyterLab with a software DPU beside it.",
    "bench": "Latency and bandwidth over sizes, depths, directions and paths.",
    "keys": "Make, list and allow the keys that tcp:// needs.",
    "softdoca": "Build and run programs written for DOCA without a BlueField.",
}


class Terminated(BaseException):
    """SIGTERM: unwinds like Ctrl-C, so that everything is closed on the way."""


class Dgkit(click.Group):
    """The commands of `dgkit`. `traceback` is set by the option of that name, at any place."""

    def __init__(self) -> None:
        super().__init__(
            "dgkit",
            help="Read and write the memory of another process by DMA.\n\n"
            "A software DPU, a second process on this machine, moves the bytes: the CPU copies, "
            "or a GPU's copy engine. On a BlueField its DMA engine does, by NVIDIA's DOCA. Every "
            "figure says which.",
            epilog=f"\b\nExit codes:\n{EXIT_CODES}\n\n\b\nStart with:\n  dgkit demo",
            context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
        )
        self.traceback = False
        self.params += [self._traceback(), _version()]

    def list_commands(self, _ctx: click.Context) -> list[str]:
        """In the order in which a newcomer needs them."""
        return list(_COMMANDS)

    def get_command(self, _ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Imports the command's module; each command is named as its module is."""
        if cmd_name not in _COMMANDS:
            return None
        command = getattr(import_module(f"dgkit.cli.{cmd_name}"), cmd_name)
        assert isinstance(command, click.Command)
        if not any(option.name == "traceback" for option in command.params):
            command.params.append(self._traceback())
        return command

    def format_commands(self, _ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """From the table above, so that `dgkit --help` imports no command."""
        with formatter.section("Commands"):
            formatter.write_dl(list(_COMMANDS.items()))

    def format_epilog(self, _ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """As it is written, line by line."""
        formatter.write_paragraph()
        for line in (self.epilog or "").replace("\b\n", "").splitlines():
            formatter.write(f"  {line}\n" if line[:1].isdigit() else f"{line}\n")

    def _traceback(self) -> click.Option:
        def remember(_: click.Context, __: click.Parameter, wanted: bool) -> None:
            self.traceback = self.traceback or wanted

        return click.Option(
            ["--traceback"],
            is_flag=True,
            expose_value=False,
            callback=remember,
            help="On an error, show where in the code it happened.",
        )


def _version() -> click.Option:
    def show(ctx: click.Context, _: click.Parameter, wanted: bool) -> None:
        if wanted:
            from .._version import __version__

            click.echo(f"dgkit {__version__}")
            ctx.exit()

    return click.Option(
        ["--version"],
        is_flag=True,
        is_eager=True,
        expose_value=False,
        callback=show,
        help="Print the version.",
    )


@contextlib.contextmanager
def _terminable() -> Iterator[None]:
    def end(_: int, __: FrameType | None) -> NoReturn:
        raise Terminated

    before = signal.signal(signal.SIGTERM, end)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def main(args: Sequence[str] | None = None) -> int:
    """Runs a command line (sys.argv's without `args`) and returns its exit code."""
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(AttributeError):  # not a text file: somebody captures it
            stream.reconfigure(errors="replace")  # type: ignore[union-attr]
    group = Dgkit()
    try:
        with _terminable():
            return _result(group.main(args, prog_name="dgkit", standalone_mode=False))
    except click.UsageError as exc:
        _show_usage(exc)
        return USAGE
    except (click.Abort, KeyboardInterrupt):
        return _stopped()
    except Terminated:
        return TERMINATED
    except BrokenPipeError:
        return _no_reader()
    except Exception as exc:
        if group.traceback:
            traceback.print_exc()
        return _failed(exc)


def _failed(error: Exception) -> int:
    """What went wrong while all was closed does not hide that Ctrl-C or SIGTERM ended the job."""
    before: BaseException | None = error
    while before is not None:
        if isinstance(before, Terminated):
            return TERMINATED
        if isinstance(before, KeyboardInterrupt):
            click.echo(err=True)  # as click does: the terminal shows ^C
            return _stopped()
        before = before.__context__
    click.echo(f"dgkit: {explain(error)}", err=True)
    return exit_code(error)


def _stopped() -> int:
    click.echo("dgkit: stopped", err=True)
    return INTERRUPTED


def _show_usage(error: click.UsageError) -> None:
    """One line and where to read more; without any argument, the help itself."""
    words = error.format_message()
    if "\n" not in words:
        path = error.ctx.command_path if error.ctx else "dgkit"
        words = f"dgkit: {words.rstrip('.')}. See `{path} --help`"
    click.echo(words, err=True)


def _result(value: Any) -> int:
    return value if isinstance(value, int) else OK


def _no_reader() -> int:
    """`dgkit info | head -1`: nobody reads stdout any more, so say nothing at exit either."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return FAILED
