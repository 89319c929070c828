# SPDX-License-Identifier: Apache-2.0
"""TransferPanel: reads and writes, single or repeated, and their completions."""

from __future__ import annotations

import itertools
import threading
import time
from collections import deque
from typing import TYPE_CHECKING, Any

from ... import html_cards
from ...types import provider_label
from ...units import plural, size_text, us
from ..base import scheduler
from ..base.fill_patterns import KINDS
from ..base.page_input import for_field
from ..base.panel import handler
from ..base.session_model import SessionModel, SessionPanel
from ..base.traits import State
from .request import (
    MAX_DEPTH,
    MAX_PAYLOAD,
    MAX_REPEAT,
    How,
    Payload,
    Request,
    from_form,
    from_python,
    make_request,
)
from .request_runner import Run, as_json, read_result
from .timeline import timeline

if TYPE_CHECKING:
    from ...session import Session, SessionRegion, SessionTransfer
    from ..base.page_input import Json

MAX_COMPLETIONS = 50  # listed
_MAX_STATIC_ROWS = 10  # completions in a saved notebook
_RESULTS_INTERVAL_S = 0.25  # between updates of the completions during a run
_FORM_FIELDS = {"op", "region", "kind", "payload", "offset", "size", "repeat", "depth"}
_LIMITS = {"largest": MAX_PAYLOAD, "repeat": MAX_REPEAT, "depth": MAX_DEPTH}


