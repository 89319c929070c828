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

    __slots__ = ("_crew", "_done", "_error", "_value", "_work", "asked")

    def __init__(self, work: Callable[[], T], crew: Crew) -> None:
        self.asked = time.monotonic()
        self._work = work
        self._crew = crew
        self._done = threading.Event()
        self._value: T | None = None
        self._error: Exception | None = None

    def do(self) -> None:
        """Runs it, in whatever thread."""
        try:
            self._value = self._work()
        except Exception as error:
            self._error = error
        except BaseException as error:  # sys.exit() in a check ends no thread
            self._error = RuntimeError(repr(error))
            if isinstance(error, KeyboardInterrupt) and _in_main_thread():
                raise  # there was no thread for it: Ctrl-C is the user's
        finally:
            self._done.set()

    @property
    def done(self) -> bool:
        """Whether it has ended."""
        return self._done.is_set()

    def result(self, until: float) -> T:
        """What it returns or raises; TimeoutError at `until`, by time.monotonic()."""
        while not self._done.wait(self._crew.patience(until)):
            if time.monotonic() >= until:
                raise TimeoutError
            self._crew.hurry()
        if self._error is not None:
            raise self._error
        return self._value  # type: ignore[return-value]


def _in_main_thread() -> bool:
    return threading.current_thread() is threading.main_thread()


class Crew:
    """At most `most` threads, which end when nothing is to do.

    Without `patience_s` each job begins in a thread of its own. With it one thread does all, which
    is best for many small jobs; a further one joins it whenever somebody has waited that long.
    """

    def __init__(self, name: str, most: int = 32, *, patience_s: float = 0.0) -> None:
        self._name, self._most, self._patience_s = name, most, patience_s
        self._jobs: queue.SimpleQueue[Job[object]] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._threads = 0

    def start(self, work: Callable[[], T]) -> Job[T]:
        """The function begins as soon as a thread is free. Here and now if there can be none."""
        job = Job(work, self)
        self._jobs.put(job)  # type: ignore[arg-type]
        if self._threads and self._patience_s:
            with self._lock:  # the thread may just be ending
                wanted = not self._threads
        else:
            wanted = True
        if wanted and not self._add():
            self._work_off()
        return job

    def patience(self, until: float) -> float:
        """How long to wait before hurry()."""
        left = max(0.0, until - time.monotonic())
        return min(left, self._patience_s) if self._patience_s else left

    def hurry(self) -> None:
        """One more thread, if jobs wait: the others may hang."""
        if not self._jobs.empty():
            self._add()

    def _add(self) -> bool:
        """Whether there is a thread at all now."""
        with self._lock:
            if self._threads < self._most:
                try:
                    threading.Thread(target=self._live, name=self._name, daemon=True).start()
                    self._threads += 1
                except RuntimeError:  # the system gives no more
                    return self._threads > 0
        return True

    def _live(self) -> None:
        while True:
            self._work_off()
            with self._lock:
                if self._jobs.empty():  # start() puts first, and then looks at the threads
                    self._threads -= 1
                    return

    def _work_off(self) -> None:
        while True:
            try:
                job = self._jobs.get_nowait()
            except queue.Empty:
                return
            job.do()
