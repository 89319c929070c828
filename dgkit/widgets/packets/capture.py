"""The packets of a pcapng file, while a program writes to it: softdoca's SOFTDOCA_CAPTURE.

dpkt decodes the blocks of packets. Its reader of whole files ends with an error at a packet that is
half written, and keeps no comments.
"""

from __future__ import annotations

import errno
import os
import stat
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import dpkt

from .layers import Summary, summary

_SECTION, _PACKET = 0x0A0D0D0A, 6
_LITTLE_ENDIAN = b"\x4d\x3c\x2b\x1a"
_COMMENT, _FLAGS, _QUEUE = 1, 2, 6  # options of a packet
_OUTBOUND = 2
_MAX_BLOCK = 1 << 20  # bytes
_STEP = 1 << 20  # bytes read at once


@dataclass(frozen=True)
class Packet:
    """A captured frame.

    Attributes:
        number: Its place in the capture, from 1.
        time_ns: When it was captured, in ns since 1970.
        data: Its bytes.
        sent: A queue sent it; otherwise it was received.
        queue: Number of its queue, or None.
        rule: Which rules it matched, and why it was dropped, if it was.
    """

    number: int
    time_ns: int
    data: bytes
    sent: bool
    queue: int | None
    rule: str

    @cached_property
    def summary(self) -> Summary:
        """Return the text of its row about its layers."""
        return summary(self.data)


def _open(path: str, flags: int) -> int:
    """Open a regular file; a FIFO would block, and a device may have no end."""
    fd = os.open(path, flags | os.O_NONBLOCK)
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        os.close(fd)
        raise OSError(errno.EINVAL, "not a regular file", path)
    return fd


class Capture:
    """Reader of a pcapng file that grows, and that another run of the program writes anew.

    Args:
        path: The file, which need not exist yet. Its times must be in nanoseconds.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self._forget()

    def _forget(self) -> None:
        self._rest, self._at, self._file, self.count = b"", 0, (0, 0), 0

    def restarted(self) -> bool:
        """Return whether the file was replaced; if so, start at its beginning."""
        try:
            found = self.path.stat()
        except FileNotFoundError:
            return False
        same = (found.st_dev, found.st_ino) == self._file and found.st_size >= self._at
        first = self._file == (0, 0)
        if same:
            return False
        self._forget()
        self._file = found.st_dev, found.st_ino
        return not first

    def read(self) -> Iterator[Packet]:
        """Return the packets that were added, up to about 1 MiB of them.

        Raises:
            ValueError: The file is no pcapng file of this machine's byte order.
            OSError: The file cannot be read.
        """
        try:
            with open(self.path, "rb", opener=_open) as file:
                file.seek(self._at)
                added = file.read(_STEP)
        except FileNotFoundError:
            return
        self._at += len(added)
        data, at = self._rest + added, 0
        while (size := self._size_of_block(data, at)) is not None and at + size <= len(data):
            if struct.unpack_from("<I", data, at)[0] == _PACKET:
                self.count += 1
                yield self._packet(data[at : at + size])
            at += size
        self._rest = data[at:]

    def _size_of_block(self, data: bytes, at: int) -> int | None:
        """Return the size of the block at an offset; None if its head is not there yet."""
        if len(data) - at < 12:
            return None
        kind: int
        size: int
        kind, size = struct.unpack_from("<II", data, at)
        wrong_start = self.count == 0 and self._rest == b"" and at == 0 and self._at == len(data)
        if wrong_start and (kind != _SECTION or data[8:12] != _LITTLE_ENDIAN):
            raise ValueError(f"{self.path} is not a pcapng file in little-endian byte order")
        if size % 4 or not 12 <= size <= _MAX_BLOCK:
            where = self._at - len(data) + at
            raise ValueError(
                f"{self.path} has a block of {size:,} bytes at {where:,}; it must be a multiple of "
                f"4, and 12 to {_MAX_BLOCK:,}"
            )
        return size

    def _packet(self, block: bytes) -> Packet:
        try:
            packet = dpkt.pcapng.EnhancedPacketBlockLE(block)
        except (dpkt.Error, struct.error, UnicodeDecodeError) as error:
            raise ValueError(f"{self.path}: packet {self.count} is damaged: {error}") from error
        if packet.caplen != len(packet.pkt_data):
            raise ValueError(
                f"{self.path}: packet {self.count} is damaged: it has {len(packet.pkt_data):,} of "
                f"{packet.caplen:,} bytes"
            )
        options = {option.code: option for option in packet.opts}
        flags = int.from_bytes(options[_FLAGS].data, "little") if _FLAGS in options else 0
        queue = options.get(_QUEUE)
        return Packet(
            number=self.count,
            time_ns=packet.ts_high << 32 | packet.ts_low,
            data=bytes(packet.pkt_data),
            sent=flags & 3 == _OUTBOUND,
            queue=None if queue is None else int.from_bytes(queue.data, "little"),
            rule=options[_COMMENT].text if _COMMENT in options else "",
        )
