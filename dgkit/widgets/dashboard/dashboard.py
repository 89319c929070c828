"""dashboard(): the four panels of a session together, and how the session is.

The frame is a panel of its own that hosts the views of the four: so they stand in one landmark with
one error strip, and its own grid sets them side by side or below each other.
"""

from __future__ import annotations

import atexit
import contextlib
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Any

from ...errors import ClosedError, DgkitError
from ...units import size_text
from ..base import cell_lifetime, scheduler
from ..base.background import in_background
from ..base.panel import Panel, explain, handler
from .panels import Panels, end, panels_of, sides_of

if TYPE_CHECKING:
    from ...session import Session

__all__ = ["Dashboard", "dashboard"]

_EVERY_S = 1.0  # the counters
_SEEN_S = 60.0  # a view that has not said for so long that it is seen is gone with its page

_lock = threading.RLock()  # which dashboards there are
_open: list[Dashboard] = []


def dashboard(session: Session | None = None) -> Dashboard:
    """The dashboard of a session; without one, of a software DPU that it starts and owns.

    Called again it is the same one, for as long as its session lives: a cell that runs twice starts
    nothing twice and loses no region. One of a session that was given is closed when its cell runs
    again and does not ask for it; `close()` ends it, and the DPU that it started. Errors as
    dgkit.connect().
    """
    with _lock:
        for old in list(_open):
            if old.session.closed:
                old.close()
        for known in _open:
            if known.owned if session is None else known.session is session:
                break
        else:
            return _new(session)
    if known.owned:
        known.revive()
    else:
        cell_lifetime.register(known)
    return known


def _new(session: Session | None) -> Dashboard:
    if session is not None:
        return Dashboard(session)
    from ...session import connect

    with cell_lifetime.detached():  # it stays, with its regions, whatever becomes of the cell
        return Dashboard(connect(), owned=True)


