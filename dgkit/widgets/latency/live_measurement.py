# SPDX-License-Identifier: Apache-2.0
"""The live measurement of a plot: a monitor of the session, read on the frame thread."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from ...errors import ClosedError, PeerTimeout
from ..base import scheduler
from ..base.error_text import explain
from ..base.session_model import SessionModel
from .measurement import Changes, Measurement, Setting
from .run import RunConfig
from .view_model import FIGURES_S

if TYPE_CHECKING:
    from ...session import Session, SessionRegion
    from .run import Monitor
    from .view_model import ViewModel

# Between updates of the plot where the DPU is an agent, 10 a second: a message costs more than its
# samples. Where the DPU is this process, each step of the frame thread may update it (TICK_S).
_FRAME_S = 0.1
_KEPT = "The samples measured so far stay on the plot."


class LiveMeasurement:
    """Starts, switches and stops the measurement, and adds its samples to the view model.

    Attributes:
        lock: Serializes start and stop; the frame thread never takes it.
        setting: The setting that is measured, or will be.
        monitor: The open monitor, or None.
        error: The error that ended the measurement (see `explain`), or None.
        waiting: Why no samples arrive at present, or "".
        figures: Those of p50, p99 and max that the run has, in ns.
    """

    def __init__(
        self, session: Session, setting: Setting, samples: ViewModel, *,
        send: Callable[..., None], changed: Callable[[], None],
        figures_changed: Callable[[bool], None],
    ) -> None:  # fmt: skip
        """Prepare the measurement; start() starts it.

        Args:
            session: The session whose DPU is measured.
            setting: What is measured.
            samples: View model that receives the samples.
            send: Sends a message to the views: a kind, buffers, fields.
            changed: Called when the state has changed by more than new samples.
            figures_changed: Called every 0.4 s while it measures, with whether `figures` changed.
        """
        self.lock = threading.RLock()
        self.setting = setting
        self.monitor: Monitor | None = None
        self.error: dict[str, str] | None = None
        self.waiting = ""
        self.figures: dict[str, float] = {}
        self._measurement = Measurement(session)
        self._samples = samples
        self._send, self._changed, self._figures_changed = send, changed, figures_changed
        self._task: scheduler.Task | None = None
        self._lost = self._closed = False  # the measurement ended with its DPU; close() was called
        self._figures_at = 0.0

    @property
    def session(self) -> Session:
        """The session whose DPU is measured."""
        return self._measurement.session

    @property
    def measuring(self) -> bool:
        """A monitor is open."""
        return self.monitor is not None

    def move_to(self, session: Session) -> None:
        """Stop, and then measure another session, in the plot's own memory."""
        self.end_task()
        self._measurement.close()
        self._measurement = Measurement(session)
        self.setting = self.setting.updated({"region": None})
        self.error, self._lost = None, False

    def resume(self) -> None:
        """Measure again if the DPU was lost and another one was started in its place."""
        if self._lost and not self.session.lost:
            scheduler.start(scheduler.in_background(self._measure_again), self._show_error)

    def _measure_again(self) -> None:
        with self.lock:
            if self._lost and not self._closed:  # neither started nor stopped meanwhile
                self.error, self._lost = None, False
                self.switch(self.setting, restarted=True)

    def _show_error(self, error: Exception) -> None:
        self.error = explain(error, self.session)
        self._changed()

    def change(self, changes: Changes) -> None:
        """Change the setting; if a measurement is running, start a new run with it."""
        with self.lock:
            setting = self.setting.updated(changes)
            if self.measuring:
                self.switch(setting)
            else:
                self._measurement.check(setting)
                self.setting = setting
                self._changed()

    def switch(self, setting: Setting, *, restarted: bool = False) -> None:
        """Measure with this setting. On an error, the measurement before continues.

        Args:
            restarted: The run continues with another DPU in place of a lost one.
        """
        if self.measuring and setting == self.setting:
            return
        measurement, refused = self._measurement, None
        if self.measuring:
            monitor, refused = measurement.switch(self.setting, setting, self.stop)
        else:
            monitor = measurement.open(setting)
        self.end_task()
        measurement.free_outgrown()
        self._samples.begin(RunConfig.of(monitor), restarted=restarted)
        self.setting = self.setting if refused else setting
        self.error, self.monitor, self._lost = None, monitor, False
        self._task = scheduler.start(
            self.steps(monitor), lambda error: self._ended(monitor, error), monitor.close
        )
        self._changed()
        if refused:
            raise refused

    def stop(self) -> None:
        """Stop; the samples stay. Idempotent."""
        self._lost = False
        self.end_task()
        self._changed()

    def end_task(self) -> None:
        """Stop without notifying the views."""
        task, self._task, self.waiting = self._task, None, ""
        self.monitor = None
        if task is not None:
            task.cancel()

    def close(self) -> None:
        """Stop, and free the plot's own memory."""
        self._closed = True
        self.end_task()
        self._measurement.close()

    def steps(self, monitor: Monitor) -> scheduler.Steps:
        """Read a monitor and send frames, in steps of the frame thread."""
        due = time.monotonic()
        while True:
            self._read(monitor)
            frame = self._samples.frame()
            if frame is not None:
                self._send("frame", frame[1], **frame[0])
            now = time.monotonic()
            if now - self._figures_at >= FIGURES_S:
                self.update_figures()
            due = max(due + _FRAME_S, now)
            yield due if monitor.buffered else None

    def update_figures(self) -> None:
        """Set `figures` to those of the run as it is now."""
        self._figures_at = time.monotonic()
        before, self.figures = self.figures, self._samples.figures()
        self._figures_changed(self.figures != before)

    def region(self) -> SessionRegion | None:
        """Return the region that is measured, or None: the plot's own memory."""
        live = SessionModel.of(self.session).live()
        return next((region for region in live if region.id == self.setting.region), None)

    def label(self) -> str:
        """Return the label of the provider that moves the bytes."""
        return self._measurement.label(self.setting, self._samples.run)

    def python(self) -> str:
        """Return the lines of Python that measure the same for five seconds."""
        return self._measurement.python(self.setting)

    def _read(self, monitor: Monitor) -> None:
        try:
            blocks = monitor.read()
        except PeerTimeout as error:  # the DPU's process is stopped and may be continued
            self._set_waiting(str(error))
            return
        if blocks:
            if self._samples.add(blocks):
                self._changed()
            self._set_waiting("")

    def _set_waiting(self, text: str) -> None:
        """Report a change of the reason why no samples arrive; "": they arrive."""
        if text != self.waiting:
            self.waiting = text
            self._send("waiting", text=text)

    def _ended(self, monitor: Monitor, error: Exception) -> None:
        """Handle, on the frame thread, the loss of the DPU or of the region."""
        if self.monitor is not monitor:
            return
        shown = explain(error, self.session)
        shown["hint"] = f"{shown['hint']} {_KEPT}".strip()
        self.monitor = self._task = None
        self.error, self.waiting = shown, ""
        has_region = not self.setting.region or self.region() is not None
        restarted = isinstance(error, ClosedError) and not self.session.closed and has_region
        self._lost = restarted or "restart" in shown
        self._changed()
        self.resume()
