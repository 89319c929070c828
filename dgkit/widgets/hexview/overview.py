# SPDX-License-Identifier: Apache-2.0
"""Overview of a whole region: mean value, entropy and changes of each of 256 parts of it.

Regions up to 4 MiB are read whole; of larger ones the middle 4 KiB of each part, 1 MiB in all.
"""

from __future__ import annotations

from collections.abc import Generator
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from ..base.panel import handler
from .region_scan import Key, Read, RegionScan, ShownBytes

if TYPE_CHECKING:
    from ...session import SessionRegion

PARTS = 256
WHOLE_BYTES = 4 << 20  # a region of at most this size is read whole
SAMPLE_BYTES = 4096  # of each part of a larger region
_CHUNK_BYTES = 256 << 10  # per read

Span = tuple[int, int]  # offset and size in bytes


class Scan(NamedTuple):
    """Statistics of a region, a byte per part.

    Attributes:
        read: The number of bytes that were read.
        value: The mean value of the bytes, 0 to 255.
        entropy: Shannon's entropy of the bytes in bits per byte, 0 to 8 as 0 to 255.
        hashes: A hash of the bytes that were read of each part.
    """

    read: int
    value: bytes
    entropy: bytes
    hashes: tuple[int, ...]


def reads_of(size: int) -> list[list[Span]]:
    """Return what to read of a region of `size` bytes: for each read, its parts in order."""
    count = min(PARTS, size)
    bounds = [size * part // count for part in range(count + 1)]
    if size > WHOLE_BYTES:
        middles = [(low + high - SAMPLE_BYTES) // 2 for low, high in pairwise(bounds)]
        return [[(at, SAMPLE_BYTES)] for at in middles]
    parts = [(low, high - low) for low, high in pairwise(bounds)]
    each = max(1, _CHUNK_BYTES * count // size)
    return [parts[at : at + each] for at in range(0, count, each)]


def scan(read: Read, size: int) -> Generator[bool, None, Scan]:
    """Read a region in bounded chunks, yielding in between, and return what was found."""
    means, entropies, hashes, total = bytearray(), bytearray(), [], 0
    for parts in reads_of(size):
        first = parts[0][0]
        data = yield from read(first, sum(n for _, n in parts))
        total += len(data)
        for at, n in parts:
            part = data[at - first : at - first + n]
            mean, entropy = _statistics(part)
            means.append(round(mean))
            entropies.append(round(entropy * 255 / 8))
            hashes.append(hash(part))
        yield True
    return Scan(total, bytes(means), bytes(entropies), tuple(hashes))


def _statistics(data: bytes) -> tuple[float, float]:
    """Return the mean of bytes, and their entropy in bits per byte."""
    counts = np.bincount(np.frombuffer(data, "u1"), minlength=256)
    share = counts[counts > 0] / len(data)
    mean = float(counts @ np.arange(256)) / len(data)
    return mean, abs(float((share * np.log2(share)).sum()))


class Overview(RegionScan[Scan]):
    """The overview of the shown region."""

    kind = "overview"
    live_s = 2.0

    def __init__(self, shown: ShownBytes) -> None:
        super().__init__(shown)
        self._reference: tuple[Key, tuple[int, ...]] | None = None

    @handler
    def overview(self, view: str) -> None:
        """Read the overview of the region; an `overview` message follows."""
        self.request(str(view))

    def mark(self) -> None:
        """Clear the changes: what the next scan reads becomes the reference."""
        self._reference = None
        self.renew(urgent=True)

    def reset(self) -> None:
        """Discard all results: the region was replaced or freed."""
        self._reference = None
        super().reset()

    def _scan(self, region: SessionRegion, read: Read) -> Generator[bool, None, Scan]:
        return scan(read, region.size)

    def _report(self, key: Key, size: int, found: Scan, asked: bool) -> None:
        if self._reference is None or self._reference[0] != key:
            self._reference = (key, found.hashes)
        before = self._reference[1]
        changed = bytes(new != old for new, old in zip(found.hashes, before, strict=True))
        buffers = [found.value, found.entropy, changed]
        if asked or (key, buffers) != self._sent:
            self._sent = (key, buffers)
            self._send(
                "overview", buffers, region=key[0], source=key[1], size=size, read=found.read,
                error="",
            )  # fmt: skip
