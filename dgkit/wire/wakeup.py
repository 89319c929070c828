"""Wakes the agent's loop, which sleeps in its ROUTER socket and nowhere else.

That is the shortest way from a request to its reply: a poll over several sockets costs 15 us more.
So this thread sleeps on everything else (the monitor, handshakes, replies from lanes, the end of
the process that started this one) and passes the news on as a message over inproc. It touches no
socket but its own: of the others it sees the descriptors, edge by edge.
"""

from __future__ import annotations

import os
import select
import threading
from collections.abc import Sequence
from typing import ClassVar

import zmq

from .listener import Listener, fd_of

__all__ = ["Watcher"]


class Watcher:
    """For the length of a `with`; `wakes` bring news, and so does the end of the tie (-1: none)."""

    ROUTE: ClassVar[bytes] = b"dgkit-watcher"
    NEWS: ClassVar[bytes] = b"n"
    TIE: ClassVar[bytes] = b"t"

    def __init__(self, listener: Listener, wakes: Sequence[int], tie: int) -> None:
        self._tie = tie
        self._end = os.eventfd(0, os.EFD_CLOEXEC)
        self._epoll = select.epoll()
        edges = [fd_of(sock) for sock in listener.sockets() if sock is not listener.router]
        for fd in (*edges, *wakes, tie, self._end):
            if fd >= 0:
                self._epoll.register(fd, select.EPOLLIN | select.EPOLLET)
        self._socket = listener.context.socket(zmq.DEALER)
        self._socket.linger = 0
        self._socket.routing_id = self.ROUTE
        self._socket.connect(listener.inside)
        self._socket.send(self.NEWS)  # what came before the edges were watched
        self._thread = threading.Thread(target=self._run, name="dgkit-watcher", daemon=True)

    def __enter__(self) -> Watcher:
        self._thread.start()
        return self

    def __exit__(self, *exc: object) -> None:
        os.eventfd_write(self._end, 1)
        self._thread.join()
        self._socket.close()
        self._epoll.close()
        os.close(self._end)

    def _run(self) -> None:
        while True:
            ready = {fd for fd, _ in self._epoll.poll()}
            if self._end in ready:
                return
            self._socket.send(self.TIE if self._tie in ready else self.NEWS)
