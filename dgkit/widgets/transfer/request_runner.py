# SPDX-License-Identifier: Apache-2.0
"""Running a request in steps on the frame thread, and what came of it."""

from __future__ import annotations

import threading
import time
from array import array
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING

from ... import html_cards
from ...errors import ClosedError, DgkitError, PeerLost, PeerTimeout, TransferError
from ...units import plural
from ..base.scheduler import STEP_S, TICK_S, StallTimer, Steps, Task, cancel_all, wait_done
from ..base.session_model import SessionModel
from .request import Request

if TYPE_CHECKING:
    from ...session import SessionTransfer, TransferReport
    from ..base.page_input import Json


class Run:
    """Runs the transfers of a request, until the first failure or `cancel()`.

    Attributes:
        request: The request.
        done: Completed transfers.
        error: The exception that ended the run.
        timings: Times of the completed transfers.
        ended: Nothing is left to do.
        silent_s: Seconds without progress.
    """

    def __init__(
        self,
        request: Request,
        number: Callable[[], int],
        on_record: Callable[[Request, Json, SessionTransfer | None], None],
        on_progress: Callable[[Run], None],
        on_waited: Callable[[], None],
    ) -> None:
        """Prepare a run; `steps` runs it.

        Args:
            number: Returns the number of the next record.
            on_record: Called for each transfer that ended, with its request, its record and, if it
                is complete, the transfer.
            on_progress: Called at most once a tick, and when the run has ended.
            on_waited: Called by wait() in the caller's thread once the run has ended.
        """
        self.request, self.done = request, 0
        self.error: Exception | None = None
        self.timings = Timings()
        self.ended = False
        self.silent_s = 0.0
        self.task: Task | None = None
        self._number, self._on_record, self._on_progress = number, on_record, on_progress
        self._on_waited = on_waited
        self._in_flight: deque[SessionTransfer] = deque()
        self._fraction = 0.0
        self._cancelled = False
        self._finished = threading.Event()
        self._next_report = time.monotonic() + TICK_S  # most have ended by then

    # For the caller

    def wait(self, timeout: float | None = None) -> Run:
        """Wait until the run has ended.

        Args:
            timeout: Seconds, or None to wait without limit.

        Returns:
            The run.

        Raises:
            TimeoutError: The run has not ended in time.
            Exception: The error that ended the run.
        """
        if not self._finished.wait(timeout):
            raise TimeoutError(f"not done within {timeout} s: {self!r}")
        self._on_waited()
        if self.error is not None:
            raise self.error
        return self

    def cancel(self) -> None:
        """Start no more transfers and cancel those in flight. Idempotent."""
        self._cancelled = True

    def state(self) -> Json:
        """Return what a view draws."""
        request = self.request
        return {
            "what": f"{request.op} {request.region.name}", "repeat": request.repeat,
            "done": self.done, "fraction": self._fraction, "silent_s": self.silent_s,
            "stopping": self._cancelled,
        }  # fmt: skip

    def outcome(self) -> str:
        """Describe how the run ended."""
        end = ""
        if self.error is not None:
            end = ", then one failed"
        elif self.done < self.request.repeat:
            end = ", then the run was cancelled"
        return f"{plural(self.done, 'transfer')} completed{end}."

    def __repr__(self) -> str:
        state = "ended" if self.ended else "running"
        return f"<Run of {plural(self.request.repeat, 'transfer')}, {self.done} done, {state}>"

    # On the frame thread

    def steps(self) -> Steps:
        """Run the transfers, as a task for scheduler.start() with `finish` as its `ended`."""
        request = self.request
        with SessionModel.of(request.region.session).using(request.region, f"a {request.op}"):
            try:
                yield from self._transfer_all(request)
            except Exception as error:  # any error ends the run and is shown
                self.error = error
                if not self._in_flight:  # refused before anything moved
                    record = failure_record(self._number(), request, error, 0)
                    self._on_record(request, record, None)
            if self.error is not None or self._cancelled:
                yield from self._abort(request)

    def finish(self) -> None:
        """End the run after its task has ended or was cancelled, and wake the waiting threads."""
        for transfer in self._in_flight:
            transfer.cancel()
        self.ended = True
        try:
            self._on_progress(self)
        finally:
            self._finished.set()

    def _transfer_all(self, request: Request) -> Steps:
        session = request.region.session
        data = (yield from request.payload.build()) if request.payload is not None else None
        started, stall, in_flight = 0, StallTimer(), self._in_flight
        while (started < request.repeat or in_flight) and not self._cancelled:
            end = time.monotonic() + STEP_S
            while time.monotonic() < end and not self._cancelled:
                while started < request.repeat and len(in_flight) < request.depth:
                    if request.op == "write":
                        transfer = session.start_write(request.region, data, request.offset)
                    else:
                        transfer = session.start_read(request.region, request.size, request.offset)
                    in_flight.append(transfer)
                    started += 1
                if not in_flight or not wait_done(in_flight[0], end - time.monotonic()):
                    break
                self._record(request, in_flight.popleft())
            done = self.done + sum(transfer.progress for transfer in in_flight)
            self._fraction = float(done) / request.repeat
            self.silent_s = stall.check(self._fraction)
            if time.monotonic() >= self._next_report:
                self._next_report = time.monotonic() + TICK_S
                self._on_progress(self)
            if started < request.repeat or in_flight:
                yield True

    def _record(self, request: Request, transfer: SessionTransfer) -> None:
        report = transfer.wait()
        self.done += 1
        self.timings.add(report)
        self._on_record(request, success_record(self._number(), request, report), transfer)

    def _abort(self, request: Request) -> Steps:
        """Cancel the transfers in flight and record how each of them ended."""
        in_flight = list(self._in_flight)
        cancelled = {transfer for transfer in in_flight if not _is_done(transfer)}
        yield from cancel_all(in_flight)
        self._in_flight.clear()
        for transfer in in_flight:
            try:
                if wait_done(transfer, 0):
                    self._record(request, transfer)
                    continue
                error: Exception = DgkitError("cancelled; the DPU has not replied yet")
            except DgkitError as raised:
                error = raised
            moved = round(transfer.progress * transfer.size)
            record = failure_record(self._number(), request, error, moved)
            if transfer in cancelled and not isinstance(error, PeerLost):
                record["status"] = "CANCELLED"
            self._on_record(request, record, None)


