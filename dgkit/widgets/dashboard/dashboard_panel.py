# SPDX-License-Identifier: Apache-2.0
"""The dashboard: the four panels of a session together, with the session's state.

The dashboard is itself a panel, which hosts the views of the four panels: they share one landmark
and one error strip, and its grid places them side by side or below each other.
"""

from __future__ import annotations

import atexit
import contextlib
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import traitlets
from ipywidgets import Widget, widget_serialization

from ... import cell_lifetime
from ...errors import DgkitError
from ...units import size_text
from ..base import scheduler
from ..base.as_python import add_namer
from ..base.error_text import explain
from ..base.panel import handler, next_snapshot
from ..base.scheduler import in_background
from ..base.session_model import SessionModel, SessionPanel, regions_trait, selected_trait
from ..base.traits import State
from .gauges import Gauges
from .opening import Opening
from .panels import Panels, close_all, create_panels, import_all, sides_state
from .sample_run import SampleRun

if TYPE_CHECKING:
    from bokeh.model import Model

    from ...session import Session, SessionRegion
    from ..base.page_input import Json, Reply

_UPDATE_INTERVAL_S = 1.0  # of the counters
_GAUGES_INTERVAL_S = 2.0  # of the load of this machine
_EMPTY = (
    "There is no region yet: “Show me” allocates one, has the DPU write an image into it and "
    "measures the latency. Or open “Allocate memory” below."
)
_ARRANGEMENTS = ("rows", "tabs")
_VIEW_EXPIRY_S = 60.0  # a view that has not reported for this long is closed

_lock = threading.RLock()  # guards _open
_open: list[Dashboard] = []


def find_or_create(session: Session | None, opening: Opening | None) -> Dashboard:
    """Return the open dashboard of a session, or create one; see dashboard().

    Args:
        session: The session; None: of a DPU that the dashboard starts.
        opening: That DPU if it was started already.
    """
    with _lock:
        for old in list(_open):
            if old.opened and old.session.closed:
                old.close()
        for known in _open:
            if (known.owned if session is None else known.opened and known.session is session) and (
                known.document is _document()
            ):
                break
        else:
            if session is not None:
                return Dashboard(session)
            with cell_lifetime.detached():
                return Dashboard(opening or Opening())
    if known.session.restartable:
        known.revive()
    known.requested()
    if not known.owned:
        cell_lifetime.register(known, known.close, shared=True)
    return known


def _document() -> Any:
    """Return the document of the page for which Panel runs this code; None elsewhere."""
    panel = sys.modules.get("panel.io.state")
    return None if panel is None else panel.state.curdoc


def _name_session(session: Session) -> str:
    """Return the expression for a session that dashboard() started, or ""."""
    with _lock:
        boards = [board for board in _open if board.owned and board.opened]
        owned = any(board.session is session for board in boards)
    return "dgkit.dashboard().session" if owned else ""


add_namer(_name_session)


