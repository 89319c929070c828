"""Tracking of bytes that changed since they were first shown."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Sequence
from typing import Any

import numpy as np

BLOCK = 256  # bytes remembered together; reads are rounded to whole blocks
MAX_BLOCKS = 16_384  # 4 MiB

CHANGED = (1, 2)  # flag of a change in the first and in the second source shown
DIFFERS = 4


def block_range(at: int, size: int, end: int) -> tuple[int, int]:
    """Return the range of whole blocks that contains `size` bytes from offset `at`.

    Returns:
        The first offset and the offset after the last, which is at most `end`.
    """
    return at // BLOCK * BLOCK, min(end, -(-(at + size) // BLOCK) * BLOCK)


class ChangeTracker:
    """Reference copies of the blocks of one region: as first shown, or first after mark()."""

    def __init__(self) -> None:
        self._blocks: OrderedDict[tuple[str, int], bytes] = OrderedDict()
        self._lock = threading.Lock()

    def flags(self, sources: Sequence[str], at: int, parts: Sequence[bytes]) -> bytes:
        """Return a byte of flags for each byte from `at` on, or b"" if all flags are 0.

        Args:
            sources: The names of the sources.
            at: The offset of the first byte; a multiple of BLOCK.
            parts: The bytes as each source has them, of equal size.
        """
        flags = np.zeros(len(parts[0]), "u1")
        with self._lock:
            for source, flag, data in zip(sources, CHANGED, parts, strict=False):
                for first in range(0, len(data), BLOCK):
                    block = data[first : first + BLOCK]
                    reference = self._reference(source, at + first, block)
                    if reference != block:
                        flags[first : first + len(block)] |= _unequal(reference, block) * flag
        if len(parts) == 2 and parts[0] != parts[1]:
            flags |= _unequal(parts[0], parts[1]) * DIFFERS
        return flags.tobytes() if flags.any() else b""

    def _reference(self, source: str, at: int, block: bytes) -> bytes:
        reference = self._blocks.setdefault((source, at), block)
        self._blocks.move_to_end((source, at))
        if len(self._blocks) > MAX_BLOCKS:
            self._blocks.popitem(last=False)
        return reference

    def mark(self) -> None:
        """Clear all changes: the next bytes shown become the reference."""
        with self._lock:
            self._blocks.clear()


def _unequal(first: bytes, second: bytes) -> np.ndarray[Any, np.dtype[np.uint8]]:
    """Return 1 where the bytes differ, else 0."""
    unequal: Any = np.frombuffer(first, "u1") != np.frombuffer(second, "u1")
    flags: np.ndarray[Any, np.dtype[np.uint8]] = unequal.view("u1")
    return flags