class Dashboard(Panel):
    """Made by dgkit.dashboard(). `panels`: `allocate`, `transfer`, `hex` and `plot`.

    `owned`: it started the DPU, so it closes `session` with itself and can start another.
    """

    name = "dashboard"
    title = "dgkit dashboard"
    shared = True

    def __init__(self, session: Session, owned: bool = False) -> None:
        self._session: Session | None = session
        self.owned = owned
        self.lost: dict[str, str] | None = None  # why the DPU cannot be asked, and what to do
        self._lock = threading.Lock()  # who has it waits for no task: the frame thread takes it
        self._closed = self._renewing = False
        self._seen: dict[str, float] = {}
        self._watching: scheduler.Task | None = None
        self._counters: dict[str, int] = {}
        self._told: dict[str, Any] | None = None
        self._panels: Panels | None = panels_of(session)
        super().__init__()
        _open.append(self)

    @property
    def session(self) -> Session:
        """Whose panels these are. ClosedError: it was given, and the dashboard is closed."""
        if self._session is None:
            raise ClosedError("the dashboard is closed")
        return self._session

    @property
    def panels(self) -> Panels:
        """The four. ClosedError: the session was given, and the dashboard is closed."""
        if self._panels is None:
            raise ClosedError("the dashboard is closed")
        return self._panels

    def state(self) -> dict[str, Any]:
        """Who the sides are, how they are, and the models of the four panels."""
        models = {name: panel.model_id for name, panel in self.panels._asdict().items()}
        return sides_of(self.session) | self._status() | {"panels": models, "owned": self.owned}

    def _status(self) -> dict[str, Any]:
        """As it was when the agent was asked last."""
        if self.session.closed:
            self._ask()  # which asks nobody
        moving = self.panels.plot.running
        return {"counters": list(_counters(self._counters)), "lost": self.lost, "running": moving}

    def _ask(self) -> None:
        """Asks the agent. Never on the frame thread: it waits for so long as the session does."""
        session, counters, lost = self.session, self._counters, None
        try:
            counters = session.stats()
        except DgkitError as error:
            lost = explain(error)
        if session is self._session:
            self._counters, self.lost = counters, lost

    # While somebody looks

    @handler
    def seen(self, view: str, now: bool) -> None:
        """A view came into sight (it says so again now and then), or left it."""
        with self._lock:
            new = self._seen.pop(view, None) is None
            if not now:
                return
            self._seen[view] = time.monotonic()
            if self._watching is None or self._watching.done:
                self._watching = scheduler.start(self._watch(), self.fail)
        if new:
            self._told = None
            scheduler.start(self._look(), self.fail)

    def _is_seen(self) -> bool:
        with self._lock:
            oldest = time.monotonic() - _SEEN_S
            self._seen = {view: at for view, at in self._seen.items() if at > oldest}
            if not self._seen:
                self._watching = None
            return bool(self._seen)

    def _watch(self) -> scheduler.Steps:
        while self._is_seen():
            yield from scheduler.sleep(_EVERY_S)
            yield from self._look()

    def _look(self) -> scheduler.Steps:
        """Asks, and tells what is new."""
        yield from in_background(self._ask)
        status = self._status()
        if status != self._told:
            self._told = status
            self.broadcast("status", **status)

    # What its buttons do

    @handler
    def start(self) -> None:
        """Starts to start the monitor of the plot; `status` tells that it runs, `failed` if not."""
        scheduler.start(self._doing(self.panels.plot.start), self.fail)

    @handler
    def stop(self) -> None:
        """Starts to stop it; the plot keeps what it has."""
        scheduler.start(self._doing(self.panels.plot.stop), self.fail)

    def _doing(self, call: Callable[[], None]) -> scheduler.Steps:
        yield from in_background(call)
        yield from self._look()

    @handler
    def restart(self) -> None:
        """Starts another software DPU in place of the lost one; `renewed` tells when it is there.

        Its regions are gone; the plot stays.
        """
        if not self.owned:
            raise ValueError(
                "the dashboard did not start this DPU: run the cell that connects to it again"
            )
        scheduler.start(self._renew(), self.fail)

    def revive(self) -> None:
        """The same from a cell, which waits for it. Errors as dgkit.connect()."""
        over, errors = threading.Event(), list[Exception]()

        def steps() -> scheduler.Steps:
            try:
                yield from self._renew()
            except Exception as error:
                errors.append(error)

        scheduler.start(steps(), self.fail, over.set)
        while not over.wait(0.1):
            pass
        if errors:
            raise errors[0]

    def _renew(self) -> scheduler.Steps:
        while self._renewing:  # another view was quicker
            yield
        self._renewing = True
        try:
            yield from in_background(self._ask)
            if self.lost is not None and not self._closed:
                yield from self._replace()
        finally:
            self._renewing = False

    def _replace(self) -> scheduler.Steps:
        from ...session import connect

        new = yield from in_background(connect)
        session, (*panels, plot) = self.session, self.panels
        made = panels_of(new, plot)
        with self._lock:
            if not self._closed:
                self._session, self._panels = new, made
        if self._session is not new:
            yield from in_background(partial(end, made[:3], new))
            return
        yield from in_background(partial(setattr, plot, "session", new))  # it keeps what it has
        yield from in_background(self._ask)
        self._told = None
        self.broadcast("renewed", state={"title": self.title, **self.state()})
        yield from in_background(partial(end, panels, session))

    def close(self) -> None:
        """Ends the views and the panels, and the DPU if the dashboard started it. Again: nothing.

        A session that was given stays open.
        """
        with _lock:
            if self not in _open:
                return
            _open.remove(self)
        with self._lock:
            self._closed = True
            self._seen.clear()
            watching, self._watching = self._watching, None
        if watching is not None:
            watching.cancel()
        super().close()
        end(self.panels, self.session if self.owned else None)
        if not self.owned:  # who still has the dashboard (Out[3]) does not keep the session
            self._session = self._panels = None

    def static_html(self) -> str:
        """The session as a card: what an untrusted notebook and a printed page show."""
        if self._session is None:
            return super().static_html()
        return (
            f"{self.session._repr_html_()}<p>This is a dashboard of dgkit: run the cell, in a "
            "notebook that you trust, for its live view.</p>"
        )

    def static_text(self) -> str:
        """One line."""
        return f"<dgkit.Dashboard of {self._session!r}>" if self._session else "<closed Dashboard>"


def _counters(counters: dict[str, int]) -> Iterator[tuple[str, str]]:
    if not counters:
        return
    yield "DMA requests of this session", f"{counters['your_moves']:,}"
    yield "moved by them", size_text(counters["your_bytes"])
    yield "regions", f"{counters['session_regions']:,}"
    yield "memory of the DPU", f"{size_text(counters['allocated'])} allocated"
    if counters["failed"]:
        yield "requests refused", f"{counters['failed']:,}"


@atexit.register
def _end_all() -> None:
    """The kernel ends: no page hears anything any more, and each DPU that was started goes."""
    for one in list(_open):
        if one.owned:
            with contextlib.suppress(DgkitError):
                one.session.close()
