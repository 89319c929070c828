"""Worker thread of a DPU in its user's process: interleaves the chunks of concurrent jobs."""

from __future__ import annotations

import _thread
import contextlib
import errno
import os
import threading
from collections.abc import Callable
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING

from ..errors import ClosedError, LimitReached
from ..sizes import LARGE, LARGE_SLOTS, WAIT_S
from .copier import Copier

if TYPE_CHECKING:
    from ..dma import Device
    from .job import Job

_WATCH_S = 0.05  # interval at which a waiter checks that the thread runs


class Worker:
    """Thread that shares one copier among all jobs; it starts with the first one. Thread-safe.

    A free slot goes to the job with the smallest share, and while the thread waits for one DMA,
    those of the other jobs proceed. Ctrl-C is raised in the main thread only, so it cannot
    interrupt a job. It can interrupt the methods of this class, which therefore hold no lock and
    rely on C calls that are atomic: `threading.Thread.start()` and `threading.Condition` are
    written in Python.

    Args:
        device: Device that moves the bytes.
        on_end: Called with each job that has ended, before its waiters are notified.
    """

    def __init__(self, device: Device, on_end: Callable[[Job], None]) -> None:
        self.jobs: dict[Job, None] = {}  # jobs that have not ended, in the order of submission
        self.closed = False
        self.copier = Copier(device, LARGE, LARGE_SLOTS)
        self._on_end = on_end
        self._wake: SimpleQueue[None] = SimpleQueue()
        self._running = threading.Lock()  # held by the thread while it runs
        self._pid = os.getpid()

    def submit(self, job: Job) -> None:
        """Have the thread run a job; after close() the job fails.

        Raises:
            LimitReached: The system has no thread left.
        """
        self.jobs[job] = None
        self._wake.put(None)
        self._ensure_thread()

    def _ensure_thread(self) -> None:
        """Start the thread unless it runs. A second one, started by a race, ends at once."""
        if self._running.locked():
            return
        try:
            _thread.start_new_thread(self._run, ())
        except RuntimeError as exc:  # "can't start new thread"
            raise LimitReached(
                errno.EAGAIN,
                "this process cannot start another thread: `ulimit -u` or the container's limit "
                "of processes is reached",
            ) from exc

    def wait(self, job: Job, timeout: float) -> bool:
        """Wait for a job at most `timeout` seconds, perhaps less; return whether it has ended.

        Raises:
            ClosedError: This is a forked child, which has no such thread.
        """
        if job.ended:
            return True
        if self._pid != os.getpid():
            raise ClosedError("the session is the parent's: this process was forked")
        self._ensure_thread()  # Ctrl-C may have come before the thread was started
        latch = threading.Lock()
        latch.acquire()
        job.call_on_end(latch.release)
        latch.acquire(timeout=min(timeout, _WATCH_S))
        job.cancel_call(latch.release)
        return job.ended

    def close(self) -> None:
        """End the jobs with ClosedError, and the thread. Idempotent."""
        self.closed = True
        self._wake.put(None)
        with self._running:
            self._fail_all(ClosedError("the session is closed"))

    def _run(self) -> None:
        if not self._running.acquire(blocking=False):
            return
        try:
            while not self.closed:
                if not self.jobs:
                    self._wake.get()
                self._turn()
            self._fail_all(ClosedError("the session is closed"))
        except Exception as exc:  # a defect of dgkit: the waiters must see it
            self._fail_all(exc)
        finally:
            self._running.release()

    def _turn(self) -> None:
        """Handle what has completed, and wait for a DMA if nothing has."""
        # By bytes posted: in the order of submission, the first job would be served more often.
        jobs = sorted(self.jobs, key=lambda job: job.posted)
        moved = self._start_chunks(jobs)
        for job in jobs:
            if job.advance():
                moved = True
                self._start_chunks(jobs)  # before the next job, so that DMA never pauses
            if job.over:
                self._end(job)
                moved = True
        if moved or not jobs:
            return
        waiting = next((job for job in jobs if job.oldest is not None), None)
        if waiting is not None:
            waiting.wait_oldest(WAIT_S)
        else:
            with contextlib.suppress(Empty):
                self._wake.get(timeout=WAIT_S)

    def _start_chunks(self, jobs: list[Job]) -> bool:
        """Give each free slot to the job with the smallest share; return whether one was taken."""
        started = False
        while self.copier.free:
            ready = sorted(jobs, key=lambda job: job.share) if len(jobs) > 1 else jobs
            if not any(job.start_chunk(self.copier) for job in ready):
                break
            started = True
        return started

    def _end(self, job: Job) -> None:
        self.jobs.pop(job, None)
        self._on_end(job)
        job.end()

    def _fail_all(self, error: Exception) -> None:
        """Fail all jobs; the caller holds `_running`. Closing the queues ends their DMA."""
        self.copier.close()
        for job in list(self.jobs):
            job.fail(error)
            self._end(job)
