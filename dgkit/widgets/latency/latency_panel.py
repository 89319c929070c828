# SPDX-License-Identifier: Apache-2.0
"""LatencyPlot: latencies measured by the DPU, live or over sizes, and a comparison of two runs.

`live_measurement` reads the samples into the view model and sends new data to the visible views, in
numbered frames of two blocks, which a view draws one after the other. A view that misses a frame
requests the full state.
"""

from __future__ import annotations

import contextlib
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from ..base.panel import handler
from ..base.session_model import SessionModel, SessionPanel
from ..base.traits import State, choose_region, region_id
from ..figure.figure import BokehPanel, document_state
from .live_measurement import LiveMeasurement
from .measurement import Setting
from .results import Results
from .run import BEFORE, check_name, drop_named
from .sweeps import Sweeps
from .view_model import ViewModel

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from bokeh.document import Document
    from bokeh.model import Model

    from ...session import Session, SessionRegion
    from ..base.page_input import Json, JsonValue, Reply
    from .size_sweep import Sizes, SizeSweep

_FIGURES = ("p50_ns", "p99_ns", "max_ns")
_MODES = ("live", "sweep")


@lru_cache(maxsize=2)
def _empty_figures(dark: bool) -> Json:
    """Return the figures as JSON, which is the same for all plots."""
    from .figures import document

    return document_state(document(dark), dark)


def _setting_trait(name: str, *, help: str) -> State[LatencyPlot, Any]:
    """Return a trait for one field of the plot's setting."""
    return State(
        lambda plot: getattr(plot._live.setting, name),
        lambda plot, value: plot.change(**{name: value}),
        help=help,
    )


