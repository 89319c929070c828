# SPDX-License-Identifier: Apache-2.0
"""Publisher of latency samples: numbered blocks on a ROUTER socket, so that a gap is detected.

A ROUTER socket without a high-water mark, since libzmq may abort behind a full queue of requests
(listener.py, _REQUESTS_HWM); a PUB socket would read subscriptions inside libzmq for as long as
they arrive.
"""

from __future__ import annotations

import contextlib
import os
import time
from array import array
from collections import Counter, defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import zmq

from ..errors import LimitReached, PeerError, PeerRefused
from ..schema import Sampled
from ..wire.messages import (
    SUBSCRIBED,
    TELEMETRY_HWM,
    UNREADABLE,
    Published,
    decode_subscription,
    encode,
)
from ..wire.sockets import fd_of
from .account import check_user
from .agent_limits import DroppedRoutes

if TYPE_CHECKING:
    from ..wire.listener import Caller, Listener
    from .account import Account
    from .client import Client

_MAX_SAMPLES = 4096  # most samples of one block
_INTERVAL_NS = 50_000_000  # 20 blocks per second, the most that a plot can draw
_SWEEP_NS = 1_000_000_000  # between two looks for descriptors that closed unseen
_SUBSCRIBER_FDS = 1
_MAX_RECEIVED = 64  # most messages read at once
_PART, _LAST = int(zmq.SNDMORE | zmq.NOBLOCK), int(zmq.NOBLOCK)


@dataclass(slots=True)
class _Subscriber:
    """A connection, charged to an account.

    Attributes:
        route: Its name at the ROUTER socket.
        fd: Its descriptor.
        inode: That of the descriptor, whose number may be reused.
        monitor: Number of the monitor whose blocks it receives.
        account: Account that its descriptor and its subscription are charged to.
        credit: Further blocks that it accepts.
    """

    route: bytes
    fd: int
    inode: int
    monitor: int
    account: Account
    credit: int


