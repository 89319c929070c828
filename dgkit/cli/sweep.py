"""What demo and bench measure through a session."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..units import size_text
from .console import step

if TYPE_CHECKING:
    from rich.progress import Progress

    from ..report import BandwidthReport, LatencyReport
    from ..session import Session, SessionRegion

__all__ = ["Case", "latencies", "rates", "samples_for"]

_BYTES = 512 << 20  # moved by one latency case at most, so that 64 MiB does not take minutes


@dataclass(frozen=True, slots=True)
class Case:
    """One row: `depth` operations of `size` bytes in flight."""

    op: str
    path: str
    size: int
    depth: int = 1

    def __str__(self) -> str:
        deep = f", depth {self.depth}" if self.depth > 1 else ""
        return f"{self.op} {size_text(self.size)}, {self.path}{deep}"


def samples_for(size: int, count: int) -> int:
    """`count`, or fewer for sizes that would take long; at least 20."""
    return max(20, min(count, _BYTES // size))


def latencies(
    session: Session,
    region: SessionRegion,
    cases: Sequence[Case],
    *,
    count: int,
    progress: Progress,
) -> Iterable[LatencyReport]:
    """One operation at a time, `count` times or as many as a case has time for."""
    for case, inner in _each(cases, "latency", progress):
        yield session.latency(
            region,
            size=case.size,
            op=case.op,
            path=case.path,
            count=samples_for(case.size, count),
            progress=inner,
        )


def rates(
    session: Session,
    region: SessionRegion,
    cases: Sequence[Case],
    *,
    seconds: float,
    progress: Progress,
) -> Iterable[BandwidthReport]:
    """`case.depth` operations in flight for `seconds` each."""
    for case, inner in _each(cases, "rates", progress):
        yield session.bandwidth(
            region,
            size=case.size,
            op=case.op,
            path=case.path,
            seconds=seconds,
            window=case.depth,
            progress=inner,
        )


def _each(
    cases: Sequence[Case], name: str, progress: Progress
) -> Iterator[tuple[Case, Callable[[int, int], None]]]:
    """Each case, with what tells the bar of its own; another bar counts the cases."""
    with step(progress, name, len(cases)) as advance:
        for number, case in enumerate(cases):
            with step(progress, f"  {case}") as inner:
                yield case, inner
            advance(number + 1, len(cases))
