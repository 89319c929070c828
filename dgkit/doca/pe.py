"""Progress engines: what makes the work of contexts go on, and says what is done."""

from __future__ import annotations

import select
import time
from collections import deque

from ._library import CONTROL, library
from .dma import Dma
from .handle import Handle, Turn

TYPE_CHECKING = False  # typing's own costs more to import than all of this
if TYPE_CHECKING:
    from .task import MemcpyTask

__all__ = ["ProgressEngine"]


class ProgressEngine(Handle):
    """A progress engine (`doca_pe`). Nothing completes but inside `progress()`, or what calls it.

    One thread at a time uses it and all that is connected to it; a second one gets InUse.
    """

    __slots__ = ("_fd", "_flying", "_lock", "_poll")
    _name = "progress engine"
    _order = 4

    def __init__(self) -> None:
        super().__init__()
        lib = library()
        self._lock = Turn("progress engine")
        # In the order of their submission, which is mostly that of their completion.
        self._flying: deque[MemcpyTask] = deque()
        self._poll: select.poll | None = None
        with CONTROL:
            self._opened(lib.get("doca_pe_create", "struct doca_pe **"))

    @property
    def _turn(self) -> Turn:
        return self._lock

    def connect(self, dma: Dma) -> None:
        """Takes a context, before its start. BadState if it runs or has an engine already."""
        Dma._expect("dma", dma)
        with self._lock, dma._turn, CONTROL:
            self._call("doca_pe_connect_ctx", dma._context())
            dma._joined(self)

    def progress(self) -> tuple[MemcpyTask, ...]:
        """Looks once: the tasks that completed just now, mostly one or none. Never waits."""
        with self._lock:
            return self._look()

    def _look(self) -> tuple[MemcpyTask, ...]:
        # DOCA's callbacks note a completion in the task's own flag: no Python runs in them.
        library().common.doca_pe_progress(self._handle())
        flying = self._flying
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
            task._land()
        return tuple(done)

    def wait(self, timeout: float | None = None) -> tuple[MemcpyTask, ...]:
        """Sleeps until a task completes; then what `progress()` gives.

        () after `timeout` seconds (None: no limit), and at once if no task is in flight.
        """
        end = None if timeout is None else time.monotonic() + timeout
        with self._lock:
            while not (done := self._look()) and self._flying:
                left = None if end is None else end - time.monotonic()
                if left is not None and left <= 0:
                    break
                self._sleep(left)
            return done

    def _sleep(self, left: float | None) -> None:
        """Until something is to be delivered, or `left` seconds are over."""
        if self._poll is None:
            self._poll = select.poll()
            self._poll.register(self.fileno(), select.POLLIN)
        self.request_notification()
        try:
            self._poll.poll(None if left is None else max(1, int(left * 1000)))
        finally:
            self.clear_notification()

    def fileno(self) -> int:
        """The notification handle: a file descriptor for `select`, `poll` and event loops.

        It becomes readable after `request_notification()`, when there is something for
        `progress()`. Before the next sleep call `clear_notification()`, make progress until
        nothing comes, and ask again.
        """
        return int(self._get("doca_pe_get_notification_handle", "doca_notification_handle_t *"))

    def request_notification(self) -> None:
        """Arms the notification handle."""
        self._call("doca_pe_request_notification")

    def clear_notification(self) -> None:
        """Takes the notification back."""
        self._call("doca_pe_clear_notification", self.fileno())

    @property
    def in_flight(self) -> int:
        """How many tasks were submitted and are not complete."""
        return len(self._flying)

    def _destroy(self) -> None:
        with CONTROL:
            library().call("doca_pe_destroy", self._h)
        self._poll = None

    def _forgotten(self) -> None:
        self._lock.soon(self._finalize)

    def _about(self) -> str:
        return f"{len(self._children)} contexts, {len(self._flying)} tasks in flight"

    def _rows(self) -> list[tuple[str, object]]:
        return [("Contexts", len(self._children)), ("Tasks in flight", len(self._flying))]
