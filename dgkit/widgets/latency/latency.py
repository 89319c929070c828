"""LatencyPlot: latencies as the DPU measures them, live, and how two runs compare.

One task of the frame thread reads what came and keeps it (stage.py), and sends what is new
to the views that somebody sees, in numbered frames. A view that misses one asks for the whole.
"""

from __future__ import annotations

import threading
from functools import lru_cache
from typing import TYPE_CHECKING, Any, ClassVar

from ...errors import ClosedError, PeerTimeout
from ..base import scheduler
from ..base.panel import Reply, explain, handler
from ..base.session_model import Desk
from ..figure.figure import BokehPanel, drawn
from .export import file, table
from .measurement import Meter, Setting
from .run import What
from .view_model import Stage

if TYPE_CHECKING:
    from bokeh.document import Document

    from ...report import LatencyReport
    from ...session import Session, SessionRegion
    from ...session.monitor import Monitor

__all__ = ["LatencyPlot", "Setting"]

_KEPT = "What was measured stays on the plot."


@lru_cache(maxsize=2)
def _figures(dark: bool) -> dict[str, Any]:
    """They are the same for all plots."""
    from .figures import document

    return drawn(document(dark), dark)


class LatencyPlot(BokehPanel):
    """Latency of one operation, live: p50, p99 and max over time, how it spreads, percentiles.

    The DPU takes `count` samples of `size` bytes every 50 ms, also while a cell is busy. It uses
    `region`, or without one memory of its own, since a write puts zeros there. What is changed
    while it runs begins a new run: figures of two things are never mixed. It keeps a point a block
    for 2 minutes, a point a second for an hour, and the last 1,000,000 samples.

    Views of it end when its cell is run again, and so does the measuring.
    """

    name = "latency"
    title = "Latency"
    parts: ClassVar[tuple[str, ...]] = (
        *("figure/bokehjs", "latency/data", "latency/draw", "latency/parts"),
    )

    def __init__(
        self, session: Session, region: SessionRegion | None = None, *, size: int = 64,
        op: str = "write", path: str = "auto", count: int = 50,
    ) -> None:  # fmt: skip
        wanted = {"region": region, "size": size, "op": op, "path": path, "count": count}
        self._setting = Setting().but(wanted)
        self._meter: Meter | None = Meter(session)
        self._stage = Stage()
        self._control = threading.RLock()  # one start or stop at a time; never the frame thread
        self._monitor: Monitor | None = None
        self._task: scheduler.Task | None = None
        self._error: dict[str, str] | None = None
        self._waiting = ""
        super().__init__()
        Desk.of(session).subscribe(self)

    @property
    def session(self) -> Session:
        """Whose DPU is measured. Another one may be set: the measuring stops, what was measured
        stays, and start() begins a run with the new one."""
        return self._ready().session

    @session.setter
    def session(self, session: Session) -> None:
        with self._control:
            meter = self._ready()
            self._halt()
            meter.close()
            self._meter, self._setting = Meter(session), self._setting.but({"region": None})
            self._error = None
            Desk.of(session).subscribe(self)
        self._tell_whole()

    def _ready(self) -> Meter:
        if self._meter is None:
            raise ClosedError("the plot is closed")
        return self._meter

    @property
    def running(self) -> bool:
        """It measures now."""
        return self._monitor is not None

    @property
    def setting(self) -> Setting:
        """What is measured, or will be."""
        return self._setting

    @handler
    def start(self, **changes: Any) -> None:
        """Measures from now on; keywords change what (`size=4096`). While it runs: see change().

        BoundsError, AccessDenied, ClosedError, PeerLost, ...: nothing was changed.
        """
        with self._control:
            self._switch(self._setting.but(changes))

    @handler
    def change(self, **changes: Any) -> None:
        """Changes `region`, `size`, `op`, `path` or `count`; if it runs, a new run begins."""
        with self._control:
            setting = self._setting.but(changes)
            if self.running:
                self._switch(setting)
            else:
                self._setting = setting
                self._tell_whole()

    def _switch(self, setting: Setting) -> None:
        if self.running and setting == self._setting:
            return
        meter, refused = self._ready(), None
        if self.running:
            monitor, refused = meter.exchange(self._setting, setting, self._stopped)
        else:
            monitor = meter.open(setting)
        self._halt()
        meter.tidy()
        self._stage.begin(What.of(monitor))
        self._setting = self._setting if refused else setting
        self._error, self._monitor = None, monitor
        self._task = scheduler.start(
            self._steps(monitor), lambda error: self._ended(monitor, error), monitor.close
        )
        self._tell_whole()
        if refused:
            raise refused

    def _stopped(self) -> None:
        self._halt()
        self._tell_whole()

    def _steps(self, monitor: Monitor) -> Any:
        while True:
            self._read(monitor)
            frame = self._stage.frame()
            if frame is not None:
                self.tell("frame", frame[1], **frame[0])
            yield

    def _read(self, monitor: Monitor) -> None:
        try:
            blocks = monitor.read()
        except PeerTimeout as error:  # its process is stopped, and may go on
            self._wait(str(error))
            return
        if blocks:
            if self._stage.take(blocks):
                self._tell_whole()
            self._wait("")

    def _wait(self, text: str) -> None:
        """Says once why nothing comes, and once that it does again."""
        if text != self._waiting:
            self._waiting = text
            self.tell("waiting", text=text)

    def _ended(self, monitor: Monitor, error: Exception) -> None:
        """In the frame thread: the DPU is gone, or what it measured is."""
        if self._monitor is not monitor:
            return
        told = explain(error)
        told["way_out"] = f"{told['way_out']} {_KEPT}".strip()
        self._monitor = self._task = None
        self._error, self._waiting = told, ""
        self._tell_whole()

    @handler
    def stop(self) -> None:
        """Measures no longer; what was measured stays. Again: nothing."""
        with self._control:
            self._stopped()

    def _halt(self) -> None:
        task, self._task, self._waiting = self._task, None, ""
        self._monitor = None
        if task is not None:
            task.cancel()

    @handler
    def clear(self) -> None:
        """Forgets what was measured; if it runs, it begins anew. What was kept stays."""
        self._error = None
        self._stage.clear()
        self._tell_whole()

    @handler
    def keep(self) -> None:
        """The run becomes `before`, which the next is drawn over. ValueError: there is none yet."""
        self._stage.keep()
        self._tell_whole()

    @handler
    def drop(self) -> None:
        """Forgets what was kept as `before`."""
        self._stage.drop()
        self._tell_whole()

    def report(self) -> LatencyReport:
        """The run's last samples, at most 1,000,000, as a report. ValueError: there are none."""
        with self._stage.lock:
            run = self._stage.measured().copy()
        return run.report()

    def to_csv(self, what: str = "time") -> str:
        """`time`, `histogram` or `percentiles` of this run and of the one before, as CSV.

        Comment lines (#) say what was measured, by which provider, on which machine.
        """
        return table(self._stage.runs(), what)

    @handler
    def export(self, kind: str) -> Reply:
        """A file: `time`, `histogram`, `percentiles` (CSV), `html` or `json` (the reports)."""
        name, text = file(self._stage.runs(), kind)
        return {"name": name}, [text.encode()]

    @handler
    def watch(self, view: str, on: bool) -> dict[str, Any]:
        """A view is seen, still or again (`on`), or it is not: then it gets no frames."""
        with self._stage.lock:
            self._stage.audience.heard(view, on)
            return {"n": self._stage.number}

    @handler
    def whole(self) -> Reply:
        """All that a view draws, when it missed a frame."""
        return self.hello()

    @handler
    def hello(self) -> Reply:
        """A view was drawn: the whole state, of one moment."""
        with self._stage.lock:
            return super().hello()

    @handler
    def figures(self, dark: bool) -> dict[str, Any]:
        """The empty figures; views fill them."""
        return _figures(dark)

    def document(self, dark: bool) -> Document:
        """The figures as a Bokeh document."""
        from .figures import document

        return document(dark)

    def state(self) -> dict[str, Any]:
        """All but the points."""
        shared = Desk.of(self._meter.session).state() if self._meter is not None else {}
        if self._meter is not None and not shared["closed"]:
            shared["label"] = self._meter.label(self._setting, self._stage.run)
        return {
            **super().state(), **shared, **self._stage.state(), "running": self.running,
            "error": self._error, "waiting": self._waiting, "setting": self._setting.state(),
        }  # fmt: skip

    def state_buffers(self) -> list[bytes]:
        """The points, and how they spread."""
        return self._stage.buffers()

    def _tell_whole(self) -> None:
        with self._stage.lock:
            self.tell("whole", self.state_buffers(), title=self.title, **self.state())

    def static_html(self) -> str:
        """The reports of what was measured so far."""
        try:
            runs = self._stage.runs().values()
        except ValueError:
            return "<p>Latency plot: nothing was measured yet. Run the cell to see it.</p>"
        return "".join(run.report()._repr_html_() for run in runs)

    def close(self) -> None:
        """Ends the views and the measuring, and frees the plot's own memory. Again: nothing."""
        with self._control:
            self._halt()
            meter, self._meter = self._meter, None
        super().close()
        if meter is not None:
            meter.close()
