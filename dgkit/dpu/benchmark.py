"""Latency and bandwidth measurements of the DPU, in slices between which they can be cancelled."""

from __future__ import annotations

import contextlib
import time
from array import array
from collections.abc import Callable
from dataclasses import asdict
from typing import TYPE_CHECKING

from .. import memory
from ..types import OWN_EXPORT, Op, Path
from ..wire.messages import (
    SAMPLES_A_BLOCK,
    Block,
    Latency,
    LatencyDone,
    Progress,
    Rate,
    RateDone,
)
from .baseline import Baseline

if TYPE_CHECKING:
    from ..dma import Device, Queue, Region, RemoteRegion
    from .region_ref import RegionRef

__all__ = ["BenchmarkQueue", "latency", "machine_fields", "rate"]

Send = Callable[[object], None]
Check = Callable[[], None]

_SLICE_NS = 50_000_000  # how long a C loop runs before cancellation is checked
_RATE_SLICE_S = 0.1
_RATE_BYTES = 16 << 20  # of local memory that a window of small transfers cycles through


class BenchmarkQueue:
    """Queue and `size` bytes of local memory (`local`) for one measurement."""

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

    def __enter__(self) -> BenchmarkQueue:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the queue, then free the memory."""
        self.queue.close()
        self.local.close()
        self._memory.close()


def latency(
    request: Latency, ref: RegionRef, device: Device, send: Send, check: Check
) -> LatencyDone:
    """Measure latencies, with the baseline before and after.

    Args:
        request: Operation, size, offset, path and count.
        ref: Region at the remote end.
        device: Device that moves the bytes.
        send: Called with each numbered Block of samples and with each Progress.
        check: Called between two slices; may raise to end the measurement.
    """
    from ..dma import measure

    remote = ref.as_remote()
    op = Op(request.op).name.lower()
    with BenchmarkQueue(device, request.size, 16, request.path) as bench:
        probe = measure.latency(
            bench.queue, bench.local, remote,
            op=op, size=request.size, count=1, remote_offset=request.offset,
        )  # fmt: skip
        path = probe.path
        handoff = path != "inline"
        baseline = Baseline(bench.queue, bench.local, remote, request, handoff=handoff)
        before = baseline.measure_ns()
        slept = device.stats.engine_sleeps
        blocks = _sample(request, bench, remote, send, check)
        slept = 0 if path == "inline" else device.stats.engine_sleeps - slept
        after = baseline.measure_ns()
    machine = machine_fields(device, remote)
    return LatencyDone(request.id, blocks, path, before, after, machine, slept)


def _sample(
    request: Latency, bench: BenchmarkQueue, remote: RemoteRegion, send: Send, check: Check
) -> int:
    """Send all samples in blocks; return the number of blocks."""
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


def rate(request: Rate, ref: RegionRef, device: Device, send: Send, check: Check) -> RateDone:
    """Count the bytes moved in `request.seconds`, with the baseline before and after.

    The measurement runs in slices, each timed by C. Arguments as for latency().
    """
    remote = ref.as_remote()
    local_size = min(request.size * request.window, max(request.size, _RATE_BYTES))
    local_size = min(local_size, ref.size)
    with BenchmarkQueue(device, local_size, request.window, request.path) as bench:
        baseline = Baseline(bench.queue, bench.local, remote, request, window=request.window)
        before = baseline.measure_ns()
        slept = device.stats.engine_sleeps
        figures = _count(request, bench, remote, send, check)
        slept = 0 if figures[-1] == "inline" else device.stats.engine_sleeps - slept
        after = baseline.measure_ns()
    return RateDone(request.id, *figures, before, after, machine_fields(device, remote), slept)


def _count(
    request: Rate, bench: BenchmarkQueue, remote: RemoteRegion, send: Send, check: Check
) -> tuple[int, int, int, int, str]:
    """Return operations, bytes, elapsed nanoseconds, failed operations and the path."""
    from ..dma import measure

    ops = moved = elapsed = failed = 0
    path = ""
    goal = int(request.seconds * 1e9)
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
        path = part.path
        send(Progress(request.id, min(elapsed, goal), goal))
    return ops, moved, elapsed, failed, path


def machine_fields(device: Device, remote: RemoteRegion) -> dict[str, str | int | bool | None]:
    """Return the measuring machine as the fields of dgkit.report.Machine.

    Between two memories of the host the provider `cuda` copies with the CPU: then `engine` is
    empty. Of RDMA it also says how the exporter's adapter has the memory.
    """
    from ..dma import cpus
    from ..report import Machine

    has_engine = remote.method == "gpu" or device.provider in OWN_EXPORT
    engine = device.caps.engine if has_engine else ""
    if remote.registration:
        engine += f"; remote memory: {remote.registration}"
    return asdict(Machine.here(cpus(), engine))
