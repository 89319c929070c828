"""Backend where the DPU is an agent: this process lends its memory and sends requests."""

from __future__ import annotations

import threading
from collections.abc import Callable, Generator
from typing import TYPE_CHECKING, Any

from ..dma.byte_pool import BytePool
from ..errors import PeerTimeout, Unsupported
from ..wire.connection import Connection, Pending, ReplyLost
from ..wire.messages import (
    Allocate,
    Allocated,
    Cancel,
    Digest,
    Free,
    Import,
    Latency,
    LatencyDone,
    Move,
    Rate,
    RateDone,
)
from .staging import Chunk, SlotPool, StagingPool
from .transfer import SessionTransfer, TransferReport

if TYPE_CHECKING:
    from ..dma import Device
    from ..wire.messages import Moved
    from .backend import MeasurementListener
    from .region import SessionRegion
    from .sample_source import SampleSource

__all__ = ["SILENCE_S", "RemoteDpu", "RemoteTransfer"]

SILENCE_S = 30.0  # a request whose agent sends nothing for so long is given up
SMALL, SMALL_SLOTS = 1 << 16, 16
LARGE, LARGE_SLOTS = 1 << 21, 4
_PROGRESS_S = 0.1  # how often a measurement reports progress


class RemoteDpu:
    """Moves bytes by requests to an agent. Thread-safe."""

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
            pool.handle = self.link.ask(Import, token, timeout=self._timeout).region
        except BaseException:
            pool.close()
            raise
        return pool

    def write(self, region: SessionRegion, view: memoryview | bytes, offset: int) -> TransferReport:
        """Write and wait; one request and one reply if the data fits a small slot."""
        size = len(view)
        if size > SMALL:
            return RemoteTransfer(self, region, offset, size, memoryview(view)).run()
        pool = self._small or self._small_pool()
        chunk = Chunk(0, size)
        slot = pool.acquire(chunk)
        if slot is None:
            return RemoteTransfer(self, region, offset, size, memoryview(view)).run()
        pool.buffer[slot : slot + size] = view
        spans = (pool.handle, slot, region.handle, offset, size)

        def then(_: Pending) -> None:  # it keeps the chunk, and so the slot, until the reply
            chunk.finished = True
            pool.wake()

        pending = self.link.exchange(Move, spans, then)
        if pending is None:
            pending = self.link.post(Move, *spans, then=then)
        try:
            reply = pending.reply if pending.done and not pending.error else self._wait(pending)
        except ReplyLost:  # written or not, to write it once more is harmless
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
        """Start a write of `view`, or a read if that is None."""
        return self._transfer(region, offset, size, view).start()

    def _transfer(
        self, region: SessionRegion, offset: int, size: int, view: memoryview | None
    ) -> SessionTransfer:
        return RemoteTransfer(self, region, offset, size, view)

    def _wait(self, pending: Pending) -> Any:
        """Return the reply to a request; wait as long as the agent lives and sends anything."""
        try:
            while not self.link.wait(pending, SILENCE_S):
                self.check_silence()
        except BaseException:  # Ctrl-C, too: the result is not wanted any more
            self.cancel(pending)
            raise
        return pending.result()

    def check_silence(self) -> None:
        """Raise PeerTimeout if the agent has sent nothing for SILENCE_S."""
        if self.link.idle_s > SILENCE_S:
            raise PeerTimeout(f"the agent has sent nothing for {SILENCE_S:.0f} s")

    def cancel(self, pending: Pending) -> None:
        """Ask the agent to end a request early, if it has not been answered."""
        if self.link.dead is None and not pending.done:
            self.link.post(Cancel, pending.number)

    def copy(self, src: SessionRegion, dst: SessionRegion, size: int) -> TransferReport:
        """Copy and wait; the DPU reads `src` and writes `dst`."""
        moved = self._request(Move, src.handle, 0, dst.handle, 0, size)
        return TransferReport(moved, self.provider)

    def digest(self, region: SessionRegion, offset: int, size: int) -> str:
        """Return the SHA-256, in hex digits, of bytes that the DPU reads."""
        return str(self._request(Digest, region.handle, offset, size).sha256)

    def _request(self, kind: type, *fields: Any) -> Any:
        """Send a request that may be repeated, and return the reply."""
        while True:
            try:
                return self._wait(self.link.post(kind, *fields))
            except ReplyLost:
                continue

    def latency(
        self, region: SessionRegion, fields: tuple[Any, ...], listener: MeasurementListener
    ) -> LatencyDone:
        """Measure latencies at the agent; `fields` are those of Latency after the region."""
        done: LatencyDone = self._measure(Latency, region, fields, listener)
        return done

    def bandwidth(
        self, region: SessionRegion, fields: tuple[Any, ...], listener: MeasurementListener
    ) -> RateDone:
        """Measure bandwidth at the agent; `fields` are those of Rate after the region."""
        done: RateDone = self._measure(Rate, region, fields, listener)
        return done

    def _measure(
        self,
        kind: type,
        region: SessionRegion,
        fields: tuple[Any, ...],
        listener: MeasurementListener,
    ) -> Any:
        pending = self.link.post(kind, region.handle, *fields, news=listener.add)
        try:
            while not self.link.wait(pending, _PROGRESS_S):
                listener.report_progress()
                self.check_silence()
        except BaseException:  # Ctrl-C, too: the agent need not continue
            self.cancel(pending)
            raise
        listener.report_progress()
        return pending.result()

    def monitor(
        self, region: SessionRegion, fields: tuple[Any, ...], timeout: float
    ) -> SampleSource:
        """Start a monitor at the agent; `fields` are those of Watch after the region."""
        from .sample_source import RemoteSource

        return RemoteSource(self.link, region.handle, fields, timeout)

    def allocate(self, region: SessionRegion, name: str, place: str, timeout: float) -> Allocated:
        """Have the agent allocate the memory of a region."""
        fields = (region.size, int(region.access), False, name, place)
        made: Allocated = self.link.ask(Allocate, *fields, timeout=timeout)
        region.handle = made.region
        return made

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
        """Return the counters that Session.stats() adds to the agent's: none."""
        return {}

    def close(self) -> None:
        """Free the staging memory; the link is closed by then, so nothing uses it."""
        for pool in self._pools.values():
            pool.close()
        self._pools.clear()
        self.results.clear()


