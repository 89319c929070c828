# SPDX-License-Identifier: Apache-2.0
"""Memory for results: bytes objects that are filled after their creation, and reused."""

from __future__ import annotations

import sys
import threading

from ..dma.bytes_memory import discard_pages, prefer_huge_pages, stored_hash

_LEAST = 1 << 20  # bytes; for smaller objects the C library reuses memory
_MOST = 256 << 20  # bytes of all objects that a pool keeps
_UNUSED = 64  # calls of take() in a row that did not use the oldest object: then it is dropped


class BytePool:
    """Pool of unreferenced bytes objects for the results of reads. Thread-safe.

    The first access to each page of new memory is a page fault: for 64 MiB, the faults take five to
    ten times as long as the copy that fills the memory. Therefore the pool keeps the latest large
    objects, at most 256 MiB, and returns an object again when nothing else refers to it, the latest
    first. Those of a peak are dropped, one after _UNUSED calls, while fewer are in use. The
    reference count says which objects are in use: a list of them could become inconsistent.

    An object is not reused once its hash was computed, because CPython stores the hash in it.

    Args:
        most: Bytes of all objects that it keeps.
    """

    def __init__(self, most: int = _MOST) -> None:
        self._most = most
        self._kept: list[bytes] = []
        self._lock = threading.Lock()
        self._inside: dict[int, None] = {}  # threads in take()
        self._oldest, self._unused = 0, 0  # id of the oldest object; calls that did not use it

    def take(self, size: int) -> bytes:
        """Return a bytes object of `size` bytes, whose content is undefined.

        Raises:
            MemoryError: There is not enough memory.
        """
        if not _LEAST <= size <= self._most or not _REUSABLE:
            return _create(size)
        thread = threading.get_ident()
        if thread in self._inside:  # in a finalizer or signal handler that interrupted take()
            return _create(size)
        self._inside[thread] = None
        try:
            with self._lock:
                return self._take(self._kept, size)
        finally:
            self._inside.pop(thread, None)

    def _take(self, kept: list[bytes], size: int) -> bytes:
        data = self._reused(kept, size)
        if data is None:
            while sum(map(len, kept)) > self._most - size:
                del kept[0]  # the oldest
            data = _create(size)
            kept.append(data)
        self._drop_unused(kept)
        return data

    def _reused(self, kept: list[bytes], size: int) -> bytes | None:
        """Return a free object of a size, which becomes the newest; None if none is."""
        for number in reversed(range(len(kept))):
            if len(kept[number]) == size and _is_free(kept, number):
                kept.append(kept.pop(number))
                return kept[-1]
        return None

    def _drop_unused(self, kept: list[bytes]) -> None:
        """Drop the oldest object if the latest _UNUSED calls did not use it and nobody does."""
        oldest = id(kept[0]) if len(kept) > 1 else 0  # the newest is in use
        self._unused = self._unused + 1 if oldest == self._oldest else 0
        self._oldest = oldest
        if oldest and self._unused >= _UNUSED:
            if _is_alone(kept, 0):
                discard_pages(kept[0])  # the C library would keep them
                del kept[0]
            else:
                kept.append(kept.pop(0))

    def clear(self) -> None:
        """Drop all objects; those in use stay valid. A take() in progress keeps the old list."""
        self._kept = []


def _create(size: int) -> bytes:
    try:
        data = bytes(size)  # by calloc(): pages of large memory are provided at first access
    except (MemoryError, OverflowError) as error:
        raise MemoryError(f"no memory for the {size} bytes of a read") from error
    if size >= _LEAST:
        prefer_huge_pages(data)
    return data


def _references(objects: list[bytes], number: int) -> int:
    return sys.getrefcount(objects[number])


def _is_alone(objects: list[bytes], number: int) -> bool:
    """Return whether only the list refers to its object at index `number`.

    The references that the call itself adds depend on the interpreter's version and on how far it
    has specialized this code. Therefore the same code also counts, at the same time, the references
    to an object known to be referenced by one list only, and the two counts are compared.
    """
    return _references(objects, number) == _references(_ALONE, 0)


def _is_free(objects: list[bytes], number: int) -> bool:
    """Return whether only the list refers to the object, and its hash was never computed."""
    return _is_alone(objects, number) and stored_hash(objects[number]) == -1


def _reusable() -> bool:
    """Return whether this interpreter counts references and stores hashes as CPython does.

    A free-threaded build has no such count, even while its GIL is on: importing an extension turns
    the GIL on, sometimes only during the import. From 3.14 on, a reference on the stack may not be
    counted, so nothing is reused there.
    """
    if sys.implementation.name != "cpython" or "t" in sys.abiflags or sys.version_info >= (3, 14):
        return False
    data = bytes(16)
    counts = not _is_alone([data], 0) and _is_alone([bytes(16)], 0)
    before = stored_hash(data)
    return bool(counts and before == -1 and hash(data) == stored_hash(data))


_ALONE = [bytes(16)]  # an object that only a list refers to
_REUSABLE = _reusable()
