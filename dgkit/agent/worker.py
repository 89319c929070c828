# SPDX-License-Identifier: Apache-2.0
"""Threads for one client's long work, so that no client waits for another; end of a monitor's."""

from __future__ import annotations

import errno
import threading
from collections import deque
from collections.abc import Callable

from ..errors import ClosedError, QueueFull
from ..threads import starting
from ..wire.essential import essential_thread

_BACKLOG = 1024  # queued requests of one client


class SerialWorker:
    """Runs jobs in submission order on one thread, started by the first job or by start().

    Args:
        name: Name of the thread.
        on_error: Called with each exception that a job raises; the thread continues.
    """

    def __init__(self, name: str, on_error: Callable[[Exception], None]) -> None:
        self._name = name
        self._on_error = on_error
        self._jobs: deque[Callable[[], None]] = deque()
        self._condition = threading.Condition()
        self._thread: threading.Thread | None = None
        self._last: Callable[[], None] | None = None
        self._submitted = 0
        self._finished = 0
        self.stopping = False

    @property
    def idle(self) -> bool:
        """Return whether no job is queued or running."""
        return self._submitted == self._finished

    def submit(self, job: Callable[[], None]) -> None:
        """Queue a job.

        Raises:
            QueueFull: Too many jobs are queued.
            ClosedError: The worker is stopping.
            LimitReached: The system has no thread left; the job was not queued.
        """
        with self._condition:
            if self.stopping:
                raise ClosedError("this client is disconnecting")
            if len(self._jobs) >= _BACKLOG:
                raise QueueFull(
                    errno.EAGAIN, f"{_BACKLOG} requests of this client are queued, the maximum"
                )
            self._start()
            self._submitted += 1
            self._jobs.append(job)
            self._condition.notify()

    def start(self) -> None:
        """Start the thread, without which finish() cannot run its last job.

        Raises:
            LimitReached: The system has no thread left.
        """
        with self._condition:
            self._start()

    def _start(self) -> None:
        if self._thread is not None:
            return
        thread = essential_thread(self._name, self._run)
        with starting("the agent"):
            thread.start()
        self._thread = thread

    def finish(self, last: Callable[[], None] | None = None) -> None:
        """Drop the queued jobs, run `last` after the job in progress, then end the thread.

        `last` runs only if the thread was started before, by start() or a job.
        """
        with self._condition:
            if self.stopping:
                return
            self.stopping = True
            self._last = last
            self._jobs.clear()
            self._condition.notify()

    def _run(self) -> None:
        while True:
            with self._condition:
                while not self._jobs and not self.stopping:
                    self._condition.wait()
                job = self._last if self.stopping else self._jobs.popleft()
            if job is not None:
                try:
                    job()
                except Exception as exc:
                    self._on_error(exc)
            if self.stopping and job is self._last:
                return

    def job_finished(self) -> None:
        """Mark the job as finished; a job calls this before it sends its reply.

        The client's next request then finds the worker idle.
        """
        self._finished += 1

    def join(self, timeout: float) -> bool:
        """Wait for the thread to end; return False if it has not within `timeout` seconds."""
        if self._thread is None or self._thread is threading.current_thread():
            return True
        self._thread.join(timeout)
        return not self._thread.is_alive()


class MonitorEnd:
    """End of one monitor, with the callbacks to run once its resources are freed. Thread-safe.

    Attributes:
        region: Handle of the region that the monitor measures.
    """

    def __init__(self, region: int, worker: SerialWorker) -> None:
        self.region = region
        self._worker = worker
        self._requested = threading.Event()
        self._lock = threading.Lock()
        self._ended = False
        self._reason: Exception | None = None
        self._on_end: list[Callable[[], None]] = []

    def end(
        self, *, reason: Exception | None = None, on_end: Callable[[], None] | None = None
    ) -> None:
        """Ask the thread to end, without waiting for it.

        Args:
            reason: Error that the client receives as the reason.
            on_end: Called once everything is freed.
        """
        with self._lock:
            self._reason = self._reason or reason
            if on_end is not None and not self._ended:
                self._on_end.append(on_end)
                on_end = None
        self._requested.set()
        if on_end is not None:
            on_end()

    def join(self, timeout: float) -> bool:
        """Wait for the thread to end; return False if it has not within `timeout` seconds."""
        return self._worker.join(timeout)

    def wait_requested(self, seconds: float) -> bool:
        """Wait up to `seconds` for end(); return whether it was called."""
        return self._requested.wait(seconds)

    def mark_ended(self) -> Exception | None:
        """Record that the thread has stopped sampling; return the reason given to end()."""
        with self._lock:
            self._ended = True
            return self._reason

    def run_callbacks(self) -> None:
        """Run the callbacks of end(), after everything is freed."""
        for on_end in self._on_end:
            on_end()
