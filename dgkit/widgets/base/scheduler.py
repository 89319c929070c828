# SPDX-License-Identifier: Apache-2.0
"""The frame thread, which runs the panels' long work in steps, and what its tasks wait for.

All panels of the kernel share this thread, so plots move while a cell is running. A task is a
generator, and each `yield` lets the other tasks run. After `yield True` the task continues as soon
as each of them has run a step; after `yield`, at the next tick; after `yield t`, once
time.monotonic() has reached t. The thread sleeps while all tasks wait for such a time. It starts
with the first task and ends after the last one.

It runs in a copy of the context in which it was started: ipykernel takes a message's parent header
from the context, and without that header a reloaded page receives no messages.

Blocking calls run in threads of their own (`in_background`): reserving the pages of new memory
takes seconds for gigabytes. Transfers are polled (`wait_done`): a stopped agent does not reply.
"""

from __future__ import annotations

import contextlib
import contextvars
import logging
import os
import threading
import time
from collections.abc import Callable, Generator, Iterator
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from ...errors import ClosedError, DgkitError, LimitReached, PeerTimeout
from ...threads import starting

if TYPE_CHECKING:
    from ...session import SessionTransfer

TICK_S = 0.05  # between two steps of a task; each panel sends more rarely (latency: _FRAME_S)
STEP_S = 0.01  # longest wait within one step
STALL_TIMEOUT_S = 30.0  # without progress; the same as a session's own limit
_GRACE_S = 1.0  # for cancelled transfers to end
_SHORT_CALL_S = 0.005  # most blocking calls return within this time
FRAMES, BACKGROUND = "dgkit-frames", "dgkit-background"  # names of the panels' own threads

T = TypeVar("T")
Steps = Generator[Any, None, None]

_log = logging.getLogger("dgkit.widgets")


class PanelClosed(ClosedError, AttributeError):
    """A use of a closed panel, whose attributes were removed; what is under way ends with it."""


class Task:
    """A generator that the frame thread runs; created by `start`.

    Attributes:
        eager: The task wants its next step without waiting for the tick.
        due: Its next step comes at this time.monotonic() at the earliest.
    """

    def __init__(
        self, steps: Steps, failed: Callable[[Exception], None], ended: Callable[[], None]
    ) -> None:
        self._steps: Any = steps  # None once the task has ended
        self._failed, self._ended = failed, ended
        self._lock = threading.RLock()  # held by a step or by cancel(), so that they never overlap
        self.eager = True
        self.due = 0.0

    @property
    def done(self) -> bool:
        """True once the task has ended: by itself, by an error or by cancel()."""
        return self._steps is None

    def step(self) -> bool:
        """Run one step; return False if it was the last. An error is passed to `failed`."""
        with self._lock:
            if self._steps is None:
                return False
            steps, error = self._steps, None
            try:
                wish = next(steps)
                self.eager = wish is True
                self.due = wish if isinstance(wish, float) else 0.0
                if self._steps is not None:
                    return True
                steps.close()  # the task cancelled itself
            except StopIteration:
                pass
            except BaseException as raised:  # exit() in a user's expression ends only this task
                error = raised
            self._finish(error)
            return False

    def hasten(self, due: float) -> None:
        """Move the next step forward to this time.monotonic(), if it is due later."""
        with self._lock:  # not while a step decides when the next step is due
            if due >= self.due:
                return
            self.due = due
        _scheduler.wake()

    def cancel(self, error: BaseException | None = None) -> None:
        """End the task, at the latest after the step that is running. Idempotent.

        The generator's `finally` blocks have run when this returns, unless the task cancels itself.

        Args:
            error: Why; passed to `failed`.
        """
        with self._lock:
            steps, self._steps = self._steps, None
            if steps is None or steps.gi_running:
                return
            try:
                steps.close()
            except BaseException as raised:
                error = raised
            self._finish(error)
        _scheduler.wake()  # this may have been the last task

    def _finish(self, error: BaseException | None) -> None:
        """Call `ended`, then `failed`; an exception of either is logged."""
        self._steps = None
        with _log_errors():
            self._ended()
        if error is None:
            return
        if not isinstance(error, Exception):
            error = RuntimeError(f"the task was ended by {type(error).__name__}: {error}")
        with _log_errors():
            self._failed(error)


@contextlib.contextmanager
def _log_errors() -> Iterator[None]:
    try:
        yield
    except PanelClosed:
        pass
    except Exception:
        _log.exception("a callback of a task on the frame thread failed")


