# SPDX-License-Identifier: Apache-2.0
"""Lab 7, the kernel starts it: puts, gets and signals that a GPU kernel posts itself.

The kernels are CUDA C++ of a submission. They are compiled and run in the same isolation as
submissions, on the emulated GPU, which needs a C++ compiler. The proxy, which checks the operations
and moves the bytes, belongs to the grader. The far memory, where the bytes arrive, is not mapped in
the kernel's process.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import os
import random
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..dma import Device
from ..errors import KernelError
from ..gpu_initiated.compiler import find_compiler, kernel_names
from ..gpu_initiated.emulate import EmulatedModule
from ..gpu_initiated.launch import Command
from ..memory import empty
from ..types import Status
from ..unique import Closable
from . import concepts, sandbox, submission, verdict
from .find_bytes import hexdump
from .verdict import expect

_SOURCE_BYTES = 64 << 10
_THREADS = 1024  # largest number of threads whose status is kept
_DEPTH = 1024
_WAIT_S = 2.0  # limit of a wait in a kernel
_SHOWN = 1500  # maximum number of characters shown of a compiler's or a kernel's message
SEEDS = 4

Function = Callable[..., Any]


@functools.lru_cache(maxsize=16)
def _compile(source: str, limits: sandbox.Limits, isolation: sandbox.Isolation) -> bytes:
    return sandbox.compile_kernels(source, limits, isolation)


@contextlib.contextmanager
def compiled(function: submission.RemoteFunction, kernel: str) -> Iterator[EmulatedModule]:
    """Compile the source that a function returns, in the isolation of its submission.

    Raises:
        WrongAnswer: The function returns no text or text without the kernel, or the text does not
            compile.
        Unsupported: This machine has no C++ compiler.
    """
    find_compiler()
    source = function()
    expect(
        isinstance(source, str) and len(source.encode()) <= _SOURCE_BYTES,
        f"{function.name} returned {source!r:.60}; it must return the source as text, of at most "
        f"{_SOURCE_BYTES} bytes",
    )
    expect(
        kernel in kernel_names(source),
        f"the source of {function.name} has no kernel {kernel!r}; it has: "
        f"{', '.join(kernel_names(source)) or 'none'}",
    )
    limits, isolation = function.submission.limits, function.submission.isolation
    try:
        program = _compile(source, limits, isolation)
    except KernelError as exc:
        raise verdict.WrongAnswer(str(exc)[:_SHOWN]) from None
    fd = os.memfd_create("kernel", os.MFD_CLOEXEC)
    with os.fdopen(fd, "wb") as file:
        file.write(program)
        file.flush()
        prefix = sandbox.kernel_prefix(limits, isolation)
        command = Command(Path(f"/proc/self/fd/{fd}"), prefix, (fd,))
        yield EmulatedModule(command, kernel_names(source))


class Machine(Closable):
    """Near memory, which kernels can access, far memory, and a queue to which kernels post.

    Args:
        far: Size of the far memory, in bytes.
        near: Size of the near memory, in bytes.
        near_bytes: Initial content of the beginning of the near memory.
        far_bytes: Initial content of the beginning of the far memory.
    """

    def __init__(
        self, far: int, near: int, near_bytes: bytes = b"", far_bytes: bytes = b""
    ) -> None:
        with contextlib.ExitStack() as stack:
            device = stack.enter_context(Device("soft"))
            self.far = stack.enter_context(empty(far, dtype="u1"))
            self.near = stack.enter_context(empty(near, dtype="u1"))
            self.status = stack.enter_context(empty(_THREADS, dtype="i4"))
            for memory, data in ((self.far, far_bytes), (self.near, near_bytes)):
                memory.array[:] = 0
                memory.array[: len(data)] = list(data)
            self._local = device.register(self.near, access="rw")
            stack.callback(self._local.close)
            owned = device.register(self.far, access="rw")
            stack.callback(owned.close)
            self._remote = stack.enter_context(device.import_region(owned.export()))
            regions = (self._remote, self._local)
            self.queue = stack.enter_context(
                device.gpu_queue(_DEPTH, timeout=_WAIT_S, regions=regions)
            )
            self._closing = stack.pop_all()

    def run(
        self,
        module: EmulatedModule,
        kernel: str,
        grid: int,
        block: int,
        *more: Any,
        seed: int = 0,
        timeout: float = 10.0,
        watch: Callable[[], None] | None = None,
    ) -> list[int]:
        """Run a kernel; return the status of each thread, or -1 if it stored none.

        Args:
            module: The compiled source.
            kernel: The kernel's name.
            grid: Number of blocks.
            block: Threads of a block.
            more: The kernel's arguments after the status.
            seed: Seed of the order in which threads run.
            timeout: Seconds after which the kernel is stopped.
            watch: Called repeatedly while the kernel runs.

        Raises:
            WrongAnswer: The kernel hung, deadlocked or failed.
        """
        self.status.array[:] = -1
        ids = _u32(self._remote.id), _u32(self._local.id)
        arguments = (self.queue, *ids, self.status, *more)
        started = module[kernel].start(grid, block, arguments, seed=seed, timeout=timeout)
        try:
            while watch and started.running:
                watch()
            started.wait()
        except verdict.WrongAnswer:
            started.kill()
            with contextlib.suppress(KernelError):
                started.wait()
            raise
        except KernelError as exc:
            raise verdict.WrongAnswer(str(exc)[:_SHOWN]) from None
        return [int(each) for each in self.status.array[: grid * block]]

    @property
    def far_bytes(self) -> bytes:
        """Content of the far memory."""
        return bytes(self.far.array)

    def close(self) -> None:
        """Release the memory. Idempotent."""
        self._closing.close()


def orders(rng: random.Random) -> Iterator[int]:
    """Yield SEEDS seeds. With every second one, a thread keeps its turn while it waits."""
    for number in range(SEEDS):
        yield rng.randrange(1 << 32) | number % 2 << 63


def _u32(value: int) -> Any:
    import numpy as np

    return np.uint32(value)


def _time(function: submission.RemoteFunction) -> float:
    return function.submission.limits.time_s


def _expect_far(machine: Machine, right: bytes, whose: Callable[[int], str]) -> None:
    """Expect bytes in the far memory; the feedback shows the first wrong byte."""
    found = machine.far_bytes
    wrong = next((at for at, byte in enumerate(right) if found[at] != byte), None)
    if wrong is None:
        return
    start = wrong & ~15
    end = next((at for at in range(wrong, len(right)) if found[at] == right[at]), len(right))
    raise verdict.WrongAnswer(
        f"byte {wrong} of the far memory is {found[wrong]:#04x}, not {right[wrong]:#04x}: "
        f"{whose(wrong)}\nfound\n{hexdump(found[start : start + 48], start, (wrong, end))}\n"
        f"right\n{hexdump(right[start : start + 48], start)}"
    )


def _expect_status(statuses: Sequence[int], right: Sequence[int]) -> None:
    for thread, (found, wanted) in enumerate(zip(statuses, right, strict=True)):
        expect(
            found == wanted,
            f"the status of thread {thread} is {_exit_status(found)}; "
            f"it must be {_exit_status(wanted)}",
        )


def _exit_status(value: int) -> str:
    if value == -1:
        return "missing"
    known = value in {int(each) for each in Status}
    return f"{value} ({Status(value).name})" if known else str(value)


def test_put(put_pieces: Function, far_base: int) -> None:
    """Test put_pieces: the bytes and the status of each thread."""
    rng, report = verdict.seeded("put"), verdict.Report(concepts.LAB7)
    with submission.local(put_pieces) as (function,):
        with report.case("one thread", "bytes", required=True):
            _check_put(rng, function, far_base, (1, 1), 24)
        with report.case("a grid of several blocks", "bytes"):
            _check_put(rng, function, far_base, (3, 20), rng.randrange(9, 40))
        with report.case("pieces that end beyond the far memory: their status says so", "status"):
            _check_put(rng, function, far_base, (2, 16), 16, room=19 * 16 + 7)
    report.finish()


def _check_put(
    rng: random.Random,
    function: submission.RemoteFunction,
    base: int,
    shape: tuple[int, int],
    size: int,
    room: int | None = None,
) -> None:
    threads = shape[0] * shape[1]
    data = rng.randbytes(threads * size)
    room = len(data) + 16 if room is None else room
    whole = min(threads, room // size)
    right = bytes(base) + data[: whole * size].ljust(room, b"\0")
    with (
        compiled(function, "put_pieces") as module,
        Machine(base + room, len(data), data) as machine,
    ):
        statuses = machine.run(module, "put_pieces", *shape, _u32(size), timeout=_time(function))
        _expect_far(machine, right, lambda at: _piece(at - base, size))
        beyond = [int(Status.OUT_OF_BOUNDS)] * (threads - whole)
        _expect_status(statuses, [int(Status.OK)] * whole + beyond)


def _piece(place: int, size: int) -> str:
    return f"of the piece of thread {place // size}" if place >= 0 else "before the first piece"


def test_squares(squares: Function, factor: int) -> None:
    """Test squares: all numbers of all rounds arrive, and no signal arrives before its numbers."""
    rng, report = verdict.seeded("squares"), verdict.Report(concepts.LAB7)
    with submission.local(squares) as (function,):
        with report.case("one block, one round", "bytes", required=True):
            _check_squares(0, function, factor, (1, 16), 1, numbers=True, signals=True)
        title = f"several blocks and rounds, in {SEEDS} orders: the numbers"
        with report.case(title, "bytes"):
            for seed in orders(rng):
                _check_squares(seed, function, factor, (2, 48), 8, numbers=True)
        title = "several blocks and rounds: the signals, while it runs and at the end"
        with report.case(title, "signals"):
            for seed in orders(rng):
                _check_squares(seed, function, factor, (2, 48), 8, signals=True)
    report.finish()


@dataclass(frozen=True, slots=True)
class _Squares:
    """Layout of what `squares` writes: a signal for each block, then the numbers of each round."""

    blocks: int
    threads: int
    rounds: int
    factor: int

    @property
    def part(self) -> int:
        """Bytes of the numbers of one round of a block."""
        return 4 * self.threads

    def at(self, block: int, round_: int) -> int:
        """Return the offset of the numbers of a round."""
        return 8 * self.blocks + (block * self.rounds + round_) * self.part

    def numbers(self, block: int, round_: int) -> bytes:
        """Return the numbers of a round."""
        first = (block * 1000 + round_) * self.factor
        values = (first + thread * thread for thread in range(self.threads))
        return b"".join(value.to_bytes(4, "little") for value in values)

    def whose(self, place: int) -> str:
        """Say to which number a byte belongs."""
        number, byte = divmod(place - 8 * self.blocks, self.part)
        block, round_ = divmod(number, self.rounds)
        return f"of block {block}, round {round_}, thread {byte // 4}"

    def check_signals(self, machine: Machine, signals: Iterable[int]) -> None:
        """Check that the numbers of each signalled round are in memory."""
        for block, signal in enumerate(map(int, signals)):
            expect(
                signal <= self.rounds,
                f"the signal of block {block} is {signal} after {self.rounds} rounds",
            )
            if signal:
                start = self.at(block, signal - 1)
                found = machine.far_bytes[start : start + self.part]
                expect(
                    found == self.numbers(block, signal - 1),
                    f"the signal of block {block} is {signal}, and the numbers of round "
                    f"{signal - 1} are not there\n{hexdump(found[:48], start)}",
                )

    def check_end(self, machine: Machine) -> None:
        """Check the numbers of all rounds."""
        places = itertools.product(range(self.blocks), range(self.rounds))
        right = machine.far_bytes[: 8 * self.blocks]
        right += b"".join(self.numbers(*place) for place in places)
        _expect_far(machine, right, self.whose)


def _check_squares(
    seed: int,
    function: submission.RemoteFunction,
    factor: int,
    shape: tuple[int, int],
    rounds: int,
    *,
    numbers: bool = False,
    signals: bool = False,
) -> None:
    squares = _Squares(*shape, rounds, factor)
    room = squares.at(squares.blocks, 0)
    with (
        compiled(function, "squares") as module,
        Machine(room, squares.blocks * squares.part) as machine,
    ):
        words = machine.far.array[: 8 * squares.blocks].view("u8")
        watch = functools.partial(squares.check_signals, machine, words) if signals else None
        machine.run(
            module, "squares", *shape, machine.near, _u32(rounds),
            seed=seed, timeout=_time(function), watch=watch,
        )  # fmt: skip
        if watch is not None:
            watch()
            for block, signal in enumerate(map(int, words)):
                expect(
                    signal == rounds,
                    f"the signal of block {block} is {signal} at the end, not {rounds}",
                )
        if numbers:
            squares.check_end(machine)


def test_transform(transform: Function, add: int) -> None:
    """Test transform: get a chunk, change it, put it back, continue with the next."""
    rng, report = verdict.seeded("transform"), verdict.Report(concepts.LAB7)
    with submission.local(transform) as (function,):
        with report.case("one chunk, one thread", "bytes", required=True):
            check_transform(rng, function, add, 1, 32, 1)
        title = f"several chunks, larger than the block, in {SEEDS} orders"
        with report.case(title, "bytes"):
            for seed in orders(rng):
                check_transform(rng, function, add, 64, 500, 4, seed=seed)
    report.finish()


def check_transform(
    rng: random.Random,
    function: submission.RemoteFunction,
    add: int,
    block: int,
    chunk: int,
    count: int,
    room: int | None = None,
    seed: int = 0,
) -> None:
    """Run transform on chunks of random bytes; expect the far memory and the status."""
    room = chunk * count if room is None else room
    data, key = rng.randbytes(room), rng.randrange(1, 256)
    done = min(count, room // chunk) * chunk
    right = bytes((byte ^ key) + add & 0xFF for byte in data[:done]) + data[done:]
    with (
        compiled(function, "transform") as module,
        Machine(room, chunk, far_bytes=data) as machine,
    ):
        statuses = machine.run(
            module, "transform", 1, block, machine.near, _u32(key), _u32(chunk), _u32(count),
            seed=seed, timeout=_time(function),
        )  # fmt: skip
        _expect_far(machine, right, lambda at: f"of chunk {at // chunk}")
        status = Status.OK if done == chunk * count else Status.OUT_OF_BOUNDS
        _expect_status(statuses[:1], [int(status)])


def test_few_puts(put_few: Function, far_base: int) -> None:
    """Test the bonus: put the pieces of a grid with few operations.

    The ratio is one operation for each thread, divided by the operations made.
    """
    rng, report = verdict.seeded("few puts"), verdict.Report(concepts.LAB7)
    blocks, threads, size = 4, 32, 16
    data, operations = rng.randbytes(blocks * threads * size), 0
    with (
        submission.local(put_few) as (function,),
        report.case("4 blocks of 32 threads", "bytes", required=True),
        compiled(function, "put_few") as module,
        Machine(far_base + len(data), len(data), data) as machine,
    ):
        statuses = machine.run(
            module, "put_few", blocks, threads, _u32(size), timeout=_time(function)
        )
        operations = machine.queue.stats().completed
        right = bytes(far_base) + data
        _expect_far(machine, right, lambda at: _piece(at - far_base, size))
        _expect_status(statuses, [int(Status.OK)] * (blocks * threads))
    report.bonus(blocks * threads / max(1, operations))
    report.finish()
