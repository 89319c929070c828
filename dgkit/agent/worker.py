"""Threads that run the clients' long work, so that no client waits for another."""

from __future__ import annotations

import contextlib
import errno
import threading
from collections import deque
from collections.abc import Callable
from functools import partial
from queue import SimpleQueue

from ..errors import ClosedError, LimitReached, QueueFull
from ..wire.essential import essential_thread

_BACKLOG = 1024  # queued requests of one client
_KEPT = 16  # idle threads that an agent keeps
_Task = tuple[str, Callable[[], None]]  # a thread's name, and what it runs under it


class Threads:
    """Threads for workers, each kept for another worker when its own has ended.

    Starting a thread waits until it runs, which takes milliseconds on a busy machine.
    """

    def __init__(self) -> None:
        self._idle: deque[SimpleQueue[_Task | None]] = deque()  # the inboxes of idle threads
        self._closed = False

    def start(self, name: str, run: Callable[[], None]) -> None:
        """Have a thread call run().

        Raises:
            LimitReached: The system has no thread left.
        """
        try:
            inbox = self._idle.pop()
        except IndexError:
            inbox = SimpleQueue()
            self._start(inbox)
        inbox.put((name, run))

    def _start(self, inbox: SimpleQueue[_Task | None]) -> None:
        try:
            essential_thread("dgkit-worker", partial(self._serve, inbox)).start()
        except RuntimeError as exc:  # "can't start new thread"
            raise LimitReached(
                errno.EAGAIN,
                "the agent cannot start another thread: `ulimit -u` or the container's limit of "
                "processes is reached; close a session or raise it",
            ) from exc

    def _serve(self, inbox: SimpleQueue[_Task | None]) -> None:
        while task := inbox.get():
            threading.current_thread().name, run = task
            run()
            del task, run  # they refer to a client
            if len(self._idle) >= _KEPT:
                return
            self._idle.append(inbox)
            if self._closed:
                self.close()  # it may have missed this thread

    def close(self) -> None:
        """End the idle threads, and the others once they are idle."""
        self._closed = True
        with contextlib.suppress(IndexError):
            while True:
                self._idle.pop().put(None)


class SerialWorker:
    """Runs jobs in submission order on one thread, taken at the first job or by start().

    Args:
        name: Name of the thread.
        on_error: Called with each exception that a job raises; the thread continues.
        threads: Where the thread is taken from.
    """

    def __init__(self, name: str, on_error: Callable[[Exception], None], threads: Threads) -> None:
        self._name = name
        self._on_error = on_error
        self._threads = threads
        self._jobs: deque[Callable[[], None]] = deque()
        self._condition = threading.Condition()
        self._started = False
        self._thread = 0  # its identifier
        self._ended = threading.Event()
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
        """Take the thread, without which finish() cannot run its last job.

        Raises:
            LimitReached: The system has no thread left.
        """
        with self._condition:
            self._start()

    def _start(self) -> None:
        if not self._started:
            self._threads.start(self._name, self._run)
            self._started = True

    def finish(self, last: Callable[[], None] | None = None) -> None:
        """Drop the queued jobs, run `last` after the job in progress, then end the thread.

        `last` requires start(), so that the end of a client needs no new thread.
        """
        with self._condition:
            if self.stopping:
                return
            self.stopping = True
            self._last = last
            self._jobs.clear()
            self._condition.notify()

    def _run(self) -> None:
        self._thread = threading.get_ident()
        try:
            self._run_jobs()
        finally:
            self._ended.set()

    def _run_jobs(self) -> None:
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
        """Wait for the last job to end; return False if it has not within `timeout` seconds."""
        if not self._started or self._thread == threading.get_ident():
            return True
        return self._ended.is_set() or (timeout > 0 and self._ended.wait(timeout))
