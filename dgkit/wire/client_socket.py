"""The client's sockets: the DEALER, the monitor that tells what became of its connection."""

from __future__ import annotations

import itertools
import os
import select

import zmq

from .address import Address
from .listener import HEARTBEAT_MS, HEARTBEAT_TIMEOUT_MS, fd_of, z85_of
from .messages import MAX_REPLY
from .subscriptions import Standing

__all__ = ["Dealer"]

_EVENTS = (
    zmq.EVENT_CONNECTED
    | zmq.EVENT_CLOSED
    | zmq.EVENT_DISCONNECTED
    | zmq.EVENT_HANDSHAKE_SUCCEEDED
    | zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL
    | zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL
    | zmq.EVENT_HANDSHAKE_FAILED_AUTH
)
_AT_ONCE_MS = 10  # how long a receive waits inside libzmq, where nobody else can send meanwhile
_serial = itertools.count()
# From the collector: of what nobody closed it would end the context before the sockets, for which
# that waits for ever.
_open: set[Dealer] = set()


class Dealer:
    """Connects at once. `epoll` is readable when socket, monitor or `wake` may have news."""

    def __init__(self, address: Address, identity: tuple[str, str] | None) -> None:
        self.context = zmq.Context()
        self.socket = self.context.socket(zmq.DEALER)
        self.monitor = self.context.socket(zmq.PAIR)
        self.standing = Standing(self.context, address, identity)
        self.epoll = select.epoll()
        self.wake = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self._set_up(address, identity)
        self.monitor_fd = fd_of(self.monitor)
        for fd in (fd_of(self.socket), self.monitor_fd, self.wake):
            self.epoll.register(fd, select.EPOLLIN)
        self.socket.connect(address.endpoint)
        _open.add(self)

    def _set_up(self, address: Address, identity: tuple[str, str] | None) -> None:
        sock = self.socket
        sock.linger = 0
        sock.maxmsgsize = MAX_REPLY
        sock.rcvtimeo = _AT_ONCE_MS
        sock.reconnect_ivl = -1  # a new connection would be a new client: nothing of the old is its
        if identity is not None:
            sock.heartbeat_ivl = HEARTBEAT_MS
            sock.heartbeat_timeout = HEARTBEAT_TIMEOUT_MS
            sock.curve_publickey, sock.curve_secretkey = map(z85_of, identity)
            sock.curve_serverkey = z85_of(address.key)
        name = f"inproc://dgkit-link-{next(_serial)}"
        sock.monitor(name, _EVENTS)
        self.monitor.linger = 0
        self.monitor.connect(name)

    def close(self) -> None:
        """Ends the connections and libzmq's threads."""
        self.standing.close()
        self.socket.monitor(None, 0)
        self.monitor.close(linger=0)
        self.socket.close(linger=0)
        self.context.term()
        self.epoll.close()
        os.close(self.wake)
        _open.discard(self)
