"""Publisher of latency samples: numbered blocks on an XPUB socket, so that a gap is detected."""

from __future__ import annotations

import contextlib
import errno
import os
import time
from array import array
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import msgspec
import zmq

from ..errors import LimitReached, PeerRefused
from ..wire.telemetry import Sampled, encode_sampled, topic
from .account import check_user
from .agent_limits import SUBSCRIPTIONS

if TYPE_CHECKING:
    from ..wire.listener import Caller, Listener
    from .account import Account
    from .client import Client

_MAX_TOPIC = 16  # bytes; a monitor's topic has at most 10
_MAX_SAMPLES = 4096  # most samples of one block
_INTERVAL_NS = 50_000_000  # 20 blocks per second, the most that a plot can draw
_SWEEP_NS = 1_000_000_000  # between two looks for descriptors that closed unseen
_SUBSCRIBER_FDS = 1
_MAX_APPROVED = 64  # most messages read at once


@dataclass(slots=True)
class _Subscriber:
    """A connection: its inode, since fd numbers are reused, and the resources it holds."""

    inode: int
    account: Account
    subscriptions: int = 0


class Telemetry:
    """Collects the samples of moves and publishes them in blocks. Not thread-safe.

    A client's samples are published under a number that only this client knows, and a subscription
    must name one number in full, so a client sees only its own samples. libzmq stores each
    subscription byte by byte; a connection is closed if it has more than SUBSCRIPTIONS, if its key
    or user is at its limit, or if it belongs to another user. Subscriptions that no dgkit client
    sends (too many, or too long) also block the key for a while, since handling them takes
    milliseconds.

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
        self._subscribers: dict[int, _Subscriber] = {}  # by descriptor
        self._sent_ns = time.monotonic_ns()
        self._swept_ns = 0

    def number(self, client: Client) -> int:
        """Return the number under which the samples of a client are published."""
        return 0 if self._shared else client.secret

    def add(self, client: Client, latency_ns: int) -> None:
        """Record the latency of one transfer of a client."""
        samples = self._samples.setdefault(self.number(client), array("Q"))
        samples.append(latency_ns)
        if len(samples) >= _MAX_SAMPLES:
            self.flush()

    def forget(self, client: Client) -> None:
        """Drop the samples of a client that disconnects."""
        if not self._shared:
            self._samples.pop(client.secret, None)
            self._numbers.pop(client.secret, None)

    def flush(self) -> None:
        """Approve subscriptions; publish samples that fill a block or have waited long enough."""
        if time.monotonic_ns() - self._swept_ns > _SWEEP_NS:
            self._refund_ended()
        self.approve()
        if not self._samples:
            return
        late = time.monotonic_ns() - self._sent_ns > _INTERVAL_NS
        for number, samples in list(self._samples.items()):
            if late or len(samples) >= _MAX_SAMPLES:
                del self._samples[number]
                self._publish(number, "move", samples.tobytes())

    def publish(self, client: Client, source: str, samples: bytes) -> None:
        """Publish one block; the socket drops it for subscribers that cannot keep up."""
        self._publish(self.number(client), source, samples)

    def _publish(self, monitor: int, source: str, samples: bytes) -> None:
        self._sent_ns = time.monotonic_ns()
        number = self._numbers[monitor]
        self._numbers[monitor] += 1
        self.send(Sampled(monitor, number, self._sent_ns, self._provider, source, samples))

    def send(self, block: Sampled) -> None:
        """Publish a block that a monitor has numbered."""
        self.approve()
        self._socket.send(encode_sampled(block))

    def approve(self) -> None:
        """Approve or ignore a bounded number of the subscriptions that have arrived."""
        for _ in range(_MAX_APPROVED):
            try:
                frame = self._socket.recv(zmq.NOBLOCK, copy=False)
            except zmq.Again:
                return
            wanted, name = frame.bytes[:1] == b"\1", frame.bytes[1:]
            if not wanted:
                self._socket.setsockopt(zmq.UNSUBSCRIBE, name)
                continue
            sender = self._listener.sender(frame)
            try:
                self._check_topic(sender, name)
                self._charge(sender)
            except (LimitReached, PeerRefused):
                self._listener.disconnect_subscriber(sender.fd)
                continue
            self._listener.admit_subscriber(sender.fd)
            if self._allows(name):
                self._socket.setsockopt(zmq.SUBSCRIBE, name)

    def _check_topic(self, sender: Caller, name: bytes) -> None:
        if len(name) > _MAX_TOPIC:
            self._penalize(self._account_of(sender), sender)
            raise LimitReached(errno.EDQUOT, f"a topic has {_MAX_TOPIC} bytes or fewer")

    def _penalize(self, account: Account, sender: Caller) -> None:
        if sender.key and not account.penalized:
            account.penalize()

    def _charge(self, sender: Caller) -> None:
        """Charge one subscription; a connection's subscriptions are refunded when it ends.

        Raises:
            PeerRefused: The sender is another user.
            LimitReached: The connection, or its key or user, has reached its limit.
        """
        check_user(sender.uid)
        inode = _inode(sender.fd)
        if not inode:  # the connection has ended, and no event would refund it
            return
        found = self._subscribers.get(sender.fd)
        if found is None or found.inode != inode:
            self._refund_ended()
            account = self._account_of(sender)
            account.take(subscriptions=1, descriptors=_SUBSCRIBER_FDS)
            self._subscribers[sender.fd] = _Subscriber(inode, account, 1)
        elif found.subscriptions >= SUBSCRIPTIONS:
            self._penalize(found.account, sender)
            raise LimitReached(errno.EDQUOT, f"a connection has {SUBSCRIPTIONS} subscriptions")
        else:
            found.account.take(subscriptions=1)
            found.subscriptions += 1

    def ended(self, fd: int) -> None:
        """Refund the charges of an ended connection, if its descriptor is closed by now."""
        subscriber = self._subscribers.get(fd)
        if subscriber is not None and subscriber.inode != _inode(fd):
            del self._subscribers[fd]
            subscriber.account.give(
                subscriptions=subscriber.subscriptions, descriptors=_SUBSCRIBER_FDS
            )

    def _refund_ended(self) -> None:
        """Refund what closed unseen: libzmq may report an end before it closes the descriptor."""
        self._swept_ns = time.monotonic_ns()
        for fd in list(self._subscribers):
            self.ended(fd)

    def _allows(self, name: bytes) -> bool:
        """Return whether `name` is a complete topic; a prefix could match other clients."""
        if self._shared:
            return True
        try:
            number = msgspec.msgpack.decode(name[1:], type=int)
            return number > 0 and topic(number) == name
        except (msgspec.DecodeError, ValueError, OverflowError):
            return False


def _inode(fd: int) -> int:
    """Return the inode of a descriptor; 0 if it is closed."""
    with contextlib.suppress(OSError):
        return os.fstat(fd).st_ino
    return 0
