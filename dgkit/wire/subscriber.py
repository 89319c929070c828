# SPDX-License-Identifier: Apache-2.0
"""Subscription to an agent's telemetry: a DEALER socket for the blocks of one monitor."""

from __future__ import annotations

import contextlib
import itertools
import threading
import time
from collections import deque

import zmq

from ..errors import ClosedError, PeerError, PeerTimeout, copy_of
from .address import Address
from .messages import MAX_BLOCK, TELEMETRY_HWM, Subscription, encode
from .peer_state import PeerState, connection_error, endless
from .sockets import readable, set_client_curve, set_keepalive

_SLICE_S = 0.05  # maximum time that close() waits for wait_subscribed()
_BATCH = 200  # messages received per call: 10 s of blocks, about 100 us
_TOP_UP = TELEMETRY_HWM // 2  # blocks read, after which the agent gets as much credit again
_EVENTS = (
    zmq.EVENT_CONNECTED
    | zmq.EVENT_DISCONNECTED
    | zmq.EVENT_HANDSHAKE_SUCCEEDED
    | zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL
    | zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL
    | zmq.EVENT_HANDSHAKE_FAILED_AUTH
)
_serial = itertools.count()


class Subscriber:
    """DEALER socket that connects and subscribes when it is created. Thread-safe.

    Its queue has no high-water mark, behind which libzmq may abort: see listener.py, _REQUESTS_HWM.
    Instead, the agent sends no more blocks than this side has granted it.

    Args:
        address: Address of the agent's telemetry socket.
        identity: The client's public and secret key in hex, for tcp://; None for ipc://.
        monitor: Number of the monitor whose blocks are received.
    """

    def __init__(
        self,
        context: zmq.Context[zmq.Socket[bytes]],
        address: Address,
        identity: tuple[str, str] | None,
        monitor: int,
    ) -> None:
        self._endpoint = address.endpoint
        self._number = monitor
        self._lock = threading.Lock()
        self._closed = False
        self._peer_state = PeerState(address.endpoint)
        self._arrived: deque[bytes] = deque()
        self._received = 0  # messages: SUBSCRIBED, then blocks
        self._credit = TELEMETRY_HWM  # blocks that the agent may still send
        self._read = 0  # blocks returned by take() since the latest grant
        self._error: Exception | None = None
        self._socket = context.socket(zmq.DEALER)
        self._monitor = context.socket(zmq.PAIR)
        try:
            self._configure(identity, address)
            self._socket.connect(address.endpoint)
            self._grant(TELEMETRY_HWM)
        except BaseException:
            self.close()
            raise

    def _configure(self, identity: tuple[str, str] | None, address: Address) -> None:
        sock = self._socket
        sock.linger = self._monitor.linger = 0
        sock.rcvhwm = 0
        sock.maxmsgsize = MAX_BLOCK
        sock.reconnect_ivl = -1  # never: the end of the connection ends the monitor
        if identity is not None:
            set_keepalive(sock)
            set_client_curve(sock, identity, address.key)
        name = f"inproc://dgkit-subscriber-{next(_serial)}"
        sock.monitor(name, _EVENTS)
        self._monitor.rcvhwm = 0  # unlimited: else libzmq's thread blocks until its events are read
        self._monitor.connect(name)

    def _grant(self, blocks: int) -> None:
        """Subscribe, or let the agent send more blocks."""
        with contextlib.suppress(zmq.Again):  # the connection has ended
            credit = Subscription(monitor=self._number, credit=blocks)
            self._socket.send(encode(credit), zmq.NOBLOCK)

    def wait_subscribed(self, timeout: float) -> None:
        """Wait until the agent has noted the subscription: it sends all blocks from now on.

        Args:
            timeout: Seconds.

        Raises:
            PeerRefused: The agent refused the handshake.
            PeerLost: The agent ended the connection.
            PeerTimeout: The publishing socket did not answer in time.
            ClosedError: Another thread closed the connection.
        """
        deadline = time.monotonic() + timeout
        while not self._received:
            error = self._step(deadline - time.monotonic())
            if error is not None:
                raise error
            if not self._received and time.monotonic() >= deadline:
                raise PeerTimeout(
                    f"the agent's telemetry socket at {self._endpoint} did not answer within "
                    f"{timeout} s: let a firewall or a tunnel pass this port, too"
                )

    def _step(self, left: float) -> Exception | None:
        """Wait briefly for the reply or an event; return the error that ended the connection."""
        with self._lock:
            if self._closed or self._error is not None:
                return self._error or ClosedError("the session is closed")
            poller = zmq.Poller()
            poller.register(self._socket, zmq.POLLIN)
            poller.register(self._monitor, zmq.POLLIN)
            poller.poll(int(1000 * min(_SLICE_S, max(0.0, left))))
            self._receive(1)
            return None if self._received else connection_error(self._monitor, self._peer_state)

    def take(self) -> list[bytes]:
        """Return the blocks that have arrived, at most 200 per call, without waiting.

        Raises:
            PeerError: The agent sends an endless message, or too many blocks; all blocks before it
                were returned.
            PeerLost: The connection has ended; all blocks before its end were returned.
        """
        with self._lock:
            if len(self._arrived) < _BATCH:
                self._receive(_BATCH - len(self._arrived))
            if not self._arrived:
                self._raise_if_ended()
            taken = [self._arrived.popleft() for _ in range(min(_BATCH, len(self._arrived)))]
            self._read += len(taken)
            if self._read >= _TOP_UP and not self._socket.closed:
                self._grant(self._read)
                self._credit += self._read
                self._read = 0
            return taken

    def _raise_if_ended(self) -> None:
        if self._error is None and not self._socket.closed:
            self._error = connection_error(self._monitor, self._peer_state)
        if self._error is not None:
            raise copy_of(self._error)

    def _receive(self, most: int) -> None:
        with contextlib.suppress(zmq.Again):  # the connection ended, and its last message with it
            while most and not self._socket.closed and readable(self._socket):
                block = self._socket.recv(zmq.NOBLOCK)
                self._received += 1
                most -= 1
                if self._received == 1:
                    continue  # SUBSCRIBED
                self._arrived.append(block)
                self._credit -= 1
                if self._credit < 0:
                    error = f"the agent at {self._endpoint} published more blocks than it may"
                    self._end(PeerError(error))

    def end_endless(self) -> None:
        """Close the connection if the agent sends a message without end, or too many blocks.

        Call this when the memory of this process has grown. It receives the messages that have
        arrived.
        """
        with self._lock:
            if self._socket.closed:
                return
            self._receive(2 * TELEMETRY_HWM)
            if self._error is not None:
                return
            self._error = connection_error(self._monitor, self._peer_state)  # also sets the stream
            stream = self._peer_state.stream
            if stream is not None and stream.is_endless(self._received):
                self._end(endless(self._endpoint))

    def _end(self, error: Exception) -> None:
        self._error = error
        self._close()

    def close(self) -> None:
        """Close the connection. Idempotent."""
        self._closed = True  # before the lock, so that wait_subscribed() does not take it again
        with self._lock:
            self._close()

    def _close(self) -> None:
        if not self._socket.closed:
            self._socket.monitor(None, 0)
        self._socket.close(linger=0)
        self._monitor.close(linger=0)
