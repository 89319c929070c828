"""ZeroMQ sockets of a client: a DEALER socket and the monitor of its connection."""

from __future__ import annotations

import contextlib
import itertools
import os
import select

import zmq

from ..files import Fd
from .address import Address
from .messages import MAX_REPLY
from .sockets import fd_of, set_client_curve, set_heartbeat
from .subscriptions import Subscriptions

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
        with contextlib.ExitStack() as steps:  # in reverse order; all of them, even after Ctrl-C
            steps.callback(_open.discard, self)
            steps.callback(self._wake.close)
            steps.callback(self.epoll.close)
            steps.callback(self.context.destroy, linger=0)
            steps.callback(self._close_sockets)  # again: Ctrl-C may come in the middle of one
            self._close_sockets()

    def _close_sockets(self) -> None:
        self.subscriptions.close()
        self.monitor.close(linger=0)
        self.socket.close(linger=0)
