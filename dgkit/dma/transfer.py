"""A posted read or write, and the wait for it."""

from __future__ import annotations

import errno
import time
from collections.abc import Generator

from ..errors import DgkitError, QueueInUse
from ._ffi import FOREVER, lib, nanoseconds, refuse
from .completion import Completion, raise_failed

TYPE_CHECKING = False  # typing's own costs more to import than all of this
if TYPE_CHECKING:
    from typing import Any

    from .queue import Queue

__all__ = ["RACED", "Transfer"]

_wait = lib.dg_transfer_wait
_wait_for = lib.dg_transfer_wait_for
_FAILED: int = lib.DG_FAILED

# How long an await looks for the completion before it gives the event loop its turn: a turn of the
# loop costs about as much.
AWAIT_SPIN_NS = 5_000


class Transfer(Completion):
    """A read or write that was posted. Its completion comes by `wait()` or `await`, not by `poll`.

    Once it is complete it is its own completion: `wait()` gives the transfer itself, which saves
    the making of a second object. This class is what was done at once; see `Pending`.
    """

    __slots__ = ()

    def wait(self, timeout: float | None = None) -> Completion:  # noqa: ARG002 - done already
        """The completion, once it is there. Waiting again gives it again.

        TransferError (which carries it) if its status is not OK; TimeoutError after `timeout`
        seconds: the transfer goes on, and may be waited for again. QueueInUse if another thread
        is in the queue.
        """
        return self

    def done(self) -> bool:
        """Whether the completion is there. Never blocks."""
        return True

    def __await__(self) -> Generator[Any, None, Completion]:
        yield from ()  # makes this a generator, which an await needs
        return self.wait()


class _NotYet:
    """Stands for the completions while this one is not among them."""

    def __getitem__(self, _: int) -> Any:
        raise DgkitError("the transfer is not complete: wait() for it, or await it, first")


_NOT_YET = _NotYet()


class _Raced:
    """Stands for completions of which two threads might each have taken the other's."""

    def __getitem__(self, _: int) -> Any:
        raise QueueInUse(
            errno.EALREADY,
            "another thread used this queue at the same moment, and this completion is lost: "
            "open one queue a thread",
        )


RACED = _Raced()


class Pending(Transfer):
    """A transfer that was not done at once.

    It holds one of its queue's `depth` places until its completion was taken, or until nobody
    refers to it any more.
    """

    __slots__ = ("_failed", "_queue", "_ticket")

    # No __init__: setting the slots where it is made takes half the time.
    _failed: bool
    _queue: Queue
    _ticket: int

    def _look(self, timeout_ns: int) -> int:
        """0 if the completion is there now; else -ETIME, or another negative errno."""
        queue = self._queue
        sink = queue._sink
        ticket = self._ticket
        rc: int = _wait(ticket) if timeout_ns == FOREVER else _wait_for(ticket, timeout_ns)
        while rc == -errno.ENOSPC:
            sink = queue._new_sink()
            rc = _wait_for(ticket, timeout_ns)
        if rc < 0:
            return rc
        self._failed = rc >= _FAILED
        self._i = rc % _FAILED
        self._wcs = sink if sink is queue._sink else RACED
        return 0

    def wait(self, timeout: float | None = None) -> Completion:
        """As Transfer's."""
        if self._i < 0:
            # The usual case in as few steps as can be; a signal or a full sink needs more of them.
            sink = self._queue._sink
            rc = _wait(self._ticket) if timeout is None else -errno.EINTR
            if rc < 0:
                self._wait_on(timeout)
            else:
                self._wcs = sink if sink is self._queue._sink else RACED
                self._failed = rc >= _FAILED
                self._i = rc % _FAILED
        if self._failed:
            raise_failed(self)
        return self

    def _wait_on(self, timeout: float | None) -> None:
        rc = self._look(FOREVER if timeout is None else nanoseconds(timeout))
        end = None if timeout is None else time.monotonic() + timeout
        while rc == -errno.EINTR:  # Python's own handlers ran when the call returned
            left = FOREVER if end is None else nanoseconds(max(0.0, end - time.monotonic()))
            rc = self._look(left)
        if rc == -errno.ETIME:
            raise TimeoutError(f"the transfer is not complete after {timeout} s; it goes on")
        if rc:
            refuse(rc)

    def done(self) -> bool:
        """As Transfer's."""
        if self._i >= 0:
            return True
        rc = self._look(0)
        if rc and rc != -errno.ETIME:
            refuse(rc)
        return rc == 0

    def __await__(self) -> Generator[Any, None, Completion]:
        if self._i < 0:
            rc = self._look(AWAIT_SPIN_NS)
            if rc in (-errno.ETIME, -errno.EINTR):
                from .aio import wait_in_loop

                yield from wait_in_loop(self).__await__()
            elif rc:
                refuse(rc)
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
        return card("Transfer (not complete)", rows, badge=provider_badge(queue.device.provider))
