"""The client's end of the wire: a DEALER socket whose replies are matched by number.

Any thread may post and wait; asyncio may watch `fileno()`. One waiting thread at a time (the
leader) sleeps on the sockets and hands the others their replies. A reply that nobody waits for any
more, as after Ctrl-C, still comes to its Pending, so what the request borrowed is given back then.

The peer's death is the kernel's or libzmq's news (the monitor's DISCONNECTED), never a Python
timer's. A stopped process on this machine is seen in /proc while a thread waits.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Sequence
from typing import Any

import msgspec
import zmq

from ..errors import ClosedError, PeerError, PeerTimeout
from .address import Address
from .client_socket import Dealer
from .error_codec import to_exception
from .listener import readable
from .liveness import Liveness, refused
from .messages import MAX_REQUEST, Block, Ended, Failed, Progress, Reply, decode_reply, encode
from .pending import Pending

__all__ = ["Link"]

SLICE_S = 0.1  # how often a waiting thread looks at the peer's process
_NEWS = (Progress, Block, Ended)
_SPECIAL = {*_NEWS, Failed}
_NOBLOCK = int(zmq.NOBLOCK)


class Link:
    """Connects at once; `identity` is (public, secret) in hex, for tcp."""

    def __init__(self, address: Address, identity: tuple[str, str] | None) -> None:
        self.address = address
        self.lock = threading.RLock()
        self.liveness = Liveness(str(address.endpoint))
        self.dead: Exception | None = None
        self._next = 0
        self._pending: dict[int, Pending] = {}
        self._leader: Pending | None = None
        self._draining = False
        self._wanting: list[None] = []
        self._forked = False
        self._heard = time.monotonic()
        self._dealer = Dealer(address, identity)
        self._socket = self._dealer.socket
        self.standing = self._dealer.standing
        self._watch()  # libzmq tells of news only after a look that found none

    def fileno(self) -> int:
        """Readable when pump() has something to do."""
        return self._dealer.epoll.fileno()

    def start_at(self, number: int) -> None:
        """The number of the next request."""
        self._next = number

    def post(self, kind: Any, *fields: Any, then: Any = None, news: Any = None) -> Pending:
        """Sends kind(number, *fields). ValueError: larger than a request may be."""
        if not self.lock.acquire(blocking=False):
            self._wanting.append(None)  # asks who waits in libzmq to do so elsewhere
            try:
                self.lock.acquire()
            finally:
                self._wanting.pop()
        try:
            return self._post(kind, fields, then, news)
        finally:
            self.lock.release()

    def _post(self, kind: Any, fields: tuple[Any, ...], then: Any, news: Any) -> Pending:
        if self.dead is not None:
            raise self.dead.with_traceback(None)
        pending = Pending(self._next)
        pending.then, pending.news = then, news
        message = encode(kind(self._next, *fields))
        if len(message) > MAX_REQUEST:
            raise ValueError(f"a request of {len(message)} bytes; {MAX_REQUEST} is the most")
        self._next += 1
        self._heard = time.monotonic()  # silence counts from here
        self._pending[pending.number] = pending
        self._send(message, pending)
        if len(self._pending) > 1:  # sending may have eaten the news of another's reply
            self._drain()
        return pending

    def exchange(self, kind: Any, fields: tuple[Any, ...], then: Any) -> Pending | None:
        """post(), and a short wait in libzmq itself, which is the shortest way there is.

        For a message that is small by its kind. None, and nothing was sent: others use the link.
        """
        with self.lock:
            if self._pending or self._wanting or self.dead is not None:
                return None
            number = self._next
            self._next = number + 1
            pending = self._pending[number] = Pending(number)
            pending.then = then
            self._heard = time.monotonic()
            try:
                self._socket.send(encode(kind(number, *fields)), _NOBLOCK)
                reply = decode_reply(self._socket.recv())
            except zmq.Again:  # it takes longer, or the peer is gone: wait() finds out
                return pending
            except msgspec.DecodeError as exc:
                self.fail(PeerError(f"the other side sent what is no reply: {exc}"))
                return pending
            if reply.id != number or type(reply) in _SPECIAL:
                self._dispatch(reply)
                return pending
            del self._pending[number]
            pending.reply = reply
            pending.done = True
            then(pending)
            return pending

    def _send(self, message: bytes, pending: Pending) -> None:
        try:
            self._socket.send(message, _NOBLOCK)
        except zmq.Again:
            del self._pending[pending.number]
            self._drain()
            self._watch()
            raise self.dead or PeerTimeout(
                f"{self.address.endpoint} takes no more requests"
            ) from None

    def ask(self, kind: Any, *fields: Any, timeout: float = 5.0) -> Any:
        """Sends and waits for the reply; raises what the other side raised."""
        pending = self.post(kind, *fields)
        if not self.wait(pending, timeout):
            raise PeerTimeout(
                f"{self.address.endpoint} did not answer {kind.__name__} in {timeout} s"
            )
        return pending.result()

    def wait(self, pending: Pending, timeout: float | None = None) -> bool:
        """Waits until `pending` is done: False when `timeout` seconds passed first.

        PeerTimeout: the peer's process is stopped. A lost peer fails `pending` itself.
        """
        began = time.monotonic()
        deadline = None if timeout is None else began + timeout
        stopped = self.liveness.watcher()
        try:
            while True:
                with self.lock:
                    if not pending.done:
                        self._drain()
                    if pending.done:
                        return True
                    lead = self._leader is None
                    if lead:
                        self._leader = pending
                    elif pending.gate is None:
                        pending.gate = threading.Lock()
                        pending.gate.acquire()
                left = SLICE_S if deadline is None else min(SLICE_S, deadline - time.monotonic())
                if left <= 0:
                    self._resign(pending)
                    return pending.done
                self._sleep(pending, lead, left)
                if time.monotonic() - began > SLICE_S:
                    stopped()
        finally:
            if self._leader is pending:  # Ctrl-C came before it slept
                self._resign(pending)

    def _sleep(self, pending: Pending, lead: bool, seconds: float) -> None:
        if not lead:
            assert pending.gate is not None
            pending.gate.acquire(timeout=seconds)
            return
        ready: list[tuple[int, int]] = []
        try:
            with contextlib.suppress(ValueError, OSError):  # closed: then `pending` is done
                ready = self._dealer.epoll.poll(seconds)
        finally:
            self._resign(pending, [fd for fd, _ in ready])

    def _resign(self, pending: Pending, ready: Sequence[int] = ()) -> None:
        with self.lock:
            if self._leader is not pending:
                return
            self._leader = None
            if self._dealer.wake in ready:
                with contextlib.suppress(BlockingIOError):  # pump() took it
                    os.eventfd_read(self._dealer.wake)
            self._drain()
            if self._dealer.monitor_fd in ready:
                self._watch()
            if not pending.done:
                return
            for other in self._pending.values():
                if other.gate is not None and not other.done:
                    other.let_go()
                    return

    def pump(self) -> None:
        """Takes in what has arrived, without waiting."""
        with self.lock:
            if self.dead is None:
                self._drain()
                self._watch()

    def _drain(self) -> None:
        if self._draining or self.dead is not None:
            return
        self._draining = True
        try:
            while readable(self._socket):
                self._take(self._socket.recv(_NOBLOCK))
                if not self._pending:
                    return
        finally:
            self._draining = False

    def _take(self, message: bytes) -> None:
        self._heard = time.monotonic()
        try:
            self._dispatch(decode_reply(message))
        except msgspec.DecodeError as exc:
            self.fail(PeerError(f"the other side sent what is no reply: {exc}"))

    def _dispatch(self, reply: Reply) -> None:
        pending = self._pending.get(reply.id)
        if isinstance(reply, _NEWS):
            if isinstance(reply, Ended):
                self.standing.take(reply)
            elif pending is not None and pending.news is not None:
                pending.news(reply)
            return
        if isinstance(reply, Failed):
            if pending is None:  # about a message that it could not read
                self.fail(to_exception(reply))
                return
            pending.error = to_exception(reply)
        elif pending is None:
            self.fail(PeerError(f"a reply to request {reply.id}, which was never sent"))
            return
        pending.reply = reply
        del self._pending[reply.id]
        self._finish(pending)

    def _finish(self, pending: Pending) -> None:
        pending.done = True
        pending.let_go()
        if self._leader is pending:
            os.eventfd_write(self._dealer.wake, 1)
        if pending.then is not None:
            pending.then(pending)

    def _watch(self) -> None:
        error = refused(self._dealer.monitor, self.liveness)
        if error is not None:
            self.fail(error)

    def oldest(self) -> Pending | None:
        """The request that has waited longest."""
        with self.lock:
            return next(iter(self._pending.values()), None)

    def fail(self, error: Exception) -> None:
        """Ends the link: every pending request fails with `error`, and so does each later one."""
        with self.lock:
            self.dead = self.dead or error
            waiting, self._pending = list(self._pending.values()), {}
            for pending in waiting:
                pending.error = self.dead
                self._finish(pending)

    def abandon(self) -> None:
        """In a forked child: what is here belongs to the parent, and its lock may be held there."""
        self.lock = threading.RLock()
        self._forked = True
        self.dead = ClosedError("this session was opened before fork(): open one in this process")

    def close(self) -> None:
        """Ends the connection; pending requests fail with ClosedError. Again: nothing."""
        with self.lock:
            self.fail(ClosedError("the session is closed"))
            if self._forked or self._socket.closed:
                return
            self._leader = None  # what it sleeps on is closed here, and its request is done
            self._dealer.close()

    @property
    def idle_s(self) -> float:
        """Seconds since anything was heard."""
        return time.monotonic() - self._heard
