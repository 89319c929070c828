"""Waiting in an event loop. The only module of `dma` that knows asyncio."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import weakref
from typing import TYPE_CHECKING

from ..errors import QueueInUse
from ._ffi import error_of

if TYPE_CHECKING:
    from .queue import Queue
    from .transfer import Pending

__all__ = ["Waiters", "wait_in_loop"]

# How often a loop looks for operations that are overdue: no completion of theirs could wake it.
_OVERDUE_LOOK_S = 0.1


class Waiters:
    """The transfers of one queue that one loop waits for. `loop` is that loop."""

    def __init__(self, queue: Queue, loop: asyncio.AbstractEventLoop) -> None:
        self._queue = weakref.ref(queue)  # each transfer that waits holds it
        self.loop = loop
        self._fd = queue.fileno()
        self._waiting: dict[asyncio.Future[None], Pending] = {}
        self._timer: asyncio.TimerHandle | None = None

    def add(self, transfer: Pending) -> asyncio.Future[None]:
        """A future that is resolved when the transfer has its completion."""
        future = self.loop.create_future()
        if not self._waiting:
            self.loop.add_reader(self._fd, self._look)
            self._timer = self.loop.call_later(_OVERDUE_LOOK_S, self._look_again)
        self._waiting[future] = transfer
        self._look()
        return future

    def _look_again(self) -> None:
        self._timer = self.loop.call_later(_OVERDUE_LOOK_S, self._look_again)
        self._look()

    def _look(self) -> None:
        """Resolves what is done; arms the queue, and looks again if something came meanwhile."""
        while True:
            for future, transfer in list(self._waiting.items()):
                if future.done() or self._collect(future, transfer):
                    del self._waiting[future]
            if not self._waiting:
                self._stop()
                return
            if self._armed():
                return

    def _armed(self) -> bool:
        queue = self._queue()
        if queue is None or queue.closed:
            return True
        # Another thread is inside for a moment, as a finalizer is: the timer looks again.
        with contextlib.suppress(QueueInUse):
            return queue.arm()
        return True

    def _collect(self, future: asyncio.Future[None], transfer: Pending) -> bool:
        rc = 0 if transfer._i >= 0 else transfer._look(0)
        if rc in (-errno.ETIME, -errno.EINTR):
            return False
        if rc:
            future.set_exception(error_of(rc))
        else:
            future.set_result(None)
        return True

    def closing(self) -> None:
        """Before the queue closes its fd, which may soon be somebody else's."""
        if asyncio._get_running_loop() is self.loop:
            self.loop.remove_reader(self._fd)

    def closed(self) -> None:
        """After the queue was closed: what is waited for is FLUSHED now."""
        if asyncio._get_running_loop() is self.loop:
            self._look()
            return
        with contextlib.suppress(RuntimeError):  # that loop is over, and nobody waits in it
            self.loop.call_soon_threadsafe(self._look)

    def _stop(self) -> None:
        self.loop.remove_reader(self._fd)
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


async def wait_in_loop(transfer: Pending) -> None:
    """Returns when the transfer has its completion; other tasks of the loop run meanwhile."""
    loop = asyncio.get_running_loop()
    queue = transfer._queue
    waiters = queue._waiters
    if waiters is None or waiters.loop is not loop:
        waiters = queue._waiters = Waiters(queue, loop)
    await waiters.add(transfer)
