# SPDX-License-Identifier: Apache-2.0
"""Connection to an agent: a DEALER socket whose replies are matched to requests by number.

Any thread may post and wait; asyncio may watch `fileno()`. One of the waiting threads, the leader,
sleeps on the sockets and dispatches replies to the others. A reply that no thread waits for any
more still completes its Pending, which then releases the memory of the request.

The death of the peer is reported by the kernel or by libzmq (the monitor's DISCONNECTED event),
never by a timer in Python. A stopped process on this machine is detected in /proc while a thread
waits.
"""

from __future__ import annotations

import contextlib
import os
import select
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

import zmq

from ..errors import ClosedError, PeerError, PeerTimeout, copy_of
from .address import Address
from .client_socket import ClientSocket
from .error_codec import to_exception
from .inflow import Growth, heap_trimmer
from .messages import (
    MAX_REQUEST,
    UNREADABLE,
    WITH_TEXTS,
    Block,
    Cancel,
    Ended,
    Failed,
    Outstanding,
    Progress,
    Reply,
    Request,
    clean,
    decode_reply,
    encode,
)
from .peer_state import PeerState, connection_error, endless
from .pending import Pending, ReplyLost
from .sockets import POLLIN

SLICE_S = 0.1  # interval at which a waiting thread checks the peer's process
_TIMEOUT_S = 5.0  # of each request, until connect() sets its own
_LOOK_S = 0.02  # minimum interval between two checks of this process's memory
_STEP = 8 << 20  # bytes by which that memory grows between two checks of the connections
_BATCH = 1000  # messages received before a waiting thread looks at the time
_STRAYS = 1000  # limit of notifications without a pending request; few arrive after its end
_NOTIFICATIONS = (Progress, Block, Ended)
_NOBLOCK = int(zmq.NOBLOCK)
_CANCELS = 0  # a thread id that does not exist