class _Scheduler:
    """The frame thread and its tasks."""

    def __init__(self) -> None:
        self._tasks: list[Task] = []
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._wakeup = threading.Event()

    def add(self, task: Task) -> None:
        """Add a task and wake the thread, which is started if needed."""
        try:
            with self._lock:
                self._tasks.append(task)
                if self._thread is None:
                    self._thread = self._start()
        except LimitReached as error:
            with self._lock:
                self._tasks.remove(task)
            task.cancel(error)
        self._wakeup.set()

    def _start(self) -> threading.Thread:
        run = contextvars.copy_context().run
        thread = threading.Thread(target=run, args=(self._run,), name=FRAMES, daemon=True)
        with starting("a panel"):
            thread.start()
        return thread

    def wake(self) -> None:
        """Wake the thread so that it checks its tasks, which may all have ended."""
        self._wakeup.set()

    def _live_tasks(self) -> list[Task]:
        """Return the tasks that have not ended; if there are none, forget the thread."""
        with self._lock:
            self._tasks = [task for task in self._tasks if not task.done]
            if not self._tasks:
                self._thread = None
            return list(self._tasks)

    def _run(self) -> None:
        try:
            self._loop()
        except BaseException as error:  # a defect: end the tasks; the next starts a new thread
            with self._lock:
                tasks, self._tasks, self._thread = self._tasks, [], None
            for task in tasks:
                task.cancel(error)

    def _loop(self) -> None:
        tick = time.monotonic()
        self._wakeup.clear()
        while tasks := self._live_tasks():
            now = time.monotonic()
            ticks = now >= tick
            if ticks:
                tick = max(tick + TICK_S, now)
            for task in tasks:
                if task.due <= now and (ticks or task.eager):
                    task.step()
            left = [task for task in tasks if not task.done]
            if not any(task.eager for task in left):
                first = min((task.due for task in left), default=0.0)
                self._wakeup.wait(max(0.0, max(tick, first) - time.monotonic()))
            self._wakeup.clear()  # before _live_tasks(): a task added after that wakes the thread

    def forked(self) -> None:
        """Reset in a forked child, which has no frame thread; the tasks are the parent's."""
        self.__init__()  # type: ignore[misc]


_scheduler = _Scheduler()
os.register_at_fork(after_in_child=_scheduler.forked)


def _nothing() -> None:
    pass


def start(
    steps: Steps, failed: Callable[[Exception], None], ended: Callable[[], None] = _nothing
) -> Task:
    """Run a generator on the frame thread.

    Args:
        steps: The generator.
        failed: Called with the exception if the generator raised one, after `ended`.
        ended: Called once when the task has ended, in the thread that ended it; also if it was
            cancelled before its first step.
    """
    task = Task(steps, failed, ended)
    _scheduler.add(task)
    return task


def sleep(seconds: float) -> Iterator[float]:
    """Let other tasks run for at least `seconds`; use it with `yield from`."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        yield end


# Blocking calls


class BackgroundCall(Generic[T]):
    """A call in its own thread, started by the constructor.

    It may use the session, which is thread-safe, but of a panel only the methods that a handler may
    call. It runs in a copy of the caller's context, so that its messages reach the caller's page.

    It cannot be cancelled: a caller that stops waiting must release what the call creates, for
    example in another task that waits for it.
    """

    def __init__(self, call: Callable[[], T]) -> None:
        self._call = call
        self._done = threading.Event()
        self._result: list[T] = []
        self._error: BaseException | None = None
        run = contextvars.copy_context().run
        with starting("a panel"):
            threading.Thread(target=run, args=(self._run,), name=BACKGROUND, daemon=True).start()
        self._done.wait(_SHORT_CALL_S)

    def _run(self) -> None:
        try:
            self._result.append(self._call())
        except BaseException as error:
            self._error = error
        finally:
            self._done.set()

    def wait(self) -> Generator[None, None, T]:
        """Yield until the call has ended: `result = yield from call.wait()`.

        Returns:
            What the call returned.

        Raises:
            BaseException: What the call raised.
        """
        while not self._done.is_set():
            yield
        if self._error is not None:
            raise self._error
        return self._result[0]


def in_background(call: Callable[[], T]) -> Generator[None, None, T]:
    """Run a call in its own thread: `result = yield from in_background(call)`; see wait()."""
    return (yield from BackgroundCall(call).wait())


# Transfers


class StallTimer:
    """Time since the last progress."""

    def __init__(self) -> None:
        self._last: float | None = None
        self._since = time.monotonic()

    def check(self, progress: float) -> float:
        """Return the seconds since the value of `progress` last changed.

        Raises:
            PeerTimeout: It has not changed for STALL_TIMEOUT_S.
        """
        now = time.monotonic()
        if progress != self._last:
            self._last, self._since = progress, now
        if now - self._since > STALL_TIMEOUT_S:
            raise PeerTimeout(f"the DPU has made no progress for {STALL_TIMEOUT_S:.0f} s")
        return now - self._since


def wait_done(transfer: SessionTransfer, seconds: float = STEP_S) -> bool:
    """Wait for a transfer for at most `seconds` and return whether it is complete.

    Raises:
        DgkitError: The transfer failed.
    """
    try:
        if not transfer.poll(max(0.0, seconds)):
            return False
    except PeerTimeout:  # the agent does not answer: StallTimer has the limit
        return False
    transfer.wait()
    return True


def cancel_all(transfers: list[SessionTransfer]) -> Generator[bool, None, None]:
    """Cancel transfers and wait for up to 1 s until they have ended; their errors are ignored."""
    end = time.monotonic() + _GRACE_S
    for transfer in transfers:
        transfer.cancel()
    for transfer in transfers:
        while time.monotonic() < end:
            try:
                if wait_done(transfer):
                    break
            except DgkitError:
                break
            yield True
