# SPDX-License-Identifier: Apache-2.0
"""Memory of a testbed's host guest in the PCI BAR of its DPU guest. Emulator only.

The host guest's kernel leaves a part of its RAM unused; its command line says which:
`dgkit.bar=SIZE@ADDRESS`. Processes map that part through /dev/mem. It begins with a table of
exports, described in native/src/share/bar.h; the rest is allocated here. An allocation is a lock of
its bytes on /dev/mem (F_OFD_SETLK, fcntl(2)) that its mapping holds, so the kernel frees it with
the last mapping, even if the process is killed.
"""

from __future__ import annotations

import errno
import fcntl
import mmap
import os
import re
import secrets
import struct

from ..errors import DeviceUnavailable, OutOfMemory, Unsupported
from ..files import Fd
from .host import HostMemory
from .shape import total_size

TYPE_CHECKING = False  # typing's own costs more to import than all of this
if TYPE_CHECKING:
    from typing import Any

# The layout of native/src/share/bar.h. _PAGE is its unit, neither machine's page size.
_PAGE, _PAGES, _SLOTS, _RECORD = 4096, 127, 15, 256
_TABLE = _PAGE * (_PAGES + 1)
_HEADER = struct.Struct("<QIIQ16s")
_MAGIC, _VERSION = int.from_bytes(b"DGKBAR", "little"), 1
_FREE, _LOST = 0, 3
_KIND = 4  # DG_KIND_BAR of native/dgkit.h
_STATE, _OFFSET, _SIZE = 0, 8, 16  # offsets in an export
_POSTED, _DONE, _REVOKED, _CLAIMED = 0, 64, 72, 128  # offsets in a slot

_FLOCK = struct.Struct("@hhqqi4x")  # struct flock: type, whence, start, length, pid
_ZEROS = bytes(1 << 20)
_WHERE = re.compile(r"(?:^| )dgkit\.bar=(0x[0-9a-f]+)@(0x[0-9a-f]+)(?: |$)", re.MULTILINE)


def lay_out(fd: int, size: int) -> None:
    """Write the header of an empty BAR, with a random id, to a file of zeros."""
    header = _HEADER.pack(_MAGIC, _VERSION, _PAGES, size, secrets.token_bytes(16))
    os.pwrite(fd, header, 0)


class BarMemory(HostMemory):
    """Memory in the BAR. Created by `dgkit.empty(on="bar")`.

    The DPU guest of the same testbed imports its regions as a PCI BAR; other processes of the host
    guest access it through this one. It is emulated: no hardware has such memory.
    """

    place = "bar"
    may_fault = False
    emulated = "bar"
    _title = "Memory in an emulated PCI BAR"

    def __init__(
        self, shape: tuple[int, ...], dtype: Any, *, readonly_export: bool, name: str | None
    ) -> None:
        if readonly_export:
            raise Unsupported(
                errno.EOPNOTSUPP,
                "readonly_export=True is for host memory: the DPU guest maps the whole BAR "
                "writable. Export the region with access='r', which dgkit's importers keep to",
            )
        self.size = total_size(shape, dtype)
        self.shape, self.dtype, self.name = shape, dtype, name
        self.readonly_export = False
        path, start, size = _where()
        self._keep = keep = _open_bar(path)
        offset = _allocate(keep.number, start, size, self.size)
        mapped = mmap.mmap(keep.number, self.size, offset=start + offset)
        for at in range(0, self.size, len(_ZEROS)):
            end = min(self.size, at + len(_ZEROS))
            mapped[at:end] = _ZEROS[: end - at]
        self._offset, self._start = offset, start
        self._buffer = memoryview(mapped)

    @property
    def fd(self) -> int:
        """-1: there is no memfd."""
        return -1

    @property
    def mapped_file(self) -> tuple[int, int]:
        """File with the memory, and the offset of the first byte in it. Errors as `buffer`."""
        return super().fd, self._start + self._offset

    def native_fields(self, start: int) -> dict[str, int]:
        """Return the fields of `dg_memory` for the bytes from `start` on. Errors as `buffer`."""
        at = self._offset + start
        return {"kind": _KIND, "fd": super().fd, "block": self._start, "fd_offset": at}


def exists() -> bool:
    """Return whether this machine is a testbed's host guest with a BAR."""
    return _find() is not None


def _find() -> re.Match[str] | None:
    with open("/proc/cmdline", encoding="utf-8", errors="surrogateescape") as file:  # noqa: PTH123
        return _WHERE.search(file.read())


def _where() -> tuple[str, int, int]:
    """Return the file with the BAR, and its address and size there.

    Raises:
        DeviceUnavailable: This machine has no BAR.
    """
    found = _find()
    if not found:
        raise DeviceUnavailable(
            errno.ENODEV,
            "on='bar' needs a testbed's host guest, an emulated x86-64 machine, which this machine "
            "is not: start one (dgkit testbed up), and run this in it (dgkit testbed run host)",
            check="",
        )
    return "/dev/mem", int(found[2], 16), int(found[1], 16)


