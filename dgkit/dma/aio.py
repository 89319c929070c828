# SPDX-License-Identifier: Apache-2.0
"""Wait for transfers in an asyncio event loop; imported by the first await that must wait."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import weakref
from typing import TYPE_CHECKING

from ..errors import QueueInUse
from ._ffi import error_of

if TYPE_CHECKING:
    from .transfer import CompletionQueue, Pending

# Interval of checks for operations that timed out, since no completion of theirs wakes the loop.
_TIMEOUT_CHECK_S = 0.1


class Waiters:
    """Transfers of one queue that are awaited in one event loop, `loop`."""

    def __init__(self, queue: CompletionQueue, loop: asyncio.AbstractEventLoop) -> None:
        self._queue = weakref.ref(queue)  # each waiting transfer holds the queue
        self.loop = loop
        self._fd = queue.fileno()
        self._waiting: dict[asyncio.Future[None], Pending] = {}
        self._timer: asyncio.TimerHandle | None = None

    def add(self, transfer: Pending) -> asyncio.Future[None]:
        """Return a future that resolves when the transfer is complete."""
        future = self.loop.create_future()
        if not self._waiting:
            self.loop.add_reader(self._fd, self._resolve)
            self._timer = self.loop.call_later(_TIMEOUT_CHECK_S, self._on_timer)
        self._waiting[future] = transfer
        self._resolve()
        return future

    def _on_timer(self) -> None:
        self._timer = self.loop.call_later(_TIMEOUT_CHECK_S, self._on_timer)
        self._resolve()

    def _resolve(self) -> None:
        """Resolve completed transfers, then arm the queue; repeat if one completed meanwhile."""
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
        # Another thread is using the queue briefly, as a finalizer does: the timer will retry.
        with contextlib.suppress(QueueInUse):
            return queue.arm()
        return True

    def _collect(self, future: asyncio.Future[None], transfer: Pending) -> bool:
        rc = transfer._look(0)
        if rc in (-errno.ETIME, -errno.EINTR):
            return False
        if rc:
            future.set_exception(error_of(rc))
        else:
            future.set_result(None)
        return True

    def before_close(self) -> None:
        """Stop watching the queue's fd: once closed, its number may be reused."""
        if asyncio._get_running_loop() is self.loop:
            self.loop.remove_reader(self._fd)

    def after_close(self) -> None:
        """Resolve the waiting transfers, which closing the queue completed as FLUSHED."""
        if asyncio._get_running_loop() is self.loop:
            self._resolve()
            return
        with contextlib.suppress(RuntimeError):  # the loop is closed: nothing waits in it any more
            self.loop.call_soon_threadsafe(self._resolve)

    def _stop(self) -> None:
        self.loop.remove_reader(self._fd)
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


def running_waiters(queue: CompletionQueue, last: Waiters | None) -> Waiters:
    """Return `last` if it belongs to the running event loop, else new waiters for that loop."""
    loop = asyncio.get_running_loop()
    return last if last is not None and last.loop is loop else Waiters(queue, loop)