class Connection:
    """Connection that is opened when it is created.

    Args:
        address: The agent's address.
        identity: The client's public and secret key in hex, for tcp://; None for ipc://.

    Attributes:
        lock: Held while messages are sent, received and handled.
        dead: The error that ended the connection, or None.
        pending: Requests that are not yet completed, by number; protected by the lock.
    """

    def __init__(self, address: Address, identity: tuple[str, str] | None) -> None:
        self.address = address
        self.lock = threading.RLock()
        self.peer_state = PeerState(str(address.endpoint))
        self.dead: Exception | None = None
        self._next = 0
        self.pending: dict[int, Pending] = {}
        self._leader: Pending | None = None
        self._draining = False
        self._waiting_senders: dict[int, None] = {}  # by thread, or _CANCELS
        # Requests whose creations must be freed: their numbers, and what to call afterwards.
        self._to_cancel: deque[tuple[int, Callable[[], None] | None]] = deque()
        self._interrupted = False  # while a message was sent or received
        self._query: Pending | None = None  # asks which requests are unanswered since then
        self._forked = self._greeted = False
        self.timeout = _TIMEOUT_S  # longest silence while requests are unanswered
        self._asked = 0.0  # when the agent was asked to end its silence
        self._last_received = self._looked = time.monotonic()
        self._grown = Growth(_STEP)
        self._received = 0  # number of messages
        self._strays = 0  # since the latest reply
        self._refused = False
        self._other: Connection | None = None
        self._client = ClientSocket(address, identity)
        self._socket = self._client.socket
        self.subscriptions = self._client.subscriptions
        self._client.connect()
        self._check_monitor()  # libzmq signals new events only after a read that found none

    def fileno(self) -> int:
        """Return a descriptor that is readable when pump() has work."""
        return self._client.epoll.fileno()

    def check(self) -> None:
        """Raise the error that ended the connection, if it has ended."""
        if self.dead is not None:
            raise copy_of(self.dead)

    def end_with(self, other: Connection) -> None:
        """End this connection when `other` ends, also while a thread waits.

        abandon() of this connection then abandons both.
        """
        self._other = other
        self._client.epoll.register(other.fileno(), select.EPOLLIN)

    def _check_other(self) -> None:
        if self._other is not None and self.dead is None:
            self._other.pump()
            if self._other.dead is not None:
                self.fail(self._other.dead)

    def set_first_number(self, number: int) -> None:
        """Set the number of the next request, after the agent's Welcome."""
        self._next = number
        self._greeted = True

    def post(
        self,
        request: Request,
        *,
        then: Any = None,
        on_progress: Any = None,
        pending: Pending | None = None,
    ) -> Pending:
        """Send a request without waiting for the reply.

        Args:
            request: The request, whose number is set.
            then: See Pending.
            on_progress: See Pending.
            pending: Object for the request, with its own callbacks; None: a new one.

        Raises:
            ValueError: The encoded request is larger than MAX_REQUEST.
        """
        thread = threading.get_ident()
        self._waiting_senders[thread] = None  # makes exchange() leave libzmq's receive to wait()
        with self.lock:
            self._waiting_senders.pop(thread, None)
            if self._to_cancel:
                self.post_cancels()
            if pending is None:
                pending = Pending()
                pending.then, pending.on_progress = then, on_progress
            return self._post(request, pending)

    def _post(self, request: Request, pending: Pending) -> Pending:
        self._check_memory()
        self.check()
        number = request.id = self._next
        message = encode(request)
        if len(message) > MAX_REQUEST:
            raise ValueError(f"the request has {len(message)} bytes; the limit is {MAX_REQUEST}")
        if not self.pending:
            self._last_received = time.monotonic()  # silence is counted from here
        pending.expected = request.reply
        # No calls in the next lines, so that no signal handler runs: all of them happen or none.
        self._next = number + 1
        pending.number = number
        self.pending[number] = pending
        try:
            self._send(message, pending)
            if len(self.pending) > 1:  # sending may have consumed another reply's event
                self._drain()
        except BaseException:
            self._mark_interrupted()
            raise
        return pending

    def exchange(self, request: Request, pending: Pending) -> bool:
        """Send a request and wait briefly inside libzmq, which gives the lowest latency.

        Only for kinds whose encoding is always small.

        Returns:
            True if the request was sent, and is perhaps not yet done; False if other threads use
            the connection.
        """
        with self.lock:
            self._check_memory()
            if self.pending or self._waiting_senders or self.dead is not None:
                return False
            number = request.id = self._next
            pending.expected = request.reply
            message = encode(request)
            self._last_received = time.monotonic()
            self._next = number + 1
            pending.number = number
            self.pending[number] = pending
            try:
                self._socket.send(message, _NOBLOCK)
                body = self._socket.recv()
                self._received += 1
                reply = decode_reply(body)
                if reply.id != number or type(reply) is not request.reply:
                    self._dispatch(reply)
                    return True
                pending.reply = reply
                if pending.then is not None:
                    pending.then(pending)
                    pending.then = None  # it may refer back to the request
                pending.done = True
                self.pending.pop(number, None)
                return True
            except zmq.Again:  # slower than _RECEIVE_MS, or the peer is gone: wait() tells
                return True
            except UNREADABLE as exc:
                self._abort(PeerError(f"the other side sent an invalid reply: {exc}"))
                return True
            except BaseException:
                self._mark_interrupted()
                raise

    def _send(self, message: bytes, pending: Pending) -> None:
        try:
            self._socket.send(message, _NOBLOCK)
        except zmq.Again:
            del self.pending[pending.number]
        else:
            return
        self._drain()
        self._check_monitor()
        self.check()
        raise PeerTimeout(f"{self.address.endpoint} accepts no more requests")

    def cancel_later(self, number: int, then: Callable[[], None] | None) -> None:
        """Cancel a creation before the next request of any kind. For finalizers.

        Arguments as for Creation.undo_later().
        """
        self._to_cancel.append((number, then))
        self._waiting_senders[_CANCELS] = None  # makes exchange() leave the request to post()

    @property
    def has_cancels(self) -> bool:
        """True if Cancels of creations were not sent yet."""
        return bool(self._to_cancel)

    def post_cancels(self) -> None:
        """Post a Cancel for each creation that must be freed; those not sent are sent later."""
        with self.lock, contextlib.suppress(PeerError, ClosedError):
            while self._to_cancel:
                number, then = self._to_cancel[0]
                cancel = Pending()
                if then is not None:
                    cancel.then = lambda _, then=then: then()
                self._post(Cancel(target=number), cancel)
                self.subscriptions.on_end.pop(number, None)
                self._to_cancel.popleft()  # last: to cancel twice is harmless
            self._waiting_senders.pop(_CANCELS, None)

    def _mark_interrupted(self) -> None:
        """Record that an exception interrupted the handling of a message; _drain() recovers."""
        self._interrupted = True

    def ask(self, request: Request, *, timeout: float = 5.0, pending: Pending | None = None) -> Any:
        """Send a request and return its reply; undo a Creation whose reply is not returned.

        Args:
            timeout: Seconds.
            pending: As for post().

        Raises:
            PeerTimeout: No reply in time.
            Exception: Whatever the other side raised.
        """
        pending = pending or Pending()
        try:
            self.post(request, pending=pending)
            if not self.wait(pending, timeout):
                raise PeerTimeout(
                    f"{self.address.endpoint} did not answer {type(request).__name__} within "
                    f"{timeout} s"
                )
            return pending.result()
        except BaseException:
            pending.undo()
            raise

    def wait(self, pending: Pending, timeout: float | None = None) -> bool:
        """Wait until `pending` is done.

        Args:
            pending: A request of this connection. Losing the peer fails it, which makes it done.
            timeout: Seconds; None waits without a limit.

        Returns:
            False if the time ran out first.

        Raises:
            PeerTimeout: The peer's process is stopped.
        """
        checked = time.monotonic()
        deadline = None if timeout is None else checked + timeout
        raise_if_stopped: Callable[[], None] | None = None  # most requests are answered sooner
        try:
            while True:
                lead = self._wait_turn(pending)
                if lead is None:
                    return True
                left = _LOOK_S if lead else SLICE_S
                left = left if deadline is None else min(left, deadline - time.monotonic())
                if left <= 0:
                    self._stop_leading(pending)
                    return pending.done
                self._sleep(pending, lead, left)
                if time.monotonic() - checked > SLICE_S:
                    checked = time.monotonic()
                    raise_if_stopped = raise_if_stopped or self.peer_state.stop_check()
                    raise_if_stopped()
        finally:
            if self._leader is pending:  # interrupted before it slept
                self._stop_leading(pending)

    def _wait_turn(self, pending: Pending) -> bool | None:
        """Drain, then return whether this thread leads; None if `pending` is done."""
        with self.lock:
            if not pending.done:
                self._drain()
            if pending.done:
                return None
            if self._leader is None:
                self._leader = pending
                return True
            if pending.gate is None:
                pending.gate = threading.Lock()
                pending.gate.acquire()
            return False

    def _sleep(self, pending: Pending, lead: bool, seconds: float) -> None:
        if not lead:
            assert pending.gate is not None
            pending.gate.acquire(timeout=seconds)
            return
        ready: list[tuple[int, int]] = []
        try:
            with contextlib.suppress(ValueError, OSError):  # closed: `pending` is done then
                ready = self._client.epoll.poll(seconds)
        finally:
            self._stop_leading(pending, [fd for fd, _ in ready])

    def _stop_leading(self, pending: Pending, ready: Sequence[int] = ()) -> None:
        with self.lock:
            if self._leader is not pending:
                return
            self._leader = None
            if self._client.wake_fd in ready:
                with contextlib.suppress(BlockingIOError):  # another thread has read it
                    os.eventfd_read(self._client.wake_fd)
            self._drain()
            if self._client.monitor_fd in ready:
                self._check_monitor()
            self._check_other()
            self._check_memory()
            if not pending.done:
                return
            for other in self.pending.values():
                if other.gate is not None and not other.done:
                    other.release()
                    return

    def pump(self) -> None:
        """Process what has arrived, without waiting."""
        with self.lock:
            if self.dead is None:
                self._drain()
                self._check_monitor()
            self._check_other()
            self._check_memory()

    def _check_memory(self) -> None:
        """End the connection, or a subscription, on which the agent sends an endless message."""
        now = time.monotonic()
        if self._forked or now - self._looked < _LOOK_S:
            return
        self._looked = now
        if self._socket.closed or not self._grown():
            return
        self._drain()  # a whole message is progress
        stream = self.peer_state.stream
        if self.dead is None and stream is not None and stream.is_endless(self._received):
            self._abort(endless(self.peer_state.endpoint))
        self.subscriptions.end_endless()

    def _abort(self, error: Exception) -> None:
        """End the connection to an agent that broke the protocol, and receive nothing more."""
        self._refused = True
        self.fail(error)  # first: an interruption must leave no request pending
        self._client.disconnect()
        self.subscriptions.close()

    def _drain(self) -> None:
        if self._draining or self.dead is not None:
            return
        self._draining = True
        try:
            if self._interrupted:
                # these were answered when an exception interrupted the dispatch
                for pending in list(self.pending.values()):
                    if pending.done or pending.reply is not None or pending.error is not None:
                        self._finish(pending)
                self._find_lost()
            for _ in range(_BATCH):
                if not int(self._socket.get(zmq.EVENTS)) & POLLIN:
                    return
                self._receive(self._socket.recv(_NOBLOCK))
                if not self.pending:
                    return
        except zmq.Again:
            pass  # the connection ended, and its last message went with it
        except BaseException:
            self._mark_interrupted()
            raise
        finally:
            self._draining = False

    def _find_lost(self) -> None:
        """Ask the agent which requests are unanswered, and fail those whose reply is lost."""
        if self.pending:
            query = Pending()
            query.then = self._fail_lost
            try:
                self._post(Outstanding(), query)
                self._query = query
            except PeerTimeout:  # the agent accepts no request now: the next _drain() retries
                return
        self._interrupted = False

    def find_lost(self) -> None:
        """Wait until the requests whose replies are lost have failed."""
        if self._interrupted:
            self.pump()
        query = self._query
        if query is not None:
            self.wait(query, self.timeout)

    def check_silence(self) -> None:
        """Raise PeerTimeout if the agent has sent nothing for `timeout` seconds.

        After half of them it is asked which requests are unanswered, and answers at once even if
        it works on them for long. Call this repeatedly while a request is unanswered.
        """
        now = time.monotonic()
        if now - self._last_received < self.timeout / 2:
            return
        with self.lock:
            if self.dead is not None or not self.pending:
                return
            if self._asked < self._last_received:
                self._asked = now
                self._find_lost()
            elif now - self._asked > self.timeout / 2:
                raise PeerTimeout(
                    f"{self.address.endpoint} has sent nothing for {self.timeout:g} s: it did not "
                    "even say which requests it works on, although the connection is open. The "
                    "agent hangs, or a relay on the way holds back its messages; "
                    "connect(timeout=...) sets the limit"
                )

    def _fail_lost(self, query: Pending) -> None:
        """Fail the requests before `query` whose reply can no longer come."""
        self._query = None
        if query.error is not None:
            return
        unanswered = {*query.reply.numbers}
        for number, pending in list(self.pending.items()):
            if number < query.number and number not in unanswered and not pending.done:
                pending.error = ReplyLost(
                    "an exception such as Ctrl-C interrupted the request, and its reply is lost"
                )
                self._finish(pending)

    def _receive(self, message: bytes) -> None:
        self._last_received = time.monotonic()
        self._received += 1
        try:
            reply = decode_reply(message)
        except UNREADABLE as exc:
            self._abort(PeerError(f"the other side sent an invalid reply: {exc}"))
            return
        self._dispatch(reply)

    def _dispatch(self, reply: Reply) -> None:
        pending = self.pending.get(reply.id)
        if isinstance(reply, _NOTIFICATIONS):
            if pending is None:
                self._strays += 1
            if self._strays > _STRAYS:
                kind = type(reply).__name__
                self._abort(PeerError(f"the other side sent {kind} without end"))
            elif isinstance(reply, Ended):
                self.subscriptions.monitor_ended(reply)
            elif isinstance(reply, Block) and len(reply.samples) % 8:
                self._abort(PeerError("the other side sent samples that are not 64-bit numbers"))
            elif pending is not None and pending.on_progress is not None:
                self._notify(pending.on_progress, reply)
            return
        if isinstance(reply, Failed):
            if pending is None:  # about a message that the agent could not decode
                self._abort(to_exception(reply))
                return
            pending.error = to_exception(reply)
        elif pending is None:
            self._abort(PeerError(f"the other side answered request {reply.id}, which is unknown"))
            return
        elif type(reply) is not pending.expected:
            kind = type(reply).__name__
            self._abort(PeerError(f"the other side answered request {reply.id} with {kind}"))
            return
        self._strays = 0
        pending.reply = clean(reply) if isinstance(reply, WITH_TEXTS) else reply
        self._finish(pending)

    def _notify(self, on_progress: Callable[[Any], None], message: Reply) -> None:
        try:
            on_progress(message)
        except PeerError as exc:  # the agent sent more than was requested
            self._abort(exc)

    def _finish(self, pending: Pending) -> None:
        """Complete a request; repeated from the start if an exception interrupts it."""
        if pending.then is not None:
            pending.then(pending)
        pending.done = True  # after the call, whose effect the waiting thread relies on
        self.pending.pop(pending.number, None)
        pending.then = None  # it may refer back to the request
        if self._leader is pending:
            os.eventfd_write(self._client.wake_fd, 1)
        if pending.gate is not None:
            pending.release()

    def _check_monitor(self) -> None:
        error = connection_error(self._client.monitor, self.peer_state)
        if error is not None:
            self.fail(error)

    def fail(self, error: Exception) -> None:
        """End the connection: fail all pending and all later requests with `error`."""
        with self.lock:
            self.dead = self.dead or error
            for pending in list(self.pending.values()):
                if pending.reply is None:
                    pending.error = self.dead
                self._finish(pending)
            while self._to_cancel:
                _, then = self._to_cancel.popleft()
                if then is not None:
                    then()

    def abandon(self) -> None:
        """Disown the sockets in a forked child: they belong to the parent.

        The lock is replaced, since a thread of the parent may have held it during fork().
        """
        self.lock = threading.RLock()
        self._forked = True
        if self._other is not None:
            self._other.abandon()
        self.dead = ClosedError(
            "this session was opened before fork(): open a session in this process"
        )

    def close(self) -> None:
        """Close the connection; pending requests fail with ClosedError. Idempotent."""
        with self.lock:
            closed = ClosedError("the session is closed")
            self.fail(closed)
            if not self._forked:
                self.dead = closed  # also of a session that was lost before
            if self._forked or self._socket.closed:
                return
            self._leader = None  # the sockets are closed here, and the leader's request is done
            self._client.close()
            self._grown.close()
            if self._refused:
                heap_trimmer()()  # the agent may have sent much

    def __del__(self) -> None:
        client = getattr(self, "_client", None)
        # Later its session closes it, perhaps after this: both may be cyclic garbage.
        if client is not None and not (self._greeted or self._forked or sys.is_finalizing()):
            client.close()  # nobody has got the connection
