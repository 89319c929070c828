"""Memory for results: bytes objects that are filled after their creation, and reused."""

from __future__ import annotations

import sys
import threading

from ._ffi import ffi, lib

TYPE_CHECKING = False  # typing's own costs more to import than all of this
if TYPE_CHECKING:
    from typing import Any

__all__ = ["BytePool"]

_LEAST = 1 << 20  # bytes; the C library reuses the memory of smaller objects
_MOST = 256 << 20  # bytes of the objects that a pool keeps
_STREAMED = 8 << 20  # bytes of an object that no cache keeps: as DG_LARGE in provider.h


class BytePool:
    """Bytes objects that nothing refers to yet, for the results of reads. Thread-safe.

    The first access to each page of new memory is a page fault: 64 MiB of them take five to ten
    times as long as the copy that fills them. Therefore the pool keeps the latest large objects, at
    most 256 MiB, and returns one again when nothing else refers to it. It keeps no list
    of objects in use, which Ctrl-C could leave inconsistent: the reference count decides.

    An object is not reused once its hash was taken, which CPython stores in it.
    """

    def __init__(self, most: int = _MOST) -> None:
        self._most = most
        self._kept: list[bytes] = []
        self._lock = threading.Lock()
        self._inside: dict[int, None] = {}  # threads in take()

    def take(self, size: int) -> bytes:
        """Return a bytes object of `size` bytes, whose content is undefined.

        Raises:
            MemoryError: There is not enough memory.
        """
        if not _LEAST <= size <= self._most or not _REUSABLE:
            return _create(size)
        thread = threading.get_ident()
        if thread in self._inside:  # in a finalizer or a signal's handler that interrupted take()
            return _create(size)
        self._inside[thread] = None
        try:
            with self._lock:
                return self._take(self._kept, size)
        finally:
            self._inside.pop(thread, None)

    def _take(self, kept: list[bytes], size: int) -> bytes:
        for number in range(len(kept)):
            if len(kept[number]) == size and _is_free(kept, number):
                kept.append(kept.pop(number))
                return kept[-1]
        while sum(map(len, kept)) > self._most - size:
            del kept[0]  # the oldest
        data = _create(size)
        kept.append(data)
        return data

    def clear(self) -> None:
        """Forget all objects; those in use stay valid. A take() in progress keeps the old list."""
        self._kept = []

    @staticmethod
    def fill(data: bytes | memoryview, offset: int, source: memoryview) -> None:
        """Copy bytes into an object that take() returned and nothing else has seen, or into memory.

        Other threads may run meanwhile: neither `data` nor the memory of `source` is freed before
        the end, nor may `source` change.

        Args:
            data: The object, or writable memory.
            offset: Where to begin in it.
            source: Contiguous bytes, at most as many as `data` has from there on.
        """
        size = len(source)
        if not 0 <= offset <= len(data) - size:
            raise ValueError(f"{size} bytes at {offset} do not fit into {len(data)}")
        target, start = ffi.from_buffer("char[]", data), ffi.from_buffer("char[]", source)
        if len(data) < _STREAMED:
            ffi.memmove(target + offset, start, size)
        else:
            lib.dg_copy_large(target + offset, start, size)  # its arguments keep both exports


def _create(size: int) -> bytes:
    try:
        data = bytes(size)  # by calloc(): large memory gets its pages at their first access
    except (MemoryError, OverflowError) as error:
        raise MemoryError(f"no memory for the {size} bytes of a read") from error
    if size >= _LEAST:
        lib.dg_memory_prefer_huge_pages(ffi.from_buffer("char[]", data), size)
    return data


def _hash_field(data: bytes) -> Any:
    """Return a pointer to where CPython stores the hash of a bytes object: before its bytes."""
    return ffi.cast("int64_t *", ffi.cast("char *", ffi.from_buffer("char[]", data)) - 8)


def _references(objects: list[bytes], number: int) -> int:
    return sys.getrefcount(objects[number])


def _is_alone(objects: list[bytes], number: int) -> bool:
    """Return whether only the list refers to this object of it.

    What the call itself adds to the count depends on the interpreter's version and on how it has
    specialized this code so far. Therefore the same code counts, at the same time, the references
    to an object that is known to be alone, and the two counts are compared.
    """
    return _references(objects, number) == _references(_ALONE, 0)


def _is_free(objects: list[bytes], number: int) -> bool:
    """Return whether only the list refers to this object of it, and its hash was never taken."""
    return _is_alone(objects, number) and _hash_field(objects[number])[0] == -1


def _reusable() -> bool:
    """Return whether this interpreter counts references and stores hashes as CPython does.

    A free-threaded build has no such count, even while its GIL is on: importing an extension turns
    the GIL on, at times for the import only. From 3.14 on a reference on the stack may
    not be counted, so there nothing is reused.
    """
    if sys.implementation.name != "cpython" or "t" in sys.abiflags or sys.version_info >= (3, 14):
        return False
    data = bytes(16)
    counts = not _is_alone([data], 0) and _is_alone([bytes(16)], 0)
    before = _hash_field(data)[0]
    return bool(counts and before == -1 and hash(data) == _hash_field(data)[0])


_ALONE = [bytes(16)]  # an object that only a list refers to
_REUSABLE = _reusable()
