# SPDX-License-Identifier: Apache-2.0
"""Transfers, copies and digests, cut into chunks by one loop."""

from __future__ import annotations

import contextlib
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol

from ..dma.bytes_memory import fill
from ..errors import DgkitError, copy_of
from ..schema import Digested
from ..sizes import CACHED, COPY_CHUNK, GPU_CHUNK, GPU_LEAST, INLINE_MAX, WINDOW
from ..types import Op
from .copier import moved

if TYPE_CHECKING:
    from ..dma import Queue, Transfer
    from ..dma.completion import Completion
    from .copier import Copier, Slots
    from .region_ref import RegionRef

_ALL_SLOTS = 1 << 30  # chunks in flight: no limit but that of the slots


class Step(Protocol):
    """Step of a chunk in flight: a DMA, or a request to an agent."""

    def done(self) -> bool:
        """Return whether wait() would return at once."""

    def wait(self, timeout: float | None = None, /) -> Any:
        """Wait, then return the result or raise the error."""


class Chunk:
    """`size` bytes of a job, from byte `at`, in the slot at offset `slot`; `step` is in flight."""

    __slots__ = ("at", "size", "slot", "step")

    def __init__(self, at: int, size: int, slot: int) -> None:
        self.at, self.size, self.slot = at, size, slot
        self.step: Step | None = None


