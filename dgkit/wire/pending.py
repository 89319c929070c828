"""A request that was sent, until its reply is there."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

__all__ = ["Pending"]


class Pending:
    """A request that was sent. `then` runs once, with this Pending, when it is done or has failed;
    `news` runs for each Progress and Block. Both run under the link's lock: they must not wait."""

    done = False
    reply: Any = None
    error: Exception | None = None
    then: Callable[[Pending], None] | None = None
    news: Callable[[Any], None] | None = None
    gate: threading.Lock | None = None

    def __init__(self, number: int) -> None:
        self.number = number

    def result(self) -> Any:
        """The reply, or the exception."""
        if self.error is not None:
            raise self.error.with_traceback(None)
        return self.reply

    def let_go(self) -> None:
        """Wakes the thread that waits at the gate, if one does."""
        if self.gate is not None and self.gate.locked():
            self.gate.release()
