# SPDX-License-Identifier: Apache-2.0
"""Measurements of demo and bench through a session."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..session.session_reports import samples_for
from ..sizes import rate_span
from ..units import size_text
from .console import progress_bar

if TYPE_CHECKING:
    from rich.progress import Progress

    from ..report import BandwidthReport, LatencyReport
    from ..session import Session, SessionRegion


@dataclass(frozen=True, slots=True)
class Case:
    """One measurement: `depth` operations of `size` bytes in flight."""

    op: str
    path: str
    size: int
    depth: int = 1

    def __str__(self) -> str:
        deep = f", depth {self.depth}" if self.depth > 1 else ""
        return f"{self.op} {size_text(self.size)}, {self.path}{deep}"


def region_size(cases: Iterable[Case]) -> int:
    """Return the size of the region: enough for each case, so that all are measured in the same."""
    return max(rate_span(case.size, case.depth) for case in cases)


def latencies(
    session: Session,
    region: SessionRegion,
    cases: Sequence[Case],
    *,
    count: int,
    progress: Progress,
) -> Iterable[LatencyReport]:
    """Measure the latency of each case, with `count` samples or fewer for large sizes."""
    for case, inner in _each(cases, "latency", progress):
        yield session.latency(
            region,
            size=case.size,
            op=case.op,
            path=case.path,
            count=samples_for(case.size, count),
            progress=inner,
            destructive=True,  # the region is the sweep's own
        )


def rates(
    session: Session,
    region: SessionRegion,
    cases: Sequence[Case],
    *,
    seconds: float,
    progress: Progress,
) -> Iterable[BandwidthReport]:
    """Measure the rate of each case for `seconds`."""
    for case, inner in _each(cases, "rates", progress):
        yield session.bandwidth(
            region,
            size=case.size,
            op=case.op,
            path=case.path,
            seconds=seconds,
            window=case.depth,
            progress=inner,
            destructive=True,  # the region is the sweep's own
        )


def _each(
    cases: Sequence[Case], name: str, progress: Progress
) -> Iterator[tuple[Case, Callable[[int, int], None]]]:
    """Yield each case with a function that advances its progress bar; a second bar counts cases."""
    with progress_bar(progress, name, len(cases)) as advance:
        for number, case in enumerate(cases):
            with progress_bar(progress, f"  {case}") as inner:
                yield case, inner
            advance(number + 1, len(cases))
