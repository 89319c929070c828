"""Posted reads and writes, and the wait for their completions."""

from __future__ import annotations

import errno
import threading
import time
from collections.abc import Generator

from ..errors import DgkitError, QueueInUse
from ._ffi import FOREVER, check, ffi, lib, nanoseconds, raise_for
from .completion import Completion, raise_failed

TYPE_CHECKING = False  # typing's own costs more to import than all of this
if TYPE_CHECKING:
    from collections.abc import Awaitable
    from typing import Any, NoReturn

    from ..types import Path

__all__ = ["SINK_SIZE", "CompletionQueue", "Pending", "Transfer"]

_wait = lib.dg_transfer_wait
_wait_for = lib.dg_transfer_wait_for
_FAILED: int = lib.DG_FAILED
_TICKET: int = lib.DG_TICKET

SINK_SIZE = 512  # completions in one sink

# How long an await polls before it suspends its task: about the cost of one turn of an event loop.
AWAIT_SPIN_NS = 5_000


class Transfer(Completion):
    """Posted read or write. Its completion comes from `wait()` or `await`, not from `poll`.

    A complete transfer is its own completion: `wait()` returns the transfer itself, which saves
    a second object. This class is a transfer that completed inline; see `Pending` for the others.
    """

    __slots__ = ()

    def wait(self, timeout: float | None = None) -> Completion:  # noqa: ARG002 - already complete
        """Wait for the completion and return it. May be called again.

        Args:
            timeout: Seconds to wait; None for no limit.

        Raises:
            TransferError: The status is not OK; the error carries the completion.
            TimeoutError: Not complete after `timeout` seconds. The transfer stays in flight, and
                `wait` may be called again.
            QueueInUse: Another thread is using the queue.
        """
        return self

    def done(self) -> bool:
        """Return whether the transfer is complete, without blocking."""
        return True

    def __await__(self) -> Generator[Any, None, Completion]:
        yield from ()  # makes this a generator, which an await needs
        return self.wait()


class _NotComplete:
    """Sink of a transfer that is not complete: reading a field of it raises."""

    def __getitem__(self, _: int) -> Any:
        raise DgkitError("the transfer is not complete: wait() for it or await it first")


class _Raced:
    """Sink of a completion that two threads may have claimed: reading a field of it raises."""

    def __getitem__(self, _: int) -> Any:
        raise QueueInUse(
            errno.EALREADY,
            "another thread used this queue at the same time and this completion is lost: "
            "open one queue per thread",
        )


_NOT_COMPLETE = _NotComplete()
_RACED = _Raced()


class Pending(Transfer):
    """Transfer that did not complete inline.

    It occupies one of its queue's `depth` slots until its completion is reaped or the last
    reference to it is dropped.
    """

    __slots__ = ("_failed", "_queue", "_ticket")

    # No __init__: assigning the slots in `CompletionQueue._transfer` takes half the time.
    _failed: bool
    _queue: CompletionQueue
    _ticket: int

    def _look(self, timeout_ns: int) -> int:
        """Return 0 once complete, -ETIME if not complete in time, or another negative errno."""
        queue = self._queue
        sink = queue._sink
        ticket = self._ticket
        rc: int = _wait(ticket) if timeout_ns == FOREVER else _wait_for(ticket, timeout_ns)
        while rc == -errno.ENOSPC:
            sink = queue._new_sink()
            rc = _wait_for(ticket, timeout_ns)
        if rc == -errno.EINVAL:
            return self._taken()
        if rc < 0:
            return rc
        self._failed = rc >= _FAILED
        self._wcs = sink if sink is queue._sink else _RACED
        self._i = rc % _FAILED  # last: other threads take it for complete from now on
        return 0

    def _taken(self) -> int:
        """Return 0 if another thread has waited for this transfer. Raises QueueInUse if it is
        still storing the completion.
        """
        if self._i >= 0:
            return 0
        raise QueueInUse(errno.EALREADY, "another thread is waiting for this transfer")

    def wait(self, timeout: float | None = None) -> Completion:
        """Wait for the completion and return it; see `Transfer.wait`."""
        if self._i < 0:
            # Fast path; `_wait_again` handles a timeout, a signal and a full sink.
            sink = self._queue._sink
            rc = _wait(self._ticket) if timeout is None else -errno.EINTR
            if rc < 0:
                self._wait_again(timeout)
            else:
                self._wcs = sink if sink is self._queue._sink else _RACED
                self._failed = rc >= _FAILED
                self._i = rc % _FAILED
        if self._failed:
            raise_failed(self)
        return self

    def _wait_again(self, timeout: float | None) -> None:
        rc = self._look(FOREVER if timeout is None else nanoseconds(timeout))
        end = None if timeout is None else time.monotonic() + timeout
        while rc == -errno.EINTR:  # Python's signal handlers ran when the call returned
            left = FOREVER if end is None else nanoseconds(max(0.0, end - time.monotonic()))
            rc = self._look(left)
        if rc == -errno.ETIME:
            raise TimeoutError(
                f"the transfer is not complete after {timeout} s; it stays in flight"
            )
        if rc:
            raise_for(rc)

    def done(self) -> bool:
        """Return whether the transfer is complete, without blocking."""
        if self._i >= 0:
            return True
        rc = self._look(0)
        if rc and rc != -errno.ETIME:
            raise_for(rc)
        return rc == 0

    def __await__(self) -> Generator[Any, None, Completion]:
        if self._i < 0:
            rc = self._look(AWAIT_SPIN_NS)
            if rc in (-errno.ETIME, -errno.EINTR):
                yield from self._queue._completed(self).__await__()
            elif rc:
                raise_for(rc)
        return self.wait()

    def __del__(self) -> None:
        if self._i < 0:
            self._queue._drop(self._ticket)

    def __repr__(self) -> str:
        return super().__repr__() if self._i >= 0 else f"<dgkit.Transfer on {self._queue!r}>"

    def _repr_html_(self) -> str:
        if self._i >= 0:
            return super()._repr_html_()
        from ..html_cards import card, provider_badge

        queue = self._queue
        rows = (("Queue", f"depth {queue.depth}, path {queue.path}"),)
        return card("Transfer (not complete)", rows, badge=provider_badge(queue._device.provider))