class Dashboard(SessionPanel):
    """The panels of one session; opened by dgkit.dashboard().

    Attributes:
        owned: The dashboard started the DPU: it closes `session` when it is closed.
        document: Panel's document of the page that shows it, with which it is closed; else None.
        lost: Why the DPU does not answer (see panel.explain), or None.
        regions: The live regions of the session; read-only.
        selected: The region that the panels show, or None; assigning one selects it in all of them.
        arrangement: "rows": all panels are shown, side by side where there is room; "tabs": one.
        tab: The panel that is shown in tabs: "allocate", "transfer", "hex" or "plot".
    """

    name = "dashboard"
    title = "dgkit dashboard"
    shared = True
    has_figures = True
    _ending = False  # protected by _lock

    _arrangement: str
    _tab: str

    regions: State[Dashboard, tuple[SessionRegion, ...]] = regions_trait()
    selected: State[Dashboard, SessionRegion | None] = selected_trait()
    arrangement: State[Dashboard, str] = State(
        lambda panel: panel._arrangement,
        lambda panel, value: panel.arrange(value, panel._tab),
        help='How the panels are shown: "rows" or "tabs".',
    )
    tab: State[Dashboard, str] = State(
        lambda panel: panel._tab,
        lambda panel, value: panel.arrange(panel._arrangement, value),
        help='The panel shown in tabs: "allocate", "transfer", "hex" or "plot".',
    )

    # Hosts that send a page the models of one widget at once, such as Panel, find the panels here.
    _hosted = traitlets.List(traitlets.Instance(Widget)).tag(sync=True, **widget_serialization)

    def __init__(self, of: Session | Opening) -> None:
        self._opening = of if isinstance(of, Opening) else None
        self._completing = threading.RLock()  # guards _opening
        self.owned, self.opened = self._opening is not None, False
        self.lost: dict[str, str] | None = None
        self._lock = threading.Lock()  # taken by the frame thread: never wait for a task under it
        self._restarting = False
        self._visible: dict[str, float] = {}  # view -> time of its last report
        self._updates: scheduler.Task | None = None
        self._counters: dict[str, int] = {}
        self._read_by_views = self._reads_before = (0, 0)  # requests and bytes; before this DPU
        self._sent_status: Json | None = None
        self._gauges, self._gauges_due = Gauges(), 0.0
        self._load: list[Json] = []
        self._panels: Panels | tuple[()] = ()
        self._unlisten: Callable[[], None] = lambda: None
        self._first: dict[str, str] | None = None  # headline until the plot has samples
        self._sample: SampleRun | None = None
        self._sample_task: scheduler.Task | None = None
        self._arrangement, self._tab = "rows", "hex"
        self.document = _document()
        self.requested()
        super().__init__()
        _open.append(self)
        if self.document is not None:
            self.document.on_session_destroyed(lambda _: self.close())
        if not isinstance(of, Opening):
            self._begin(of)
            return
        of.measured = self._send_first
        if of.headline is not None:  # before there was somebody to tell
            self._send_first()
        if not cell_lifetime.current_run()[0]:
            self.complete()

    def _send_first(self) -> None:
        """Show the first number in the frame, which has no panels yet."""
        opening = self._opening
        if opening is not None:
            self._first = opening.headline
            self.broadcast("first", latency=self._first)

    @handler
    def hello(self) -> Reply:
        """Return the whole state, once there is a session; before that, send the first number."""
        if self._first and not self.opened:
            self._send_first()
        return super().hello()

    def complete(self) -> None:
        """Wait for the session that is being opened, and create the panels.

        Raises:
            DgkitError: As dgkit.connect(); the dashboard is closed.
        """
        with self._completing:
            if self._opening is None:
                return
            import_all()  # while the DPU's process starts
            opening = self._opening
            try:
                session = opening.session()
            except Exception:
                self._opening = None
                self.close()
                raise
            self._opening = None
            self._begin(session)

    def _begin(self, session: Session) -> None:
        self._session, self.opened = session, True
        self._panels = create_panels(session)
        self._host_panels()

    @property
    def session(self) -> Session:
        """The session shown."""
        self.complete()
        return self._session

    @property
    def panels(self) -> Panels:
        """The panels `allocate`, `transfer`, `hex` and `plot`."""
        self.complete()
        assert self._panels
        return self._panels

    def requested(self) -> None:
        """Record that a cell requests the dashboard now: a view of it shows its top, and moves."""
        self._requested = time.monotonic()
        self._starts_by_itself = self.owned  # a given session gets no memory unless requested

    def _host_panels(self) -> None:
        self._hosted = list(self._panels)
        self._unlisten()
        model = SessionModel.of(self._session)
        self._unlisten = model.listen(self._session_changed, "regions", "select")
        self.refresh_traits()

    def _session_changed(self, change: str) -> None:
        if change == "regions":
            self.broadcast_state("status", self._status)
            if self._sample is None:
                self._send_sample()
        self.refresh_traits()

    # Rows or tabs

    @handler
    def arrange(self, arrangement: str, tab: str) -> None:
        """Show the panels in rows or in tabs, in all views.

        Args:
            arrangement: "rows" or "tabs".
            tab: The panel that tabs show.
        """
        if arrangement not in _ARRANGEMENTS:
            raise ValueError(f"arrangement is {arrangement!r}; it must be one of {_ARRANGEMENTS}")
        if tab not in Panels._fields:
            raise ValueError(f"tab is {tab!r}; it must be one of {Panels._fields}")
        self._arrangement, self._tab = arrangement, tab
        self.broadcast_state("arranged", lambda: {"arranged": self._arranged_state()})
        self.refresh_traits()

    def _arranged_state(self) -> Json:
        return {"arrangement": self._arrangement, "tab": self._tab}

    # The sample run

    @handler
    def show_me(self) -> None:
        """Start the sample run: allocate, write, look, measure; `sample` messages report steps."""
        if self._sample_task is not None and not self._sample_task.done:
            raise ValueError("the steps are running: wait until they have ended")
        self._starts_by_itself = False
        self._sample = SampleRun(self.session, self.panels, self._sample_changed, self._send_sample)
        self._sample_task = scheduler.start(self._sample.steps(), self.fail)

    @handler
    def hide_sample(self) -> None:
        """Remove the steps of the sample run from the views, and end the run if it is running."""
        if self._sample_task is not None:
            self._sample_task.cancel()
        self._sample = None
        self._sample_changed()

    def _sample_state(self) -> Json:
        if self._sample is not None:
            return self._sample.state()
        empty = not self.session.closed and not SessionModel.of(self.session).live()
        return {"steps": [], "said": _EMPTY if empty else ""}

    def _ipython_display_(self) -> None:
        """Display the frame, then start: the page loads the panels while the DPU starts."""
        self._publish_view()
        if not self.closed:
            self.complete()
            if cell_lifetime.current_run()[0]:
                self._start_by_itself()
        self._publish_static()

    def _send_sample(self) -> None:
        self.broadcast_state(
            "sample", lambda: {"sample": self._sample_state(), "latency": self._headline()}
        )

    def _headline(self) -> dict[str, str] | None:
        latency = self.panels.plot.headline()
        if latency is not None:
            self._first = None
        return latency or self._first

    def _sample_changed(self) -> None:
        self._send_sample()
        if self._arrangement == "tabs" and self._sample is not None and self._sample.running:
            self.arrange("tabs", self._sample.running)

    def state(self) -> Json:
        """Return the two sides, their status, and the models of the four panels."""
        models = {name: panel.model_id for name, panel in self.panels._asdict().items()}
        own: Json = {"panels": models, "sample": self._sample_state()}
        own |= {"arranged": self._arranged_state(), "gauges": self._load}
        own["requested_s"] = time.monotonic() - self._requested
        return sides_state(self.session) | self._status() | own

    def _status(self) -> Json:
        """Return the status as of the last query of the agent."""
        if self.session.closed:
            self._query_agent()  # returns at once
        running = self.panels.plot.measuring
        regions = len(SessionModel.of(self.session).live())
        counters = list(_counters(self._counters, regions, self._read_by_views))
        latency = self._headline()
        return {"counters": counters, "lost": self.lost, "running": running, "latency": latency}

    def _query_agent(self) -> None:
        """Query the agent's counters; blocks, so never call it on the frame thread."""
        session, counters, lost = self.session, self._counters, None
        try:
            counters = session.stats()
            read, before = SessionModel.of(session).read_by_views, self._reads_before
            self._read_by_views = read[0] - before[0], read[1] - before[1]
        except DgkitError as error:
            lost = explain(error, session)
        self._counters, self.lost = counters, lost

    # Visible views

    @handler
    def watch(self, view: str, on: bool) -> None:
        """Record that a view is visible, which it reports repeatedly, or hidden."""
        with self._lock:
            new = self._visible.pop(view, None) is None
            if not on:
                return
            self._visible[view] = time.monotonic()
            if self._updates is None or self._updates.done:
                self._updates = scheduler.start(self._update_periodically(), self.fail)
        if new:
            self._sent_status = None
            scheduler.start(self._update(), self.fail)
        self._start_by_itself()

    def _is_visible(self) -> bool:
        with self._lock:
            oldest = time.monotonic() - _VIEW_EXPIRY_S
            self._visible = {view: at for view, at in self._visible.items() if at > oldest}
            if not self._visible:
                self._updates = None
            return bool(self._visible)

    def _update_periodically(self) -> scheduler.Steps:
        while self._is_visible():
            yield from scheduler.sleep(_UPDATE_INTERVAL_S)
            yield from self._update()

    def _update(self) -> scheduler.Steps:
        """Query the agent and send the status if it has changed."""
        yield from in_background(self._query_agent)
        number, status = next_snapshot(), self._status()
        if status != self._sent_status:
            self._sent_status = status
            self.broadcast("status", snapshot=number, **status)
        if time.monotonic() >= self._gauges_due:
            self._gauges_due = time.monotonic() + _GAUGES_INTERVAL_S
            before, self._load = self._load, (yield from in_background(self._gauges.read))
            self.panels.plot.add_load(self._gauges.series)
            if self._load != before:
                self.broadcast("gauges", gauges=self._load)

    # Buttons

    def _start_by_itself(self) -> None:
        """Show the DPU at work, once for each dashboard(), unless the user decided before."""
        if not self._starts_by_itself or self.session.closed:
            return
        self._starts_by_itself = False
        if self._sample_task is None and not SessionModel.of(self.session).live():
            self.show_me()
        else:
            scheduler.start(self._then_update(self.panels.plot.show_live), self.fail)

    @handler
    def start(self) -> None:
        """Start the plot's monitor without waiting; `status` reports it, `failed` an error."""
        self._starts_by_itself = False
        scheduler.start(self._then_update(self.panels.plot.start), self.fail)

    @handler
    def stop(self) -> None:
        """Stop the plot's monitor without waiting; the plot keeps its samples."""
        self._starts_by_itself = False
        if self._sample is not None:
            self._sample.measures = False
        scheduler.start(self._then_update(self.panels.plot.stop), self.fail)

    def _then_update(self, call: Callable[[], None]) -> scheduler.Steps:
        yield from in_background(call)
        yield from self._update()

    def revive(self) -> None:
        """Replace a lost software DPU and wait until the new one runs; for a cell.

        Raises:
            DgkitError: As dgkit.connect().
        """
        ended, errors = threading.Event(), list[Exception]()

        def steps() -> scheduler.Steps:
            try:
                yield from self._restart(self.session)
            except Exception as error:
                errors.append(error)

        scheduler.start(steps(), self.fail, ended.set)
        while not ended.wait(0.1):
            pass
        if errors:
            raise errors[0]

    def _restart(self, session: Session) -> scheduler.Steps:
        while self._restarting:  # requested by another view
            yield
        self._restarting = True
        try:
            yield from in_background(self._query_agent)
            if self.lost is not None:
                yield from super()._restart(session)
        finally:
            self._restarting = False

    def _restarted(self) -> scheduler.Steps:
        self._reads_before = SessionModel.of(self.session).read_by_views
        yield from in_background(self._query_agent)
        self._sent_status = None
        self.broadcast("restarted", state={"title": self.title, **self.state()})

    def end(self) -> None:
        """Close the panels. A DPU that the dashboard started ends; a given session stays open."""
        with _lock:
            _open.remove(self)
        with self._lock:
            self._ending = True
            self._visible.clear()
            updates, self._updates = self._updates, None
        if updates is not None:
            updates.cancel()
        self._unlisten()
        if self._sample_task is not None:
            self._sample_task.cancel()
        close_all(self._panels, self._session if self.owned and self._panels else None)

    @property
    def changes(self) -> int:
        """A number that grows with each message of the dashboard or its panels to the views."""
        return self._changes + sum(panel.changes for panel in self._panels)

    def static_html(self) -> str:
        """Return the session and the panels as cards, for saved notebooks and printed pages."""
        if not self.opened:
            return super().static_html()
        return self.session._repr_html_() + "".join(panel.static_html() for panel in self.panels)

    def static_figures(self) -> list[Model]:
        """Return the figures of the panels."""
        return [figure for panel in self._panels for figure in panel.static_figures()]

    def static_text(self) -> str:
        """Return the session in one line."""
        return f"<dgkit.Dashboard of {self.session!r}>" if self.opened else super().static_text()


def _counters(
    counters: dict[str, int], regions: int, read_by_views: tuple[int, int]
) -> Iterator[tuple[str, str]]:
    if not counters:
        return
    own, own_bytes = read_by_views
    yield "DMA requests", f"{max(0, counters['your_moves'] - own):,}"
    yield "moved by them", size_text(max(0, counters["your_bytes"] - own_bytes))
    yield "regions", f"{regions:,}"
    yield "memory of the DPU", f"{size_text(counters['allocated'])} allocated"
    if counters["failed"]:
        yield "requests refused", f"{counters['failed']:,}"


@atexit.register
def _end_all() -> None:
    """End the DPUs that dashboards started, when the kernel exits."""
    for board in list(_open):
        if board.owned:
            with contextlib.suppress(DgkitError):
                board.session.close()
