# SPDX-License-Identifier: Apache-2.0
"""Periodic blocks of latency samples."""

from __future__ import annotations

import math
import time
from array import array
from typing import TYPE_CHECKING

from ..schema import Sampled
from ..types import MIXED, Op
from .benchmark import BenchmarkQueue, machine_fields

if TYPE_CHECKING:
    from ..dma import Device
    from ..dma.measure import Samples
    from ..schema import WatchTask
    from .region_ref import RegionRef

_OP_TIMEOUT_S = 5.0
_WARM_NS = 1_000_000  # a transfer that takes longer gains nothing from a warm-up


class Sampler:
    """Takes the samples that a WatchTask describes, on its own memory and queue. Not thread-safe.

    The first transfer after each pause is no sample: caches and clocks are cold then, and one slow
    transfer of 50 would determine the p99. `path` is that of the very first transfer. The
    constructor raises the errors of an invalid region, span or access.
    """

    def __init__(self, device: Device, ref: RegionRef, task: WatchTask) -> None:
        self._task = task
        self._provider = device.provider
        self._remote = ref.as_remote()
        self._op = Op(task.op).name.lower()
        self._samples: array[int] = array("Q")
        self._paths: set[str] = set()  # of the block in progress
        self._number = 0
        self._sample_ns = 1
        self._bench = BenchmarkQueue(device, task.size, 16, task.path, _OP_TIMEOUT_S)
        try:
            self.path = self._measure(1).path
        except BaseException:
            self._bench.close()
            raise
        self.machine = machine_fields(device, self._remote)
        self._due = time.monotonic()

    @property
    def wait_s(self) -> float:
        """Return the seconds until the next block is due; 0 if it is due or in progress."""
        return max(0.0, self._due - time.monotonic())

    def step(self, budget_ns: int) -> Sampled | None:
        """Take samples for about `budget_ns`; return the block once it is complete.

        Missed blocks are not caught up: the next one is due at the next multiple of `every_s`.
        Errors are those of a transfer.
        """
        deadline = time.monotonic_ns() + budget_ns
        if not self._samples and self._sample_ns < _WARM_NS:
            self._measure(1)
        while True:
            left_ns = deadline - time.monotonic_ns()
            missing = self._task.samples - len(self._samples)
            taken = self._measure(max(1, min(missing, left_ns // self._sample_ns)))
            self._samples += taken.ns
            self._paths.add(taken.path)
            if len(self._samples) >= self._task.samples:
                return self._block()
            if time.monotonic_ns() >= deadline:
                return None

    def _measure(self, count: int) -> Samples:
        from ..dma import measure

        started, task = time.monotonic_ns(), self._task
        taken = measure.latency(
            self._bench.queue, self._bench.local, self._remote,
            op=self._op, size=task.size, count=count, remote_offset=task.offset,
        )  # fmt: skip
        self._sample_ns = max(1, (time.monotonic_ns() - started) // count)
        return taken

    def _block(self) -> Sampled:
        task, now = self._task, time.monotonic_ns()
        path = MIXED if len(self._paths) > 1 else self._paths.pop()
        self._paths.clear()
        raw, self._samples = self._samples.tobytes(), array("Q")
        late = now / 1e9 - self._due
        self._due += task.every_s * max(1, math.ceil(late / task.every_s))
        number, self._number = self._number, self._number + 1
        return Sampled(
            number=number, t_ns=now, provider=self._provider, source="monitor", samples=raw,
            op=self._op, size=task.size, path=path,
        )  # fmt: skip

    def close(self) -> None:
        """Close the queue and free the memory. Idempotent."""
        self._bench.close()
