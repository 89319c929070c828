# SPDX-License-Identifier: Apache-2.0
"""The packets of a pcapng file, while a program writes to it: softdoca's SOFTDOCA_CAPTURE.

dpkt's reader of whole files ends with an error at a packet that is half written, keeps no comments,
and takes ten times as long.
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

from ...units import printable
from .layers import Summary, summary

_SECTION, _PACKET = 0x0A0D0D0A, 6
_LITTLE_ENDIAN = b"\x4d\x3c\x2b\x1a"
_PACKET_HEAD = struct.Struct("<12xIII4x")  # time (high, low), bytes captured
_OPTION_HEAD = struct.Struct("<HH")  # code, bytes
_BLOCK_END = 4  # bytes: the block's size again
_END, _COMMENT, _FLAGS, _QUEUE = 0, 1, 2, 6  # options of a packet
_OUTBOUND = 2
_MAX_BLOCK = 1 << 20  # bytes
_STEP = 256 << 10  # bytes read at once: some milliseconds


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

    Attributes:
        count: Packets read so far.
        position: Bytes read so far.
        size: Bytes of the file, when restarted() looked at it.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self._forget()

    def _forget(self) -> None:
        self._rest, self._file = b"", (0, 0)
        self.count = self.position = self.size = 0

    def restarted(self) -> bool:
        """Return whether the file was replaced; if so, start at its beginning."""
        try:
            found = self.path.stat()
        except FileNotFoundError:
            return False
        same = (found.st_dev, found.st_ino) == self._file and found.st_size >= self.position
        first = self._file == (0, 0)
        if not same:
            self._forget()
            self._file = found.st_dev, found.st_ino
        self.size = found.st_size
        return not same and not first

    def read(self) -> Iterator[Packet]:
        """Return the packets that were added, up to 256 KiB of them.

        Raises:
            ValueError: The file is no pcapng file of this machine's byte order.
            OSError: The file cannot be read.
        """
        try:
            with open(self.path, "rb", opener=_open) as file:
                file.seek(self.position)
                added = file.read(_STEP)
        except FileNotFoundError:
            added = b""
        if not added:  # it is gone, or shorter than it was
            self.size = self.position
        self.position += len(added)
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
        first = self.count == 0 and self._rest == b"" and at == 0 and self.position == len(data)
        if first and (kind != _SECTION or data[8:12] != _LITTLE_ENDIAN):
            raise ValueError(f"{self.path} is not a pcapng file in little-endian byte order")
        if size % 4 or not 12 <= size <= _MAX_BLOCK:
            where = self.position - len(data) + at
            raise ValueError(
                f"{self.path} has a block of {size:,} bytes at {where:,}; it must be a multiple of "
                f"4, and 12 to {_MAX_BLOCK:,}"
            )
        return size

    def _packet(self, block: bytes) -> Packet:
        if len(block) < _PACKET_HEAD.size + _BLOCK_END or block[-_BLOCK_END:] != block[4:8]:
            raise self._damaged("its block does not end with its size")
        high, low, size = _PACKET_HEAD.unpack_from(block)
        stop = _PACKET_HEAD.size + size
        if stop > len(block) - _BLOCK_END:
            there = len(block) - _BLOCK_END - _PACKET_HEAD.size
            raise self._damaged(f"it has {there:,} of {size:,} bytes")
        options = self._options(block, stop + -stop % 4)
        flags, queue = options.get(_FLAGS), options.get(_QUEUE)
        for name, option in (("flags", flags), ("queue", queue)):
            if option is not None and len(option) != 4:
                raise self._damaged(f"its option {name} has {len(option):,} bytes; it must have 4")
        return Packet(
            number=self.count,
            time_ns=high << 32 | low,
            data=block[_PACKET_HEAD.size : stop],
            sent=flags is not None and flags[0] & 3 == _OUTBOUND,
            queue=None if queue is None else int.from_bytes(queue, "little"),
            rule=printable(options.get(_COMMENT, b"").decode(errors="backslashreplace"), kept=""),
        )

    def _options(self, block: bytes, at: int) -> dict[int, bytes]:
        options: dict[int, bytes] = {}
        stop = len(block) - _BLOCK_END
        while at + _OPTION_HEAD.size <= stop:
            code, size = _OPTION_HEAD.unpack_from(block, at)
            at += _OPTION_HEAD.size
            if code == _END:
                break
            if at + size > stop:
                raise self._damaged(f"its option {code} has {stop - at:,} of {size:,} bytes")
            options[code] = block[at : at + size]
            at += size + -size % 4
        return options

    def _damaged(self, why: str) -> ValueError:
        return ValueError(f"{self.path}: packet {self.count} is damaged: {why}")
