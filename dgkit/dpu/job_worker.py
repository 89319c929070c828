# SPDX-License-Identifier: Apache-2.0
"""Worker thread of a session: interleaves the chunks of concurrent jobs."""

from __future__ import annotations

import _thread
import contextlib
import os
import threading
from collections.abc import Callable, Iterator
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING

from ..errors import ClosedError, DgkitError
from ..sizes import WAIT_S
from ..threads import starting

if TYPE_CHECKING:
    from .copier import Slots
    from .job import Job

_WATCH_S = 0.05  # interval at which a waiter checks that the thread runs


class Worker:
    """Thread that shares some slots among all jobs; it starts with the first one. Thread-safe.

    A free slot goes to the job with the smallest share, and while the thread waits for one chunk,
    those of the other jobs proceed. The methods that callers use may be interrupted, so they
    hold no lock and use neither threading.Thread nor threading.Condition, which are Python code.

    Args:
        slots: Slots for the chunks; the thread alone uses them, and closes them.
        on_end: Called with each job that has ended, before its waiters are notified.
    """

    def __init__(self, slots: Slots, on_end: Callable[[Job], None]) -> None:
        self.jobs: dict[Job, None] = {}  # jobs that have not ended, in the order of submission
        self.closed = False
        self.slots = slots
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

    def run(self, job: Job) -> None:
        """Run a job whose caller waits; here it is queued, as by submit()."""
        self.submit(job)

    def using(self, ref: object) -> list[Job]:
        """Return the jobs with a region that have not ended."""
        return [job for job in list(self.jobs) if ref in job.refs]

    def _ensure_thread(self) -> None:
        """Start the thread unless it runs. If a race starts a second one, that ends at once."""
        if self._running.locked():
            return
        with starting("a session"):
            _thread.start_new_thread(self._run, ())

    def wait(self, job: Job, timeout: float) -> bool:
        """Wait for a job at most `timeout` seconds, perhaps less; return whether it has ended.

        Raises:
            ClosedError: This is a forked child, which has no such thread.
        """
        if job.ended:
            return True
        if self._pid != os.getpid():
            raise ClosedError("the session is the parent's: this process was forked")
        self._ensure_thread()  # submit() may have been interrupted
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
        error: Exception = ClosedError("the session is closed")
        try:
            while not self.closed:
                if not self.jobs:
                    self._wake.get()
                self._turn()
        except BaseException as exc:  # a defect of dgkit: the waiters must see it
            error = exc if isinstance(exc, Exception) else RuntimeError(repr(exc))
        finally:
            with contextlib.suppress(DgkitError):  # close() raises it
                self._fail_all(error)
            self._running.release()

    def _turn(self) -> None:
        """Advance each job; if none advanced, wait for the oldest chunk in flight."""
        moved = self._start_chunks()
        # By bytes posted: in the order of submission, the first job would be served more often.
        begun = (job for job in list(self.jobs) if job.begun or job.error)
        jobs = sorted(begun, key=lambda job: job.posted)
        for job in jobs:
            if job.advance():
                moved = True
                self._start_chunks()  # before the next job, so that no slot is idle
            if job.finished:
                self._end(job)
                moved = True
        if moved or not self.jobs:
            return
        waiting = next((job for job in jobs if job.oldest is not None), None)
        if waiting is not None:
            waiting.wait_oldest(WAIT_S)
        else:
            with contextlib.suppress(Empty):
                self._wake.get(timeout=WAIT_S)

    def _start_chunks(self) -> bool:
        """Give each free slot to the job with the smallest share; return whether there was one."""
        started = False
        while self.slots.n_free and any(job.start_chunk(self.slots) for job in self._by_share()):
            started = True
        return started

    def _by_share(self) -> Iterator[Job]:
        """Iterate over the jobs, those with the smallest share first."""
        jobs = list(self.jobs)
        yield from (job for job in jobs if not job.begun)
        yield from sorted((job for job in jobs if job.begun), key=lambda job: job.share)

    def _end(self, job: Job) -> None:
        self.jobs.pop(job, None)
        self._on_end(job)
        job.end()

    def _fail_all(self, error: Exception) -> None:
        """Fail all jobs; the caller holds `_running`. Closing the queues ends their DMA."""
        try:
            self.slots.close()
        finally:
            for job in list(self.jobs):
                job.fail(error)
                self._end(job)
