"""Moves bytes between any two regions that the agent knows, by DMA through its own memory."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from .. import memory
from ..types import Op, Path
from ..wire.messages import Moved

if TYPE_CHECKING:
    from ..agent.client import Held
    from ..dma import Device, Queue, Region, RemoteRegion
    from ..dma.completion import Completion

__all__ = ["Mover"]

_PATHS = {str(path): path.value for path in Path}
_WRITE = int(Op.WRITE)
Step = Callable[[int], None]


class Mover:
    """A queue and two chunks of bounce memory, made at first use. One thread uses it."""

    def __init__(self, device: Device, *, chunk: int, op_timeout: float) -> None:
        self.device = device
        self.chunk = chunk
        self._op_timeout = op_timeout
        self._queue: Queue | None = None
        self._memory: memory.HostMemory | None = None
        self._bounce: Region | None = None

    @property
    def queue(self) -> Queue:
        """The queue, path `auto`."""
        if self._queue is None:
            self._queue = self.device.queue(depth=64, op_timeout=self._op_timeout)
        return self._queue

    @property
    def bounce(self) -> Region:
        """Two chunks of this process's memory."""
        if self._bounce is None:
            self._memory = memory.empty(2 * self.chunk, name="agent bounce")
            self._bounce = self.device.register(self._memory)
        return self._bounce

    @property
    def bytes_here(self) -> memoryview:
        """The bounce memory's bytes."""
        assert self._memory is not None, "ask for .bounce first"
        return self._memory.buffer

    def move(
        self, request_id: int, src: Held, src_at: int, dst: Held, dst_at: int, size: int, step: Step
    ) -> Moved:
        """READs `src`, WRITEs `dst`. `step(bytes done)` runs between chunks and may raise.

        BoundsError, AccessDenied, TransferError as of Queue.read and Queue.write.
        """
        if src.remote is None or dst.remote is None:
            return self._direct(request_id, src, src_at, dst, dst_at, size, step)
        reads = writes = 0
        last = None
        done = chunks = 0
        reading = self._read(src.remote, src_at, size, 0)
        while done < size or not chunks:
            count = min(self.chunk, size - done)
            reads += reading.wait().latency_ns
            here = (chunks & 1) * self.chunk
            if done + count < size:
                reading = self._read(
                    src.remote, src_at + done + count, size - done - count, chunks + 1
                )
            write = self.queue.write(
                self.bounce, dst.remote, size=count, local_offset=here, remote_offset=dst_at + done
            )
            last = write.wait()
            writes += last.latency_ns
            done += count
            chunks += 1
            step(done)
        assert last is not None
        return moved(request_id, size, last, reads, writes, chunks)

    def small(
        self,
        request_id: int,
        src: RemoteRegion,
        src_at: int,
        dst: RemoteRegion,
        dst_at: int,
        size: int,
    ) -> Moved:
        """As move(), for one chunk between imported regions: the shortest way."""
        queue, bounce = self.queue, self.bounce
        first = queue.read(bounce, src, size=size, remote_offset=src_at).wait()
        read_ns = first.complete_ns - first.submit_ns
        last = queue.write(bounce, dst, size=size, remote_offset=dst_at).wait()
        submit_ns, complete_ns = last.submit_ns, last.complete_ns
        stamps = (submit_ns, last.post_ns, complete_ns)
        path = _PATHS[last.path]
        return Moved(request_id, size, _WRITE, path, *stamps, read_ns, complete_ns - submit_ns, 1)

    def _read(self, src: RemoteRegion, at: int, left: int, number: int):  # type: ignore[no-untyped-def]
        return self.queue.read(
            self.bounce,
            src,
            size=min(self.chunk, left),
            local_offset=(number & 1) * self.chunk,
            remote_offset=at,
        )

    def _direct(
        self, request_id: int, src: Held, src_at: int, dst: Held, dst_at: int, size: int, step: Step
    ) -> Moved:
        op, local, remote = Op.READ, dst.region, src.reachable()
        local_at, remote_at = dst_at, src_at
        if src.region is not None and dst.remote is not None:
            op, local, remote = Op.WRITE, src.region, dst.remote
            local_at, remote_at = src_at, dst_at
        assert local is not None
        post = self.queue.write if op is Op.WRITE else self.queue.read
        done = chunks = total = 0
        last = None
        while done < size or not chunks:
            count = min(self.chunk, size - done)
            last = post(
                local,
                remote,
                size=count,
                local_offset=local_at + done,
                remote_offset=remote_at + done,
            ).wait()
            total += last.latency_ns
            done += count
            chunks += 1
            step(done)
        assert last is not None
        reads, writes = (total, 0) if op is Op.READ else (0, total)
        return moved(request_id, size, last, reads, writes, chunks)

    def close(self) -> None:
        """Ends the queue, then frees the bounce memory."""
        for part in (self._queue, self._bounce, self._memory):
            if part is not None:
                part.close()
        self._queue = self._bounce = self._memory = None


def moved(
    request_id: int, size: int, last: Completion, read_ns: int, write_ns: int, chunks: int
) -> Moved:
    """The reply to a Move; `last` is the completion of its last DMA."""
    path = _PATHS[last.path]
    stamps = (last.submit_ns, last.post_ns, last.complete_ns)
    return Moved(request_id, size, int(last.op), path, *stamps, read_ns, write_ns, chunks)