def _open_bar(path: str) -> Fd:
    try:
        return Fd(os.open, path, os.O_RDWR | os.O_CLOEXEC)
    except OSError as error:
        raise DeviceUnavailable(
            error.errno, f"{path}: {error.strerror}; memory in the BAR needs root", check=""
        ) from None


def _allocate(fd: int, start: int, size: int, wanted: int) -> int:
    """Lock bytes that are free, and return their offset in the BAR.

    Raises:
        OutOfMemory: There is no free range of `size` bytes.
    """
    length = -(-wanted // mmap.PAGESIZE) * mmap.PAGESIZE
    at = _TABLE
    with mmap.mmap(fd, _TABLE, offset=start) as table:
        _check_header(table, size)
        exports = _Exports(table, fd, start)
        while at + length <= size:
            taken = _lock(fd, start + at, length)
            end = taken - start if taken else exports.busy_until(at, at + length)
            if not end:
                return at
            if not taken:
                _unlock(fd, start + at, length)
            at = -(-end // mmap.PAGESIZE) * mmap.PAGESIZE
    raise OutOfMemory(
        errno.ENOMEM,
        f"{wanted:,} bytes requested in a BAR with {size - _TABLE:,} for memory, and no free range "
        "is that long: close some memory of this or other processes of the host guest. Bytes of a "
        "process that ended are free once no importer has transfers in flight on them",
    )


def _check_header(table: mmap.mmap, size: int) -> None:
    magic, version, pages, its_size, _ = _HEADER.unpack_from(table)
    if (magic, version, pages, its_size) != (_MAGIC, _VERSION, _PAGES, size):
        raise DeviceUnavailable(
            errno.ENODEV,
            f"the BAR has no table of version {_VERSION}: use the release of dgkit that started "
            "the testbed",
            check="",
        )


def _lock(fd: int, start: int, length: int) -> int:
    """Lock bytes of a file for this open file description.

    Returns:
        0, or the end of a conflicting range that another open file description has locked.
    """
    wanted = _FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, start, length, 0)
    while True:
        try:
            fcntl.fcntl(fd, fcntl.F_OFD_SETLK, wanted)
        except OSError as error:
            if error.errno not in (errno.EAGAIN, errno.EACCES):
                raise
        else:
            return 0
        found = _FLOCK.unpack(fcntl.fcntl(fd, fcntl.F_OFD_GETLK, wanted))
        if found[0] != fcntl.F_UNLCK:
            return int(found[2] + found[3])


def _unlock(fd: int, start: int, length: int) -> None:
    fcntl.fcntl(fd, fcntl.F_OFD_SETLK, _FLOCK.pack(fcntl.F_UNLCK, os.SEEK_SET, start, length, 0))


class _Exports:
    """Table of exports; removes the exports of processes that have ended.

    If a newly allocated range still has an export, the previous owner of the range has ended.

    Args:
        table: The table, mapped.
        fd: File that it is in.
        start: Where the BAR begins in it.
    """

    def __init__(self, table: mmap.mmap, fd: int, start: int) -> None:
        self._fd, self._start = fd, start
        self._table = table

    def busy_until(self, first: int, end: int) -> int:
        """Revoke exports of a range of the BAR.

        Returns:
            0 if no importer can reach the range any more, else the end of the bytes still in reach.
        """
        with memoryview(self._table) as view, view.cast("I") as words, view.cast("Q") as longs:
            for page in range(_PAGE, _TABLE, _PAGE):
                offset, size = longs[(page + _OFFSET) // 8], longs[(page + _SIZE) // 8]
                if size and offset < end and offset + size > first:
                    where = self._start + page
                    if _lock(self._fd, where, _RECORD):
                        return int(offset + size)  # another process revokes it
                    revoked = self._revoked(words, longs, page)
                    _unlock(self._fd, where, _RECORD)
                    if not revoked:
                        return int(offset + size)
        return 0

    def _revoked(self, words: memoryview, longs: memoryview, page: int) -> bool:
        """Revoke a page's export; return whether nothing is in flight through it."""
        slots = range(page + _RECORD, page + _PAGE, _RECORD)
        words[(page + _STATE) // 4] = _LOST
        for slot in slots:
            words[(slot + _REVOKED) // 4] = 1
        # The gate of native/src/base/provider.h: its loads come after these stores. On x86-64, the
        # only host guest with a BAR, the lock that the kernel takes in this call is a full barrier.
        _lock(self._fd, self._start + page, _RECORD)
        claimed = [slot for slot in slots if words[(slot + _CLAIMED) // 4]]
        if any(longs[(slot + _DONE) // 8] != longs[(slot + _POSTED) // 8] for slot in claimed):
            return False
        longs[(page + _SIZE) // 8] = 0
        if not claimed:
            words[(page + _STATE) // 4] = _FREE
        return True
