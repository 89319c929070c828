# SPDX-License-Identifier: Apache-2.0
"""Limits on what libzmq keeps of a connection: parts of a message that never ends, and messages.

libzmq keeps the parts of a message until the last one arrives; no option limits them (ZMQ_RCVHWM
counts whole messages, ZMQ_MAXMSGSIZE limits one part). It keeps whole messages until they are
received, and the queues of requests have no high-water mark (listener.py says why). So this module
watches the memory of the process and, once that has grown, checks how many bytes each connection
has received since its last whole message, or beyond the messages that were taken from it.
"""

from __future__ import annotations

import contextlib
import fcntl
import mmap
import os
import socket
import struct
import sys
import termios
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager

from ..errors import NativeError
from ..files import Fd
from .sockets import duplicate

_STEP = 32 << 20  # bytes of memory growth after which the connections are checked again
MOST = 8 << 20  # most bytes of a connection's messages that are incomplete or not taken yet
_UNREAD_CHECKS = 8  # in a row that may find unread bytes on a Unix socket, each after a step
_HEARTBEATS = 1 << 10  # upper bound of a heartbeat's bytes per second: about 330 with CURVE
_BYTES_RECEIVED = 128  # offset of tcpi_bytes_received in struct tcp_info, linux/tcp.h


class Growth:
    """Growth of this process's private memory: without mapped files and shared memory.

    It keeps its file open, since a peer can leave this process without a free descriptor.

    Args:
        step: Bytes by which it must have grown to be reported.

    Raises:
        NativeError: /proc is not mounted.
    """

    def __init__(self, step: int = _STEP) -> None:
        self._step = step
        try:
            self._file = Fd(os.open, "/proc/self/statm", os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError as exc:
            text = "/proc/self/statm does not exist, by which memory is limited: mount /proc"
            raise NativeError(exc.errno, text) from exc
        self._fd = self._file.number
        self._base = self._own_bytes()

    def __call__(self) -> bool:
        """Return whether memory has grown by a step since the last True, or since it shrank."""
        size = self._own_bytes()
        if self._base <= size < self._base + self._step:
            return False
        grown = size > self._base
        self._base = size
        return grown

    def _own_bytes(self) -> int:
        _, resident, shared, _ = os.pread(self._fd, 256, 0).split(None, 3)
        return (int(resident) - int(shared)) * mmap.PAGESIZE

    def close(self) -> None:
        """Close the file."""
        self._file.close()


def heap_trimmer() -> Callable[[], object]:
    """Return a function that returns freed memory to the kernel; it opens nothing.

    Without it, the next growth would be noticed too late.
    """
    import ctypes  # imported here: a client needs it only after an attack

    try:
        trim = ctypes.CDLL(None).malloc_trim
    except AttributeError:  # only glibc has the function
        return int
    return lambda: trim(0)


def wire_bytes(size: int) -> int:
    """Return the bytes of a message of `size` bytes in a TCP connection: ZMTP's frame, CURVE's box.

    Source: rfc.zeromq.org/spec/26, MESSAGE command; spec/37, framing.
    """
    return size + (35 if size < 223 else 42)


Duplicate = Callable[[int], AbstractContextManager[socket.SocketType]]


class Spare:
    """Descriptor reserved for duplicates of connections, for when no other is free."""

    def __init__(self) -> None:
        self._null = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
        self._copy = socket.socket(socket.AF_UNIX)  # made once: a flood needs many duplicates
        self._release()

    @contextlib.contextmanager
    def duplicate(self, fd: int) -> Iterator[socket.SocketType]:
        """Yield a duplicate of a socket, one at a time."""
        os.dup2(fd, self._copy.fileno(), inheritable=False)
        try:
            yield self._copy
        finally:
            self._release()

    def _release(self) -> None:
        os.dup2(self._null, self._copy.fileno(), inheritable=False)

    def close(self) -> None:
        """Close the descriptor."""
        self._copy.close()
        os.close(self._null)


class Inflow:
    """Bytes of one connection since its last whole message, as far as the kernel counts them.

    The kernel counts them over TCP only. On a Unix socket, unread bytes at two checks reveal a
    message that never ends, since libzmq reads whatever arrives at once.
    """

    def __init__(self, duplicate: Duplicate = duplicate) -> None:
        self._duplicate = duplicate
        self._progress = -1
        self._ahead, self._untaken, self._looked = 0, 0, time.monotonic()
        self._unread = 0  # latest checks in a row that found unread bytes
        self._mark = 0  # bytes received at the last progress
        self._since = time.monotonic()
        self._waited = 0  # checks since then that found unread bytes

    def is_endless(self, fd: int, progress: int) -> bool:
        """Check a connection.

        Args:
            fd: Its descriptor.
            progress: A number that each whole message changes; 0 if there was none.

        Returns:
            Whether it has sent more than the limit since its last whole message.
        """
        received = self._received(fd)
        if progress != self._progress:
            self._mark = received if progress else 0
            self._progress, self._waited, self._since = progress, 0, time.monotonic()
        if received:
            heartbeats = _HEARTBEATS * (time.monotonic() - self._since)
            return received - self._mark > MOST + heartbeats
        self._waited += _has_unread(fd)
        return self._waited > 1

    def ahead(self, fd: int, taken: int) -> int:
        """Return the bytes of messages of a connection that are not taken yet.

        Heartbeats, which nobody takes, are estimated, and never count for more than was received.
        Where the kernel counts no bytes, this is 0 or, if all of the latest checks found unread
        bytes while the memory of the process grew, more than the limit.

        Args:
            fd: Its descriptor.
            taken: Bytes of the messages taken since it was opened, as wire_bytes() counts them.
        """
        received, now = self._received(fd), time.monotonic()
        if not received:
            self._unread = self._unread + 1 if _has_unread(fd) else 0
            return MOST + 1 if self._unread > _UNREAD_CHECKS else 0
        untaken = received - taken
        heartbeats = int(_HEARTBEATS * (now - self._looked))
        self._ahead = max(0, self._ahead + untaken - self._untaken - heartbeats)
        self._untaken, self._looked = untaken, now
        return self._ahead

    def _received(self, fd: int) -> int:
        """Return the bytes that a TCP connection has received; 0 if it is not TCP or has ended."""
        with contextlib.suppress(OSError), self._duplicate(fd) as copy:
            info = copy.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _BYTES_RECEIVED + 8)
            if len(info) == _BYTES_RECEIVED + 8:  # Linux 4.1
                return int(struct.unpack_from("=Q", info, _BYTES_RECEIVED)[0])
        return 0


