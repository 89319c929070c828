"""The agent: one loop that serves one side, the host's memory or the DPU, to any number of clients.

The loop itself does what takes microseconds: it decodes, moves small data inline, answers. What may
take longer (a large copy, an import, a measurement) runs in the client's lanes, whose replies come
back through the outbox. A client's moves and frees keep their order; what it allocates, imports,
measures and monitors runs beside them.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import msgspec
import zmq

from ..dma import Device
from ..dpu.copier import Mover
from ..errors import DgkitError, PeerError, RegionBusy
from ..wire import address as addresses
from ..wire.error_codec import to_wire
from ..wire.listener import Listener
from ..wire.messages import Block, Bye, Done, Hello, Moved, decode_request, encode, number_of
from ..wire.wakeup import Wakeup
from .client import SMALL, Client, MemoryLimit
from .handlers import Handlers
from .handshake import check_hello, welcome
from .telemetry import Sampled, Telemetry
from .worker import Lane

if TYPE_CHECKING:
    from ..dma import FaultRule

__all__ = ["Agent", "default_memory"]

_RCVMORE = int(zmq.RCVMORE)
_PART = int(zmq.SNDMORE | zmq.NOBLOCK)
_LAST = int(zmq.NOBLOCK)
_CLIENTS = 256
_END_S = 0.5  # for the lanes to end, of the second in which an agent must be gone


class Agent:
    """Binds and opens its device at once; run() serves until stop()."""

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
        watch_fd: int = -1,
        signal_fd: int = -1,
    ) -> None:
        if role not in ("dpu", "host"):
            raise ValueError(f"role is {role!r}; it must be 'dpu' or 'host'")
        addresses.sweep()
        self.role = role
        self.listener = Listener(address, keys)
        with contextlib.ExitStack() as undo:
            undo.callback(self.listener.close)
            self.device = Device(provider, rules=rules, gpu=gpu, pci=pci)
            undo.callback(self.device.close)
            self.mover = Mover(self.device, chunk=SMALL, op_timeout=1.0)
            undo.pop_all()
        self.limit = MemoryLimit(max_memory or default_memory())
        self.inline = not rules and provider != "fault"  # an injected fault may hold up the loop
        self.telemetry: Telemetry | None = None
        self.counters = dict.fromkeys(("moves", "bytes", "jobs", "failed", "lost_replies"), 0)
        self.started_ns = time.monotonic_ns()
        self.clients: dict[bytes, Client] = {}
        self._by_fd: dict[int, bytes] = {}
        self._leaving: list[Client] = []
        self._outbox: deque[tuple[Client, Any]] = deque()
        self._watch_fd = watch_fd
        self._signal_fd = signal_fd
        self._wake = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self._stop = False
        self._handlers = Handlers(self).table()

    @property
    def endpoint(self) -> str:
        """The address that connect() takes."""
        return str(self.listener.address)

    def stop(self) -> None:
        """Ends run(). From any thread and from a signal handler."""
        self._stop = True
        os.eventfd_write(self._wake, 1)

    def send(self, client: Client, message: Any) -> None:
        """From a lane: the loop sends it."""
        self._outbox.append((client, message))
        os.eventfd_write(self._wake, 1)

    def moved(self, client: Client, reply: Moved) -> None:
        """Counts a Move that succeeded; only the loop calls it, before the client hears of it."""
        self.counters["moves"] += 1
        self.counters["bytes"] += reply.size
        client.moved += 1
        client.moved_bytes += reply.size

    def run(self) -> None:
        """Serves until stop(), or until the watched fd ends."""
        router = self.listener.router
        recv, clients = router.recv, self.clients
        with Wakeup(self.listener, (self._wake, self._signal_fd), self._watch_fd):
            while not self._stop:
                try:
                    route = recv()
                except zmq.Again:  # only with telemetry
                    self._rest(Wakeup.EVENT)
                    continue
                client = clients.get(route)
                if client is None:
                    self._receive(route, router)
                    continue
                body = recv()
                if router.get(_RCVMORE):
                    self._skip(router)
                    self._reply(route, to_wire(PeerError("a message of several parts"), 0))
                else:
                    self._serve(client, body)

    def _receive(self, route: bytes, router: zmq.Socket[bytes]) -> None:
        """From a route that is no client: the watcher's news, or a Hello."""
        frame = router.recv(copy=False)
        several = self._skip(router)
        if route == Wakeup.ROUTE:
            self._rest(frame.bytes)
            return
        error: Exception = PeerError("a message of several parts")
        if not several:
            try:
                self._greet(route, frame)
                return
            except DgkitError as exc:
                error = exc
            except (msgspec.DecodeError, RecursionError) as exc:
                error = PeerError(f"the first message must be Hello: {exc}")
        self._reply(route, to_wire(error, 0))

    def _skip(self, router: zmq.Socket[bytes]) -> bool:
        """Reads the rest of a message of several parts; ours have one."""
        several = False
        while router.get(_RCVMORE):
            router.recv()
            several = True
        return several

    def _rest(self, news: bytes) -> None:
        for fd in self.listener.service():
            self._drop(self._by_fd.pop(fd, b""))
        if news == Wakeup.PARENT_EXIT:
            self._stop = True
        self._flush()
        if self.telemetry is not None:
            self.telemetry.flush()

    def _greet(self, route: bytes, frame: zmq.Frame) -> None:
        hello = decode_request(frame.bytes)
        if not isinstance(hello, Hello):
            raise PeerError("the first message must be Hello")
        check_hello(hello, len(self.clients) >= _CLIENTS)
        for fd in self.listener.service():
            self._drop(self._by_fd.pop(fd, b""))
        caller = self.listener.caller(frame)
        if caller is None:
            return
        self._drop(self._by_fd.get(caller.fd, b""))
        client = Client(route, caller, int.from_bytes(os.urandom(6), "little"), self.limit)
        self.clients[route] = client
        self._by_fd[caller.fd] = route
        self._reply(route, welcome(self, client.next_id, hello.id))

    def _serve(self, client: Client, body: bytes) -> None:
        number = 0
        try:
            client.admit()
            try:
                request = decode_request(body)
            except (msgspec.DecodeError, RecursionError) as exc:
                number = number_of(body, client.next_id)
                client.next_id = max(client.next_id, number + 1)
                raise PeerError(f"the agent cannot read this request: {exc}") from exc
            number = request.id
            if number < client.next_id:
                number = 0
                raise PeerError("a request whose number is not its own")
            client.next_id = number + 1
            if type(request) is Bye:
                self._leave(client, number)
                return
            reply = self._handlers[type(request)](client, request)
        except (DgkitError, ValueError, OSError) as exc:
            self.counters["failed"] += 1
            reply = to_wire(exc, number)
        if reply is not None:
            self._reply(client.route, reply)

    def job(self, client: Client, lane: Lane, request: Any, work: Callable[[], Any]) -> None:
        """Runs `work` in a lane of the client and sends what it returns or raises."""
        self.counters["jobs"] += 1

        def run() -> None:
            try:
                reply = work()
            except Exception as exc:  # the client gets it, whatever it is
                reply = to_wire(exc, request.id)
            client.active.discard(request.id)
            client.cancelled.discard(request.id)
            lane.finished()
            self.send(client, reply)

        client.active.add(request.id)
        try:
            lane.submit(run)
        except DgkitError:
            client.active.discard(request.id)
            raise

    def _flush(self) -> None:
        while self._outbox:
            client, message = self._outbox.popleft()
            if type(message) is Sampled:
                assert self.telemetry is not None
                self.telemetry.send(message)
                continue
            if type(message) is Moved:
                self.moved(client, message)
            self._reply(client.route, message)
            if self.telemetry is not None and isinstance(message, Block):
                self.telemetry.publish("latency", message.samples)
        self._leaving = [client for client in self._leaving if not client.control.join(0.0)]

    def _reply(self, route: bytes, message: Any) -> None:
        router = self.listener.router
        try:
            router.send(route, _PART)
            router.send(encode(message), _LAST)
        except zmq.Again:  # a client that does not read loses its replies
            self.counters["lost_replies"] += 1

    def _drop(self, route: bytes) -> None:
        client = self.clients.get(route)
        if client is not None:
            self._leave(client, None)

    def _leave(self, client: Client, bye: int | None) -> None:
        del self.clients[client.route]
        self._by_fd.pop(client.caller.fd, None)
        self._leaving.append(client)
        client.leave(None if bye is None else lambda: self.send(client, Done(bye)))

    def close(self) -> bool:
        """Ends the lanes, frees all, removes the socket. False: a lane did not end in time."""
        for route in list(self.clients):
            self._drop(route)
        deadline = time.monotonic() + _END_S
        ended = [client.control.join(deadline - time.monotonic()) for client in self._leaving]
        self.listener.close()
        self.mover.close()
        if all(ended):
            try:
                self.device.close(timeout=0.2)
            except RegionBusy:  # another process is in a transfer with memory of this one
                ended.append(False)
        os.close(self._wake)
        return all(ended)


def default_memory() -> int:
    """Half of the machine's memory, in bytes."""
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 2
