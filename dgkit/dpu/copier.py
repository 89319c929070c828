"""Copies between any two regions that the DPU refers to, by DMA through its own memory."""

from __future__ import annotations

import contextlib
from collections import deque
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from .. import memory
from ..errors import DgkitError
from ..types import Op, Path
from ..wire.messages import Moved

if TYPE_CHECKING:
    from ..dma import Device, Queue, Region, RemoteRegion, Transfer
    from ..dma.completion import Completion
    from .region_ref import RegionRef

__all__ = ["Copier", "moved_reply"]

_PATHS = {str(path): path.value for path in Path}
_WRITE = int(Op.WRITE)
_CACHED = 1 << 18  # bytes: a chunk that is still in the cache of the CPU that copied it
_GPU_LEAST, _GPU_CHUNK = 1 << 16, 1 << 28  # bytes; 256 MiB take 0.7 ms from GPU to GPU by NVLink
Step = Callable[[int], None]


class Copier:
    """Queues and two chunks of bounce memory, created on first use. Not thread-safe."""

    def __init__(self, device: Device, *, chunk: int, op_timeout: float) -> None:
        self.device = device
        self.chunk = chunk
        self._op_timeout = op_timeout
        self._copies_inline = device.caps.inline_max > 0
        self._queue: Queue | None = None
        self._inline: Queue | None = None
        self._memory: memory.HostMemory | None = None
        self._bounce: Region | None = None

    @property
    def queue(self) -> Queue:
        """Return the queue; its path is `auto`."""
        if self._queue is None:
            self._queue = self.device.queue(depth=64, op_timeout=self._op_timeout)
        return self._queue

    def queue_for(self, *remotes: RemoteRegion) -> Queue:
        """Return the queue for transfers with these regions, each of which is waited for at once.

        What the CPU copies and reaches directly is copied inline, whatever its size: an engine
        thread would only occupy a second CPU.
        """
        if self._copies_inline:
            for remote in remotes:
                if remote.method != "map":
                    return self.queue
            if self._inline is None:
                self._inline = self.device.queue(
                    depth=64, path="inline", op_timeout=self._op_timeout
                )
            return self._inline
        return self.queue

    @property
    def bounce(self) -> Region:
        """Return the bounce region: two chunks of this process's memory."""
        if self._bounce is None:
            self._memory = memory.empty(2 * self.chunk, name="agent bounce")
            self._bounce = self.device.register(self._memory)
        return self._bounce

    @property
    def bounce_bytes(self) -> memoryview:
        """Return the bytes of the bounce memory; read `bounce` first, which allocates it."""
        assert self._memory is not None, "read .bounce first"
        return self._memory.buffer

    def copy(
        self,
        request_id: int,
        src: RegionRef,
        src_offset: int,
        dst: RegionRef,
        dst_offset: int,
        size: int,
        step: Step,
    ) -> Moved:
        """Read `size` bytes of `src` and write them to `dst`, in pipelined chunks.

        Args:
            request_id: Number of the request, for the reply.
            src: Region to read.
            src_offset: First byte to read.
            dst: Region to write.
            dst_offset: First byte to write.
            size: Bytes to copy.
            step: Called with the bytes done after each chunk; may raise to end the copy.

        Raises:
            BoundsError, AccessDenied, TransferError: As Queue.read() and Queue.write().
        """
        spans = (src_offset, dst_offset, size)
        if src.remote is not None and dst.remote is not None:
            if src.remote.method == dst.remote.method == "gpu" and size > _GPU_LEAST:
                return self._copy_on_gpus(request_id, src.remote, dst.remote, *spans, step)
            queue = self.queue_for(src.remote, dst.remote)
            if queue is self._inline:
                return self._copy_cached(request_id, src.remote, dst.remote, *spans, step)
            return self._copy_bounced(request_id, src.remote, dst.remote, *spans, step)
        return self._copy_direct(request_id, src, dst, *spans, step)

    def copy_small(
        self,
        request_id: int,
        src: RemoteRegion,
        src_offset: int,
        dst: RemoteRegion,
        dst_offset: int,
        size: int,
    ) -> Moved:
        """Copy one chunk between imported regions with the least overhead. Errors as copy()."""
        queue, bounce = self.queue_for(src, dst), self._bounce or self.bounce
        first = queue.read(bounce, src, size=size, remote_offset=src_offset).wait()
        last = queue.write(bounce, dst, size=size, remote_offset=dst_offset).wait()
        read_ns = first.latency_ns
        submit_ns, post_ns, complete_ns = last.stamps
        return Moved(
            request_id, size, _WRITE, _PATHS[last.path], submit_ns, post_ns, complete_ns, read_ns,
            complete_ns - submit_ns, 1, *first.stamps,
        )  # fmt: skip

    def _copy_bounced(
        self,
        request_id: int,
        src: RemoteRegion,
        dst: RemoteRegion,
        src_offset: int,
        dst_offset: int,
        size: int,
        step: Step,
    ) -> Moved:
        """Read each chunk into one half of the bounce memory while the other half is written."""
        read_ns = write_ns = done = chunks = 0
        first: Completion | None = None
        with _ending() as reads:
            reads.append(self._read_chunk(src, src_offset, size, 0))
            while True:
                count = min(self.chunk, size - done)
                read = reads.popleft().wait()
                first, read_ns = first or read, read_ns + read.latency_ns
                half = (chunks & 1) * self.chunk
                end = done + count
                if end < size:
                    reads.append(self._read_chunk(src, src_offset + end, size - end, chunks + 1))
                last = self.queue.write(
                    self.bounce, dst, size=count, local_offset=half, remote_offset=dst_offset + done
                ).wait()
                write_ns += last.latency_ns
                done, chunks = end, chunks + 1
                step(done)
                if done >= size:
                    return moved_reply(request_id, size, first, last, read_ns, write_ns, chunks)

    def _read_chunk(self, src: RemoteRegion, offset: int, left: int, number: int) -> Transfer:
        return self.queue.read(
            self.bounce,
            src,
            size=min(self.chunk, left),
            local_offset=(number & 1) * self.chunk,
            remote_offset=offset,
        )

    def _copy_cached(
        self,
        request_id: int,
        src: RemoteRegion,
        dst: RemoteRegion,
        src_offset: int,
        dst_offset: int,
        size: int,
        step: Step,
    ) -> Moved:
        """Copy inline: read a chunk into bounce memory, and write it while the cache has it."""
        queue, bounce, chunk = self.queue_for(src, dst), self.bounce, min(self.chunk, _CACHED)
        read_ns = write_ns = done = chunks = 0
        first: Completion | None = None
        while True:
            count = min(chunk, size - done)
            read = queue.read(bounce, src, size=count, remote_offset=src_offset + done).wait()
            last = queue.write(bounce, dst, size=count, remote_offset=dst_offset + done).wait()
            first = first or read
            read_ns, write_ns = read_ns + read.latency_ns, write_ns + last.latency_ns
            done, chunks = done + count, chunks + 1
            step(done)
            if done >= size:
                return moved_reply(request_id, size, first, last, read_ns, write_ns, chunks)

    def _copy_on_gpus(
        self,
        request_id: int,
        src: RemoteRegion,
        dst: RemoteRegion,
        src_offset: int,
        dst_offset: int,
        size: int,
        step: Step,
    ) -> Moved:
        """Copy from GPU to GPU, or on one GPU, without a detour through the host's memory.

        The device has mapped both regions, so its GPU has peer access to the one that is not its
        own.
        """

        def post(at: int, count: int) -> Transfer:
            return self.queue.write(
                src, dst, size=count, local_offset=src_offset + at, remote_offset=dst_offset + at
            )

        return _run_chunks(request_id, post, size, _GPU_CHUNK, step)

    def _copy_direct(
        self,
        request_id: int,
        src: RegionRef,
        dst: RegionRef,
        src_offset: int,
        dst_offset: int,
        size: int,
        step: Step,
    ) -> Moved:
        """Copy without bounce memory: one of the two regions is the DPU's own."""
        writes = src.region is not None and dst.remote is not None
        local = src.region if writes else dst.region
        remote = dst.as_remote() if writes else src.as_remote()
        assert local is not None
        local_from, remote_from = (src_offset, dst_offset) if writes else (dst_offset, src_offset)
        queue = self.queue_for(remote)
        start = queue.write if writes else queue.read

        def post(at: int, count: int) -> Transfer:
            return start(
                local,
                remote,
                size=count,
                local_offset=local_from + at,
                remote_offset=remote_from + at,
            )

        return _run_chunks(request_id, post, size, self.chunk, step)

    def close(self) -> None:
        """Close the queues, then free the bounce memory."""
        for part in (self._queue, self._inline, self._bounce, self._memory):
            if part is not None:
                part.close()
        self._queue = self._inline = self._bounce = self._memory = None


