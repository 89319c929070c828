# SPDX-License-Identifier: Apache-2.0
"""Buffers (ranges of maps, single or chained to lists) and the inventory that allocates them."""

from __future__ import annotations

import weakref

from ..errors import BoundsError
from ..validate import whole
from ._library import CONTROL, library
from .handle import Handle
from .mmap import Mmap

TYPE_CHECKING = False  # typing's own costs more to import than all of this
if TYPE_CHECKING:
    from typing import Any


class BufInventory(Handle):
    """Pool of at most `size` buffers (`doca_buf_inventory`).

    Args:
        size: Number of buffers.
        start: Start the inventory now. Taking a buffer before the start raises BadState.
    """

    __slots__ = ("_started",)
    _name = "inventory"
    _order = 3

    def __init__(self, size: int, *, start: bool = True) -> None:
        super().__init__()
        self._started = False
        lib = library()
        with CONTROL:
            name, kind = "doca_buf_inventory_create", "struct doca_buf_inventory **"
            self._opened(lib.get(name, kind, whole("size", size, 1)))
        if start:
            self.start()

    def start(self) -> None:
        """Start the inventory, so that buffers can be taken."""
        self._call("doca_buf_inventory_start")
        self._started = True

    def stop(self) -> None:
        """Stop handing out buffers until the next `start()`; buffers in use stay valid."""
        self._call("doca_buf_inventory_stop")
        self._started = False

    @property
    def size(self) -> int:
        """Number of buffers."""
        return int(self._get("doca_buf_inventory_get_num_elements", "uint32_t *"))

    @property
    def free(self) -> int:
        """Number of buffers that are not taken."""
        return int(self._get("doca_buf_inventory_get_num_free_elements", "uint32_t *"))

    def buf_by_data(self, mmap: Mmap, offset: int = 0, size: int | None = None) -> Buf:
        """Return a full buffer, for use as a source: all of its bytes are data.

        Args:
            mmap: Map that contains the buffer.
            offset: Offset of the buffer in the map, in bytes.
            size: Bytes; None for the rest of the map.

        Raises:
            BoundsError: The range exceeds the map.
            NoMemory: All buffers are taken.
        """
        start, length = _part(mmap, offset, size)
        return self.buf_by_args(mmap, start, length, data=start, data_size=length)

    def buf_by_addr(self, mmap: Mmap, offset: int = 0, size: int | None = None) -> Buf:
        """Return an empty buffer, for use as a destination: room for `size` bytes, no data.

        Args and errors are those of `buf_by_data`.
        """
        start, length = _part(mmap, offset, size)
        return self.buf_by_args(mmap, start, length, data=start, data_size=0)

    def buf_by_args(self, mmap: Mmap, offset: int, size: int, *, data: int, data_size: int) -> Buf:
        """Return a buffer with data in only a part of it.

        Args:
            mmap: Map that contains the buffer.
            offset: Offset of the buffer in the map, in bytes.
            size: Capacity of the buffer in bytes.
            data: Offset of the data in the map, in bytes.
            data_size: Bytes of data.

        Raises:
            BoundsError: A range exceeds the map or the buffer.
            NoMemory: All buffers are taken.
        """
        start, length = _part(mmap, offset, size)
        first, filled = whole("data", data), whole("data_size", data_size)
        if first < start or first + filled > start + length:
            text = (
                f"data {first} + data_size {filled} leaves the buffer's {length} bytes at {start}"
            )
            raise BoundsError(text)
        lib = library()
        with CONTROL:
            at, begin = (lib.ffi.cast("void *", mmap.address + byte) for byte in (start, first))
            name, kind = "doca_buf_inventory_buf_get_by_args", "struct doca_buf **"
            raw = self._get(name, kind, mmap._handle(), at, length, begin, filled)
            return Buf(raw, self, mmap)

    def dup(self, buf: Buf) -> Buf:
        """Return another buffer over the same bytes, with the same data."""
        with CONTROL:
            Buf._expect("buf", buf)
            raw = self._get("doca_buf_inventory_buf_dup", "struct doca_buf **", buf._handle())
            return Buf(raw, self, buf.mmap)

    def _destroy(self) -> None:
        library().call("doca_buf_inventory_destroy", self._h)

    def _summary(self) -> str:
        return f"{self.free} of {self.size} free, {'' if self._started else 'not '}started"

    def _rows(self) -> list[tuple[str, object]]:
        state = "started" if self._started else "not started"
        return [("Buffers", self.size), ("Free", self.free), ("State", state)]


def _part(mmap: Mmap, offset: int, size: int | None) -> tuple[int, int]:
    """Return start and length of a range of a map. Raises BoundsError if it is out of bounds."""
    Mmap._expect("mmap", mmap)
    total, start = mmap.size, whole("offset", offset)
    length = total - start if size is None else whole("size", size)
    if length < 0 or start + length > total:
        raise BoundsError(f"offset {start} + size {length} leaves the map's {total} bytes")
    return start, length


