"""Latency and bandwidth measurements of the DPU, in slices between which they can be cancelled."""

from __future__ import annotations

import contextlib
import time
from array import array
from dataclasses import asdict
from typing import TYPE_CHECKING

from .. import memory
from ..sizes import SAMPLES_A_BLOCK, rate_span
from ..types import OWN_EXPORT, Op, Path
from .baseline import Baseline
from .values import LatencyResult, LatencyTask, MeasurementListener, RateResult, RateTask

if TYPE_CHECKING:
    from ..dma import Device, Queue, Region, RemoteRegion
    from .region_ref import RegionRef
    from .values import MachineFields

_SLICE_NS = 50_000_000  # how long a C loop runs before cancellation is checked
_RATE_SLICE_S = 0.1


class BenchmarkQueue:
    """Queue and `size` bytes of local memory (`local`) for one measurement."""

    def __init__(
        self, device: Device, size: int, depth: int, path: int, op_timeout: float = 30.0
    ) -> None:
        with contextlib.ExitStack() as undo:
            self._memory = memory.empty(size, name="measuring")
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
    task: LatencyTask, ref: RegionRef, device: Device, listener: MeasurementListener
) -> LatencyResult:
    """Measure latencies, with the baseline before and after.

    Args:
        task: Operation, size, offset, path and count.
        ref: Region at the remote end.
        device: Device that moves the bytes.
        listener: Receives the samples and the progress, and may end the measurement.
    """
    from ..dma import measure

    remote = ref.as_remote()
    op = Op(task.op).name.lower()
    with BenchmarkQueue(device, task.size, 16, task.path) as bench:
        probe = measure.latency(
            bench.queue, bench.local, remote,
            op=op, size=task.size, count=1, remote_offset=task.offset,
        )  # fmt: skip
        path = probe.path
        handoff = path != "inline"
        baseline = Baseline(bench.queue, bench.local, remote, task, handoff=handoff)
        before = baseline.measure_ns()
        slept = device.stats.engine_sleeps
        blocks = _sample(task, bench, remote, listener)
        slept = 0 if path == "inline" else device.stats.engine_sleeps - slept
        after = baseline.measure_ns()
    machine = machine_fields(device, remote)
    return LatencyResult(blocks, path, before, after, machine, slept)


def _sample(
    task: LatencyTask, bench: BenchmarkQueue, remote: RemoteRegion, listener: MeasurementListener
) -> int:
    """Pass all samples to the listener in blocks; return the number of blocks."""
    from ..dma import measure

    block: array[int] = array("Q")
    left, count, blocks = task.samples, min(task.samples, 256), 0
    while left:
        listener.check()
        started = time.monotonic_ns()
        taken = measure.latency(
            bench.queue, bench.local, remote, op=Op(task.op).name.lower(),
            size=task.size, count=min(count, left), remote_offset=task.offset,
        )  # fmt: skip
        left -= len(taken.ns)
        if time.monotonic_ns() - started < _SLICE_NS // 2:
            count = min(2 * count, SAMPLES_A_BLOCK)
        elif count > 1:
            count //= 2
        block += taken.ns
        while len(block) >= SAMPLES_A_BLOCK or (block and not left):
            listener.add_block(blocks, block[:SAMPLES_A_BLOCK].tobytes())
            del block[:SAMPLES_A_BLOCK]
            blocks += 1
        listener.add_progress(task.samples - left, task.samples)
    return blocks


def rate(
    task: RateTask, ref: RegionRef, device: Device, listener: MeasurementListener
) -> RateResult:
    """Count the bytes moved in `task.seconds`, with the baseline before and after.

    The measurement runs in slices, each timed by C. The arguments are those of latency().
    """
    remote = ref.as_remote()
    local_size = min(rate_span(task.size, task.window), ref.size)
    with BenchmarkQueue(device, local_size, task.window, task.path) as bench:
        baseline = Baseline(bench.queue, bench.local, remote, task, window=task.window)
        before = baseline.measure_ns()
        slept = device.stats.engine_sleeps
        figures = _count(task, bench, remote, listener)
        slept = 0 if figures[-1] == "inline" else device.stats.engine_sleeps - slept
        after = baseline.measure_ns()
    return RateResult(*figures, before, after, machine_fields(device, remote), slept)


def _count(
    task: RateTask, bench: BenchmarkQueue, remote: RemoteRegion, listener: MeasurementListener
) -> tuple[int, int, int, int, str]:
    """Return operations, bytes, elapsed nanoseconds, failed operations and the path."""
    from ..dma import measure

    ops = moved = elapsed = failed = 0
    path = ""
    goal = max(1, int(task.seconds * 1e9))
    while elapsed < goal:
        listener.check()
        part = measure.rate(
            bench.queue,
            bench.local,
            remote,
            op=Op(task.op).name.lower(),
            size=task.size,
            window=task.window,
            seconds=min(_RATE_SLICE_S, (goal - elapsed) / 1e9),
        )
        ops, moved, failed = ops + part.ops, moved + part.bytes, failed + part.failed
        elapsed += part.elapsed_ns
        path = part.path
        listener.add_progress(min(elapsed, goal), goal)
    return ops, moved, elapsed, failed, path


def machine_fields(device: Device, remote: RemoteRegion) -> MachineFields:
    """Return the measuring machine as the fields of dgkit.report.Machine.

    Between two host memories the provider `cuda` copies with the CPU: `engine` is empty then. For
    RDMA, `engine` also says how the exporter's adapter registered the memory.
    """
    from ..dma import cpus
    from ..report import Machine

    has_engine = remote.method == "gpu" or device.provider in OWN_EXPORT
    engine = device.caps.engine if has_engine else ""
    if remote.registration:
        engine += f"; remote memory: {remote.registration}"
    return asdict(Machine.here(cpus(), engine))
