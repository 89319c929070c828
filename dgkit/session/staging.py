# SPDX-License-Identifier: Apache-2.0
"""Staging memory: carries data between this process and the DPU, in slots."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from .. import memory
from ..dma.bytes_memory import fill
from ..dpu.copier import Slots
from ..wire.creation import Creation
from ..wire.messages import Import
from ..wire.pending import Pending, ReplyLost

if TYPE_CHECKING:
    from collections.abc import Callable

    from ..dma import Device, Region
    from ..wire.connection import Connection
    from ..wire.messages import Request


class WholeMove(Pending):
    """Request for a whole transfer; as long as it is pending, it uses a slot.

    Args:
        staging: Memory with the slot.
        slot: Offset of the slot.
        data: Result of a read, which no other code has seen.
    """

    #: Called if the reply is lost, before any later request is sent.
    repeat: Callable[[], None] | None = None

    def __init__(self, staging: Staging, slot: int, data: bytes) -> None:
        self.staging, self.slot, self.data = staging, slot, data

    def finish(self, _: Pending) -> None:
        """Copy the bytes of a read out of the slot, before another request uses it."""
        if isinstance(self.error, ReplyLost):
            if self.repeat is not None:
                self.repeat()
        elif self.error is None and self.data:
            size = len(self.data)
            fill(self.data, 0, self.staging.buffer[self.slot : self.slot + size])


class Staging(Slots):
    """Slots in memory of this process that is registered for DMA and imported by the agent.

    `handle` is the agent's handle of the memory, in which each slot has the same offset; 0 before
    open().
    """

    def __init__(
        self, link: Connection, device: Device, slot_size: int, slots: int, timeout: float
    ) -> None:
        super().__init__(slot_size, slots)
        self.handle = 0
        self._link, self._device, self._timeout = link, device, timeout
        self._lock = threading.Lock()
        self._memory: memory.HostMemory | None = None
        self._buffer: memoryview | None = None
        self._region: Region | None = None
        self._creation: Creation | None = None

    @property
    def buffer(self) -> memoryview:
        """Bytes of the memory; open() must have been called."""
        assert self._buffer is not None
        return self._buffer

    def open(self) -> None:
        """Allocate the memory and have the agent import it, unless that was done before."""
        with self._lock:
            if self.handle:
                return
            self._link.check()  # before memory is made for an agent that is gone
            try:
                self._memory = memory.empty(self.slots * self.slot_size, name="staging")
                self._buffer = self._memory.buffer
                self._region = self._device.register(self._memory)
                token = self._region.export()
                self._create(Import(token=token, staging=True))
            except BaseException:
                self.close()
                raise

    def take_slot(self) -> int | None:
        """Return the offset of a free slot that no pending WholeMove uses; None: there is none."""
        with self._link.lock:
            slot = self._find_free_slot()
            if slot is not None:
                self._free.remove(slot)
        return slot

    def _find_free_slot(self) -> int | None:
        used = {move.slot for move in self.pending_moves()} if self._link.pending else ()
        for slot in reversed(self._free):
            if slot not in used:
                return slot
        return None

    def stage(self, view: memoryview | bytes | None, data: bytes) -> WholeMove | None:
        """Choose a slot, and copy the bytes to write into it; the caller holds the link's lock.

        Args:
            view: Bytes to write; None for a read.
            data: As in WholeMove.

        Returns:
            The object for the request, or None if no slot is free.
        """
        slot = self._find_free_slot()
        if slot is None:
            return None
        if view is not None:
            assert self._buffer is not None
            self._buffer[slot : slot + len(view)] = view
        return WholeMove(self, slot, data)

    def pending_moves(self) -> list[WholeMove]:
        """Return the pending requests that use a slot; the caller holds the link's lock."""
        pending = self._link.pending.values()
        return [p for p in pending if isinstance(p, WholeMove) and p.staging is self]

    def _create(self, request: Request) -> None:
        """Have the agent create its part; close() or the garbage collector frees it."""
        self._creation = Creation(self._link)
        reply = self._link.ask(request, timeout=self._timeout, pending=self._creation)
        self.handle = reply.region

    def close(self) -> None:
        """Free the memory now, without waiting for the garbage collector."""
        self.handle = 0
        if self._creation is not None:
            self._creation.undo()
            self._creation = None
        if self._region is not None:
            self._region.close()
        self._buffer = None
        if self._memory is not None:
            self._memory.close()
        self._region = self._memory = None
