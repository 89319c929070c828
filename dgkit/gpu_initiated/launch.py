# SPDX-License-Identifier: Apache-2.0
"""A launch on the emulated GPU: a child process runs one grid."""

from __future__ import annotations

import contextlib
import shutil
import struct
import subprocess
import tempfile
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path

from ..errors import KernelError
from .compiler import SOURCE_NAME
from .kernel_arguments import Arguments

TYPE_CHECKING = False  # importing typing takes longer than importing this whole module
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import IO

# Exit statuses of native/gpu_initiated/emulated_gpu.cpp.
_WRONG_ARGUMENTS, _TIMED_OUT, _DEADLOCK, _ADDRESS_TAKEN = 2, 3, 4, 9
_ATTEMPTS = 8  # most starts of a child, whose own random addresses may collide with those to map
_GRACE = 5.0  # seconds that the child has for its report after its own time-out
_PLACES = 40  # largest number of lines in a report


@dataclass(frozen=True, slots=True)
class Command:
    """Command that runs a grid.

    Attributes:
        program: Program returned by `compile_program`.
        prefix: Words before the program, such as a sandbox command.
        fds: File descriptors that the command inherits.
    """

    program: Path
    prefix: Sequence[str] = ()
    fds: Sequence[int] = ()


@dataclass(frozen=True, slots=True)
class Grid:
    """Shape of a launch.

    Attributes:
        blocks: Blocks of the grid in x, y and z.
        threads: Threads of a block in x, y and z.
        shared_mem: Dynamic shared memory of a block in bytes.
        seed: Seed of the order in which threads run.
        timeout: Seconds after which the grid is stopped.
    """

    blocks: tuple[int, int, int]
    threads: tuple[int, int, int]
    shared_mem: int
    seed: int
    timeout: float


class Launch:
    """Running grid. wait() waits for its end; garbage collection kills a grid that still runs.

    Args:
        command: Command that runs the grid.
        name: Name of the kernel.
        grid: Shape of the launch.
        arguments: Encoded arguments.
    """

    def __init__(self, command: Command, name: str, grid: Grid, arguments: Arguments) -> None:
        self._command, self._name, self._arguments = command, name, arguments
        self._timeout = grid.timeout
        maps = list(arguments.mappings.values())
        encoded = name.encode()
        self._request = (
            struct.pack("<I", len(maps))
            + b"".join(struct.pack("<iQQQ", m.fd, m.offset, m.size, m.address) for m in maps)
            + struct.pack("<I", len(encoded))
            + encoded
            + struct.pack("<6I", *grid.blocks, *grid.threads)
            + struct.pack("<3Q", grid.shared_mem, grid.seed, int(grid.timeout * 1e9))
            + arguments.bytes
        )
        self._fds = [*(m.fd for m in maps), *command.fds]
        self._attempts_left = _ATTEMPTS
        self._start()

    def _start(self) -> None:
        """Start the child, which reads the launch from stdin and reports to the second file."""
        self._attempts_left -= 1
        self._errors: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115 # closed by _raise_failed
        self._places: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115
        report = self._places.fileno()
        self._child = subprocess.Popen(
            [*self._command.prefix, self._command.program, str(report)],
            stdin=subprocess.PIPE,
            stderr=self._errors,
            pass_fds=[*self._fds, report],
        )
        assert self._child.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self._child.stdin.write(self._request)
            self._child.stdin.close()

    @property
    def pid(self) -> int:
        """Process id of the child."""
        return self._child.pid

    @property
    def running(self) -> bool:
        """True until the grid has ended."""
        return self._child.poll() is None

    def kill(self) -> None:
        """Kill the child process, so that the emulated GPU disappears as if it were reset."""
        self._child.kill()

    def wait(self) -> None:
        """Wait for the end of the grid, then copy the results back to private buffers.

        Raises:
            KernelError: The kernel deadlocked, ran longer than its time-out or accessed an illegal
                address, or its arguments were wrong.
        """
        while True:
            try:
                status = self._child.wait(self._timeout + _GRACE)
            except subprocess.TimeoutExpired:
                self._child.kill()
                status = self._child.wait()
            if status != _ADDRESS_TAKEN or not self._attempts_left:
                break
            self._close_files()
            self._start()
        self._arguments.close()
        self._raise_failed(status)

    def _close_files(self) -> None:
        self._errors.close()
        self._places.close()

    def _raise_failed(self, status: int) -> None:
        self._errors.seek(0)
        self._places.seek(0)
        errors = self._errors.read().decode(errors="replace").strip()
        places = self._places.read().decode(errors="replace").splitlines()
        self._close_files()
        if status == 0:
            return
        text = f"emulated GPU: {self._name} "
        if status == _DEADLOCK:
            text += "deadlocked: no thread of a block can run"
        elif status == _TIMED_OUT:
            text += f"did not end within {self._timeout:g} s and was stopped"
        elif status == _WRONG_ARGUMENTS:
            text += "was not launched"
        else:
            text += f"failed (exit status {status})"
        lines = [text, *([errors] if errors else []), *_report(self._command.program, places)]
        raise KernelError("\n".join(lines))

    def __del__(self) -> None:
        child = getattr(self, "_child", None)
        if child is not None and child.returncode is None:
            child.kill()
            child.wait()
            self._arguments.close()
            self._close_files()


def _report(program: Path, places: list[str]) -> list[str]:
    """Return where threads were stopped; consecutive threads at the same place share a line."""
    rows = []
    frames = {address for line in places for address in line.split()[5:]}
    known = _source_lines(program, sorted(frames))
    for line in places:
        block, thread, call, file, number, *addresses = line.split()
        own = next((known[a] for a in addresses if a in known), "")
        where = own or f"{Path(file).name}:{number}"
        rows.append((block, thread, f"{call} at {where}"))
    lines = []
    for (block, what), group in groupby(rows, key=lambda row: (row[0], row[2])):
        threads = [thread for _, thread, _ in group]
        span = (
            f"thread {threads[0]}"
            if len(threads) == 1
            else f"threads {threads[0]} to {threads[-1]}"
        )
        lines.append(f"  block {block} {span}: {what}")
    more = len(lines) - _PLACES
    return lines[:_PLACES] + ([f"  and {more} more"] if more > 0 else [])


def _source_lines(program: Path, addresses: list[str]) -> dict[str, str]:
    """Map addresses in code from the kernel's own source to `kernel.cu:line`, with addr2line."""
    tool = shutil.which("addr2line")
    if tool is None or not addresses:
        return {}
    done = subprocess.run(
        [tool, "-a", "-i", "-e", str(program)],
        input="\n".join(addresses), capture_output=True, text=True, check=False, timeout=60,
    )  # fmt: skip
    found: dict[str, str] = {}
    address = ""
    for line in done.stdout.splitlines():
        if line.startswith("0x"):
            address = hex(int(line, 16))
        elif Path(line.partition(":")[0]).name == SOURCE_NAME:
            where = line.partition(":")[2].split()[0]
            found.setdefault(address, f"{SOURCE_NAME}:{where}")
    return found