class Job(ABC):
    """Work on `size` bytes, in chunks of one slot each.

    Each chunk is loaded into its slot and then stored from there, in order. A step is a copy by the
    CPU, which is complete at once, or a DMA or a request to an agent, which is in flight for a
    while. `run()`, or a Worker, drives a job by `start_chunk()` and `advance()`, in one thread.
    Other threads may read `done` and `ended`, and call `cancel()`.

    Attributes:
        refs: Regions that the job uses.
        after: Jobs that must end first.
        begun: The first chunk was started, or the job has failed.
        posted: Bytes in the chunks that were started.
        done: Bytes that are done.
        step: Called with the bytes done after each chunk; may raise to end the job.
        error: First error; the job ends once no chunk is in flight.
        ended: The job is finished and its waiters are notified; no attribute changes any more.
    """

    def __init__(self, size: int, *refs: Any, window: int = WINDOW) -> None:
        self.size, self.refs = size, refs
        self.after: list[Job] = []
        self.posted = self.done = 0
        self.chunks = 0
        self.step: Callable[[int], None] | None = None
        self.error: Exception | None = None
        self.ended = False
        self.begun = False
        self._chunk_size, self._window = COPY_CHUNK, window
        self._loading: deque[Chunk] = deque()
        self._storing: deque[Chunk] = deque()
        self._ns = [0, 0]  # summed latencies, by the code of the operation
        self._first: Any = None  # the results of the first and the last DMA
        self._last: Any = None
        self._on_end: list[Callable[[], object]] = []

    @abstractmethod
    def _prepare(self, slots: Any) -> None:
        """Choose the size of the chunks, and the queue or the memory that moves them."""

    @abstractmethod
    def _load(self, chunk: Chunk) -> Step | None:
        """Start loading a chunk into its slot; return None if that is complete already."""

    @abstractmethod
    def _store(self, chunk: Chunk) -> Step | None:
        """Start storing a chunk at its destination; return None if that is complete already."""

    @abstractmethod
    def _record(self, chunk: Chunk, result: Any) -> None:
        """Add the result of a step that was in flight to the job's."""

    @abstractmethod
    def _total(self) -> Any:
        """Return the result of the job."""

    @property
    def counted(self) -> tuple[int, int]:
        """Number of DMA requests that the job counts as, and the bytes they moved."""
        return 0, 0

    @property
    def share(self) -> tuple[int, int]:
        """Return (slots in use, bytes posted); the job with the smallest share gets a free slot."""
        return len(self._loading) + len(self._storing), self.posted

    @property
    def oldest(self) -> Step | None:
        """Return the oldest step in flight."""
        head = self._storing or self._loading
        return head[0].step if head else None

    def wait_oldest(self, timeout: float | None = None) -> None:
        """Wait for the oldest step in flight; advance() reports its error."""
        step = self.oldest
        if step is not None:
            with contextlib.suppress(TimeoutError, DgkitError):
                step.wait(timeout)

    @property
    def finished(self) -> bool:
        """Return whether nothing is in flight and nothing more is to be posted."""
        if self._loading or self._storing:
            return False
        return self.error is not None or (self.done >= self.size and self._started)

    @property
    def _started(self) -> bool:
        """Return whether a chunk was moved. A job of 0 bytes has one chunk, for its checks."""
        return self.chunks > 0

    def run(self, slots: Slots, step: Callable[[int], None] | None = None) -> Any:
        """Run to the end in this thread, and return the result."""
        self.step = step
        while not self.finished:
            while self.start_chunk(slots):
                pass
            if not self.advance():
                self.wait_oldest()
        return self.result()

    def start_chunk(self, slots: Slots) -> bool:
        """Start the next chunk; return False if none is left, it fails, or it must wait.

        A chunk that the CPU loads is stored at once.

        Args:
            slots: Provides the slots, and what moves the chunks; the same object in each call.
        """
        if not self._has_next() or not (self.begun or self._begin(slots)):
            return False
        slot = slots.take_slot()
        if slot is None:
            return False
        chunk = Chunk(self.posted, min(self._chunk_size, self.size - self.posted), slot)
        self.posted += chunk.size
        if not self._try(chunk, self._load):
            return False
        if chunk.step is None:
            self._begin_store(chunk)
        else:
            self._loading.append(chunk)
        return True

    def _has_next(self) -> bool:
        in_flight = len(self._loading) + len(self._storing)
        if self.error is not None or in_flight >= self._window:
            return False
        if self.posted >= self.size and (self._started or in_flight):
            return False
        if self.after:
            self.after = [job for job in self.after if not job.ended]
        return not self.after

    def _begin(self, slots: Slots) -> bool:
        self.begun, self._slots = True, slots
        try:
            self._prepare(slots)
        except Exception as exc:  # for example, the exporter is gone
            self.fail(exc)
        return self.error is None

    def advance(self) -> bool:
        """Handle the oldest step in flight if it is complete; return whether it was."""
        for steps, proceed in ((self._storing, self._finish), (self._loading, self._begin_store)):
            step = steps[0].step if steps else None
            if step is not None and step.done():
                self._reap(chunk := steps.popleft(), step)
                proceed(chunk)
                return True
        return False

    def _try(self, chunk: Chunk, step: Callable[[Chunk], Step | None]) -> bool:
        """Start one step of a chunk. If that fails, fail the job, free the slot, return False."""
        try:
            chunk.step = step(chunk)
        except Exception as exc:  # for example a closed region: reported to the requester
            self.fail(exc)
            self._slots.free_slot(chunk.slot)
            return False
        return True

    def fail(self, error: Exception) -> None:
        """End the job early, unless it has failed already; a step in flight still completes."""
        self.error = self.error or error.with_traceback(None)

    def cancel(self, error: Exception) -> None:
        """End the job early with an error, from any thread."""
        self.fail(error)

    def _begin_store(self, chunk: Chunk) -> None:
        if self.error is not None:
            self._slots.free_slot(chunk.slot)
        elif self._try(chunk, self._store):
            if chunk.step is None:
                self._finish(chunk)
            else:
                self._storing.append(chunk)

    def _finish(self, chunk: Chunk) -> None:
        self._slots.free_slot(chunk.slot)
        if self.error is None:
            self.done += chunk.size
            self.chunks += 1
            if self.step is not None:
                try:
                    self.step(self.done)
                except Exception as exc:
                    self.fail(exc)

    def _reap(self, chunk: Chunk, step: Step) -> None:
        """Record the result of a chunk's step."""
        chunk.step = None
        try:
            self._record(chunk, step.wait())
        except DgkitError as exc:
            self.fail(exc)

    def _bytes(self, chunk: Chunk) -> memoryview:
        return self._slots.buffer[chunk.slot : chunk.slot + chunk.size]

    def _check(self) -> None:
        """Raise the error, unless all bytes were done before it occurred."""
        if self.error is not None and (self.done < self.size or not self._started):
            raise copy_of(self.error)

    def result(self) -> Any:
        """Return the result of a job that has ended, or raise its error."""
        self._check()
        return self._total()

    def end(self) -> None:
        """Mark the job as ended and notify the threads and callbacks that wait for it."""
        self.ended = True
        while self._on_end:
            with contextlib.suppress(Exception):  # for example, the event loop was closed
                self._on_end.pop()()

    def call_on_end(self, call: Callable[[], object]) -> None:
        """Call once when the job has ended, in the thread that drives it; at once if it has."""
        self._on_end.append(call)
        if self.ended and self.cancel_call(call):
            call()

    def cancel_call(self, call: Callable[[], object]) -> bool:
        """Undo call_on_end(); return False if it was called."""
        try:
            self._on_end.remove(call)
        except ValueError:
            return False
        return True


