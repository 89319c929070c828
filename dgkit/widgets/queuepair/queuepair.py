# SPDX-License-Identifier: Apache-2.0
"""QueuePanel: the entries, the doorbell and the completions of a queue pair, while kernels post."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from ...errors import ClosedError
from ...gpu_initiated.queue_report import (
    COMPLETION_COLUMNS,
    ENTRY_COLUMNS,
    QueueReport,
    queue_report,
)
from ..base import scheduler
from ..base.panel import Panel, Viewers, handler

if TYPE_CHECKING:
    from ..base.page_input import Json

_EVERY_S, _HIDDEN_S = 0.2, 3600.0  # between two looks at the queue pair
_LABEL = "software NIC"


class QueuePanel(Panel):
    """Panel that shows a queue pair of the software NIC: `QueuePanel(nic.queue_pair(64))`.

    It reads the rings a few times a second while a view is visible, and sends what has changed. A
    kernel may post while it reads: an entry that is being written can appear half new.

    Args:
        queue: Queue pair of `dgkit.Device.nic`.

    Raises:
        TypeError: `queue` is no queue pair.
        ClosedError: The queue pair is closed.
    """

    name = "queuepair"
    title = "Queue pair"

    def __init__(self, queue: Any) -> None:
        if not callable(getattr(queue, "completions", None)):
            raise TypeError(f"queue is {queue!r}; it must be a queue pair of Device.nic()")
        self._queue, self._viewers = queue, Viewers()
        self._report, self._depth = queue_report(queue), queue.depth
        self._closed_queue = False
        super().__init__()
        self._task = scheduler.start(self._follow(), self.fail)

    @handler
    def watch(self, view: str, on: bool) -> Json:
        """Record that a view is visible or hidden, and return the state to a visible one."""
        self._viewers.update(view, on)
        self._task.hasten(time.monotonic())
        return self._fields() if on else {}

    @handler
    def as_text(self) -> dict[str, str]:
        """Return the report as text."""
        self._read()
        return {"text": str(self._report)}

    def _follow(self) -> scheduler.Steps:
        """Send the report after each change while a view is visible."""
        shown = self._report
        while not self._closed_queue:
            if self._viewers.due():
                self._read()
                if self._report is not shown or self._closed_queue:
                    shown = self._report
                    self.broadcast("frame", **self._fields())
            wait = _EVERY_S if self._viewers.any_recent() else _HIDDEN_S
            yield time.monotonic() + wait

    def _read(self) -> None:
        """Decode the queue pair again if its state or a count has changed."""
        try:
            if self._queue.info() != self._report.info:
                self._report = queue_report(self._queue)
        except ClosedError:
            self._closed_queue = True

    def _fields(self) -> Json:
        report, info = self._report, self._report.info
        line, *notes = report.counts()
        status = "closed" if self._closed_queue else info.state
        return {
            "title": f"{self.title} {report.qpn:#x}",
            "label": _LABEL,
            "provider": report.provider,
            "status": status,
            "why": info.why if info.state == "error" else "",
            "line": line,
            "notes": notes,
            "places": _places(report, self._depth),
            "entry_columns": ENTRY_COLUMNS,
            "entries": report.entry_rows(),
            "completion_columns": COMPLETION_COLUMNS,
            "completions": report.completion_rows(),
        }

    def state(self) -> Json:
        """Return what is in the rings now."""
        self._read()
        return self._fields()

    def end(self) -> None:
        """Stop reading; the queue pair stays open."""
        self._task.cancel()

    def static_html(self) -> str:
        """Return the report as a card."""
        return self._report._repr_html_()

    def static_text(self) -> str:
        """Return the report as text."""
        return str(self._report)


def _places(report: QueueReport, depth: int) -> list[tuple[str, int]]:
    """Return how many places of the ring are in which state, in the order of their way."""
    info = report.info
    posted = info.producer if info.posted is None else max(info.posted, info.producer)
    done = info.completions if info.polled is None else info.polled
    counts = {
        "posted": posted - info.producer,
        "announced": info.producer - info.taken,
        "running": info.taken - info.completed,
        "not polled": info.completions - done,
    }
    shown = [(name, min(max(n, 0), depth)) for name, n in counts.items()]
    return [*shown, ("free", max(0, depth - sum(n for _, n in shown)))]
