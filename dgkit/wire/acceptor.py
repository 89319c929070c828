"""Bounded acceptance of connections: how many, and for how long one may stay without a Hello.

libzmq accepts on its own thread and without a limit, and libzmq 4.3 aborts if it runs out of
descriptors while it accepts on a Unix socket. zmq_unbind(3) would end the connections that exist,
too. So beyond the limit, this side shuts down the oldest connection without a Hello: that of an
honest client has sent it within milliseconds, and so is not kept out by any number of silent ones.
"""

from __future__ import annotations

import contextlib
import os
import socket
import struct
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import zmq

from .inflow import Inflow
from .sockets import drain

__all__ = ["Acceptor"]

_EVENTS = zmq.EVENT_ACCEPTED | zmq.EVENT_DISCONNECTED
_HELLO_S = 5.0


@dataclass(slots=True)
class _Connection:
    inode: int  # of the socket; a descriptor's number may be another's by the time it is used
    accepted: float = field(default_factory=time.monotonic)
    inflow: Inflow = field(default_factory=Inflow)
    ended: bool = False  # shut down; its event follows


class Acceptor:
    """Connections of one bound socket. Not thread-safe.

    Args:
        sock: The socket, before it is bound.
        name: Address of its monitor, inproc://.
        limit: Connections at a time. Each must become known within 5 s.
    """

    def __init__(self, sock: zmq.Socket[bytes], name: str, limit: int) -> None:
        self.limit = limit
        self._connections: dict[int, _Connection] = {}
        self._silent: dict[int, _Connection] = {}  # those without a Hello, the oldest first
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

    def know(self, fd: int) -> None:
        """Exempt a connection from the deadline for a Hello."""
        self._silent.pop(fd, None)

    def service(self) -> list[int]:
        """Enforce limit and deadlines; return the descriptors of the connections that ended."""
        ended = list(self._events())
        oldest = time.monotonic() - _HELLO_S
        for fd, connection in self._silent.items():
            if connection.accepted > oldest:
                break
            if not connection.ended:
                _shutdown(fd, connection)
        return ended

    def disconnect(self, fd: int) -> None:
        """Shut a connection down, at which libzmq closes it."""
        if fd in self._connections:
            _shutdown(fd, self._connections[fd])

    def end_endless(self, progress: Callable[[int], int]) -> None:
        """Shut down the connections that send without end, and no whole message.

        Args:
            progress: Number of a connection that each whole message changes, from its descriptor.
        """
        for fd, connection in self._connections.items():
            if not connection.ended and connection.inflow.is_endless(fd, progress(fd)):
                _shutdown(fd, connection)

    def _enforce_limit(self) -> None:
        silent = [fd for fd, one in self._silent.items() if not one.ended]
        live = len(self._connections) - len(self._silent) + len(silent)
        for fd in silent[: max(0, live - self.limit)]:
            _shutdown(fd, self._silent[fd])

    def _events(self) -> Iterator[int]:
        for frames in drain(self.monitor):
            event, fd = struct.unpack("=Hi", frames[0])  # the manual
            if event == zmq.EVENT_ACCEPTED:
                with contextlib.suppress(OSError):  # ended already; its event follows
                    self._forget(fd)  # the newest comes last
                    connection = _Connection(os.fstat(fd).st_ino)
                    self._connections[fd] = self._silent[fd] = connection
                    if len(self._connections) > self.limit:
                        self._enforce_limit()
            else:
                self._forget(fd)
                yield fd

    def _forget(self, fd: int) -> None:
        self._connections.pop(fd, None)
        self._silent.pop(fd, None)


def _shutdown(fd: int, connection: _Connection) -> None:
    connection.ended = True
    with contextlib.suppress(OSError):  # it has ended
        copy = os.dup(fd)
        if os.fstat(copy).st_ino != connection.inode:
            os.close(copy)
            return
        with socket.socket(fileno=copy) as duplicate:
            duplicate.shutdown(socket.SHUT_RDWR)
