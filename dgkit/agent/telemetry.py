"""Publisher of latency samples: numbered blocks on an XPUB socket, so that a gap is detected."""

from __future__ import annotations

import contextlib
import os
import socket as sockets
import time
from array import array
from collections import Counter
from typing import TYPE_CHECKING

import msgspec
import zmq

from ..wire.sockets import readable
from ..wire.telemetry import Sampled, encode_sampled, topic

if TYPE_CHECKING:
    from .client import Client

__all__ = ["SUBSCRIPTIONS", "Telemetry"]

SUBSCRIPTIONS = 64  # of one connection to the telemetry socket
_MAX_TOPIC = 16  # bytes; that of a monitor has at most 10
_MAX_SAMPLES = 4096  # of one block
_INTERVAL_NS = 50_000_000  # 20 blocks a second: as many as a plot can draw


class Telemetry:
    """Collects the samples of moves and publishes them in blocks. Not thread-safe.

    A client's samples have a number that only this client knows, and a subscription must name one
    number in full, so a client sees its own samples only. libzmq stores each subscription: a
    connection with more than SUBSCRIPTIONS is closed.

    Args:
        socket: XPUB socket whose subscriptions wait for approval (ZMQ_XPUB_MANUAL).
        endpoint: Its address.
        provider: Provider that moves the bytes.
        shared: Publish the samples of all clients, under the number 0, to every client.
    """

    def __init__(
        self, socket: zmq.Socket[bytes], endpoint: str, provider: str, *, shared: bool
    ) -> None:
        self.endpoint = endpoint
        self._socket = socket
        self._provider = provider
        self._shared = shared
        self._samples: dict[int, array[int]] = {}  # by the number that they are published with
        self._numbers: Counter[int] = Counter()
        self._subscriptions: Counter[int] = Counter()  # by descriptor
        self._sent_ns = time.monotonic_ns()

    def number(self, client: Client) -> int:
        """Return the number that the samples of a client are published with."""
        return 0 if self._shared else client.secret

    def add(self, client: Client, latency_ns: int) -> None:
        """Record the latency of one transfer of a client."""
        self._samples.setdefault(self.number(client), array("Q")).append(latency_ns)
        self.flush()

    def forget(self, client: Client) -> None:
        """Drop what is kept for a client that disconnects."""
        if not self._shared:
            self._samples.pop(client.secret, None)
            self._numbers.pop(client.secret, None)

    def flush(self) -> None:
        """Approve subscriptions; publish samples that fill a block or have waited long enough."""
        self.approve()
        if not self._samples:
            return
        late = time.monotonic_ns() - self._sent_ns > _INTERVAL_NS
        for number, samples in list(self._samples.items()):
            if late or len(samples) >= _MAX_SAMPLES:
                del self._samples[number]
                self._publish(number, "move", samples.tobytes())

    def publish(self, client: Client, source: str, samples: bytes) -> None:
        """Publish one block; the socket drops it for a subscriber that cannot keep up."""
        self._publish(self.number(client), source, samples)

    def _publish(self, monitor: int, source: str, samples: bytes) -> None:
        self._sent_ns = time.monotonic_ns()
        number = self._numbers[monitor]
        self._numbers[monitor] += 1
        self.send(Sampled(monitor, number, self._sent_ns, self._provider, source, samples))

    def send(self, block: Sampled) -> None:
        """Publish a monitor's block, which the monitor has numbered."""
        self.approve()
        self._socket.send(encode_sampled(block))

    def approve(self) -> None:
        """Approve or ignore the subscriptions that have arrived; a bounded number of them."""
        for _ in range(1000):
            if not readable(self._socket):
                return
            frame = self._socket.recv(copy=False)
            wanted, name = frame.bytes[:1] == b"\1", frame.bytes[1:]
            fd = int(frame.get(zmq.SRCFD)) if wanted else -1
            if not wanted:
                self._socket.setsockopt(zmq.UNSUBSCRIBE, name)
            elif self._subscriptions[fd] >= SUBSCRIPTIONS:
                _disconnect(fd, self._socket.getsockopt_string(zmq.LAST_ENDPOINT))
                del self._subscriptions[fd]
            else:
                self._subscriptions[fd] += 1
                if self._allows(name):
                    self._socket.setsockopt(zmq.SUBSCRIBE, name)

    def _allows(self, name: bytes) -> bool:
        """Return whether `name` is a topic in full: a prefix would match other clients' numbers."""
        if self._shared:
            return len(name) <= _MAX_TOPIC
        try:
            number = msgspec.msgpack.decode(name[1:], type=int)
            return number > 0 and topic(number) == name
        except (msgspec.DecodeError, ValueError, OverflowError):
            return False


def _disconnect(fd: int, endpoint: str) -> None:
    """Shut down a connection of the socket at `endpoint`; libzmq then closes it."""
    with contextlib.suppress(OSError):  # gone meanwhile
        copy = os.dup(fd)
        with sockets.socket(fileno=copy) as connection:
            name = connection.getsockname()
            local = f"ipc://{name}" if isinstance(name, str) else f":{name[1]}"
            if endpoint.endswith(local):  # the number may be another connection's by now
                connection.shutdown(sockets.SHUT_RDWR)
