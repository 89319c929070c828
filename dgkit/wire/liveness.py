"""What became of the other side, in words that say what to do."""

from __future__ import annotations

import struct
import time
from collections.abc import Callable

import zmq

from ..errors import PeerLost, PeerRefused, PeerTimeout
from .host_id import ends_within, process_state
from .listener import readable

__all__ = ["Liveness", "refused"]

_STOPPED_S = 0.3  # longer than a debugger's glance, well within the second that is promised
_ENDS_S = 0.1  # between the end of a process's connections and its own


class Liveness:
    """What is known of the peer. `pid` is its process on this machine, 0 if it is elsewhere."""

    def __init__(self, endpoint: str) -> None:
        self.endpoint = endpoint
        self.pid = 0
        self.connected = False

    def watcher(self) -> Callable[[], None]:
        """A check for a waiting thread to call: PeerTimeout once the peer was stopped a while."""
        if not self.pid:
            return _nothing
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
        """The error for a peer that cannot answer now."""
        return PeerTimeout(
            f"the agent's process {self.pid} is stopped (SIGSTOP, Ctrl-Z or a debugger); "
            f"`kill -CONT {self.pid}` lets it go on"
        )

    def lost(self) -> Exception:
        """The error for a connection that ended."""
        state = process_state(self.pid) if self.pid else ""
        if state == "stopped":
            return self.stopped()
        if self.pid and ends_within(self.pid, _ENDS_S):
            return PeerLost(f"the agent at {self.endpoint} is gone: process {self.pid} ended")
        return PeerLost(f"the connection to the agent at {self.endpoint} ended")


def _nothing() -> None:
    """Nothing is known of a process on another machine."""


def refused(monitor: zmq.Socket[bytes], liveness: Liveness) -> Exception | None:
    """What ended the connection, if something did since the last look (zmq_socket_monitor(3))."""
    while readable(monitor):
        event, value = struct.unpack("=Hi", monitor.recv_multipart()[0])
        error = _refusal(event, value, liveness)
        if error is not None:
            return error
    return None


def _refusal(event: int, value: int, liveness: Liveness) -> Exception | None:
    """The error that an event of the socket monitor means, if any (zmq_socket_monitor(3))."""
    where = liveness.endpoint
    if event == zmq.EVENT_CONNECTED:
        return None
    if event == zmq.EVENT_HANDSHAKE_SUCCEEDED:
        liveness.connected = True
        return None
    if event == zmq.EVENT_HANDSHAKE_FAILED_AUTH:
        return PeerRefused(
            f"{where} does not know this client's key (status {value}): on its side, let it in "
            "with `dgkit keys allow KEY`; `dgkit keys list` here shows KEY"
        )
    if event == zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL:
        return PeerRefused(f"{where} wants keys, or is no dgkit agent (handshake error {value:#x})")
    if event == zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL:
        return PeerRefused(
            f"{where} ended the handshake: its public key is not the one in the address, or it is "
            "no dgkit agent"
        )
    if event == zmq.EVENT_CLOSED and not liveness.connected:
        return PeerLost(f"nobody listens at {where}")
    return liveness.lost()
