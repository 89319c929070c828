# SPDX-License-Identifier: Apache-2.0
"""Posted operations, and the wait for their completions."""

from __future__ import annotations

import contextlib
import errno
from collections.abc import Generator

from ..errors import DgkitError
from ._ffi import check, error_of, lib, nanoseconds, native, raise_for
from .completion import Completion, raise_failed

TYPE_CHECKING = False  # typing's own costs more to import than all of this
if TYPE_CHECKING:
    from collections.abc import Awaitable
    from typing import Any, NoReturn

    from ..errors import ClosedError
    from ..types import TransferPath
    from .context import DeviceContext

# How long an await polls before it suspends its task: about the cost of one turn of an event loop.
AWAIT_SPIN_NS = 5_000


class Transfer(Completion, native.Ready):
    """Posted operation. Its completion comes from `wait()` or `await`, not from `poll`.

    A complete transfer is its own completion: `wait()` returns the transfer itself, which saves
    a second object. This class is a transfer that completed inline; see `Pending` for the others.
    """

    __slots__ = ()

    def __await__(self) -> Generator[Any, None, Completion]:
        yield from ()  # makes this a generator, which an await needs
        return self.wait()


if TYPE_CHECKING:

    class _InFlight(Transfer):
        _complete: bool
        _queue: CompletionQueue
        _ticket: int

        def _look(self, timeout_ns: int, /) -> int: ...

else:
    _InFlight = native.in_flight(Transfer)


class Pending(_InFlight):
    """Transfer that did not complete inline.

    It occupies one of its queue's `depth` slots until its completion is reaped or the last
    reference to it is dropped.
    """

    __slots__ = ()

    def __await__(self) -> Generator[Any, None, Completion]:
        rc = self._look(AWAIT_SPIN_NS)
        if rc in (-errno.ETIME, -errno.EINTR):
            yield from self._queue._wait_in_loop(self).__await__()
        elif rc:
            raise_for(rc)
        return self.wait()

    def __repr__(self) -> str:
        return super().__repr__() if self._complete else f"<dgkit.Transfer on {self._queue!r}>"

    def _repr_html_(self) -> str:
        if self._complete:
            return super()._repr_html_()
        from ..html_cards import card, provider_badge

        queue = self._queue
        rows = (("Queue", f"depth {queue.depth}, path {queue.path}"),)
        return card("Transfer (not complete)", rows, badge=provider_badge(queue._device._label))


def _raise_not_complete() -> NoReturn:
    raise DgkitError("the transfer is not complete: wait() for it or await it first")


def _raise_timed_out(timeout: float) -> NoReturn:
    raise TimeoutError(f"the transfer is not complete after {timeout} s; it stays in flight")


def _raise_closed(prepared: Any) -> NoReturn:
    error: ClosedError = prepared._closed_error()
    raise error


native.set_transfers(Transfer, Pending)
native.set_hooks(
    raise_for, raise_failed, _raise_not_complete, _raise_timed_out, nanoseconds, _raise_closed
)


class CompletionQueue(native.QueueHandle):
    """Completion side of a queue: its fd, and the transfers that wait for their completions."""

    _q: Any
    _closed: bool
    _device: DeviceContext
    depth: int
    path: TransferPath

    def __init__(self) -> None:
        self._undropped: list[int] = []
        self._bind(self._q)

    def _raise_for(self, rc: int) -> NoReturn:
        """Drop the tickets that finalizers could not drop, then raise the error of `rc`."""
        error = error_of(rc)  # before a drop that fails overwrites its text
        for ticket in list(self._undropped):
            # EALREADY: another thread still uses the queue. Dropping a ticket twice is harmless.
            if lib.dg_transfer_drop(ticket) != -errno.EALREADY:
                with contextlib.suppress(ValueError):  # another thread has dropped it
                    self._undropped.remove(ticket)
        raise error

    def _drop_later(self, ticket: int) -> None:
        """Remember a transfer that was dropped while another thread was using the queue."""
        self._undropped.append(ticket)

    def _wait_in_loop(self, transfer: Pending) -> Awaitable[None]:
        """Return an awaitable that ends when the transfer is complete."""
        raise NotImplementedError

    @property
    def pending(self) -> int:
        """Number of posted operations that were not reaped."""
        return int(lib.dg_queue_pending(self._q.c))

    @property
    def closed(self) -> bool:
        """True if the queue is closed."""
        return self._closed

    def fileno(self) -> int:
        """Return a file descriptor for select or epoll.

        It becomes readable when an operation completes after `arm()` returned True.
        """
        return check(lib.dg_queue_fileno(self._q.c))

    def arm(self) -> bool:
        """Arm the file descriptor before sleeping on `fileno()`.

        Returns:
            True if the next completion makes it readable; False if a completion is already
            available, so do not sleep.
        """
        return check(lib.dg_queue_arm(self._q.c)) == 1
