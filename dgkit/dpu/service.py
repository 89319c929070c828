# SPDX-License-Identifier: Apache-2.0
"""The DPU as a service on plain values, for an agent and for the process that is the DPU itself."""

from __future__ import annotations

import contextlib
import threading
import time
from typing import TYPE_CHECKING, Any

from .. import memory
from ..errors import ClosedError, DgkitError
from ..sizes import INLINE_MAX, LARGE, LARGE_SLOTS
from . import benchmark
from .copier import Copier, CopierPool
from .job import DigestJob, Job, TransferJob, copy_job
from .job_worker import Worker
from .region_ref import RegionRef
from .sampler import Sampler

if TYPE_CHECKING:
    from ..dma import Device
    from ..schema import (
        Digested,
        LatencyResult,
        LatencyTask,
        Moved,
        RateResult,
        RateTask,
        WatchTask,
    )  # fmt: skip
    from ..types import Access
    from .benchmark import MeasurementListener

_NAP_S = 0.001


class DpuService:
    """DPU: works on regions that it has allocated or imported. Thread-safe.

    Small copies, and the transfers of one waiting thread at a time, run in the calling thread, if
    no job with the same region is in progress; all other jobs run on one worker thread. An agent
    instead runs jobs in a thread for each client; it uses neither submit(), run(), copy() nor
    digest().

    Args:
        device: Device that moves the bytes.
        copies_inline: Whether small copies end soon, so that a thread that must not block may run
            them; with injected faults they may take long.
        inline_timeout: Seconds after which a small copy fails.
    """

    def __init__(
        self, device: Device, *, copies_inline: bool = True, inline_timeout: float = 30.0
    ) -> None:
        self.device = device
        self.moves = self.bytes = 0  # successful DMA requests, and the bytes they moved
        self._copies_inline = copies_inline
        self._small = CopierPool(lambda: Copier(device, INLINE_MAX, 1, inline_timeout))
        self._large = CopierPool(lambda: Copier(device, LARGE, LARGE_SLOTS))
        self._count_lock = threading.RLock()
        slots = Copier(device, LARGE, LARGE_SLOTS)
        self._worker = Worker(slots, lambda job: self._count(*job.counted))

    def allocate(self, size: int, place: str, access: Access, name: str | None) -> RegionRef:
        """Allocate memory and register it; `place` is the `on` of dgkit.empty()."""
        with contextlib.ExitStack() as undo:
            allocated = memory.empty(size, on=place, name=name)
            undo.callback(allocated.close)
            ref = RegionRef(region=self.device.register(allocated, access), memory=allocated)
            undo.pop_all()
        return ref

    def import_(self, token: bytes) -> RegionRef:
        """Import the region of a descriptor; its exporter may be slow to answer."""
        return RegionRef(remote=self.device.import_region(token))

    def copy_unless_slow(
        self, src: RegionRef, src_offset: int, dst: RegionRef, dst_offset: int, size: int
    ) -> Moved | None:
        """Copy in this thread, which must not block; None if the copy might take long.

        Raises:
            BoundsError, AccessDenied, TransferError: As Queue.read() and Queue.write().
        """
        if self._may_block(src, dst, size):
            return None
        return self._copy_here(src, src_offset, dst, dst_offset, size)

    def _may_block(self, src: RegionRef, dst: RegionRef, size: int) -> bool:
        quick = size <= INLINE_MAX and self._copies_inline
        return not (quick and src.inline_ok and dst.inline_ok)

    def _copy_here(
        self, src: RegionRef, src_offset: int, dst: RegionRef, dst_offset: int, size: int
    ) -> Moved:
        """Copy at most INLINE_MAX bytes in this thread. Errors as copy_unless_slow()."""
        if src.remote is None or dst.remote is None:
            job = copy_job(src, src_offset, dst, dst_offset, size)
            moved: Moved = self._small.run(job.run)
            return moved
        return self._small.run(
            Copier.copy_small, src.remote, src_offset, dst.remote, dst_offset, size
        )

    def is_quick(self, ref: RegionRef, size: int) -> bool:
        """Return whether a transfer is small and no job with its region is in progress."""
        return size <= INLINE_MAX and not (self._worker.jobs and self._worker.using(ref))

    def write_quickly(self, ref: RegionRef, offset: int, view: memoryview | bytes) -> Moved:
        """Write bytes of this process in this thread; is_quick() must be true. Errors as copy()."""
        remote = ref.as_remote()
        moved = self._small.run(Copier.write_small, view, remote, offset)
        self._count(1, moved.size)
        return moved

    def read_quickly(self, ref: RegionRef, offset: int, size: int) -> bytes:
        """Read bytes of a region in this thread; is_quick() must be true. Errors as copy()."""
        remote = ref.as_remote()
        data = self._small.run(Copier.read_small, remote, offset, size)
        self._count(1, size)
        return data

    def submit(self, job: TransferJob) -> None:
        """Start a transfer; a small one that cannot block has ended on return."""
        ref: RegionRef = job.refs[0]
        if self.is_quick(ref, job.size) and not self._may_block(ref, ref, job.size):
            self._run_here(self._small, job)
        else:
            self._worker.submit(job)

    def run(self, job: TransferJob) -> None:
        """Run a transfer whose caller waits.

        It runs in this thread, unless another thread is running one here or jobs with its region
        are in progress; then it is started.
        """
        if self._large.is_free and not self._worker.using(job.refs[0]):
            self._run_here(self._large, job)
        else:
            self._worker.submit(job)

    def _run_here(self, copiers: CopierPool, job: TransferJob) -> None:
        with contextlib.suppress(DgkitError):  # the job keeps the error
            copiers.run(job.run, self._check_open)
        self._count(*job.counted)
        job.end()

    def _check_open(self, _: int) -> None:
        if self._worker.closed:
            raise ClosedError("the session is closed")

    def wait(self, job: Job, timeout: float) -> bool:
        """Wait for a job at most `timeout` seconds, perhaps less; return whether it has ended."""
        return self._worker.wait(job, timeout)

    def copy(self, src: RegionRef, dst: RegionRef, size: int) -> Moved:
        """Copy and wait, after the transfers with these regions that were started before.

        Raises:
            BoundsError, AccessDenied, TransferError: As Queue.read() and Queue.write().
            ClosedError: The service was closed.
        """
        if self.is_quick(src, size) and self.is_quick(dst, size):
            moved = self._copy_here(src, 0, dst, 0, size)
            self._count(1, size)
        else:
            moved = self._run(copy_job(src, 0, dst, 0, size))
        return moved

    def digest(self, ref: RegionRef, offset: int, size: int) -> Digested:
        """Return the SHA-256 of bytes that DMA reads. Order and errors as copy()."""
        job = DigestJob(ref, offset, size)
        quick = self.is_quick(ref, size)
        result: Digested = self._small.run(job.run) if quick else self._run(job)
        return result

    def _run(self, job: Job) -> Any:
        """Have the worker run a job after the transfers with its regions, and wait."""
        job.after = [
            other
            for other in list(self._worker.jobs)
            if isinstance(other, TransferJob) and other.refs[0] in job.refs
        ]
        try:
            self._worker.submit(job)
            while not self._worker.wait(job, 1.0):
                pass
        except BaseException:
            job.fail(ClosedError("the caller was interrupted"))
            raise
        return job.result()

    def latency(
        self, ref: RegionRef, task: LatencyTask, listener: MeasurementListener
    ) -> LatencyResult:
        """Measure latencies in this thread, on a queue of their own."""
        return benchmark.latency(task, ref, self.device, listener)

    def rate(self, ref: RegionRef, task: RateTask, listener: MeasurementListener) -> RateResult:
        """Measure bandwidth in this thread, on a queue of its own."""
        return benchmark.rate(task, ref, self.device, listener)

    def watch(self, ref: RegionRef, task: WatchTask) -> Sampler:
        """Return the sampler of a monitor; the caller drives it."""
        return Sampler(self.device, ref, task)

    def wait_unused(self, ref: RegionRef) -> None:
        """Wait until no copy or digest uses a region; transfers fail once the region is closed."""
        while not all(isinstance(job, TransferJob) for job in self._worker.using(ref)):
            time.sleep(_NAP_S)

    def _count(self, moves: int, size: int) -> None:
        with self._count_lock:
            self.moves += moves
            self.bytes += size

    def close(self) -> None:
        """End the worker and its jobs, and free the queues and their memory. Idempotent."""
        self._worker.close()
        self._small.close()
        self._large.close()
