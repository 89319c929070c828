"""Copies and digests where this process is the DPU: each by a queue and memory of its own."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from typing import TYPE_CHECKING

from ..dpu.copier import Mover
from ..errors import ClosedError, DgkitError

if TYPE_CHECKING:
    from ..agent.client import Held
    from ..dma import Device

__all__ = ["Movers"]

_CHUNK = 1 << 20


class Movers:
    """As many as work at a time; no transfer waits for one, and none for another. Thread-safe."""

    def __init__(self, device: Device) -> None:
        self._device = device
        self._idle: list[Mover] = []
        self._used: list[tuple[Held, ...]] = []
        self._changed = threading.Condition()
        self._closed = False

    @contextlib.contextmanager
    def lent(self, *regions: Held) -> Iterator[Mover]:
        """For one job with these regions. ClosedError: the session is."""
        with self._changed:
            self.go_on()
            mover = self._idle.pop() if self._idle else self._new()
            self._used.append(regions)
        whole = False
        try:
            yield mover
            whole = True
        finally:
            with self._changed:
                self._used.remove(regions)
                if whole and not self._closed:
                    self._idle.append(mover)
                else:  # a DMA of it may be on its way into its memory
                    with contextlib.suppress(DgkitError):
                        mover.close()
                self._changed.notify_all()

    def _new(self) -> Mover:
        return Mover(self._device, chunk=_CHUNK, op_timeout=30.0)

    def go_on(self, _done: int = 0) -> None:
        """A job calls it between two pieces. ClosedError: the session was closed meanwhile."""
        if self._closed:
            raise ClosedError("the session is closed")

    def left(self, region: Held) -> None:
        """Waits until no job uses the region."""
        with self._changed:
            self._changed.wait_for(lambda: not any(region in used for used in self._used))

    def close(self) -> None:
        """Ends each job after the piece that it moves now, and frees all."""
        with self._changed:
            self._closed = True
            self._changed.wait_for(lambda: not self._used)
            while self._idle:
                self._idle.pop().close()