class _DmaJob(Job):
    """Job whose steps are DMAs on a queue of a copier; `refs` are the regions that they access."""

    refs: tuple[RegionRef, ...]
    _slots: Copier
    _queue: Queue
    _inline = False  # the CPU copies in this thread

    def _prepare(self, slots: Copier) -> None:
        self._queue = slots.queue_for(*[ref.as_remote() for ref in self.refs])
        self._chunk_size = min(self._chunk_size, slots.slot_size)

    def _dma(
        self, start: Callable[..., Transfer], ref: RegionRef, offset: int, chunk: Chunk
    ) -> Transfer | None:
        """Start a DMA between a chunk's slot and its place in a region, counted from `offset`."""
        transfer = start(
            self._slots.bounce, ref.as_remote(), size=chunk.size,
            local_offset=chunk.slot, remote_offset=offset + chunk.at,
        )  # fmt: skip
        if not self._inline:
            return transfer
        self._record(chunk, transfer.wait())
        return None

    def _record(self, _: Chunk, result: Completion) -> None:
        self._first, self._last = self._first or result, result
        self._ns[result.op] += result.latency_ns

    def _total(self) -> Any:
        return moved(
            self._first, self._last, self.size,
            read_ns=self._ns[Op.READ], write_ns=self._ns[Op.WRITE], chunks=self.chunks,
        )  # fmt: skip


class _Copy(_DmaJob):
    """Copy from region to region: each chunk is read into bounce memory and written from there."""

    def __init__(
        self, src: RegionRef, src_offset: int, dst: RegionRef, dst_offset: int, size: int
    ) -> None:
        super().__init__(size, src, dst)
        self._src, self._dst = src, dst
        self._src_offset, self._dst_offset = src_offset, dst_offset

    @property
    def counted(self) -> tuple[int, int]:
        """Return one request if the copy succeeded, and its bytes."""
        return (1, self.size) if self._started and self.done >= self.size else (0, 0)

    def _prepare(self, slots: Copier) -> None:
        """Choose chunks that fit the CPU's cache, for copies by the CPU."""
        super()._prepare(slots)
        self._inline = slots.copies_inline(self._queue)
        if self._inline:
            self._chunk_size = min(self._chunk_size, CACHED)

    def _load(self, chunk: Chunk) -> Transfer | None:
        return self._dma(self._queue.read, self._src, self._src_offset, chunk)

    def _store(self, chunk: Chunk) -> Transfer | None:
        return self._dma(self._queue.write, self._dst, self._dst_offset, chunk)


class _DirectCopy(_Copy):
    """Copy by one DMA per chunk: one region is the DPU's own, or a GPU reaches both."""

    def _prepare(self, slots: Copier) -> None:
        """Choose the queue and the direction."""
        self._writes = self._dst.remote is not None
        if self._writes and self._src.remote is not None:
            self._queue, self._chunk_size = slots.queue, GPU_CHUNK
        else:
            remote = self._dst if self._writes else self._src
            self._queue = slots.queue_for(remote.as_remote())
            self._chunk_size = min(self._chunk_size, slots.slot_size)

    def _load(self, _: Chunk) -> None:
        """Do nothing: the bytes do not pass through bounce memory."""

    def _store(self, chunk: Chunk) -> Transfer:
        local, remote, start = self._dst, self._src, self._queue.read
        at = (self._dst_offset, self._src_offset)
        if self._writes:
            local, remote, start, at = self._src, self._dst, self._queue.write, at[::-1]
        return start(
            local.region or local.remote, remote.as_remote(),  # type: ignore[arg-type]
            size=chunk.size, local_offset=at[0] + chunk.at, remote_offset=at[1] + chunk.at,
        )  # fmt: skip


