"""Jobs side by side, in daemon threads: one that never ends holds up nothing, not even the exit."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable
from typing import Generic, TypeVar

__all__ = ["Crew", "Job"]

T = TypeVar("T")


class Job(Generic[T]):
    """A function at work. `result(until)` waits for it no longer than that."""

    def __init__(self, work: Callable[[], T]) -> None:
        self._work = work
        self._done = threading.Event()
        self._value: T | None = None
        self._error: Exception | None = None

    def do(self) -> None:
        """Runs it, in whatever thread."""
        try:
            self._value = self._work()
        except Exception as error:
            self._error = error
        self._done.set()

    @property
    def done(self) -> bool:
        """Whether it has ended."""
        return self._done.is_set()

    def result(self, until: float) -> T:
        """What it returns or raises; TimeoutError at `until`, by time.monotonic()."""
        if not self._done.wait(max(0.0, until - time.monotonic())):
            raise TimeoutError
        if self._error is not None:
            raise self._error
        return self._value  # type: ignore[return-value]


class Crew:
    """As many threads as there are jobs that wait, up to `most`. They end when nothing is to do."""

    def __init__(self, name: str, most: int = 32) -> None:
        self._name, self._most = name, most
        self._jobs: queue.SimpleQueue[Job[object]] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._threads = 0

    def start(self, work: Callable[[], T]) -> Job[T]:
        """The function begins as soon as a thread is free."""
        job = Job(work)
        self._jobs.put(job)  # type: ignore[arg-type]
        with self._lock:
            if self._threads < self._most:
                self._threads += 1
                threading.Thread(target=self._work, name=self._name, daemon=True).start()
        return job

    def _work(self) -> None:
        while True:
            try:
                job = self._jobs.get_nowait()
            except queue.Empty:
                with self._lock:
                    if self._jobs.empty():  # start() puts first, and then looks at the threads
                        self._threads -= 1
                        return
                continue
            job.do()
