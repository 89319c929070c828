# SPDX-License-Identifier: Apache-2.0
"""Latency report."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from statistics import median
from typing import TYPE_CHECKING, Any

from .. import html_cards
from ..units import us
from .base import Report, ends, own_fields
from .samples import Histogram, Percentiles

if TYPE_CHECKING:
    from typing_extensions import Self

    from .system_info import Machine  # noqa: F401  # of an inherited field, for the API reference


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class LatencyReport(Report):
    """Time of one operation, from before its submit to after its completion was reaped.

    `floor_ns` is the median of the machine's floor each time it was measured: before and after.
    """

    percentiles: Percentiles
    histogram: Histogram
    floor_ns: tuple[int, ...]

    @classmethod
    def of(cls, samples_ns: Sequence[int], *, floor_ns: Sequence[int], **fields: Any) -> Self:
        """Build the report of samples in ns, in any order; raise ValueError if there are none.

        `fields` are the other fields of the class.
        """
        if not len(samples_ns):
            raise ValueError("a latency report requires at least one sample")
        ordered = sorted(samples_ns)
        return cls(
            percentiles=Percentiles.of(ordered), histogram=Histogram.of(ordered),
            floor_ns=tuple(floor_ns), **fields,
        )  # fmt: skip

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Self:
        """Build a report from to_dict() output, also after JSON; raise ValueError for others."""
        own = own_fields(cls, data)
        own["percentiles"] = Percentiles(**data["percentiles"])
        own["histogram"] = Histogram(*(tuple(data["histogram"][k]) for k in ("edges_ns", "counts")))
        return cls(**own | {"floor_ns": tuple(data["floor_ns"])})

    @property
    def p50_ns(self) -> int:
        """Median in ns."""
        return self.percentiles.p50_ns

    @property
    def p99_ns(self) -> int:
        """99th percentile in ns."""
        return self.percentiles.p99_ns

    @property
    def floor_ratio(self) -> float | None:
        """Median divided by the floor's; None if the floor moved or was not measured."""
        floor = 0 if self.floor_moved or not self.floor_ns else median(self.floor_ns)
        return self.p50_ns / floor if floor else None

    def _floors(self) -> Sequence[float]:
        return self.floor_ns

    def _floor_limit(self) -> float:
        return self.p50_ns

    def _floor(self) -> str:
        by_caller = self.path == "inline" or self.provider == "cuda"
        return "memcpy" if by_caller else "another thread copies"

    def _figures(self) -> list[tuple[str, str]]:
        figures = self.percentiles.rows()
        width = max(len(us(ns)) for _, ns in figures)
        rows = [("samples", f"{self.percentiles.n:,}")]
        rows += [(name, f"{us(ns):>{width}} µs") for name, ns in figures]
        floors = " then ".join(us(ns) for ns in self.floor_ns)
        ratio = f"; ratio {self.floor_ratio:.2f}" if self.floor_ratio else ""
        floor = f"{floors} µs ({self.floor_kind}){ratio}"
        return [*rows, ("floor p50", floor if floors else f"no floor: {self.no_floor}")]

    def _short(self) -> str:
        n = self.percentiles.n
        return f"p50 {us(self.p50_ns)} µs, p99 {us(self.p99_ns)} µs, {n:,} samples"

    def _flat(self) -> dict[str, Any]:
        return asdict(self.percentiles) | ends("floor_{}_ns", self.floor_ns)

    def _repr_html_(self) -> str:
        marks = [row for row in self.percentiles.rows() if row[0] in ("p50", "p99", "p99.9")]
        return self._card(html_cards.chart(self.histogram.edges_ns, self.histogram.counts, marks))
