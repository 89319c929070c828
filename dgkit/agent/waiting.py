"""Requests of one connection that the agent has read and not yet served."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import zmq

__all__ = ["Waiting"]

_MAX_BYTES = 2 << 20  # 2 MiB: 8,000 requests to move bytes
_MESSAGE_BYTES = 200  # that a short request takes beside its body


class Waiting:
    """Requests of one connection, in the order of arrival; their number is bounded by their bytes.

    Attributes:
        messages: Each with whether it had further parts, which were dropped.
    """

    __slots__ = ("_bytes", "messages")

    def __init__(self) -> None:
        self.messages: deque[tuple[zmq.Frame, bool]] = deque()
        self._bytes = 0

    def add(self, frame: zmq.Frame, several: bool) -> bool:
        """Add a request; return False, and drop it, if too many wait."""
        size = len(frame) + _MESSAGE_BYTES
        if self._bytes + size > _MAX_BYTES:
            return False
        self._bytes += size
        self.messages.append((frame, several))
        return True

    def next(self) -> tuple[zmq.Frame, bool]:
        """Remove and return the oldest request."""
        frame, several = self.messages.popleft()
        self._bytes -= len(frame) + _MESSAGE_BYTES
        return frame, several
