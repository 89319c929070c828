"""Requests of one connection that the agent has read and not yet served."""

from __future__ import annotations

from collections import deque

__all__ = ["Waiting"]

_MAX_BYTES = 2 << 20
_MESSAGE_BYTES = 1 << 10  # that each counts beside its body: 2,000 short requests may wait


class Waiting:
    """Requests of one connection, in the order of arrival; their number is bounded by their bytes.

    Attributes:
        messages: Each with whether it had further parts, which were dropped.
    """

    __slots__ = ("_bytes", "messages")

    def __init__(self) -> None:
        self.messages: deque[tuple[bytes, bool]] = deque()
        self._bytes = 0

    def add(self, body: bytes, several: bool) -> bool:
        """Add a request; return False, and drop it, if too many wait."""
        size = len(body) + _MESSAGE_BYTES
        if self._bytes + size > _MAX_BYTES:
            return False
        self._bytes += size
        self.messages.append((body, several))
        return True

    def next(self) -> tuple[bytes, bool]:
        """Remove and return the oldest request."""
        body, several = self.messages.popleft()
        self._bytes -= len(body) + _MESSAGE_BYTES
        return body, several
