# SPDX-License-Identifier: Apache-2.0
"""The DMAs of the listed transfers on one time axis: lanes, rows, elapsed time, throughput."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ..base.page_input import Json

BURST_GAP_NS = 50_000_000  # transfers further apart belong to different bursts


def timeline(records: Iterable[Json]) -> Json | None:
    """Lay out the DMAs of completed transfers; times are ns after the first submit.

    A lane has the transfers of one operation and path, such as "write, worker". Transfers of a lane
    that overlap are in different rows. Of a transfer with several DMAs, the first and the last are
    known.

    Args:
        records: Records of transfers (see `completions`), oldest first; those without a DMA are
            left out.

    Returns:
        `lanes` ([name, rows]), `bars` ([number, lane, row, dmas], of each DMA [operation, submit,
        post, complete]), and the spans `all` and `latest` (the last burst), see _span(); None
        without a DMA.
    """
    moved = sorted(
        (record for record in records if "complete_ns" in record),
        key=lambda record: (_begin(record), record["number"]),
    )
    if not moved:
        return None
    base = _begin(moved[0])
    names = sorted({_lane_name(record) for record in moved})
    ends: list[list[int]] = [[] for _ in names]  # of the last transfer in each row of each lane
    bars = []
    for record in moved:
        lane, begin = names.index(_lane_name(record)), _begin(record)
        row = next((at for at, end in enumerate(ends[lane]) if end <= begin), len(ends[lane]))
        ends[lane][row : row + 1] = [_end(record)]
        bars.append([record["number"], lane, row, _dmas(record, record["submit_ns"] - base)])
    lanes = [[name, len(rows)] for name, rows in zip(names, ends, strict=True)]
    latest = _latest(moved)
    return {"lanes": lanes, "bars": bars, "all": _span(moved, base), "latest": _span(latest, base)}


def _lane_name(record: Json) -> str:
    return f"{record['op']}, {record['path']}"


def _dmas(record: Json, submit: int) -> list[list[Any]]:
    """Return the first and the last DMA of a transfer, or its only one, as for `timeline`."""
    last = [record["dma"], submit, submit + record["post_ns"], submit + record["complete_ns"]]
    if not record.get("first"):
        return [last]
    both = record["read_ns"] and record["write_ns"]
    return [["READ" if both else record["dma"], *(submit + ns for ns in record["first"])], last]


def _begin(record: Json) -> int:
    first = record.get("first")
    return int(record["submit_ns"] + (first[0] if first else 0))


def _end(record: Json) -> int:
    return int(record["submit_ns"] + record["complete_ns"])


def _latest(moved: list[Json]) -> list[Json]:
    """Return the records of the last burst."""
    first, ended = 0, _end(moved[0])
    for at, record in enumerate(moved):
        if _begin(record) - ended > BURST_GAP_NS:
            first = at
        ended = max(ended, _end(record))
    return moved[first:]


def _span(moved: list[Json], base: int) -> Json:
    """Return `from`, `to`, `count`, `bytes`, and the throughput `rate` in bytes per second.

    The rate is of the bytes of successful transfers over the whole span; None if there are none.
    """
    begin, end = _begin(moved[0]), max(_end(record) for record in moved)
    size = sum(record["size"] for record in moved if record["status"] == "OK")
    rate = size * 1e9 / (end - begin) if size and end > begin else None
    return {
        "from": begin - base, "to": end - base, "count": len(moved), "bytes": size, "rate": rate,
    }  # fmt: skip
