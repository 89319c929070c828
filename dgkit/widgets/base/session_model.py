# SPDX-License-Identifier: Apache-2.0
"""Panels of a session, and the state that they share: its live regions and the selection."""

from __future__ import annotations

import contextlib
import logging
import threading
import weakref
from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from ...errors import ClosedError
from ...html_cards import access_text
from ...sizes import LARGE
from ...types import provider_label
from ...units import dtype_text, size_text
from . import scheduler
from .error_text import explain
from .panel import Panel, handler, next_snapshot
from .traits import State, choose_region, region_id

if TYPE_CHECKING:
    from ...session import Session, SessionRegion
    from .page_input import Json

T = TypeVar("T")

_MAX_REGIONS = 200  # the newest regions, in one message

_log = logging.getLogger("dgkit.widgets")
_create_lock = threading.Lock()
_models: weakref.WeakKeyDictionary[Session, SessionModel] = weakref.WeakKeyDictionary()


def describe(region: SessionRegion) -> Json:
    """Describe a region in plain values, for a table or a list of choices."""
    dtype, shape = "uint8", [region.size]
    local = region.local  # another thread may free the region meanwhile
    if local is not None:
        with contextlib.suppress(ClosedError):
            array = local.memory.array
            dtype, shape = dtype_text(array.dtype), list(array.shape)
    return {
        "id": region.id, "name": region.name, "size": region.size, "text": size_text(region.size),
        "side": region.on, "place": region.place, "where": region.where, "dtype": dtype,
        "shape": shape, "access": str(region.access), "access_text": access_text(region.access),
        "provider": region.session.dpu.provider, "chosen": region.chosen,
        "local": local is not None, "exported": bool(region.token),
    }  # fmt: skip


def label_of(session: Session) -> Json:
    """Return the provider that moves the bytes and its label: `hardware` or `software DPU...`.

    Raises:
        ClosedError: The session is closed.
    """
    if session.closed:
        raise ClosedError("the session is closed")
    dpu = session.info["dpu"]
    provider = dpu["provider"]
    return {"provider": provider, "label": provider_label(provider, dpu["emulated"])}


