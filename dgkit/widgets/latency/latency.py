"""LatencyPlot: latencies measured by the DPU, live, and a comparison of two runs.

One task of the frame thread reads the samples into the view model and sends what is new to the
visible views, in numbered frames. A view that misses a frame requests the full state.
"""

from __future__ import annotations

import threading
import time
from functools import lru_cache
from typing import TYPE_CHECKING, Any, ClassVar

from ...errors import PeerTimeout
from ..base import scheduler
from ..base.panel import Reply, explain, handler
from ..base.session_model import SessionModel
from ..base.traits import State, choose_region, region_id
from ..figure.figure import BokehPanel, document_state
from .export import csv_table, export_file
from .measurement import Measurement, Setting
from .run import RunConfig
from .view_model import ViewModel

if TYPE_CHECKING:
    from typing import TypeAlias

    from bokeh.document import Document

    from ...gpu_initiated.session_latency import KernelMonitor
    from ...report import LatencyReport
    from ...session import Session, SessionRegion
    from ...session.monitor import Monitor as SessionMonitor
    from ..base.picture import Picture

    Monitor: TypeAlias = SessionMonitor | KernelMonitor

__all__ = ["LatencyPlot", "Setting"]

_FIGURES = ("p50_ns", "p99_ns", "max_ns")
_FIGURES_S = 0.4  # between updates of these traits
_KEPT = "The samples measured so far stay on the plot."


@lru_cache(maxsize=2)
def _empty_figures(dark: bool) -> dict[str, Any]:
    """Return the figures as JSON, which is the same for all plots."""
    from .figures import document

    return document_state(document(dark), dark)


def _of_setting(name: str, *, help: str) -> State[Any]:
    """Return the trait of one value of the plot's setting."""
    return State(
        lambda plot: getattr(plot._setting, name),
        lambda plot, value: plot.change(**{name: value}),
        help=help,
    )


