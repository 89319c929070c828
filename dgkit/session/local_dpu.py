"""Backend where this process is the DPU: it moves the bytes, and the agent lends host memory."""

from __future__ import annotations

import contextlib
from collections.abc import Generator
from typing import TYPE_CHECKING, Any

from ..dma.byte_pool import BytePool
from ..dpu.copier import moved_reply
from ..dpu.digest import digest
from ..dpu.region_ref import RegionRef
from ..errors import ClosedError, DgkitError, Unsupported
from ..types import Op
from ..wire.messages import (
    Allocate,
    Allocated,
    Digest,
    Free,
    Latency,
    LatencyDone,
    Rate,
    RateDone,
)
from .copier_pool import CopierPool
from .fair_lock import FairLock
from .staging import Chunk, StagingPool
from .transfer import SessionTransfer, TransferReport

if TYPE_CHECKING:
    from ..dma import Device, Queue, RemoteRegion, Transfer
    from ..wire.connection import Connection
    from .backend import MeasurementListener
    from .region import SessionRegion
    from .sample_source import SampleSource

__all__ = ["LocalDpu", "LocalTransfer"]

SLOT, SLOTS = 1 << 21, 4
_HOLD_S = 0.02  # how long a wait may hold the lock


class LocalDpu:
    """Moves bytes on one queue; copies and digests run concurrently on others. Thread-safe.

    Args:
        link: Connection to the agent.
        device: Device of this process, which moves the bytes.
        timeout: Seconds, for each plain request.
        no_dma: Why the device does not reach the agent's memory, if so: moves of it raise this.
    """

    def __init__(
        self, link: Connection, device: Device, timeout: float, no_dma: Unsupported | None = None
    ) -> None:
        self.link = link
        self.device = device
        self.provider = device.provider
        self.no_dma = no_dma
        self.lock = FairLock()
        self.transfers: list[LocalTransfer] = []  # that have not ended
        self._timeout = timeout
        self._queue: Queue | None = None
        self._copiers = CopierPool(device)
        self._pool: StagingPool | None = None
        self.results = BytePool()
        self._refs: dict[int, RegionRef] = {}
        self._moves = self._bytes = 0
        self._closed = False
        self._interrupted = False  # in a call of the queue, whose result is lost

    @property
    def queue(self) -> Queue:
        """Return the queue of the transfers; `lock` must be held."""
        if self._closed:
            raise ClosedError("the session is closed")
        if self._queue is None:
            self._queue = self.device.queue(depth=64, op_timeout=30.0)
        return self._queue

    @property
    def pool(self) -> StagingPool:
        """Return the staging memory, created on first use."""
        with self.lock:
            if self._pool is None:
                self._pool = StagingPool(self.device, SLOT, SLOTS)
            return self._pool

    def _ref(self, region: SessionRegion) -> RegionRef:
        with self.lock:
            ref = self._refs.get(region.id)
            if ref is None:
                local, remote = region.local, region.remote
                if local is None and remote is None:
                    if self.no_dma is not None and not region.closed:
                        raise self.no_dma.with_traceback(None)
                    raise ClosedError(f"region {region.name!r} is closed")
                ref = RegionRef(region=local, remote=remote)
                self._refs[region.id] = ref
            return ref

    def write(self, region: SessionRegion, view: memoryview | bytes, offset: int) -> TransferReport:
        """Write and wait."""
        return self._transfer(region, offset, len(view), memoryview(view)).run()

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
    ) -> LocalTransfer:
        return LocalTransfer(self, self._ref(region).as_remote(), offset, size, view)

    def copy(self, src: SessionRegion, dst: SessionRegion, size: int) -> TransferReport:
        """Copy and wait, after the transfers with these regions that were started before."""
        source, target = self._ref(src), self._ref(dst)
        self._settle(source, target)
        reply = self._copiers.run(
            lambda copier: copier.copy(0, source, 0, target, 0, size, self._copiers.check_open),
            source, target,
        )  # fmt: skip
        self.count_move(size)
        return TransferReport(reply, self.provider)

    def digest(self, region: SessionRegion, offset: int, size: int) -> str:
        """Return the SHA-256, in hex digits, of bytes that DMA reads; ordered as copy()."""
        ref = self._ref(region)
        self._settle(ref)
        request = Digest(0, 1, offset, size)
        return self._copiers.run(
            lambda copier: digest(request, ref, copier, self._copiers.check_open), ref
        ).sha256

    def _settle(self, *refs: RegionRef) -> None:
        """Wait for the transfers with these regions that were started before."""
        remotes = [ref.as_remote() for ref in refs]
        with self.lock:
            earlier = [transfer for transfer in self.transfers if transfer.remote in remotes]
        for transfer in earlier:
            while not transfer.ended:
                with self.lock:
                    self.progress(transfer, _HOLD_S)

    def latency(
        self, region: SessionRegion, fields: tuple[Any, ...], listener: MeasurementListener
    ) -> LatencyDone:
        """Measure latencies; `fields` are those of Latency after the region."""
        from ..dpu import benchmark

        return benchmark.latency(
            Latency(0, 1, *fields), self._ref(region), self.device,
            listener.add, listener.report_progress,
        )  # fmt: skip

    def bandwidth(
        self, region: SessionRegion, fields: tuple[Any, ...], listener: MeasurementListener
    ) -> RateDone:
        """Measure bandwidth; `fields` are those of Rate after the region."""
        from ..dpu import benchmark

        return benchmark.rate(
            Rate(0, 1, *fields), self._ref(region), self.device,
            listener.add, listener.report_progress,
        )  # fmt: skip

    def monitor(
        self, region: SessionRegion, fields: tuple[Any, ...], _timeout: float
    ) -> SampleSource:
        """Create a sampler in this process; `fields` are those of Watch after the region."""
        from .sample_source import LocalSource

        return LocalSource(self.device, self._ref(region), fields)

    def count_move(self, size: int) -> None:
        """Count a request for DMA that succeeded."""
        with self.lock:
            self._moves, self._bytes = self._moves + 1, self._bytes + size

    def counters(self) -> dict[str, int]:
        """Return the counters that Session.stats() adds to the agent's, which moves no bytes."""
        with self.lock:
            moves, size = self._moves, self._bytes
        own = {"moves": moves, "bytes": size, "your_moves": moves, "your_bytes": size}
        return own | {"engine_sleeps": self.device.stats.engine_sleeps}

    def allocate(self, region: SessionRegion, name: str, place: str, timeout: float) -> Allocated:
        """Have the agent allocate the memory of a region, and import it if DMA reaches it."""
        fields = (region.size, int(region.access), True, name, place)
        made: Allocated = self.link.ask(Allocate, *fields, timeout=timeout)
        region.handle, region.token = made.region, made.token
        if self.no_dma is not None:
            return made
        try:
            region.remote = self.device.import_region(made.token)
        except BaseException:
            self.link.ask(Free, made.region, 0.0, timeout=self._timeout)
            raise
        return made

    def adopt(self, region: SessionRegion) -> None:
        """Export a region of this process; the agent need not import the DPU's own memory."""
        assert region.local is not None
        region.token = region.local.export()

    def forget(self, region: SessionRegion, timeout: float) -> None:
        """Close this process's side of a region, then the agent's."""
        with self.lock:
            ref = self._refs.pop(region.id, None)
        if ref is not None:
            self._copiers.wait_unused(ref)
            with self.lock:
                ref.close(timeout)
        if region.handle:
            self.link.ask(Free, region.handle, timeout, timeout=self._timeout + timeout)

    def progress(self, first: LocalTransfer, timeout: float) -> None:
        """Wait for a DMA of `first`, then handle all completions and post more chunks.

        All transfers advance, so the wait for one does not starve another of staging memory. The
        caller holds the lock.

        Args:
            first: Transfer to wait for; any other if it has no DMA in flight.
            timeout: Seconds to wait at most.
        """
        self.recover()
        try:
            self._progress(first.oldest(), timeout)  # recover() may have replaced its DMA
        except BaseException:
            self.note_interruption()
            raise

    def note_interruption(self) -> None:
        """Note that Ctrl-C or an error came in a call of the queue. The caller holds the lock."""
        self._interrupted = True

    def recover(self) -> None:
        """After an interruption, replace the queue, and post the chunks in flight again.

        A DMA may have been posted, or its completion taken, without the result reaching its chunk.
        Closing the queue ends all DMA. To move a chunk twice is harmless: its slot is unchanged.
        """
        if not self._interrupted:
            return
        if self._queue is not None:
            self._queue.close()
            self._queue = None
        for transfer in self.transfers:
            transfer.post_again()
        self._interrupted = False

    def _progress(self, head: Transfer | None, timeout: float) -> None:
        head = head or next(filter(None, (other.oldest() for other in self.transfers)), None)
        if head is not None and timeout:
            with contextlib.suppress(TimeoutError, DgkitError):  # collect() handles the error
                head.wait(timeout)
        for _ in range(SLOTS):
            collected = [transfer.collect() for transfer in self.transfers]
            for transfer in sorted(self.transfers, key=LocalTransfer.share):
                transfer.post_more()  # before the next is collected, so that DMA never pauses
            if not any(collected):
                break
        self.transfers[:] = [transfer for transfer in self.transfers if not transfer.ended]

    def close(self) -> None:
        """Close the queues and free the staging memory."""
        self._copiers.close()
        with self.lock:
            self._closed = True
            if self._queue is not None:
                self._queue.close()
            for ref in self._refs.values():
                ref.close_loopback()
            self._refs.clear()
            if self._pool is not None:
                self._pool.close()
        self.results.clear()


