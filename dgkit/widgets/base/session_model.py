"""What the panels of one session share: its live regions, and which of them is looked at."""

from __future__ import annotations

import contextlib
import logging
import threading
import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ...errors import ClosedError
from ...html_cards import access_text
from ...units import size_text
from . import scheduler
from .panel import Panel, label_of

if TYPE_CHECKING:
    from ...session import Session, SessionRegion

__all__ = ["SessionModel", "describe"]

_MOST = 200  # regions that a message carries: the newest

_log = logging.getLogger("dgkit.widgets")
_making = threading.Lock()
_models: weakref.WeakKeyDictionary[Session, SessionModel] = weakref.WeakKeyDictionary()


def describe(region: SessionRegion) -> dict[str, Any]:
    """A region in plain values, for a table or a list to choose from."""
    dtype, shape = "uint8", [region.size]
    local = region.local  # another thread may free it meanwhile
    if local is not None:
        with contextlib.suppress(ClosedError):
            array = local.memory.array
            dtype, shape = str(array.dtype), list(array.shape)
    return {
        "id": region.id, "name": region.name, "size": region.size, "text": size_text(region.size),
        "side": region.on, "place": region.place, "where": region.where, "dtype": dtype,
        "shape": shape, "access": str(region.access), "access_text": access_text(region.access),
        "provider": region.session.dpu.provider, "chosen": region.chosen,
        "here": local is not None, "exported": bool(region.token),
    }  # fmt: skip


class SessionModel:
    """State that the panels of one session share; made by `SessionModel.of(session)`.

    Subscribed panels receive a `session` message after each change.
    """

    def __init__(self, session: Session) -> None:
        self._session = weakref.ref(session)
        self._lock = threading.RLock()  # who is told, and whether that is to come
        self._panels: weakref.WeakSet[Panel] = weakref.WeakSet()
        self._listeners: list[weakref.WeakMethod[Callable[[str], None]]] = []
        self._selected = 0
        self._hidden: set[int] = set()
        self._notifying: scheduler.Task | None = None
        session.on_change(self._changed)

    @classmethod
    def of(cls, session: Session) -> SessionModel:
        """The model of a session: the same one each time."""
        with _making:
            model = _models.get(session)
            if model is None:
                model = _models[session] = cls(session)
            return model

    @property
    def session(self) -> Session:
        """ReferenceError: it is gone."""
        session = self._session()
        if session is None:
            raise ReferenceError("the session is gone")
        return session

    @property
    def regions(self) -> tuple[SessionRegion, ...]:
        """The live regions of the session, without those that are a panel's own."""
        return tuple(one for one in self.session.regions if one.id not in self._hidden)

    def hide(self, region: SessionRegion) -> None:
        """A panel's own memory, which nobody is to choose, write or free."""
        self._hidden.add(region.id)

    @property
    def selected(self) -> int:
        """The id of the region that is looked at, 0 if there is none."""
        ids = [region.id for region in self.regions]
        if self._selected not in ids:
            self._selected = ids[0] if ids else 0
        return self._selected

    def region(self, number: int | None = None) -> SessionRegion:
        """The region with this id; without one, the selected. ValueError: there is none."""
        wanted = self.selected if number is None else number
        for region in self.regions:
            if region.id == wanted:
                return region
        known = ", ".join(str(region.id) for region in self.regions) or "none"
        raise ValueError(f"there is no live region {wanted}; live are: {known}")

    def state(self) -> dict[str, Any]:
        """The part of a panel's state that all share. `regions`: the newest 200 of `count`, and the
        selected one."""
        if self.session.closed:
            ended = {"closed": True, "provider": "", "label": "closed"}
            return {"regions": [], "count": 0, "selected": 0, **ended}
        live, chosen = self.regions, self.selected
        older = [region for region in live[:-_MOST] if region.id == chosen]
        regions = [describe(region) for region in (*older, *live[-_MOST:])]
        shared = {"regions": regions, "count": len(live), "selected": chosen, "closed": False}
        return shared | label_of(self.session)

    def select(self, number: int) -> None:
        """Looks at another region, in all panels. ValueError: there is none of that id."""
        self._selected = self.region(number).id
        self._notify("select", session=self.state())

    def written(self, number: int) -> None:
        """Bytes of a region were changed by a panel: those that show them look again."""
        self._notify("written", id=number)  # without the state: that is as it was

    def subscribe(self, panel: Panel) -> None:
        """The panel's views get `session` messages from now on, for as long as it lives."""
        with self._lock:
            self._panels.add(panel)

    def listen(self, call: Callable[[str], None]) -> None:
        """A bound method that is called with `regions`, `select` or `written` after each change."""
        with self._lock:
            self._listeners = [ref for ref in self._listeners if ref() is not None]
            self._listeners.append(weakref.WeakMethod(call))

    def _changed(self) -> None:
        """In whatever thread: the frame thread tells, once for as many changes as came together."""
        with self._lock:
            if self._notifying is None or self._notifying.done:
                self._notifying = scheduler.start(self._notify_soon(), _failed)

    def _notify_soon(self) -> Any:
        yield
        with self._lock:
            self._notifying = None
        if self._session() is not None:
            self._notify("regions", session=self.state())

    def _notify(self, change: str, **fields: Any) -> None:
        """One that fails takes nothing from the others."""
        with self._lock:
            panels, listeners = list(self._panels), list(self._listeners)
        for panel in panels:
            try:
                panel.broadcast("session", change=change, **fields)
            except Exception as error:
                _failed(error)
        for ref in listeners:
            call = ref()
            try:
                if call is not None:
                    call(change)
            except Exception as error:
                _failed(error)


def _failed(error: Exception) -> None:
    _log.error("a panel was told of its session", exc_info=error)
