"""dashboard(): the four panels of a session together, and how the session is.

The frame is a panel of its own that hosts the views of the four: so they stand in one landmark with
one error strip, and its own grid sets them side by side or below each other.
"""

from __future__ import annotations

import atexit
import contextlib
import threading
import time
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

from ...cards import size_text
from ...errors import DgkitError
from ..base import frames
from ..base.panel import Panel, explain, handler, label_of

if TYPE_CHECKING:
    from ...session import Session
    from ..allocate.allocate import AllocatePanel
    from ..hexview.hexview import HexView
    from ..latency.latency import LatencyPlot
    from ..transfer.transfer import TransferPanel

__all__ = ["Dashboard", "dashboard"]

_EVERY_S = 1.0  # the counters
_SEEN_S = 60.0  # a view that has not said for so long that it is seen is gone with its page

_lock = threading.RLock()  # which dashboards there are
_open: list[Dashboard] = []


def dashboard(session: Session | None = None) -> Dashboard:
    """The dashboard of a session; without one, of a software DPU that it starts and owns.

    Called again it is the same one, for as long as its session lives: a cell that runs twice starts
    nothing twice and loses no region. `close()` ends it, and the DPU that it started. Errors as
    dgkit.connect().
    """
    with _lock:
        for old in list(_open):
            if old.session.closed:
                old.close()
        for known in _open:
            if known.owned if session is None else known.session is session:
                if known.owned:
                    known.restart()
                return known
        if session is not None:
            return Dashboard(session)
        from ...session import connect

        return Dashboard(connect(), owned=True)


class Panels(NamedTuple):
    """The four of one session."""

    allocate: AllocatePanel
    transfer: TransferPanel
    hex: HexView
    plot: LatencyPlot


def _panels(session: Session, plot: LatencyPlot | None = None) -> Panels:
    from ..allocate.allocate import AllocatePanel
    from ..hexview.hexview import HexView
    from ..latency.latency import LatencyPlot
    from ..transfer.transfer import TransferPanel

    plot = plot or LatencyPlot(session)
    return Panels(AllocatePanel(session), TransferPanel(session), HexView(session), plot)


class Dashboard(Panel):
    """Made by dgkit.dashboard(). `panels`: `allocate`, `transfer`, `hex` and `plot`.

    `owned`: it started the DPU, so it closes `session` with itself and can start another.
    """

    name = "dashboard"
    title = "dgkit dashboard"

    def __init__(self, session: Session, owned: bool = False) -> None:
        self.session, self.owned = session, owned
        self.lost: dict[str, str] | None = None  # why the DPU cannot be asked, and what to do
        self._lock = threading.RLock()
        self._seen: dict[str, float] = {}
        self._watching: frames.Task | None = None
        self._counters: dict[str, int] = {}
        self.panels = _panels(session)
        super().__init__()
        _open.append(self)

    def state(self) -> dict[str, Any]:
        """Who the sides are, how they are, and the models of the four panels."""
        models = {name: panel.model_id for name, panel in self.panels._asdict().items()}
        return self._sides() | self._status() | {"panels": models, "owned": self.owned}

    def _sides(self) -> dict[str, Any]:
        info = self.session.info
        dpu, role = info["dpu"], info["role"]
        shown = {"label": "closed", "provider": ""} if self.session.closed else {}
        sides = [
            ("DPU", f"{dpu['engine'] or dpu['provider']}, pid {dpu['pid']}"),
            ("on", f"{dpu['machine']}, {dpu['cpus']} CPUs"),
            ("this process", f"{role}, pid {info[role]['pid']}"),
            ("address", info["address"]),
        ]
        return (shown or label_of(self.session)) | {"sides": sides, "why": list(_why(dpu))}

    def _status(self) -> dict[str, Any]:
        """Asks the agent, which is quick: also one that is stopped is seen within 0.1 s."""
        try:
            self._counters = self.session.stats()
            self.lost = None
        except DgkitError as error:
            self.lost = explain(error)
        moving = self.panels.plot.running
        return {"counters": list(_counters(self._counters)), "lost": self.lost, "running": moving}

    # While somebody looks

    @handler
    def seen(self, view: str, now: bool) -> None:
        """A view came into sight (it says so again now and then), or left it."""
        with self._lock:
            self._seen.pop(view, None)
            if now:
                self._seen[view] = time.monotonic()
                if self._watching is None or self._watching.done:
                    self._watching = frames.start(self._watch(), self.fail)

    def _is_seen(self) -> bool:
        with self._lock:
            oldest = time.monotonic() - _SEEN_S
            self._seen = {view: at for view, at in self._seen.items() if at > oldest}
            if not self._seen:
                self._watching = None
            return bool(self._seen)

    def _watch(self) -> frames.Steps:
        told: dict[str, Any] = {}
        while self._is_seen():
            status = self._status()
            if status != told:
                told = status
                self.tell("status", **status)
            yield from frames.every(_EVERY_S)

    # What its buttons do

    @handler
    def start(self) -> dict[str, Any]:
        """Starts the monitor of the plot."""
        self.panels.plot.start()
        return self._status()

    @handler
    def stop(self) -> dict[str, Any]:
        """Stops it; the plot keeps what it has."""
        self.panels.plot.stop()
        return self._status()

    @handler
    def restart(self) -> dict[str, Any]:
        """Another software DPU in place of the lost one. Its regions are gone; the plot stays."""
        if not self.owned:
            raise ValueError(
                "the dashboard did not start this DPU: run the cell that connects to it again"
            )
        with self._lock:
            if self._status()["lost"] is None:
                return {}  # another view was quicker
            from ...session import connect

            session, (*panels, plot) = self.session, self.panels
            self.session = connect()
            plot.session = self.session  # it keeps what it has
            self.panels = _panels(self.session, plot)
            self.tell("renewed", state={"title": self.title, **self.state()})
            _end(panels, session)
        return {}

    def close(self) -> None:
        """Ends the views and the panels, and the DPU if the dashboard started it. Again: nothing.

        A session that was given stays open.
        """
        with _lock:
            if self not in _open:
                return
            _open.remove(self)
        with self._lock:
            self._seen.clear()
            if self._watching is not None:
                self._watching.cancel()
            super().close()
            _end(self.panels, self.session if self.owned else None)

    def static_html(self) -> str:
        """The session as a card: what an untrusted notebook and a printed page show."""
        return (
            f"{self.session._repr_html_()}<p>This is a dashboard of dgkit: run the cell, in a "
            "notebook that you trust, for its live view.</p>"
        )

    def static_text(self) -> str:
        """One line."""
        return f"<dgkit.Dashboard of {self.session!r}>"


def _end(panels: Iterable[Panel], session: Session | None) -> None:
    with contextlib.ExitStack() as last_to_first:
        if session is not None:
            last_to_first.callback(session.close)
        for panel in panels:
            last_to_first.callback(panel.close)


def _why(dpu: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """Each provider that was not taken, and why not."""
    yield from sorted(dpu["why"].items())


def _counters(counters: dict[str, int]) -> Iterator[tuple[str, str]]:
    if not counters:
        return
    yield "transfers", f"{counters['moves']:,}"
    yield "moved", size_text(counters["bytes"])
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