class RemoteTransfer(SessionTransfer):
    """Transfer by one Move per chunk; as many are in flight as there are slots."""

    def __init__(
        self,
        dpu: RemoteDpu,
        region: SessionRegion,
        offset: int,
        size: int,
        view: memoryview | None,
    ) -> None:
        pool = dpu.pool(size)
        super().__init__(pool, dpu.link.lock, dpu.provider, offset, size, view, dpu.results)
        self._dpu, self._region = dpu, region
        self._on_end: list[Callable[[], object]] = []

    def _prepare(self) -> None:
        """Do nothing: the staging memory was created with the transfer."""

    def _post(self, chunk: Chunk) -> None:
        self._move(chunk, self._on_reply)

    def _move(self, chunk: Chunk, then: Callable[[Chunk, Pending], None]) -> None:
        """Request the DMA of a chunk between staging memory and the region."""
        staged = (self._pool.handle, chunk.slot)
        remote = (self._region.handle, self._offset + chunk.at)
        ends = (*staged, *remote) if self._data is None else (*remote, *staged)
        self._request(chunk, then, Move, *ends, chunk.size)

    def _request(
        self, chunk: Chunk, then: Callable[[Chunk, Pending], None], kind: type, *fields: Any
    ) -> None:
        chunk.request = Pending()
        self._dpu.link.post(
            kind, *fields, then=lambda pending: then(chunk, pending), pending=chunk.request
        )

    def _is_posted(self, chunk: Chunk) -> bool:
        return chunk.request is not None and chunk.request.sent

    def _wait_for_slot(self) -> None:
        if not self._in_flight:  # else its next reply posts the next chunk
            self._pool.call_on_release(self._post_chunks)

    def _on_reply(self, chunk: Chunk, pending: Pending) -> None:
        self._end_chunk(chunk, pending, pending.reply)

    def _end_chunk(self, chunk: Chunk, pending: Pending, reply: Moved | None) -> None:
        """Take in the result of a chunk, and go on with the others."""
        if chunk.request is not pending and not chunk.finished:
            return  # it was repeated
        if isinstance(pending.error, ReplyLost):  # moved or not, to move it once more is harmless
            self._torn = True
            chunk.request = None
        else:
            reply = reply if pending.error is None else None
            self._finish_chunk(chunk, reply, pending.error)
        self._pool.wake()  # before its own next chunk: the others have waited for longer
        self._go_on()
        if self._ended:
            calls, self._on_end = self._on_end, []
            for call in calls:
                call()

    def _cancel_in_flight(self) -> None:
        self._pool.cancel_call(self._post_chunks)
        self._go_on()  # posts nothing more; finishes chunks that were not posted
        for chunk in list(self._in_flight):
            if chunk.request is not None:
                self._dpu.cancel(chunk.request)

    def _advance(self, timeout: float) -> None:
        link = self._dpu.link
        if self._torn or not self._in_flight:  # no reply may post the next chunk
            with link.lock:
                self._go_on()
        pending = self._oldest_request() or link.oldest()
        if not timeout or pending is None:
            link.pump()
            if link.dead is not None and not self._in_flight:
                self._error = self._error or link.dead
            return
        link.wait(pending, timeout)
        if not pending.done:
            self._dpu.check_silence()

    def fileno(self) -> int:
        """Return a descriptor that is readable when done() has a reply to handle."""
        return self._dpu.link.fileno()

    def call_on_end(self, call: Callable[[], object]) -> None:
        """Call once, from the thread that handles the last reply; at once if it was handled."""
        with self._dpu.link.lock:
            if not self._ended:
                self._on_end.append(call)
                return
        call()

    def cancel_call(self, call: Callable[[], object]) -> None:
        """Undo call_on_end()."""
        with self._dpu.link.lock:
            if call in self._on_end:
                self._on_end.remove(call)

    def __await__(self) -> Generator[Any, None, TransferReport]:
        from .aio import wait

        return wait(self).__await__()