class SessionModel:
    """State that the panels of one session share; made by `SessionModel.of(session)`.

    The views of subscribed panels receive a `session` message after each change. Its `change` is
    `regions` or `select`, with the new state in `session`, or `written`, with the region's `id`.
    """

    def __init__(self, session: Session) -> None:
        self._session = weakref.ref(session)
        self._uses: list[tuple[int, str]] = []  # by the id of a region
        self._lock = threading.RLock()  # guards panels, listeners, uses, the pending notification
        self._panels: weakref.WeakSet[Panel] = weakref.WeakSet()
        self._listeners: list[tuple[tuple[str, ...], Callable[[str], None]]] = []
        self._byte_views: list[Callable[[int, int, int], bool]] = []
        self._selected = 0
        self._hidden: set[int] = set()
        self._notifying: scheduler.Task | None = None
        self._read = (0, 0)
        session.on_change(self._schedule)

    @classmethod
    def of(cls, session: Session) -> SessionModel:
        """Return the model of a session; every call returns the same model."""
        with _create_lock:
            model = _models.get(session)
            if model is None:
                model = _models[session] = cls(session)
            return model

    def count_read(self, size: int) -> None:
        """Record that a view has read bytes by DMA."""
        with self._lock:
            requests, total = self._read
            self._read = (requests + -(-size // LARGE), total + size)

    @property
    def read_by_views(self) -> tuple[int, int]:
        """DMA requests of views that read, and their bytes."""
        return self._read

    @property
    def session(self) -> Session:
        """The session.

        Raises:
            ReferenceError: The session has been garbage-collected.
        """
        session = self._session()
        if session is None:
            raise ReferenceError("the session no longer exists")
        return session

    @property
    def regions(self) -> tuple[SessionRegion, ...]:
        """The live regions of the session, except hidden ones."""
        return tuple(region for region in self.session.regions if region.id not in self._hidden)

    def hide(self, region: SessionRegion) -> None:
        """Exclude a panel's private memory from the regions that panels offer."""
        self._hidden.add(region.id)

    @property
    def selected(self) -> int:
        """The id of the selected region: the first until another is selected, 0 without regions."""
        ids = [region.id for region in self.regions]
        if self._selected not in ids:
            self._selected = ids[0] if ids else 0
        return self._selected

    def live(self) -> tuple[SessionRegion, ...]:
        """Return `regions`; none if the session is closed."""
        return () if self.session.closed else self.regions

    def selected_region(self) -> SessionRegion | None:
        """Return the selected region; None if there is none."""
        regions = self.live()
        selected = self.selected if regions else 0
        return next((region for region in regions if region.id == selected), None)

    def region(self, number: int | None = None) -> SessionRegion:
        """Return the region with this id, or the selected region.

        Raises:
            ValueError: No live region has this id, or none is selected.
        """
        wanted = self.selected if number is None else number
        for region in self.regions:
            if region.id == wanted:
                return region
        known = ", ".join(str(region.id) for region in self.regions) or "none"
        raise ValueError(f"no live region {wanted}; live regions: {known}")

    def state(self) -> Json:
        """Return the shared part of a panel's state.

        Returns:
            `regions` (the newest 200 and the selected region), `count` (of all regions), `selected`
            (id), `closed` (of the session), `provider` and its `label`.
        """
        if self.session.closed:
            closed = {"closed": True, "provider": "", "label": "closed"}
            return {"regions": [], "count": 0, "selected": 0, **closed}
        live, selected = self.regions, self.selected
        older = [region for region in live[:-_MAX_REGIONS] if region.id == selected]
        regions = [describe(region) for region in (*older, *live[-_MAX_REGIONS:])]
        state = {"regions": regions, "count": len(live), "selected": selected, "closed": False}
        return state | label_of(self.session)

    def select(self, number: int) -> None:
        """Select a region in all panels.

        Raises:
            ValueError: No live region has this id.
        """
        self._selected = self.region(number).id
        self._notify_state("select")

    @contextlib.contextmanager
    def using(self, region: SessionRegion, what: str) -> Iterator[None]:
        """Mark a region as in use for the block: the user is asked before it is freed.

        Args:
            what: The use, as shown to the user: `a fill`.
        """
        use = (region.id, what)
        with self._lock:
            self._uses.append(use)
        try:
            yield
        finally:
            with self._lock:
                self._uses.remove(use)

    def uses(self, region: SessionRegion) -> list[str]:
        """Return the current uses of a region."""
        with self._lock:
            return [what for number, what in self._uses if number == region.id]

    def written(self, number: int) -> None:
        """Notify all panels that a panel changed the bytes of a region."""
        self._notify("written", id=number)  # the state itself is unchanged

    def show_bytes(self, number: int, start: int, stop: int) -> int:
        """Select a region in all panels, and scroll the hex views that show it to these bytes.

        Returns:
            The number of hex views that show them.

        Raises:
            ValueError: No live region has this id.
        """
        self.select(number)
        with self._lock:
            views = list(self._byte_views)
        return sum(show(number, start, stop) for show in views)

    def add_byte_view(self, show: Callable[[int, int, int], bool]) -> Callable[[], None]:
        """Register a function that show_bytes() calls with region, start, stop; it returns success.

        Returns:
            A function that unregisters it.
        """
        return self._add_revocable(self._byte_views, show)

    def subscribe(self, panel: Panel) -> None:
        """Send `session` messages to the panel's views until the panel is closed."""
        with self._lock:
            self._panels.add(panel)
        panel.on_close(partial(self.unsubscribe, panel))

    def unsubscribe(self, panel: Panel) -> None:
        """Undo subscribe()."""
        with self._lock:
            self._panels.discard(panel)

    def listen(self, call: Callable[[str], None], *changes: str) -> Callable[[], None]:
        """Register a function to call after some changes, with the name of the change.

        Args:
            call: The function.
            changes: `regions`, `select` or `written`.

        Returns:
            A function that unregisters it.
        """
        return self._add_revocable(self._listeners, (changes, call))

    def _add_revocable(self, known: list[T], new: T) -> Callable[[], None]:
        """Append an item to a list; return a function that removes the item."""
        with self._lock:
            known.append(new)

        def undo() -> None:
            with self._lock:
                if new in known:
                    known.remove(new)

        return undo

    def _schedule(self) -> None:
        """Have the frame thread notify once for all changes so far; called in any thread."""
        with self._lock:
            if self._notifying is None or self._notifying.done:
                self._notifying = scheduler.start(self._notify_soon(), _failed)

    def _notify_soon(self) -> scheduler.Steps:
        yield
        with self._lock:
            self._notifying = None
        if self._session() is not None:
            self._notify_state("regions")

    def _notify_state(self, change: str) -> None:
        number = next_snapshot()
        self._notify(change, snapshot=number, session=self.state())

    def _notify(self, change: str, **fields: Any) -> None:
        """Notify panels and listeners; a failure of one of them does not affect the others."""
        with self._lock:
            panels = list(self._panels)
            listeners = [call for changes, call in self._listeners if change in changes]
        for panel in panels:
            try:
                panel.broadcast("session", change=change, **fields)
            except Exception as error:
                _failed(error)
        for call in listeners:
            try:
                call(change)
            except Exception as error:
                _failed(error)


def _failed(error: Exception) -> None:
    if not isinstance(error, scheduler.PanelClosed):
        _log.error("cannot notify a panel of a change of its session", exc_info=error)


class SessionPanel(Panel):
    """Panel of a session, which its constructor stores as `_session`."""

    _session: Session
    opened = True  # False: the session is being opened, and `session` waits for it

    @property
    def session(self) -> Session:
        """The session of the panel."""
        return self._session

    def _explain(self, error: Exception) -> dict[str, str]:
        try:
            return explain(error, self.session)
        except scheduler.PanelClosed:  # meanwhile
            return explain(error)

    @handler
    def restart(self) -> None:
        """Start another DPU in place of a lost one, without waiting; `restarted` reports it.

        Raises:
            ValueError: The session did not start its DPU.
        """
        session = self.session
        if not session.restartable:
            raise ValueError("the session did not start this DPU: run the cell that connects again")
        scheduler.start(self._restart(session), self.fail)

    def _restart(self, session: Session) -> scheduler.Steps:
        errors = yield from scheduler.in_background(session.restart)
        for error in errors.values():
            self.fail(error)
        yield from self._restarted()

    def _restarted(self) -> scheduler.Steps:
        """Report to the views that the DPU was started again."""
        self.broadcast("restarted")
        yield


P = TypeVar("P", bound=SessionPanel)


def regions_trait() -> State[P, tuple[SessionRegion, ...]]:
    """Return the trait `regions` of a panel."""

    def to_json(regions: tuple[SessionRegion, ...] | None) -> list[Json]:
        shown = (regions or ())[-_MAX_REGIONS:]
        return [{"id": region.id, "name": region.name, "size": region.size} for region in shown]

    help = "The live regions of the session. Read-only."
    return State(
        lambda panel: SessionModel.of(panel.session).live() if panel.opened else (),
        to_json=to_json,
        help=help,
    )


def selected_trait() -> State[P, SessionRegion | None]:
    """Return the trait `selected` of a panel."""

    def assign(panel: P, value: SessionRegion | int | str) -> None:
        model = SessionModel.of(panel.session)
        if value is not model.selected_region():
            model.select(choose_region(panel.session, value, model.live()))

    return State(
        lambda panel: SessionModel.of(panel.session).selected_region() if panel.opened else None,
        assign,
        to_json=region_id,
        help="The region that the panels of the session show, or None.",
    )
