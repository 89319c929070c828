"""The one thread of the kernel that panels have: it runs long work a step at a time, and draws.

A task is a generator. Each `yield` gives way to the other tasks: after `yield True` it goes on as
soon as they had their turn, after `yield` at the next tick. So a plot moves while a cell is busy,
and no panel needs a thread. The thread starts with the first task and ends after the last one.

It runs in a copy of the context of whoever started it: ipykernel finds by that where a message
belongs, and without it a page that was reloaded gets none (see its parent header).
"""

from __future__ import annotations

import contextlib
import contextvars
import logging
import os
import threading
import time
from collections.abc import Callable, Generator, Iterator
from typing import Any

__all__ = ["TICK_S", "Task", "sleep", "start"]

_log = logging.getLogger("dgkit.widgets")

TICK_S = 0.05  # 20 times a second are as often as anything is drawn

Steps = Generator[Any, None, Any]


class Task:
    """A generator that was started.

    `cancel()` closes it: its `finally` runs before it returns. One that never had a step has no
    `finally` yet, but each task calls `ended` once, when it is over: however that came.
    """

    def __init__(
        self, steps: Steps, failed: Callable[[Exception], None], ended: Callable[[], None]
    ) -> None:
        self._steps: Any = steps  # a generator, until it has ended
        self._failed, self._ended = failed, ended
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
            steps, error = self._steps, None
            try:
                self.eager = next(steps) is True
                if self._steps is not None:
                    return True
                steps.close()  # it cancelled itself
            except StopIteration:
                pass
            except BaseException as raised:  # an exit() in what a person typed ends its task alone
                error = raised
            self._over(error)
            return False

    def cancel(self) -> None:
        """Ends it, at the latest after the step that runs now. Again: nothing."""
        with self._lock:
            steps, self._steps = self._steps, None
            if steps is None or steps.gi_running:
                return
            error = None
            try:
                steps.close()
            except BaseException as raised:
                error = raised
            self._over(error)

    def _over(self, error: BaseException | None) -> None:
        """What these two raise is logged: the other tasks go on."""
        self._steps = None
        with _logged():
            self._ended()
        if error is None:
            return
        if not isinstance(error, Exception):
            error = RuntimeError(f"{type(error).__name__} ended it: {error}")
        with _logged():
            self._failed(error)


@contextlib.contextmanager
def _logged() -> Iterator[None]:
    try:
        yield
    except Exception:
        _log.exception("in a task of the frame thread")


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
        try:
            self._turns()
        finally:  # also after what nobody foresaw: the next task finds no thread, and starts one
            with self._lock:
                if self._thread is threading.current_thread():
                    self._thread = None

    def _turns(self) -> None:
        tick = time.monotonic()
        self._news.clear()
        while tasks := self._live():
            due = time.monotonic() >= tick
            if due:
                tick = max(tick + TICK_S, time.monotonic())
            for task in tasks:
                if due or task.eager:
                    task.step()
            if not any(task.eager and not task.done for task in tasks):
                self._news.wait(max(0.0, tick - time.monotonic()))
            self._news.clear()  # before the look at what there is: what comes after it wakes

    def forked(self) -> None:
        """In a child the thread is not there, and the tasks are the parent's."""
        self.__init__()  # type: ignore[misc]


_frames = _Frames()
os.register_at_fork(after_in_child=_frames.forked)


def _nothing() -> None:
    pass


def start(
    steps: Steps, failed: Callable[[Exception], None], ended: Callable[[], None] = _nothing
) -> Task:
    """Runs a generator on the frame thread.

    `ended()` is called once, when it is over, by whoever ended it: also if it was cancelled before
    its first step. `failed(error)` is called after that if it raised.
    """
    task = Task(steps, failed, ended)
    _frames.add(task)
    return task


def sleep(seconds: float) -> Iterator[None]:
    """`yield from sleep(1.0)`: gives way until so much time has passed."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        yield
