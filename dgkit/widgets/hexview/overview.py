"""Overview of a whole region: mean value, entropy and changes of each of 256 parts of it.

A region of up to 4 MiB is read whole; of a larger one the middle 4 KiB of each part, 1 MiB in all.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Generator, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ...errors import ClosedError, DgkitError
from ..base import scheduler
from ..base.viewers import Viewers

if TYPE_CHECKING:
    from ...session import SessionRegion
    from .fetch import Reader

__all__ = ["PARTS", "SAMPLE_BYTES", "WHOLE_BYTES", "Overview", "Scan", "reads_of", "scan"]

PARTS = 256
WHOLE_BYTES = 4 << 20  # a region of at most this size is read whole
SAMPLE_BYTES = 4096  # of each part of a larger region
_CHUNK_BYTES = 256 << 10  # per read
_PAUSE_S = 0.5  # between a scan and the next that no user asked for
_LIVE_S = 2.0  # between two scans while live viewing is on

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


def scan(
    read: Callable[[int, int], Generator[bool, None, bytes]], size: int
) -> Generator[bool, None, Scan]:
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


class Overview:
    """The overview of the shown region, for all views of a panel.

    It is scanned for visible views: on request, when a panel wrote to the region, and every two
    seconds while live viewing is on. Views are sent `overview` messages; thread-safe.
    """

    def __init__(
        self,
        reader: Reader,
        region: Callable[[], SessionRegion | None],
        sources: Callable[[], Sequence[str]],
        live: Callable[[], bool],
        send: Callable[..., None],
        failed: Callable[[Exception], None],
    ) -> None:
        """Create it; nothing is read until a view asks.

        Args:
            reader: Reads the bytes.
            region: Returns the shown region.
            sources: Returns the names of the shown sources; the first is read.
            live: Returns whether live viewing is on.
            send: Sends a message to all views.
            failed: Called with an unexpected error.
        """
        self._reader, self._region, self._sources = reader, region, sources
        self._live, self._send, self._failed = live, send, failed
        self._viewers = Viewers()
        self._lock = threading.Lock()  # guards _wanted, _running and _task
        self._wanted = self._urgent = self._running = False
        self._task: scheduler.Task | None = None
        self._reference: tuple[Any, tuple[int, ...]] | None = None
        self._sent: Any = None

    def request(self, view: str) -> None:
        """Scan for a view that is visible."""
        self._viewers.update(view, True)
        self._start(urgent=True)

    def renew(self, *, urgent: bool = False) -> None:
        """Scan again if a view is visible; `urgent`: without a pause after the last scan."""
        if self._viewers.any_recent():
            self._start(urgent=urgent)

    def set_visible(self, view: str, on: bool) -> None:
        """Record that a view is still visible, or no longer."""
        self._viewers.update(view, on)

    def mark(self) -> None:
        """Clear the changes: what the next scan reads becomes the reference."""
        self._reference = None
        self.renew(urgent=True)

    def reset(self) -> None:
        """Discard everything known: the region was replaced or freed."""
        self._reference = self._sent = None
        self.renew(urgent=True)

    def end(self) -> None:
        """End the scan."""
        with self._lock:
            task, self._running = self._task, False
        if task is not None:
            task.cancel()

    def _start(self, *, urgent: bool) -> None:
        with self._lock:
            self._wanted = True
            self._urgent = self._urgent or urgent
            if not self._running:
                self._running = True
                self._task = scheduler.start(self._steps(), self._fail)

    def _fail(self, error: Exception) -> None:
        with self._lock:
            self._running = False
        self._failed(error)

    def _again(self, scanned: float) -> bool | None:
        """Return whether to scan now; None while that is open, and False to end the task."""
        passed = time.monotonic() - scanned
        with self._lock:
            if self._wanted and (self._urgent or passed >= _PAUSE_S):
                return True
            if self._wanted or (self._live() and passed < _LIVE_S):
                return None
            self._running = bool(self._live() and self._viewers.due())
            return self._running

    def _steps(self) -> Generator[Any, None, None]:
        again: bool | None = True
        while again:
            with self._lock:
                asked, self._wanted, self._urgent = self._wanted, False, False
            yield from self._scan(asked)
            scanned = time.monotonic()
            while (again := self._again(scanned)) is None:
                yield

    def _scan(self, asked: bool) -> Generator[Any, None, None]:
        region, sources = self._region(), self._sources()[:1]
        if region is None:
            return
        key = (region.id, *sources)
        try:
            found = yield from scan(lambda at, n: self._read(region, sources, at, n), region.size)
        except ClosedError:  # the region is being freed; the session reports that
            return
        except DgkitError as error:
            self._sent = None
            self._send("overview", region=region.id, error=str(error))
            return
        now = self._region()
        if now is None or (now.id, *self._sources()[:1]) != key:
            self._wanted = now is not None
            return
        self._report(key, region.size, found, asked)

    def _read(
        self, region: SessionRegion, sources: Sequence[str], at: int, size: int
    ) -> Generator[bool, None, bytes]:
        fetch = self._reader.start(region, sources, at, size)
        try:
            return (yield from fetch.steps())[0]
        finally:
            self._reader.abandon(fetch)

    def _report(self, key: tuple[Any, ...], size: int, found: Scan, asked: bool) -> None:
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
