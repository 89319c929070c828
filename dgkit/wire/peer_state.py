# SPDX-License-Identifier: Apache-2.0
"""State of the peer, as exceptions whose messages say what to do.

After which silence a TCP peer is lost: address.py, HEARTBEAT_S. How long a request may stay
unanswered: Connection.check_silence().
"""

from __future__ import annotations

import contextlib
import os
import struct
import time
from collections.abc import Callable
from pathlib import Path

import zmq

from ..errors import PeerError, PeerLost, PeerRefused, PeerTimeout
from .host_id import ends_within, process_state
from .inflow import Stream
from .sockets import listening_user, readable, refuse_descriptors

_STOPPED_S = 0.3  # tolerates a debugger's short stop; an error is promised within a second
_ENDS_S = 0.1  # a process may outlive its connections by this long


class PeerState:
    """State of the peer.

    Attributes:
        pid: Its process on this machine; 0 if it runs elsewhere.
        connected: The handshake has succeeded.
        stream: The latest connection; None before the first.
    """

    def __init__(self, endpoint: str) -> None:
        self.endpoint = endpoint
        self.pid = 0
        self.connected = False
        self.stream: Stream | None = None

    def stop_check(self) -> Callable[[], None]:
        """Return a function for a waiting thread to call repeatedly.

        It raises PeerTimeout once the peer's process has been stopped for 0.3 s, and does nothing
        for a peer on another machine.
        """
        if not self.pid:
            return _no_check
        first_seen = 0.0

        def check() -> None:
            nonlocal first_seen
            if process_state(self.pid) != "stopped":
                first_seen = 0.0
            elif not first_seen:
                first_seen = time.monotonic()
            elif time.monotonic() - first_seen > _STOPPED_S:
                raise self.stopped()

        return check

    def stopped(self) -> PeerTimeout:
        """Return the error for a peer whose process is stopped."""
        return PeerTimeout(
            f"the agent's process {self.pid} is stopped (SIGSTOP, Ctrl-Z or a debugger); "
            f"`kill -CONT {self.pid}` resumes it"
        )

    def lost(self) -> Exception:
        """Return the error for a connection that ended."""
        state = process_state(self.pid) if self.pid else ""
        if state == "stopped":
            return self.stopped()
        if self.pid and ends_within(self.pid, _ENDS_S):
            return PeerLost(f"the agent at {self.endpoint} is gone: process {self.pid} ended")
        return PeerLost(f"the connection to the agent at {self.endpoint} ended")


def _no_check() -> None:
    """Check nothing: the state of a process on another machine is unknown."""


def endless(endpoint: str) -> PeerError:
    """Return the error for an agent that sends a message without end."""
    return PeerError(
        f"the agent at {endpoint} sent a message without end; this side has ended the connection"
    )


def _stranger(fd: int, where: str) -> PeerRefused | None:
    """Return the error for a Unix socket of another user, who may have put it there first.

    Root may use the socket of a user in that user's own folder.
    """
    path, me = where.removeprefix("ipc://"), os.geteuid()
    user = listening_user(fd, path)
    if user in (None, 0, me):
        return None
    with contextlib.suppress(OSError):
        folder = Path(path).parent.stat()
        if me == 0 and folder.st_uid == user and not folder.st_mode & 0o022:
            return None
    return PeerRefused(
        f"{where} belongs to user {user}, and you are user {me}: use an agent of your own, or "
        "tcp:// with keys"
    )


def connection_error(monitor: zmq.Socket[bytes], peer_state: PeerState) -> Exception | None:
    """Read pending socket monitor events and return the error that ended the connection, if any.

    Args:
        monitor: The PAIR socket of the monitor (zmq_socket_monitor(3)).
        peer_state: Its `stream` and, once the handshake succeeds, `connected` are set.
    """
    while readable(monitor):
        event, value = struct.unpack("=Hi", monitor.recv_multipart()[0])
        error = _event_error(event, value, peer_state)
        if error is not None:
            return error
    return None


def _event_error(event: int, value: int, peer_state: PeerState) -> Exception | None:
    """Return the error for one socket monitor event, if any (zmq_socket_monitor(3))."""
    where = peer_state.endpoint
    if event == zmq.EVENT_CONNECTED:
        with contextlib.suppress(OSError):  # already ended; its event follows
            peer_state.stream = Stream(value)
        if where.startswith("ipc://"):
            refuse_descriptors(value, where.removeprefix("ipc://"))
            return _stranger(value, where)
        return None
    if event == zmq.EVENT_HANDSHAKE_SUCCEEDED:
        peer_state.connected = True
        return None
    if event == zmq.EVENT_HANDSHAKE_FAILED_AUTH and value == 500:
        return PeerRefused(
            f"{where} cannot read its list of allowed keys: its log says why, and `dgkit keys "
            "list` on its side shows the error"
        )
    if event == zmq.EVENT_HANDSHAKE_FAILED_AUTH:
        return PeerRefused(
            f"{where} does not allow this client's key (status {value}): run `dgkit keys allow "
            "KEY` on its side; `dgkit keys list` on this side shows KEY. If it is allowed, it has "
            "flooded the agent, which refuses it for some minutes"
        )
    if event == zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL:
        return PeerRefused(
            f"{where} requires keys, or is not a dgkit agent (handshake error {value:#x})"
        )
    if event == zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL:
        return PeerRefused(
            f"{where} ended the handshake: its public key is not the one in the address, or it is "
            "not a dgkit agent"
        )
    if event == zmq.EVENT_CLOSED and not peer_state.connected:
        return PeerLost(f"no agent listens at {where}")
    return peer_state.lost()
