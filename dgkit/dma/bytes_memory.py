# SPDX-License-Identifier: Apache-2.0
"""The memory behind Python's buffers: addresses, copies without the GIL, pages, stored hashes."""

from __future__ import annotations

from ._ffi import ffi, lib

TYPE_CHECKING = False  # typing's own costs more to import than all of this
if TYPE_CHECKING:
    from typing import Any

_STREAMED = 8 << 20  # bytes of an object that exceeds the caches: DG_LARGE in copy.h


def address_of(buffer: Any) -> int:
    """Return the address of a buffer's first byte, which is valid as long as its memory is."""
    return int(ffi.cast("uintptr_t", ffi.from_buffer("char[]", buffer)))


def fill(data: bytes | memoryview, offset: int, source: memoryview) -> None:
    """Copy bytes into a bytes object that nothing else has seen yet, or into writable memory.

    Other threads may run meanwhile: neither `data` nor the memory of `source` is freed before the
    end, and `source` must not change.

    Args:
        data: The object, or writable memory.
        offset: Where to begin in `data`.
        source: Contiguous bytes, at most as many as `data` has from `offset` on.
    """
    size = len(source)
    if not 0 <= offset <= len(data) - size:
        raise ValueError(f"{size} bytes at {offset} do not fit into {len(data)}")
    target, start = ffi.from_buffer("char[]", data), ffi.from_buffer("char[]", source)
    try:
        if len(data) < _STREAMED:
            ffi.memmove(target + offset, start, size)
        else:
            lib.dg_copy_large(target + offset, start, size)  # the arguments keep both exports
    finally:
        # a traceback must not keep them: buffer_export.py says why
        del target, start


def prefer_huge_pages(data: bytes) -> None:
    """Ask the kernel to provide the object's memory in huge pages."""
    lib.dg_memory_prefer_huge_pages(ffi.from_buffer("char[]", data), len(data))


def discard_pages(data: bytes) -> None:
    """Return the object's pages to the kernel; its content is lost."""
    lib.dg_memory_discard(ffi.from_buffer("char[]", data), len(data))


def stored_hash(data: bytes) -> int:
    """Return the hash that CPython stores in a bytes object, before its bytes; -1: none yet."""
    return int(ffi.cast("int64_t *", ffi.cast("char *", ffi.from_buffer("char[]", data)) - 8)[0])
