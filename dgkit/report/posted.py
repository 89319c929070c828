"""Reports of operations that a GPU's kernels post (GPU-initiated)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from .bandwidth import BandwidthReport
from .latency import LatencyReport

if TYPE_CHECKING:  # of inherited fields, for the API reference
    from .samples import Histogram, Percentiles  # noqa: F401
    from .system_info import Machine  # noqa: F401

__all__ = ["GPU_INITIATED", "PostedLatencyReport", "PostedRateReport", "posted_label"]

GPU_INITIATED = "GPU-initiated"  # path of such operations
_BELOW = ("fenced", "gpu", "emulated", "owner", "proxy", "rings", "threads")


def posted_label(label: str, *, emulated: bool) -> str:
    """Return the label of a provider with that of the GPU, if it is the emulated one."""
    return f"{label}, emulated GPU" if emulated else label


def _rows(report: PostedLatencyReport | PostedRateReport) -> list[tuple[str, str]]:
    """Return the rows that say how the operations were posted."""
    shape = f"{report.rings} x {report.threads} threads" if report.threads > 1 else "one thread"
    released = {True: ", fenced", False: ", DG_NO_RELEASE", None: ""}[report.fenced]
    where = f"in {report.proxy}; owner {report.owner}"
    return [("kernel", f"{report.gpu}, {shape}{released}"), ("proxy", where)]


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class PostedLatencyReport(LatencyReport):
    """Time of one operation of a kernel's thread, until its wait has seen the completion.

    The floor is a doorbell of a kernel that a loop in C answers.

    Attributes:
        fenced: What the kernel wrote is released first; False: DG_NO_RELEASE; None: no bytes.
        gpu: Name of the GPU, or "emulated GPU".
        emulated: The kernel ran on the emulated GPU: the figures are those of this CPU.
        owner: "idle", or "busy": another kernel computed meanwhile.
        proxy: Process of the proxy: "this process" or "DPU".
        rings: Queues that were posted to.
        threads: Threads for each queue.
    """

    fenced: bool | None
    gpu: str
    emulated: bool
    owner: str
    proxy: str
    rings: int = 1
    threads: int = 1

    @property
    def label(self) -> str:
        """Label of the provider, and "emulated GPU" if it was."""
        # Without arguments, super() does not work in a class with slots.
        return posted_label(super(PostedLatencyReport, self).label, emulated=self.emulated)

    @property
    def floor_kind(self) -> str:
        """Kind of the floor."""
        return "bare doorbell, answered by a C loop"

    def _rows(self) -> list[tuple[str, str]]:
        return [*super(PostedLatencyReport, self)._rows(), *_rows(self)]

    def _flat(self) -> dict[str, Any]:
        own = {name: getattr(self, name) for name in _BELOW}
        return super(PostedLatencyReport, self)._flat() | own


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class PostedRateReport(BandwidthReport):
    """Operations of one kernel, from its first post until all are complete.

    The floor is the rate at which the same threads store records that are not taken. Attributes as
    those of PostedLatencyReport.
    """

    fenced: bool | None
    gpu: str
    emulated: bool
    owner: str
    proxy: str
    rings: int = 1
    threads: int = 1

    @property
    def label(self) -> str:
        """Label of the provider, and "emulated GPU" if it was."""
        return posted_label(super(PostedRateReport, self).label, emulated=self.emulated)

    @property
    def floor_kind(self) -> str:
        """Kind of the floor."""
        return "records stored, not taken"

    def _rows(self) -> list[tuple[str, str]]:
        return [*super(PostedRateReport, self)._rows(), *_rows(self)]

    def _flat(self) -> dict[str, Any]:
        own = {name: getattr(self, name) for name in _BELOW}
        return super(PostedRateReport, self)._flat() | own
