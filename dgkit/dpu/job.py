"""Jobs of a DPU: copies, transfers of this process's data and digests, cut into chunks."""

from __future__ import annotations

import contextlib
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ..dma.byte_pool import BytePool
from ..errors import DgkitError
from ..sizes import CACHED, COPY_CHUNK, GPU_CHUNK, GPU_LEAST, INLINE_MAX, LARGE_SLOTS, WINDOW
from ..types import Op
from .values import Digested, moved

if TYPE_CHECKING:
    from ..dma import Queue, Transfer
    from ..dma.completion import Completion
    from .copier import Copier
    from .region_ref import RegionRef


class _Chunk:
    """`size` bytes of a job, from byte `at`, in bounce memory at `slot`; `dma` is in flight."""

    __slots__ = ("at", "dma", "size", "slot")

    def __init__(self, at: int, size: int, slot: int) -> None:
        self.at, self.size, self.slot = at, size, slot
        self.dma: Transfer | None = None

    @property
    def arrived(self) -> bool:
        return self.dma is None or self.dma.done()


class Job:
    """Work on `size` bytes, in chunks of one slot of bounce memory each.

    Each chunk is first loaded into its slot and then stored from there, in order; either step is a
    DMA, or a copy that the CPU completes at once. `run()`, or the worker of a service, drives a job
    by `start_chunk()` and `advance()`, in one thread. Other threads may read `done` and `ended`,
    and set `error` to end the job early.

    Attributes:
        refs: Regions that the job uses.
        after: Jobs that must end first.
        posted: Bytes in the chunks that were started.
        done: Bytes that are done.
        step: Called with the bytes done after each chunk; may raise to end the job.
        error: First error; the job ends once none of its DMA is in flight.
        ended: The job is over; no attribute changes any more.
    """

    _copier: Copier
    _queue: Queue

    def __init__(self, size: int, *refs: RegionRef, window: int = WINDOW) -> None:
        self.size, self.refs = size, refs
        self.after: list[Job] = []
        self.posted = self.done = 0
        self.chunks = 0
        self.step: Callable[[int], None] | None = None
        self.error: Exception | None = None
        self.ended = False
        self._begun = False
        self._chunk_size, self._window = COPY_CHUNK, window
        self._loading: deque[_Chunk] = deque()
        self._storing: deque[_Chunk] = deque()
        self._ns = [0, 0]  # summed latencies, by the code of the operation
        self._first: Completion | None = None
        self._last: Completion | None = None
        self._on_end: list[Callable[[], object]] = []

    def _prepare(self, copier: Copier) -> None:
        """Choose the queue, and the size of the chunks."""
        remotes = [ref.as_remote() for ref in self.refs]
        self._queue = copier.queue_for(*remotes)
        self._chunk_size = min(self._chunk_size, copier.slot_size)

    def _load(self, chunk: _Chunk) -> Transfer | None:
        """Start loading a chunk into its slot; return None if that is complete already."""
        raise NotImplementedError

    def _store(self, chunk: _Chunk) -> Transfer | None:
        """Start storing a chunk at its destination; return None if that is complete already."""
        raise NotImplementedError

    @property
    def counted(self) -> tuple[int, int]:
        """Number of DMA requests that the job counts as, and the bytes they moved."""
        return 0, 0

    @property
    def share(self) -> tuple[int, int]:
        """Return (slots in use, bytes posted): the job with the smallest gets the next slot."""
        return len(self._loading) + len(self._storing), self.posted

    @property
    def oldest(self) -> Transfer | None:
        """Return the oldest DMA in flight."""
        head = self._storing or self._loading
        return head[0].dma if head else None

    def wait_oldest(self, timeout: float | None = None) -> None:
        """Wait for the oldest DMA in flight; advance() reports its error."""
        dma = self.oldest
        if dma is not None:
            with contextlib.suppress(TimeoutError, DgkitError):
                dma.wait(timeout)

    @property
    def over(self) -> bool:
        """Return whether nothing is in flight and nothing more is to be posted."""
        if self._loading or self._storing:
            return False
        return self.error is not None or (self.done >= self.size and self._started)

    @property
    def _started(self) -> bool:
        """Return whether a chunk was moved: a copy of 0 bytes has one, which fails."""
        return self.chunks > 0

    def run(self, copier: Copier, step: Callable[[int], None] | None = None) -> Any:
        """Run to the end in this thread, and return the result."""
        self.step = step
        while not self.over:
            while self.start_chunk(copier):
                pass
            if not self.advance():
                self.wait_oldest()
        return self.result()

    def start_chunk(self, copier: Copier) -> bool:
        """Start the next chunk; return False if none is left, no slot is free, or it must wait.

        A chunk that the CPU loads is stored at once.

        Args:
            copier: Provides queues and slots; the same one in each call.
        """
        if not self._has_next() or not self._begin(copier):
            return False
        slot = copier.take_slot()
        if slot is None:
            return False
        chunk = _Chunk(self.posted, min(self._chunk_size, self.size - self.posted), slot)
        self.posted += chunk.size
        if self._try(chunk, self._load):
            if chunk.dma is None:
                self._begin_store(chunk)
            else:
                self._loading.append(chunk)
        while self._window == 1 and self.advance():
            pass  # copied inline, so it is complete
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

    def _begin(self, copier: Copier) -> bool:
        if not self._begun:
            self._begun, self._copier = True, copier
            try:
                self._prepare(copier)
            except Exception as exc:  # for example, the exporter is gone
                self.fail(exc)
        return self.error is None

    def advance(self) -> bool:
        """Handle the oldest DMA if it is complete; return whether it was."""
        if self._storing and self._storing[0].arrived:
            self._finish(self._storing.popleft())
        elif self._loading and self._loading[0].arrived:
            chunk = self._loading.popleft()
            self._reap(chunk)
            self._begin_store(chunk)
        else:
            return False
        return True

    def _try(self, chunk: _Chunk, step: Callable[[_Chunk], Transfer | None]) -> bool:
        """Run one step of a chunk; if it fails, keep the error and free the slot."""
        try:
            chunk.dma = step(chunk)
        except Exception as exc:  # for example a closed region: reported to the requester
            self.fail(exc)
            self._copier.give_slot(chunk.slot)
            return False
        return True

    def fail(self, error: Exception) -> None:
        """End the job early, unless it has failed already; a DMA in flight still completes."""
        self.error = self.error or error

    def _begin_store(self, chunk: _Chunk) -> None:
        if self.error is not None:
            self._copier.give_slot(chunk.slot)
        elif self._try(chunk, self._store):
            if chunk.dma is None:
                self._finish(chunk)
            else:
                self._storing.append(chunk)

    def _finish(self, chunk: _Chunk) -> None:
        self._reap(chunk)
        self._copier.give_slot(chunk.slot)
        if self.error is None:
            self.done += chunk.size
            self.chunks += 1
            if self.step is not None:
                try:
                    self.step(self.done)
                except Exception as exc:
                    self.fail(exc)

    def _reap(self, chunk: _Chunk) -> None:
        """Record the completion of a chunk's DMA."""
        dma, chunk.dma = chunk.dma, None
        if dma is None:
            return
        try:
            last = dma.wait()
        except DgkitError as exc:
            self.fail(exc)
            return
        self._first, self._last = self._first or last, last
        self._ns[last.op] += last.latency_ns

    def _dma(
        self, start: Callable[..., Transfer], ref: RegionRef, offset: int, chunk: _Chunk
    ) -> Transfer:
        """Start a DMA between a chunk's slot and its place in a region, counted from `offset`."""
        return start(
            self._copier.bounce, ref.as_remote(), size=chunk.size,
            local_offset=chunk.slot, remote_offset=offset + chunk.at,
        )  # fmt: skip

    def _bytes(self, chunk: _Chunk) -> memoryview:
        return self._copier.bounce_bytes[chunk.slot : chunk.slot + chunk.size]

    def _check(self) -> None:
        """Raise the error, unless all bytes were done before it occurred."""
        if self.error is not None and (self.done < self.size or not self._started):
            raise self.error.with_traceback(None)

    def result(self) -> Any:
        """Return the result of a job that has ended, or raise its error."""
        self._check()
        assert self._first is not None
        assert self._last is not None
        return moved(
            self._first, self._last, self.size, self._ns[Op.READ], self._ns[Op.WRITE], self.chunks
        )

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