class CompletionQueue:
    """Completion side of a queue: its fd, its completions and the transfers that wait for them.

    The C core answers a post with a ticket: below DG_TICKET the index of a completion in the sink,
    an array of `dg_wc`; else the number of a pending transfer.
    """

    _q: Any
    _closed: bool
    _device: Any
    depth: int
    path: Path

    def __init__(self) -> None:
        self._undropped: list[int] = []
        self._sink_lock = threading.Lock()
        self._sink: Any
        self._new_sink()

    def _new_sink(self) -> Any:
        """Install a new sink. The old one lives as long as completions refer to it."""
        with self._sink_lock:
            # A thread between its post and its look at _sink sees the change: see `_transfer`.
            self._sink = _RACED
            sink = ffi.new("dg_wc[]", SINK_SIZE)
            check(lib.dg_queue_sink(self._q, sink, SINK_SIZE))
            self._sink = sink
        return sink

    def _transfer(self, ticket: int, sink: Any) -> Transfer:
        """Return the transfer of a ticket.

        Args:
            ticket: Result of the post.
            sink: The sink from before the post. If it was replaced since, a second thread used
                the queue, and which of the two owns this completion is unknown: reading the
                transfer then raises QueueInUse.
        """
        if ticket < 0:
            self._raise_for(ticket)
        if ticket < _TICKET:
            done = Transfer()
            done._wcs = sink if sink is self._sink else _RACED
            done._i = ticket
            if ticket == SINK_SIZE - 1:
                self._new_sink()
            return done
        pending = Pending()
        pending._queue = self
        pending._ticket = ticket
        pending._wcs = _NOT_COMPLETE
        pending._i = -1
        return pending

    def _raise_for(self, rc: int) -> NoReturn:
        """Drop the tickets that finalizers could not drop, then raise the error of `rc`."""
        while self._undropped:
            lib.dg_transfer_drop(self._undropped.pop())
        raise_for(rc)

    def _drop(self, ticket: int) -> None:
        """Give up a transfer that nothing refers to any more."""
        if self._q is not None and lib.dg_transfer_drop(ticket) < 0:
            self._undropped.append(ticket)  # another thread is using the queue

    def _completed(self, transfer: Pending) -> Awaitable[None]:
        """Return an awaitable that ends when the transfer is complete."""
        raise NotImplementedError

    @property
    def pending(self) -> int:
        """Number of posted operations that were not reaped."""
        return int(lib.dg_queue_pending(self._q))

    @property
    def closed(self) -> bool:
        """True if the queue is closed."""
        return self._closed

    def fileno(self) -> int:
        """Return a file descriptor for select or epoll.

        It becomes readable when an operation completes after `arm()` returned True.
        """
        return check(lib.dg_queue_fileno(self._q))

    def arm(self) -> bool:
        """Arm the file descriptor before sleeping on `fileno()`.

        Returns:
            True if the next completion makes it readable; False if a completion is already
            available, so do not sleep.
        """
        return check(lib.dg_queue_arm(self._q)) == 1
