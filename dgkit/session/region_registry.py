"""The open regions of a session, and the callbacks for their changes."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from contextlib import ExitStack

    from .region import SessionRegion

Call = Callable[[], object]


class RegionRegistry:
    """Open regions, in order of creation. Thread-safe."""

    def __init__(self) -> None:
        self._regions: dict[int, SessionRegion] = {}
        self._last_id = 0
        self._calls: list[Call] = []

    def __len__(self) -> int:
        return len(self._regions)

    @property
    def open(self) -> tuple[SessionRegion, ...]:
        """Return the regions that are not closed."""
        return tuple(self._regions.values())

    def next_id(self) -> int:
        """Return the number of a new region."""
        self._last_id += 1
        return self._last_id

    def add(self, region: SessionRegion) -> SessionRegion:
        """Add a region that both sides have set up; return it."""
        self._regions[region.id] = region
        self.notify()
        return region

    def remove(self, region: SessionRegion) -> None:
        """Remove a region that was closed on both sides."""
        region.closed = True
        self._regions.pop(region.id, None)
        self.notify()

    def free_all(self, undo: ExitStack) -> None:
        """Register the freeing of all regions with `undo`."""
        for region in self.open:
            undo.callback(region.free, 1.0)

    def on_session_closed(self, kind: type[BaseException] | None, *_: object) -> None:
        """Mark all regions as closed unless an error occurred; runs as the last exit callback."""
        if kind is None:
            for region in self.open:
                region.closed = True
            self._regions.clear()
        self.notify()

    def on_change(self, call: Call) -> Callable[[], None]:
        """Register a function to call after each change; return a function that unregisters it."""
        self._calls.append(call)

        def undo() -> None:
            if call in self._calls:
                self._calls.remove(call)

        return undo

    def notify(self) -> None:
        """Run the callbacks; one that fails is reported as a warning, and the others still run."""
        for call in list(self._calls):
            try:
                call()
            except Exception as exc:
                text = f"{call!r}, which is called when a session's regions change, failed: {exc!r}"
                warnings.warn(text, RuntimeWarning, stacklevel=2)
