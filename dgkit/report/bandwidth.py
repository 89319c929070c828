# SPDX-License-Identifier: Apache-2.0
"""Bandwidth report."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import TYPE_CHECKING, Any

from ..units import plural, size_text
from .base import Report, ends, own_fields

if TYPE_CHECKING:
    from typing_extensions import Self

    from .system_info import Machine  # noqa: F401  # of an inherited field, for the API reference


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class BandwidthReport(Report):
    """Bytes and operations completed in `elapsed_ns` with `window` operations in flight.

    `floor_gb_per_s` is the rate of the floor (`floor_kind`) in 10^9 bytes per second, each time it
    was measured: before and after.
    """

    bytes: int
    ops: int
    elapsed_ns: int
    window: int
    floor_gb_per_s: tuple[float, ...]
    failed: int = 0

    @classmethod
    def of(
        cls,
        bytes: int,
        ops: int,
        elapsed_ns: int,
        *,
        floor_gb_per_s: Sequence[float],
        **fields: Any,
    ) -> Self:
        """Build the report of one run; raise ValueError unless `elapsed_ns` is positive.

        `fields` are the other fields of the class.
        """
        if elapsed_ns <= 0:
            raise ValueError(f"elapsed_ns is {elapsed_ns}; it must be 1 or more")
        return cls(
            bytes=bytes,
            ops=ops,
            elapsed_ns=elapsed_ns,
            floor_gb_per_s=tuple(floor_gb_per_s),
            **fields,
        )

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Self:
        """Build a report from to_dict() output, also after JSON; raise ValueError for others."""
        # Reports of version 0.1 have floor_gbps.
        own = own_fields(cls, {"floor_gb_per_s": data.get("floor_gbps"), **data})
        return cls(**own | {"floor_gb_per_s": tuple(own["floor_gb_per_s"])})

    @property
    def floor_gbps(self) -> tuple[float, ...]:
        """Deprecated name of `floor_gb_per_s`; the next release removes it."""
        from warnings import warn

        text = "floor_gbps is called floor_gb_per_s; the next release has no floor_gbps"
        warn(text, DeprecationWarning, stacklevel=2)
        return self.floor_gb_per_s

    @property
    def gb_per_s(self) -> float:
        """Rate in 10^9 bytes per second."""
        return self.bytes / self.elapsed_ns

    @property
    def ops_per_s(self) -> float:
        """Operations per second."""
        return self.ops * 1e9 / self.elapsed_ns

    @property
    def floor_ratio(self) -> float | None:
        """Rate divided by the floor's rate; None if the floor moved or was not measured."""
        floor = 0 if self.floor_moved or not self.floor_gb_per_s else median(self.floor_gb_per_s)
        return self.gb_per_s / floor if floor else None

    def _floors(self) -> Sequence[float]:
        return self.floor_gb_per_s

    def _figures(self) -> list[tuple[str, str]]:
        ratio = f"; ratio {self.floor_ratio:.2f}" if self.floor_ratio else ""
        floors = " then ".join(f"{gbps:,.2f}" for gbps in self.floor_gb_per_s)
        floor = f"{floors} GB/s ({self.floor_kind}){ratio}"
        rows = [
            ("rate", f"{self.gb_per_s:,.2f} GB/s"),
            ("operations", f"{self.ops_per_s:,.0f} per second"),
            ("moved", f"{size_text(self.bytes)} in {self.elapsed_ns / 1e6:,.2f} ms"),
            ("in flight", plural(self.window, "operation")),
            ("floor", floor if floors else f"no floor: {self.no_floor}"),
        ]
        return [*rows, ("failed", plural(self.failed, "operation"))] if self.failed else rows

    def _short(self) -> str:
        return f"{self.gb_per_s:,.2f} GB/s, {self.ops_per_s:,.0f} operations per second"

    def _flat(self) -> dict[str, Any]:
        names = ("bytes", "ops", "elapsed_ns", "window", "failed", "gb_per_s", "ops_per_s")
        row = {name: getattr(self, name) for name in names}
        return row | ends("floor_{}_gb_per_s", self.floor_gb_per_s)

    def _repr_html_(self) -> str:
        return self._card()
