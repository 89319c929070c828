"""The one thread of the kernel that panels have: it runs long work a step at a time, and draws.

A task is a generator. Each `yield` gives way to the other tasks: after `yield True` it goes on as
soon as they had their turn, after `yield` at the next tick. So a plot moves while a cell is busy,
and no panel needs a thread. The thread starts with the first task and ends after the last one.

It runs in a copy of the context of whoever started it: ipykernel finds by that where a message
belongs, and without it a page that was reloaded gets none (see its parent header).
"""

from __future__ import annotations

import contextvars
import os
import threading
import time
from collections.abc import Callable, Generator, Iterator
from typing import Any

__all__ = ["TICK_S", "Task", "every", "start"]

TICK_S = 0.05  # 20 times a second are as often as anything is drawn

Steps = Generator[Any, None, Any]


class Task:
    """A generator that was started. `cancel()` closes it: its `finally` runs before it returns."""

    def __init__(self, steps: Steps, failed: Callable[[Exception], None]) -> None:
        self._steps: Any = steps  # a generator, until it has ended
        self._failed = failed
        self._lock = threading.RLock()  # a step runs, or the task ends: never both
        self.eager = True

    @property
    def done(self) -> bool:
        """It has ended: by itself, by an error or by cancel()."""
        return self._steps is None

    def step(self) -> bool:
        """One step; False when it was the last. What it raises goes to `failed`."""
        with self._lock:
            if self._steps is None:
                return False
            steps = self._steps
            try:
                self.eager = next(steps) is True
                if self._steps is None:  # it cancelled itself
                    steps.close()
            except StopIteration:
                self._steps = None
            except Exception as error:
                self._steps = None
                self._failed(error)
            return self._steps is not None

    def cancel(self) -> None:
        """Ends it, at the latest after the step that runs now. Again: nothing."""
        with self._lock:
            steps, self._steps = self._steps, None
            if steps is not None and not steps.gi_running:
                try:
                    steps.close()
                except Exception as error:
                    self._failed(error)


class _Frames:
    """The thread and its tasks."""

    def __init__(self) -> None:
        self._tasks: list[Task] = []
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._news = threading.Event()

    def add(self, task: Task) -> None:
        """The thread takes it up at once."""
        with self._lock:
            self._tasks.append(task)
            if self._thread is None:
                run = contextvars.copy_context().run
                self._thread = threading.Thread(
                    target=run, args=(self._run,), name="dgkit-frames", daemon=True
                )
                self._thread.start()
        self._news.set()

    def _live(self) -> list[Task]:
        """What is left; with nothing left the thread is told to end."""
        with self._lock:
            self._tasks = [task for task in self._tasks if not task.done]
            if not self._tasks:
                self._thread = None
            return list(self._tasks)

    def _run(self) -> None:
        tick = time.monotonic()
        while tasks := self._live():
            due = time.monotonic() >= tick
            if due:
                tick = max(tick + TICK_S, time.monotonic())
            self._news.clear()
            for task in tasks:
                if due or task.eager:
                    task.step()
            if not any(task.eager and not task.done for task in tasks):
                self._news.wait(max(0.0, tick - time.monotonic()))

    def forked(self) -> None:
        """In a child the thread is not there, and the tasks are the parent's."""
        self.__init__()  # type: ignore[misc]


_frames = _Frames()
os.register_at_fork(after_in_child=_frames.forked)


def start(steps: Steps, failed: Callable[[Exception], None]) -> Task:
    """Runs a generator on the frame thread; `failed(error)` is called there if it raises."""
    task = Task(steps, failed)
    _frames.add(task)
    return task


def every(seconds: float) -> Iterator[None]:
    """`yield from every(1.0)`: gives way until so much time has passed."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        yield
