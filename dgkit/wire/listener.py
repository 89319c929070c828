# SPDX-License-Identifier: Apache-2.0
"""The agent's end of the wire: a ROUTER socket that tracks which client each connection belongs to.

A connection is identified by its fd at the agent: libzmq sets it on each message (ZMQ_SRCFD) and
reports it in the monitor's ACCEPTED and DISCONNECTED events. fd numbers are reused, so a client is
bound to its fd when its Hello is read, after all pending monitor events, and only if libzmq accepts
the reply for the connection: one that has ended may have a successor with its fd.
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import zmq

from ..errors import NativeError
from ..files import check_descriptors
from ..threads import check_threads
from . import keys as keyring
from .acceptor import HELLO_S, Acceptor, Arrivals
from .address import HEARTBEAT_S, Address, check_heartbeat, claimed, fresh, parse
from .messages import MAX_REQUEST
from .sockets import PUBLISHED_HWM, drain, set_heartbeat, set_keepalive, z85_of

# libzmq's threads, as bits of ZMQ_AFFINITY: a flood on the publisher must not delay requests. Never
# two threads for one socket: the monitor could then report a connection's end before its start.
_ROUTER_THREAD, _PUBLISHER_THREAD = 1, 2
_THREADS = 2
_DESCRIPTORS = 48  # more than those of its sockets
_ZAP = "inproc://zeromq.zap.01"  # ZAP, https://rfc.zeromq.org/spec/27
CONNECTIONS = 320  # at a time, to each of the two sockets
_SEND_BUFFER = 256 << 10  # bytes of one connection's replies in the kernel
_RECEIVE_BUFFER = 128 << 10  # likewise for requests, which are read even after the connection ends
_REPLIES_HWM = 64  # for each connection; more wait in the agent, which limits their bytes
# No limit, since libzmq 4.3.5 may abort the process when a connection ends that it has stopped
# reading (stream_engine_base.cpp: a heartbeat calls out_event() without checking _io_error; one of
# the peer's does, too, so heartbeat_ivl=0 does not help). inflow.py limits what is not taken yet.
_REQUESTS_HWM = 0
_MAX_SUBSCRIPTION = 1024  # bytes; CURVE's INITIATE command has up to 500
_PART, _LAST = int(zmq.SNDMORE | zmq.NOBLOCK), int(zmq.NOBLOCK)
_ROUTER, _PUBLISHER = b"dgkit", b"dgkit telemetry"  # domains of ZAP
_MAX_HANDSHAKES = 4  # answered at once, about 0.5 ms, while requests wait
_serial = itertools.count()


@dataclass(frozen=True, slots=True)
class Caller:
    """Sender of a message.

    `fd` is its connection, `pid` and `uid` its process and user by SO_PEERCRED (0 and -1 over
    tcp://), `key` its public key (empty over ipc://).
    """

    fd: int
    pid: int
    uid: int
    key: str = ""

    @property
    def owner(self) -> str:
        """Key or user that the connection belongs to."""
        return owner_of(self.key) if self.key else f"user {self.uid}"


class Listener:
    """ROUTER socket of an agent, bound when it is created. Not thread-safe.

    Args:
        address: Where to listen; None picks a new socket in the runtime folder.
        keys: Name of the agent's key pair, for tcp://; None is "default".
        connections: Maximum number of connections at a time.
        stop_fds: Descriptors that are readable when the agent is to end; negative ones are ignored.
        telemetry_port: Port of the publisher, over tcp://; 0: a free one.
        heartbeat: Seconds without an answer after which a connection ends, over tcp://; the address
            says so to the other side.

    Attributes:
        is_refused: Called with an owner (see Caller), and whether it connects to the publisher;
            returns whether the connection is refused. The first that are refused after a flood may
            connect to the router, and get the reason in the reply to Hello.
        on_error: Called with a place and an exception for each handshake that could not be checked.
        keys_allowed: Number of allowed keys at the latest handshake; 0 over ipc://.
        arrivals: Bytes that arrive at any of its connections.
        behind: Latest calls of service() in a row that left handshakes or events of connections;
            unless it is 0, service() is to be called again.

    Raises:
        NativeError: The address is in use or cannot be bound.
        ValueError: `telemetry_port` or `heartbeat` is given with ipc://, or is out of bounds.
    """

    def __init__(
        self,
        address: str | None,
        keys: str | None,
        connections: int = CONNECTIONS,
        stop_fds: Sequence[int] = (),
        telemetry_port: int = 0,
        heartbeat: float = HEARTBEAT_S,
    ) -> None:
        self._requested = parse(address) if address else fresh()
        self._heartbeat = check_heartbeat(heartbeat)
        self._hello_s = max(HELLO_S, heartbeat)
        if heartbeat != HEARTBEAT_S and not self._requested.tcp:
            raise ValueError(f"heartbeat={heartbeat} is for tcp://, not for ipc://")
        if telemetry_port and not self._requested.tcp:
            raise ValueError(f"telemetry_port={telemetry_port} is for tcp://, not for ipc://")
        self._telemetry_port = telemetry_port
        self._pair = keyring.load(keys or "default") if self._requested.tcp else None
        self._allowed = keyring.AllowedKeys()
        self.is_refused: Callable[[str, bool], bool] = _never
        self.on_error: Callable[[str, Exception], None] = _ignore
        self.keys_allowed = 0
        self._connections = connections
        self._stop_fds = stop_fds
        self._acceptors: list[Acceptor] = []  # of the router, then of the publisher
        self._files: list[tuple[Path, int]] = []
        self.arrivals = Arrivals()
        self.behind = 0
        check_descriptors("an agent", _DESCRIPTORS)
        check_threads("an agent", _THREADS + 1)
        self.context = zmq.Context(_THREADS)
        self._open: list[zmq.Socket[bytes]] = []
        try:
            self._zap = self._bind_zap() if self._pair else None
            self.router = self._socket(zmq.ROUTER)
            self.router.affinity = _ROUTER_THREAD
            self.router.rcvhwm, self.router.sndhwm = _REQUESTS_HWM, _REPLIES_HWM
            self.router.sndbuf, self.router.rcvbuf = _SEND_BUFFER, _RECEIVE_BUFFER
            self.router.router_mandatory = True  # a reply that cannot be routed is an error
            self.address = self._bind(self.router, self._requested)
            self.inside = f"inproc://dgkit-inside-{next(_serial)}"
            self.router.bind(self.inside)
        except BaseException:
            self.close()
            raise

    def _socket(self, kind: int) -> zmq.Socket[bytes]:
        sock = self.context.socket(kind)
        self._open.append(sock)
        sock.linger = 0
        sock.maxmsgsize = MAX_REQUEST
        sock.handshake_ivl = int(1000 * self._hello_s)
        if self._pair:
            set_heartbeat(sock, self._heartbeat)
            sock.curve_server = True
            sock.curve_secretkey = z85_of(self._pair.secret)
            sock.zap_domain = _ROUTER  # publisher() replaces it
        return sock

    def _bind(self, sock: zmq.Socket[bytes], address: Address) -> Address:
        path = address.path
        name = f"inproc://dgkit-agent-{next(_serial)}"
        acceptor = Acceptor(sock, name, self._connections, self._hello_s, self.arrivals)
        self._open.append(acceptor.monitor)
        self._acceptors.append(acceptor)
        # No other process claims the publisher's new name, and nothing may delay the agent's loop.
        is_shared = path is not None and address is self._requested
        with claimed(path, self._stop_fds) if is_shared and path else contextlib.nullcontext():
            try:
                sock.bind(address.endpoint)
            except zmq.ZMQError as exc:
                raise NativeError(exc.errno, f"cannot listen at {address.endpoint}: {exc}") from exc
            if path is not None:
                self._files.append((path, path.lstat().st_ino))
                acceptor.service()  # reads that the socket listens, before the first connection
        endpoint = sock.getsockopt_string(zmq.LAST_ENDPOINT)
        return Address(endpoint, self._pair.public if self._pair else "", self._heartbeat)

    def _bind_zap(self) -> zmq.Socket[bytes]:
        zap = self.context.socket(zmq.ROUTER)
        self._open.append(zap)
        zap.linger = 0
        zap.bind(_ZAP)
        return zap

    def publisher(self) -> tuple[zmq.Socket[bytes], Address]:
        """Return a ROUTER socket for telemetry, with the same keys, and its address.

        The address has the same transport. The size of subscriptions is bounded.
        """
        sock = self._socket(zmq.ROUTER)
        try:
            sock.router_mandatory = True
            sock.zap_domain = _PUBLISHER
            sock.affinity = _PUBLISHER_THREAD
            sock.maxmsgsize = _MAX_SUBSCRIPTION
            sock.rcvhwm = _REQUESTS_HWM
            sock.heartbeat_ivl = 0  # a client's requests have them
            set_keepalive(sock)
            sock.sndhwm = PUBLISHED_HWM
            address = fresh()
            if self._requested.tcp:
                host = self._requested.endpoint.rpartition(":")[0]
                address = Address(f"{host}:{self._telemetry_port}")
            return sock, self._bind(sock, address)
        except BaseException:
            self._discard(sock)
            raise

    def _discard(self, sock: zmq.Socket[bytes]) -> None:
        for acceptor in self._acceptors[1:]:
            sock.monitor(None, 0)
            acceptor.monitor.close(linger=0)
            acceptor.close()
            self._open.remove(acceptor.monitor)
        del self._acceptors[1:]
        self._open.remove(sock)
        sock.close(linger=0)

    def sockets(self) -> list[zmq.Socket[bytes]]:
        """Return the sockets to poll for reading."""
        return [self.router, self._acceptors[0].monitor, *([self._zap] if self._zap else [])]

    @property
    def client_exit_fd(self) -> int:
        """Return a descriptor that is readable when the process of a client has ended."""
        return self._acceptors[0].ends.fileno()

    def service(self, *, every: bool = False) -> tuple[list[int], list[int]]:
        """Answer handshakes; return the fds of the connections that ended since the last call.

        Args:
            every: Handle all events of connections; otherwise a bounded number, see `behind`.

        Returns:
            The fds of clients' connections, and those of connections to the publisher.
        """
        handshakes = self._authenticate(self._zap) if self._zap is not None else 0
        ended = [acceptor.service(every=every) for acceptor in self._acceptors]
        left = handshakes == _MAX_HANDSHAKES or any(each.behind for each in self._acceptors)
        self.behind = self.behind + 1 if left else 0
        return ended[0], [fd for fds in ended[1:] for fd in fds]

    @property
    def waiting(self) -> bool:
        """Return whether service() must run within a second even without an event. Thread-safe."""
        return any(acceptor.waiting for acceptor in list(self._acceptors))

    @property
    def connected(self) -> bool:
        """Return whether any connection exists. Thread-safe."""
        return any(map(len, list(self._acceptors)))

    def end_floods(self, taken: Callable[[int], int]) -> list[int]:
        """Shut down the connections that sent too much that is not taken yet.

        Args:
            taken: Maps the descriptor of a client's connection to the bytes of its messages that
                were taken.

        Returns:
            Those to the router.
        """
        for acceptor in self._acceptors[1:]:
            acceptor.end_floods(_no_message)
        return self._acceptors[0].end_floods(taken)

    def admit(self, fd: int, pid: int = 0) -> None:
        """Exempt the connection of an admitted client from the deadline for a Hello.

        Args:
            fd: The connection.
            pid: Process with which the connection ends; 0: none.
        """
        self._acceptors[0].admit(fd, pid)

    def disconnect(self, fd: int) -> None:
        """End the connection of a client."""
        self._acceptors[0].disconnect(fd)

    def admit_subscriber(self, fd: int) -> None:
        """Exempt a connection to the publisher from the deadline for a subscription."""
        self._acceptors[-1].admit(fd)

    def refuse_subscriber(self, sender: Caller) -> None:
        """End the connection to the publisher that a message names; see Acceptor.refuse()."""
        self._acceptors[-1].refuse(sender.fd, sender.pid)

    def subscriptions_read(self) -> None:
        """Record that the publisher has no more messages."""
        self._acceptors[-1].messages_read()

    def caller(self, frame: zmq.Frame) -> Caller | None:
        """Return the sender of a frame, or None if its connection has ended.

        Call service(every=True) immediately before.
        """
        sender = self.sender(frame)
        return sender if sender.fd in self._acceptors[0] else None

    def sender(self, frame: zmq.Frame) -> Caller:
        """Return the sender of a frame, whose connection may have ended."""
        fd = int(frame.get(zmq.SRCFD))
        if self._pair:
            return Caller(fd, 0, -1, str(frame.get("User-Id")))
        uid, _, pid = str(frame.get("Peer-Address")).split(":")[1:4]  # SO_PEERCRED, by libzmq
        return Caller(fd, int(pid), int(uid))

    def _authenticate(self, zap: zmq.Socket[bytes]) -> int:
        """Answer a bounded number of handshakes, and return it."""
        handshakes = list(itertools.islice(drain(zap), _MAX_HANDSHAKES))
        known = self._known_keys() if handshakes else None
        for frames in handshakes:
            route, empty, version, request_id, domain, *_, mechanism = frames[:8]
            key = frames[8].hex() if len(frames) == 9 and mechanism == b"CURVE" else ""
            verdict = self._verdict(domain, key, known)
            for frame in (route, empty, version, request_id, *verdict, key.encode()):
                zap.send(frame, _PART)
            zap.send(b"", _LAST)
        return len(handshakes)

    def _known_keys(self) -> dict[str, str] | None:
        """Return the allowed keys, or None if they cannot be read."""
        try:
            known = self._allowed.read()
        except Exception as exc:  # the file or its folder is damaged: refuse, but keep running
            self.on_error("reading the allowed keys", exc)
            return None
        self.keys_allowed = len(known) or self.keys_allowed
        return known

    def _verdict(
        self, domain: bytes, key: str, known: dict[str, str] | None
    ) -> tuple[bytes, bytes]:
        """Return ZAP's status code and text for a client; `key` is empty if it has none."""
        if known is None:
            return b"500", b"the allowed keys cannot be read"
        if key not in known:
            return b"400", b"key is not allowed"
        if self.is_refused(owner_of(key), domain == _PUBLISHER):
            return b"400", b"key has flooded the agent"
        return b"200", b"OK"

    def close(self) -> None:
        """Close the sockets, end libzmq's threads and remove the socket files."""
        for sock in self._open:
            sock.close(linger=0)
        for acceptor in self._acceptors:
            acceptor.close()
        self.context.term()
        self.arrivals.close()
        for path, inode in self._files:
            with contextlib.suppress(FileNotFoundError):  # removed by another process
                if path.lstat().st_ino == inode:  # else a new agent listens there
                    path.unlink()


def _no_message(_fd: int) -> int:
    """Return what was taken from a connection to the publisher: 0, as subscriptions are few."""
    return 0


def owner_of(key: str) -> str:
    """Return the owner (see Caller) of the connections of a key."""
    return f"key {key}"


def _never(_owner: str, _publisher: bool) -> bool:
    """Return False: the default of Listener.is_refused."""
    return False


def _ignore(_place: str, _exc: Exception) -> None:
    """Ignore an exception: the default of Listener.on_error."""
