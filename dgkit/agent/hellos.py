"""First messages of connections, and the routes whose further messages are dropped."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import zmq

    from .account import Account

RETRY_MS = 5  # after which it is looked again for one that is due
_MOST_DROPPED = 1024


class DroppedRoutes(dict[bytes, None]):
    """The 1,024 routes that were added last, oldest first. Not thread-safe."""

    def add(self, route: bytes) -> None:
        """Drop all further messages from a route."""
        self[route] = None
        if len(self) > _MOST_DROPPED:
            del self[next(iter(self))]


@dataclass(slots=True)
class Greeting:
    """First message of a connection; `account` is that of its key, if other keys are allowed."""

    frame: zmq.Frame
    several: bool
    account: Account | None

    def is_due(self) -> bool:
        """Return whether it may be served now."""
        return self.account is None or self.account.may_arrive


class Hellos(dict[bytes, Greeting]):
    """Greetings that wait for their turn by route, in order of arrival. Not thread-safe."""

    def __init__(self, most: int) -> None:
        """Keep at most `most` greetings, one for each possible connection."""
        super().__init__()
        self._most = most
        self._due = 0.0  # when to look again for one that is due

    def add(self, route: bytes, greeting: Greeting) -> None:
        """Queue a greeting; drop its key's oldest if there are more than connections."""
        if len(self) >= self._most:  # many of them have ended
            own = (each for each, hello in self.items() if hello.account is greeting.account)
            del self[next(own, next(iter(self)))]
        self[route] = greeting
        self._due = 0.0

    def take_due(self) -> tuple[bytes, Greeting] | None:
        """Remove and return the oldest greeting that is due, and its route; None if none is.

        Hundreds of one key may wait, so that not each call looks at all of them.
        """
        now = time.monotonic()
        if now < self._due:
            return None
        route = next((route for route, each in self.items() if each.is_due()), None)
        if route is None:
            self._due = now + RETRY_MS / 1000
            return None
        return route, self.pop(route)
