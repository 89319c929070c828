"""Orders that are carried out, one after another, in steps of the frame thread."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Generator, Sequence
from typing import TYPE_CHECKING, Any

from ...errors import DgkitError, PeerLost
from ..base import region_usage
from ..base.scheduler import TICK_S, Task
from ..base.stall import STEP_S, StallTimer, cancel_all, wait_done
from .completions import Stamps, failure, success
from .request import Order

if TYPE_CHECKING:
    from ...session import SessionTransfer, TransferReport

__all__ = ["Run"]

Steps = Generator[Any, None, None]


class Run:
    """Carries orders out; the first failure ends it, and so does `cancel()`.

    `took(order, record, transfer)` is called for each transfer that ended, `told(run)` at most once
    a tick and in the end; both on the frame thread. `ended`: nothing of it is left to do.
    """

    def __init__(
        self,
        orders: Sequence[Order],
        number: Callable[[], int],
        took: Callable[[Order, dict[str, Any], SessionTransfer | None], None],
        told: Callable[[Run], None],
    ) -> None:
        self.orders = list(orders)
        self.error: Exception | None = None
        self.stamps: dict[int, Stamps] = {}
        self.ended = False
        self.silent_s = 0.0
        self.task: Task | None = None
        self._number, self._took, self._told = number, took, told
        self._at = 0
        self._flying: deque[SessionTransfer] = deque()
        self._fraction = 0.0
        self._cancelled = False
        self._waited = threading.Event()
        self._next = 0.0

    # For those who watch

    def wait(self, timeout: float | None = None) -> Run:
        """Until it has ended; itself. TimeoutError: it has not. Raises what it failed with."""
        if not self._waited.wait(timeout):
            raise TimeoutError(f"not done within {timeout} s: {self!r}")
        if self.error is not None:
            raise self.error
        return self

    def cancel(self) -> None:
        """Starts no more transfers, and ends those that are on their way. Again: nothing."""
        self._cancelled = True

    def state(self) -> dict[str, Any]:
        """What a view draws."""
        order = self.orders[min(self._at, len(self.orders) - 1)]
        return {
            "order": order.id, "index": self._at, "of": len(self.orders), "done": order.done,
            "what": f"{order.op} {order.region.name}", "repeat": order.repeat,
            "fraction": self._fraction, "silent_s": self.silent_s, "stopping": self._cancelled,
        }  # fmt: skip

    def __repr__(self) -> str:
        state = "ended" if self.ended else "running"
        done = sum(order.done for order in self.orders)
        return f"<Run of {len(self.orders)} orders, {done} transfers done, {state}>"

    # The frame thread's part

    def steps(self) -> Steps:
        """For frames.start(), which calls over() in the end."""
        for at, order in enumerate(self.orders):
            self._at = at
            order.state, order.done = "running", 0
            self.stamps[order.id] = Stamps()
            with region_usage.using(order.region, f"a {order.op}"):
                yield from self._carry_out(order)
            if order.state != "done":
                break

    def over(self) -> None:
        """It has ended, or its task was cancelled: who watches and who waits hears of it."""
        for transfer in self._flying:
            transfer.cancel()
        order = self.orders[self._at]
        if order.state in ("running", "waiting"):
            order.state = "cancelled"
        self.ended = True
        try:
            self._told(self)
        finally:
            self._waited.set()

    def _carry_out(self, order: Order) -> Steps:
        try:
            data = None
            if order.payload is not None:
                data = yield from order.payload.made()
            yield from self._repeat(order, data)
        except Exception as error:  # whatever it is: it ends the run, and is shown
            self._fail(order, error)
        if self.error is None and not self._cancelled:
            order.state = "done"
            return
        yield from self._give_up(order)

    def _repeat(self, order: Order, data: Any) -> Steps:
        started, stall = 0, StallTimer()
        while (started < order.repeat or self._flying) and not self._cancelled:
            end = time.monotonic() + STEP_S
            while time.monotonic() < end and not self._cancelled:
                while started < order.repeat and len(self._flying) < order.depth:
                    self._flying.append(order.start(data))
                    started += 1
                if not self._flying or not self._land(order, end - time.monotonic()):
                    break
            self._fraction = self._so_far(order)
            self.silent_s = stall.check(self._fraction)
            self._tell()
            yield True

    def _land(self, order: Order, seconds: float) -> bool:
        """Takes in the transfer that was started first, if it ends within so long."""
        first = self._flying[0]
        if not wait_done(first, seconds):
            return False
        self._flying.popleft()
        self._landed(order, first, first.wait())
        return True

    def _landed(self, order: Order, transfer: SessionTransfer, report: TransferReport) -> None:
        order.done += 1
        self.stamps[order.id].add(report)
        self._took(order, success(self._number(), order, report), transfer)

    def _so_far(self, order: Order) -> float:
        flying = sum(transfer.progress for transfer in self._flying)
        return float(order.done + flying) / order.repeat

    def _fail(self, order: Order, error: Exception) -> None:
        self.error = error
        order.state = "failed"
        if not self._flying:  # it was refused, and nothing moved
            self._took(order, failure(self._number(), order, error, 0), None)

    def _give_up(self, order: Order) -> Steps:
        """Ends what is on its way; each of them is told of as it ended."""
        flying = list(self._flying)
        cut = {transfer for transfer in flying if not _over(transfer)}
        yield from cancel_all(flying)
        self._flying.clear()
        for transfer in flying:
            try:
                if wait_done(transfer, 0):
                    self._landed(order, transfer, transfer.wait())
                    continue
                error: Exception = DgkitError("it was cancelled, and the DPU has not answered yet")
            except DgkitError as caught:
                error = caught
            moved = round(transfer.progress * transfer.size)
            record = failure(self._number(), order, error, moved)
            if transfer in cut and not isinstance(error, PeerLost):
                record["status"] = "CANCELLED"
            self._took(order, record, None)

    def _tell(self) -> None:
        if time.monotonic() >= self._next:
            self._next = time.monotonic() + TICK_S
            self._told(self)


def _over(transfer: SessionTransfer) -> bool:
    try:
        return transfer.done()
    except DgkitError:
        return True
