"""LatencyPlot: latencies measured by the DPU, live or over sizes, and a comparison of two runs.

One task of the frame thread reads the samples into the view model and sends what is new to the
visible views, in numbered frames: two blocks a frame, which a view draws one after the other. A
view that misses a frame requests the full state.
"""

from __future__ import annotations

import contextlib
import threading
import time
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from ...errors import PeerTimeout
from ..base import scheduler
from ..base.background import BackgroundCall, in_background
from ..base.panel import Reply, explain, handler
from ..base.session_model import SessionModel
from ..base.traits import State, choose_region, region_id
from ..figure.figure import BokehPanel, document_state
from .export import SWEEP_FILES, csv_table, export_file, sweep_csv, sweep_file
from .measurement import Measurement, Setting
from .run import RunConfig
from .size_sweep import SizeSweep, SweepSetting, python_lines
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
_FRAME_S = 0.1  # between two frames: a message costs more than the samples in it
_MODES = ("live", "sweep")
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

    sweep() measures latency over sizes instead, and shows it with the floor of each size.

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
        self._mode = "live"
        self._sweep_setting = SweepSetting()
        self._sweep: SizeSweep | None = None
        self._sweep_before: SizeSweep | None = None
        self._sweep_task: scheduler.Task | None = None
        self._resume = False  # live mode, after the sweep
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
            self._end_sweep()
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
        """Start to measure; a sweep is stopped. On an error nothing is changed.

        Args:
            **changes: Changes of the setting, such as size=4096; see change().

        Raises:
            TypeError: A setting is unknown, or a value has the wrong type.
            ValueError: A value is invalid.
            DgkitError: As raised by Session.monitor: BoundsError, AccessDenied, PeerLost, ...
        """
        with self._control:
            self._switch(self._setting.updated(changes))
            self._end_sweep()
            if self._mode != "live":
                self.show("live")

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
        due = time.monotonic()
        while True:
            self._read(monitor)
            frame = self._view_model.frame()
            if frame is not None:
                self.broadcast("frame", frame[1], **frame[0])
            now = time.monotonic()
            if now - self._figures_at >= _FIGURES_S and self._take_figures():
                self.refresh_traits()
            due = max(due + _FRAME_S, now)
            yield due if monitor.buffered else None

    def _take_figures(self) -> bool:
        """Take the figures for the traits and the picture; return whether they have changed."""
        self._figures_at = time.monotonic()
        self.renew_picture(live=True)  # here, since frames are sent to visible views only
        before, self._figures = self._figures, self._view_model.figures()
        return self._figures != before

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
        """Stop measuring, also a sweep; the samples stay. Idempotent."""
        with self._control:
            self._end_sweep()
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

    # Sweep

    @handler
    def show(self, mode: str) -> None:
        """Let the views show the live figures (`live`) or the sweep (`sweep`).

        Raises:
            ValueError: There is no such mode.
        """
        if mode not in _MODES:
            raise ValueError(f"there is no mode {mode!r}; modes: {', '.join(_MODES)}")
        self._mode = mode
        self._send_state()

    def sweep(
        self, sizes: Any = None, *, rounds: int | None = None, samples: int | None = None
    ) -> SizeSweep:
        """Start to measure latency over sizes, of the plot's region, operation and path.

        The live mode is stopped meanwhile, and continues when the sweep has ended. Arguments that
        are None are those of the sweep before.

        Args:
            sizes: Bytes per operation: "8, 64, 4K" or [8, 64, 4096]; at most 32.
            rounds: How often each size is measured, 1 to 100.
            samples: For each size and round, 1 to 100,000; fewer where they would move more than
                64 MiB.

        Returns:
            The sweep; its wait() returns when it has ended.

        Raises:
            TypeError: A value has the wrong type.
            ValueError: A value is invalid, or a sweep is running.
            BoundsError: A size exceeds the region.
        """
        with self._control:
            changes = {"sizes": sizes, "rounds": rounds, "samples": samples}
            setting = self._sweep_setting.updated(changes)
            if self._sweeping:
                raise ValueError("a sweep is running: stop it, or wait until it has ended")
            sweep = SizeSweep(self.session, self._setting, setting)
            self._resume = self.measuring
            self._end_task()
            self._sweep_setting, self._sweep, self._mode = setting, sweep, "sweep"
            self._error = None
            steps = self._sweep_steps(sweep, BackgroundCall(sweep.run))
            self._sweep_task = scheduler.start(steps, self.fail)
            self._send_state()
        return sweep

    @handler
    def start_sweep(self, **fields: Any) -> None:
        """Start a sweep for a view; see sweep()."""
        self.sweep(**fields)

    @property
    def _sweeping(self) -> bool:
        return self._sweep is not None and self._sweep.status == "running"

    @handler
    def stop_sweep(self) -> None:
        """Stop the sweep; its figures stay, and the live mode continues. Idempotent."""
        if self._sweep is not None:
            self._sweep.stop()

    def _end_sweep(self) -> None:
        """Stop the sweep, without continuing the live mode."""
        self._resume = False
        self.stop_sweep()

    def _sweep_steps(self, sweep: SizeSweep, call: BackgroundCall[None]) -> Any:
        seen = 0
        for _ in call.wait():
            if sweep.done != seen:
                seen = sweep.done
                self.broadcast("sweep", sweep=sweep.state())
            yield
        self._send_state()
        yield from in_background(self._resume_live)

    def _resume_live(self) -> None:
        with self._control:
            if not self.closed and self._resume:
                self._resume = False
                self._switch(self._setting)

    @handler
    def keep_sweep(self) -> None:
        """Keep the sweep as `before`: the next one is drawn over it, with the ratio of each size.

        Raises:
            ValueError: There is none yet, or it is running.
        """
        self._sweep_before = self._measured_sweep()
        self._send_state()

    @handler
    def drop_sweep(self) -> None:
        """Discard the sweep kept as `before`."""
        self._sweep_before = None
        self._send_state()

    def _measured_sweep(self) -> SizeSweep:
        sweep = self._sweep
        if sweep is None or not sweep.done:
            raise ValueError("no sweep yet: start one first")
        if sweep.status == "running":
            raise ValueError("the sweep is running: wait until it has ended, or stop it")
        return sweep

    def _sweeps(self) -> dict[str, SizeSweep]:
        """Return the sweeps by name: `sweep`, or `before` and `after`."""
        sweep, before = self._sweep, self._sweep_before
        if sweep is None or not sweep.done:
            raise ValueError("no sweep yet: start one first")
        both = before is not None and before is not sweep
        return {"before": before, "after": sweep} if both else {"sweep": sweep}  # type: ignore[dict-item]

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
            what: "time", "histogram" or "percentiles"; "sweep": a row per size and round.

        Raises:
            ValueError: The table is unknown, or there are no samples yet.
        """
        if what == "sweep":
            return sweep_csv(self._sweeps())
        return csv_table(self._view_model.runs(), what)

    @handler
    def export(self, kind: str) -> Reply:
        """Return a file: `time`, `histogram`, `percentiles` (CSV), `html` or `json` (reports).

        Of the sweep: `sweep` (CSV) or `sweep-json` (reports).
        """
        if kind in SWEEP_FILES:
            name, text = sweep_file(self._sweeps(), kind)
        else:
            name, text = export_file(self._view_model.runs(), kind)
        return {"name": name}, [text.encode()]

    @handler
    def as_python(self) -> dict[str, str]:
        """Return the lines of Python that measure the sweep, or live latency for five seconds."""
        if self._mode == "sweep":
            return {"text": python_lines(self.session, self._setting, self._sweep_setting)}
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
            **self._sweep_state(),
        }  # fmt: skip

    def _sweep_state(self) -> dict[str, Any]:
        sweep, before = self._sweep, self._sweep_before
        before = None if before is sweep else before
        return {
            "mode": self._mode, "sweep_setting": self._sweep_setting.state(),
            "sweep": sweep and sweep.state(), "sweep_before": before and before.state(),
            "sweep_kept": self._sweep_before is not None,
        }  # fmt: skip

    def state_buffers(self) -> list[bytes]:
        """Return the points, the histograms and the percentile curves."""
        return self._view_model.buffers()

    def _send_state(self) -> None:
        with self._view_model.lock:
            self.broadcast("full_state", self.state_buffers(), title=self.title, **self.state())
        self._take_figures()
        self.refresh_traits()

    def picture(self) -> Picture:
        """Return latency over time and the percentiles of the runs, or the sweep."""
        from .static_plot import latency_picture, sweep_picture

        if self._mode == "sweep":
            with contextlib.suppress(ValueError):
                return sweep_picture(self.title, self._sweeps())
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
        """End the measurement and free the plot's own memory; a sweep frees its own."""
        with self._control:
            self._end_sweep()
            if self._sweep_task is not None:
                self._sweep_task.cancel()
            self._end_task()
            self._measurement.close()
