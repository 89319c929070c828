"""Request that was sent and not yet answered."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ..errors import ClosedError, PeerError, again

if TYPE_CHECKING:
    from .connection import Connection


class ReplyLost(PeerError):
    """An exception such as Ctrl-C in some thread lost the request or its reply.

    The agent does not work on it, but may have done what was requested.
    """


class Pending:
    """Request that was sent and not yet answered.

    `then` is called with this object when the reply has arrived or the request has failed: once, or
    again if an exception such as Ctrl-C interrupted the call. `news` is called for each Progress
    and Block; if it raises PeerError, the connection ends. Both run under the connection's lock and
    must not block.
    """

    #: Type of its reply.
    expected: type = object

    number = -1
    done = False
    reply: Any = None
    error: Exception | None = None
    then: Callable[[Pending], None] | None = None
    news: Callable[[Any], None] | None = None
    gate: threading.Lock | None = None

    def result(self) -> Any:
        """Return the reply, or raise the exception that the request failed with."""
        if self.error is not None:
            raise again(self.error)
        return self.reply

    def undo(self) -> None:
        """Do nothing: only a Creation leaves something at the agent."""

    def release(self) -> None:
        """Wake the thread that waits at the gate, if any."""
        if self.gate is not None and self.gate.locked():
            self.gate.release()


class Creation(Pending):
    """Request by which the agent creates a region, a monitor or a GPU queue, owned by this object.

    It is made before the request is sent. When the object goes, or after undo(), the agent frees
    what it created, or what it will create if the request is still unanswered. So an exception such
    as Ctrl-C at any instant leaves nothing at the agent. Do not drop the object without end(),
    undo() or forget(): Python ignores Ctrl-C in a finalizer, which then frees nothing.
    """

    def __init__(self, link: Connection) -> None:
        self._link = link
        self.freed = False

    def end(self, kind: Any, *fields: Any, timeout: float) -> None:
        """Have the agent free it by a request, and wait; arguments as Connection.ask(). Idempotent.

        If an exception interrupts it, call it again, or undo().
        """
        if not self.freed:
            with contextlib.suppress(ClosedError):  # freed by an earlier request, or the session's
                self._link.ask(kind, *fields, timeout=timeout)
            self.freed = True

    def undo(self) -> None:
        """Have the agent free it, without waiting. Idempotent."""
        if self._leave():
            self._link.cancel_undone()

    def forget(self, then: Callable[[], None]) -> None:
        """Have the agent free it at the next request; never blocks. For finalizers.

        Args:
            then: Called once the agent has freed it, or the connection has ended: now, or under
                the connection's lock. It must not block, and may be called twice.
        """
        if not self._leave(then):
            then()

    def _leave(self, then: Callable[[], None] | None = None) -> bool:
        """Record that the agent must free it, unless there is nothing to free; never blocks."""
        failed = self.error is not None and not isinstance(self.error, ReplyLost)
        if self.freed or failed or self.number < 0 or self._link.dead is not None:
            return False
        self._link.note_undone(self.number, then)
        self.freed = True
        return True

    def __del__(self) -> None:
        if hasattr(self, "freed"):  # else Ctrl-C interrupted the constructor
            self._leave()
