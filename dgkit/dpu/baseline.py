"""The floor beside a figure: the least that the machine needs for the same bytes, without dgkit."""

from __future__ import annotations

from array import array
from typing import TYPE_CHECKING

from ..errors import Unsupported
from ..types import DOCA, Op

if TYPE_CHECKING:
    from ..dma import Queue, Region, RemoteRegion
    from ..wire.messages import Latency, Rate

__all__ = ["Floor"]

_SAMPLES = 2000
_BYTES = 64 << 20  # a floor copies no more than this in all, and at least _LEAST times
_LEAST = 5
_FEW, _LONGEST_NS = 20, 200_000_000
_TOGETHER = 500  # copies of one bare loop: the next would fill its window anew


class Floor:
    """The floor of what `request` asks for, over the memory that it is measured with.

    Of GPU memory it is a bare C loop over the driver that does the same copy, with up to `window`
    in flight; with `doca` and `softdoca` one over DOCA's own calls, of any memory. Of other
    memory it is the machine's: one memcpy, or with `handoff` one by another thread, its
    doorbell and its flag; never that one of the provider `cuda`, whose caller copies.
    """

    def __init__(
        self,
        queue: Queue,
        local: Region,
        remote: RemoteRegion,
        request: Latency | Rate,
        *,
        handoff: bool = False,
        window: int = 1,
    ) -> None:
        self._queue, self._local, self._remote = queue, local, remote
        self._write = request.op == Op.WRITE
        self._size, self._at = request.size, getattr(request, "offset", 0)
        self._handoff, self._window = handoff, window
        self._count = max(_LEAST, min(_SAMPLES, _BYTES // max(self._size, 1)))

    def now(self) -> int:
        """In ns of one copy. 0: there is none; a hand-off needs two CPUs."""
        from ..dma import cpus, measure

        if self._remote.method == "gpu" or self._queue.device.provider in DOCA:
            return self._rate() if self._window > 1 else self._one()
        handoff = self._handoff and self._queue.device.provider != "cuda"
        if handoff and cpus() == 1:
            return 0
        return _median(measure.floor(self._size, self._count, handoff=handoff))

    def _one(self) -> int:
        """The median; of fewer, where a busy GPU makes the plain copy take milliseconds."""
        taken = self._bare(min(self._count, _FEW), 1)
        more = min(self._count - len(taken), _LONGEST_NS // max(_median(taken), 1))
        if taken and more > 0:
            taken += self._bare(more, 1)
        return _median(taken)

    def _rate(self) -> int:
        """The mean from the end of the first copy to that of the last."""
        window = min(self._window, max(2, _BYTES // self._size), _TOGETHER // _LEAST)
        taken = self._bare(max(min(self._count, _TOGETHER), _LEAST * window), window)
        return max(1, sum(taken[1:]) // (len(taken) - 1)) if taken else 0

    def _bare(self, count: int, window: int) -> array[int]:
        """Nothing, where the provider has no bare loop for this memory."""
        from ..dma import measure

        queue = self._queue
        prepare = queue.prepare_write if self._write else queue.prepare_read
        with prepare(self._local, self._remote, size=self._size, remote_offset=self._at) as op:
            try:
                return measure.measure_bare(op, count, window)
            except Unsupported:
                return array("Q")


def _median(taken: array[int]) -> int:
    return sorted(taken)[len(taken) // 2] if taken else 0
