# SPDX-License-Identifier: Apache-2.0
"""The sweeps of a plot: the last one, and one that is kept for comparison."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from ..base import scheduler
from ..base.scheduler import BackgroundCall, in_background
from .run import current_name
from .size_sweep import Sizes, SizeSweep, SweepSetting, python_lines

if TYPE_CHECKING:
    from ..base.page_input import Json
    from .live_measurement import LiveMeasurement


class Sweeps:
    """Starts and stops sweeps; the live measurement pauses meanwhile.

    Attributes:
        setting: Sizes, rounds and samples of the next sweep.
        current: The last sweep, or None.
        kept: The sweeps that were kept, by name; the views compare with the last one.
        task: The task that follows the sweep.
    """

    def __init__(
        self, live: LiveMeasurement, *, send: Callable[..., None], changed: Callable[[], None],
        fail: Callable[[Exception], None],
    ) -> None:  # fmt: skip
        """Start without a sweep.

        Args:
            send: Sends a message to the views: a kind, fields.
            changed: Called when a sweep has ended.
            fail: Called with an unexpected error.
        """
        self.setting = SweepSetting()
        self.current: SizeSweep | None = None
        self.kept: dict[str, SizeSweep] = {}
        self.task: scheduler.Task | None = None
        self._live = live
        self._send, self._changed, self._fail = send, changed, fail
        self._resume = False  # whether to resume the live measurement after the sweep

    @property
    def running(self) -> bool:
        """A sweep is running."""
        return self.current is not None and self.current.status == "running"

    def start(self, changes: Mapping[str, Sizes | int | None]) -> SizeSweep:
        """Start a sweep of what the live measurement measures.

        Raises:
            TypeError: A value has the wrong type.
            ValueError: A value is invalid, or a sweep is running.
            BoundsError: A size exceeds the region.
        """
        live = self._live
        setting = self.setting.updated(changes)
        if self.running:
            raise ValueError("a sweep is running: stop it, or wait until it has ended")
        sweep = SizeSweep(live.session, live.setting, setting)
        self._resume = live.measuring
        live.end_task()
        live.error = None
        self.setting, self.current = setting, sweep
        self.task = scheduler.start(self._steps(sweep, BackgroundCall(sweep.run)), self._fail)
        return sweep

    def stop(self) -> None:
        """Stop the sweep; its figures stay, and the live measurement continues. Idempotent."""
        if self.current is not None:
            self.current.stop()

    def end(self) -> None:
        """Stop the sweep, without continuing the live measurement."""
        self._resume = False
        self.stop()

    def close(self) -> None:
        """End the sweep and the task that follows it."""
        self.end()
        if self.task is not None:
            self.task.cancel()

    def _steps(self, sweep: SizeSweep, call: BackgroundCall[None]) -> scheduler.Steps:
        seen = 0
        for _ in call.wait():
            if sweep.done != seen:
                seen = sweep.done
                self._send("sweep", sweep=sweep.state())
            yield
        self._changed()
        yield from in_background(self._resume_live)

    def _resume_live(self) -> None:
        with self._live.lock:
            if self._resume:
                self._resume = False
                self._live.switch(self._live.setting)

    def keep(self, name: str) -> None:
        """Keep the sweep under a name, which replaces one of that name.

        Raises:
            ValueError: There is none yet, or it is running.
        """
        sweep = self._measured()
        if sweep.status == "running":
            raise ValueError("the sweep is running: wait until it has ended, or stop it")
        self.kept.pop(name, None)
        self.kept[name] = sweep

    def named(self) -> dict[str, SizeSweep]:
        """Return the sweeps by name: the kept ones, then the current one, unless it was kept.

        Raises:
            ValueError: There is none yet.
        """
        sweep = self._measured()
        if sweep in self.kept.values():
            return dict(self.kept)
        return {**self.kept, current_name(self.kept, "sweep"): sweep}

    def _measured(self) -> SizeSweep:
        if self.current is None or not self.current.done:
            raise ValueError("no sweep yet: start one first")
        return self.current

    def python(self) -> str:
        """Return the lines of Python that measure the same."""
        return python_lines(self._live.session, self._live.setting, self.setting)

    def state(self) -> Json:
        """Return the sweeps for a view; a sweep is not compared with itself."""
        sweep = self.current
        before = next((each for each in reversed(self.kept.values()) if each is not sweep), None)
        return {
            "sweep_setting": self.setting.state(), "sweep": sweep and sweep.state(),
            "sweep_before": before and before.state(), "sweep_kept": bool(self.kept),
        }  # fmt: skip
