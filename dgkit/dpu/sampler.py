"""Blocks of latency samples, one every so often, wherever the DPU is."""

from __future__ import annotations

import math
import time
from array import array
from typing import TYPE_CHECKING

from ..agent.telemetry import Sampled
from ..types import MIXED, Op
from .benchmark import Bench, machine

if TYPE_CHECKING:
    from ..agent.client import Held
    from ..dma import Device
    from ..dma.measure import Samples
    from ..wire.messages import Watch

__all__ = ["Sampler"]

_OP_TIMEOUT_S = 5.0
_WARM_NS = 1_000_000  # what takes longer than this is not told from what was done cold


class Sampler:
    """Takes what a Watch asks for, with memory and a queue of its own. One thread at a time.

    After each pause a first transfer is no sample: caches and clocks are cold then, and one of 50
    would be all of p99. `path` is that of the very first. What is wrong with region, span or
    access is raised here.
    """

    def __init__(self, device: Device, held: Held, request: Watch) -> None:
        self._request = request
        self._provider = device.provider
        self._remote = held.reachable()
        self._op = Op(request.op).name.lower()
        self._samples: array[int] = array("Q")
        self._paths: set[str] = set()  # of the block that is being taken
        self._number = 0
        self._each_ns = 1
        self._bench = Bench(device, request.size, 16, request.path, _OP_TIMEOUT_S)
        try:
            self.path = self._measure(1).path
        except BaseException:
            self._bench.close()
            raise
        self.machine = machine(device, self._remote)
        self._due = time.monotonic()

    @property
    def wait_s(self) -> float:
        """Seconds until the next block is due; 0: it is, or is being taken."""
        return max(0.0, self._due - time.monotonic())

    def step(self, budget_ns: int) -> Sampled | None:
        """Takes samples for about `budget_ns`; the block, once it is whole. Errors as a transfer's.

        What was missed is not caught up: the next block is due at the next multiple of `every_s`.
        """
        deadline = time.monotonic_ns() + budget_ns
        if not self._samples and self._each_ns < _WARM_NS:
            self._measure(1)
        while True:
            room = deadline - time.monotonic_ns()
            missing = self._request.count - len(self._samples)
            taken = self._measure(max(1, min(missing, room // self._each_ns)))
            self._samples += taken.ns
            self._paths.add(taken.path)
            if len(self._samples) >= self._request.count:
                return self._block()
            if time.monotonic_ns() >= deadline:
                return None

    def _measure(self, count: int) -> Samples:
        from ..dma import measure

        began, request = time.monotonic_ns(), self._request
        taken = measure.latency(
            self._bench.queue, self._bench.local, self._remote,
            op=self._op, size=request.size, count=count, remote_offset=request.offset,
        )  # fmt: skip
        self._each_ns = max(1, (time.monotonic_ns() - began) // count)
        return taken

    def _block(self) -> Sampled:
        request, now = self._request, time.monotonic_ns()
        path = MIXED if len(self._paths) > 1 else self._paths.pop()
        self._paths.clear()
        raw, self._samples = self._samples.tobytes(), array("Q")
        late = now / 1e9 - self._due
        self._due += request.every_s * max(1, math.ceil(late / request.every_s))
        number, self._number = self._number, self._number + 1
        about = (self._op, request.size, path)
        return Sampled(request.monitor, number, now, self._provider, "monitor", raw, *about)

    def close(self) -> None:
        """Ends the queue and frees the memory. Again: nothing."""
        self._bench.close()
