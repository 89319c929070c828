# SPDX-License-Identifier: Apache-2.0
"""Limits of accepted connections: their number, and the time in which each must send a Hello.

libzmq accepts on its own thread and without a limit, and libzmq 4.3 aborts if it runs out of
descriptors while it accepts on a Unix socket. zmq_unbind(3) would also end the existing
connections. So beyond the limit, this side shuts down the oldest connection that has sent no Hello.
Which client may connect is decided in listener.py.
An honest client sends its Hello within milliseconds, so silent connections cannot keep it out.

A connection also ends when the process that opened it ends: otherwise a child forked without
Python's functions would keep the socket open.
"""

from __future__ import annotations

import contextlib
import os
import select
import struct
import sys
import time
from collections.abc import Callable

import zmq

from .inflow import MOST, Duplicate, Spare, Stream
from .sockets import refuse_descriptors

# Deadline of a handshake, and of the Hello after it; at least as long as a heartbeat. libzmq's
# default lets an unfinished handshake occupy a connection for 30 s.
HELLO_S = 5.0
_ONCE = select.EPOLLIN | select.EPOLLONESHOT
MOST_OF_ALL = 64 << 20  # most bytes of all connections' messages that are not taken yet
_LISTENING, _ACCEPTED = int(zmq.EVENT_LISTENING), int(zmq.EVENT_ACCEPTED)
_EVENTS = _LISTENING | _ACCEPTED | int(zmq.EVENT_DISCONNECTED)
_NOBLOCK = int(zmq.NOBLOCK)
_MAX_EVENTS = 32  # handled at once, about 0.5 ms, while requests wait


def excess_connections(ahead: dict[int, int]) -> list[int]:
    """Return the connections to end so that the rest stay within the limits, the largest first.

    Args:
        ahead: Bytes of messages that are not taken yet, by connection.
    """
    total, ends = sum(ahead.values()), []
    for fd in sorted(ahead, key=ahead.__getitem__, reverse=True):
        if ahead[fd] <= MOST and total <= MOST_OF_ALL:
            break
        total -= ahead[fd]
        ends.append(fd)
    return ends


class _Connection(Stream):
    def __init__(self, fd: int, duplicate: Duplicate) -> None:
        super().__init__(fd, duplicate)
        self.accepted = time.monotonic()
        self.process = -1  # pidfd of the process that opened it


class Arrivals:
    """One-shot notification that bytes arrived at a connection; rearm() renews it. Thread-safe.

    libzmq's threads read the bytes; this only wakes a thread that sleeps while all connections are
    quiet. It may miss bytes that libzmq reads at once (epoll(7) reports what is present when
    queried), but not bytes that arrive faster than they are read. The kernel removes a connection
    that is closed.
    """

    def __init__(self) -> None:
        self._epoll = select.epoll()
        self._seen: set[int] = set()

    def fileno(self) -> int:
        """Return a descriptor that is readable until take() when bytes have arrived."""
        return self._epoll.fileno()

    def add(self, fd: int) -> None:
        """Add a connection."""
        with contextlib.suppress(OSError):  # it has ended, or its fd is already added
            self._epoll.register(fd, _ONCE)

    def take(self) -> None:
        """Collect the connections at which bytes arrived; each reports no more until rearm()."""
        self._seen.update(fd for fd, _ in self._epoll.poll(0))

    def rearm(self) -> None:
        """Re-arm notification for the connections collected by take()."""
        while self._seen:
            with contextlib.suppress(OSError):  # it has already ended
                self._epoll.modify(self._seen.pop(), _ONCE)

    def close(self) -> None:
        """Close the descriptor."""
        self._epoll.close()