def copy_job(src: RegionRef, src_offset: int, dst: RegionRef, dst_offset: int, size: int) -> Job:
    """Return the job that copies `size` bytes of `src` to `dst`.

    From GPU to GPU, or within one GPU, the bytes do not pass through the host's memory: the device
    has mapped both regions, so its GPU has peer access to the one that is not its own.
    """
    direct = src.remote is None or dst.remote is None
    if not direct and size > GPU_LEAST:
        direct = src.as_remote().method == dst.as_remote().method == "gpu"
    return (_DirectCopy if direct else _Copy)(src, src_offset, dst, dst_offset, size)


class TransferJob(Job):
    """Transfer between bytes of this process and a region, with a chunk in flight for each slot.

    Args:
        size: Bytes.
        ref: The region.
        view: Bytes to write, which must not change until the job has ended; None: read.
        data: Result of a read, which no other code has seen.
    """

    def __init__(self, size: int, ref: Any, view: memoryview | None, data: bytes) -> None:
        super().__init__(size, ref, window=_ALL_SLOTS)
        self.writes = view is not None
        self.view, self.data = view, data

    @abstractmethod
    def _move(self, chunk: Chunk) -> Step | None:
        """Start moving a chunk between its slot and the region."""

    def _load(self, chunk: Chunk) -> Step | None:
        if self.view is None:
            return self._move(chunk)
        source = self.view[chunk.at : chunk.at + chunk.size]
        fill(self._bytes(chunk), 0, source)  # without the GIL, unlike a slice
        return None

    def _store(self, chunk: Chunk) -> Step | None:
        if self.view is None:
            fill(self.data, chunk.at, self._bytes(chunk))
            return None
        return self._move(chunk)

    def end(self) -> None:
        """Release the bytes to write, then mark the job as ended."""
        self.view = None
        super().end()


class DmaTransferJob(TransferJob, _DmaJob):
    """Transfer by one DMA for each chunk.

    Args:
        offset: Its byte to start at.
        size: Bytes.
        view: As in TransferJob.
        data: As in TransferJob.
    """

    def __init__(
        self, ref: RegionRef, offset: int, size: int, view: memoryview | None, data: bytes = b""
    ) -> None:
        ref.as_remote()  # so that its error is raised now
        super().__init__(size, ref, view, data)
        self._offset = offset

    @property
    def counted(self) -> tuple[int, int]:
        """Return one request for each chunk that was moved, and their bytes."""
        return self.chunks, self.done

    def _prepare(self, slots: Copier) -> None:
        """Use the queue with an engine if a next chunk can be staged while the engine copies."""
        super()._prepare(slots)
        self._chunk_size = slots.slot_size
        if self.size > INLINE_MAX:
            self._queue = slots.queue

    def _move(self, chunk: Chunk) -> Transfer | None:
        start = self._queue.write if self.writes else self._queue.read
        return self._dma(start, self.refs[0], self._offset, chunk)


class DigestJob(_DmaJob):
    """SHA-256 over bytes that are read by DMA: one chunk is hashed while the next is read."""

    _started = True  # zero bytes have a digest as well

    def __init__(self, ref: RegionRef, offset: int, size: int) -> None:
        import hashlib

        super().__init__(size, ref)
        self._ref, self._offset = ref, offset
        self._hasher = hashlib.sha256()

    def _load(self, chunk: Chunk) -> Transfer | None:
        return self._dma(self._queue.read, self._ref, self._offset, chunk)

    def _store(self, chunk: Chunk) -> None:
        self._hasher.update(self._bytes(chunk))

    def _total(self) -> Digested:
        return Digested(sha256=self._hasher.hexdigest(), dma_ns=self._ns[Op.READ])
