# SPDX-License-Identifier: Apache-2.0
"""Latencies and rates of one pair, measured in its worker."""

from __future__ import annotations

import time
from collections.abc import Sequence
from statistics import median
from typing import TYPE_CHECKING, Any

from ..session.session_reports import samples_for
from ..sizes import rate_span
from .pair_plugin import plugin_here, session_here

if TYPE_CHECKING:
    from ..report import BandwidthReport, LatencyReport
    from ..session import Session

_WINDOW = 32  # transfers in flight when a rate is measured; Session.bandwidth()'s default


def measure(plugin: str, agent: str, *plan: Any) -> list[dict[str, Any]]:
    """Call measure_session() on the session of the worker that runs this task.

    Args:
        plugin: Name of the worker plugin that holds the session.
        agent: Address of another pair's agent to open a session with instead, or "".
        plan: Further arguments of measure_session().
    """
    if not agent:
        return measure_session(session_here(plugin), *plan)
    with plugin_here(plugin).connect(agent) as session:
        return measure_session(session, *plan)


def measure_session(
    session: Session,
    op: str,
    path: str,
    sizes: Sequence[int],
    on: str,
    count: int,
    seconds: float,
) -> list[dict[str, Any]]:
    """Measure latency, then rate, each with its floor; return one row for each size.

    Args:
        session: The pair's session.
        op: "write" or "read".
        path: "auto", "inline" or "worker".
        sizes: Sizes of a transfer in bytes.
        on: Where the region is, as for Session.empty().
        count: Samples of a latency; fewer for large sizes.
        seconds: Duration of each measurement of a rate.
    """
    with session.empty(rate_span(max(sizes), _WINDOW), on=on, name="fleet") as region:
        rows = []
        for size in sizes:
            started, start = time.time(), time.monotonic()
            latency = session.latency(
                region, size, op, samples_for(size, count), path, destructive=True
            )
            rate = session.bandwidth(region, size, op, seconds, _WINDOW, path, destructive=True)
            figures = _row(latency, rate) | {"requested_path": path, "region": region.place}
            rows.append(figures | {"started": started, "took_s": time.monotonic() - start})
        return rows


def _row(latency: LatencyReport, rate: BandwidthReport) -> dict[str, Any]:
    """Return the figures of one size; None where a floor was not measured."""
    return {
        "op": latency.op,
        "path": latency.path,
        "size": latency.size,
        "provider": latency.provider,
        "label": latency.label,
        "samples": latency.percentiles.n,
        "p50_ns": latency.p50_ns,
        "p99_ns": latency.p99_ns,
        "max_ns": latency.percentiles.max_ns,
        "floor_ns": median(latency.floor_ns) if latency.floor_ns else None,
        "gb_per_s": rate.gb_per_s,
        "floor_gb_per_s": median(rate.floor_gb_per_s) if rate.floor_gb_per_s else None,
        "failed": rate.failed,
        "floor_moved": latency.floor_moved or rate.floor_moved,
    }