class TransferPanel(SessionPanel):
    """Panel that starts transfers of a session and lists their completions.

    A completion is a dict: `number`, `what`, `op`, `region` (its name), `offset`, `size`, `status`
    (`OK`, or the error's name with its text in `error`), and if a DMA took place `path`, `dma` (the
    last one's operation), `submit_ns`, `post_ns` and `complete_ns` (the last two relative to the
    first); of a success also `provider`, `read_ns`, `write_ns`, `chunks` and `first` (submit, post
    and complete of the first DMA relative to `submit_ns`; None if there was one only).

    Attributes:
        last_completion: The last completion, or None; read-only. While a run lasts, it changes
            four times a second.
        transfers: The completions listed, oldest first, at most 50; read-only.
    """

    name = "transfer"
    title = "Transfer"

    _transfers: tuple[Json, ...]

    last_completion: State[TransferPanel, Json | None] = State(
        lambda panel: panel._transfers[-1] if panel._transfers else None,
        to_json=lambda record: record and as_json(record),
        help="The last completion, or None. Read-only.",
    )
    transfers: State[TransferPanel, tuple[Json, ...]] = State(
        lambda panel: panel._transfers,
        to_json=lambda records: [as_json(record) for record in records or ()],
        help="The completions listed, oldest first, at most 50. Read-only.",
    )

    def __init__(self, session: Session) -> None:
        self._session = session
        self._model = SessionModel.of(session)
        self._numbers = itertools.count(1)
        self._completions: deque[Json] = deque(maxlen=MAX_COMPLETIONS)
        self._requested: dict[int, Request] = {}  # by the number of a completion
        self._transfers: tuple[Json, ...] = ()
        self._results_sent = 0.0
        self._run: Run | None = None
        self._lock = threading.Lock()
        self._read_result: Json | None = None
        self._written: set[int] = set()
        self._summary: Json | None = None
        super().__init__()
        self._model.subscribe(self)

    # State

    def state(self) -> Json:
        """Return the choices of the form, the run in progress and the last completions."""
        run = self._run.state() if self._run is not None and not self._run.ended else None
        choices = {"fills": [list(kind) for kind in KINDS], "limits": _LIMITS, "run": run}
        return self._model.state() | choices | self._results()

    def _results(self) -> Json:
        return {
            "completions": [as_json(record) for record in self._completions],
            "summary": self._summary, "read_result": self._read_result,
        }  # fmt: skip

    @handler
    def timeline(self) -> Json:
        """Return the time line of the listed completions, and the clock of their timestamps."""
        return {"timeline": timeline(self._completions), "clock": self._clock()}

    def _clock(self) -> str:
        if self._session.closed:
            return ""
        dpu = self._session.info["dpu"]
        label = provider_label(dpu["provider"], dpu["emulated"])
        return f"CLOCK_MONOTONIC of {dpu['machine']} ({label}, process {dpu['pid']})"

    # Requests

    def transfer(
        self,
        op: str,
        region: SessionRegion,
        data: Any = None,
        *,
        offset: int | str = 0,
        size: int | str | None = None,
        pattern: str | None = None,
        repeat: int = 1,
        depth: int = 1,
    ) -> Run:
        """Start transfers and return without waiting for them.

        Args:
            op: `write` (with `data`, or `pattern` and `size`) or `read` (with `size`).
            region: The remote region.
            data: The bytes of a write; anything with the buffer protocol.
            offset: Offset in the region in bytes.
            size: Bytes of a read or of a pattern.
            pattern: A fill pattern, such as `random:7`.
            repeat: Number of transfers.
            depth: Transfers in flight at once.

        Returns:
            The run; its `wait()` waits for all transfers.

        Raises:
            AccessDenied, BoundsError, ClosedError, TypeError, ValueError: Nothing was started.
        """
        payload = from_python(data, pattern, size) if op == "write" else None
        return self._start(
            self._make_request(op, region, payload, How(offset, size, repeat, depth))
        )

    def _make_request(
        self, op: str, region: SessionRegion, payload: Payload | None, how: How
    ) -> Request:
        if region.session is not self._session:
            raise ValueError(f"region {region.name!r} belongs to another session")
        return make_request(op, region, payload, how)

    def _from_form(self, form: Json) -> Request:
        if missing := sorted(_FORM_FIELDS.difference(form)):
            raise ValueError(f"invalid message to the panel: the form lacks {', '.join(missing)}")
        with for_field("region"):
            region = self._model.region(form["region"])
        payload = None
        if form["op"] == "write":
            payload = from_form(str(form["kind"]), str(form["payload"]), form["size"])
        how = How(*(form[name] for name in ("offset", "size", "repeat", "depth")))
        return self._make_request(form["op"], region, payload, how)

    @handler
    def start(self, form: Json) -> None:
        """Start the transfers of a form.

        Args:
            form: `region` (id), `op`, `offset`, `size`, `kind`, `payload`, `repeat` and `depth`.
        """
        self._start(self._from_form(form))

    @handler
    def cancel(self) -> None:
        """Cancel the running transfers; `results` messages report how each of them ended."""
        if self._run is not None:
            self._run.cancel()

    # Running

    def _start(self, request: Request) -> Run:
        run = Run(
            request, lambda: next(self._numbers), self._on_record, self._on_progress,
            self._store_traits,
        )  # fmt: skip
        with self._lock:  # two views may call at once, each in a subshell's thread
            if self._run is not None and not self._run.ended:
                raise ValueError("transfers are running: wait, or cancel them")
            self._run, self._summary, self._results_sent = run, None, 0.0
        run.task = scheduler.start(run.steps(), self.fail, run.finish)
        self._send_run(run)
        return run

    def _on_record(self, request: Request, record: Json, transfer: SessionTransfer | None) -> None:
        if len(self._completions) == MAX_COMPLETIONS:
            self._requested.pop(self._completions[0]["number"], None)
        self._completions.append(record)
        self._requested[record["number"]] = request.without_large_data()
        if request.op == "write":
            self._written.add(request.region.id)
        elif transfer is not None:
            self._read_result = read_result(record, transfer)

    def _on_progress(self, run: Run) -> None:
        """Update the views; called at most once a tick, and when the run has ended."""
        if run.ended:
            summary, request = run.timings.summary(), run.request
            self._summary = summary and {"what": f"{request.op} {request.region.name}", **summary}
        if run.ended or time.monotonic() - self._results_sent > _RESULTS_INTERVAL_S:
            self._send_results()
        self._send_run(run)
        if run.error is not None and run.ended:
            self.fail(run.error)
        written, self._written = self._written, set()
        for region in written:
            self._model.written(region)

    def _send_results(self) -> None:
        self._results_sent = time.monotonic()
        self.broadcast_state("results", self._results)
        self._transfers = tuple(self._completions)
        self.refresh_traits()

    def _send_run(self, run: Run) -> None:
        state, outcome = (None, run.outcome()) if run.ended else (run.state(), "")
        self.broadcast("run", run=state, ended=outcome)

    @handler
    def as_python(self, number: int) -> dict[str, str]:
        """Return Python code that repeats the transfers of a completion."""
        if number not in self._requested:
            raise ValueError(f"no completion {number} is listed")
        return {"text": self._requested[number].python()}

    @handler
    def show_bytes(self, number: int) -> dict[str, str]:
        """Show the bytes that a transfer touched in the hex views of the session.

        Raises:
            ValueError: The completion is not listed, or its region was freed.
        """
        record = next((row for row in self._completions if row["number"] == number), None)
        if record is None:
            raise ValueError(f"no completion {number} is listed")
        name, start = record["region"], record["offset"]
        if record["region_id"] not in [region.id for region in self._model.live()]:
            raise ValueError(f"region {name!r} of transfer No. {number} was freed")
        stop = start + max(1, record["size"])
        shown = self._model.show_bytes(record["region_id"], start, stop)
        if not shown:
            return {"text": f"No. {number}: no hex view shows {name}; a HexView(session) would."}
        what = f"{plural(stop - start, 'byte')} of {name} at offset {start:,}"
        return {"text": f"No. {number}: {what}, shown in the hex view."}

    def end(self) -> None:
        """Cancel the transfers."""
        if self._run is not None and self._run.task is not None:
            self._run.task.cancel()

    def static_html(self) -> str:
        """Return the last completions as a card."""
        last = list(self._completions)[: -_MAX_STATIC_ROWS - 1 : -1]
        header = ("", "Transfer", "Status", "Size", "Path", "Submit to post, µs", "to complete, µs")
        rows = [
            (record["number"], record["what"], record["status"], size_text(record["size"]),
             record.get("path", ""), *_times(record))
            for record in last
        ]  # fmt: skip
        body = html_cards.table("Last completions, newest first", header, rows) if rows else ""
        more = [("Live view", "run the cell")]
        if self._session.closed:
            return html_cards.card(self.title, more, body=body, note="The session is closed.")
        dpu = self._session.dpu
        badge = html_cards.provider_badge(dpu.provider, dpu.emulated)
        more.append(("Clock", self._clock()))
        return html_cards.card(self.title, more, badge=badge, body=body)


def _times(record: Json) -> tuple[str, str]:
    if "complete_ns" not in record:
        return "", ""
    return us(record["post_ns"]), us(record["complete_ns"])
