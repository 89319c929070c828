"""The floor reported with a measurement: the same copy without dgkit, on the same machine."""

from __future__ import annotations

from array import array
from typing import TYPE_CHECKING

from ..errors import Unsupported
from ..sizes import FLOOR_BYTES
from ..types import OWN_EXPORT, Op

if TYPE_CHECKING:
    from ..dma import Queue, Region, RemoteRegion
    from .values import LatencyTask, RateTask

_SAMPLES = 2000
_LEAST = 5  # copies, even if they move more than FLOOR_BYTES
_FEW, _LONGEST_NS = 20, 200_000_000
_TOGETHER = 500  # copies per call of the bare loop, since each call has to refill its window


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
        self._count = max(_LEAST, min(_SAMPLES, FLOOR_BYTES // max(self._size, 1)))

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
        taken = self._bare_loop(min(self._count, _FEW), 1)
        more = min(self._count - len(taken), _LONGEST_NS // max(_median(taken), 1))
        if taken and more > 0:
            taken += self._bare_loop(more, 1)
        return _median(taken)

    def _mean_interval(self) -> int:
        """Return the mean time per copy, from the end of the first copy to that of the last."""
        window = min(self._window, max(2, FLOOR_BYTES // self._size), _TOGETHER // _LEAST)
        taken = self._bare_loop(max(min(self._count, _TOGETHER), _LEAST * window), window)
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
