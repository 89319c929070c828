"""Staging memory: carries data between this process and the DPU, in slots."""

from __future__ import annotations

import contextlib
import threading
import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from .. import memory
from ..buffers import has_objects
from ..errors import ClosedError

if TYPE_CHECKING:
    from ..dma import Device


class Chunk:
    """Part of a transfer: `size` bytes from byte `at`, in the staging slot at offset `slot`.

    `request` is the request or DMA that the backend posted for it. A slot is in use as long as its
    chunk exists and is not finished.
    """

    __slots__ = ("__weakref__", "at", "finished", "request", "size", "slot")

    def __init__(self, at: int, size: int) -> None:
        self.at, self.size = at, size
        self.slot = -1
        self.request: Any = None
        self.finished = False


class SlotPool:
    """`count` slots of `slot_size` bytes in one buffer, each assigned to one chunk at a time.

    There is no counter and no free list, which an exception such as Ctrl-C could leave wrong: a
    slot is free if its chunk is finished or no longer exists. `handle` is the agent's handle of the
    staging memory, in which each slot has the same offset.
    """

    def __init__(self, slot_size: int, count: int, buffer: memoryview) -> None:
        self.slot_size = slot_size
        self.buffer = buffer
        self.handle = 0
        self._owners: list[weakref.ref[Chunk] | None] = [None] * count
        self._lock = threading.RLock()  # reentrant: a finalizer may call acquire() inside acquire()
        self._closed = False
        self._waiting: dict[Callable[[], None], None] = {}  # in the order of their calls

    @staticmethod
    def _in_use(owner: weakref.ref[Chunk] | None) -> bool:
        chunk = None if owner is None else owner()
        return chunk is not None and not chunk.finished

    @property
    def free(self) -> int:
        """Return the number of free slots."""
        return sum(not self._in_use(owner) for owner in self._owners)

    @property
    def _has_free(self) -> bool:
        return not all(map(self._in_use, self._owners))

    def acquire(self, chunk: Chunk) -> int | None:
        """Assign a free slot to the chunk and return its offset; None if all are in use.

        Thread-safe.

        Raises:
            ClosedError: The pool is closed.
        """
        new = weakref.ref(chunk)
        with self._lock:
            if self._closed:
                raise ClosedError("the session is closed")
            for number, owner in enumerate(self._owners):
                # No call between the second condition and the assignment, so that no finalizer can
                # take the slot in between.
                if not self._in_use(owner) and self._owners[number] is owner:
                    self._owners[number] = new
                    chunk.slot = number * self.slot_size
                    return chunk.slot
        return None

    def wake(self) -> None:
        """Call the functions that wait for a slot, in order, as long as a slot is free.

        Each called function takes a slot, or no longer needs one, or waits again because no slot is
        left. The callers of wake() have freed slots; a function called from here must not call
        wake().
        """
        while self._waiting and self._has_free:
            call = next(iter(self._waiting))
            del self._waiting[call]
            call()

    def call_on_release(self, call: Callable[[], None]) -> None:
        """Call a function once, in turn, when a slot is free. Idempotent."""
        self._waiting[call] = None

    def cancel_call(self, call: Callable[[], None]) -> None:
        """Undo call_on_release()."""
        self._waiting.pop(call, None)

    @property
    def waiting(self) -> int:
        """Return the number of functions that wait for a free slot."""
        return len(self._waiting)

    def close(self) -> None:
        """Assign no more slots."""
        with self._lock:
            self._closed = True
        self.buffer = memoryview(b"")


class StagingPool(SlotPool):
    """Slots in memory that is registered for DMA."""

    def __init__(self, device: Device, slot_size: int, count: int) -> None:
        self._memory = memory.empty(slot_size * count, name="staging")
        try:
            self.region = device.register(self._memory)
        except BaseException:
            self._memory.close()
            raise
        super().__init__(slot_size, count, self._memory.buffer)

    def close(self) -> None:
        """Free the memory now, without waiting for the garbage collector."""
        super().close()
        self.region.close()
        self._memory.close()


def flat(data: Any) -> memoryview:
    """Return the bytes of a buffer as one contiguous view; a copy if they are not contiguous.

    Raises:
        TypeError: `data` has no buffer protocol, or holds Python objects.
    """
    try:
        view = memoryview(data)
    except TypeError:
        kind = type(data).__name__
        hint = "; encode text first: text.encode()" if kind == "str" else ""
        raise TypeError(
            f"data is a {kind}; it must be bytes, or have the buffer protocol{hint}"
        ) from None
    if view.format == "B" and view.ndim == 1 and view.c_contiguous:
        return view
    if has_objects(view):
        raise TypeError("data holds Python objects, which have no bytes to transfer")
    with contextlib.suppress(TypeError, ValueError):  # strided, or a multi-character format
        return view.cast("B")
    return memoryview(view.tobytes())
