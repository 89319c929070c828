"""The bytes of a hex view's selection, for its trait `value`."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Generator, Sequence
from typing import TYPE_CHECKING, Any

from ...errors import DgkitError
from ..base import scheduler

if TYPE_CHECKING:
    from .fetch import Reader
    from .live_view import Page
    from .selection import RegionSelection

MAX_BYTES = 1 << 16


class SelectedBytes:
    """The first 64 KiB of the selection, as last read.

    Attributes:
        data: The bytes; empty if the DPU does not answer.
        stale: The selection or its bytes may have changed since.
    """

    def __init__(
        self, reader: Reader, selection: RegionSelection, sources: Callable[[], Sequence[str]],
        on_read: Callable[[], None],
    ) -> None:  # fmt: skip
        """Prepare the value without reading anything.

        Args:
            reader: Reads the bytes.
            selection: The region and the selected bytes.
            sources: Returns the sources shown; the first is read.
            on_read: Called on the frame thread when read_later() has read the bytes.
        """
        self.data = b""
        self.stale = True
        self._reader, self._selection = reader, selection
        self._sources, self._on_read = sources, on_read
        self._task: scheduler.Task | None = None

    def freshen(self) -> None:
        """Read the bytes now, if they are stale."""
        if self.stale:
            self.stale, self.data = False, b""
            region, start, size = self._range()
            if region is not None:
                with contextlib.suppress(DgkitError):
                    self.data = self._reader.read(region, self._sources()[:1], start, size)[0]

    def take(self, page: Page) -> bool:
        """Take the bytes from a page that was read; return whether it contains them."""
        region, start, size = self._range()
        at = start - page.at
        if region is None or region.id != page.region:
            return False
        if not 0 <= at <= len(page.parts[0]) - size:
            return False
        self.stale, self.data = False, page.parts[0][at : at + size]
        return True

    def read_later(self) -> None:
        """Read the bytes on the frame thread, which never blocks."""
        if self._task is None or self._task.done:
            self._task = scheduler.start(self._steps(), lambda _error: None)

    def end(self) -> None:
        """Stop reading."""
        if self._task is not None:
            self._task.cancel()

    def _range(self) -> tuple[Any, int, int]:
        region, (start, stop) = self._selection.current(), self._selection.span
        end = stop if region is None else min(stop, region.size)
        return region, start, min(end - start, MAX_BYTES)

    def _steps(self) -> Generator[Any, None, None]:
        while self.stale:
            self.stale = False
            region, start, size = self._range()
            data = b""
            if region is not None:
                with contextlib.suppress(DgkitError):
                    fetch = self._reader.start(region, self._sources()[:1], start, size)
                    try:
                        data = (yield from fetch.steps())[0]
                    finally:
                        self._reader.abandon(fetch)
            self.data = data
            self._on_read()
            yield
