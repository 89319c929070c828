"""The regions of a session, and who is told when there is one more or one less."""

from __future__ import annotations

import warnings
import weakref
from collections.abc import Callable
from contextlib import ExitStack

from ..types import Access
from .region import SessionRegion

TYPE_CHECKING = False
if TYPE_CHECKING:
    from .session import Session

__all__ = ["Filing"]

Call = Callable[[], object]


class Filing:
    """Those that are open, in the order made. Thread-safe."""

    def __init__(self, session: Session) -> None:
        self._session = weakref.ref(session)  # with nothing open, it goes with its last name
        self._regions: dict[int, SessionRegion] = {}
        self._made = 0
        self._calls: list[Call] = []

    def __len__(self) -> int:
        return len(self._regions)

    @property
    def open(self) -> tuple[SessionRegion, ...]:
        """Those that are not closed."""
        return tuple(self._regions.values())

    def new(self, on: str, size: int, access: Access, name: str | None) -> SessionRegion:
        """One that is filed once both sides know it."""
        self._made += 1
        session = self._session()
        assert session is not None  # it is what calls
        return SessionRegion(session, self._made, on=on, size=size, access=access, name=name)

    def file(self, region: SessionRegion) -> SessionRegion:
        """Both sides know it."""
        self._regions[region.id] = region
        self._tell()
        return region

    def drop(self, region: SessionRegion) -> None:
        """It was closed, on both sides."""
        region.closed = True
        self._regions.pop(region.id, None)
        self._tell()

    def free_all(self, undo: ExitStack) -> None:
        """With the session: `undo` frees them."""
        for region in self.open:
            undo.callback(region.free, 1.0)

    def ended(self, kind: type[BaseException] | None, *_: object) -> None:
        """The last of an ExitStack that closes the session: without an error all are closed."""
        if kind is None:
            for region in self.open:
                region.closed = True
            self._regions.clear()
        self._tell()

    def on_change(self, call: Call) -> Callable[[], None]:
        """Calls from now on; what it returns takes that back."""
        self._calls.append(call)

        def undo() -> None:
            if call in self._calls:
                self._calls.remove(call)

        return undo

    def _tell(self) -> None:
        """A call that fails is warned of: what changed has changed, and the others are told."""
        for call in list(self._calls):
            try:
                call()
            except Exception as exc:
                text = f"{call!r}, which is called when a session's regions change, failed: {exc!r}"
                warnings.warn(text, RuntimeWarning, stacklevel=2)
