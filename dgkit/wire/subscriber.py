"""Subscription to an agent's telemetry: a SUB socket for the blocks of one monitor."""

from __future__ import annotations

import contextlib
import itertools
import threading
import time
from collections import deque

import zmq

from ..errors import ClosedError, PeerError, PeerTimeout
from .address import Address
from .liveness import Liveness, connection_error, endless
from .messages import MAX_BLOCK
from .sockets import TELEMETRY_HWM, readable, set_client_curve, set_keepalive

_SLICE_S = 0.05  # maximum time that close() waits for wait_connected()
_BATCH = 200  # messages received per call: 10 s of blocks, about 100 us
_EVENTS = (
    zmq.EVENT_CONNECTED
    | zmq.EVENT_HANDSHAKE_SUCCEEDED
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
        self._liveness = Liveness(address.endpoint)
        self._arrived: deque[bytes] = deque(maxlen=TELEMETRY_HWM)
        self._received = 0
        self._error: PeerError | None = None
        self._socket = context.socket(zmq.SUB)
        self._monitor = context.socket(zmq.PAIR)
        try:
            self._configure(identity, address)
            self._socket.subscribe(topic)
            self._socket.connect(address.endpoint)
        except BaseException:
            self.close()
            raise

    def _configure(self, identity: tuple[str, str] | None, address: Address) -> None:
        sock = self._socket
        sock.linger = self._monitor.linger = 0
        sock.rcvhwm = TELEMETRY_HWM
        sock.maxmsgsize = MAX_BLOCK
        if identity is not None:
            # No heartbeats: the queue has a limit, see listener.py, _REQUESTS_HWM.
            set_keepalive(sock)
            set_client_curve(sock, identity, address.key)
        name = f"inproc://dgkit-subscriber-{next(_serial)}"
        sock.monitor(name, _EVENTS)
        self._monitor.rcvhwm = 0  # unlimited: else libzmq's thread blocks until its events are read
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
        liveness = self._liveness
        while not liveness.connected:
            error = self._step(deadline - time.monotonic())
            if error is not None:
                raise error
            if not liveness.connected and time.monotonic() >= deadline:
                raise PeerTimeout(
                    f"the agent's telemetry socket at {self._endpoint} did not answer within "
                    f"{timeout} s: let a firewall or a tunnel pass this port, too"
                )

    def _step(self, left: float) -> Exception | None:
        """Wait a short time for an event of the connection; return the error that ended it."""
        with self._lock:
            if self._closed or self._error is not None:
                return self._error or ClosedError("the session is closed")
            self._monitor.poll(int(1000 * min(_SLICE_S, max(0.0, left))))
            return connection_error(self._monitor, self._liveness)

    def take(self) -> list[bytes]:
        """Return the messages that have arrived, at most 200 per call, without waiting.

        Raises:
            PeerError: The agent sends an endless message; all messages before it were returned.
        """
        with self._lock:
            if len(self._arrived) < _BATCH:
                self._receive(_BATCH - len(self._arrived))
            if self._error is not None and not self._arrived:
                raise self._error.with_traceback(None)
            return [self._arrived.popleft() for _ in range(min(_BATCH, len(self._arrived)))]

    def _receive(self, most: int) -> None:
        with contextlib.suppress(zmq.Again):  # the connection ended, and its last message with it
            while most and not self._socket.closed and readable(self._socket):
                self._arrived.append(self._socket.recv(zmq.NOBLOCK))
                self._received += 1
                most -= 1

    def end_endless(self) -> None:
        """Close the connection if the agent sends a message without end.

        Call this when the memory of this process has grown. It receives the messages that have
        arrived; the oldest of these are dropped if take() is not called.
        """
        with self._lock:
            if self._socket.closed:
                return
            self._receive(2 * TELEMETRY_HWM)
            connection_error(self._monitor, self._liveness)  # sets the stream of a new connection
            stream = self._liveness.stream
            if stream is not None and stream.is_endless(self._received):
                self._error = endless(self._endpoint)
                self._close()

    def close(self) -> None:
        """Close the connection. Idempotent."""
        self._closed = True  # before the lock, so that wait_connected() does not take it again
        with self._lock:
            self._close()

    def _close(self) -> None:
        if not self._socket.closed:
            self._socket.monitor(None, 0)
        self._socket.close(linger=0)
        self._monitor.close(linger=0)
