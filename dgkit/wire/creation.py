# SPDX-License-Identifier: Apache-2.0
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

    It exists before the request is sent. After undo(), the agent frees what it created, or will
    create if the request is still unanswered. Call end(), undo() or undo_later() before dropping
    the object; its finalizer may be interrupted.
    """

    def __init__(self, link: Connection) -> None:
        self._link = link
        self.freed = False

    def end(self, request: Request, *, timeout: float) -> None:
        """Free the created object by a request, and wait; arguments as ask(). Idempotent."""
        if not self.freed:
            with contextlib.suppress(ClosedError):  # freed by an earlier request, or the session's
                self._link.ask(request, timeout=timeout)
            self.freed = True

    def undo(self) -> None:
        """Have the agent free the created object, without waiting. Idempotent."""
        if self._cancel_later():
            self._link.post_cancels()

    def undo_later(self, then: Callable[[], None]) -> None:
        """Free the created object at the next request; never blocks. For finalizers.

        Args:
            then: Called once the agent has freed it, or the connection has ended: now, or under
                the connection's lock. It must not block, and may be called twice.
        """
        if not self._cancel_later(then):
            then()

    def _cancel_later(self, then: Callable[[], None] | None = None) -> bool:
        """Schedule a Cancel for the request; return False if there is nothing to free."""
        failed = self.error is not None and not isinstance(self.error, ReplyLost)
        if self.freed or failed or self.number < 0 or self._link.dead is not None:
            return False
        self._link.cancel_later(self.number, then)
        self.freed = True
        return True

    def __del__(self) -> None:
        if hasattr(self, "freed"):  # else the constructor was interrupted
            self._cancel_later()
