"""The last DMA of each listed transfer on one time axis: lanes, rows, elapsed time, throughput."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

__all__ = ["BURST_GAP_NS", "timeline"]

BURST_GAP_NS = 50_000_000  # transfers that are further apart are not of one burst


def timeline(records: Iterable[dict[str, Any]]) -> dict[str, Any] | None:
    """Lay out the DMAs of completed transfers; times are ns after the first submit.

    A lane has the transfers of one operation and path, such as "write, worker". DMAs of a lane that
    overlap are in different rows.

    Args:
        records: Records of transfers (see `completions`), oldest first; those without a DMA are
            left out.

    Returns:
        `lanes` ([name, rows]), `bars` ([number, lane, row, submit, post, complete]), and the spans
        `all` and `latest` (the last burst), see _span(); None without a DMA.
    """
    moved = sorted(
        (record for record in records if "complete_ns" in record),
        key=lambda record: (record["submit_ns"], record["number"]),
    )
    if not moved:
        return None
    base = moved[0]["submit_ns"]
    names = sorted({_lane(record) for record in moved})
    ends: list[list[int]] = [[] for _ in names]  # of the last DMA in each row of each lane
    bars = []
    for record in moved:
        lane, submit = names.index(_lane(record)), record["submit_ns"] - base
        complete = submit + record["complete_ns"]
        row = next((at for at, end in enumerate(ends[lane]) if end <= submit), len(ends[lane]))
        ends[lane][row : row + 1] = [complete]
        bars.append([
            record["number"], lane, row, submit, submit + record["post_ns"], complete,
        ])  # fmt: skip
    lanes = [[name, len(rows)] for name, rows in zip(names, ends, strict=True)]
    latest = _latest(moved)
    return {"lanes": lanes, "bars": bars, "all": _span(moved, base), "latest": _span(latest, base)}


def _lane(record: dict[str, Any]) -> str:
    return f"{record['op']}, {record['path']}"


def _end(record: dict[str, Any]) -> int:
    return int(record["submit_ns"] + record["complete_ns"])


def _latest(moved: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the records of the last burst."""
    first, ended = 0, _end(moved[0])
    for at, record in enumerate(moved):
        if record["submit_ns"] - ended > BURST_GAP_NS:
            first = at
        ended = max(ended, _end(record))
    return moved[first:]


def _span(moved: list[dict[str, Any]], base: int) -> dict[str, Any]:
    """Return `from`, `to`, `count`, `bytes`, and the throughput `rate` in bytes per second.

    The rate is of what completed after the first completion, over the time from that to the last
    completion: the stamps do not say when the first transfer began, whose last DMA alone they are
    of. It is None for fewer than two successful transfers.
    """
    done = sorted((_end(record), record["size"]) for record in moved if record["status"] == "OK")
    rate = None
    if len(done) > 1 and done[-1][0] > done[0][0]:
        rate = sum(size for _, size in done[1:]) * 1e9 / (done[-1][0] - done[0][0])
    return {
        "from": moved[0]["submit_ns"] - base, "to": max(_end(record) for record in moved) - base,
        "count": len(moved), "bytes": sum(size for _, size in done), "rate": rate,
    }  # fmt: skip
