# SPDX-License-Identifier: Apache-2.0
"""ZeroMQ socket options and helpers shared by both ends of a connection."""

from __future__ import annotations

import contextlib
import os
import socket
import struct
from collections.abc import Iterator

import zmq

# TCP only. libzmq's I/O thread sends and answers heartbeats whatever Python does: a side that is
# silent for address.HEARTBEAT_S is lost, which is noticed within another 0.3 s. On ipc:// the
# kernel closes the socket of a dead process.
_HEARTBEAT_MS = 300
_KEEPALIVE_S = 5
_SO_PASSRIGHTS = 83  # include/uapi/asm-generic/socket.h
PUBLISHED_HWM = 32  # blocks of up to 32 KiB queued at the agent for each subscriber
# Plain int: an operation on pyzmq's enum flags takes longer than the call they are passed to.
POLLIN = int(zmq.POLLIN)
_NOBLOCK = int(zmq.NOBLOCK)


def set_heartbeat(sock: zmq.Socket[bytes], timeout: float) -> None:
    """Enable heartbeats on a TCP socket; `timeout` seconds without an answer end a connection."""
    sock.heartbeat_ivl = _HEARTBEAT_MS
    sock.heartbeat_timeout = int(1000 * timeout)


def set_keepalive(sock: zmq.Socket[bytes]) -> None:
    """Have the kernel end a TCP connection whose other side does not answer for 20 s."""
    sock.tcp_keepalive, sock.tcp_keepalive_idle = 1, _KEEPALIVE_S
    sock.tcp_keepalive_intvl, sock.tcp_keepalive_cnt = _KEEPALIVE_S, 3


@contextlib.contextmanager
def duplicate(fd: int) -> Iterator[socket.SocketType]:
    """Yield a duplicate of a socket, which stays the same when `fd` is closed and reused."""
    copies: list[socket.SocketType] = []
    try:
        # extend() duplicates and stores in one step of C.
        copies.extend(map(socket.SocketType, (-1,), (-1,), (-1,), map(os.dup, (fd,))))
        yield copies[0]
    finally:
        for copy in copies:
            copy.close()


def refuse_descriptors(fd: int, peer: str = "") -> None:
    """Have a Unix socket, and connections to it, accept no file descriptors (Linux 6.16).

    libzmq takes none, so the kernel closes them in libzmq's thread, and the close of a socket with
    SO_LINGER and unsent data waits for as long as its sender has set.

    Args:
        fd: The socket.
        peer: Path that it must be connected to, if given: `fd` may be that of another socket now.
    """
    with contextlib.suppress(OSError), duplicate(fd) as sock:
        if not peer or sock.getpeername() == peer:
            sock.setsockopt(socket.SOL_SOCKET, _SO_PASSRIGHTS, 0)


def listening_user(fd: int, peer: str) -> int | None:
    """Return the user that listens at the other end of a client's Unix socket (SO_PEERCRED).

    Args:
        fd: The socket.
        peer: Path that it must be connected to; None is returned otherwise.
    """
    with contextlib.suppress(OSError), duplicate(fd) as sock:
        if sock.getpeername() == peer:
            credentials = sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12)
            return int(struct.unpack("=iII", credentials)[1])
    return None


def set_client_curve(
    sock: zmq.Socket[bytes], identity: tuple[str, str], server_public: str
) -> None:
    """Configure the client's side of CURVE.

    Args:
        sock: A socket that is not yet connected.
        identity: The client's public and secret key, in hex.
        server_public: The agent's public key, in hex.
    """
    sock.curve_publickey, sock.curve_secretkey = map(z85_of, identity)
    sock.curve_serverkey = z85_of(server_public)


def readable(sock: zmq.Socket[bytes]) -> bool:
    """Return whether a message can be received without waiting."""
    events = sock.get(zmq.EVENTS)
    assert isinstance(events, int)
    return bool(events & POLLIN)


def drain(sock: zmq.Socket[bytes]) -> Iterator[list[bytes]]:
    """Receive messages until there is none."""
    with contextlib.suppress(zmq.Again):
        while True:
            frames = [sock.recv(_NOBLOCK, copy=False)]
            while frames[-1].more:
                frames.append(sock.recv(_NOBLOCK, copy=False))
            yield [frame.bytes for frame in frames]


def fd_of(sock: zmq.Socket[bytes]) -> int:
    """Return the descriptor that signals events of a socket (ZMQ_FD), edge-triggered."""
    fd = sock.get(zmq.FD)
    assert isinstance(fd, int)
    return fd


def z85_of(hex_key: str) -> bytes:
    """Convert a key from hex to Z85, as libzmq takes it."""
    from zmq.utils import z85

    return z85.encode(bytes.fromhex(hex_key))
