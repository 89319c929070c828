"""What views of the hex view see now: each look, and, while that is on, whatever changes there."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from typing import TYPE_CHECKING, Any

from ...errors import ClosedError
from ..base import scheduler
from ..base.viewers import Audience
from .change_tracker import Seen, around

if TYPE_CHECKING:
    from ..base.panel import Reply
    from .hexview import HexView

__all__ = ["IN_VIEW", "Live", "Page"]

IN_VIEW = 4096  # bytes of a page, at most
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
    """What one view sees. It is looked at as often as the view was heard of: see Audience."""

    def __init__(self, view: str, page: Page) -> None:
        self._view, self.page = view, page
        self.waits = False  # it was told, and has not answered
        self._audience = Audience()
        self.heard()

    def heard(self) -> None:
        """The view is there."""
        self._audience.heard(self._view, True)

    def due(self) -> bool:
        """Whether to look now."""
        return not self.waits and self._audience.due()


class _Scene:
    """What was seen of one region, and who sees it; the next region gets another scene."""

    def __init__(self) -> None:
        self.region = 0  # until the first look
        self.seen = Seen()
        self.sights: dict[str, _Sight] = {}

    def page(
        self, region: int, sources: Sequence[str], low: int, found: list[bytes], at: int, n: int
    ) -> Page:
        """Of what was found from `low` on, the `n` bytes that are in view."""
        cut = slice(at - low, at - low + n)
        flags = self.seen.flags(sources, low, found)[cut]
        return Page(region, at, [part[cut] for part in found], flags if any(flags) else b"")


class Live:
    """Thread-safe: each entry is one step on a dict, of the scene that was there when it began."""

    def __init__(self, panel: HexView) -> None:
        self._panel = panel
        self._task: scheduler.Task | None = None
        self._scene = _Scene()

    @property
    def on(self) -> bool:
        """Whether changes are told."""
        return self._task is not None and not self._task.done

    def look(self, view: str, at: int, n: int) -> Page | None:
        """What a view sees from now on; None: the region was freed, or is another one by now.

        Waits a bounded time. What a read raises.
        """
        scene = self._scene  # first: so it is of this region, or of one before
        region, sources = self._panel.here(), self._panel.sources
        if region is None or scene.region not in (0, region.id):
            return None
        scene.region = region.id
        at = max(0, min(at, region.size - 1))
        n = max(1, min(n, IN_VIEW, region.size - at))
        low, high = around(at, n, region.size)
        try:
            found = self._panel.reader.now(region, sources, low, high - low)
        except ClosedError:
            return None
        page = scene.page(region.id, sources, low, found, at, n)
        scene.sights.pop(view, None)
        scene.sights[view] = _Sight(view, page)
        for old in list(scene.sights)[:-VIEWS]:
            scene.sights.pop(old, None)
        return page if scene is self._scene else None

    def mark(self) -> None:
        """All is seen: what changes from the next look on counts."""
        self._scene.seen.mark()

    def heard(self, view: str, on: bool) -> None:
        """A view is seen, still, or it is not."""
        if not on:
            self._scene.sights.pop(view, None)
        elif sight := self._scene.sights.get(view):
            sight.heard()

    def answered(self, view: str) -> None:
        """It has drawn what it was told."""
        if sight := self._scene.sights.get(view):
            sight.waits = False
            sight.heard()

    def forget(self) -> None:
        """The region is another one, or gone."""
        self._scene = _Scene()

    def switch(self, on: bool) -> None:
        """Starts or ends the task that looks again and again."""
        if on and not self.on:
            self._task = scheduler.start(self._steps(), self._failed)
        elif not on and self._task is not None:
            self._task.cancel()

    def _failed(self, error: Exception) -> None:
        """Once: a person turns it on again."""
        self._panel.fail(error)
        self._panel.tell("state", **self._panel.state())

    def _steps(self) -> Generator[Any, None, None]:
        while True:
            scene = self._scene
            for view, sight in list(scene.sights.items()):
                if sight.due():
                    yield from self._again(scene, view, sight)
            yield

    def _again(self, scene: _Scene, view: str, sight: _Sight) -> Generator[Any, None, None]:
        """Looks once more at what a view sees, and tells it if that is not the same."""
        region, sources, old = self._panel.here(), self._panel.sources, sight.page
        if region is None or region.id != old.region:
            return
        n = len(old.parts[0])
        low, high = around(old.at, n, region.size)
        try:
            fetch = self._panel.reader.start(region, sources, low, high - low)
            try:
                found = yield from fetch.steps()
            finally:
                self._panel.reader.give_up(fetch)
        except ClosedError:  # it is being freed: the desk says so when it is
            return
        if scene is not self._scene or scene.sights.get(view) is not sight:
            return
        page = scene.page(region.id, sources, low, found, old.at, n)
        if (page.parts, page.flags) != (old.parts, old.flags):
            sight.page, sight.waits = page, True
            about, buffers = page.reply()
            self._panel.tell("bytes", buffers, view=view, **about)
