"""Memory that carries data between this process and the DPU, in slots that are lent out."""

from __future__ import annotations

import contextlib
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from .. import memory
from ..buffers import has_objects

if TYPE_CHECKING:
    from ..dma import Device

__all__ = ["Ring", "flat"]


class Ring:
    """`slots` slots of `slot` bytes in one region. The caller locks, but for take()."""

    def __init__(self, device: Device, slot: int, slots: int) -> None:
        self.slot = slot
        self._memory = memory.empty(slot * slots, name="staging")
        try:
            self.region = device.register(self._memory)
        except BaseException:
            self._memory.close()
            raise
        self.bytes = self._memory.buffer
        self.handle = 0  # what the agent calls it
        self._free = [number * slot for number in range(slots)]
        self._queued: deque[Callable[[], None]] = deque()

    def take(self) -> int | None:
        """The offset of a slot that is free now."""
        try:
            return self._free.pop()
        except IndexError:
            return None

    def give(self, offset: int) -> None:
        """Gives a slot back; who waited for one is called."""
        self._free.append(offset)
        if self._queued:
            self._queued.popleft()()

    def when_free(self, call: Callable[[], None]) -> None:
        """Calls once when a slot is given back."""
        self._queued.append(call)

    def close(self) -> None:
        """Frees the memory; at once, not when the collector comes by."""
        self.bytes = memoryview(b"")
        self.region.close()
        self._memory.close()


def flat(data: Any) -> memoryview:
    """The bytes of any buffer in a row; a copy if they do not lie so. TypeError: it is none."""
    try:
        view = memoryview(data)
    except TypeError:
        kind = type(data).__name__
        more = ": text.encode() makes some of text" if kind == "str" else ""
        raise TypeError(
            f"data is a {kind}; it must be bytes, or have the buffer protocol{more}"
        ) from None
    if view.format == "B" and view.ndim == 1 and view.c_contiguous:
        return view
    if has_objects(view):
        raise TypeError("data holds Python objects, which have no bytes that could be moved")
    with contextlib.suppress(TypeError, ValueError):  # strides, or a format that is no letter
        return view.cast("B")
    return memoryview(view.tobytes())
