"""How transfers went, in plain values: one each, and a repeat's least, median and most."""

from __future__ import annotations

from array import array
from typing import TYPE_CHECKING, Any

from ...errors import ClosedError, PeerLost, PeerTimeout, TransferError
from ...html_cards import Html
from ...units import us

if TYPE_CHECKING:
    from ...session import TransferReport
    from .request import Order

__all__ = ["Stamps", "failure", "success", "timeline"]

# Of what a repeat's figures are. Each is a time on the DPU's clock, stamped in C.
_WHAT = (
    ("last", "last DMA of a transfer, submit to complete"),
    ("read", "all READs of a transfer"),
    ("write", "all WRITEs of a transfer"),
)


def success(number: int, order: Order, report: TransferReport) -> dict[str, Any]:
    """A transfer that is complete. Times are in ns after its last DMA's submit."""
    return _record(number, order, "OK", report.size) | {
        "path": report.path, "dma": report.op.name, "provider": report.provider,
        "submit_ns": str(report.submit_ns),  # text: more than a browser's numbers hold
        "post_ns": report.post_ns - report.submit_ns,
        "complete_ns": report.complete_ns - report.submit_ns,
        "read_ns": report.read_ns, "write_ns": report.write_ns, "chunks": report.chunks,
    }  # fmt: skip


def failure(number: int, order: Order, error: Exception, moved: int) -> dict[str, Any]:
    """A transfer that was started and ended in an error, after `moved` bytes."""
    record = _record(number, order, _status(error), moved) | {"error": str(error)}
    if not isinstance(error, TransferError):
        return record
    last = error.completion
    return record | {
        "path": str(last.path), "dma": last.op.name, "submit_ns": str(last.submit_ns),
        "post_ns": last.post_ns - last.submit_ns,
        "complete_ns": last.complete_ns - last.submit_ns,
    }  # fmt: skip


def _record(number: int, order: Order, status: str, size: int) -> dict[str, Any]:
    what = f"{order.op} {order.region.name}"
    return {"number": number, "what": what, "status": status, "size": size, "offset": order.offset}


def _status(error: Exception) -> str:
    if isinstance(error, TransferError):
        return str(error.completion.status.name)
    named = ((PeerLost, "PEER_LOST"), (PeerTimeout, "TIMED_OUT"), (ClosedError, "CLOSED"))
    return next((name for kind, name in named if isinstance(error, kind)), type(error).__name__)


class Stamps:
    """The times of a repeat's transfers, from their completions' stamps."""

    def __init__(self) -> None:
        self._ns = {name: array("q") for name, _ in _WHAT}
        self._bytes = 0

    def add(self, report: TransferReport) -> None:
        """One more."""
        self._bytes += report.size
        for name, ns in zip(
            self._ns, (report.latency_ns, report.read_ns, report.write_ns), strict=True
        ):
            self._ns[name].append(ns)

    def summary(self) -> dict[str, Any] | None:
        """`count`, `bytes`, and rows of [what, min, median, max] in ns; None for less than two."""
        count = len(self._ns["last"])
        if count < 2:
            return None
        made = []
        for name, what in _WHAT:
            ns = sorted(self._ns[name])
            if ns[-1] > 0:  # else there was no such DMA
                middle = (ns[(count - 1) // 2] + ns[count // 2]) / 2
                made.append([what, ns[0], middle, ns[-1]])
        return {"count": count, "bytes": self._bytes, "rows": made}


def timeline(record: dict[str, Any]) -> Html | str:
    """Submit, post and complete as two boxes, each as long as it took; of the last DMA."""
    if "complete_ns" not in record:
        return ""
    post, complete = record["post_ns"], record["complete_ns"]
    share = 100 * post / complete if complete else 0
    text = f"0, {us(post)}, {us(complete)}"
    box = "position:absolute;top:0px;bottom:0px"
    return Html(
        '<div style="position:relative;width:90px;height:8px">'
        f'<div style="{box};left:0px;width:{share:.1f}%;background-color:#c75b00"></div>'
        f'<div style="{box};right:0px;width:{100 - share:.1f}%;background-color:#1e88e5"></div>'
        f'</div><div style="font-size:11px">{text}</div>'
    )
