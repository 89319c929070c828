"""Copiers for the copies and digests of a process that is the DPU."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from typing import TYPE_CHECKING

from ..dpu.copier import Copier
from ..errors import ClosedError, DgkitError

if TYPE_CHECKING:
    from ..dma import Device
    from ..dpu.region_ref import RegionRef

__all__ = ["CopierPool"]

_CHUNK = 1 << 20


class CopierPool:
    """One copier, with its own queue and memory, for each concurrent job. Thread-safe.

    Jobs wait neither for transfers nor for each other.
    """

    def __init__(self, device: Device) -> None:
        self._device = device
        self._idle: list[Copier] = []
        self._in_use: list[tuple[RegionRef, ...]] = []
        self._changed = threading.Condition()
        self._closed = False

    @contextlib.contextmanager
    def borrow(self, *refs: RegionRef) -> Iterator[Copier]:
        """Lend a copier to a job with these regions for the duration of the block.

        Raises:
            ClosedError: The session is closed.
        """
        with self._changed:
            self.check_open()
            copier = self._idle.pop() if self._idle else self._create()
            self._in_use.append(refs)
        succeeded = False
        try:
            yield copier
            succeeded = True
        finally:
            with self._changed:
                self._in_use.remove(refs)
                if succeeded and not self._closed:
                    self._idle.append(copier)
                else:  # a DMA may still be in flight to its memory
                    with contextlib.suppress(DgkitError):
                        copier.close()
                self._changed.notify_all()

    def _create(self) -> Copier:
        return Copier(self._device, chunk=_CHUNK, op_timeout=30.0)

    def check_open(self, _done: int = 0) -> None:
        """Raise ClosedError if the session was closed; jobs call it after each chunk."""
        if self._closed:
            raise ClosedError("the session is closed")

    def wait_unused(self, ref: RegionRef) -> None:
        """Wait until no job uses the region."""
        with self._changed:
            self._changed.wait_for(lambda: not any(ref in refs for refs in self._in_use))

    def close(self) -> None:
        """End each job after its current chunk, and free everything."""
        with self._changed:
            self._closed = True
            self._changed.wait_for(lambda: not self._in_use)
            while self._idle:
                self._idle.pop().close()
