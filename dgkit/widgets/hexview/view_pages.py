# SPDX-License-Identifier: Apache-2.0
"""Pages of bytes in view, and which of their bytes changed since they were first shown.

A page is read on request and, while live viewing is on, on every change.
"""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np

from ...errors import ClosedError
from ..base import scheduler
from ..base.panel import Viewers

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ...session import SessionRegion
    from ..base.page_input import Reply
    from .fetch import Reader

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


def _unequal(first: bytes, second: bytes) -> NDArray[np.uint8]:
    """Return 1 where the bytes differ, else 0."""
    unequal = np.frombuffer(first, "u1") != np.frombuffer(second, "u1")
    return np.asarray(unequal, "u1")


MAX_PAGE = 4096  # bytes
MAX_VIEWS = 8  # kept per region; a reloaded page leaves its old view behind


class Page:
    """Bytes of one region as each source has them, and their flags (see ChangeTracker).

    Attributes:
        since_ns: time.monotonic_ns() before they were read.
        hues: The number of each byte's colour; empty: none has one.
    """

    def __init__(
        self,
        region: int,
        at: int,
        parts: list[bytes],
        flags: bytes,
        *,
        since_ns: int = 0,
        hues: bytes = b"",
    ) -> None:
        self.region, self.at = region, at
        self.parts, self.flags = parts, flags
        self.since_ns, self.hues = since_ns, hues

    def reply(self) -> Reply:
        """Return the page as a message: one buffer per source, then flags and hues if any."""
        about = {
            "region": self.region, "at": self.at, "size": len(self.parts[0]),
            "sources": len(self.parts), "flags": bool(self.flags), "hues": bool(self.hues),
        }  # fmt: skip
        return about, [*self.parts, *(part for part in (self.flags, self.hues) if part)]


class _ViewState:
    """The page that one view shows, and how often it is read again (see Viewers)."""

    def __init__(self, view: str, page: Page) -> None:
        self._view, self.page = view, page
        self.unacknowledged = False  # a page was sent that the view has not drawn yet
        self._viewers = Viewers()
        self.touch()

    def touch(self) -> None:
        """Record that the view is visible."""
        self._viewers.update(self._view, True)

    def due(self) -> bool:
        """Return whether to read the page again now."""
        return not self.unacknowledged and self._viewers.due()


class _RegionState:
    """Bytes last shown of one region, and the views that show them; replaced with the region."""

    def __init__(self) -> None:
        self.region = 0  # until the first page
        self.tracker = ChangeTracker()
        self.views: dict[str, _ViewState] = {}

    def page(
        self, region: int, sources: Sequence[str], low: int, parts: list[bytes], at: int, n: int
    ) -> Page:
        """Return `n` bytes from offset `at` of the bytes that were read from offset `low` on."""
        cut = slice(at - low, at - low + n)
        flags = self.tracker.flags(sources, low, parts)[cut]
        return Page(region, at, [part[cut] for part in parts], flags if any(flags) else b"")


class LiveView:
    """Pages of all views of a panel.

    Thread-safe: each method works on the region state it started with, by one dict operation.
    """

    def __init__(
        self,
        reader: Reader,
        region: Callable[[], SessionRegion | None],
        sources: Callable[[], Sequence[str]],
        send: Callable[[str, Page], None],
        failed: Callable[[Exception], None],
    ) -> None:
        """Create the pages with live viewing off.

        Args:
            reader: Reads the bytes.
            region: Returns the shown region.
            sources: Returns the names of the shown sources.
            send: Sends a changed page to a view.
            failed: Called once when an error ended live viewing.
        """
        self._reader, self._region, self._sources = reader, region, sources
        self._send, self._failed = send, failed
        self._task: scheduler.Task | None = None
        self._state = _RegionState()

    @property
    def on(self) -> bool:
        """True while views are sent changes."""
        return self._task is not None and not self._task.done

    @property
    def viewed(self) -> bool:
        """True if a view shows the region."""
        return bool(self._state.views)

    def fetch(self, view: str, at: int, n: int) -> Page | None:
        """Read the page that a view shows from now on, waiting a bounded time.

        Returns:
            The page; None if the region was freed or replaced meanwhile.

        Raises:
            DgkitError: As raised by Reader.read.
        """
        state = self._state  # first, so that it belongs to this region or an earlier one
        region, sources = self._region(), self._sources()
        if region is None or state.region not in (0, region.id):
            return None
        state.region = region.id
        at = max(0, min(at, region.size - 1))
        n = max(1, min(n, MAX_PAGE, region.size - at))
        low, high = block_range(at, n, region.size)
        since_ns = time.monotonic_ns()
        try:
            parts = self._reader.read(region, sources, low, high - low)
        except ClosedError:
            return None
        page = state.page(region.id, sources, low, parts, at, n)
        page.since_ns = since_ns
        state.views.pop(view, None)
        state.views[view] = _ViewState(view, page)
        for oldest in list(state.views)[:-MAX_VIEWS]:
            state.views.pop(oldest, None)
        return page if state is self._state else None

    def mark(self) -> None:
        """Clear all changes: the next bytes shown become the reference."""
        self._state.tracker.mark()

    def set_visible(self, view: str, on: bool) -> None:
        """Record that a view is visible or hidden."""
        if not on:
            self._state.views.pop(view, None)
        elif known := self._state.views.get(view):
            known.touch()

    def acknowledge(self, view: str) -> None:
        """Record that a view has drawn the last page it was sent."""
        if known := self._state.views.get(view):
            known.unacknowledged = False
            known.touch()

    def reset(self) -> None:
        """Discard all pages and changes: the region was replaced or freed."""
        self._state = _RegionState()

    def switch(self, on: bool) -> None:
        """Start or end live viewing."""
        if on and not self.on:
            self._task = scheduler.start(self._steps(), self._failed)
        elif not on and self._task is not None:
            self._task.cancel()

    def _steps(self) -> scheduler.Steps:
        while True:
            state = self._state
            for view, known in list(state.views.items()):
                if known.due():
                    yield from self._update(state, view, known)
            yield

    def _update(self, state: _RegionState, view: str, known: _ViewState) -> scheduler.Steps:
        """Read the page of a view again and send it if it changed."""
        region, sources, old = self._region(), self._sources(), known.page
        if region is None or region.id != old.region:
            return
        n = len(old.parts[0])
        low, high = block_range(old.at, n, region.size)
        since_ns = time.monotonic_ns()
        try:
            fetch = self._reader.start(region, sources, low, high - low)
            try:
                parts = yield from fetch.steps()
            finally:
                self._reader.abandon(fetch)
        except ClosedError:  # the region is being freed; the session reports that
            return
        if state is not self._state or state.views.get(view) is not known:
            return
        page = state.page(region.id, sources, low, parts, old.at, n)
        page.since_ns = since_ns
        if (page.parts, page.flags) != (old.parts, old.flags):
            known.page, known.unacknowledged = page, True
            self._send(view, page)
