# SPDX-License-Identifier: Apache-2.0
"""Slots for the chunks of jobs; queues and bounce memory of one thread's copies by DMA."""

from __future__ import annotations

import contextlib
import weakref
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, TypeVar

from .. import memory
from ..errors import DgkitError
from ..schema import Moved

if TYPE_CHECKING:
    from collections.abc import Callable

    from ..dma import Device, Queue, Region, RemoteRegion
    from ..dma.completion import Completion

_DEPTH = 64
_Result = TypeVar("_Result")


def moved(
    first: Completion, last: Completion, size: int, *, read_ns: int, write_ns: int, chunks: int
) -> Moved:
    """Return the result of a copy from the completions of its first and its last DMA."""
    return Moved(
        size=size, op=last._op, path=last._path,
        submit_ns=last.submit_ns, post_ns=last.post_ns, complete_ns=last.complete_ns,
        read_ns=read_ns, write_ns=write_ns, chunks=chunks,
        first_submit_ns=first.submit_ns, first_post_ns=first.post_ns,
        first_complete_ns=first.complete_ns,
    )  # fmt: skip


class Slots(ABC):
    """`slots` slots of `slot_size` bytes in one memory, each with one chunk. Not thread-safe."""

    def __init__(self, slot_size: int, slots: int) -> None:
        self.slot_size, self.slots = slot_size, slots
        self._free = [number * slot_size for number in reversed(range(slots))]

    def take_slot(self) -> int | None:
        """Return the offset of a free slot, or None if all are in use."""
        return self._free.pop() if self._free else None

    def free_slot(self, slot: int) -> None:
        """Free a slot."""
        self._free.append(slot)

    @property
    def n_free(self) -> int:
        """Number of free slots."""
        return len(self._free)

    @property
    @abstractmethod
    def buffer(self) -> memoryview:
        """Bytes of the memory, if it is in this process."""

    @abstractmethod
    def close(self) -> None:
        """Free the memory. Idempotent."""


class Copier(Slots):
    """Queues, and slots of bounce memory, created on first use. Not thread-safe."""

    def __init__(
        self, device: Device, slot_size: int, slots: int, op_timeout: float = 30.0
    ) -> None:
        super().__init__(slot_size, slots)
        self._device = device
        self._op_timeout = op_timeout
        self._has_inline = device.caps.inline_max > 0
        self._queue: Queue | None = None
        self._inline: Queue | None = None
        self._memory: memory.HostMemory | None = None
        self._bounce: Region | None = None

    @property
    def queue(self) -> Queue:
        """Queue whose path is `auto`."""
        if self._queue is None:
            self._queue = self._device.queue(depth=_DEPTH, op_timeout=self._op_timeout)
        return self._queue

    def queue_for(self, *remotes: RemoteRegion) -> Queue:
        """Return the queue for transfers with these regions.

        Memory that the CPU reaches and copies directly is copied inline, whatever the size: an
        engine thread would only occupy a second CPU.
        """
        if not self._has_inline:
            return self.queue
        for remote in remotes:
            if remote.method != "map":
                return self.queue
        if self._inline is None:
            self._inline = self._device.queue(
                depth=_DEPTH, path="inline", op_timeout=self._op_timeout
            )
        return self._inline

    def copies_inline(self, queue: Queue) -> bool:
        """Return whether a queue returned by queue_for() copies in the caller's thread."""
        return queue is self._inline

    @property
    def bounce(self) -> Region:
        """Bounce region: the slots, in this process's memory."""
        if self._bounce is None:
            self._memory = memory.empty(self.slots * self.slot_size, name="bounce")
            self._bounce = self._device.register(self._memory)
        return self._bounce

    @property
    def buffer(self) -> memoryview:
        """Bytes of the bounce memory, which is allocated on first use."""
        if self._memory is None:
            _ = self.bounce
        assert self._memory is not None
        return self._memory.buffer

    def copy_small(
        self, src: RemoteRegion, src_offset: int, dst: RemoteRegion, dst_offset: int, size: int
    ) -> Moved:
        """Copy one chunk between imported regions with the least overhead.

        Raises:
            BoundsError, AccessDenied, TransferError: As Queue.read() and Queue.write().
        """
        queue, bounce = self.queue_for(src, dst), self._bounce or self.bounce
        first = queue.read(bounce, src, size=size, remote_offset=src_offset).wait()
        last = queue.write(bounce, dst, size=size, remote_offset=dst_offset).wait()
        return moved(
            first, last, size, read_ns=first.latency_ns, write_ns=last.latency_ns, chunks=1
        )

    def write_small(self, view: memoryview | bytes, dst: RemoteRegion, offset: int) -> Moved:
        """Write bytes of this process that fit in one slot. Errors as copy_small()."""
        size, queue, bounce = len(view), self.queue_for(dst), self._bounce or self.bounce
        self.buffer[:size] = view
        done = queue.write(bounce, dst, size=size, remote_offset=offset).wait()
        return moved(done, done, size, read_ns=0, write_ns=done.latency_ns, chunks=1)

    def read_small(self, src: RemoteRegion, offset: int, size: int) -> bytes:
        """Read bytes that fit in one slot. Errors as copy_small()."""
        queue, bounce = self.queue_for(src), self._bounce or self.bounce
        queue.read(bounce, src, size=size, remote_offset=offset).wait()
        return bytes(self.buffer[:size])

    def close(self) -> None:
        """Close the queues, then free the bounce memory. Idempotent."""
        for part in (self._queue, self._inline, self._bounce, self._memory):
            if part is not None:
                part.close()
        self._queue = self._inline = self._bounce = self._memory = None


def _none() -> None:
    """Return None, as a reference to an object that is gone."""


class CopierPool:
    """Copiers for work in the calling threads, each kept for the next call. Thread-safe.

    Args:
        create: Returns a new copier.
    """

    def __init__(self, create: Callable[[], Copier]) -> None:
        self.idle: list[Copier] = []
        self._create = create
        self._latest: Callable[[], Copier | None] = _none
        self._closed = False

    @property
    def is_free(self) -> bool:
        """Return whether no call uses the latest copier."""
        return bool(self.idle) or self._latest() is None

    def run(self, work: Callable[..., _Result], *args: object) -> _Result:
        """Call `work` with a copier that no other thread uses, and the other arguments."""
        try:
            copier = self.idle.pop()
        except IndexError:
            copier = self._create()
            self._latest = weakref.ref(copier)
        try:
            result = work(copier, *args)
        except DgkitError:
            self._put_back(copier)
            raise
        except BaseException:  # a DMA to the copier's memory may be in flight
            self._latest = _none
            with contextlib.suppress(DgkitError):
                copier.close()
            raise
        self._put_back(copier)
        return result

    def _put_back(self, copier: Copier) -> None:
        self.idle.append(copier)
        if self._closed:
            self._close_idle()

    def _close_idle(self) -> None:
        while self.idle:
            with contextlib.suppress(IndexError):  # another thread closes the last one
                self.idle.pop().close()

    def close(self) -> None:
        """Close the idle copiers now, and each other one at the end of its call. Idempotent."""
        self._closed = True
        self._close_idle()
