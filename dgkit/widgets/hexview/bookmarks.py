"""Named places in the regions of a hex view."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from ...errors import BoundsError
from ..base.panel import handler

if TYPE_CHECKING:
    from ...session import SessionRegion
    from .selection import RegionSelection

MAX_BOOKMARKS = 100  # per region
_MAX_NAME = 64  # characters

Range = tuple[int, int]


class Bookmarks:
    """Ranges of bytes by name, for each region of the session."""

    def __init__(self, selection: RegionSelection, changed: Callable[[], None]) -> None:
        """Start without bookmarks; `changed()` is called when the bookmarks have changed."""
        self._selection, self._changed = selection, changed
        self._regions: dict[int, dict[str, Range]] = {}

    def of(self, region: SessionRegion | None) -> dict[str, Range]:
        """Return the bookmarks of a region in order of their offsets."""
        found = {} if region is None else self._regions.get(region.id, {})
        return dict(sorted(found.items(), key=lambda item: item[1]))

    def assign(self, value: Mapping[str, Range]) -> None:
        """Replace the bookmarks of the region shown.

        Raises:
            TypeError: It is not a dict of name: (start, stop), or an offset is not an int.
            ValueError: A name is empty or too long.
            BoundsError: A range is not in the region, or there are too many.
            ClosedError: No region is shown.
        """
        region = self._selection.require()
        if not isinstance(value, Mapping):
            raise TypeError(f"bookmarks is {value!r}; it must be a dict of name: (start, stop)")
        found = {_checked_name(name): self._range(name, span) for name, span in value.items()}
        if len(found) > MAX_BOOKMARKS:
            raise BoundsError(f"{len(found)} bookmarks; a region can have {MAX_BOOKMARKS}")
        self._regions[region.id] = found
        self._changed()

    @handler
    def bookmark(self, start: int, stop: int, name: str = "") -> dict[str, str]:
        """Bookmark bytes, or move the bookmark of this name; the default name is their offset.

        Raises:
            TypeError, ValueError, BoundsError, ClosedError: As raised by assign().
        """
        start, stop = self._selection.check_range(start, stop)
        name = name.strip() or f"{start:#x}"
        self.assign(self.of(self._selection.require()) | {name: (start, stop)})
        return {"name": name}

    @handler
    def remove_bookmark(self, name: str) -> None:
        """Remove a bookmark. Idempotent."""
        self._regions.get(self._selection.require().id, {}).pop(name, None)
        self._changed()

    def keep_only(self, regions: tuple[SessionRegion, ...]) -> None:
        """Discard the bookmarks of regions that were freed."""
        live = {region.id for region in regions}
        self._regions = {number: kept for number, kept in self._regions.items() if number in live}

    def _range(self, name: str, span: Range) -> Range:
        try:
            start, stop = span
        except (TypeError, ValueError):
            raise TypeError(f"bookmark {name!r} is {span!r}; it must be (start, stop)") from None
        return self._selection.check_range(start, stop)


def _checked_name(name: str) -> str:
    if not isinstance(name, str) or not 0 < len(name) <= _MAX_NAME:
        raise ValueError(f"the name of a bookmark is {name!r}; it must have 1 to 64 characters")
    return name
