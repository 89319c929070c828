"""Limit on the parts of a message whose last part never comes.

libzmq keeps the parts of a message until the last one arrives; no option limits them (ZMQ_RCVHWM
counts whole messages, ZMQ_MAXMSGSIZE limits one part). So this module watches the memory of the
process, and once that has grown, the bytes of each connection since its last whole message.
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

__all__ = ["Growth", "Inflow", "Stream", "trim_heap"]

_STEP = 32 << 20  # bytes by which memory grows between two checks of the connections
_MOST = 8 << 20  # bytes of an incomplete message of a connection, received or waiting to be read
_HEARTBEATS = 1 << 10  # bytes a second that heartbeats do not exceed: about 330 with CURVE
_BYTES_RECEIVED = 128  # offset of tcpi_bytes_received in struct tcp_info, linux/tcp.h


class Growth:
    """Growth of this process's own memory, without what is mapped from files or shared.

    Args:
        step: Bytes by which it must have grown.
    """

    def __init__(self, step: int = _STEP) -> None:
        self._step = step
        self._base = _own_bytes()

    def __call__(self) -> bool:
        """Return whether the memory has grown by a step since the last time, or since it shrank."""
        size = _own_bytes()
        if self._base <= size < self._base + self._step:
            return False
        grown = size > self._base
        self._base = size
        return grown


def _own_bytes() -> int:
    fd = os.open("/proc/self/statm", os.O_RDONLY | os.O_CLOEXEC)  # a Path takes three times as long
    try:
        _, resident, shared, _ = os.read(fd, 256).split(None, 3)
    finally:
        os.close(fd)
    return (int(resident) - int(shared)) * mmap.PAGESIZE


def trim_heap() -> None:
    """Return freed memory to the kernel: else the next growth would be seen too late."""
    import ctypes  # needed after an attack only

    with contextlib.suppress(AttributeError):  # only glibc has the function
        ctypes.CDLL(None).malloc_trim(0)


class Inflow:
    """Bytes of one connection since its last whole message, as far as the kernel counts them.

    The kernel counts them over TCP. On a Unix socket, bytes that wait to be read at two checks show
    a message that never ends, since libzmq reads whatever arrives at once.
    """

    def __init__(self) -> None:
        self._progress = -1
        self._mark = 0  # bytes received by the last progress
        self._since = time.monotonic()
        self._waited = 0  # checks since then at which bytes waited

    def is_endless(self, fd: int, progress: int) -> bool:
        """Check a connection.

        Args:
            fd: Its descriptor.
            progress: A number that each whole message changes; 0 if there was none.

        Returns:
            Whether it has sent more than it may since its last whole message.
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
        ).st_ino  # the number may belong to another connection by the time it is used
        self._inflow = Inflow()

    def end(self) -> None:
        """Shut it down. Idempotent."""
        self.ended = True
        with contextlib.suppress(OSError):  # it has ended
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
    """Return the bytes that a TCP connection has received; 0 for another or an ended one."""
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
    """Return whether there are bytes to read."""
    size = bytearray(4)
    with contextlib.suppress(OSError):
        fcntl.ioctl(fd, termios.FIONREAD, size)
    return any(size)