class Telemetry:
    """Collects the samples of moves and publishes them in blocks. Not thread-safe.

    A client's samples are published under a number that only this client knows, so a client sees
    only its own samples. A block is lost for a subscriber that has no credit left, or whose queue
    in libzmq is full. A connection is closed if its key or user is at its limit, or if it belongs
    to another user. Messages that no dgkit client sends also block the key for a while.

    Args:
        listener: The agent's sockets; the telemetry opens another one.
        provider: Provider that moves the bytes.
        account_of: Returns the account of a sender.
        shared: Publish the samples of all clients, under the number 0, to every client.
    """

    def __init__(
        self,
        listener: Listener,
        provider: str,
        account_of: Callable[[Caller], Account],
        *,
        shared: bool,
    ) -> None:
        self._listener = listener
        self._socket, address = listener.publisher()
        self.endpoint = str(address)
        self._provider = provider
        self._account_of = account_of
        self._shared = shared
        self._samples: dict[int, array[int]] = {}  # by the number under which they are published
        self._numbers: Counter[int] = Counter()
        self._subscribers: dict[bytes, _Subscriber] = {}  # by route
        self._readers: defaultdict[int, list[_Subscriber]] = defaultdict(list)  # by monitor
        self._dropped = DroppedRoutes()
        self._sent_ns = time.monotonic_ns()
        self._swept_ns = 0

    def fileno(self) -> int:
        """Return the descriptor that signals new subscriptions, edge-triggered (ZMQ_FD)."""
        return fd_of(self._socket)

    def monitor_number(self, client: Client) -> int:
        """Return the number under which the samples of a client are published."""
        return 0 if self._shared else client.secret

    def add(self, client: Client, latency_ns: int) -> None:
        """Record the latency of one transfer of a client."""
        samples = self._samples.setdefault(self.monitor_number(client), array("Q"))
        samples.append(latency_ns)
        if len(samples) >= _MAX_SAMPLES:
            self.flush()

    def forget(self, client: Client) -> None:
        """Drop the samples of a client that disconnects."""
        if not self._shared:
            self._samples.pop(client.secret, None)
            self._numbers.pop(client.secret, None)

    def flush(self) -> None:
        """Read subscriptions; publish samples that fill a block or have waited long enough."""
        if time.monotonic_ns() - self._swept_ns > _SWEEP_NS:
            self._refund_ended()
        self.receive()
        if not self._samples:
            return
        late = time.monotonic_ns() - self._sent_ns > _INTERVAL_NS
        for number, samples in list(self._samples.items()):
            if late or len(samples) >= _MAX_SAMPLES:
                del self._samples[number]
                self._publish(number, "move", samples.tobytes())

    def publish(self, client: Client, source: str, samples: bytes) -> None:
        """Publish one block of a client's samples."""
        self._publish(self.monitor_number(client), source, samples)

    def _publish(self, monitor: int, source: str, samples: bytes) -> None:
        self._sent_ns = time.monotonic_ns()
        number = self._numbers[monitor]
        self._numbers[monitor] += 1
        block = Sampled(
            number=number, t_ns=self._sent_ns, provider=self._provider, source=source,
            samples=samples,
        )  # fmt: skip
        self.send(Published(monitor=monitor, block=block))

    def send(self, published: Published) -> None:
        """Publish a block that a monitor has numbered; subscribers that cannot keep up lose it."""
        body = b""
        for reader in self._readers.get(published.monitor, ()):
            if reader.credit:
                body = body or encode(published)
                reader.credit -= self._deliver(reader.route, body)

    def _deliver(self, route: bytes, body: bytes) -> bool:
        """Send a message; return False if the connection cannot accept it now, or has ended."""
        try:
            self._socket.send(route, _PART)
        except zmq.ZMQError as exc:
            if exc.errno not in (zmq.EAGAIN, zmq.EHOSTUNREACH):
                raise
            return False
        self._socket.send(body, _LAST)
        return True

    def receive(self) -> None:
        """Handle a bounded number of the subscribers' messages that have arrived."""
        for _ in range(_MAX_RECEIVED):
            try:
                route = self._socket.recv(_LAST)
            except zmq.Again:
                self._listener.subscriptions_read()
                return
            frame = last = self._socket.recv(copy=False)
            while last.more:
                last = self._socket.recv(copy=False)
            if route not in self._dropped:
                self._handle(route, frame, frame.more)

    def _handle(self, route: bytes, frame: zmq.Frame, multipart: bool) -> None:
        """Handle a message; end its connection if it is invalid or exceeds a limit."""
        sender = self._listener.sender(frame)
        try:
            self._subscribe(route, sender, b"" if multipart else frame.bytes)
            return
        except (LimitReached, PeerRefused):
            pass
        except (PeerError, *UNREADABLE):  # no dgkit client sends it
            account = self._account_of(sender)
            if sender.key and not account.penalized:
                account.penalize()
        self._dropped.add(route)
        others = (each.fd for each in self._subscribers.values() if each.route != route)
        if sender.fd not in others:
            self._listener.refuse_subscriber(sender)

    def _subscribe(self, route: bytes, sender: Caller, body: bytes) -> None:
        """Add a subscriber, or credit to a known subscriber.

        Raises:
            PeerRefused: The sender is another user.
            LimitReached: The sender's key or user has reached its limit.
            PeerError: The sender breaks the protocol.
            DecodeError: The message is invalid.
        """
        subscription = decode_subscription(body)
        subscriber = self._subscribers.get(route)
        if subscriber is None:
            subscriber = self._charge(route, sender, subscription.monitor)
            if subscriber is None:
                return
            self._listener.admit_subscriber(sender.fd)
            self._deliver(route, SUBSCRIBED)
        subscriber.credit += subscription.credit
        if subscriber.credit > TELEMETRY_HWM or subscriber.monitor != subscription.monitor:
            raise PeerError("the subscriber grants more than it may, or has another monitor")

    def _charge(self, route: bytes, sender: Caller, monitor: int) -> _Subscriber | None:
        """Charge a subscriber, and add it; None if its connection has ended.

        Raises:
            PeerRefused: The sender is another user.
            LimitReached: The sender's key or user has reached its limit.
        """
        check_user(sender.uid)
        inode = _inode(sender.fd)
        if not inode:  # no event would refund it
            return None
        self._refund_ended()
        account = self._account_of(sender)
        account.charge(subscriptions=1, descriptors=_SUBSCRIBER_FDS)
        subscriber = _Subscriber(route, sender.fd, inode, monitor, account, 0)
        self._subscribers[route] = subscriber
        self._readers[monitor].append(subscriber)
        return subscriber

    def refund_connection(self, fd: int) -> None:
        """Refund the charges of an ended connection, if its descriptor is closed by now."""
        self._refund([each for each in self._subscribers.values() if each.fd == fd])

    def _forget(self, subscriber: _Subscriber) -> None:
        del self._subscribers[subscriber.route]
        readers = self._readers[subscriber.monitor]
        readers.remove(subscriber)
        if not readers:
            del self._readers[subscriber.monitor]
        subscriber.account.release(subscriptions=1, descriptors=_SUBSCRIBER_FDS)

    def _refund_ended(self) -> None:
        """Refund connections that have closed: libzmq may report an end before it closes the fd."""
        self._swept_ns = time.monotonic_ns()
        self._refund([*self._subscribers.values()])

    def _refund(self, subscribers: list[_Subscriber]) -> None:
        for each in subscribers:
            if each.inode != _inode(each.fd):
                self._forget(each)


def _inode(fd: int) -> int:
    """Return the inode of a descriptor; 0 if it is closed."""
    with contextlib.suppress(OSError):
        return os.fstat(fd).st_ino
    return 0
