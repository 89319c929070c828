"""Backend where the DPU is an agent: this process provides host memory and sends requests."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

from msgspec.structs import astuple

from ..dma.byte_pool import BytePool
from ..dpu.values import LatencyResult, RateResult
from ..errors import Unsupported
from ..sizes import LARGE, LARGE_SLOTS, SMALL, SMALL_SLOTS
from ..wire.connection import Connection, Pending, ReplyLost
from ..wire.messages import (
    Allocate,
    Allocated,
    Block,
    Digest,
    Free,
    Import,
    Latency,
    Move,
    Progress,
    Rate,
)
from .remote_transfer import SILENCE_S, RemoteTransfer, cancel, check_silence
from .staging import Chunk, SlotPool, StagingPool
from .transfer import SessionTransfer, TransferReport

if TYPE_CHECKING:
    from ..dma import Device
    from ..dpu.values import LatencyTask, MeasurementListener, RateTask, WatchTask
    from .region import SessionRegion
    from .sample_source import SampleSource

_PROGRESS_S = 0.1  # how often a measurement reports progress


class RemoteDpu:
    """Moves bytes by requests to an agent. Thread-safe."""

    _transfer_kind = RemoteTransfer

    def __init__(self, link: Connection, device: Device, provider: str, timeout: float) -> None:
        self.link = link
        self.provider = provider
        self.no_dma: Unsupported | None = None
        self._device = device
        self._timeout = timeout
        self._pools: dict[int, SlotPool] = {}
        self._small: SlotPool | None = None
        self.results = BytePool()
        self._create_lock = threading.Lock()

    def pool(self, size: int) -> SlotPool:
        """Return the staging memory for data of `size` bytes; the agent imports it on first use."""
        slot_size = SMALL if size <= SMALL else LARGE
        pool = self._pools.get(slot_size)
        if pool is None:
            with self._create_lock:
                if slot_size not in self._pools:
                    self._pools[slot_size] = self._create_pool(slot_size)
                pool = self._pools[slot_size]
        return pool

    def _create_pool(self, slot_size: int) -> StagingPool:
        count = SMALL_SLOTS if slot_size == SMALL else LARGE_SLOTS
        pool = StagingPool(self._device, slot_size, count)
        try:
            token = pool.region.export()
            pool.handle = self.link.ask(Import, token, True, timeout=self._timeout).region
        except BaseException:
            pool.close()
            raise
        return pool

    def write(self, region: SessionRegion, view: memoryview | bytes, offset: int) -> TransferReport:
        """Write and wait; one request and one reply if the data fits a small slot."""
        size = len(view)
        if size > SMALL:
            return self._transfer(region, offset, size, memoryview(view)).run()
        pool = self._small or self._small_pool()
        chunk = Chunk(0, size)
        slot = pool.acquire(chunk)
        if slot is None:
            return self._transfer(region, offset, size, memoryview(view)).run()
        pool.buffer[slot : slot + size] = view
        spans = (pool.handle, slot, region.handle, offset, size)

        def then(_: Pending) -> None:  # keeps the chunk, and so its slot, in use until the reply
            chunk.finished = True
            pool.wake()

        pending = self.link.exchange(Move, spans, then)
        if pending is None:
            pending = self.link.post(Move, *spans, then=then)
        try:
            reply = pending.reply if pending.done and not pending.error else self._wait(pending)
        except ReplyLost:  # repeating the write is harmless
            return self.write(region, view, offset)
        return TransferReport(reply, self.provider)

    def _small_pool(self) -> SlotPool:
        self._small = self.pool(SMALL)
        return self._small

    def read(self, region: SessionRegion, offset: int, size: int) -> bytes:
        """Read and wait; return the bytes."""
        transfer = self._transfer(region, offset, size, None)
        transfer.run()
        return transfer.data

    def start(
        self, region: SessionRegion, offset: int, size: int, view: memoryview | None
    ) -> SessionTransfer:
        """Start a write of `view`, or a read if `view` is None."""
        return self._transfer(region, offset, size, view).start()

    def _transfer(
        self, region: SessionRegion, offset: int, size: int, view: memoryview | None
    ) -> SessionTransfer:
        data = self.results.take(size) if view is None else None
        target = (region.handle, offset)
        return self._transfer_kind(self.link, self.pool(size), self.provider, target, view, data)

    def _wait(self, pending: Pending) -> Any:
        """Return the reply to a request; wait as long as the agent lives and is not silent."""
        try:
            while not self.link.wait(pending, SILENCE_S):
                check_silence(self.link)
        except BaseException:  # also Ctrl-C: the result is no longer wanted
            cancel(self.link, pending)
            raise
        return pending.result()

    def copy(self, src: SessionRegion, dst: SessionRegion, size: int) -> TransferReport:
        """Copy and wait; the DPU reads `src` and writes `dst`."""
        moved = self._request(Move, src.handle, 0, dst.handle, 0, size)
        return TransferReport(moved, self.provider)

    def digest(self, region: SessionRegion, offset: int, size: int) -> str:
        """Return the SHA-256, in hex digits, of bytes that the DPU reads."""
        return str(self._request(Digest, region.handle, offset, size).sha256)

    def _request(self, kind: type, *fields: Any) -> Any:
        """Send a request that is safe to repeat, and return the reply."""
        while True:
            try:
                return self._wait(self.link.post(kind, *fields))
            except ReplyLost:
                continue

    def latency(
        self, region: SessionRegion, task: LatencyTask, listener: MeasurementListener
    ) -> LatencyResult:
        """Measure latencies at the agent."""
        return LatencyResult(*self._measure(Latency, region, task, listener))

    def bandwidth(
        self, region: SessionRegion, task: RateTask, listener: MeasurementListener
    ) -> RateResult:
        """Measure bandwidth at the agent."""
        return RateResult(*self._measure(Rate, region, task, listener))

    def _measure(
        self,
        kind: type,
        region: SessionRegion,
        task: tuple[Any, ...],
        listener: MeasurementListener,
    ) -> tuple[Any, ...]:
        """Return the fields of the reply after its number."""

        def news(message: Any) -> None:
            if isinstance(message, Block):
                listener.add_block(message.number, message.samples)
            elif isinstance(message, Progress):
                listener.add_progress(message.done, message.total)

        pending = self.link.post(kind, region.handle, *task, news=news)
        try:
            while not self.link.wait(pending, _PROGRESS_S):
                listener.check()
                check_silence(self.link)
        except BaseException:  # also Ctrl-C: the agent need not continue
            cancel(self.link, pending)
            raise
        listener.check()
        return astuple(pending.result())[1:]

    def monitor(self, region: SessionRegion, task: WatchTask, timeout: float) -> SampleSource:
        """Start a monitor at the agent."""
        from .sample_source import RemoteSource

        return RemoteSource(self.link, region.handle, task, timeout)

    def allocate(self, region: SessionRegion, name: str, place: str, timeout: float) -> Allocated:
        """Have the agent allocate the memory of a region."""
        fields = (region.size, int(region.access), False, name, place)
        allocated: Allocated = self.link.ask(Allocate, *fields, timeout=timeout)
        region.handle = allocated.region
        return allocated

    def adopt(self, region: SessionRegion) -> None:
        """Have the agent import a region of this process."""
        assert region.local is not None
        region.token = region.local.export()
        region.handle = self.link.ask(Import, region.token, timeout=self._timeout).region

    def forget(self, region: SessionRegion, timeout: float) -> None:
        """Have the agent close its side of a region."""
        if region.handle:
            self.link.ask(Free, region.handle, timeout, timeout=self._timeout + timeout)

    def counters(self) -> dict[str, int]:
        """Return the counters that Session.stats() adds to the agent's counters: none."""
        return {}

    def close(self) -> None:
        """Free the staging memory; the link is closed by then, so nothing uses it."""
        for pool in self._pools.values():
            pool.close()
        self._pools.clear()
        self.results.clear()
