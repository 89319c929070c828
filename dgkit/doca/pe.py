"""Progress engine: completes the tasks of the contexts connected to it."""

from __future__ import annotations

import select
import time
from collections import deque

from ._library import CONTROL, library
from .dma import Dma, MemcpyTask
from .handle import Handle, TryLock

__all__ = ["ProgressEngine"]


class ProgressEngine(Handle):
    """Progress engine (`doca_pe`). Tasks complete only inside `progress()` and calls that use it.

    One thread at a time uses it and everything connected to it; a second one gets InUse.
    """

    __slots__ = ("_fd", "_in_flight", "_lock", "_poll")
    _name = "progress engine"
    _order = 4

    def __init__(self) -> None:
        super().__init__()
        lib = library()
        self._lock = TryLock("progress engine")
        # In order of submission, which is mostly that of completion.
        self._in_flight: deque[MemcpyTask] = deque()
        self._poll: select.poll | None = None
        with CONTROL:
            self._opened(lib.get("doca_pe_create", "struct doca_pe **"))

    @property
    def _guard(self) -> TryLock:
        return self._lock

    def connect(self, dma: Dma) -> None:
        """Connect a context before its start. Raises BadState if it runs or has an engine."""
        Dma._expect("dma", dma)
        with self._lock, dma._guard, CONTROL:
            self._call("doca_pe_connect_ctx", dma._context())
            dma._connected(self)
            dma._add_parents(self)

    def progress(self) -> tuple[MemcpyTask, ...]:
        """Return the tasks that completed just now, usually one or none, without blocking."""
        with self._lock:
            return self._look()

    def _look(self) -> tuple[MemcpyTask, ...]:
        # The completion callback, in C, sets the flag of the task.
        library().common.doca_pe_progress(self._handle())
        flying = self._in_flight
        if not flying:
            return ()
        if flying[0]._flag[0]:
            done = [flying.popleft()]
            while flying and flying[0]._flag[0]:
                done.append(flying.popleft())
        else:
            done = [task for task in flying if task._flag[0]]
            for task in done:
                flying.remove(task)
        for task in done:
            task._complete()
        return tuple(done)

    def wait(self, timeout: float | None = None) -> tuple[MemcpyTask, ...]:
        """Sleep until a task completes.

        Args:
            timeout: Seconds to wait; None for no limit.

        Returns:
            The completed tasks, as in `progress()`; () on timeout, and at once if none is in
            flight.
        """
        end = None if timeout is None else time.monotonic() + timeout
        with self._lock:
            while not (done := self._look()) and self._in_flight:
                left = None if end is None else end - time.monotonic()
                if left is not None and left <= 0:
                    break
                self._sleep(left)
            return done

    def _sleep(self, left: float | None) -> None:
        """Sleep until a notification arrives, at most `left` seconds."""
        if self._poll is None:
            self._poll = select.poll()
            self._poll.register(self.fileno(), select.POLLIN)
        self.request_notification()
        try:
            self._poll.poll(None if left is None else max(1, int(left * 1000)))
        finally:
            self.clear_notification()

    def fileno(self) -> int:
        """Return the notification handle: a file descriptor for `select`, `poll` and event loops.

        It becomes readable after `request_notification()` when `progress()` has work to do. Before
        the next sleep call `clear_notification()`, make progress until nothing completes, and
        request again.
        """
        return int(self._get("doca_pe_get_notification_handle", "doca_notification_handle_t *"))

    def request_notification(self) -> None:
        """Arm the notification handle."""
        self._call("doca_pe_request_notification")

    def clear_notification(self) -> None:
        """Disarm the notification handle."""
        self._call("doca_pe_clear_notification", self.fileno())

    @property
    def in_flight(self) -> int:
        """Number of tasks submitted and not complete."""
        return len(self._in_flight)

    def _destroy(self) -> None:
        with CONTROL:
            library().call("doca_pe_destroy", self._h)
        self._poll = None

    def _abandon(self) -> None:
        self._lock.defer(self._finalize)

    def _summary(self) -> str:
        return f"{len(self._children)} contexts, {len(self._in_flight)} tasks in flight"

    def _rows(self) -> list[tuple[str, object]]:
        return [("Contexts", len(self._children)), ("Tasks in flight", len(self._in_flight))]