class LocalTransfer(SessionTransfer):
    """Transfer by one DMA per chunk; as many are in flight as there are slots."""

    def __init__(
        self, dpu: LocalDpu, remote: RemoteRegion, offset: int, size: int, view: memoryview | None
    ) -> None:
        pool = dpu.pool
        super().__init__(pool, dpu.lock, dpu.provider, offset, size, view, dpu.results)
        self._dpu, self.remote, self._staging = dpu, remote, pool.region

    def _prepare(self) -> None:
        self._dpu.recover()
        self._dpu.transfers.append(self)

    def _post(self, chunk: Chunk) -> None:
        queue = self._dpu.queue
        post = queue.write if self._data is None else queue.read
        try:
            chunk.request = post(
                self._staging,
                self.remote,
                size=chunk.size,
                local_offset=chunk.slot,
                remote_offset=self._offset + chunk.at,
            )
        except DgkitError:
            raise
        except BaseException:
            self._dpu.note_interruption()
            raise

    def _is_posted(self, chunk: Chunk) -> bool:
        return chunk.request is not None

    def post_again(self) -> None:
        """Post all chunks in flight again. The caller holds the lock and has ended their DMA."""
        for chunk in self._in_flight:
            chunk.request = None
        self._torn = True
        self._post_chunks()

    def _wait_for_slot(self) -> None:
        """Do nothing: LocalDpu.progress() calls post_more()."""

    def _cancel_in_flight(self) -> None:
        """Forget the transfer, unless it has DMA in flight, which cannot be cancelled."""
        if self._ended and self in self._dpu.transfers:
            self._dpu.transfers.remove(self)

    def oldest(self) -> Transfer | None:
        """Return the DMA that was posted first and is in flight."""
        oldest: Transfer | None = self._oldest_request()
        return oldest

    def collect(self) -> bool:
        """Handle the oldest DMA if it is complete; return whether it was.

        The data of a read is copied. The caller holds the lock.
        """
        if self._torn:
            self._post_chunks()
        if not self._in_flight or not self._in_flight[0].request.done():
            return False
        self._collect_chunk(self._in_flight[0])
        return True

    def _collect_chunk(self, chunk: Chunk) -> None:
        try:
            last = chunk.request.wait()
        except DgkitError as exc:
            self._finish_chunk(chunk, None, exc)
            return
        ns = last.latency_ns
        read_ns, write_ns = (ns, 0) if last.op == Op.READ else (0, ns)
        self._dpu.count_move(chunk.size)
        reply = moved_reply(0, chunk.size, last, last, read_ns, write_ns, 1)
        self._finish_chunk(chunk, reply, None)

    def share(self) -> tuple[int, int]:
        """Return its share of the staging memory: slots in use, then bytes posted so far.

        Free slots are given to the transfer with the smallest share first.
        """
        return len(self._in_flight), self._posted

    def post_more(self) -> None:
        """Post chunks to the free slots. The caller holds the lock."""
        self._post_chunks()

    def _advance(self, timeout: float) -> None:
        with self._dpu.lock:
            self._dpu.progress(self, min(timeout, _HOLD_S))

    @property
    def ended(self) -> bool:
        """Return whether the transfer is complete or has failed, with nothing in flight."""
        return self._ended

    def __await__(self) -> Generator[Any, None, TransferReport]:
        while not self.done():
            head = self.oldest()
            if head is not None:
                with contextlib.suppress(DgkitError):  # wait() raises it
                    yield from head.__await__()
        return self.wait()
