"""Which region a hex view shows, the desk's or its own; and what is said when it is gone."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ...errors import BoundsError, ClosedError
from ...units import size_text
from ..base.session_model import Desk
from .fetch import why_no_dpu, why_no_host, why_no_write

if TYPE_CHECKING:
    from ...session import Session, SessionRegion

__all__ = ["Shown"]


class Shown:
    """Keeps the region's number and name, never the region. `changed()` after it is another one,
    or was freed."""

    def __init__(
        self, session: Session, region: SessionRegion | None, changed: Callable[[], None]
    ) -> None:
        if region is not None and region not in session.regions:
            raise ValueError(f"{region!r} is no live region of {session!r}")
        self.session = session
        self.desk = Desk.of(session)
        self.follows = region is None
        self.number = self._selected() if region is None else region.id
        self._changed = changed
        self._freed = False
        self._region_name = ""
        self._note()

    def _selected(self) -> int:
        return 0 if self.session.closed else self.desk.selected

    def _note(self) -> None:
        region = self.here()
        self._freed = False
        self._region_name = region.name if region is not None else ""

    def here(self) -> SessionRegion | None:
        """The region, if it is there."""
        return next((one for one in self.session.regions if one.id == self.number), None)

    def must(self) -> SessionRegion:
        """The region. ClosedError: it is gone, or there is none."""
        region = self.here()
        if region is None:
            raise ClosedError(self.nothing)
        return region

    @property
    def nothing(self) -> str:
        """Why no bytes are shown."""
        if self.session.closed:
            return "the session is closed"
        if self._region_name:
            return f"region {self._region_name!r} was freed"
        return "the session has no region yet: session.empty(size) makes one"

    def choose(self, number: int) -> None:
        """Shows another one; where it follows the desk, all panels do. ValueError: none."""
        if self.follows:
            self.desk.select(number)
        else:
            self._take(self.desk.region(number).id)

    def heard(self, what: str) -> None:
        """The desk's news."""
        gone = self.here() is None
        selected = self._selected() if self.follows and (gone or what == "select") else 0
        if selected and selected != self.number:
            self._take(selected)
        elif gone and self.number and not self._freed:
            self._freed = True
            self._changed()

    def _take(self, number: int) -> None:
        self.number = number
        self._note()
        self._changed()

    def span(self, start: Any, stop: Any) -> tuple[int, int]:
        """Bytes of the region. TypeError, BoundsError, ClosedError."""
        region = self.must()
        if type(start) is not int or type(stop) is not int:
            raise TypeError(f"bytes go from one whole number to another, not {start!r} to {stop!r}")
        if not 0 <= start < stop <= region.size:
            raise BoundsError(
                f"bytes {start} to {stop} are not in region {region.name!r}, which has "
                f"{region.size} bytes"
            )
        return start, stop

    def state(self) -> dict[str, Any]:
        """The desk's state, and `region`: what is shown; None, and `nothing` says why."""
        region = self.here()
        about = None if region is None else {
            "id": region.id, "name": region.name, "size": region.size, "where": region.where,
            "text": size_text(region.size), "no_host": why_no_host(region),
            "no_dpu": why_no_dpu(region), "no_write": why_no_write(region),
        }  # fmt: skip
        nothing = "" if region is not None else self.nothing
        shown = {"region": about, "nothing": nothing, "follows": self.follows}
        return self.desk.state() | shown
