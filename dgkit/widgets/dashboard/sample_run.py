"""Steps of the button "Show me": allocate, write, look, measure; each with its Python."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from ..base import scheduler
from ..base.as_python import session_expression
from ..base.background import in_background
from ..base.session_model import SessionModel

if TYPE_CHECKING:
    from collections.abc import Callable

    from ...session import Session, SessionRegion
    from .panels import Panels

_SIZE = 1 << 20  # bytes of the sample region
_TEXT = b"hello from the DPU"
_MEASURE_S = 3.0


@dataclass(slots=True)
class _Step:
    panel: str  # the panel that shows the step
    title: str
    python: str
    state: str = "waiting"  # running, done, failed


class SampleRun:
    """One run of the steps with the panels of a dashboard; `changed()` follows each step."""

    def __init__(self, session: Session, panels: Panels, changed: Callable[[], None]) -> None:
        self._session, self._panels, self._changed = session, panels, changed
        self._region: SessionRegion
        name, text = session_expression(session), _TEXT.decode()
        self._steps = [
            _Step(
                "allocate", "Allocate 1 MiB of host memory that the DPU can access.",
                f'region = {name}.empty(1 << 20, name="sample")',
            ),
            _Step(
                "transfer", "The DPU writes to it by DMA.",
                f'print({name}.write(region, b"{text}"))',
            ),
            _Step(
                "hex", "The DPU reads the bytes: they are selected in the hex view.",
                f"print({name}.read(region, {len(_TEXT)}))",
            ),
            _Step(
                "plot", "Measure the latency for three seconds, in memory of the plot.",
                f"print({name}.latency(region, size=64))",
            ),
        ]  # fmt: skip

    def state(self) -> list[dict[str, Any]]:
        """Return the steps, for a view."""
        return [
            {"title": step.title, "python": step.python, "state": step.state}
            for step in self._steps
        ]

    @property
    def running(self) -> str:
        """The panel that shows the step that runs; "" if none runs."""
        return next((step.panel for step in self._steps if step.state == "running"), "")

    def steps(self) -> scheduler.Steps:
        """Run the steps, on the frame thread."""
        for step, run in zip(self._steps, self._actions(), strict=True):
            step.state = "running"
            self._changed()
            try:
                yield from run
            except Exception:
                step.state = "failed"
                raise
            else:
                step.state = "done"
            finally:
                self._changed()

    def _actions(self) -> list[scheduler.Steps]:
        return [self._allocate(), self._write(), self._look(), self._measure()]

    def _allocate(self) -> scheduler.Steps:
        empty = partial(self._session.empty, _SIZE, name="sample")
        self._region = yield from in_background(empty)
        SessionModel.of(self._session).select(self._region.id)

    def _write(self) -> scheduler.Steps:
        run = self._panels.transfer.transfer("write", self._region, _TEXT)
        while not run.ended:
            yield
        if run.error is not None:
            raise run.error

    def _look(self) -> scheduler.Steps:
        self._panels.hex.select(0, len(_TEXT))
        yield

    def _measure(self) -> scheduler.Steps:
        plot = self._panels.plot
        yield from in_background(plot.start)
        yield from scheduler.sleep(_MEASURE_S)
        yield from in_background(plot.stop)
