"""Subscription to an agent's telemetry: a SUB socket for the blocks of one monitor."""

from __future__ import annotations

import itertools
import threading
import time

import zmq

from ..errors import ClosedError, PeerTimeout
from .address import Address
from .liveness import Liveness, connection_error
from .messages import MAX_REPLY
from .sockets import TELEMETRY_HWM, readable, set_client_curve, set_heartbeat

__all__ = ["Subscriber"]

_SLICE_S = 0.05  # how long wait_connected() keeps close() waiting
_BATCH = 200  # messages received per call: 10 s of blocks, about 100 us
_EVENTS = (
    zmq.EVENT_HANDSHAKE_SUCCEEDED
    | zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL
    | zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL
    | zmq.EVENT_HANDSHAKE_FAILED_AUTH
)
_serial = itertools.count()


class Subscriber:
    """SUB socket that connects when it is created and reconnects by itself. Thread-safe."""

    def __init__(
        self,
        context: zmq.Context[zmq.Socket[bytes]],
        address: Address,
        identity: tuple[str, str] | None,
        topic: bytes,
    ) -> None:
        self._endpoint = address.endpoint
        self._lock = threading.Lock()
        self._closed = False
        self._socket = context.socket(zmq.SUB)
        self._monitor = context.socket(zmq.PAIR)
        try:
            self._configure(identity, address.key)
            self._socket.subscribe(topic)
            self._socket.connect(address.endpoint)
        except BaseException:
            self.close()
            raise

    def _configure(self, identity: tuple[str, str] | None, key: str) -> None:
        sock = self._socket
        sock.linger = self._monitor.linger = 0
        sock.rcvhwm = TELEMETRY_HWM
        sock.maxmsgsize = MAX_REPLY
        if identity is not None:
            set_heartbeat(sock)
            set_client_curve(sock, identity, key)
        name = f"inproc://dgkit-subscriber-{next(_serial)}"
        sock.monitor(name, _EVENTS)
        self._monitor.connect(name)

    def wait_connected(self, timeout: float) -> None:
        """Wait until the connection is established.

        Args:
            timeout: Seconds.

        Raises:
            PeerRefused: The agent refused the handshake.
            PeerTimeout: The publishing socket did not answer in time.
            ClosedError: Another thread closed the connection.
        """
        deadline = time.monotonic() + timeout
        liveness = Liveness(self._endpoint)
        while not liveness.connected:
            error = self._step(liveness, deadline - time.monotonic())
            if error is not None:
                raise error
            if not liveness.connected and time.monotonic() >= deadline:
                raise PeerTimeout(
                    f"the agent's telemetry socket at {self._endpoint} did not answer within "
                    f"{timeout} s: let a firewall or a tunnel pass this port, too"
                )

    def _step(self, liveness: Liveness, left: float) -> Exception | None:
        """Wait a short time for an event of the connection; return the error that ended it."""
        with self._lock:
            if self._closed:
                return ClosedError("the session is closed")
            self._monitor.poll(int(1000 * min(_SLICE_S, max(0.0, left))))
            error = connection_error(self._monitor, liveness)
            if liveness.connected:
                self._socket.monitor(None, 0)
            return error

    def take(self) -> list[bytes]:
        """Return the messages that have arrived, at most 200 per call, without waiting."""
        taken: list[bytes] = []
        with self._lock:
            while not self._socket.closed and len(taken) < _BATCH and readable(self._socket):
                taken.append(self._socket.recv(zmq.NOBLOCK))
        return taken

    def close(self) -> None:
        """Close the connection. Idempotent."""
        self._closed = True  # before the lock: wait_connected() does not take it again
        with self._lock:
            if not self._socket.closed:
                self._socket.monitor(None, 0)
            self._socket.close(linger=0)
            self._monitor.close(linger=0)
