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
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import msgspec
import zmq

from ..dma import Device
from ..dpu.copier import Copier
from ..errors import DgkitError, PeerError, RegionBusy
from ..memory.meminfo import total_bytes
from ..wire import address as addresses
from ..wire.error_codec import to_wire
from ..wire.listener import Listener
from ..wire.messages import (
    Block,
    Bye,
    Done,
    Ended,
    Hello,
    Moved,
    OutstandingDone,
    Progress,
    decode_request,
    encode,
    number_of,
)
from ..wire.telemetry import Sampled
from ..wire.wakeup import Wakeup
from .agent_limits import CLIENTS, REGIONS, Limits, raise_descriptor_limit
from .client import Client, MemoryLimit
from .handlers import Handlers
from .handshake import check_hello, check_user, welcome
from .state import INLINE_MAX, AgentState

if TYPE_CHECKING:
    from ..dma import FaultRule

__all__ = ["Agent", "default_memory"]

_RCVMORE = int(zmq.RCVMORE)
_PART = int(zmq.SNDMORE | zmq.NOBLOCK)
_LAST = int(zmq.NOBLOCK)
_ENDED = (zmq.ETERM, zmq.ENOTSOCK)  # errors of a socket that no longer exists
_UNREADABLE = (msgspec.DecodeError, RecursionError, UnicodeDecodeError)
_EXPECTED = (DgkitError, ValueError, TypeError, OSError)  # errors that a request may cause
_NOTIFICATIONS = (Block, Ended, Progress)  # they answer no request
_END_S = 0.5  # for the workers to end, of the second in which an agent must be gone