def _is_done(transfer: SessionTransfer) -> bool:
    try:
        return transfer.done()
    except DgkitError:
        return True


# The rows of a repeat's statistics: times on the DPU's clock, stamped in C.
_ROWS = (
    ("last", "last DMA of a transfer, submit to complete"),
    ("read", "all READs of a transfer"),
    ("write", "all WRITEs of a transfer"),
)


def success_record(number: int, request: Request, report: TransferReport) -> Json:
    """Describe a completed transfer; times are in ns after the submit of its last DMA.

    `first` has the times of the first DMA (submit, post, complete), unless it is the last.
    """
    submit, stamps = report.submit_ns, report.first_stamps
    two = stamps is not None and stamps[0] != submit
    return _record(number, request, "OK", report.size) | {
        "path": report.path, "dma": report.op.name, "provider": report.provider,
        "submit_ns": submit, "post_ns": report.post_ns - submit,
        "complete_ns": report.complete_ns - submit,
        "read_ns": report.read_ns, "write_ns": report.write_ns, "chunks": report.chunks,
        "first": [ns - submit for ns in stamps] if two and stamps else None,
    }  # fmt: skip


def failure_record(number: int, request: Request, error: Exception, moved: int) -> Json:
    """Describe a transfer that ended in an error after `moved` bytes."""
    if isinstance(error, TransferError):
        last = error.completion
        record = _record(number, request, str(last.status.name), moved)
        return record | {
            "error": str(error), "path": str(last.path), "dma": last.op.name,
            "submit_ns": last.submit_ns, "post_ns": last.post_ns - last.submit_ns,
            "complete_ns": last.complete_ns - last.submit_ns,
        }  # fmt: skip
    named = ((PeerLost, "PEER_LOST"), (PeerTimeout, "TIMED_OUT"), (ClosedError, "CLOSED"))
    known = (name for kind, name in named if isinstance(error, kind))
    status = next(known, type(error).__name__)
    return _record(number, request, status, moved) | {"error": str(error)}


def _record(number: int, request: Request, status: str, size: int) -> Json:
    region = request.region
    return {
        "number": number, "what": f"{request.op} {region.name}", "status": status,
        "op": request.op, "region": region.name, "region_id": region.id, "size": size,
        "offset": request.offset,
    }  # fmt: skip


def as_json(record: Json) -> Json:
    """Return a record for a view: a JavaScript number has only 53 bits, so `submit_ns` is text."""
    return record | {"submit_ns": str(record["submit_ns"])} if "submit_ns" in record else record


class Timings:
    """Times of a repeat's transfers, from the timestamps of their completions."""

    def __init__(self) -> None:
        self._ns = {name: array("q") for name, _ in _ROWS}
        self._bytes = 0

    def add(self, report: TransferReport) -> None:
        """Add a completed transfer."""
        self._bytes += report.size
        for name, ns in zip(
            self._ns, (report.latency_ns, report.read_ns, report.write_ns), strict=True
        ):
            self._ns[name].append(ns)

    def writes_ns(self) -> list[int]:
        """Return the latency of the DMA writes of each transfer."""
        return list(self._ns["write"])

    def summary(self) -> Json | None:
        """Return `count`, `bytes` and rows of [what, min, median, max] in ns; None below two."""
        count = len(self._ns["last"])
        if count < 2:
            return None
        rows = []
        for name, what in _ROWS:
            ns = sorted(self._ns[name])
            if ns[-1] > 0:  # 0 if no such DMA took place
                median = (ns[(count - 1) // 2] + ns[count // 2]) / 2
                rows.append([what, ns[0], median, ns[-1]])
        return {"count": count, "bytes": self._bytes, "rows": rows}


_HEAD = 128  # bytes that are displayed


def read_result(record: Json, transfer: SessionTransfer) -> Json:
    """Describe a completed read for a view: its first bytes as lines of hex."""
    lines = html_cards.hex_lines(transfer.first(_HEAD), offset=record["offset"])
    about = {"number": record["number"], "what": record["what"]}
    return about | {"size": transfer.size, "lines": lines}
