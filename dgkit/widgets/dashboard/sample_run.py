# SPDX-License-Identifier: Apache-2.0
"""Steps of the button "Show me": allocate, write, look, measure; each with its Python.

The plot measures from the first step on, until the user stops it.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from statistics import median
from typing import TYPE_CHECKING, Any

from ...units import size_text, us
from ..base import scheduler
from ..base.as_python import session_expression
from ..base.scheduler import in_background
from ..base.session_model import SessionModel, label_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from ...session import Session, SessionRegion
    from ..base.page_input import Json
    from .panels import Panels

_ROWS, _WIDTH, _BLOCK = 128, 512, 8  # pixels of a byte; rows of a transfer
_BLOCK_S = 0.06  # between two transfers, so that the image grows visibly
_MEASURE_S, _REPORT_S = 3.0, 0.25


@dataclass(slots=True)
class _Step:
    panel: str  # the panel that shows the step
    title: str
    python: str
    state: str = "waiting"  # running, done, failed


def _image() -> Any:
    import numpy as np

    y, x = np.mgrid[-_ROWS // 2 : _ROWS // 2, -_WIDTH // 2 : _WIDTH // 2]
    return (127 + 127 * np.cos((x * x + y * y) / 300)).astype("u1")


class SampleRun:
    """One run of the steps with the panels of a dashboard.

    Args:
        changed: Called as a step begins or ends.
        measured: Called when the latency plot has new samples.
    """

    def __init__(
        self, session: Session, panels: Panels, changed: Callable[[], None],
        measured: Callable[[], None],
    ) -> None:  # fmt: skip
        self._session, self._panels = session, panels
        self._changed, self._measured = changed, measured
        self._region: SessionRegion
        self._said, self._took_ns = "", 0.0
        self.measures = True  # False: the user stopped the plot
        name = session_expression(session)
        self._steps = [
            _Step(
                "allocate", f"Allocate {_ROWS} x {_WIDTH} bytes of host memory for the DPU.",
                f'region = {name}.empty(({_ROWS}, {_WIDTH}), name="sample", replace=True)',
            ),
            _Step(
                "transfer", f"The DPU writes an image to it by DMA, {_BLOCK} rows at a time.",
                "import numpy as np\n"
                f"y, x = np.mgrid[-{_ROWS // 2}:{_ROWS // 2}, -{_WIDTH // 2}:{_WIDTH // 2}]\n"
                'image = (127 + 127 * np.cos((x * x + y * y) / 300)).astype("u1")\n'
                f"for row in range(0, {_ROWS}, {_BLOCK}):\n"
                f"    {name}.write(region, image[row:row + {_BLOCK}], offset={_WIDTH} * row)",
            ),
            _Step(
                "hex", "The DPU reads the bytes: the hex view shows them, and the image.",
                f"assert {name}.read(region, region.size) == image.tobytes()",
            ),
            _Step(
                "plot", "Measure the latency, as the plot does from now on, for three seconds.",
                f"print({name}.latency(region, size=64))",
            ),
        ]  # fmt: skip

    def state(self) -> Json:
        """Return the steps, and what they found in a sentence, for a view."""
        steps = [
            {"title": step.title, "python": step.python, "state": step.state}
            for step in self._steps
        ]
        return {"steps": steps, "said": self._said}

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
        return [self._allocate(), self._write(), self._select_first_bytes(), self._measure()]

    def _allocate(self) -> scheduler.Steps:
        empty = partial(self._session.empty, (_ROWS, _WIDTH), name="sample", replace=True)
        self._region = yield from in_background(empty)
        SessionModel.of(self._session).select(self._region.id)
        if self.measures:
            yield from in_background(self._panels.plot.start)  # moves from the first second on

    def _write(self) -> scheduler.Steps:
        image, took = _image(), list[int]()
        self._panels.hex.image = {}
        for row in range(0, _ROWS, _BLOCK):
            block = image[row : row + _BLOCK]
            run = self._panels.transfer.transfer("write", self._region, block, offset=row * _WIDTH)
            while not run.ended:
                yield
            if run.error is not None:
                raise run.error
            took += run.timings.writes_ns()
            self._measured()
            yield from scheduler.sleep(_BLOCK_S)
        self._took_ns = median(took)

    def _select_first_bytes(self) -> scheduler.Steps:
        self._panels.hex.mark()  # the image is what there is to see, not what changed
        self._panels.hex.select(0, 16)
        yield

    def _measure(self) -> scheduler.Steps:
        plot = self._panels.plot
        begin = plot.position()
        for _ in range(round(_MEASURE_S / _REPORT_S)):
            yield from scheduler.sleep(_REPORT_S)
            self._measured()
        if found := plot.since(begin):
            self._said = (
                f"The {_dpu(self._session)} wrote {size_text(_ROWS * _WIDTH)} in "
                f"{_ROWS // _BLOCK} DMA writes of {us(self._took_ns)} µs: the image below. Then "
                f"{found}."
            )


def _dpu(session: Session) -> str:
    label: str = label_of(session)["label"]
    return label if "DPU" in label else f"DPU ({label})"