class Stream:
    """Connection of a socket of libzmq, as the socket's monitor reports it.

    Args:
        fd: Its descriptor.
        duplicate: Duplicates it.

    Attributes:
        fd: Its descriptor.
        ended: Whether it was shut down; libzmq then closes it, and the monitor's event follows.

    Raises:
        OSError: It has ended.
    """

    def __init__(self, fd: int, duplicate: Duplicate = duplicate) -> None:
        self.fd = fd
        self.ended = False
        self._duplicate = duplicate
        self._inode = os.fstat(
            fd
        ).st_ino  # the fd number may be reused by another connection before it is used
        self._inflow = Inflow(duplicate)

    def end(self) -> None:
        """Shut the connection down. Idempotent."""
        self.ended = True
        with contextlib.suppress(OSError), self._duplicate(self.fd) as copy:  # it may have ended
            if os.fstat(copy.fileno()).st_ino == self._inode:
                copy.shutdown(socket.SHUT_RDWR)

    def peer_pid(self) -> int:
        """Return the process that opened a Unix connection; 0 for others, or if it has ended."""
        with contextlib.suppress(OSError), self._duplicate(self.fd) as copy:
            if os.fstat(copy.fileno()).st_ino == self._inode:
                credentials = copy.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12)
                return int.from_bytes(credentials[:4], sys.byteorder)  # of a TCP connection: 0
        return 0

    def is_endless(self, progress: int) -> bool:
        """Return whether the connection keeps sending a message that never ends.

        Args:
            progress: A number that each whole message changes; 0 if there was none.
        """
        return not self.ended and self._inflow.is_endless(self.fd, progress)

    def ahead(self, taken: int) -> int:
        """Return the bytes of the connection's messages that are not taken yet; see Inflow."""
        return 0 if self.ended else self._inflow.ahead(self.fd, taken)


def _has_unread(fd: int) -> bool:
    """Return whether a connection has unread bytes."""
    size = bytearray(4)
    with contextlib.suppress(OSError):
        fcntl.ioctl(fd, termios.FIONREAD, size)
    return any(size)
