# SPDX-License-Identifier: Apache-2.0
"""DoctorPanel: findings of the doctor in a notebook, and the commands that fix them."""

from __future__ import annotations

import html
import os
import threading
from collections.abc import Sequence
from typing import TYPE_CHECKING

from ...doctor.api import parse_goal, snapshot_paths
from ...doctor.goals import Goal
from ...doctor.machine import SIZE
from ...errors import ClosedError
from ...validate import byte_count
from ..base import scheduler
from ..base.error_text import explain
from ..base.panel import handler
from ..base.scheduler import BackgroundCall
from ..figure.figure import BokehPanel
from .diagnosis_task import Request, Result, open_machines, run
from .extras import serialize_experiments, serialize_nics, serialize_request
from .serialize import (
    THIS_MACHINE,
    require_different_sides,
    serialize_diagnosis,
    serialize_machine,
)

if TYPE_CHECKING:
    from bokeh.document import Document
    from bokeh.model import Model

    from ...doctor.diagnosis import Diagnosis
    from ..base.page_input import Json

AUTO = "auto"
_CARD_S = 0.5  # how long a cell waits for the card of a saved notebook; snapshots take less


class DoctorPanel(BokehPanel):
    """Panel that judges this machine, or snapshots: `DoctorPanel(["host.snap", "dpu.snap"])`.

    It starts at once, in the background: cells and other panels stay responsive.

    Args:
        snapshots: Files that `dgkit doctor --record` wrote; None judges this machine.
        goal: Goal or its name (`arm-dma`, `host-dma`, `rdma`, `gpunetio`, `p2p`, `gpu`,
            `laptop`); None chooses one by what the machine shows.
        size: GPU memory to be exported at once, in bytes or as "4G".

    Raises:
        ValueError: If there is no such goal, a file is not a snapshot, or two are of the same side.
        OSError: If a file cannot be read.
    """

    name = "doctor"
    title = "Doctor"

    def __init__(
        self,
        snapshots: str | os.PathLike[str] | Sequence[str | os.PathLike[str]] | None = None,
        goal: Goal | str | None = None,
        size: int | str = SIZE,
    ) -> None:
        self._result: Result | None = None
        self._pair: tuple[str, str] | None = None
        self._error: Exception | None = None
        self._lock = threading.Lock()
        self._current: Request | None = None
        self._next: Request | None = None  # the last request made during the current run
        self._progress = (0, 0)
        self._task: scheduler.Task | None = None
        self._idle = threading.Event()
        self._closed = False
        self._paths = snapshot_paths(snapshots)
        machines = open_machines(self._paths) if self._paths else []
        self._machines = [serialize_machine(machine) for machine in machines] or [THIS_MACHINE]
        require_different_sides(self._machines)
        self._goal, self._size = parse_goal(goal), byte_count("size", size, 1)
        super().__init__()
        self._request(Request(self._goal, size=self._size))

    @property
    def diagnosis(self) -> Diagnosis | None:
        """Result of the last run; None before the first has ended."""
        return None if self._result is None else self._result.diagnosis

    @property
    def running(self) -> bool:
        """True if checks are running."""
        return not self.closed and not self._idle.is_set()

    def wait(self, timeout: float | None = None) -> Diagnosis:
        """Wait until no check runs and return the result, or raise what the run raised.

        Args:
            timeout: Time limit in seconds; None for no limit.

        Raises:
            TimeoutError: If checks are still running.
            ClosedError: If the panel was closed.
        """
        if not self._idle.wait(timeout):
            raise TimeoutError(f"the doctor did not finish within {timeout} s")
        if self._error is not None:
            raise self._error
        if self._result is None:
            raise ClosedError("the panel was closed before the doctor finished")
        return self._result.diagnosis

    @handler
    def check(self, check: str = "") -> None:
        """Read the machine again and run all checks, or one by its name. One run at a time."""
        self._request(Request(self._goal, str(check), self._size))

    @handler
    def experiment(self, kind: str) -> None:
        """Run the experiments of a kind, as `gpu-copy`; their results overrule inferences."""
        planned = () if self._result is None else self._result.planned
        if kind not in {experiment.name for experiment in planned}:
            raise ValueError(f"there is no experiment {kind!r} on this machine")
        self._request(Request(self._goal, size=self._size, experiment=str(kind)))

    @handler
    def aim(self, goal: str) -> None:
        """Judge for another goal; `auto` chooses one from the machine's hardware."""
        self._goal = parse_goal(goal)
        self._request(Request(self._goal, size=self._size))

    @handler
    def pair(self, gpu: str, nic: str) -> None:
        """Select the two devices whose path is drawn, by their PCI addresses."""
        if self._result is None or self._result.topology is None:
            raise ValueError("there is no drawing yet: wait until the doctor has finished")
        self._result.topology.path((gpu, nic))  # raises ValueError if there is no such pair
        self._pair = (gpu, nic)
        self.broadcast("topology", topology=self._topology())

    def document(self, dark: bool) -> Document:  # noqa: ARG002 (its colours suit both)
        """Return the drawing of the PCIe tree."""
        from bokeh.document import Document

        from .topology_drawing import draw

        document = Document()
        if self._result is not None and self._result.topology is not None:
            document.add_root(draw(self._result.topology, self._pair))
        return document

    def state(self) -> Json:
        """Return all that a view shows; the size is bounded (see serialize.py)."""
        return {
            **super().state(),
            "goals": [AUTO, *map(str, Goal)],
            "machines": self._machines,
            **self._state(),
        }  # fmt: skip

    def _state(self) -> Json:
        result, current, progress = self._result, self._current, list(self._progress)
        return {
            "goal": AUTO if self._goal is None else str(self._goal),
            "run": None if current is None else serialize_request(current, progress),
            "result": None if result is None else serialize_diagnosis(result.diagnosis),
            "topology": self._topology(),
            "nics": None if result is None else serialize_nics(result.nics),
            "experiments": [] if result is None else serialize_experiments(result),
            "failed": None if self._error is None else explain(self._error),
        }

    def _topology(self) -> Json | None:
        if self._result is None or self._result.topology is None:
            return None
        return self._result.topology.as_dict(self._pair)

    def _request(self, request: Request) -> None:
        """Start a run now, or when the current one has ended."""
        with self._lock:
            if self._closed:
                return
            if self._current is not None:
                if (
                    not (request.check or request.experiment)
                    or self._next is None
                    or self._next.check
                ):
                    self._next = request  # unless all checks are requested, which include this one
                return
            self._start(request)
        self._send_state()

    def _start(self, request: Request) -> None:
        self._idle.clear()
        self._current, self._progress, self._error = request, (0, 0), None
        self._task = scheduler.start(self._steps(request), self.fail, self._ended)

    def _steps(self, request: Request) -> scheduler.Steps:
        """Follow a run from the frame thread; the run has a background thread."""
        latest = [(0, 0)]

        def progress(done: int, total: int) -> None:
            latest[0] = (done, total)

        paths, before = self._paths, self._result
        waiting = BackgroundCall(lambda: run(paths, request, before, progress)).wait()
        try:
            while True:
                next(waiting)
                if latest[0] != self._progress:
                    self._progress = latest[0]
                    self.broadcast("progress", at=list(self._progress))
                yield
        except StopIteration as end:
            self._show_result(end.value)
        except Exception as error:  # shown in the panel, and raised by wait()
            self._error = error
            self.fail(error)

    def _show_result(self, result: Result) -> None:
        self._result, topology = result, result.topology
        if topology is None or not topology.has(self._pair):
            self._pair = None if topology is None else topology.nearest

    def _ended(self) -> None:
        """Start the next requested run, whether this one succeeded or failed."""
        with self._lock:
            self._current, request, self._next = None, self._next, None
            if request is not None and not self._closed:
                self._start(request)
        self._send_state()
        with self._lock:
            if self._current is None:
                self._idle.set()

    def _send_state(self) -> None:
        self.broadcast_state("state", self._state)

    def end(self) -> None:
        """Discard the result of running checks, which end on their own."""
        with self._lock:
            self._closed = True
        if self._task is not None:
            self._task.cancel()
        self._idle.set()

    def static_figures(self) -> list[Model]:
        """Return the drawing of the PCIe tree."""
        return self.document(dark=False).roots

    def static_html(self) -> str:
        """Return the doctor's card, if the run ended soon after the cell."""
        self._idle.wait(_CARD_S)
        found = self.diagnosis
        card = getattr(found, "_repr_html_", None)
        if card is not None:
            return str(card())
        text = "run the cell for the doctor's findings."
        if found is not None:
            text = f"{found.verdict} for {found.goal}; run the cell for the findings."
        return f"<p><em>{html.escape(self.title)}:</em> {html.escape(text)}</p>"
