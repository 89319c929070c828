# SPDX-License-Identifier: Apache-2.0
"""Reports of operations that a GPU's kernels post (GPU-initiated)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from .bandwidth import BandwidthReport
from .base import Report
from .latency_report import LatencyReport

if TYPE_CHECKING:  # types of inherited fields, for the API reference
    from .samples import Histogram, Percentiles  # noqa: F401
    from .system_info import Machine  # noqa: F401

GPU_INITIATED = "GPU-initiated"  # path of such operations


def posted_label(label: str, *, emulated: bool) -> str:
    """Return the label of a provider, with "emulated GPU" added if the GPU is emulated."""
    return f"{label}, emulated GPU" if emulated else label


@dataclass(frozen=True, kw_only=True, repr=False)
class _Posted(Report):
    """Fields that say how a GPU's kernel posted the operations of a report.

    The reports have the slots: two bases of a class cannot both have some.
    """

    __slots__ = ()

    fenced: bool | None
    gpu: str
    emulated: bool
    owner: str
    proxy: str
    memory: str = "host to host"
    rings: int = 1
    threads: int = 1

    @property
    def label(self) -> str:
        """Label of the provider, with "emulated GPU" added if the GPU was emulated."""
        return posted_label(super().label, emulated=self.emulated)

    def _rows(self) -> list[tuple[str, str]]:
        shape = f"{self.rings} x {self.threads} threads" if self.threads > 1 else "one thread"
        released = {True: ", fenced", False: ", DG_NO_RELEASE", None: ""}[self.fenced]
        where = f"in {self.proxy}; owner {self.owner}"
        rows = [("kernel", f"{self.gpu}, {shape}{released}"), ("proxy", where)]
        rows.append(("memory", self.memory))
        return [*super()._rows(), *rows]

    def _extra_columns(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in _Posted.__annotations__}


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class PostedLatencyReport(_Posted, LatencyReport):
    """Time of one operation of a kernel's thread, until its wait has seen the completion.

    The floor is the round trip of a kernel's doorbell that a C loop on the CPU answers.

    Attributes:
        fenced: The kernel's writes are released first; False: DG_NO_RELEASE; None: no bytes.
        gpu: Name of the GPU, or "emulated GPU".
        emulated: The kernel ran on the emulated GPU: the figures are those of this CPU.
        owner: "idle", or "busy": another kernel computed meanwhile.
        proxy: Process of the proxy: "this process" or "DPU process".
        memory: Kinds of memory, source to destination: "host to host", "pinned to GPU", "GPU to
            GPU"; ", scattered" is appended if neighbouring threads use addresses that are not
            adjacent.
        rings: Queues that were posted to.
        threads: Threads for each queue.
    """

    @property
    def floor_kind(self) -> str:
        """Kind of the floor."""
        return "bare doorbell, answered by a C loop"


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class PostedRateReport(_Posted, BandwidthReport):
    """Operations of one kernel, from its first post until all are complete.

    The floor is the rate at which the same threads store records that nothing consumes. Attributes
    are those of PostedLatencyReport.
    """

    @property
    def floor_kind(self) -> str:
        """Kind of the floor."""
        return "records stored, not taken"