class LatencyPlot(BokehPanel):
    """Live latency of one operation: p50, p99 and max over time, distribution, percentiles.

    The DPU takes `count` samples of `size` bytes every 50 ms, also while a cell is busy; with the
    path "GPU-initiated" a kernel of this process does, or of the emulated GPU. Without
    `region` the plot allocates its own region. With one, writes go to scratch memory of the same
    kind (see Session.monitor). A change while it runs starts a new run: samples of two settings are
    never mixed. It keeps a point per block for 2 minutes, a point per second for an hour, and the
    last 1,000,000 samples.

    Its views and the measurement end when its cell is run again.

    Attributes:
        running: It measures; assigning True or False starts or stops it.
        region: The region that is measured; None: the plot's own memory.
        size: Bytes per operation, at most those of the region.
        op: `write` or `read`.
        path: `auto`, `inline`, `worker` or `GPU-initiated`.
        p50_ns: The median of the run so far, in ns; None without samples. Read-only.
        p99_ns: The 99th percentile, in ns; None with fewer than 100 samples. Read-only.
        max_ns: The maximum, in ns; None without samples. Read-only.
    """

    name = "latency"
    title = "Latency"
    parts: ClassVar[tuple[str, ...]] = (
        *("figure/bokehjs", "latency/data", "latency/draw", "latency/parts"),
    )

    running: State[bool] = State(
        lambda plot: plot.measuring,
        lambda plot, value: plot._assign_running(value),
        help="It measures; assigning True or False starts or stops it.",
    )
    region: State[SessionRegion | None] = State(
        lambda plot: plot._region(),
        lambda plot, value: plot._assign_region(value),
        to_json=region_id,
        help="The region that is measured; None: the plot's own memory.",
    )
    size: State[int] = _of_setting("size", help="Bytes per operation.")
    op: State[str] = _of_setting("op", help="write or read.")
    path: State[str] = _of_setting("path", help="auto, inline, worker or GPU-initiated.")
    p50_ns: State[float | None] = State(
        lambda plot: plot._figures.get("p50"), help="Median of the run so far, ns. Read-only."
    )
    p99_ns: State[float | None] = State(
        lambda plot: plot._figures.get("p99"),
        help="99th percentile of the run so far, ns; None with fewer than 100 samples. Read-only.",
    )
    max_ns: State[float | None] = State(
        lambda plot: plot._figures.get("max"), help="Maximum of the run so far, ns. Read-only."
    )

    def __init__(
        self, session: Session, region: SessionRegion | None = None, *, size: int = 64,
        op: str = "write", path: str = "auto", count: int = 50,
    ) -> None:  # fmt: skip
        wanted = {"region": region, "size": size, "op": op, "path": path, "count": count}
        self._setting = Setting().updated(wanted)
        self._measurement = Measurement(session)
        self._view_model = ViewModel()
        self._control = (
            threading.RLock()
        )  # serializes start and stop; never taken by the frame thread
        self._monitor: Monitor | None = None
        self._task: scheduler.Task | None = None
        self._error: dict[str, str] | None = None
        self._waiting = ""
        self._figures: dict[str, float] = {}
        self._figures_at = 0.0
        super().__init__()
        SessionModel.of(session).subscribe(self)

    @property
    def session(self) -> Session:
        """The session whose DPU is measured.

        Setting another one stops the measurement and keeps its samples; start() then starts a new
        run, of the plot's own memory.
        """
        return self._measurement.session

    @session.setter
    def session(self, session: Session) -> None:
        with self._control:
            self._end_task()
            SessionModel.of(self._measurement.session).unsubscribe(self)
            self._measurement.close()
            self._measurement = Measurement(session)
            self._setting = self._setting.updated({"region": None})
            self._error = None
            SessionModel.of(session).subscribe(self)
        self._send_state()

    @property
    def measuring(self) -> bool:
        """True while it measures, also in the middle of a cell; `running` follows at its end."""
        return not self.closed and self._monitor is not None

    @property
    def setting(self) -> Setting:
        """The setting that is measured, or will be."""
        return self._setting

    @handler
    def start(self, **changes: Any) -> None:
        """Start to measure. On an error nothing is changed.

        Args:
            **changes: Changes of the setting, such as size=4096; see change().

        Raises:
            TypeError: A setting is unknown, or a value has the wrong type.
            ValueError: A value is invalid.
            DgkitError: As raised by Session.monitor: BoundsError, AccessDenied, PeerLost, ...
        """
        with self._control:
            self._switch(self._setting.updated(changes))

    @handler
    def change(self, **changes: Any) -> None:
        """Change `region`, `size`, `op`, `path` or `count`; if it runs, a new run starts."""
        with self._control:
            setting = self._setting.updated(changes)
            if self.measuring:
                self._switch(setting)
            else:
                self._measurement.check(setting)
                self._setting = setting
                self._send_state()

    def _switch(self, setting: Setting) -> None:
        if self.measuring and setting == self._setting:
            return
        measurement, refused = self._measurement, None
        if self.measuring:
            monitor, refused = measurement.switch(self._setting, setting, self._stop)
        else:
            monitor = measurement.open(setting)
        self._end_task()
        measurement.free_outgrown()
        self._view_model.begin(RunConfig.of(monitor))
        self._setting = self._setting if refused else setting
        self._error, self._monitor = None, monitor
        self._task = scheduler.start(
            self._steps(monitor), lambda error: self._ended(monitor, error), monitor.close
        )
        self._send_state()
        if refused:
            raise refused

    def _stop(self) -> None:
        self._end_task()
        self._send_state()

    def _steps(self, monitor: Monitor) -> Any:
        while True:
            self._read(monitor)
            frame = self._view_model.frame()
            if frame is not None:
                self.broadcast("frame", frame[1], **frame[0])
            if time.monotonic() - self._figures_at >= _FIGURES_S:
                self._update_figures()
            yield

    def _update_figures(self) -> None:
        self._figures_at = time.monotonic()
        self._figures = self._view_model.figures()
        self.refresh_traits()

    def _region(self) -> SessionRegion | None:
        live = SessionModel.of(self.session).live()
        return next((region for region in live if region.id == self._setting.region), None)

    def _assign_running(self, value: Any) -> None:
        if not isinstance(value, bool):
            raise ValueError(f"running is {value!r}; it must be True or False")
        if value:
            self.start()
        else:
            self.stop()

    def _assign_region(self, value: Any) -> None:
        live = SessionModel.of(self.session).live()
        self.change(region=None if value is None else choose_region(self.session, value, live))

    def _should_send_property(self, key: str, value: Any) -> bool:
        """Return False for the figures while no view is visible: their messages would pile up."""
        if key in _FIGURES and not self._view_model.viewers.any_recent():
            return False
        return bool(super()._should_send_property(key, value))

    def _read(self, monitor: Monitor) -> None:
        try:
            blocks = monitor.read()
        except PeerTimeout as error:  # the DPU's process is stopped and may be continued
            self._set_waiting(str(error))
            return
        if blocks:
            if self._view_model.add(blocks):
                self._send_state()
            self._set_waiting("")
            self.renew_picture(live=True)  # frames are sent to visible views only

    def _set_waiting(self, text: str) -> None:
        """Report once why no samples arrive, and once (empty) that they arrive again."""
        if text != self._waiting:
            self._waiting = text
            self.broadcast("waiting", text=text)

    def _ended(self, monitor: Monitor, error: Exception) -> None:
        """Handle, on the frame thread, the loss of the DPU or of the region."""
        if self._monitor is not monitor:
            return
        shown = explain(error)
        shown["hint"] = f"{shown['hint']} {_KEPT}".strip()
        self._monitor = self._task = None
        self._error, self._waiting = shown, ""
        self._send_state()

    @handler
    def stop(self) -> None:
        """Stop measuring; the samples stay. Idempotent."""
        with self._control:
            self._stop()

    def _end_task(self) -> None:
        task, self._task, self._waiting = self._task, None, ""
        self._monitor = None
        if task is not None:
            task.cancel()

    @handler
    def clear(self) -> None:
        """Discard the samples of the run; if it measures, it continues. The run before stays."""
        self._error = None
        self._view_model.clear()
        self._send_state()

    @handler
    def keep(self) -> None:
        """Keep the run as `before` for comparison, and start a new one.

        Raises:
            ValueError: There are no samples yet.
        """
        self._view_model.keep()
        self._send_state()

    @handler
    def drop(self) -> None:
        """Discard the run kept as `before`."""
        self._view_model.drop()
        self._send_state()

    def report(self) -> LatencyReport:
        """Return a report on the last samples of the run, at most 1,000,000.

        Raises:
            ValueError: There are no samples yet.
        """
        with self._view_model.lock:
            run = self._view_model.require_samples().copy()
        return run.report()

    def to_csv(self, what: str = "time") -> str:
        """Return a table of the run and of the run before as CSV.

        Comment lines (#) name the operation, the provider and the machine.

        Args:
            what: "time", "histogram" or "percentiles".

        Raises:
            ValueError: The table is unknown, or there are no samples yet.
        """
        return csv_table(self._view_model.runs(), what)

    @handler
    def export(self, kind: str) -> Reply:
        """Return a file: `time`, `histogram`, `percentiles` (CSV), `html` or `json` (reports)."""
        name, text = export_file(self._view_model.runs(), kind)
        return {"name": name}, [text.encode()]

    @handler
    def as_python(self) -> dict[str, str]:
        """Return the lines of Python that measure for five seconds what the plot measures."""
        return {"text": self._measurement.python(self._setting)}

    @handler
    def watch(self, view: str, on: bool) -> dict[str, Any]:
        """Record that a view is still visible (`on`), or no longer; then it is sent no frames."""
        with self._view_model.lock:
            viewers = self._view_model.viewers
            unseen = not viewers.any_recent()
            viewers.update(view, on)
            number = self._view_model.number
        if unseen and on:
            self.send_state(list(_FIGURES))
        return {"n": number}

    @handler
    def full_state(self) -> Reply:
        """Return the full state to a view that missed a frame."""
        return self.hello()

    @handler
    def hello(self) -> Reply:
        """Return the full state, consistent, to a new view."""
        with self._view_model.lock:
            return super().hello()

    @handler
    def figures(self, dark: bool) -> dict[str, Any]:
        """Return the empty figures; views fill them."""
        return _empty_figures(dark)

    def document(self, dark: bool) -> Document:
        """Return the figures as a Bokeh document."""
        from .figures import document

        return document(dark)

    def state(self) -> dict[str, Any]:
        """Return the state without the buffers."""
        measurement = self._measurement
        shared = SessionModel.of(measurement.session).state()
        if not shared["closed"]:
            label = measurement.label(self._setting, self._view_model.run)
            shared |= {"label": label, "own_label": label != shared["label"]}
        return {
            **super().state(), **shared, **self._view_model.state(), "running": self.measuring,
            "error": self._error, "waiting": self._waiting, "setting": self._setting.state(),
        }  # fmt: skip

    def state_buffers(self) -> list[bytes]:
        """Return the points, the histograms and the percentile curves."""
        return self._view_model.buffers()

    def _send_state(self) -> None:
        with self._view_model.lock:
            self.broadcast("full_state", self.state_buffers(), title=self.title, **self.state())
        self._update_figures()

    def picture(self) -> Picture:
        """Return latency over time and the percentiles of the runs."""
        from .static_plot import latency_picture

        state = SessionModel.of(self.session).state()
        try:
            runs = self._view_model.runs()
        except ValueError:
            runs = {}
        return latency_picture(self.title, state["label"], runs)

    def static_html(self) -> str:
        """Return the reports of the runs as HTML."""
        try:
            runs = self._view_model.runs().values()
        except ValueError:
            return "<p>Latency plot: no samples yet. Run the cell for the live view.</p>"
        return "".join(run.report()._repr_html_() for run in runs)

    def end(self) -> None:
        """End the measurement and free the plot's own memory."""
        with self._control:
            self._end_task()
            self._measurement.close()
