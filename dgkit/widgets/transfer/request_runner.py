"""Running requests one after the other, in steps on the frame thread."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from ...errors import DgkitError, PeerLost
from ...units import plural
from ..base.scheduler import STEP_S, TICK_S, StallTimer, Steps, Task, cancel_all, wait_done
from ..base.session_model import SessionModel
from .completions import Timings, failure_record, success_record
from .request import Request

if TYPE_CHECKING:
    from ...session import SessionTransfer
    from ..base.page_input import Json


class Run:
    """Runs requests in order, until the first failure or `cancel()`.

    Attributes:
        requests: The requests.
        error: The exception that ended the run.
        timings: Timings by the id of the request.
        ended: Nothing is left to do.
        silent_s: Seconds without progress.
    """

    def __init__(
        self,
        requests: Sequence[Request],
        number: Callable[[], int],
        on_record: Callable[[Request, Json, SessionTransfer | None], None],
        on_progress: Callable[[Run], None],
        on_waited: Callable[[], None],
    ) -> None:
        """Prepare a run; `steps` runs it.

        Args:
            requests: The requests.
            number: Returns the number of the next record.
            on_record: Called for each transfer that ended, with its request, its record and, if it
                is complete, the transfer.
            on_progress: Called at most once a tick, and when the run has ended.
            on_waited: Called by wait() in the caller's thread once the run has ended.
        """
        self.requests = list(requests)
        self.error: Exception | None = None
        self.timings: dict[int, Timings] = {}
        self.ended = False
        self.silent_s = 0.0
        self.task: Task | None = None
        self._number, self._on_record, self._on_progress = number, on_record, on_progress
        self._on_waited = on_waited
        self._index = 0
        self._in_flight: deque[SessionTransfer] = deque()
        self._fraction = 0.0
        self._cancelled = False
        self._finished = threading.Event()
        self._next_report = 0.0

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
        request = self.requests[min(self._index, len(self.requests) - 1)]
        return {
            "request": request.id, "index": self._index, "of": len(self.requests),
            "what": f"{request.op} {request.region.name}", "repeat": request.repeat,
            "done": request.done, "fraction": self._fraction, "silent_s": self.silent_s,
            "stopping": self._cancelled,
        }  # fmt: skip

    def __repr__(self) -> str:
        state = "ended" if self.ended else "running"
        requests = plural(len(self.requests), "request")
        done = plural(sum(request.done for request in self.requests), "transfer")
        return f"<Run of {requests}, {done} done, {state}>"

    # On the frame thread

    def steps(self) -> Steps:
        """Run all requests, as a task for scheduler.start() with `finish` as its `ended`."""
        if len(self.requests) == 1:
            self._next_report = time.monotonic() + TICK_S  # most have ended by then
        for index, request in enumerate(self.requests):
            self._index = index
            request.state, request.done = "running", 0
            self.timings[request.id] = Timings()
            with SessionModel.of(request.region.session).using(request.region, f"a {request.op}"):
                try:
                    yield from self._transfer_all(request)
                except Exception as error:  # any error ends the run and is shown
                    self.error, request.state = error, "failed"
                    if not self._in_flight:  # refused before anything moved
                        record = failure_record(self._number(), request, error, 0)
                        self._on_record(request, record, None)
                if self.error is not None or self._cancelled:
                    yield from self._abort(request)
                    return
            request.state = "done"

    def finish(self) -> None:
        """End the run after its task has ended or was cancelled, and wake the waiting threads."""
        for transfer in self._in_flight:
            transfer.cancel()
        request = self.requests[self._index]
        if request.state in ("running", "waiting"):
            request.state = "cancelled"
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
            done = request.done + sum(transfer.progress for transfer in in_flight)
            self._fraction = float(done) / request.repeat
            self.silent_s = stall.check(self._fraction)
            if time.monotonic() >= self._next_report:
                self._next_report = time.monotonic() + TICK_S
                self._on_progress(self)
            if started < request.repeat or in_flight:
                yield True

    def _record(self, request: Request, transfer: SessionTransfer) -> None:
        report = transfer.wait()
        request.done += 1
        self.timings[request.id].add(report)
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
