# SPDX-License-Identifier: Apache-2.0
"""Latency and bandwidth measurements of the DPU, in slices between which they can be cancelled.

The floor reported with each is the same copy without dgkit, on the same machine.
"""

from __future__ import annotations

import contextlib
import time
from array import array
from dataclasses import asdict
from typing import TYPE_CHECKING, Protocol

from .. import memory
from ..errors import Unsupported
from ..schema import LatencyResult, RateResult
from ..sizes import FLOOR_BYTES, SAMPLES_A_BLOCK, rate_span
from ..types import OWN_EXPORT, PATHS, Op
from ..unique import Closable

if TYPE_CHECKING:
    from ..dma import Device, Queue, Region, RemoteRegion
    from ..schema import LatencyTask, MachineFields, RateTask
    from .region_ref import RegionRef


_SAMPLES = 2000  # copies of a floor, fewer if they would move more than FLOOR_BYTES
_MIN_SAMPLES = 5
_FIRST_SAMPLES = 20  # whose median determines how many more fit in _FLOOR_NS
_FLOOR_NS = 200_000_000
_CALL_SAMPLES = 500  # copies per call of the bare loop, since each call has to refill its window


class MeasurementListener(Protocol):
    """Receives the samples and the progress of a measurement, in the thread that measures."""

    def add_block(self, number: int, samples: bytes) -> None:
        """Take latencies: u64 nanoseconds in native byte order; blocks are numbered from 0."""

    def add_progress(self, done: int, total: int) -> None:
        """Take the progress of the measurement."""

    def check(self) -> None:
        """Raise to end the measurement, else return; called between its slices."""


class Baseline:
    """Floor of the operation that `task` measures, over the same memory.

    For GPU memory it is a bare C loop over the driver that makes the same copy, with up to `window`
    copies in flight; for the providers `doca`, `softdoca` and `verbs`, a bare C loop over the
    library's own calls, whatever the memory. For other memory it is that of the machine: one
    memcpy, or with `handoff` one memcpy by another thread, including its doorbell and its flag; the
    provider `cuda` has no worker thread, so `handoff` is ignored for it.
    """

    def __init__(
        self,
        queue: Queue,
        local: Region,
        remote: RemoteRegion,
        task: LatencyTask | RateTask,
        *,
        handoff: bool = False,
        window: int = 1,
    ) -> None:
        self._queue, self._local, self._remote = queue, local, remote
        self._write = task.op == Op.WRITE
        self._size, self._offset = task.size, getattr(task, "offset", 0)
        self._handoff, self._window = handoff, window
        self._count = max(_MIN_SAMPLES, min(_SAMPLES, FLOOR_BYTES // max(self._size, 1)))

    def measure_ns(self) -> int:
        """Measure now; return nanoseconds per copy, or 0 if there is nothing to compare with.

        A hand-off to another thread needs two CPUs; with one, the result is 0.
        """
        from ..dma import cpus, measure

        if self._remote.method == "gpu" or self._queue.device.provider in OWN_EXPORT:
            return self._mean_interval() if self._window > 1 else self._median_latency()
        handoff = self._handoff and self._queue.device.provider != "cuda"
        if handoff and cpus() == 1:
            return 0
        return _median(measure.floor(self._size, self._count, handoff=handoff))

    def _median_latency(self) -> int:
        """Return the median; takes fewer copies if a busy GPU makes each last milliseconds."""
        taken = self._bare_loop(min(self._count, _FIRST_SAMPLES), 1)
        more = min(self._count - len(taken), _FLOOR_NS // max(_median(taken), 1))
        if taken and more > 0:
            taken += self._bare_loop(more, 1)
        return _median(taken)

    def _mean_interval(self) -> int:
        """Return the mean time per copy, from the end of the first copy to that of the last."""
        window = min(self._window, max(2, FLOOR_BYTES // self._size), _CALL_SAMPLES // _MIN_SAMPLES)
        taken = self._bare_loop(max(min(self._count, _CALL_SAMPLES), _MIN_SAMPLES * window), window)
        return max(1, sum(taken[1:]) // (len(taken) - 1)) if taken else 0

    def _bare_loop(self, count: int, window: int) -> array[int]:
        """Return nanoseconds per copy; empty if the provider has no bare loop for this memory."""
        from ..dma import measure

        queue = self._queue
        prepare = queue.prepare_write if self._write else queue.prepare_read
        span = {"size": self._size, "remote_offset": self._offset}
        with prepare(self._local, self._remote, **span) as op:
            try:
                return measure.measure_bare(op, count, window)
            except Unsupported:
                return array("Q")


def _median(taken: array[int]) -> int:
    return sorted(taken)[len(taken) // 2] if taken else 0


_SLICE_NS = 50_000_000  # how long a C loop runs before cancellation is checked
_RATE_SLICE_S = 0.1


class BenchmarkQueue(Closable):
    """Queue and `size` bytes of local memory (`local`) for one measurement."""

    def __init__(
        self, device: Device, size: int, depth: int, path: int, op_timeout: float = 30.0
    ) -> None:
        with contextlib.ExitStack() as undo:
            self._memory = memory.empty(size, name="measuring")
            undo.callback(self._memory.close)
            self.local: Region = device.register(self._memory)
            undo.callback(self.local.close)
            self.queue: Queue = device.queue(depth=depth, path=PATHS[path], op_timeout=op_timeout)
            undo.pop_all()

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
    return LatencyResult(
        blocks=blocks, path=path, floor_before=before, floor_after=after,
        machine=machine_fields(device, remote), sleeps=slept,
    )  # fmt: skip


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
    from ..dma import measure

    remote = ref.as_remote()
    ops = moved = elapsed = failed = 0
    path, goal = "", max(1, int(task.seconds * 1e9))
    local_size = min(rate_span(task.size, task.window), ref.size)
    with BenchmarkQueue(device, local_size, task.window, task.path) as bench:
        baseline = Baseline(bench.queue, bench.local, remote, task, window=task.window)
        before = baseline.measure_ns()
        slept = device.stats.engine_sleeps
        while elapsed < goal:
            listener.check()
            part = measure.rate(
                bench.queue, bench.local, remote, op=Op(task.op).name.lower(), size=task.size,
                window=task.window, seconds=min(_RATE_SLICE_S, (goal - elapsed) / 1e9),
            )  # fmt: skip
            ops, moved, failed = ops + part.ops, moved + part.bytes, failed + part.failed
            elapsed, path = elapsed + part.elapsed_ns, part.path
            listener.add_progress(min(elapsed, goal), goal)
        slept = 0 if path == "inline" else device.stats.engine_sleeps - slept
        after = baseline.measure_ns()
    return RateResult(
        ops=ops, moved=moved, elapsed_ns=elapsed, failed=failed, path=path,
        floor_before=before, floor_after=after,
        machine=machine_fields(device, remote), sleeps=slept,
    )  # fmt: skip


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
