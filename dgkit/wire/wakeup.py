# SPDX-License-Identifier: Apache-2.0
"""Messages that wake the agent's loop, which blocks only in its ROUTER socket.

Blocking there gives the lowest latency: polling several sockets costs 15 us more per request. So
worker threads send a message over inproc when they have queued a reply. For everything else (socket
monitor, handshakes, the end of the parent process), a thread watches the descriptors,
edge-triggered, and sends the message. All threads share one socket, under a lock.
"""

from __future__ import annotations

import math
import os
import select
import threading
import time
from collections.abc import Sequence
from typing import ClassVar

import zmq

from .essential import essential_thread
from .inflow import Growth, heap_trimmer
from .listener import Listener
from .sockets import fd_of

_TICK_S = 1.0  # interval of wake-ups while there is a connection
_GROWTH_S = 0.05  # interval of checks of the process's memory while bytes arrive
_QUIET_S = (
    1.0  # without any event, after which the thread sleeps for a second, or until bytes arrive
)
_INTERVAL_S = 0.003  # least between two EVENTs, so that a burst of connections is handled together


class Wakeup:
    """Context manager around the wake-up thread of an agent's loop.

    The loop receives one of these messages from `route`: REPLIES after wake() or an event of
    `wake_fds`, EVENT after an event of the connections, GROWTH when the process's memory has
    grown, PARENT_EXIT once `parent_fd` is readable. `route` is 16 random bytes, since a client
    that could guess them could send these messages, or connect under that name first and so
    keep them from the loop.

    Args:
        listener: The agent's sockets.
        wake_fds: Descriptors whose events wake the loop; negative ones are ignored.
        parent_fd: Readable when the process that started this one has ended; -1 for none.
    """

    EVENT: ClassVar[bytes] = b"e"
    REPLIES: ClassVar[bytes] = b"r"
    GROWTH: ClassVar[bytes] = b"g"
    PARENT_EXIT: ClassVar[bytes] = b"p"

    def __init__(self, listener: Listener, wake_fds: Sequence[int], parent_fd: int) -> None:
        self.route = b"dgkit-" + os.urandom(16)
        self._parent_fd = parent_fd
        self._wake_fds = frozenset(wake_fds)
        self._listener = listener
        self._end = os.eventfd(0, os.EFD_CLOEXEC)
        self._epoll = select.epoll()
        edges = [fd_of(sock) for sock in listener.sockets() if sock is not listener.router]
        edges.append(listener.client_exit_fd)
        for fd in (*edges, *wake_fds, parent_fd, self._end):
            if fd >= 0:
                self._epoll.register(fd, select.EPOLLIN | select.EPOLLET)
        self._watched: set[int] = set()
        self._arrivals = listener.arrivals
        self._epoll.register(self._arrivals.fileno(), select.EPOLLIN)
        self._grown, self._looked, self._trim_at = Growth(), 0.0, math.inf
        self._trim_heap = heap_trimmer()
        self._lock = threading.Lock()
        self._socket = listener.context.socket(zmq.DEALER)  # used only under the lock
        self._socket.linger = 0
        self._socket.routing_id = self.route
        self._socket.connect(listener.inside)
        self._socket.send(self.EVENT)  # for events that precede the edge-triggered registration
        self._thread = essential_thread("dgkit-wakeup", self._run)

    def __enter__(self) -> Wakeup:
        self._thread.start()
        return self

    def __exit__(self, *exc: object) -> None:
        os.eventfd_write(self._end, 1)
        self._thread.join()
        with self._lock:
            self._socket.close()
        self._epoll.close()
        self._grown.close()
        os.close(self._end)

    def wake(self) -> None:
        """Send REPLIES, or nothing if the context has ended. Not for signal handlers."""
        with self._lock:
            if not self._socket.closed:
                self._socket.send(self.REPLIES)

    def watch(self, fd: int) -> None:
        """Send EVENT also at each edge of `fd`, which outlives this object. Thread-safe."""
        self._watched.add(fd)
        self._epoll.register(fd, select.EPOLLIN | select.EPOLLET)

    def _send(self, event: bytes) -> None:
        with self._lock:
            self._socket.send(event)

    def _run(self) -> None:
        tick = 0.0  # when the deadlines were last checked
        heard = time.monotonic()  # the latest event; the first may precede the registration
        due, held = 0.0, False  # when the next EVENT may be sent, and whether one is pending
        while True:
            now = time.monotonic()
            quiet = now - heard >= _QUIET_S and self._trim_at == math.inf
            if quiet:
                self._arrivals.rearm()
                self._check_memory(now, force=True)  # for bytes that came since the last check
            ready = self._wait(max(0.0, due - now) if held else self._pause(quiet))
            if self._end in ready:
                return
            now = time.monotonic()
            heard = now if ready - self._watched else heard
            if self._arrivals.fileno() in ready:
                self._arrivals.take()
                ready.discard(self._arrivals.fileno())
            self._check_memory(now)
            if self._parent_fd in ready:
                self._send(self.PARENT_EXIT)
            if ready & self._wake_fds:
                self._send(self.REPLIES)
            is_tick = now - tick >= _TICK_S and self._listener.waiting
            held = held or is_tick or not ready <= self._wake_fds
            if held and now >= due:
                due, held, tick = now + _INTERVAL_S, False, now
                self._send(self.EVENT)

    def _pause(self, quiet: bool) -> float | None:
        """Return how long to wait for an event."""
        if not quiet:
            return _GROWTH_S
        # the loop learns from EVENT, within a second, whether there is a connection to watch
        return _TICK_S if self._listener.connected else None

    def _wait(self, seconds: float | None) -> set[int]:
        return {fd for fd, _ in self._epoll.poll(seconds)}

    def _check_memory(self, now: float, *, force: bool = False) -> None:
        if now - self._looked < _GROWTH_S and not force:
            return
        self._looked = now
        if self._grown():
            self._trim_at = now + _TICK_S  # by then, a connection that is ended now is gone
            self._send(self.GROWTH)
        elif now > self._trim_at:
            self._trim_at = math.inf
            self._trim_heap()
