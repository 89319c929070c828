"""%dma and %%dma: DMA in a line of a notebook."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from IPython.core.error import UsageError
from IPython.core.magic import no_var_expand
from IPython.display import display

from ..errors import DgkitError
from ..session import SessionRegion
from . import arguments, completion
from .display import BytesRead, Help, Overview
from .grammar import Call, Misuse, help_text, parse
from .progress import Bar

__all__ = ["Dma", "load_ipython_extension", "unload_ipython_extension"]

_NAME = "dma"
_LATENCY_SIZE = 64  # bytes, where the line names no size


class Dma:
    """The commands, for one IPython shell."""

    def __init__(self, shell: Any) -> None:
        self.shell = shell
        self._commands: dict[str, Callable[..., Any]] = {
            "read": self._read,
            "write": self._write,
            "latency": self._latency,
            "info": lambda: Overview.of(arguments.held(shell.user_ns)),
            "help": lambda command: Help(help_text(command)),
        }

    def dma(self, line: str, cell: str | None = None) -> Any:
        """DMA in a line: `%dma help` says what there is.

        As a line it returns what the command gives; `%%dma` runs several lines and shows each's.
        UsageError: a line cannot be understood; in a cell none has run then. DgkitError: as the
        session raises it.
        """
        try:
            if cell is not None:
                return self._cell(line, cell)
            call = parse(line)
            result = self._run(call)
        except Misuse as exc:
            raise UsageError(str(exc)) from None
        except DgkitError as exc:
            raise exc.with_traceback(None) from None  # the way through dgkit says no more
        return None if call.quiet else result

    def _cell(self, line: str, cell: str) -> None:
        if line.partition("#")[0].strip():
            raise UsageError("after %%dma stands nothing: its lines come below it")
        lines = enumerate(cell.splitlines(), 2)  # as the editor counts, %%dma itself is the first
        calls = [found for at, text in lines if (found := _line(at, text))]
        ran: list[int] = []
        for at, text, wanted in calls:
            try:
                result = self._run(wanted)
            except Misuse as exc:
                raise UsageError(f"line {at}: {exc}; {_ran(ran)}") from None
            except BaseException as exc:  # Ctrl-C, too
                _note(exc, f"in %%dma, line {at}: {text}; {_ran(ran)}")
                raise
            ran.append(at)
            if result is not None and not wanted.quiet:
                display(result)

    def _run(self, call: Call) -> Any:
        args = dict(call.args)
        out = args.pop("out", None)
        result = self._commands[call.name](**args)
        if out is None:
            return result
        self.shell.push({out: result.data if isinstance(result, BytesRead) else result})
        return None

    def _region(self, text: str) -> SessionRegion:
        return arguments.find(self.shell, text)

    def _read(self, region: str, offset: int | str, size: int | str | None) -> BytesRead:
        found = self._region(region)
        start = arguments.amount(self.shell, offset, "--offset", least=0)
        rest = max(1, found.size - start)
        count = rest if size is None else arguments.amount(self.shell, size, "--size")
        transfer = found.session.start_read(found, count, start)
        self._wait(transfer, f"read {found.name}")
        provider = found.session.dpu.provider
        return BytesRead(transfer.data, found.name, found.where, start, provider)

    def _write(self, region: str, data: str | None, offset: int | str, hex: bytes | None) -> Any:
        found = self._region(region)
        value = hex if data is None else arguments.data(self.shell, data)
        start = arguments.amount(self.shell, offset, "--offset", least=0)
        return self._wait(found.session.start_write(found, value, start), f"write {found.name}")

    def _wait(self, transfer: Any, title: str) -> Any:
        try:
            with Bar(self.shell, f"{title}, bytes") as bar:
                return transfer.wait(progress=bar)
        except BaseException:  # Ctrl-C, too: nobody will wait for the rest
            transfer.cancel()
            raise

    def _latency(
        self, region: str, size: int | str | None, op: str, count: int | str, path: str
    ) -> Any:
        found = self._region(region)
        least = min(_LATENCY_SIZE, found.size)
        each = least if size is None else arguments.amount(self.shell, size, "--size")
        times = arguments.amount(self.shell, count, "--count")
        with Bar(self.shell, f"latency of {op}, samples") as bar:
            try:
                return found.session.latency(
                    found, each, op=op, count=times, path=path, progress=bar
                )
            except ValueError as exc:
                if isinstance(exc, DgkitError):
                    raise
                raise Misuse(str(exc)) from None  # more samples than one call can have


no_var_expand(Dma.dma)  # so that {} and $ stay what they are in Python


def _line(at: int, text: str) -> tuple[int, str, Call] | None:
    """One line of a cell, read; None if there is nothing in it."""
    bare = text.strip().removeprefix(f"%{_NAME} ").strip()
    if not bare or bare.startswith("#"):
        return None
    try:
        return at, bare, parse(bare)
    except Misuse as exc:
        raise UsageError(f"line {at}: {exc}; nothing ran") from None


def _ran(lines: list[int]) -> str:
    if not lines:
        return "nothing ran before it"
    numbers = ", ".join(map(str, lines))
    return f"before it ran line{'s' * (len(lines) > 1)} {numbers}"


def _note(error: BaseException, text: str) -> None:
    """BaseException.add_note, which Python 3.10 lacks; IPython shows both."""
    vars(error)["__notes__"] = [*getattr(error, "__notes__", []), text]


def load_ipython_extension(shell: Any) -> None:
    """`%load_ext dgkit`: %dma, %%dma, and what Tab offers for them. Again: they are new."""
    unload_ipython_extension(shell)
    shell.register_magic_function(Dma(shell).dma, "line_cell", _NAME)
    completion.add(shell)


def unload_ipython_extension(shell: Any) -> None:
    """`%unload_ext dgkit`: takes them away. Again: nothing."""
    for kind in ("line", "cell"):
        shell.magics_manager.magics[kind].pop(_NAME, None)
    vars(shell.magics_manager.user_magics).pop(_NAME, None)
    completion.remove(shell)
