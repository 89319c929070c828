"""Routes of a ROUTER socket whose further messages are dropped."""

from __future__ import annotations

_MOST = 1024


class DroppedRoutes(dict[bytes, None]):
    """The 1,024 routes that were added last, oldest first. Not thread-safe."""

    def add(self, route: bytes) -> None:
        """Drop all further messages from a route."""
        self[route] = None
        if len(self) > _MOST:
            del self[next(iter(self))]
