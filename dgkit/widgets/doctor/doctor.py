"""DoctorPanel: the doctor at work in a notebook, its findings, and the commands that mend them."""

from __future__ import annotations

import html
import os
import threading
from collections.abc import Generator, Sequence
from typing import TYPE_CHECKING, Any

from ...doctor.api import files_of, goal_of, size_of
from ...doctor.goals import Goal
from ...doctor.machine import SIZE
from ..base import scheduler
from ..base.background import BackgroundCall
from ..base.panel import explain, handler
from ..figure.figure import BokehPanel
from .diagnosis_task import Judged, Order, judge, machines
from .serialize import HERE, described, machine_told, one_of_a_side

if TYPE_CHECKING:
    from bokeh.document import Document

    from ...doctor.diagnosis import Diagnosis

__all__ = ["DoctorPanel"]

AUTO = "auto"
_CARD_S = 0.5  # that a cell waits, so that a saved notebook has the card: snapshots take less


class DoctorPanel(BokehPanel):
    """Judges this machine, or snapshots: `DoctorPanel(["host.snap", "dpu.snap"])`.

    It begins at once and beside the notebook: cells and other panels go on. `goal` is a Goal or its
    name (`arm-dma`, `rdma`, `gpunetio`, `laptop`); without one the doctor chooses by what it sees.
    `size`: GPU memory to be lent at once, in bytes or as "4G". ValueError, OSError: there is no
    such goal, a file is no snapshot, or two are of the same side.
    """

    name = "doctor"
    title = "Doctor"
    parts = ("figure/bokehjs", "base/forms", "doctor/findings", "doctor/tree")

    def __init__(
        self,
        snapshots: str | os.PathLike[str] | Sequence[str | os.PathLike[str]] | None = None,
        goal: Goal | str | None = None,
        size: int | str = SIZE,
    ) -> None:
        self._judged: Judged | None = None
        self._pair: tuple[str, str] | None = None
        self._error: Exception | None = None
        self._lock = threading.Lock()
        self._now: Order | None = None  # what runs
        self._next: Order | None = None  # what was asked for meanwhile: the last of it
        self._progress = (0, 0)
        self._task: scheduler.Task | None = None
        self._idle = threading.Event()
        self._over = False
        self._paths = files_of(snapshots)
        known = [machine_told(each) for each in machines(self._paths)] if self._paths else [HERE]
        self._machines = one_of_a_side(known)
        self._goal, self._size = goal_of(goal), size_of(size)
        super().__init__()
        self._ask(Order(self._goal, size=self._size))

    # For Python

    @property
    def diagnosis(self) -> Diagnosis | None:
        """What was found last; None before the first run has ended."""
        return None if self._judged is None else self._judged.diagnosis

    @property
    def running(self) -> bool:
        """Whether checks are under way."""
        return not self._idle.is_set()

    def wait(self, timeout: float | None = None) -> Diagnosis:
        """Until no check runs; what was found. TimeoutError: one does. Raises what went wrong."""
        if not self._idle.wait(timeout):
            raise TimeoutError(f"the doctor is not done within {timeout} s")
        if self._error is not None:
            raise self._error
        if self._judged is None:
            raise ValueError("the panel was closed before the doctor was done")
        return self._judged.diagnosis

    # What a view asks for

    @handler
    def check(self, check: str = "") -> None:
        """Reads the machine anew: all checks, or one by its name. One run at a time."""
        self._ask(Order(self._goal, str(check), self._size))

    @handler
    def aim(self, goal: str) -> None:
        """Judges for another goal; `auto`: for what the machine looks like."""
        self._goal = goal_of(goal)
        self._ask(Order(self._goal, size=self._size))

    @handler
    def pair(self, gpu: str, nic: str) -> None:
        """Which two devices the drawing is about, by their PCI addresses."""
        if self._judged is None or self._judged.picture is None:
            raise ValueError("there is no drawing yet: wait until the doctor is done")
        self._judged.picture.told((gpu, nic))  # ValueError: there are no such two
        self._pair = (gpu, nic)
        self.broadcast("picture", picture=self._picture())

    def document(self, dark: bool) -> Document:  # noqa: ARG002 (its colours suit both)
        """The drawing of the PCIe tree."""
        from bokeh.document import Document

        from .topology_drawing import drawn

        made = Document()
        if self._judged is not None and self._judged.picture is not None:
            made.add_root(drawn(self._judged.picture, self._pair))
        return made

    def state(self) -> dict[str, Any]:
        """All that a view draws; the findings are bounded (see told)."""
        return {
            **super().state(),
            "goals": [AUTO, *map(str, Goal)],
            "machines": self._machines,
            **self._state(),
        }  # fmt: skip

    def _state(self) -> dict[str, Any]:
        judged, now = self._judged, self._now
        return {
            "goal": AUTO if self._goal is None else str(self._goal),
            "run": None if now is None else {"check": now.check, "at": list(self._progress)},
            "result": None if judged is None else described(judged.diagnosis),
            "picture": self._picture(),
            "failed": None if self._error is None else explain(self._error),
        }

    def _picture(self) -> dict[str, Any] | None:
        if self._judged is None or self._judged.picture is None:
            return None
        return self._judged.picture.told(self._pair)

    # The run

    def _ask(self, order: Order) -> None:
        """Begins now, or when what runs has ended."""
        with self._lock:
            if self._over:
                return
            if self._now is not None:
                if not order.check or self._next is None or self._next.check:
                    self._next = order  # one check is a part of all that wait already
                return
            self._begin(order)
        self._tell()

    def _begin(self, order: Order) -> None:
        self._idle.clear()
        self._now, self._progress, self._error = order, (0, 0), None
        self._task = scheduler.start(self._steps(order), self.fail, self._ended)

    def _steps(self, order: Order) -> Generator[Any, None, None]:
        """On the frame thread: looks after the doctor, which has a thread of its own."""
        seen = [(0, 0)]

        def progress(done: int, of: int) -> None:
            seen[0] = (done, of)

        paths, before = self._paths, self._judged
        waiting = BackgroundCall(lambda: judge(paths, order, before, progress)).wait()
        try:
            while True:
                next(waiting)
                if seen[0] != self._progress:
                    self._progress = seen[0]
                    self.broadcast("progress", at=list(self._progress))
                yield
        except StopIteration as end:
            self._take(end.value)
        except Exception as error:  # whatever it is: it is shown, and wait() raises it
            self._error = error
            self.fail(error)

    def _take(self, judged: Judged) -> None:
        self._judged = judged
        if judged.picture is None or not judged.picture.has(self._pair):
            self._pair = None if judged.picture is None else judged.picture.nearest

    def _ended(self) -> None:
        """The run is over, however: what was asked for meanwhile begins."""
        with self._lock:
            self._now, order, self._next = None, self._next, None
            if order is not None and not self._over:
                self._begin(order)
        self._tell()
        with self._lock:
            if self._now is None:
                self._idle.set()

    def _tell(self) -> None:
        self.broadcast("state", **self._state())

    def close(self) -> None:
        """Ends the views. Checks that run end by themselves, and are not heard."""
        if "_lock" not in vars(self):
            return  # its arguments were refused: there is nothing to end
        with self._lock:
            self._over = True
        if self._task is not None:
            self._task.cancel()
        self._idle.set()
        super().close()

    # Without a kernel

    def static_html(self) -> str:
        """The doctor's own card, as far as there was one when the cell ran."""
        self._idle.wait(_CARD_S)
        found = self.diagnosis
        card = getattr(found, "_repr_html_", None)
        if card is not None:
            return str(card())
        words = "run the cell for the doctor's findings."
        if found is not None:
            words = f"{found.verdict} for {found.goal}; run the cell for the findings."
        return f"<p><em>{html.escape(self.title)}:</em> {html.escape(words)}</p>"
