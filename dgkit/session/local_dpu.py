# SPDX-License-Identifier: Apache-2.0
"""Backend where this process is the DPU: it moves the bytes; the agent has the host memory."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from ..dpu.byte_pool import BytePool
from ..dpu.job import DmaTransferJob
from ..dpu.region_ref import RegionRef
from ..dpu.service import DpuService
from ..errors import ClosedError, Unsupported, copy_of
from ..live_set import LiveSet
from ..wire.messages import Allocate, Allocated
from .session_transfer import SessionTransfer, TransferReport

if TYPE_CHECKING:
    from ..dma import Device
    from ..dpu.benchmark import MeasurementListener
    from ..schema import LatencyResult, LatencyTask, RateResult, RateTask, WatchTask
    from ..wire.connection import Connection
    from .sample_source import SampleSource
    from .session_region import SessionRegion


class LocalDpu:
    """Moves bytes with a DPU service in this process. Thread-safe.

    Args:
        link: Connection to the agent.
        device: Device of this process, which moves the bytes.
        timeout: Seconds, for each plain request.
        no_dma: Why the device cannot reach the agent's memory, else None; transfers raise it.
    """

    def __init__(
        self, link: Connection, device: Device, timeout: float, no_dma: Unsupported | None = None
    ) -> None:
        self.link = link
        self.device = device
        self.provider, self.emulated = device.provider, False
        self.no_dma = no_dma
        self.service = DpuService(device, copies_inline=device.provider != "fault")
        self._timeout = timeout
        self._results = BytePool()
        self._refs: LiveSet[RegionRef] = LiveSet()
        self._lock = threading.Lock()

    def _ref(self, region: SessionRegion) -> RegionRef:
        return region.ref or self._new_ref(region)

    def _new_ref(self, region: SessionRegion) -> RegionRef:
        with self._lock:
            if region.ref is None:
                local, remote = region.local, region.remote
                if local is None and remote is None:
                    if self.no_dma is not None and not region.closed:
                        raise copy_of(self.no_dma)
                    raise ClosedError(f"region {region.name!r} is closed")
                region.ref = RegionRef(region=local, remote=remote)
                self._refs.add(region.ref)
            return region.ref

    def write(self, region: SessionRegion, view: memoryview | bytes, offset: int) -> TransferReport:
        """Write and wait; a small write runs in this thread."""
        ref = self._ref(region)
        if self.service.is_quick(ref, len(view)):
            return TransferReport(self.service.write_quickly(ref, offset, view), self.provider)
        return self._transfer(ref, offset, len(view), memoryview(view)).run()

    def read(self, region: SessionRegion, offset: int, size: int) -> bytes:
        """Read and wait; return the bytes."""
        ref = self._ref(region)
        if self.service.is_quick(ref, size):
            return self.service.read_quickly(ref, offset, size)
        transfer = self._transfer(ref, offset, size, None)
        transfer.run()
        return transfer.data

    def start(
        self, region: SessionRegion, offset: int, size: int, view: memoryview | None
    ) -> SessionTransfer:
        """Start a write of `view`, or a read if `view` is None."""
        return self._transfer(self._ref(region), offset, size, view).start()

    def _transfer(
        self, ref: RegionRef, offset: int, size: int, view: memoryview | None
    ) -> SessionTransfer:
        data = self._results.take(size) if view is None else b""
        job = DmaTransferJob(ref, offset, size, view, data)
        return SessionTransfer(self.service, job, self.provider)

    def copy(self, src: SessionRegion, dst: SessionRegion, size: int) -> TransferReport:
        """Copy and wait, after the transfers with these regions that were started before."""
        moved = self.service.copy(self._ref(src), self._ref(dst), size)
        return TransferReport(moved, self.provider)

    def digest(self, region: SessionRegion, offset: int, size: int) -> str:
        """Return the SHA-256, in hex digits, of bytes that DMA reads; ordered like copy()."""
        return self.service.digest(self._ref(region), offset, size).sha256

    def latency(
        self, region: SessionRegion, task: LatencyTask, listener: MeasurementListener
    ) -> LatencyResult:
        """Measure latencies in this thread."""
        return self.service.latency(self._ref(region), task, listener)

    def bandwidth(
        self, region: SessionRegion, task: RateTask, listener: MeasurementListener
    ) -> RateResult:
        """Measure bandwidth in this thread."""
        return self.service.rate(self._ref(region), task, listener)

    def monitor(self, region: SessionRegion, task: WatchTask, _timeout: float) -> SampleSource:
        """Create a sampler in this process."""
        from .sample_source import LocalSource

        return LocalSource(self.service.watch(self._ref(region), task))

    def counters(self) -> dict[str, int]:
        """Return the counters that Session.stats() adds to the agent's, which moves no bytes."""
        moves, size = self.service.moves, self.service.bytes
        own = {"moves": moves, "bytes": size, "your_moves": moves, "your_bytes": size}
        return own | {"engine_sleeps": self.device.stats.engine_sleeps}

    def allocate(self, region: SessionRegion, name: str, place: str, timeout: float) -> Allocated:
        """Have the agent allocate the memory of a region, and import it if DMA reaches it."""
        request = Allocate(
            size=region.size, access=int(region.access), export=True, name=name, place=place
        )
        allocated: Allocated = region.create(self.link, request, timeout)
        region.handle, region.token = allocated.region, allocated.token
        if self.no_dma is not None:
            return allocated
        try:
            region.remote = self.device.import_region(allocated.token)
        except BaseException:
            region.free_at_agents(0.0, self._timeout)
            raise
        return allocated

    def adopt(self, region: SessionRegion) -> None:
        """Export a region of this process; the agent need not import the DPU's own memory."""
        assert region.local is not None
        region.token = region.local.export()

    def forget(self, region: SessionRegion, timeout: float) -> None:
        """Close this process's side of a region, then the agent's."""
        if region.ref is not None:
            self.service.wait_unused(region.ref)
            region.ref.close(timeout)
            region.ref = None
        region.free_at_agents(timeout, self._timeout)

    def close(self) -> None:
        """End the jobs in progress, and free the queues and the staging memory."""
        self.service.close()
        for ref in self._refs:
            ref.close_loopback()
        self._results.clear()