class LatencyPlot(Results, BokehPanel, SessionPanel):
    """Live latency of one operation: p50, p99 and max over time, distribution, percentiles.

    The DPU takes `count` samples of `size` bytes every 50 ms, even while a cell is busy; with the
    path "GPU-initiated", a kernel of this process or of the emulated GPU takes them. Without
    `region` the plot allocates its own region. With a region, writes go to scratch memory of the
    same kind (see Session.monitor). A change while it runs starts a new run: samples of two
    settings are never mixed. It keeps a point per block for 2 minutes, a point per second for an
    hour, and the last 1,000,000 samples. In a dashboard it also shows the load of the machine.

    sweep() measures latency over sizes instead, and shows it with the floor of each size.

    Its views and the measurement end when its cell is run again.

    Attributes:
        running: It measures; assigning True or False starts or stops it.
        region: The region that is measured; None: the plot's own memory.
        size: Bytes per operation, at most the size of the region.
        op: `write` or `read`.
        path: `auto`, `inline`, `worker` or `GPU-initiated`.
        p50_ns: The median of the run so far, in ns; None without samples. Read-only.
        p99_ns: The 99th percentile, in ns; None with fewer than 100 samples. Read-only.
        max_ns: The maximum, in ns; None without samples. Read-only.
    """

    name = "latency"
    title = "Latency"

    _live: LiveMeasurement

    running: State[LatencyPlot, bool] = State(
        lambda plot: plot.measuring,
        lambda plot, value: plot._assign_running(value),
        help="It measures; assigning True or False starts or stops it.",
    )
    region: State[LatencyPlot, SessionRegion | None] = State(
        lambda plot: plot._live.region(),
        lambda plot, value: plot._assign_region(value),
        to_json=region_id,
        help="The region that is measured; None: the plot's own memory.",
    )
    size: State[LatencyPlot, int] = _setting_trait("size", help="Bytes per operation.")
    op: State[LatencyPlot, str] = _setting_trait("op", help="write or read.")
    path: State[LatencyPlot, str] = _setting_trait(
        "path", help="auto, inline, worker or GPU-initiated."
    )
    p50_ns: State[LatencyPlot, float | None] = State(
        lambda plot: plot._live.figures.get("p50"), help="Median of the run so far, ns. Read-only."
    )
    p99_ns: State[LatencyPlot, float | None] = State(
        lambda plot: plot._live.figures.get("p99"),
        help="99th percentile of the run so far, ns; None with fewer than 100 samples. Read-only.",
    )
    max_ns: State[LatencyPlot, float | None] = State(
        lambda plot: plot._live.figures.get("max"), help="Maximum of the run so far, ns. Read-only."
    )

    def __init__(
        self, session: Session, region: SessionRegion | None = None, *, size: int = 64,
        op: str = "write", path: str = "auto", count: int = 50,
    ) -> None:  # fmt: skip
        wanted = {"region": region, "size": size, "op": op, "path": path, "count": count}
        view_model = ViewModel()
        self._live = LiveMeasurement(
            session, Setting().updated(wanted), view_model, send=self.broadcast,
            changed=self._send_state, figures_changed=self._figures_changed,
        )  # fmt: skip
        sweeps = Sweeps(self._live, send=self.broadcast, changed=self._send_state, fail=self.fail)
        Results.__init__(self, view_model, sweeps)
        self._mode = "live"
        BokehPanel.__init__(self)
        self._unlisten: Callable[[], None] = lambda: None
        self._join(session)
        self.on_close(lambda: self._unlisten())  # noqa: PLW0108 - as it is then

    @property
    def session(self) -> Session:
        """The session whose DPU is measured.

        Assigning another session stops the measurement and keeps its samples. The next start()
        begins a new run, on memory that the plot allocates.
        """
        return self._live.session

    @session.setter
    def session(self, session: Session) -> None:
        with self._live.lock:
            self._sweeps.end()
            SessionModel.of(self.session).unsubscribe(self)
            self._live.move_to(session)
            self._join(session)
        self._send_state()

    def _join(self, session: Session) -> None:
        """Show the changes of a session."""
        self._unlisten()
        SessionModel.of(session).subscribe(self)
        self._unlisten = SessionModel.of(session).listen(self._regions_changed, "regions")

    def _regions_changed(self, _change: str) -> None:
        self._live.resume()

    @property
    def measuring(self) -> bool:
        """True while it measures, even within a cell; `running` is updated at the cell's end."""
        return not self.closed and self._live.measuring

    @property
    def setting(self) -> Setting:
        """The setting that is measured, or will be."""
        return self._live.setting

    @handler
    def start(self, **changes: JsonValue | SessionRegion) -> None:
        """Start measuring; stop a running sweep. On an error nothing is changed.

        Args:
            **changes: Changes of the setting, such as size=4096; see change().

        Raises:
            TypeError: A setting is unknown, or a value has the wrong type.
            ValueError: A value is invalid.
            DgkitError: As raised by Session.monitor: BoundsError, AccessDenied, PeerLost, ...
        """
        with self._live.lock:
            self._live.switch(self._live.setting.updated(changes))
            self._sweeps.end()
            if self._mode != "live":
                self.show("live")

    @handler
    def change(self, **changes: JsonValue | SessionRegion) -> None:
        """Change `region`, `size`, `op`, `path` or `count`; if it runs, a new run starts."""
        self._live.change(changes)

    def add_load(self, row: Sequence[float]) -> None:
        """Add a reading of the machine's load, `history.LOAD`, to the run if it measures."""
        if self.measuring and row:
            self._view_model.add_load(row)

    def show_live(self) -> None:
        """Start measuring, unless it shows or takes a sweep."""
        with self._live.lock:
            if self._mode == "live" and not self._sweeps.running:
                self.start()

    def _figures_changed(self, changed: bool) -> None:
        self._changes += 1  # frames are sent to visible views only
        if changed:
            self.refresh_traits()

    def _assign_running(self, value: bool) -> None:
        if not isinstance(value, bool):
            raise ValueError(f"running is {value!r}; it must be True or False")
        if value:
            self.start()
        else:
            self.stop()

    def _assign_region(self, value: SessionRegion | int | str | None) -> None:
        live = SessionModel.of(self.session).live()
        self.change(region=None if value is None else choose_region(self.session, value, live))

    def _should_send_property(self, key: str, value: Any) -> bool:
        """Return False for the figures while no view is visible: their messages would pile up."""
        if key in _FIGURES and not self._view_model.viewers.any_recent():
            return False
        return bool(super()._should_send_property(key, value))

    @handler
    def stop(self) -> None:
        """Stop measuring and stop a sweep; the samples stay. Idempotent."""
        with self._live.lock:
            self._sweeps.end()
            self._live.stop()

    @handler
    def clear(self) -> None:
        """Discard the samples of the run; if it measures, it continues. The previous run stays."""
        self._live.error = None
        self._view_model.clear()
        self._send_state()

    @handler
    def keep(self, name: str = BEFORE) -> None:
        """Keep the run under a name for comparison, and start a new one.

        Any number of runs can be kept, at 8 MB each; one of the same name is replaced. The views
        compare with the run that was kept last; figure(), compare() and the tables have all.

        Raises:
            TypeError: The name is no text.
            ValueError: There are no samples yet, or the name is invalid.
        """
        self._view_model.keep(check_name(name))
        self._send_state()

    @handler
    def drop(self, name: str | None = None) -> None:
        """Discard the run kept under a name, or all that were kept.

        Raises:
            ValueError: No run was kept under that name.
        """
        self._view_model.drop(name)
        self._send_state()

    @handler
    def compare_with(self, name: str) -> None:
        """Compare with the run kept under this name, in all views.

        Raises:
            ValueError: No run was kept under that name.
        """
        self._view_model.compare_with(name)
        self._send_state()

    # Sweep

    @handler
    def show(self, mode: str) -> None:
        """Show the live figures (`live`) or the sweep (`sweep`) in all views.

        Raises:
            ValueError: There is no such mode.
        """
        if mode not in _MODES:
            raise ValueError(f"there is no mode {mode!r}; modes: {', '.join(_MODES)}")
        self._mode = mode
        self._send_state()

    def sweep(
        self, sizes: Sizes | None = None, *, rounds: int | None = None, samples: int | None = None
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
        with self._live.lock:
            sweep = self._sweeps.start({"sizes": sizes, "rounds": rounds, "samples": samples})
            self._mode = "sweep"
            self._send_state()
        return sweep

    @handler
    def start_sweep(
        self, sizes: Sizes | None = None, rounds: int | None = None, samples: int | None = None
    ) -> None:
        """Start a sweep for a view; see sweep()."""
        self.sweep(sizes, rounds=rounds, samples=samples)

    @handler
    def stop_sweep(self) -> None:
        """Stop the sweep; its figures stay, and the live mode continues. Idempotent."""
        self._sweeps.stop()

    @handler
    def keep_sweep(self, name: str = BEFORE) -> None:
        """Keep the sweep under a name: the next one is drawn over it, with the ratio of each size.

        Raises:
            TypeError: The name is no text.
            ValueError: There is no sweep yet, it is running, or the name is invalid.
        """
        self._sweeps.keep(check_name(name))
        self._send_state()

    @handler
    def drop_sweep(self, name: str | None = None) -> None:
        """Discard the sweep kept under a name, or all that were kept.

        Raises:
            ValueError: No sweep was kept under that name.
        """
        drop_named(self._sweeps.kept, name)
        self._send_state()

    @handler
    def as_python(self) -> dict[str, str]:
        """Return the lines of Python that measure the sweep, or live latency for five seconds."""
        if self._mode == "sweep":
            return {"text": self._sweeps.python()}
        return {"text": self._live.python()}

    @handler
    def watch(self, view: str, on: bool) -> Json:
        """Record that a view is visible (`on`) or hidden; hidden views are sent no frames."""
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
    def figures(self, dark: bool) -> Json:
        """Return the empty figures; views fill them."""
        return _empty_figures(dark)

    def document(self, dark: bool) -> Document:
        """Return the figures as a Bokeh document."""
        from .figures import document

        return document(dark)

    def state(self) -> Json:
        """Return the state without the buffers."""
        live = self._live
        shared = SessionModel.of(live.session).state()
        if not shared["closed"]:
            label = live.label()
            shared |= {"label": label, "own_label": label != shared["label"]}
        return {
            **super().state(), **shared, **self._view_model.state(), "running": self.measuring,
            "error": live.error, "waiting": live.waiting, "setting": live.setting.state(),
            "mode": self._mode, **self._sweeps.state(),
        }  # fmt: skip

    def state_buffers(self) -> list[bytes]:
        """Return the points, the histograms and the percentile curves."""
        return self._view_model.buffers()

    def _send_state(self) -> None:
        with self._view_model.lock:
            self.broadcast("full_state", self.state_buffers(), title=self.title, **self.state())
        self._live.update_figures()
        self.refresh_traits()

    def static_html(self) -> str:
        """Return a table of the runs, or of the sweep."""
        if self._mode == "sweep":
            with contextlib.suppress(ValueError):
                return self._sweep_html()
        return self._runs_html()

    def static_figures(self) -> list[Model]:
        """Return latency over time of the runs, or over sizes of the sweeps."""
        from .run_figures import OF_RUNS, OF_SWEEPS

        if self._mode == "sweep":
            with contextlib.suppress(ValueError):
                return [OF_SWEEPS["sweep"](self._sweeps.named())]
        with self._view_model.lock:  # without a copy of the samples
            runs = self._view_model.named()
            return [OF_RUNS["time"](runs)] if runs else []

    def end(self) -> None:
        """End the measurement and free the plot's own memory; a sweep frees its own."""
        with self._live.lock:
            self._sweeps.close()
            self._live.close()
