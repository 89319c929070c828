"""What views of the hex view see now: each look, and, while that is on, whatever changes there."""

from __future__ import annotations

from collections.abc import Generator
from typing import TYPE_CHECKING, Any

from ..base import frames
from .changes import Seen, around

if TYPE_CHECKING:
    from ...session import SessionRegion
    from ..base.panel import Reply
    from .hexview import HexView

__all__ = ["Live", "Page"]

VIEWS = 8  # that are kept in mind; a page that was reloaded leaves one behind


class Page:
    """Bytes of one region, as each source has them, and their flags."""

    def __init__(self, region: int, at: int, parts: list[bytes], flags: bytes) -> None:
        self.region, self.at = region, at
        self.parts, self.flags = parts, flags

    def reply(self) -> Reply:
        """As a view gets it."""
        about = {
            "region": self.region, "at": self.at, "size": len(self.parts[0]),
            "sources": len(self.parts), "flags": bool(self.flags),
        }  # fmt: skip
        return about, [*self.parts, *([self.flags] if self.flags else [])]


class _Sight:
    """What one view sees."""

    def __init__(self, page: Page) -> None:
        self.page = page
        self.waits = False  # it was told, and has not answered


class Live:
    """Thread-safe: each entry is one step on a dict."""

    def __init__(self, panel: HexView) -> None:
        self._panel = panel
        self._task: frames.Task | None = None
        self._sights: dict[str, _Sight] = {}
        self.seen = Seen()

    @property
    def on(self) -> bool:
        """Whether changes are told."""
        return self._task is not None and not self._task.done

    def look(self, region: SessionRegion, view: str, at: int, n: int) -> Page:
        """What a view sees from now on. Waits a bounded time; what a read raises."""
        sources = self._panel.sources
        low, high = around(at, n, region.size)
        found = self._panel.reader.now(region, sources, low, high - low)
        page = self._page(region, low, found, at, n)
        self._sights.pop(view, None)
        self._sights[view] = _Sight(page)
        for old in list(self._sights)[:-VIEWS]:
            self._sights.pop(old, None)
        return page

    def _page(self, region: SessionRegion, low: int, found: list[bytes], at: int, n: int) -> Page:
        flags = self.seen.flags(self._panel.sources, low, found)
        cut = slice(at - low, at - low + n)
        flags = flags[cut]
        return Page(region.id, at, [part[cut] for part in found], flags if any(flags) else b"")

    def leave(self, view: str) -> None:
        """It sees nothing now."""
        self._sights.pop(view, None)

    def answered(self, view: str) -> None:
        """It has drawn what it was told."""
        if sight := self._sights.get(view):
            sight.waits = False

    def forget(self) -> None:
        """The region is another one, or gone."""
        self._sights.clear()
        self.seen = Seen()

    def switch(self, on: bool) -> None:
        """Starts or ends the task that looks again and again."""
        if on and not self.on:
            self._task = frames.start(self._steps(), self._failed)
        elif not on and self._task is not None:
            self._task.cancel()

    def _failed(self, error: Exception) -> None:
        """Once: a person turns it on again."""
        self._panel.fail(error)
        self._panel.tell("state", **self._panel.state())

    def _steps(self) -> Generator[Any, None, None]:
        while True:
            for view, sight in list(self._sights.items()):
                if not sight.waits:
                    yield from self._again(view, sight)
            yield

    def _again(self, view: str, sight: _Sight) -> Generator[Any, None, None]:
        """Looks once more at what a view sees, and tells it if that is not the same."""
        region, old = self._panel.here(), sight.page
        if region is None or region.id != old.region:
            return
        n = len(old.parts[0])
        low, high = around(old.at, n, region.size)
        fetch = self._panel.reader.start(region, self._panel.sources, low, high - low)
        try:
            found = yield from fetch.steps()
        finally:
            self._panel.reader.give_up(fetch)
        page = self._page(region, low, found, old.at, n)
        changed = (page.parts, page.flags) != (old.parts, old.flags)
        if changed and self._sights.get(view) is sight:
            sight.page, sight.waits = page, True
            about, buffers = page.reply()
            self._panel.tell("bytes", buffers, view=view, **about)