@contextlib.contextmanager
def _ending() -> Iterator[deque[Transfer]]:
    """Return a list of transfers; whatever happens, those in it end before the block does.

    What stayed in flight could overwrite the bounce memory of the next copy.
    """
    in_flight: deque[Transfer] = deque()
    try:
        yield in_flight
    finally:
        for transfer in in_flight:
            with contextlib.suppress(DgkitError):  # the first error is the one that counts
                transfer.wait()


def _run_chunks(
    request_id: int,
    post: Callable[[int, int], Transfer],
    size: int,
    chunk: int,
    step: Step,
) -> Moved:
    """Copy in chunks that need no bounce memory, with two in flight; end with none in flight."""
    posted = done = chunks = total_ns = 0
    first: Completion | None = None
    with _ending() as in_flight:
        while True:
            while posted < size and len(in_flight) < 2:
                count = min(chunk, size - posted)
                in_flight.append(post(posted, count))
                posted += count
            last = in_flight.popleft().wait()
            first, total_ns = first or last, total_ns + last.latency_ns
            done, chunks = min(done + chunk, size), chunks + 1
            step(done)
            if done >= size:
                totals = _by_op(last, total_ns)
                return moved_reply(request_id, size, first, last, *totals, chunks)


def _by_op(last: Completion, total_ns: int) -> tuple[int, int]:
    """Return (read_ns, write_ns) of a copy whose DMAs were all of one kind."""
    return (total_ns, 0) if last.op == Op.READ else (0, total_ns)


def moved_reply(
    request_id: int,
    size: int,
    first: Completion,
    last: Completion,
    read_ns: int,
    write_ns: int,
    chunks: int,
) -> Moved:
    """Return the reply to a Move; `first` and `last` are the completions of two of its DMAs."""
    totals = (read_ns, write_ns, chunks)
    path = _PATHS[last.path]
    return Moved(request_id, size, int(last.op), path, *last.stamps, *totals, *first.stamps)