class Agent:
    """Agent that is bound and has its device open; run() serves until stop()."""

    def __init__(
        self,
        address: str | None = None,
        *,
        role: str = "dpu",
        max_memory: int | None = None,
        provider: str = "soft",
        gpu: int = 0,
        pci: str | None = None,
        rules: Sequence[FaultRule] = (),
        keys: str | None = None,
        shared_telemetry: bool = False,
        max_clients: int = CLIENTS,
        max_regions: int = REGIONS,
        watch_fd: int = -1,
        signal_fd: int = -1,
    ) -> None:
        if role not in ("dpu", "host"):
            raise ValueError(f"role is {role!r}; it must be 'dpu' or 'host'")
        addresses.sweep()
        self._limits = Limits(max_clients, max_regions, raise_descriptor_limit())
        self._listener = Listener(address, keys, self._limits.connections)
        with contextlib.ExitStack() as undo:
            undo.callback(self._listener.close)
            self._device = Device(provider, rules=rules, gpu=gpu, pci=pci)
            undo.callback(self._device.close)
            copier = Copier(self._device, chunk=INLINE_MAX, op_timeout=1.0)
            undo.pop_all()
        limit = MemoryLimit(max_memory or default_memory())
        inline = not rules and provider != "fault"
        self._state = AgentState(
            role, self._listener, self._device, copier, limit,
            copies_inline=inline, shared_telemetry=shared_telemetry, limits=self._limits,
        )  # fmt: skip
        self._clients = self._state.clients
        self._by_fd: dict[int, bytes] = {}
        self._leaving: list[Client] = []
        self._watch_fd = watch_fd
        self._signal_fd = signal_fd
        self._stop = False
        self._wakeup_route = b""
        self._handlers = Handlers(self._state).table()
        self._listener.on_error = self._state.report

    @property
    def endpoint(self) -> str:
        """Return the address that connect() takes."""
        return str(self._listener.address)

    def stop(self) -> None:
        """End run(). Safe in any thread and in a signal handler."""
        self._stop = True
        self._state.wake()

    def run(self) -> None:
        """Serve until stop(), or until the watched descriptor reaches end-of-file."""
        wake_fds = (self._state.wake_fd, self._signal_fd)
        with Wakeup(self._listener, wake_fds, self._watch_fd) as wakeup:
            self._wakeup_route = wakeup.route
            while not self._stop:
                try:
                    self._serve_messages(self._listener.router)
                except Exception as exc:
                    if getattr(exc, "errno", None) in _ENDED:
                        raise
                    self._state.report("the loop", exc)
                    self._skip(self._listener.router)  # it may have ended within a message

    def _serve_messages(self, router: zmq.Socket[bytes]) -> None:
        recv, clients = router.recv, self._clients
        while not self._stop:
            try:
                route = recv()
            except zmq.Again:  # only with telemetry
                self._service(Wakeup.EVENT)
                continue
            client = clients.get(route)
            if client is None:
                self._receive(route, router)
                continue
            body = recv()
            if router.get(_RCVMORE):
                self._skip(router)
                self._reply(
                    route,
                    to_wire(PeerError("the message has several parts; a request has one"), 0),
                )
            else:
                self._serve(client, body)

    def _guard(self, place: str, work: Callable[..., None], *args: Any) -> None:
        """Call `work`; an exception is reported, and the loop goes on."""
        try:
            work(*args)
        except Exception as exc:
            self._state.report(place, exc)

    def _receive(self, route: bytes, router: zmq.Socket[bytes]) -> None:
        """Handle a message of a route without a client: the watcher's news, or a Hello."""
        frame = router.recv(copy=False)
        several = self._skip(router)
        if route == self._wakeup_route:
            self._service(frame.bytes)
            return
        error: Exception = PeerError("the message has several parts; a request has one")
        if not several:
            try:
                self._add_client(route, frame)
                return
            except DgkitError as exc:
                error = exc
            except _UNREADABLE as exc:
                error = PeerError(f"the first message must be Hello: {exc}")
            except Exception as exc:
                self._state.report("Hello", exc)
                error = exc
        self._reply(route, to_wire(error, 0))

    def _skip(self, router: zmq.Socket[bytes]) -> bool:
        """Read the rest of a message in several parts; return whether there was any."""
        several = False
        while router.get(_RCVMORE):
            router.recv()
            several = True
        return several

    def _service(self, news: bytes) -> None:
        """Handle disconnects, the outbox and telemetry."""
        if news == Wakeup.PARENT_EXIT:
            self._stop = True
        self._guard("handling connections", self._drop_disconnected)
        self._flush()
        if self._state.telemetry is not None:
            self._guard("telemetry", self._state.telemetry.flush)

    def _drop_disconnected(self) -> None:
        for fd in self._listener.service():
            self._guard("a disconnect", self._drop, self._by_fd.pop(fd, b""))

    def _add_client(self, route: bytes, frame: zmq.Frame) -> None:
        hello = decode_request(frame.bytes)
        if not isinstance(hello, Hello):
            raise PeerError("the first message must be Hello")
        check_hello(hello, len(self._clients), self._limits.clients)
        self._drop_disconnected()
        caller = self._listener.caller(frame)
        if caller is None:
            return
        check_user(caller.uid)
        self._drop(self._by_fd.get(caller.fd, b""))
        first_id = int.from_bytes(os.urandom(6), "little")
        reply = welcome(self._state, first_id, hello.id)
        client = Client(
            route, caller, first_id, self._state.limit, self._state.report,
            self._limits.regions_each,
        )  # fmt: skip
        self._listener.know(caller.fd)
        client.control.start()  # it frees the client's resources, so a client without it is refused
        self._clients[route] = client
        self._by_fd[caller.fd] = route
        self._reply(route, reply)

    def _serve(self, client: Client, body: bytes) -> None:
        number = 0
        try:
            client.admit()
            try:
                request = decode_request(body)
            except _UNREADABLE as exc:
                number = number_of(body, client.next_id)
                client.next_id = max(client.next_id, number + 1)
                raise PeerError(f"the agent cannot read this request: {exc}") from exc
            number = request.id
            if number < client.next_id:
                number = 0
                raise PeerError("a request's number must be higher than that of the one before")
            client.next_id = number + 1
            if type(request) is Bye:
                self._leave(client, number)
                return
            reply = self._handlers[type(request)](client, request)
        except Exception as exc:
            if not isinstance(exc, _EXPECTED):
                self._state.report("a request", exc)
            self._state.count(client, "failed")
            reply = to_wire(exc, number)
        if reply is not None:
            self._reply(client.route, reply)
            if type(reply) is Moved:
                self._state.count_move(client, reply)
                if self._state.telemetry is not None:
                    self._state.telemetry.add(client, reply.complete_ns - reply.submit_ns)

    def _flush(self) -> None:
        """Send the messages that workers and monitors have queued."""
        outbox = self._state.outbox
        while outbox:
            self._guard("sending a message", self._send, *outbox.popleft())
        self._leaving = [client for client in self._leaving if not client.control.join(0.0)]

    def _send(self, client: Client, message: Any) -> None:
        telemetry = self._state.telemetry
        if type(message) is Sampled:
            assert telemetry is not None
            telemetry.send(message)
            return
        if not isinstance(message, _NOTIFICATIONS):
            client.active.discard(message.id)
            client.cancelled.discard(message.id)
        if type(message) is OutstandingDone:  # exact: what is not sent by now comes after it
            message.numbers = list(client.active)
        self._reply(client.route, message)
        if type(message) is Moved:
            self._state.count_move(client, message)
        if telemetry is not None and isinstance(message, Block):
            telemetry.publish(client, "latency", message.samples)

    def _reply(self, route: bytes, message: Any) -> None:
        router = self._listener.router
        try:
            body = encode(message)
        except Exception as exc:
            self._state.report("encoding a reply", exc)
            body = encode(to_wire(exc, message.id))
        try:
            router.send(route, _PART)
            router.send(body, _LAST)
        except zmq.Again:  # a client that does not read loses its replies
            if route in self._clients:
                self._state.count(self._clients[route], "lost_replies")

    def _drop(self, route: bytes) -> None:
        client = self._clients.get(route)
        if client is not None:
            self._leave(client, None)

    def _leave(self, client: Client, bye: int | None) -> None:
        del self._clients[client.route]
        self._by_fd.pop(client.caller.fd, None)
        self._leaving.append(client)
        if self._state.telemetry is not None:
            self._state.telemetry.forget(client)
        client.leave(None if bye is None else lambda: self._state.send(client, Done(bye)))

    def close(self) -> bool:
        """Stop the workers, free everything, remove the socket.

        Returns:
            False if a worker did not end in time, or another process has a transfer in flight with
            memory of this one.
        """
        for route in list(self._clients):
            self._guard("a disconnect", self._drop, route)
        deadline = time.monotonic() + _END_S
        ended = [client.control.join(deadline - time.monotonic()) for client in self._leaving]
        self._listener.close()
        self._state.copier.close()
        if all(ended):
            try:
                self._device.close(timeout=0.2)
            except RegionBusy:
                ended.append(False)
        os.close(self._state.wake_fd)
        return all(ended)


def default_memory() -> int:
    """Return half of the memory that this process may use, in bytes: see `meminfo.total_bytes`."""
    return total_bytes() // 2
