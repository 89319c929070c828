"""Records of finished transfers in plain values, and statistics of repeated transfers."""

from __future__ import annotations

from array import array
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ... import html_cards
from ...errors import ClosedError, PeerLost, PeerTimeout, TransferError
from ..base import namespace

if TYPE_CHECKING:
    from ...session import SessionTransfer, TransferReport
    from ..base.page_input import Json
    from .request import Request

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


@dataclass(frozen=True, slots=True)
class _Read:
    """A completed read; `transfer` holds its bytes and is None once they are kept or discarded."""

    record: Json
    size: int
    head: bytes
    transfer: SessionTransfer | None


class ReadResult:
    """The result of the last read.

    All of its bytes stay in this process until they are kept, discarded, or replaced by the next
    read.
    """

    def __init__(self) -> None:
        self._read: _Read | None = None
        self._kept: dict[str, bytes] = {}

    def store(self, record: Json, transfer: SessionTransfer) -> None:
        """Replace the result by that of a completed read."""
        self._read = _Read(record, transfer.size, transfer.first(_HEAD), transfer)

    def state(self) -> Json | None:
        """Return what a view draws; `whole` is true while all bytes are held."""
        read = self._read
        if read is None:
            return None
        lines = html_cards.hex_lines(read.head, offset=read.record["offset"])
        state = {"number": read.record["number"], "what": read.record["what"]}
        return state | {"size": read.size, "lines": lines, "whole": read.transfer is not None}

    def keep(self, name: str) -> int:
        """Bind the bytes to a variable of the notebook and release them here.

        Args:
            name: The variable; it may replace only a value that was kept under this name before.

        Returns:
            The number of bytes.

        Raises:
            ValueError: No bytes are held, or the name is invalid or taken.
        """
        read = self._read
        if read is None:
            raise ValueError("nothing has been read yet")
        if read.transfer is None:
            raise ValueError("these bytes were kept or discarded already: read them again")
        self.release_unbound()
        namespace.check_available(name, mine=self._kept)
        data = read.transfer.data
        namespace.bind(name, data, mine=self._kept)
        self._kept[name] = data
        self._release(read)
        return read.size

    def discard(self) -> None:
        """Release the bytes; the first ones stay for display."""
        if self._read is not None:
            self._release(self._read)

    def release_unbound(self) -> None:
        """Drop references to kept bytes whose variables no longer exist in the notebook."""
        if self._kept:
            self._kept = namespace.still_bound(self._kept)

    def _release(self, read: _Read) -> None:
        if self._read is read:
            self._read = _Read(read.record, read.size, read.head, None)
