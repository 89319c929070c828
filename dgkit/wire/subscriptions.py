"""Telemetry subscriptions and monitor-end notifications of a connection."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

from ..errors import ClosedError
from ..files import check_descriptors
from ..live_set import LiveSet
from .address import Address, parse
from .error_codec import to_exception
from .subscriber import Subscriber

if TYPE_CHECKING:
    import zmq

    from .messages import Ended

_DESCRIPTORS = 8  # more than one takes


class Subscriptions:
    """Telemetry subscriptions of one connection.

    `on_end` maps the number of a Watch request to the callback that gets the exception if that
    monitor ends before it is cancelled.
    """

    def __init__(
        self,
        context: zmq.Context[zmq.Socket[bytes]],
        address: Address,
        identity: tuple[str, str] | None,
    ) -> None:
        self.on_end: dict[int, Callable[[Exception], None]] = {}
        self._context, self._address, self._identity = context, address, identity
        self._subscribers = LiveSet()
        self._lock = threading.Lock()
        self._closed = False

    def monitor_ended(self, ended: Ended) -> None:
        """Call the monitor's callback once; a monitor without one is ignored."""
        callback = self.on_end.pop(ended.id, None)
        if callback is not None:
            callback(to_exception(ended.failed))

    def subscribe(self, endpoint: str, monitor: int) -> Subscriber:
        """Connect to the agent's telemetry socket for the blocks of one monitor.

        Args:
            endpoint: The address in the agent's Subscribed reply.
            monitor: Its number.

        Raises:
            ClosedError: The connection is closed.
            LimitReached: Too few file descriptors are left.
        """
        check_descriptors("a monitor", _DESCRIPTORS)
        address = self._resolve(parse(endpoint))
        with self._lock:
            if self._closed:
                raise ClosedError("the session is closed")
            subscriber = Subscriber(self._context, address, self._identity, monitor)
            self._subscribers.add(subscriber)
        return subscriber

    def _resolve(self, published: Address) -> Address:
        """Replace the host by the one of this connection: an agent may listen at 0.0.0.0."""
        if not published.tcp:
            return published
        host = self._address.endpoint.rpartition(":")[0]
        port = published.endpoint.rpartition(":")[2]
        return replace(self._address, endpoint=f"{host}:{port}")

    def end_endless(self) -> None:
        """Close the subscriptions on which the agent sends an endless message; see Subscriber."""
        for subscriber in self._subscribers:
            subscriber.end_endless()

    def unsubscribe(self, subscriber: Subscriber) -> None:
        """Close a subscription. Idempotent."""
        subscriber.close()
        self._subscribers.discard(subscriber)

    def close(self) -> None:
        """Close all subscriptions: a ZeroMQ context cannot be terminated while sockets are open."""
        with self._lock:
            self._closed = True
        for subscriber in self._subscribers:
            self.unsubscribe(subscriber)
