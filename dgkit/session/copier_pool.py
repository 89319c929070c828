"""Copiers for the copies and digests of a process that is the DPU."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

from ..dpu.copier import Copier
from ..errors import ClosedError, DgkitError

if TYPE_CHECKING:
    from ..dma import Device
    from ..dpu.region_ref import RegionRef

__all__ = ["CopierPool"]

_CHUNK = 1 << 20
_NAP_S = 0.001

_Result = TypeVar("_Result")


class _Job:
    """Work in progress with regions."""

    __slots__ = ("finished", "refs")

    def __init__(self, refs: tuple[RegionRef, ...]) -> None:
        self.refs = refs
        self.finished = False


class CopierPool:
    """One copier, with its own queue and memory, for each concurrent job. Thread-safe.

    Jobs wait neither for transfers nor for each other. There is no lock: Ctrl-C in the methods of a
    `threading.Condition`, which are in Python, would leave its lock held for ever. Who waits for
    jobs looks at them again and again.
    """

    def __init__(self, device: Device) -> None:
        self._device = device
        self._idle: list[Copier] = []
        self._jobs: dict[_Job, None] = {}
        self._closed = False

    def run(self, work: Callable[[Copier], _Result], *refs: RegionRef) -> _Result:
        """Call `work` with a copier, for a job with these regions; return its result.

        Raises:
            ClosedError: The session is closed.
        """
        job = _Job(refs)
        try:
            self._jobs[job] = None  # before the look at _closed: close() stores that, then looks
            self.check_open()
            return self._run(work)
        finally:
            job.finished = True  # first, and no call: Ctrl-C comes before it or after it
            self._jobs.pop(job, None)

    def _run(self, work: Callable[[Copier], _Result]) -> _Result:
        copier = self._take()
        try:
            result = work(copier)
        except BaseException:  # a DMA may still be in flight to its memory
            with contextlib.suppress(DgkitError):
                copier.close()
            raise
        self._idle.append(copier)  # close() closes it, since this job is not finished
        return result

    def _take(self) -> Copier:
        try:
            return self._idle.pop()
        except IndexError:
            return Copier(self._device, chunk=_CHUNK, op_timeout=30.0)

    def check_open(self, _done: int = 0) -> None:
        """Raise ClosedError if the session was closed; jobs call it after each chunk."""
        if self._closed:
            raise ClosedError("the session is closed")

    @property
    def _running(self) -> list[_Job]:
        return [job for job in list(self._jobs) if not job.finished]

    def wait_unused(self, ref: RegionRef) -> None:
        """Wait until no job uses the region."""
        while any(ref in job.refs for job in self._running):
            time.sleep(_NAP_S)

    def close(self) -> None:
        """End each job after its current chunk, and free everything."""
        self._closed = True
        while self._running:
            time.sleep(_NAP_S)
        while self._idle:
            self._idle.pop().close()
