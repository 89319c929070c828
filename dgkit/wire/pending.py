# SPDX-License-Identifier: Apache-2.0
"""Request that was sent and not yet answered."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from ..errors import PeerError, copy_of


class ReplyLost(PeerError):
    """An interruption lost the request or its reply; the agent may have executed the request."""


class Pending:
    """Request that was sent and not yet answered.

    `then` is called with this object when the reply has arrived or the request has failed, and
    again if the call was interrupted. `on_progress` is called for each Progress and Block; if it
    raises PeerError, the connection ends. Both run under the connection's lock and must not block.
    """

    #: Type of its reply.
    expected: type = object

    number = -1
    done = False
    reply: Any = None
    error: Exception | None = None
    then: Callable[[Pending], None] | None = None
    on_progress: Callable[[Any], None] | None = None
    gate: threading.Lock | None = None

    def result(self) -> Any:
        """Return the reply, or raise the exception that the request failed with."""
        if self.error is not None:
            raise copy_of(self.error)
        return self.reply

    def undo(self) -> None:
        """Do nothing: only a Creation leaves something at the agent."""

    def release(self) -> None:
        """Wake the thread that waits at the gate, if any."""
        if self.gate is not None and self.gate.locked():
            self.gate.release()
