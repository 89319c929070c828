# SPDX-License-Identifier: Apache-2.0
"""Thread pool of daemon threads: a job that hangs blocks neither the other jobs nor the exit."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable
from typing import Generic, TypeVar

T = TypeVar("T")


class Job(Generic[T]):
    """Submitted function and its outcome.

    Attributes:
        submitted_at: Time of submission, by `time.monotonic()`.
    """

    __slots__ = ("_done", "_error", "_executor", "_value", "_work", "submitted_at")

    def __init__(self, work: Callable[[], T], executor: Executor) -> None:
        self.submitted_at = time.monotonic()
        self._work = work
        self._executor = executor
        self._done = threading.Event()
        self._value: T | None = None
        self._error: Exception | None = None

    def run(self) -> None:
        """Run the function in the calling thread and store its outcome."""
        try:
            self._value = self._work()
        except Exception as error:
            self._error = error
        except BaseException as error:  # sys.exit() in a check must not end the thread
            self._error = RuntimeError(repr(error))
            if isinstance(error, KeyboardInterrupt) and (
                threading.current_thread() is threading.main_thread()
            ):
                raise  # no thread could be started, so the caller itself was interrupted
        finally:
            self._done.set()

    @property
    def done(self) -> bool:
        """True if the job has ended."""
        return self._done.is_set()

    def result(self, until: float) -> T:
        """Return the value of the function, or raise the exception that it raised.

        Args:
            until: Deadline, by `time.monotonic()`.

        Raises:
            TimeoutError: If the job has not ended by the deadline.
        """
        while not self._done.wait(self._executor.wait_s(until)):
            if time.monotonic() >= until:
                raise TimeoutError
            self._executor.add_thread_if_queued()
        if self._error is not None:
            raise self._error
        return self._value  # type: ignore[return-value]


class Executor:
    """Executor whose threads end when its queue is empty.

    Args:
        name: Name of the threads.
        max_threads: Maximum number of threads at a time.
        spawn_delay_s: If 0, each job gets its own thread. Otherwise one thread runs all jobs,
            which is faster for many small jobs; another thread is added whenever a caller of
            `Job.result` has waited for this number of seconds.
    """

    def __init__(self, name: str, max_threads: int = 32, *, spawn_delay_s: float = 0.0) -> None:
        self._name, self._max_threads, self._spawn_delay_s = name, max_threads, spawn_delay_s
        self._queue: queue.SimpleQueue[Job[object]] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._threads = 0

    def submit(self, work: Callable[[], T]) -> Job[T]:
        """Queue a function; run it in the calling thread if no thread can be started."""
        job = Job(work, self)
        self._queue.put(job)  # type: ignore[arg-type]
        if self._threads and self._spawn_delay_s:
            with self._lock:  # the thread may be ending
                needs_thread = not self._threads
        else:
            needs_thread = True
        if needs_thread and not self._add_thread():
            self._drain()
        return job

    def wait_s(self, until: float) -> float:
        """Return the seconds to wait before `add_thread_if_queued`."""
        left = max(0.0, until - time.monotonic())
        return min(left, self._spawn_delay_s) if self._spawn_delay_s else left

    def add_thread_if_queued(self) -> None:
        """Add a thread if jobs are queued: the other threads may hang."""
        if not self._queue.empty():
            self._add_thread()

    def _add_thread(self) -> bool:
        """Add a thread unless the limit is reached; return whether any thread runs."""
        with self._lock:
            if self._threads < self._max_threads:
                try:
                    threading.Thread(target=self._run, name=self._name, daemon=True).start()
                    self._threads += 1
                except RuntimeError:  # the system's limit of threads is reached
                    return self._threads > 0
        return True

    def _run(self) -> None:
        while True:
            self._drain()
            with self._lock:
                if self._queue.empty():  # no job is lost: submit() enqueues, then reads _threads
                    self._threads -= 1
                    return

    def _drain(self) -> None:
        while True:
            try:
                job = self._queue.get_nowait()
            except queue.Empty:
                return
            job.run()
