"""What stands between two sides beside their requests: feeds of telemetry, and monitors that may
end by themselves."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import TYPE_CHECKING

from .address import Address, parse
from .error_codec import to_exception
from .subscriber import Feed

if TYPE_CHECKING:
    import zmq

    from .messages import Ended

__all__ = ["Standing"]


class Standing:
    """A link's. `ends` has, for the number of each Watch, who is told that its monitor ended."""

    def __init__(
        self,
        context: zmq.Context[zmq.Socket[bytes]],
        address: Address,
        identity: tuple[str, str] | None,
    ) -> None:
        self.ends: dict[int, Callable[[Exception], None]] = {}
        self._context, self._address, self._identity = context, address, identity
        self._feeds: list[Feed] = []

    def take(self, ended: Ended) -> None:
        """A monitor's end; nothing, if nobody asks for it any more."""
        call = self.ends.pop(ended.id, None)
        if call is not None:
            call(to_exception(ended.failed))

    def feed(self, endpoint: str, topic: bytes) -> Feed:
        """Connects to where the agent publishes, for what begins with `topic`."""
        feed = Feed(self._context, self._reach(parse(endpoint)), self._identity, topic)
        self._feeds.append(feed)
        return feed

    def _reach(self, said: Address) -> Address:
        """By the host that the agent was reached at: it may listen at all that it has."""
        if not said.tcp:
            return said
        host = self._address.endpoint.rpartition(":")[0]
        return Address(f"{host}:{said.endpoint.rpartition(':')[2]}", self._address.key)

    def drop(self, feed: Feed) -> None:
        """Closes it."""
        feed.close()
        with contextlib.suppress(ValueError):  # it was dropped before
            self._feeds.remove(feed)

    def close(self) -> None:
        """Closes what is open: the context cannot end before."""
        for feed in list(self._feeds):
            self.drop(feed)
