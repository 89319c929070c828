"""The client's end of telemetry: a SUB socket for the blocks of one monitor."""

from __future__ import annotations

import itertools
import threading
import time

import zmq

from ..errors import PeerTimeout
from .address import Address
from .listener import HEARTBEAT_MS, HEARTBEAT_TIMEOUT_MS, WAITING_BLOCKS, readable, z85_of
from .liveness import Liveness, refused
from .messages import MAX_REPLY

__all__ = ["Feed"]

_BATCH = 200  # taken at once: 10 s of blocks, some 100 us
_EVENTS = (
    zmq.EVENT_HANDSHAKE_SUCCEEDED
    | zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL
    | zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL
    | zmq.EVENT_HANDSHAKE_FAILED_AUTH
)
_serial = itertools.count()


class Feed:
    """Connects at once; libzmq connects again should the connection break. Thread-safe."""

    def __init__(
        self,
        context: zmq.Context[zmq.Socket[bytes]],
        address: Address,
        identity: tuple[str, str] | None,
        topic: bytes,
    ) -> None:
        self._endpoint = address.endpoint
        self._lock = threading.Lock()
        self._socket = context.socket(zmq.SUB)
        self._monitor = context.socket(zmq.PAIR)
        try:
            self._set_up(identity, address.key)
            self._socket.subscribe(topic)
            self._socket.connect(address.endpoint)
        except BaseException:
            self.close()
            raise

    def _set_up(self, identity: tuple[str, str] | None, key: str) -> None:
        sock = self._socket
        sock.linger = self._monitor.linger = 0
        sock.rcvhwm = WAITING_BLOCKS
        sock.maxmsgsize = MAX_REPLY
        if identity is not None:
            sock.heartbeat_ivl = HEARTBEAT_MS
            sock.heartbeat_timeout = HEARTBEAT_TIMEOUT_MS
            sock.curve_publickey, sock.curve_secretkey = map(z85_of, identity)
            sock.curve_serverkey = z85_of(key)
        name = f"inproc://dgkit-feed-{next(_serial)}"
        sock.monitor(name, _EVENTS)
        self._monitor.connect(name)

    def join(self, timeout: float) -> None:
        """Waits until the connection stands. PeerRefused. PeerTimeout: nobody answers there."""
        deadline = time.monotonic() + timeout
        liveness = Liveness(self._endpoint)
        while not liveness.connected:
            self._monitor.poll(int(1000 * max(0.0, deadline - time.monotonic())))
            error = refused(self._monitor, liveness)
            if error is not None:
                raise error
            if not liveness.connected and time.monotonic() >= deadline:
                raise PeerTimeout(
                    f"nothing answers at {self._endpoint} within {timeout} s, where the agent "
                    "publishes samples: a firewall or a tunnel must let this one through, too"
                )
        self._socket.monitor(None, 0)

    def take(self) -> list[bytes]:
        """What has come, or some of it where much has; it never waits."""
        taken: list[bytes] = []
        with self._lock:
            while not self._socket.closed and len(taken) < _BATCH and readable(self._socket):
                taken.append(self._socket.recv(zmq.NOBLOCK))
        return taken

    def close(self) -> None:
        """Ends the connection. Again: nothing."""
        with self._lock:
            if not self._socket.closed:
                self._socket.monitor(None, 0)
            self._socket.close(linger=0)
            self._monitor.close(linger=0)
