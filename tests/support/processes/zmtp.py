# SPDX-License-Identifier: Apache-2.0
"""Client or server of ZMTP 3.1 without authentication, as raw bytes (rfc.zeromq.org/spec/37)."""

import os
import struct
from pathlib import Path


def frame(body, *, more=False):
    """Return a frame of a message; `more` parts follow."""
    return bytes([2 + more]) + struct.pack(">Q", len(body)) + body


PART = frame(b"a" * 30_000, more=True)


class Zmtp:
    """One end of a connection.

    Args:
        connected: The socket, which is closed with this object.
        kind: The type of ZeroMQ socket that it claims to be.
    """

    def __init__(self, connected, kind):
        self.socket = connected
        self.socket.settimeout(30)
        self.socket.sendall(
            b"\xff" + b"\0" * 8 + b"\x7f\x03\x01" + b"NULL".ljust(20, b"\0") + b"\0" * 32
        )
        self._read(64)
        ready = b"\x05READY\x0bSocket-Type" + struct.pack(">I", len(kind)) + kind
        self.socket.sendall(bytes([4, len(ready)]) + ready)
        self.read_frame()

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        self.socket.close()

    def _read(self, size):
        found = b""
        while len(found) < size:
            more = self.socket.recv(size - len(found))
            if not more:
                raise BrokenPipeError("the other side has ended the connection")
            found += more
        return found

    def send(self, body):
        """Send a message of one part."""
        self.socket.sendall(frame(body))

    def read_frame(self):
        """Return the next frame, a command or a part of a message."""
        (flags,) = self._read(1)
        (size,) = struct.unpack(">Q", self._read(8)) if flags & 2 else self._read(1)
        return self._read(size)

    def flood(self, size, messages=PART):
        """Send the same bytes again; return whether the peer has closed the connection."""
        for _ in range(0, size, len(messages)):
            try:
                self.socket.sendall(messages)
            except (BrokenPipeError, ConnectionResetError):
                return True
            except TimeoutError:  # it does not read
                return False
        return False


def own_bytes(pid):
    """Return a process's own memory, as dgkit.wire.inflow counts it."""
    _, resident, shared, *_ = map(int, Path(f"/proc/{pid}/statm").read_text().split())
    return (resident - shared) * os.sysconf("SC_PAGE_SIZE")
