"""The magics %dma and %%dma: DMA in a line of a notebook."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from IPython.core.error import UsageError
from IPython.core.magic import no_var_expand
from IPython.display import display

from ..errors import DgkitError
from ..report import GPU_INITIATED
from ..session import SessionRegion
from . import arguments, completer
from .display import BytesRead, Help, Overview, ProgressBar
from .grammar import Call, LineError, help_text, parse

_NAME = "dma"
_LATENCY_SIZE = 64  # default, bytes


class Dma:
    """The commands of %dma for one IPython shell."""

    def __init__(self, shell: Any) -> None:
        self.shell = shell
        self._commands: dict[str, Callable[..., Any]] = {
            "read": self._read,
            "write": self._write,
            "latency": self._latency,
            "info": lambda: Overview.of(arguments.region_variables(shell.user_ns)),
            "help": lambda command: Help(help_text(command)),
        }

    def dma(self, line: str, cell: str | None = None) -> Any:
        """Move bytes by DMA; `%dma help` lists the commands.

        `%dma` returns the result of one command; `%%dma` runs one command per line and shows each
        result.

        Raises:
            UsageError: A line is invalid; if it is in a cell, no line of the cell has run.
            DgkitError: As raised by the session.
        """
        try:
            if cell is not None:
                return self._cell(line, cell)
            call = parse(line)
            result = self._run(call)
        except LineError as exc:
            raise UsageError(str(exc)) from None
        except DgkitError as exc:
            raise exc.with_traceback(None) from None  # dgkit's frames do not help the user
        return None if call.quiet else result

    def _cell(self, line: str, cell: str) -> None:
        if line.partition("#")[0].strip():
            raise UsageError("put the commands below %%dma, one per line, not after it")
        lines = enumerate(cell.splitlines(), 2)  # numbered as in the editor: %%dma is line 1
        parsed = [entry for at, text in lines if (entry := _parse_line(at, text))]
        ran: list[int] = []
        for at, text, call in parsed:
            try:
                result = self._run(call)
            except LineError as exc:
                raise UsageError(f"line {at}: {exc}; {_ran_before(ran)}") from None
            except BaseException as exc:
                _add_note(exc, f"in %%dma, line {at}: {text}; {_ran_before(ran)}")
                raise
            ran.append(at)
            if result is not None and not call.quiet:
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
        return arguments.find_region(self.shell, text)

    def _read(self, region: str, offset: int | str, size: int | str | None) -> BytesRead:
        found = self._region(region)
        start = arguments.integer(self.shell, offset, "--offset", least=0)
        rest = max(1, found.size - start)
        count = rest if size is None else arguments.integer(self.shell, size, "--size")
        transfer = found.session.start_read(found, count, start)
        self._wait(transfer, f"read {found.name}")
        provider = found.session.dpu.provider
        return BytesRead(transfer.data, found.name, found.where, start, provider)

    def _write(self, region: str, data: str | None, offset: int | str, hex: bytes | None) -> Any:
        found = self._region(region)
        value = hex if data is None else arguments.data(self.shell, data)
        start = arguments.integer(self.shell, offset, "--offset", least=0)
        return self._wait(found.session.start_write(found, value, start), f"write {found.name}")

    def _wait(self, transfer: Any, title: str) -> Any:
        try:
            with ProgressBar(self.shell, f"{title}, bytes") as bar:
                return transfer.wait(progress=bar)
        except BaseException:
            transfer.cancel()
            raise

    def _latency(
        self, region: str, size: int | str | None, op: str, count: int | str, path: str
    ) -> Any:
        found = self._region(region)
        default = min(_LATENCY_SIZE, found.size)
        each = default if size is None else arguments.integer(self.shell, size, "--size")
        times = arguments.integer(self.shell, count, "--count")
        with ProgressBar(self.shell, f"latency of {op}, samples") as bar:
            try:
                if path == GPU_INITIATED:
                    from ..session.kernel_latency import latency

                    session = found.session
                    return latency(session, found, each, op=op, count=times, progress=bar)
                return found.session.latency(
                    found, each, op=op, count=times, path=path, progress=bar
                )
            except ValueError as exc:
                if isinstance(exc, DgkitError):
                    raise
                raise LineError(str(exc)) from None  # too many samples


no_var_expand(Dma.dma)  # {} and $ belong to Python


def _parse_line(at: int, text: str) -> tuple[int, str, Call] | None:
    """Parse one line of a cell; return None if it is empty or a comment."""
    bare = text.strip().removeprefix(f"%{_NAME} ").strip()
    if not bare or bare.startswith("#"):
        return None
    try:
        return at, bare, parse(bare)
    except LineError as exc:
        raise UsageError(f"line {at}: {exc}; no line was run") from None


def _ran_before(lines: list[int]) -> str:
    if not lines:
        return "no line was run before it"
    numbers = ", ".join(map(str, lines))
    return f"run before it: line{'s' * (len(lines) > 1)} {numbers}"


def _add_note(error: BaseException, text: str) -> None:
    """Add a note, as BaseException.add_note does, which Python 3.10 lacks; IPython shows it."""
    vars(error)["__notes__"] = [*getattr(error, "__notes__", []), text]


def load_ipython_extension(shell: Any) -> None:
    """Register %dma, %%dma and their completion (`%load_ext dgkit`); a second call renews them."""
    unload_ipython_extension(shell)
    shell.register_magic_function(Dma(shell).dma, "line_cell", _NAME)
    completer.add(shell)


def unload_ipython_extension(shell: Any) -> None:
    """Remove the magics and their completion (`%unload_ext dgkit`). Idempotent."""
    for kind in ("line", "cell"):
        shell.magics_manager.magics[kind].pop(_NAME, None)
    vars(shell.magics_manager.user_magics).pop(_NAME, None)
    completer.remove(shell)
