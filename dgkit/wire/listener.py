"""The agent's end of the wire: a ROUTER socket that knows which client is which, and who went.

A connection is known by its fd at the agent: libzmq stamps it on each message (ZMQ_SRCFD) and names
it in the monitor's ACCEPTED and DISCONNECTED events. An fd number comes back into use, so a client
is tied to its fd when its Hello is read, after the monitor was read dry. Should the client have
died by then, the tie may be to its successor; but it can own nothing, because what it may ask for
starts with a number that only the reply to Hello tells.
"""

from __future__ import annotations

import contextlib
import itertools
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import zmq

from ..errors import NativeError
from . import keys as keyring
from .address import Address, claimed, fresh, parse
from .messages import MAX_REQUEST

__all__ = ["HEARTBEAT_MS", "HEARTBEAT_TIMEOUT_MS", "Caller", "Listener", "fd_of"]
__all__ += ["WAITING_BLOCKS", "readable", "z85_of"]

# A dead or stopped side of a TCP connection is noticed within 0.9 s: libzmq's I/O thread asks and
# answers, whatever Python does. A local side needs none: its kernel closes the socket when it dies.
HEARTBEAT_MS = 300
HEARTBEAT_TIMEOUT_MS = 600
WAITING_BLOCKS = 1000  # of telemetry, at either end of a connection; what comes then is lost
_HANDSHAKE_MS = 2000  # libzmq allows 30 s to a client that never finishes its handshake
_ZAP = "inproc://zeromq.zap.01"  # ZAP, https://rfc.zeromq.org/spec/27
_EVENTS = zmq.EVENT_ACCEPTED | zmq.EVENT_DISCONNECTED
_POLLIN = int(zmq.POLLIN)
_serial = itertools.count()


@dataclass(frozen=True, slots=True)
class Caller:
    """Where a Hello came from. `pid` is 0 if it came over the network."""

    fd: int
    pid: int
    uid: int


class Listener:
    """Binds at once. One thread uses it."""

    def __init__(self, address: str | None, keys: str | None) -> None:
        self._wanted = parse(address) if address else fresh()
        self._pair = keyring.load(keys or "default") if self._wanted.tcp else None
        self._live: set[int] = set()
        self._gone: list[int] = []
        self._files: list[tuple[Path, int]] = []
        self.context = zmq.Context()
        self._open: list[zmq.Socket[bytes]] = []
        try:
            self._zap = self._bind_zap() if self._pair else None
            self.router = self._socket(zmq.ROUTER)
            self._monitor = self._watch(self.router)
            self.address = self._bind(self.router, self._wanted)
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
        sock.handshake_ivl = _HANDSHAKE_MS
        if self._pair:
            sock.heartbeat_ivl = HEARTBEAT_MS
            sock.heartbeat_timeout = HEARTBEAT_TIMEOUT_MS
            sock.curve_server = True
            sock.curve_secretkey = z85_of(self._pair.secret)
            sock.zap_domain = b"dgkit"
        return sock

    def _bind(self, sock: zmq.Socket[bytes], wanted: Address) -> Address:
        path = wanted.path
        with claimed(path) if path is not None else contextlib.nullcontext():
            try:
                sock.bind(wanted.endpoint)
            except zmq.ZMQError as exc:
                raise NativeError(exc.errno, f"cannot listen at {wanted.endpoint}: {exc}") from exc
            if path is not None:
                self._files.append((path, path.lstat().st_ino))
        endpoint = sock.getsockopt_string(zmq.LAST_ENDPOINT)
        return Address(endpoint, self._pair.public if self._pair else "")

    def _watch(self, sock: zmq.Socket[bytes]) -> zmq.Socket[bytes]:
        name = f"inproc://dgkit-agent-{next(_serial)}"
        sock.monitor(name, _EVENTS)
        monitor = self.context.socket(zmq.PAIR)
        self._open.append(monitor)
        monitor.linger = 0
        monitor.connect(name)
        return monitor

    def _bind_zap(self) -> zmq.Socket[bytes]:
        zap = self.context.socket(zmq.ROUTER)
        self._open.append(zap)
        zap.linger = 0
        zap.bind(_ZAP)
        return zap

    def publisher(self) -> tuple[zmq.Socket[bytes], Address]:
        """A PUB socket beside the ROUTER, under the same keys, at a free address of its kind."""
        sock = self._socket(zmq.PUB)
        sock.sndhwm = WAITING_BLOCKS
        wanted = fresh()
        if self._wanted.tcp:
            wanted = Address(self._wanted.endpoint.rpartition(":")[0] + ":0")
        return sock, self._bind(sock, wanted)

    def sockets(self) -> list[zmq.Socket[bytes]]:
        """What to poll for reading."""
        return [self.router, self._monitor, *([self._zap] if self._zap else [])]

    def service(self) -> list[int]:
        """Answers handshakes, and returns the fds of clients that went since the last call."""
        if self._zap is not None:
            self._authenticate(self._zap)
        for event, fd in _events(self._monitor):
            if event == zmq.EVENT_ACCEPTED:
                self._live.add(fd)
            else:
                self._live.discard(fd)
                self._gone.append(fd)
        gone, self._gone = self._gone, []
        return gone

    def caller(self, frame: zmq.Frame) -> Caller | None:
        """Who sent this frame; None if that connection is gone. Call service() right before."""
        fd = int(frame.get(zmq.SRCFD))
        if fd not in self._live:
            return None
        if self._pair:
            return Caller(fd, 0, -1)
        uid, _, pid = str(frame.get("Peer-Address")).split(":")[1:4]  # SO_PEERCRED, by libzmq
        return Caller(fd, int(pid), int(uid))

    def _authenticate(self, zap: zmq.Socket[bytes]) -> None:
        for frames in _drain(zap):
            route, empty, version, request_id, *_, mechanism = frames[:8]
            known = keyring.allowed() if mechanism == b"CURVE" and len(frames) == 9 else {}
            key = frames[8].hex() if len(frames) == 9 else ""
            verdict = (b"200", b"OK") if key in known else (b"400", b"key is not allowed")
            zap.send_multipart([route, empty, version, request_id, *verdict, key.encode(), b""])

    def close(self) -> None:
        """Closes the sockets, ends libzmq's threads, and removes the files of the sockets."""
        for sock in self._open:
            sock.close(linger=0)
        self.context.term()
        for path, inode in self._files:
            with contextlib.suppress(FileNotFoundError):  # somebody removed it
                if path.lstat().st_ino == inode:  # else another's is there by now
                    path.unlink()


def _events(monitor: zmq.Socket[bytes]) -> Iterator[tuple[int, int]]:
    for frames in _drain(monitor):
        event, value = struct.unpack("=Hi", frames[0])  # zmq_socket_monitor(3)
        yield event, value


def _drain(sock: zmq.Socket[bytes]) -> Iterator[list[bytes]]:
    while readable(sock):
        yield sock.recv_multipart()


def readable(sock: zmq.Socket[bytes]) -> bool:
    """Whether a message is there."""
    events = sock.get(zmq.EVENTS)
    assert isinstance(events, int)
    return bool(events & _POLLIN)


def fd_of(sock: zmq.Socket[bytes]) -> int:
    """The descriptor that tells of news (ZMQ_FD), edge by edge."""
    fd = sock.get(zmq.FD)
    assert isinstance(fd, int)
    return fd


def z85_of(hexed: str) -> bytes:
    """A key as libzmq takes it."""
    from zmq.utils import z85

    return z85.encode(bytes.fromhex(hexed))
