# SPDX-License-Identifier: Apache-2.0
"""The agent: one loop that serves the host's memory or the DPU to any number of clients.

The loop itself does only short work, of microseconds: it decodes requests, copies small data, sends
replies. Longer work (a large copy, an import, a measurement) runs in the client's workers, whose
replies come back through the outbox. A client's moves and frees keep their order; its allocations,
imports, measurements and monitors run concurrently with them.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

import zmq

from ..dma import Device
from ..dma.nccl_server import NcclServer
from ..dpu.service import DpuService
from ..errors import ClosedError, DgkitError, PeerError, QueueFull, RegionBusy
from ..wire import address as addresses
from ..wire.error_codec import to_wire
from ..wire.inflow import wire_bytes
from ..wire.listener import Listener
from ..wire.messages import (
    UNREADABLE,
    Block,
    Bye,
    Done,
    Ended,
    Hello,
    MoveDone,
    OutstandingDone,
    Progress,
    Published,
    decode_request,
    encode,
    number_of,
)
from ..wire.sockets import POLLIN
from ..wire.wakeup import Wakeup
from .account import Allowance, check_user
from .agent_limits import DroppedRoutes
from .client import Client, WaitingRequests
from .handlers import Handlers
from .handshake import RETRY_MS, Hellos, WaitingHello, check_hello, welcome
from .state import TELEMETRY_MS, AgentState

if TYPE_CHECKING:
    from .serve_options import ServeOptions

_RCVMORE = int(zmq.RCVMORE)
_PART = int(zmq.SNDMORE | zmq.NOBLOCK)
_LAST = int(zmq.NOBLOCK)
_ENDED = (zmq.ETERM, zmq.ENOTSOCK)  # errors of a socket that no longer exists
_EXPECTED = (DgkitError, ValueError, TypeError, OSError)  # errors that a request may cause
_NOTIFICATIONS = (Block, Ended, Progress)  # they answer no request
_NCCL_PROVIDERS = ("soft", "cuda", "verbs", "doca", "softdoca")  # move bytes for NCCL's plugin
_DRAIN_S = 0.0005  # time of serving requests, after which the loop reads new messages
_ROUND = 8  # messages read before libzmq looks for connections that were quiet so far
_MAX_ROUNDS = 25  # rounds of messages read at once
_HELLO_TURNS = 16  # while a burst of connections is handled, one Hello is served per so many turns
_END_S = 0.5  # time for the workers to end; the agent must exit within a second


class Agent:
    """Agent that is bound and has its device open; run() serves until stop()."""

    def __init__(self, options: ServeOptions, *, watch_fd: int = -1, signal_fd: int = -1) -> None:
        addresses.sweep()
        self._limits = options.limits()
        stop_fds = (watch_fd, signal_fd)
        self._listener = Listener(
            options.address, options.keys, self._limits.connections, stop_fds,
            options.telemetry_port, options.heartbeat,
        )  # fmt: skip
        with contextlib.ExitStack() as undo:
            undo.callback(self._listener.close)
            self._device = Device(
                options.provider, rules=options.rules, gpu=options.gpu, pci=options.pci,
                rdma=options.rdma,
            )  # fmt: skip
            undo.callback(self._device.close)
            self._nccl_server = self._open_nccl_server(options)
            undo.pop_all()
        inline = not options.rules and options.provider != "fault"
        service = DpuService(self._device, copies_inline=inline, inline_timeout=1.0)
        self._state = AgentState(
            options.role, self._listener, service,
            shared_telemetry=options.shared_telemetry, limits=self._limits,
        )  # fmt: skip
        self._clients = self._state.clients
        self._by_fd: dict[int, bytes] = {}
        self._disconnecting: list[tuple[Client, Callable[[], None]]] = []
        self._slow_readers: dict[bytes, Client] = {}  # by route: clients with unsent replies
        self._retried = 0.0
        self._waiting: dict[bytes, WaitingRequests] = {}  # by route, in the order of their turns
        self._hellos = Hellos(self._limits.connections)
        self._dropped = DroppedRoutes()
        self._drained = self._handled_wakeup = 0.0
        self._watch_fd = watch_fd
        self._signal_fd = signal_fd
        self._stop_fd = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self._stop = False
        self._wakeup_route = b""
        self._handlers = Handlers(self._state).table()
        self._listener.on_error = self._state.report
        self._listener.is_refused = self._state.is_refused

    def _open_nccl_server(self, options: ServeOptions) -> NcclServer | None:
        """Serve NCCL's plugin, beside a Unix socket."""
        path = self._listener.address.path
        moves = options.role == "dpu" and options.provider in _NCCL_PROVIDERS and not options.rules
        if not (moves and path):
            return None
        return NcclServer(self._device, addresses.mover_path(path))

    @property
    def endpoint(self) -> str:
        """Return the address that connect() takes."""
        return str(self._listener.address)

    def stop(self) -> None:
        """End run(). Safe in any thread and in a signal handler."""
        self._stop = True
        os.eventfd_write(self._stop_fd, 1)

    def run(self) -> None:
        """Serve until stop(), or until the watched descriptor reaches end-of-file."""
        wake_fds = (self._stop_fd, self._signal_fd)
        with Wakeup(self._listener, wake_fds, self._watch_fd) as wakeup:
            self._wakeup_route, self._state.wakeup = wakeup.route, wakeup
            while not self._stop:
                try:
                    self._serve_messages(self._listener.router)
                except Exception as exc:
                    if getattr(exc, "errno", None) in _ENDED:
                        raise
                    self._state.report("the loop", exc)
                    self._skip_parts(self._listener.router)  # it may have ended within a message

    def _serve_messages(self, router: zmq.Socket[bytes]) -> None:
        recv, clients = router.recv, self._clients
        while not self._stop:
            if self._slow_readers:
                self._retry_replies()
            if time.monotonic() - self._drained > _DRAIN_S:
                self._drain(router)
                continue  # draining may have consumed the wake-up by stop(), which ends recv()
            if (self._waiting or self._hellos) and self._serve_waiting():
                continue
            if self._listener.behind:
                self._drain(router)
                continue
            if self._hellos:
                router.rcvtimeo = RETRY_MS
            try:
                route = recv()
            except zmq.Again:  # only with telemetry, unread replies or waiting Hellos
                self._handle_wakeup(Wakeup.EVENT)
                continue
            client = clients.get(route)
            if client is None or client.unsent or route in self._waiting:
                self._queue_request(route, router)
                continue
            frame = recv(copy=False)  # its `more` costs less than get(RCVMORE) after a copy
            client.taken += wire_bytes(len(frame))
            self._receive_request(client, frame.bytes, frame.more and self._skip_parts(router))

    def _receive_request(self, client: Client, body: bytes, multipart: bool) -> None:
        if multipart:
            error = PeerError("the message has several parts; a request has one")
            self._reply(client.route, to_wire(error, 0))
        else:
            self._serve(client, body)

    def _drain(self, router: zmq.Socket[bytes]) -> None:
        """Read the messages of all clients that have arrived; requests are then served in turn.

        libzmq must not stop reading a connection, as it would at a high-water mark: if the peer
        then disconnects, the next heartbeat aborts the process ("Assertion failed: !_io_error",
        libzmq 4.3.5). So waiting messages are counted here, and a client that sends too many is
        disconnected.

        libzmq takes messages from the connections in turn, but notices a message of one that was
        quiet only every 100 parts (config.hpp, inbound_poll_rate), or when asked for ZMQ_EVENTS.
        """
        if time.monotonic() - self._handled_wakeup > TELEMETRY_MS / 1000:
            self._handle_wakeup(Wakeup.EVENT)  # as the loop does when it is idle
        elif self._listener.behind:
            self._guard("handling connections", self._drop_disconnected)
        with contextlib.suppress(zmq.Again):
            for _ in range(_MAX_ROUNDS):
                if not int(router.get(zmq.EVENTS)) & POLLIN:
                    break
                for _ in range(_ROUND):
                    self._queue_request(router.recv(_LAST), router)
        self._drained = time.monotonic()

    def _queue_request(self, route: bytes, router: zmq.Socket[bytes]) -> None:
        """Read the rest of a message and queue it until its client's turn."""
        frame = router.recv(copy=False)
        multipart = frame.more and self._skip_parts(router)
        client = self._clients.get(route)
        if client is None:
            if route not in self._dropped:
                self._handle_unknown_sender(route, frame, multipart)
            return
        client.taken += wire_bytes(len(frame))
        waiting = self._waiting.get(route)
        if waiting is None:
            waiting = self._waiting[route] = WaitingRequests()
        if not waiting.add(frame, multipart):
            self._disconnect_flooding(client)

    def _handle_unknown_sender(self, route: bytes, frame: zmq.Frame, multipart: bool) -> None:
        """Handle a message of a connection without a client: a wake-up, or its first message."""
        hello = self._hellos.pop(route, None)
        if hello is not None:
            # A second message before the reply to the first: a flood. Penalize the key, and drop
            # the messages of this connection, which the deadline for a Hello then ends.
            self._guard("a flood", self._penalize_sender, hello.frame)
            self._dropped.add(route)
            self._restore_timeout()
        elif route == self._wakeup_route:
            self._handle_wakeup(frame.bytes)
        else:
            self._guard("Hello", self._queue_hello, route, frame, multipart)

    def _queue_hello(self, route: bytes, frame: zmq.Frame, multipart: bool) -> None:
        """Queue a first message, with the account of its key."""
        try:
            sender = self._listener.sender(frame)
        except zmq.ZMQError:  # of ZMTP 1.0, which libzmq accepts: it does not say who sends
            self._dropped.add(route)
            return
        paced = sender.key and self._listener.keys_allowed > 1
        account = self._state.account(sender) if paced else None
        self._hellos.add(route, WaitingHello(frame, multipart, account))

    def _penalize_sender(self, frame: zmq.Frame) -> None:
        """Refuse new clients of the key that has sent a frame; if they are, its connections."""
        sender = self._listener.sender(frame)
        account = self._state.account(sender)
        if account.penalized:
            account.stop_explaining()
        elif sender.key:
            account.penalize()

    def _serve_waiting(self) -> bool:
        """Serve one queued request, and one Hello; return False if nothing was served."""
        # A client gets no turn until it has read its replies.
        client = next((self._clients[each] for each in self._waiting
                       if not self._clients[each].unsent), None)  # fmt: skip
        if client is not None:
            waiting = self._waiting.pop(client.route)
            body, multipart = waiting.next()
            if waiting.messages:
                self._waiting[client.route] = waiting
            self._receive_request(client, body, multipart)
        # A Hello needs all events of connections, and takes as long as tens of requests: it waits
        # until a burst of connections is handled, and longer if its key connects often.
        if self._hellos and self._listener.behind % _HELLO_TURNS == 0:
            return self._serve_hello() or client is not None
        return client is not None

    def _serve_hello(self) -> bool:
        """Serve the oldest Hello that is due; return False if there is none."""
        due = self._hellos.take_due()
        if due is None:
            return False
        route, hello = due
        self._receive_hello(route, hello.frame, hello.multipart)
        self._restore_timeout()
        return True

    def _guard(self, place: str, work: Callable[..., None], *args: Any) -> None:
        """Call `work`; report an exception, so that the loop continues."""
        try:
            work(*args)
        except Exception as exc:
            self._state.report(place, exc)

    def _receive_hello(self, route: bytes, frame: zmq.Frame, multipart: bool) -> None:
        error: Exception = PeerError("the message has several parts; a request has one")
        if not multipart:
            try:
                self._add_client(route, frame)
                return
            except DgkitError as exc:
                error = exc
            except UNREADABLE as exc:
                error = PeerError(f"the first message must be Hello: {exc}")
            except Exception as exc:
                self._state.report("Hello", exc)
                error = exc
        self._reply(route, to_wire(error, 0))

    def _skip_parts(self, router: zmq.Socket[bytes]) -> bool:
        """Read the remaining parts of a message; return whether there were any."""
        multipart = False
        while router.get(_RCVMORE):
            router.recv(copy=False)
            multipart = True
        return multipart

    def _handle_wakeup(self, event: bytes) -> None:
        """Handle a wake-up: send workers' replies, or handle connections and telemetry."""
        if event == Wakeup.REPLIES:
            self._flush()
            return
        if event == Wakeup.GROWTH:
            self._guard("handling connections", self._end_floods)
        self._handled_wakeup = time.monotonic()
        if event == Wakeup.PARENT_EXIT:
            self._stop = True
        self._guard("handling connections", self._drop_disconnected)
        self._flush()
        if self._state.telemetry is not None:
            self._guard("telemetry", self._state.telemetry.flush)

    def _drop_disconnected(self, *, every: bool = False) -> None:
        clients, subscribers = self._listener.service(every=every)
        for fd in clients:
            self._guard("a disconnect", self._disconnect_route, self._by_fd.pop(fd, b""))
        if self._state.telemetry is not None:
            for fd in subscribers:
                self._state.telemetry.refund_connection(fd)

    def _end_floods(self) -> None:
        """Disconnect the clients whose messages libzmq has read much faster than this loop.

        libzmq also keeps what a connection sent before it ended, and the kernel no longer tells how
        much that is. So if no connection explains the growth, the keys that connect often may not
        do so for a while.
        """
        clients = {fd: self._clients[route] for fd, route in self._by_fd.items()}
        floods = self._listener.end_floods(lambda fd: clients[fd].taken if fd in clients else 0)
        for fd in floods:
            if fd in clients:
                self._disconnect_flooding(clients[fd])
        if not floods:
            self._state.penalize_frequent()

    def _add_client(self, route: bytes, frame: zmq.Frame) -> None:
        hello = decode_request(frame.bytes)
        if not isinstance(hello, Hello):
            raise PeerError("the first message must be Hello")
        self._drop_disconnected(every=True)
        self._forget_released()
        check_hello(hello, len(self._clients) + len(self._disconnecting), self._limits.clients)
        caller = self._listener.caller(frame)
        if caller is None:
            return
        check_user(caller.uid)
        account = self._state.account(caller)
        account.record_arrival()
        account.check_penalty()
        first_id = int.from_bytes(os.urandom(6), "little")
        reply = encode(welcome(self._state, first_id, hello.id))
        allowance = Allowance(account, self._state.memory_limit, self._limits)
        with contextlib.ExitStack() as undo:
            account.charge(clients=1)
            undo.callback(account.release, clients=1)
            client = Client(route, caller, first_id, allowance, self._state.report)
            client.control.start()  # it frees the client's resources; refuse if it cannot start
            undo.callback(client.control.finish)
            if not self._welcome(route, reply):
                return
            undo.pop_all()
        self._disconnect_route(self._by_fd.get(caller.fd, b""))
        self._listener.admit(caller.fd, caller.pid if self._limits.has_descriptors else 0)
        self._clients[route] = client
        self._by_fd[caller.fd] = route

    def _welcome(self, route: bytes, reply: bytes) -> bool:
        """Send the reply to Hello; return False if its connection has ended.

        Another connection may have its descriptor by then, which only libzmq can tell: it queues
        the end of a connection before it closes the descriptor. Reading ZMQ_EVENTS has it look at
        that queue, which send() does once in a millisecond only.
        """
        self._listener.router.get(zmq.EVENTS)
        return not self._try_send(route, reply)

    def _serve(self, client: Client, body: bytes) -> None:
        number = 0
        try:
            client.count_request()
            try:
                request = decode_request(body)
            except UNREADABLE as exc:
                number = number_of(body, client.next_id)
                client.next_id = max(client.next_id, number + 1)
                raise PeerError(f"the agent cannot read this request: {exc}") from exc
            number = request.id
            if number < client.next_id:
                number = 0
                raise PeerError("a request's number must be higher than that of the one before")
            client.next_id = number + 1
            if type(request) is Bye:
                self._disconnect(client, number)
                return
            reply = self._handlers[type(request)](client, request)
            if reply is not None:
                reply.id = number
        except Exception as exc:
            if not isinstance(exc, _EXPECTED):
                self._state.report("a request", exc)
            self._state.count(client, "failed")
            reply = to_wire(exc, number)
        if reply is not None:
            self._reply_and_count(client, reply)
            if type(reply) is MoveDone and self._state.telemetry is not None:
                moved = reply.moved
                self._state.telemetry.add(client, moved.complete_ns - moved.submit_ns)

    def _reply_and_count(self, client: Client, message: Any) -> None:
        self._reply(client.route, message)
        if type(message) is MoveDone:
            self._state.count_move(client, message.moved)

    def _flush(self) -> None:
        """Send the messages that workers and monitors have queued."""
        outbox = self._state.outbox
        while outbox:
            self._guard("sending a message", self._send, *outbox.popleft())
        self._forget_released()

    def _forget_released(self) -> None:
        """Forget the clients that have left; retry a release that could not be started."""
        for client, released in self._disconnecting:
            if not client.leaving:
                self._guard("a disconnect", client.start_release, released)
        self._disconnecting = [
            each for each in self._disconnecting if not each[0].control.join(0.0)
        ]

    def _send(self, client: Client, message: Any) -> None:
        telemetry = self._state.telemetry
        if type(message) is Published:
            assert telemetry is not None
            telemetry.send(message)
            return
        if not isinstance(message, _NOTIFICATIONS):
            client.active.discard(message.id)
            if message.id in client.cancelled:
                client.cancelled.discard(message.id)
                self._undo(client, message.id)
        if type(message) is OutstandingDone:  # exact: unsent replies come after this one
            message.numbers = list(client.active)
        client.blocks_sent += type(message) is Block
        self._reply_and_count(client, message)
        if telemetry is not None and isinstance(message, Block):
            telemetry.publish(client, "latency", message.samples)

    def _undo(self, client: Client, number: int) -> None:
        """Free what a request created, if it was cancelled before the reply was sent."""
        if client.has_created(number):
            with contextlib.suppress(ClosedError, QueueFull):  # its end frees everything
                client.control.submit(partial(client.undo, number))

    def _reply(self, route: bytes, message: Any) -> None:
        router = self._listener.router
        try:
            body = encode(message)
        except Exception as exc:
            self._state.report("encoding a reply", exc)
            body = encode(to_wire(exc, message.id))
        client = self._clients.get(route)
        if (client is None or not client.unsent) and self._deliver(route, body):
            return
        if client is not None and client.queue_reply(body):
            self._slow_readers[route] = client
            router.rcvtimeo = RETRY_MS
        elif client is not None:
            self._disconnect_flooding(client)

    def _deliver(self, route: bytes, body: bytes) -> bool:
        """Send a reply, if its client is not gone; return False if it cannot accept it now."""
        return self._try_send(route, body) != zmq.EAGAIN

    def _try_send(self, route: bytes, body: bytes) -> int:
        """Send a reply; return 0, EAGAIN, or EHOSTUNREACH if the connection has ended."""
        router = self._listener.router
        try:
            router.send(route, _PART)
        except zmq.ZMQError as exc:
            if exc.errno not in (zmq.EAGAIN, zmq.EHOSTUNREACH):
                raise
            return exc.errno
        router.send(body, _LAST)
        return 0

    def _retry_replies(self) -> None:
        """Retry, every few milliseconds, replies that slow clients did not accept at once."""
        now = time.monotonic()
        if now - self._retried < RETRY_MS / 1000:
            return
        self._retried = now
        for route, client in list(self._slow_readers.items()):
            while client.unsent and self._deliver(route, client.unsent[0]):
                client.pop_unsent()
            if not client.unsent:
                del self._slow_readers[route]
        self._restore_timeout()

    def _restore_timeout(self) -> None:
        """Remove the loop's time-out for retries, once nothing is left to retry."""
        if not self._slow_readers and not self._hellos:
            router = self._listener.router
            router.rcvtimeo = -1 if self._state.telemetry is None else TELEMETRY_MS

    def _disconnect_flooding(self, client: Client) -> None:
        """Disconnect a client that sends too much, or reads too few of its replies.

        New clients of its key are refused for a while, longer each time.
        """
        self._state.count(client, "lost_replies", len(client.unsent))
        if client.caller.key:
            client.allowance.account.penalize()
        self._listener.disconnect(client.caller.fd)
        self._disconnect(client, None)

    def _disconnect_route(self, route: bytes) -> None:
        client = self._clients.get(route)
        if client is not None:
            self._disconnect(client, None)

    def _disconnect(self, client: Client, bye: int | None) -> None:
        del self._clients[client.route]
        self._dropped.add(client.route)
        self._slow_readers.pop(client.route, None)
        self._waiting.pop(client.route, None)
        self._by_fd.pop(client.caller.fd, None)

        def released() -> None:
            client.allowance.account.release(clients=1)
            if bye is not None:
                self._state.send(client, Done(id=bye))

        self._disconnecting.append((client, released))
        self._guard("a disconnect", client.start_release, released)
        if self._state.telemetry is not None:
            self._state.telemetry.forget(client)

    def close(self) -> bool:
        """Stop the workers, free everything, remove the socket.

        Returns:
            False if a worker did not end in time, or another process has a transfer in flight with
            this process's memory.
        """
        for route in list(self._clients):
            self._guard("a disconnect", self._disconnect_route, route)
        deadline = time.monotonic() + _END_S
        ended = [each.control.join(deadline - time.monotonic()) for each, _ in self._disconnecting]
        self._listener.close()
        self._state.service.close()
        if self._nccl_server is not None:
            self._nccl_server.close()
        if all(ended):
            try:
                self._device.close(timeout=0.2)
            except RegionBusy:
                ended.append(False)
        os.close(self._stop_fd)
        return all(ended)
