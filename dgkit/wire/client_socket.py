# SPDX-License-Identifier: Apache-2.0
"""ZeroMQ sockets of a client: a DEALER socket, the monitor of its connection, subscriptions."""

from __future__ import annotations

import contextlib
import itertools
import os
import select
import threading
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

import zmq

from ..errors import ClosedError
from ..files import Fd, check_descriptors
from ..live_set import LiveSet
from ..threads import check_threads
from .address import Address, parse
from .error_codec import to_exception
from .messages import MAX_REPLY
from .sockets import fd_of, set_client_curve, set_heartbeat
from .subscriber import Subscriber

if TYPE_CHECKING:
    import zmq

    from .messages import Ended


_DESCRIPTORS, _MONITOR_DESCRIPTORS = 24, 8  # more than one takes
_THREADS = 2  # of libzmq


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
        self._subscribers: LiveSet[Subscriber] = LiveSet()
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
        check_descriptors("a monitor", _MONITOR_DESCRIPTORS)
        address = self._resolve(parse(endpoint))
        with self._lock:
            if self._closed:
                raise ClosedError("the session is closed")
            subscriber = Subscriber(self._context, address, self._identity, monitor)
            self._subscribers.add(subscriber)
        return subscriber

    def _resolve(self, published: Address) -> Address:
        """Return the address with this connection's host: an agent may listen at 0.0.0.0."""
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


_EVENTS = (
    zmq.EVENT_CONNECTED
    | zmq.EVENT_CLOSED
    | zmq.EVENT_DISCONNECTED
    | zmq.EVENT_HANDSHAKE_SUCCEEDED
    | zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL
    | zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL
    | zmq.EVENT_HANDSHAKE_FAILED_AUTH
)
_RECEIVE_MS = 10  # limit of a receive inside libzmq, during which no other thread can send
_serial = itertools.count()
# Keeps unclosed sockets from the garbage collector, which would terminate the context before its
# sockets are closed: zmq_ctx_term(3) then blocks for ever.
_open: set[ClientSocket] = set()


class ClientSocket:
    """DEALER socket of a connection.

    `epoll` is readable when `socket` or `monitor` may have a message or `wake_fd` was written.
    """

    def __init__(self, address: Address, identity: tuple[str, str] | None) -> None:
        check_descriptors("a connection", _DESCRIPTORS)
        check_threads("a connection", _THREADS)
        self.context = zmq.Context()
        self.socket = self.context.socket(zmq.DEALER)
        self.monitor = self.context.socket(zmq.PAIR)
        self.subscriptions = Subscriptions(self.context, address, identity)
        self.epoll = select.epoll()
        self._wake = Fd(os.eventfd, 0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self.wake_fd = self._wake.number
        self._configure(address, identity)
        self.monitor_fd = fd_of(self.monitor)
        for fd in (fd_of(self.socket), self.monitor_fd, self.wake_fd):
            self.epoll.register(fd, select.EPOLLIN)
        self._endpoint = address.endpoint

    def connect(self) -> None:
        """Start to connect; the caller closes this object from now on."""
        _open.add(self)
        self.socket.connect(self._endpoint)

    def _configure(self, address: Address, identity: tuple[str, str] | None) -> None:
        sock = self.socket
        sock.linger = 0
        sock.maxmsgsize = MAX_REPLY
        sock.rcvhwm = 0  # libzmq may abort behind a full queue: see listener.py, _REQUESTS_HWM
        sock.rcvtimeo = _RECEIVE_MS
        sock.reconnect_ivl = -1  # never: to the agent it would be a new client, without regions
        if identity is not None:
            set_heartbeat(sock, address.heartbeat)
            set_client_curve(sock, identity, address.key)
        name = f"inproc://dgkit-client-{next(_serial)}"
        sock.monitor(name, _EVENTS)
        self.monitor.linger = 0
        self.monitor.connect(name)

    def disconnect(self) -> None:
        """End the connection, and discard what it has received. Idempotent."""
        with contextlib.suppress(zmq.ZMQError):  # it has already ended
            self.socket.disconnect(self._endpoint)

    def close(self) -> None:
        """Close the connections and end libzmq's threads."""
        with contextlib.ExitStack() as steps:  # in reverse order
            steps.callback(_open.discard, self)
            steps.callback(self._wake.close)
            steps.callback(self.epoll.close)
            steps.callback(self.context.destroy, linger=0)
            steps.callback(self._close_sockets)  # again: it may be interrupted
            self._close_sockets()

    def _close_sockets(self) -> None:
        self.subscriptions.close()
        self.monitor.close(linger=0)
        self.socket.close(linger=0)