class _Copy(Job):
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

    def _prepare(self, copier: Copier) -> None:
        """Choose chunks that fit the CPU's cache, for copies by the CPU."""
        super()._prepare(copier)
        if copier.copies_inline(self._queue):
            self._chunk_size, self._window = min(self._chunk_size, CACHED), 1

    def _load(self, chunk: _Chunk) -> Transfer | None:
        return self._dma(self._queue.read, self._src, self._src_offset, chunk)

    def _store(self, chunk: _Chunk) -> Transfer:
        return self._dma(self._queue.write, self._dst, self._dst_offset, chunk)


class _DirectCopy(_Copy):
    """Copy by one DMA per chunk: one region is the DPU's own, or a GPU reaches both."""

    def _prepare(self, copier: Copier) -> None:
        """Choose the queue and the direction."""
        self._writes = self._dst.remote is not None
        if self._writes and self._src.remote is not None:
            self._queue, self._chunk_size = copier.queue, GPU_CHUNK
        else:
            remote = self._dst if self._writes else self._src
            self._queue = copier.queue_for(remote.as_remote())
            self._chunk_size = min(self._chunk_size, copier.slot_size)

    def _load(self, _: _Chunk) -> None:
        """Do nothing: the bytes do not pass through bounce memory."""

    def _store(self, chunk: _Chunk) -> Transfer:
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
    """Transfer between bytes of this process and a region, with a DMA in flight for each slot."""

    def __init__(self, ref: RegionRef, offset: int, size: int) -> None:
        ref.as_remote()  # so that its error is raised now
        super().__init__(size, ref, window=LARGE_SLOTS)
        self._ref, self._offset = ref, offset

    @property
    def counted(self) -> tuple[int, int]:
        """Return one request for each chunk that was moved, and their bytes."""
        return self.chunks, self.done

    def _prepare(self, copier: Copier) -> None:
        """Use the queue with an engine if a next chunk can be staged while the engine copies."""
        super()._prepare(copier)
        self._chunk_size = copier.slot_size
        if self.size > INLINE_MAX:
            self._queue = copier.queue


