"""What was shown before, so that what has changed since can be marked."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Sequence
from typing import Any

import numpy as np

__all__ = ["BLOCK", "CHANGED", "DIFFERS", "Seen", "around"]

BLOCK = 256  # bytes that are remembered together; what is read is rounded to it
KEPT = 16_384  # blocks: 4 MiB

CHANGED = (1, 2)  # the flag of the first and of the second source shown
DIFFERS = 4


def around(at: int, size: int, end: int) -> tuple[int, int]:
    """The whole blocks that hold the bytes, up to the region's end: first byte, and one past."""
    return at // BLOCK * BLOCK, min(end, -(-(at + size) // BLOCK) * BLOCK)


class Seen:
    """Of one region: each block as it was when it was shown first, or first after mark()."""

    def __init__(self) -> None:
        self._blocks: OrderedDict[tuple[str, int], bytes] = OrderedDict()
        self._lock = threading.Lock()

    def flags(self, sources: Sequence[str], at: int, found: Sequence[bytes]) -> bytes:
        """A byte of flags for each byte from `at`, which begins a block; nothing if all are 0."""
        flags = np.zeros(len(found[0]), "u1")
        with self._lock:
            for source, flag, data in zip(sources, CHANGED, found, strict=False):
                for first in range(0, len(data), BLOCK):
                    block = data[first : first + BLOCK]
                    before = self._before(source, at + first, block)
                    if before != block:
                        flags[first : first + len(block)] |= _unlike(before, block) * flag
        if len(found) == 2 and found[0] != found[1]:
            flags |= _unlike(found[0], found[1]) * DIFFERS
        return flags.tobytes() if flags.any() else b""

    def _before(self, source: str, at: int, block: bytes) -> bytes:
        before = self._blocks.setdefault((source, at), block)
        self._blocks.move_to_end((source, at))
        if len(self._blocks) > KEPT:
            self._blocks.popitem(last=False)
        return before

    def mark(self) -> None:
        """All is seen: what changes from the next look on counts."""
        with self._lock:
            self._blocks.clear()


def _unlike(one: bytes, other: bytes) -> np.ndarray[Any, np.dtype[np.uint8]]:
    """1 where they are not the same, else 0."""
    unlike: Any = np.frombuffer(one, "u1") != np.frombuffer(other, "u1")
    flags: np.ndarray[Any, np.dtype[np.uint8]] = unlike.view("u1")
    return flags
