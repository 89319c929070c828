"""The region that a hex view shows (the selected one, or a fixed one), and the position in it."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ...errors import BoundsError, ClosedError
from ...units import plural, size_text
from ..base.session_model import SessionModel
from .fetch import why_no_dpu, why_no_host, why_no_write

if TYPE_CHECKING:
    from ...session import Session, SessionRegion


class RegionSelection:
    """The shown region by id and name, without a reference to it, and the position in it.

    `changed()` is called after another region was selected and after the region was freed.

    Attributes:
        at: The first byte in view.
        offset: The byte to which the views were scrolled last, by the user or by a call.
        span: The selected bytes, as (start, stop).
    """

    def __init__(
        self, session: Session, region: SessionRegion | None, changed: Callable[[], None]
    ) -> None:
        if region is not None and region not in session.regions:
            raise ValueError(f"{region!r} is not a live region of {session!r}")
        self.session = session
        self.model = SessionModel.of(session)
        self.follows = region is None
        self.region_id = self._selected() if region is None else region.id
        self.at = self.offset = 0
        self.span = (0, 1)
        self._changed = changed
        self._freed = False
        self._region_name = ""
        self._remember_name()

    def _selected(self) -> int:
        return 0 if self.session.closed else self.model.selected

    def _remember_name(self) -> None:
        region = self.current()
        self._freed = False
        self._region_name = region.name if region is not None else ""

    def current(self) -> SessionRegion | None:
        """Return the shown region, or None if there is none or it was freed."""
        regions = self.session.regions
        return next((region for region in regions if region.id == self.region_id), None)

    def require(self) -> SessionRegion:
        """Return the shown region.

        Raises:
            ClosedError: There is no region, or it was freed.
        """
        region = self.current()
        if region is None:
            raise ClosedError(self.empty_reason)
        return region

    @property
    def empty_reason(self) -> str:
        """Why no region is shown."""
        if self.session.closed:
            return "the session is closed"
        if self._region_name:
            return f"region {self._region_name!r} was freed"
        return "the session has no region yet: session.empty(size) allocates one"

    def choose(self, number: int) -> None:
        """Show the region with this id; if the view follows the session, select it for all panels.

        Raises:
            ValueError: The session has no such live region.
        """
        if self.follows:
            self.model.select(number)
        else:
            self._show(self.model.region(number).id)

    def session_changed(self, what: str) -> None:
        """Follow a change of the session's regions or of its selected region."""
        gone = self.current() is None
        selected = self._selected() if self.follows and (gone or what == "select") else 0
        if selected and selected != self.region_id:
            self._show(selected)
        elif gone and self.region_id and not self._freed:
            self._freed = True
            self._reset()

    def _show(self, region_id: int) -> None:
        self.region_id = region_id
        self._remember_name()
        self._reset()

    def _reset(self) -> None:
        self.go(0, 1)
        self._changed()

    def go(self, start: int, stop: int) -> None:
        """Select bytes, and scroll to them."""
        self.at = self.offset = start
        self.span = (start, stop)

    def scroll_to(self, offset: Any) -> None:
        """Scroll to a byte.

        Raises:
            BoundsError: It is not in the region.
            ClosedError: No region is shown.
        """
        region = self.require()
        if type(offset) is not int or not 0 <= offset < region.size:
            raise BoundsError(
                f"offset is {offset!r}; it must be 0 to {region.size - 1:,}: region "
                f"{region.name!r} has {region.size:,} bytes"
            )
        self.at = self.offset = offset

    def check_range(self, start: Any, stop: Any) -> tuple[int, int]:
        """Return (start, stop) if these are bytes of the region.

        Raises:
            TypeError: An offset is not an int.
            BoundsError: The range is empty or exceeds the region.
            ClosedError: No region is shown.
        """
        region = self.require()
        if type(start) is not int or type(stop) is not int:
            raise TypeError(f"offsets must be whole numbers, not {start!r} and {stop!r}")
        if not 0 <= start < stop <= region.size:
            raise BoundsError(
                f"bytes {start:,} to {stop:,} are not in region {region.name!r}, which has "
                f"{plural(region.size, 'byte')}"
            )
        return start, stop

    def state(self) -> dict[str, Any]:
        """Return the shared state of the session's panels, and the shown region.

        `region` describes the shown region; if it is None, `empty_reason` says why.
        """
        region = self.current()
        about = None if region is None else {
            "id": region.id, "name": region.name, "size": region.size, "where": region.where,
            "text": size_text(region.size), "no_host": why_no_host(region),
            "no_dpu": why_no_dpu(region), "no_write": why_no_write(region),
        }  # fmt: skip
        reason = "" if region is not None else self.empty_reason
        own = {"region": about, "empty_reason": reason, "follows": self.follows}
        return self.model.state() | own
