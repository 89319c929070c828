# SPDX-License-Identifier: Apache-2.0
"""Backend protocol: what a session requires of a DPU, in this process or at an agent."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from ..dpu.benchmark import MeasurementListener
    from ..errors import Unsupported
    from ..schema import LatencyResult, LatencyTask, RateResult, RateTask, WatchTask
    from ..wire.connection import Connection
    from ..wire.messages import Allocated
    from .sample_source import SampleSource
    from .session_region import SessionRegion
    from .session_transfer import SessionTransfer, TransferReport


class Backend(Protocol):
    """Moves the bytes of a session; LocalDpu, RemoteDpu and TwoAgents implement it. Thread-safe.

    Offsets and sizes were checked by the session. Errors are those of the session's methods.

    Attributes:
        link: Connection to the agent, or to the DPU's if both sides are agents.
        provider: Name of the provider that moves the bytes.
        emulated: The DPU is an emulated machine elsewhere.
        no_dma: Why the DPU does not reach the host's memory; None if it does.
    """

    link: Connection
    provider: str
    emulated: bool
    no_dma: Unsupported | None

    def start(
        self, region: SessionRegion, offset: int, size: int, view: memoryview | None, /
    ) -> SessionTransfer:
        """Start a write of `view`, or a read if `view` is None."""

    def write(
        self, region: SessionRegion, view: memoryview | bytes, offset: int, /
    ) -> TransferReport:
        """Write `view` to the region from byte `offset` on, and wait."""

    def read(self, region: SessionRegion, offset: int, size: int, /) -> bytes:
        """Read and wait; return the bytes."""

    def copy(self, src: SessionRegion, dst: SessionRegion, size: int, /) -> TransferReport:
        """Copy the first `size` bytes of `src` to `dst` and wait."""

    def digest(self, region: SessionRegion, offset: int, size: int, /) -> str:
        """Return the SHA-256, in hex digits, of bytes that DMA reads."""

    def latency(
        self, region: SessionRegion, task: LatencyTask, listener: MeasurementListener, /
    ) -> LatencyResult:
        """Measure latencies."""

    def bandwidth(
        self, region: SessionRegion, task: RateTask, listener: MeasurementListener, /
    ) -> RateResult:
        """Measure bandwidth."""

    def monitor(self, region: SessionRegion, task: WatchTask, timeout: float, /) -> SampleSource:
        """Start taking samples."""

    def allocate(
        self, region: SessionRegion, name: str, place: str, timeout: float, /
    ) -> Allocated:
        """Have an agent allocate the memory of a region, and make it usable by the DPU."""

    def adopt(self, region: SessionRegion, /) -> None:
        """Make a region of this process usable by the DPU."""

    def forget(self, region: SessionRegion, timeout: float, /) -> None:
        """Close the DPU's and the agent's side of a region."""

    def counters(self) -> dict[str, int]:
        """Return the counters of Session.stats() that the agent does not have."""

    def close(self) -> None:
        """Free queues and staging memory; the link is closed by then."""
