"""The long work of a lane: hashing, timing, rates. Each looks at cancel between two slices."""

from __future__ import annotations

import contextlib
import time
from array import array
from collections.abc import Callable
from dataclasses import asdict
from typing import TYPE_CHECKING

from .. import memory
from ..types import DOCA, Op, Path
from ..wire.messages import (
    SAMPLES_A_BLOCK,
    Block,
    Digest,
    Digested,
    Latency,
    LatencyDone,
    Progress,
    Rate,
    RateDone,
)
from .baseline import Floor

if TYPE_CHECKING:
    from ..agent.client import Held
    from ..dma import Device, Queue, Region, RemoteRegion
    from .copier import Mover

__all__ = ["Bench", "digest", "latency", "machine", "rate"]

Send = Callable[[object], None]
Check = Callable[[], None]

_SLICE_NS = 50_000_000  # how long a C loop runs before cancel is looked at
_RATE_SLICE_S = 0.1
_RATE_BYTES = 16 << 20  # of local memory that a window of small transfers walks over


def digest(request: Digest, held: Held, mover: Mover, step: Callable[[int], None]) -> Digested:
    """SHA-256 over bytes that were READ by DMA, chunk after chunk."""
    import hashlib

    hasher = hashlib.sha256()
    remote = held.reachable()
    done = dma_ns = 0
    while done < request.size:
        count = min(mover.chunk, request.size - done)
        transfer = mover.queue.read(
            mover.bounce, remote, size=count, remote_offset=request.offset + done
        )
        dma_ns += transfer.wait().latency_ns
        hasher.update(mover.bytes_here[:count])
        done += count
        step(done)
    return Digested(request.id, hasher.hexdigest(), dma_ns)


class Bench:
    """A queue and `size` bytes of local memory for one measurement."""

    def __init__(
        self, device: Device, size: int, depth: int, path: int, op_timeout: float = 30.0
    ) -> None:
        with contextlib.ExitStack() as undo:
            self._memory = memory.empty(size, name="agent measuring")
            undo.callback(self._memory.close)
            self.local: Region = device.register(self._memory)
            undo.callback(self.local.close)
            name = Path(path).name.lower()
            self.queue: Queue = device.queue(depth=depth, path=name, op_timeout=op_timeout)
            undo.pop_all()

    def __enter__(self) -> Bench:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def close(self) -> None:
        """Ends the queue, then frees the memory."""
        self.queue.close()
        self.local.close()
        self._memory.close()


def latency(request: Latency, held: Held, device: Device, send: Send, check: Check) -> LatencyDone:
    """Samples go out in numbered blocks as they are taken, with the floor before and after."""
    from ..dma import measure

    remote = held.reachable()
    op = Op(request.op).name.lower()
    with Bench(device, request.size, 16, request.path) as bench:
        probe = measure.latency(
            bench.queue, bench.local, remote,
            op=op, size=request.size, count=1, remote_offset=request.offset,
        )  # fmt: skip
        path = probe.path
        floor = Floor(bench.queue, bench.local, remote, request, handoff=path != "inline")
        before = floor.now()
        blocks = _sample(request, bench, remote, send, check)
        after = floor.now()
    return LatencyDone(request.id, blocks, path, before, after, machine(device, remote))


def _sample(request: Latency, bench: Bench, remote: RemoteRegion, send: Send, check: Check) -> int:
    from ..dma import measure

    block: array[int] = array("Q")
    left, count, blocks = request.count, min(request.count, 256), 0
    while left:
        check()
        started = time.monotonic_ns()
        taken = measure.latency(
            bench.queue, bench.local, remote, op=Op(request.op).name.lower(),
            size=request.size, count=min(count, left), remote_offset=request.offset,
        )  # fmt: skip
        left -= len(taken.ns)
        if time.monotonic_ns() - started < _SLICE_NS // 2:
            count = min(2 * count, SAMPLES_A_BLOCK)
        elif count > 1:
            count //= 2
        block += taken.ns
        while len(block) >= SAMPLES_A_BLOCK or (block and not left):
            send(Block(request.id, blocks, block[:SAMPLES_A_BLOCK].tobytes()))
            del block[:SAMPLES_A_BLOCK]
            blocks += 1
        send(Progress(request.id, request.count - left, request.count))
    return blocks


def rate(request: Rate, held: Held, device: Device, send: Send, check: Check) -> RateDone:
    """Counts what moved in `seconds`, in slices; the clock of each slice is C's."""
    from ..dma import measure

    remote = held.reachable()
    ops = moved = elapsed = failed = 0
    goal = int(request.seconds * 1e9)
    local = min(request.size * request.window, max(request.size, _RATE_BYTES))
    with Bench(device, min(local, held.size), request.window, request.path) as bench:
        floor = Floor(bench.queue, bench.local, remote, request, window=request.window)
        before = floor.now()
        while elapsed < goal:
            check()
            part = measure.rate(
                bench.queue,
                bench.local,
                remote,
                op=Op(request.op).name.lower(),
                size=request.size,
                window=request.window,
                seconds=min(_RATE_SLICE_S, (goal - elapsed) / 1e9),
            )
            ops, moved, failed = ops + part.ops, moved + part.bytes, failed + part.failed
            elapsed += part.elapsed_ns
            send(Progress(request.id, min(elapsed, goal), goal))
        after = floor.now()
    figures = (ops, moved, elapsed, failed)
    return RateDone(request.id, *figures, part.path, before, after, machine(device, remote))


def machine(device: Device, remote: RemoteRegion) -> dict[str, str | int | bool | None]:
    """The machine that takes the figures, as the fields of dgkit.report.Machine.

    Between memories of the host the provider `cuda` copies by the CPU: then there is no engine.
    """
    from ..dma import cpus
    from ..report import Machine

    named = remote.method == "gpu" or device.provider in DOCA
    return asdict(Machine.here(cpus(), device.caps.engine if named else ""))