class Buf(Handle):
    """Buffer (`doca_buf`): a range of a map, and the data in it. Taken from a BufInventory.

    Buffers can be chained to a list; one task can gather from a list or scatter to it. The first
    buffer represents the list: it holds the others, and closing it returns all of them to the
    inventory. A buffer that is garbage-collected also returns to its inventory.
    """

    __slots__ = ("_first", "_rest", "inventory", "mmap")
    _name = "buffer"
    _order = 2
    _pooled = True

    def __init__(self, raw: Any, inventory: BufInventory, mmap: Mmap) -> None:
        super().__init__()
        self.inventory, self.mmap = inventory, mmap
        self._rest: list[Buf] = []  # set in the first buffer of a list
        self._first: weakref.ref[Buf] | None = None  # set in all others
        self._opened(raw, inventory, mmap)

    def _offset(self, name: str) -> int:
        at = self._get(name, "void **")
        return int(library().ffi.cast("uintptr_t", at)) - self.mmap.address

    @property
    def offset(self) -> int:
        """Offset of the buffer in its map, in bytes."""
        return self._offset("doca_buf_get_head")

    @property
    def size(self) -> int:
        """Capacity of the buffer in bytes."""
        return int(self._get("doca_buf_get_len", "size_t *"))

    @property
    def data_offset(self) -> int:
        """Offset of the data in the map, in bytes."""
        return self._offset("doca_buf_get_data")

    @property
    def data_size(self) -> int:
        """Bytes of data. In a destination, the engine sets it when the task completes."""
        return int(self._get("doca_buf_get_data_len", "size_t *"))

    @property
    def room(self) -> int:
        """Bytes that a task can append to the data."""
        return self.offset + self.size - self.data_offset - self.data_size

    @property
    def data(self) -> memoryview:
        """The data, without a copy. Raises NotSupported if Python cannot access the memory."""
        start = self.data_offset
        return self.mmap._view()[start : start + self.data_size]

    def set_data(self, offset: int, size: int) -> None:
        """Set which bytes of the map are the data. Raises BoundsError if they exceed the buffer."""
        start, length = whole("offset", offset), whole("size", size)
        first, room = self.offset, self.size
        if start < first or start + length > first + room:
            text = f"offset {start} + size {length} leaves the buffer's {room} bytes at {first}"
            raise BoundsError(text)
        at = library().ffi.cast("void *", self.mmap.address + start)
        self._call("doca_buf_set_data", at, length)

    def reset_data(self) -> None:
        """Set the size of the data to 0; its offset stays the same."""
        self._call("doca_buf_reset_data_len")

    @property
    def refcount(self) -> int:
        """DOCA's reference count."""
        return int(self._get("doca_buf_get_refcount", "uint16_t *"))

    @property
    def parts(self) -> tuple[Buf, ...]:
        """Buffers of the list, starting with this one."""
        self._handle()
        first = self if self._first is None else self._first()
        whole_list = () if first is None else (first, *first._rest)
        return whole_list[whole_list.index(self) :]

    def chain(self, other: Buf) -> Buf:
        """Append another buffer or list to this one, and return this one.

        Raises:
            NotPermitted: One of the two buffers is in a list but is not its first.
        """
        Buf._expect("other", other)
        with CONTROL:
            self._call("doca_buf_chain_list", other._handle())
            self._rest += [other, *other._rest]
            other._rest = []
            for part in self._rest:
                part._first = weakref.ref(self)
        return self

    def unchain(self, at: Buf) -> Buf:
        """Split the list before `at`; return `at`, the first buffer of the new second list."""
        Buf._expect("at", at)
        with CONTROL:
            self._call("doca_buf_unchain_list", at._handle())
            cut = self._rest.index(at)
            self._rest, at._rest = self._rest[:cut], self._rest[cut + 1 :]
            at._first = None
            for part in at._rest:
                part._first = weakref.ref(at)
        return at

    def close(self) -> None:
        """Return the buffer to its inventory, and with the first its whole list. Idempotent.

        A buffer in the middle of a list is unchained first. Raises InUse while a task uses the
        list.
        """
        with CONTROL:
            first = None if self._first is None else self._first()
            if first is not None and self._h is not None:
                after = self.parts[1:]
                first.unchain(self)
                if after:
                    first.chain(self.unchain(after[0]))
            for part in self._rest:
                part._close_children()
            super().close()

    def _destroy(self) -> None:
        lib = library()
        lib.call("doca_buf_dec_refcount", self._h, lib.ffi.NULL)
        rest, self._rest = self._rest, []
        for part in rest:
            part._destroyed()

    def _abandon(self) -> None:
        if self._first is None:  # otherwise the first buffer of its list holds and closes it
            super()._abandon()

    def _summary(self) -> str:
        text = (
            f"{self.size:,} bytes from byte {self.offset:,} of its map, {self.data_size:,} of data"
        )
        chained = len(self.parts) - 1
        return f"{text}, {chained} more behind it" if chained else text

    def _rows(self) -> list[tuple[str, object]]:
        parts = self.parts
        rows: list[tuple[str, object]] = [("Bytes", f"{self.size:,} from byte {self.offset:,} on")]
        rows += [("Of them data", f"{self.data_size:,} from byte {self.data_offset:,} on")]
        if len(parts) > 1:
            total = sum(part.data_size for part in parts)
            rows += [("Its list", f"{len(parts)} buffers from here on, {total:,} bytes of data")]
        return [*rows, ("Place", self.mmap._place_text)]