class WriteJob(TransferJob):
    """Write of bytes of this process, which must not change until the job has ended."""

    def __init__(self, ref: RegionRef, offset: int, view: memoryview) -> None:
        super().__init__(ref, offset, len(view))
        self._view: memoryview | None = view

    def _load(self, chunk: _Chunk) -> None:
        assert self._view is not None
        source = self._view[chunk.at : chunk.at + chunk.size]
        BytePool.fill(self._bytes(chunk), 0, source)  # without the GIL, unlike a slice

    def _store(self, chunk: _Chunk) -> Transfer:
        return self._dma(self._queue.write, self._ref, self._offset, chunk)

    def end(self) -> None:
        """Release the bytes, then mark the job as ended."""
        self._view = None
        super().end()


class ReadJob(TransferJob):
    """Read into a new bytes object, by `fill(offset, bytes)`, before other code sees it."""

    def __init__(
        self, ref: RegionRef, offset: int, size: int, fill: Callable[[int, memoryview], None]
    ) -> None:
        super().__init__(ref, offset, size)
        self._fill = fill

    def _load(self, chunk: _Chunk) -> Transfer:
        return self._dma(self._queue.read, self._ref, self._offset, chunk)

    def _store(self, chunk: _Chunk) -> None:
        self._fill(chunk.at, self._bytes(chunk))


class DigestJob(Job):
    """SHA-256 over bytes that are read by DMA: one chunk is hashed while the next is read."""

    _started = True  # zero bytes have a digest as well

    def __init__(self, ref: RegionRef, offset: int, size: int) -> None:
        import hashlib

        super().__init__(size, ref)
        self._ref, self._offset = ref, offset
        self._hasher = hashlib.sha256()

    def _load(self, chunk: _Chunk) -> Transfer:
        return self._dma(self._queue.read, self._ref, self._offset, chunk)

    def _store(self, chunk: _Chunk) -> None:
        self._hasher.update(self._bytes(chunk))

    def result(self) -> Digested:
        """Return the digest, or raise the error."""
        self._check()
        return Digested(self._hasher.hexdigest(), self._ns[Op.READ])
