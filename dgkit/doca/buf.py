"""Buffers: stretches of maps, alone or chained to lists, and the inventory they are taken from."""

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

__all__ = ["Buf", "BufInventory"]


class BufInventory(Handle):
    """Where buffers are taken from, at most `size` at a time (`doca_buf_inventory`).

    `start=False` leaves the start to `start()`. Before it no buffer can be taken: BadState.
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
        """From now on buffers can be taken."""
        self._call("doca_buf_inventory_start")
        self._started = True

    def stop(self) -> None:
        """No buffer can be taken until the next `start()`; those that are out stay."""
        self._call("doca_buf_inventory_stop")
        self._started = False

    @property
    def size(self) -> int:
        """How many buffers it has."""
        return int(self._get("doca_buf_inventory_get_num_elements", "uint32_t *"))

    @property
    def free(self) -> int:
        """How many of them are not taken."""
        return int(self._get("doca_buf_inventory_get_num_free_elements", "uint32_t *"))

    def buf_by_data(self, mmap: Mmap, offset: int = 0, size: int | None = None) -> Buf:
        """A full buffer, as a source is: `size` bytes (None: the rest) of a map, all of them data.

        `offset` counts from where the map's memory begins. BoundsError if it leaves the map,
        NoMemory if no buffer is left.
        """
        start, length = _part(mmap, offset, size)
        return self.buf_by_args(mmap, start, length, data=start, data_size=length)

    def buf_by_addr(self, mmap: Mmap, offset: int = 0, size: int | None = None) -> Buf:
        """An empty buffer, as a destination is: room for `size` bytes, no data yet."""
        start, length = _part(mmap, offset, size)
        return self.buf_by_args(mmap, start, length, data=start, data_size=0)

    def buf_by_args(self, mmap: Mmap, offset: int, size: int, *, data: int, data_size: int) -> Buf:
        """Room for `size` bytes from `offset` on; its data begins at byte `data` of the map."""
        start, length = _part(mmap, offset, size)
        first, filled = whole("data", data), whole("data_size", data_size)
        if first < start or first + filled > start + length:
            text = f"data {first} + data_size {filled} leaves the {length} bytes at {start}"
            raise BoundsError(text)
        lib = library()
        with CONTROL:
            at, begin = (lib.ffi.cast("void *", mmap.address + byte) for byte in (start, first))
            name, kind = "doca_buf_inventory_buf_get_by_args", "struct doca_buf **"
            raw = self._get(name, kind, mmap._handle(), at, length, begin, filled)
            return Buf(raw, self, mmap)

    def dup(self, buf: Buf) -> Buf:
        """Another buffer of the same bytes, with the same data."""
        with CONTROL:
            Buf._expect("buf", buf)
            raw = self._get("doca_buf_inventory_buf_dup", "struct doca_buf **", buf._handle())
            return Buf(raw, self, buf.mmap)

    def _destroy(self) -> None:
        library().call("doca_buf_inventory_destroy", self._h)

    def _about(self) -> str:
        return f"{self.free} of {self.size} free, {'' if self._started else 'not '}started"

    def _rows(self) -> list[tuple[str, object]]:
        state = "started" if self._started else "not started"
        return [("Buffers", self.size), ("Free", self.free), ("State", state)]


def _part(mmap: Mmap, offset: int, size: int | None) -> tuple[int, int]:
    """Where a part of a map begins, and how long it is."""
    Mmap._expect("mmap", mmap)
    total, start = mmap.size, whole("offset", offset)
    length = total - start if size is None else whole("size", size)
    if length < 0 or start + length > total:
        raise BoundsError(f"offset {start} + size {length} leaves the map's {total} bytes")
    return start, length


class Buf(Handle):
    """A stretch of a map, and the data in it (`doca_buf`). Taken from a BufInventory.

    Buffers are chained to lists, by which one task gathers or scatters. The first of a list stands
    for all of it: it holds the others, and closing it gives all of them back. A buffer that is
    forgotten goes back to its inventory.
    """

    __slots__ = ("_first", "_rest", "inventory", "mmap")
    _name = "buffer"
    _order = 2
    _pooled = True

    def __init__(self, raw: Any, inventory: BufInventory, mmap: Mmap) -> None:
        super().__init__()
        self.inventory, self.mmap = inventory, mmap
        self._rest: list[Buf] = []  # of its list, in the first
        self._first: weakref.ref[Buf] | None = None  # of its list, in all others
        self._opened(raw, inventory, mmap)

    def _offset(self, name: str) -> int:
        at = self._get(name, "void **")
        return int(library().ffi.cast("uintptr_t", at)) - self.mmap.address

    @property
    def offset(self) -> int:
        """Where it begins, in bytes from the beginning of its map."""
        return self._offset("doca_buf_get_head")

    @property
    def size(self) -> int:
        """Bytes that it has room for."""
        return int(self._get("doca_buf_get_len", "size_t *"))

    @property
    def data_offset(self) -> int:
        """Where its data begins, in bytes from the beginning of its map."""
        return self._offset("doca_buf_get_data")

    @property
    def data_size(self) -> int:
        """Bytes of data in it. Of a destination the engine sets it, at the task's completion."""
        return int(self._get("doca_buf_get_data_len", "size_t *"))

    @property
    def room(self) -> int:
        """Bytes that a task can still put behind its data."""
        return self.offset + self.size - self.data_offset - self.data_size

    @property
    def data(self) -> memoryview:
        """Its data, in place. NotSupported if Python cannot see that memory."""
        start = self.data_offset
        return self.mmap._view()[start : start + self.data_size]

    def set_data(self, offset: int, size: int) -> None:
        """Says which bytes of its map are its data. BoundsError outside of its room."""
        start, length = whole("offset", offset), whole("size", size)
        first, room = self.offset, self.size
        if start < first or start + length > first + room:
            text = f"offset {start} + size {length} leaves the buffer's {room} bytes at {first}"
            raise BoundsError(text)
        at = library().ffi.cast("void *", self.mmap.address + start)
        self._call("doca_buf_set_data", at, length)

    def reset_data(self) -> None:
        """Empties it: the data begins where it began, and has no bytes."""
        self._call("doca_buf_reset_data_len")

    @property
    def refcount(self) -> int:
        """How many hold it, in DOCA's count."""
        return int(self._get("doca_buf_get_refcount", "uint16_t *"))

    @property
    def parts(self) -> tuple[Buf, ...]:
        """The buffers of its list, from this one on."""
        self._handle()
        first = self if self._first is None else self._first()
        whole_list = () if first is None else (first, *first._rest)
        return whole_list[whole_list.index(self) :]

    def chain(self, other: Buf) -> Buf:
        """Puts another list behind this one, and gives this one.

        NotPermitted unless both are the first of their lists, or alone.
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
        """Splits its list before `at`, which is the first of the second half now. Gives `at`."""
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
        """Gives it back, and what is chained behind it if it is the first. Again: does nothing.

        Out of the middle of a list it is taken before. InUse while a task with it is in flight.
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
            part._gone()

    def _forgotten(self) -> None:
        if self._first is None:  # else it goes with the first of its list, which holds it
            super()._forgotten()

    def _about(self) -> str:
        text = f"{self.size} bytes from byte {self.offset} of its map, {self.data_size} of data"
        chained = len(self.parts) - 1
        return f"{text}, {chained} more behind it" if chained else text

    def _rows(self) -> list[tuple[str, object]]:
        parts = self.parts
        rows: list[tuple[str, object]] = [("Bytes", f"{self.size} from byte {self.offset} on")]
        rows += [("Of them data", f"{self.data_size} from byte {self.data_offset} on")]
        if len(parts) > 1:
            total = sum(part.data_size for part in parts)
            rows += [("Its list", f"{len(parts)} buffers from here on, {total} bytes of data")]
        return [*rows, ("Place", self.mmap._where)]
