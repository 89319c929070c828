"""Limit on the parts of a message whose last part never comes.

libzmq keeps the parts of a message until the last one arrives; no option limits them (ZMQ_RCVHWM
counts whole messages, ZMQ_MAXMSGSIZE limits one part). So this module watches the memory of the
process and, once that has grown, checks how many bytes each connection has received since its last
whole message.
"""

from __future__ import annotations

import contextlib
import fcntl
import mmap
import os
import socket
import struct
import termios
import time

_STEP = 32 << 20  # bytes of memory growth after which the connections are checked again
_MOST = 8 << 20  # most bytes of an incomplete message, received or waiting to be read
_HEARTBEATS = 1 << 10  # upper bound of a heartbeat's bytes per second: about 330 with CURVE
_BYTES_RECEIVED = 128  # offset of tcpi_bytes_received in struct tcp_info, linux/tcp.h


class Growth:
    """Growth of this process's private memory: without mapped files and shared memory.

    Args:
        step: Bytes by which it must have grown to be reported.
    """

    def __init__(self, step: int = _STEP) -> None:
        self._step = step
        self._base = _own_bytes()

    def __call__(self) -> bool:
        """Return whether memory has grown by a step since the last True, or since it shrank."""
        size = _own_bytes()
        if self._base <= size < self._base + self._step:
            return False
        grown = size > self._base
        self._base = size
        return grown


def _own_bytes() -> int:
    fd = os.open("/proc/self/statm", os.O_RDONLY | os.O_CLOEXEC)  # a Path takes thrice as long
    try:
        _, resident, shared, _ = os.read(fd, 256).split(None, 3)
    finally:
        os.close(fd)
    return (int(resident) - int(shared)) * mmap.PAGESIZE


def trim_heap() -> None:
    """Return freed memory to the kernel; otherwise the next growth is noticed too late."""
    import ctypes  # imported here: needed only after an attack

    with contextlib.suppress(AttributeError):  # only glibc has the function
        ctypes.CDLL(None).malloc_trim(0)


class Inflow:
    """Bytes of one connection since its last whole message, as far as the kernel counts them.

    The kernel counts them over TCP only. On a Unix socket, unread bytes at two checks reveal a
    message that never ends, since libzmq reads whatever arrives at once.
    """

    def __init__(self) -> None:
        self._progress = -1
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
        received = _received(fd)
        if progress != self._progress:
            self._mark = received if progress else 0
            self._progress, self._waited, self._since = progress, 0, time.monotonic()
        if received:
            heartbeats = _HEARTBEATS * (time.monotonic() - self._since)
            return received - self._mark > _MOST + heartbeats
        self._waited += _waits(fd)
        return self._waited > 1


class Stream:
    """Connection of a socket of libzmq, as the socket's monitor reports it.

    Attributes:
        fd: Its descriptor.
        ended: Whether it was shut down; libzmq then closes it, and the monitor's event follows.

    Raises:
        OSError: It has ended.
    """

    def __init__(self, fd: int) -> None:
        self.fd = fd
        self.ended = False
        self._inode = os.fstat(
            fd
        ).st_ino  # the fd number may be reused by another connection before it is used
        self._inflow = Inflow()

    def end(self) -> None:
        """Shut it down. Idempotent."""
        self.ended = True
        with contextlib.suppress(OSError):  # it has already ended
            copy = os.dup(self.fd)
            if os.fstat(copy).st_ino != self._inode:
                os.close(copy)
                return
            with socket.socket(fileno=copy) as duplicate:
                duplicate.shutdown(socket.SHUT_RDWR)

    def is_endless(self, progress: int) -> bool:
        """Check it; return whether it keeps sending a message that never ends.

        Args:
            progress: A number that each whole message changes; 0 if there was none.
        """
        return not self.ended and self._inflow.is_endless(self.fd, progress)


def _received(fd: int) -> int:
    """Return the bytes that a TCP connection has received; 0 if it is not TCP or has ended."""
    try:
        copy = os.dup(fd)
    except OSError:
        return 0
    with contextlib.suppress(OSError), socket.socket(fileno=copy) as duplicate:
        info = duplicate.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _BYTES_RECEIVED + 8)
        if len(info) == _BYTES_RECEIVED + 8:  # Linux 4.1
            return int(struct.unpack_from("=Q", info, _BYTES_RECEIVED)[0])
    return 0


def _waits(fd: int) -> bool:
    """Return whether a connection has unread bytes."""
    size = bytearray(4)
    with contextlib.suppress(OSError):
        fcntl.ioctl(fd, termios.FIONREAD, size)
    return any(size)
