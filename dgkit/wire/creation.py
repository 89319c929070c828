"""Request by which the agent creates something that the requester owns."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import TYPE_CHECKING

from ..errors import ClosedError
from .pending import Pending, ReplyLost

if TYPE_CHECKING:
    from .connection import Connection
    from .messages import Request


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

    def end(self, request: Request, *, timeout: float) -> None:
        """Have the agent free it by a request, and wait; arguments as Connection.ask(). Idempotent.

        If an exception interrupts it, call it again, or undo().
        """
        if not self.freed:
            with contextlib.suppress(ClosedError):  # freed by an earlier request, or the session's
                self._link.ask(request, timeout=timeout)
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
