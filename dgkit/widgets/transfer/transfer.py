"""TransferPanel: reads and writes, one or many, in a sequence; and how each of them went."""

from __future__ import annotations

import itertools
import threading
import time
from collections import deque
from typing import TYPE_CHECKING, Any

from ... import html_cards
from ...units import size_text
from ..base import scheduler
from ..base.fill_patterns import KINDS
from ..base.forms import for_field
from ..base.panel import Buffers, Panel, handler
from ..base.session_model import SessionModel
from .completions import timeline
from .payload import LARGEST, Payload, from_form, from_python
from .read_result import Brought
from .request import DEEPEST, OFTENEST, Order, bounded_list, order_of
from .runner import Run
from .uploads import CHUNK, MOST, Uploads

if TYPE_CHECKING:
    from ...session import Session, SessionRegion, SessionTransfer

__all__ = ["LISTED", "TransferPanel"]

LISTED = 50  # completions
_LONGEST = 100  # orders in the list
_SHOWN = 10  # completions of a saved notebook
_LIST_S = 0.25  # how often the completions of a repeat are shown
_LIMITS = {"chunk": CHUNK, "upload": MOST, "largest": LARGEST, "repeat": OFTENEST}


class TransferPanel(Panel):
    """Starts transfers of a session and shows each one's completion."""

    name = "transfer"
    title = "Transfer"
    parts = ("base/forms", "transfer/form")

    def __init__(self, session: Session) -> None:
        self._session = session
        self._model = SessionModel.of(session)
        self._orders: list[Order] = []
        self._ids, self._numbers = itertools.count(1), itertools.count(1)
        self._completions: deque[dict[str, Any]] = deque(maxlen=LISTED)
        self._listed = 0.0
        self._run: Run | None = None
        self._lock = threading.Lock()
        self._uploads = Uploads()
        self._brought = Brought()
        self._wrote: set[int] = set()
        self._states: list[str] = []
        self._summary: dict[str, Any] | None = None
        super().__init__()
        self._model.subscribe(self)

    # What a view draws

    def state(self) -> dict[str, Any]:
        """The list, what runs, and the last completions."""
        offers = {"fills": [list(kind) for kind in KINDS], "limits": _LIMITS | {"depth": DEEPEST}}
        now = {
            "orders": self._described(),
            "run": self._run_state(),
            "brought": self._brought.state(),
        }
        return self._model.state() | offers | now | self._results()

    def _results(self) -> dict[str, Any]:
        about = {"summary": self._summary, "clock": self._clock()}
        return {"completions": list(self._completions), **about}

    def _clock(self) -> str:
        """Whose clock the stamps are of."""
        if self._session.closed:
            return ""
        dpu = self._session.info["dpu"]
        label = html_cards.provider_label(dpu["provider"])
        return f"CLOCK_MONOTONIC of {dpu['machine']} ({label}, process {dpu['pid']})"

    def _described(self) -> list[dict[str, Any]]:
        return [order.described() for order in self._orders]

    def _run_state(self) -> dict[str, Any] | None:
        return self._run.state() if self._run is not None and not self._run.ended else None

    # The list

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
        """Starts `repeat` transfers, `depth` at once, and returns; `.wait()` waits for the Run.

        `op` is "write" (with `data`, or `pattern` and `size`) or "read" (with `size`). BoundsError,
        AccessDenied, ClosedError, ValueError: nothing was started.
        """
        how = {"offset": offset, "size": size, "repeat": repeat, "depth": depth}
        return self._start([self._order(op, region, data, pattern=pattern, **how)])

    def add(self, op: str, region: SessionRegion, data: Any = None, **how: Any) -> None:
        """As transfer(), but it is added to the list, and starts with run_all()."""
        self._append(self._order(op, region, data, **how))

    def run_all(self) -> Run:
        """Starts the transfers of the list, one order after the other, up to the first failure."""
        if not self._orders:
            raise ValueError("the list is empty: add a transfer to it first")
        return self._start(self._orders)

    def _order(
        self, op: str, region: SessionRegion, data: Any, *, pattern: str | None = None, **how: Any
    ) -> Order:
        payload = from_python(data, pattern, how.pop("size", None)) if op == "write" else None
        return self._checked(op, region, payload, **how)

    def _checked(
        self, op: str, region: SessionRegion, payload: Payload | None, **how: Any
    ) -> Order:
        if region.session is not self._session:
            raise ValueError(f"region {region.name!r} is of another session")
        return order_of(next(self._ids), op, region, payload, **how)

    def _from_form(self, form: dict[str, Any]) -> Order:
        with for_field("region"):
            region = self._model.region(form["region"])
        payload = None
        if form["op"] == "write":
            given = (str(form["kind"]), str(form["payload"]), form["size"])
            payload = from_form(*given, self._uploads)
        how = {name: form[name] for name in ("offset", "size", "repeat", "depth")}
        return self._checked(form["op"], region, payload, **how)

    def _append(self, order: Order) -> None:
        if len(self._orders) >= _LONGEST:
            raise ValueError(f"the list has {_LONGEST} transfers, the most: remove one")
        with for_field("payload"):
            bounded_list([*self._orders, order])
        self._orders.append(order)
        self._tell_orders()

    def _tell_orders(self) -> None:
        self._states = [order.state for order in self._orders]
        self.broadcast("orders", orders=self._described())

    @handler
    def start(self, form: dict[str, Any]) -> None:
        """Starts what the form says: region, op, offset, size, kind, payload, repeat, depth."""
        self._start([self._from_form(form)])

    @handler
    def append(self, form: dict[str, Any]) -> None:
        """Adds it to the list. An expression is evaluated now."""
        self._append(self._from_form(form))

    @handler
    def run(self) -> None:
        """Starts the list."""
        self.run_all()

    @handler
    def move(self, order: int, by: int) -> None:
        """Moves an order up (-1) or down (1) in the list."""
        at = self._position(order)
        to = max(0, min(len(self._orders) - 1, at + by))
        self._orders.insert(to, self._orders.pop(at))
        self._tell_orders()

    @handler
    def remove(self, order: int) -> None:
        """Takes an order off the list; one that is being carried out goes on."""
        del self._orders[self._position(order)]
        self._tell_orders()

    def _position(self, number: int) -> int:
        for at, order in enumerate(self._orders):
            if order.id == number:
                return at
        raise ValueError(f"the list has no transfer {number} any more")

    @handler
    def upload(self, key: str, name: str, size: int, at: int, buffers: Buffers) -> dict[str, int]:
        """A piece of a file."""
        with for_field("payload"):
            return {"have": self._uploads.take(key, name, size, at, buffers)}

    @handler
    def cancel(self) -> None:
        """Ends what is running; `results` tell how each transfer ended."""
        if self._run is not None:
            self._run.cancel()

    # What runs

    def _start(self, orders: list[Order]) -> Run:
        run = Run(orders, lambda: next(self._numbers), self._took, self._told)
        with self._lock:  # two views may click at once, each in a thread of its own
            if self._run is not None and not self._run.ended:
                raise ValueError("transfers are running: wait, cancel, or add this to the list")
            self._run, self._summary, self._listed = run, None, 0.0
        for order in orders:
            order.state, order.done = "waiting", 0
        run.task = scheduler.start(run.steps(), self.fail, run.over)
        self._tell_run(run)
        return run

    def _took(self, order: Order, record: dict[str, Any], transfer: SessionTransfer | None) -> None:
        self._completions.append(record)
        if order.op == "write":
            self._wrote.add(order.region.id)
        elif transfer is not None:
            self._brought.take(record, transfer)

    def _told(self, run: Run) -> None:
        """On the frame thread, at most once a tick."""
        self._tell_run(run)
        if self._states != [order.state for order in self._orders]:
            self._tell_orders()
        if run.ended:
            self._finished(run)
        elif time.monotonic() - self._listed > _LIST_S:
            self._list()
        wrote, self._wrote = self._wrote, set()
        for region in wrote:
            self._model.written(region)

    def _list(self) -> None:
        self._listed = time.monotonic()
        self.broadcast("results", brought=self._brought.state(), **self._results())

    def _finished(self, run: Run) -> None:
        order = next((order for order in run.orders if order.state != "done"), run.orders[-1])
        summary = run.stamps[order.id].summary() if order.id in run.stamps else None
        self._summary = summary and {"what": f"{order.op} {order.region.name}", **summary}
        self._brought.tidy()
        self._tell_orders()
        self._list()
        if run.error is not None:
            self.fail(run.error)

    def _tell_run(self, run: Run) -> None:
        now = (None, _outcome(run)) if run.ended else (run.state(), "")
        self.broadcast("run", run=now[0], ended=now[1])

    @handler
    def keep(self, name: str) -> dict[str, str]:
        """Gives what the last read brought a name in the notebook, as bytes."""
        with for_field("keep"):
            size = self._brought.keep(name)
        self._list()
        return {"text": f"{name} has {size:,} bytes now"}

    @handler
    def forget(self) -> None:
        """Gives back the memory of what the last read brought."""
        self._brought.forget()
        self._list()

    def close(self) -> None:
        """Ends the views and the transfers."""
        if self._run is not None and self._run.task is not None:
            self._run.task.cancel()
        self._brought.forget()
        super().close()

    def static_html(self) -> str:
        """The completions that there were when the cell ran."""
        last = list(self._completions)[: -_SHOWN - 1 : -1]
        header = ("", "Transfer", "Status", "Size", "Path", "Submit, post, complete: us")
        rows = [
            (each["number"], each["what"], each["status"], size_text(each["size"]),
             each.get("path", ""), timeline(each))
            for each in last
        ]  # fmt: skip
        body = (
            html_cards.table("The last completions, the newest first", header, rows) if rows else ""
        )
        closed = self._session.closed
        badge = "" if closed else html_cards.provider_badge(self._session.dpu.provider)
        more = [("Live view", "run the cell"), *([] if closed else [("Clock", self._clock())])]
        note = "The session is closed." if closed else ""
        return html_cards.card(self.title, more, badge=badge, body=body, note=note)


def _outcome(run: Run) -> str:
    """How a run ended, in words."""
    done = sum(order.done for order in run.orders)
    text = "1 transfer is" if done == 1 else f"{done:,} transfers are"
    how = {"failed": ", then one failed", "cancelled": ", then it was cancelled"}
    last = next((how[order.state] for order in run.orders if order.state in how), "")
    return f"{text} complete{last}."