class Acceptor:
    """Connections of one bound socket. Not thread-safe.

    Args:
        sock: The socket, before it is bound.
        name: Address of its monitor, inproc://.
        limit: Maximum number of connections at a time.
        hello_s: Seconds within which each connection must be admitted.
        arrivals: Gets every connection added.

    Attributes:
        behind: Whether service() left events, and is to be called again.
    """

    def __init__(
        self, sock: zmq.Socket[bytes], name: str, limit: int, hello_s: float, arrivals: Arrivals
    ) -> None:
        self.limit = limit
        self.behind = False
        self._arrivals = arrivals
        self._hello_s = hello_s
        self._spare = Spare()  # connections can end when they have taken all descriptors
        self.ends = select.epoll()  # readable when the process of a connection has ended
        self._connections: dict[int, _Connection] = {}
        self._silent: dict[int, _Connection] = {}  # live ones without a Hello, oldest first
        self._ending: set[int] = set()  # those that were shut down and that libzmq still has
        self._left: set[int] = set()  # descriptors of ended connections with unread messages
        self._doubtful: set[int] = set()  # those of them that another connection has now
        self._ended: list[int] = []  # descriptors of connections that ended since service()
        self._by_process: dict[int, int] = {}  # connections, by pidfd
        sock.monitor(name, _EVENTS)
        self.monitor = sock.context.socket(zmq.PAIR)
        self.monitor.linger = 0
        self.monitor.connect(name)

    @property
    def waiting(self) -> bool:
        """Return whether service() has deadlines to watch. Safe in any thread."""
        return bool(self._silent)

    def __len__(self) -> int:
        return len(self._connections)

    def __contains__(self, fd: int) -> bool:
        return fd in self._connections

    def admit(self, fd: int, pid: int = 0) -> None:
        """Exempt a connection from the deadline for a Hello; end it when process `pid` ends.

        On kernels without pidfds (before 5.3), only the end of the socket ends it.
        """
        self._read_events()  # its start may be among them
        self._silent.pop(fd, None)
        connection = self._connections.get(fd)
        if connection is not None and pid and connection.process < 0:
            try:
                connection.process = os.pidfd_open(pid)
                self._by_process[connection.process] = fd
                self.ends.register(connection.process, select.EPOLLIN)
            except ProcessLookupError:
                self._end(connection)
            except OSError:
                self._forget_process(connection)

    def service(self, *, every: bool = False) -> list[int]:
        """Enforce limit and deadlines; return the descriptors of the connections that ended.

        Args:
            every: Handle all events. Otherwise a burst of connections is handled in parts, so that
                it does not delay the requests of others; see `behind`.
        """
        self._read_events(sys.maxsize if every else _MAX_EVENTS)
        ended, self._ended = self._ended, []
        for process, _ in self.ends.poll(0):
            connection = self._connections[self._by_process[process]]
            self._end(connection)
            self._forget_process(connection)
        oldest = time.monotonic() - self._hello_s
        while self._silent:
            connection = next(iter(self._silent.values()))
            if connection.accepted > oldest:
                break
            self._end(connection)
        return ended

    def _end(self, connection: _Connection) -> None:
        self._silent.pop(connection.fd, None)
        self._ending.add(connection.fd)
        connection.end()

    def disconnect(self, fd: int) -> None:
        """Shut a connection down; libzmq then closes it."""
        # If service() has not reported the end of an earlier connection with this fd, the caller
        # means that one.
        if fd in self._connections and fd not in self._ended:
            self._end(self._connections[fd])

    def messages_read(self) -> None:
        """Record that no message is left: the fds of later messages are current."""
        self._left.clear()
        self._doubtful.clear()

    def refuse(self, fd: int, pid: int) -> None:
        """End the connection that a message came from.

        If the descriptor may have been reused by another connection, that connection gets a new
        deadline for a Hello instead.

        Args:
            fd: The descriptor that the message names.
            pid: The sender's process, on a Unix socket; otherwise 0.
        """
        self._read_events()
        connection = self._connections.get(fd)
        if connection is None:
            return
        if fd not in self._doubtful or (pid and connection.peer_pid() == pid):
            self._end(connection)
            return
        self._silent.pop(fd, None)
        connection.accepted = time.monotonic()
        self._silent[fd] = connection

    def end_floods(self, taken: Callable[[int], int]) -> list[int]:
        """Shut down the connections with too many bytes that were not received; return them.

        Args:
            taken: Maps the descriptor of a connection to the bytes of its messages that were
                taken, as wire_bytes() counts them.
        """
        ahead = {fd: each.ahead(taken(fd)) for fd, each in self._connections.items()}
        ends = excess_connections(ahead)
        for fd in ends:
            self._end(self._connections[fd])
        endless = [fd for fd, each in self._connections.items() if each.is_endless(taken(fd))]
        for fd in endless:
            self._end(self._connections[fd])
        return ends + endless

    def _remove(self, fd: int) -> None:
        self._silent.pop(fd, None)
        self._ending.discard(fd)
        self._doubtful.discard(fd)
        connection = self._connections.pop(fd, None)
        if connection is not None:
            self._left.add(fd)
            self._forget_process(connection)

    def _forget_process(self, connection: _Connection) -> None:
        process, connection.process = connection.process, -1
        if self._by_process.pop(process, None) is not None:
            os.close(process)  # this also removes it from `ends`

    def close(self) -> None:
        """Close the descriptors, after the socket was closed."""
        for fd in list(self._connections):
            self._remove(fd)
        self.ends.close()
        self._spare.close()

    def _read_events(self, most: int = sys.maxsize) -> None:
        receive = self.monitor.recv
        self.behind = False
        with contextlib.suppress(zmq.Again):
            for _ in range(most):
                event, fd = struct.unpack("=Hi", receive(_NOBLOCK))  # zmq_socket_monitor(3)
                receive(_NOBLOCK)  # the address
                self._handle(event, fd)
            self.behind = True

    def _handle(self, event: int, fd: int) -> None:
        if event == _LISTENING:
            refuse_descriptors(fd)
        elif event == _ACCEPTED:
            with contextlib.suppress(OSError):  # already ended; its event follows
                self._accept(fd)
        else:
            self._remove(fd)
            self._ended.append(fd)

    def _accept(self, fd: int) -> None:
        self._remove(fd)  # reinserted below, since the newest comes last
        connection = _Connection(fd, self._spare.duplicate)
        self._connections[fd] = self._silent[fd] = connection
        if fd in self._left:
            self._doubtful.add(fd)
        self._arrivals.add(fd)
        if len(self._connections) - len(self._ending) > self.limit:
            self._end(next(iter(self._silent.values())))
