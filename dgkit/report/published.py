# SPDX-License-Identifier: Apache-2.0
"""Figures of real hardware that others have published, each with its setup and source."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from ..units import size_text

_FILE = Path(__file__).with_name("published.json")


@dataclass(frozen=True, slots=True)
class Published:
    """One published series.

    Attributes:
        what: What was measured.
        quantity: "latency" or "rate".
        op: "read" or "write", seen from the DPU; "" for neither.
        unit: "us" or "M/s", millions of operations a second.
        points: Figure by size in bytes.
        setup: On what.
        source: Where it is published.
    """

    what: str
    quantity: str
    op: str
    unit: str
    points: dict[int, float]
    setup: str
    source: str

    def figures(self) -> str:
        """Return the figures as text, with their sizes."""
        unit = "µs" if self.unit == "us" else self.unit
        rows = [f"{value:g} {unit} at {size_text(size)}" for size, value in self.points.items()]
        return ", ".join(rows)


@cache
def published() -> list[Published]:
    """Return all series, as the data file has them: nothing is interpolated or extrapolated."""
    rows = json.loads(_FILE.read_text("utf-8"))["rows"]
    return [
        Published(**row | {"points": {int(size): value for size, value in row["points"].items()}})
        for row in rows
    ]


def latencies(op: str) -> list[dict[str, Any]]:
    """Return each point of the latencies of an operation, and of those that are of neither."""
    return [
        {"size": size, "us": us, "what": row.what, "source": f"{row.setup}; {row.source}"}
        for row in published()
        if row.quantity == "latency" and row.op in ("", op)
        for size, us in row.points.items()
    ]


def page() -> list[str]:
    """Return the lines that show them beside own figures."""
    lines = ["Published by others, on hardware; no prediction for this machine:"]
    for row in published():
        lines += [f"  {row.what}: {row.figures()}", f"    {row.setup}; {row.source}"]
    return lines
