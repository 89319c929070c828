"""Staging memory: carries data between this process and the DPU, in slots."""

from __future__ import annotations

import contextlib
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from .. import memory
from ..buffers import has_objects
from ..errors import ClosedError

if TYPE_CHECKING:
    from ..dma import Device

__all__ = ["StagingPool", "flat"]


class StagingPool:
    """Free list of `count` slots of `slot_size` bytes in one region. The caller locks.

    acquire() alone needs no lock. `handle` is the agent's handle of the region.
    """

    def __init__(self, device: Device, slot_size: int, count: int) -> None:
        self.slot_size = slot_size
        self._memory = memory.empty(slot_size * count, name="staging")
        try:
            self.region = device.register(self._memory)
        except BaseException:
            self._memory.close()
            raise
        self.buffer = self._memory.buffer
        self.handle = 0
        self._free = deque(number * slot_size for number in range(count))
        self._waiting: deque[Callable[[], None]] = deque()

    def acquire(self) -> int | None:
        """Return the offset of a free slot, or None if all are in use."""
        try:
            return self._free.pop()
        except IndexError:
            if self._free.maxlen is not None:
                raise ClosedError("the session is closed") from None
            return None

    def release(self, offset: int) -> None:
        """Return a slot; the first function that waits for one is called."""
        self._free.append(offset)
        if self._waiting:
            self._waiting.popleft()()

    def call_on_release(self, call: Callable[[], None]) -> None:
        """Call a function once, when a slot is released."""
        self._waiting.append(call)

    def close(self) -> None:
        """Free the memory now, without waiting for the garbage collector."""
        self._free = deque(maxlen=0)  # which stays empty, whatever is released
        self.buffer = memoryview(b"")
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
