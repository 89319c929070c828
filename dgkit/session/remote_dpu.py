"""The DPU is an agent: this process lends its memory and asks, the other one moves the bytes."""

from __future__ import annotations

import threading
from collections.abc import Callable, Generator
from typing import TYPE_CHECKING, Any

from ..errors import DgkitError, PeerError, PeerTimeout
from ..wire.connection import Connection, Pending
from ..wire.messages import Cancel, Digest, Free, Import, Move
from .staging import Ring
from .transfer import SessionTransfer, Totals, TransferReport, room

if TYPE_CHECKING:
    from ..dma import Device
    from .region import SessionRegion

__all__ = ["SILENCE_S", "AgentDpu", "AgentTransfer"]

SILENCE_S = 30.0  # a transfer whose agent says nothing for so long is given up
SMALL, SMALL_SLOTS = 1 << 16, 16
LARGE, LARGE_SLOTS = 1 << 21, 4


class AgentDpu:
    """Moves bytes by asking. Thread-safe."""

    def __init__(self, link: Connection, device: Device, provider: str, timeout: float) -> None:
        self.link = link
        self.provider = provider
        self._device = device
        self._timeout = timeout
        self._rings: dict[int, Ring] = {}
        self._small: Ring | None = None
        self._making = threading.Lock()

    def ring(self, size: int) -> Ring:
        """Staging memory for data of that size, made and imported by the agent at first use."""
        slot = SMALL if size <= SMALL else LARGE
        ring = self._rings.get(slot)
        if ring is None:
            with self._making:
                if slot not in self._rings:
                    self._rings[slot] = self._make_ring(slot)
                ring = self._rings[slot]
        return ring

    def _make_ring(self, slot: int) -> Ring:
        ring = Ring(self._device, slot, SMALL_SLOTS if slot == SMALL else LARGE_SLOTS)
        try:
            token = ring.region.export()
            ring.handle = self.link.ask(Import, token, timeout=self._timeout).region
        except BaseException:
            ring.close()
            raise
        return ring

    def write(self, region: SessionRegion, view: memoryview | bytes, offset: int) -> TransferReport:
        """Waits. One message, one reply, if it fits a slot."""
        size = len(view)
        if size > SMALL:
            return self.start(region, offset, size, memoryview(view)).finish()
        ring = self._small or self._small_ring()
        slot = ring.take()
        if slot is None:
            return self.start(region, offset, size, memoryview(view)).finish()
        ring.bytes[slot : slot + size] = view
        spans = (ring.handle, slot, region.handle, offset, size)
        then = lambda _: ring.give(slot)  # noqa: E731
        try:
            pending = self.link.exchange(Move, spans, then)
            if pending is None:
                pending = self.link.post(Move, *spans, then=then)
        except DgkitError:
            ring.give(slot)
            raise
        reply = pending.reply if pending.done and not pending.error else self.finish(pending)
        return TransferReport(reply, self.provider)

    def _small_ring(self) -> Ring:
        self._small = self.ring(SMALL)
        return self._small

    def read(self, region: SessionRegion, offset: int, size: int) -> bytes:
        """Waits; the bytes."""
        transfer = self.start(region, offset, size, None)
        transfer.finish()
        return transfer.data

    def start(
        self, region: SessionRegion, offset: int, size: int, view: memoryview | None
    ) -> AgentTransfer:
        """A write of `view`, or a read if that is None."""
        return AgentTransfer(self, region, offset, size, view)

    def finish(self, pending: Pending) -> Any:
        """Waits as long as the agent lives and speaks; the reply, or what went wrong."""
        try:
            while not self.link.wait(pending, SILENCE_S):
                if self.link.idle_s > SILENCE_S:
                    raise PeerTimeout(f"the agent has said nothing for {SILENCE_S:.0f} s")
        except BaseException:  # Ctrl-C, too: nobody will ask for it any more
            self.cancel(pending)
            raise
        return pending.result()

    def cancel(self, pending: Pending) -> None:
        """Ends a request early, if it can be."""
        if self.link.dead is None and not pending.done:
            self.link.post(Cancel, pending.number)

    def copy(self, src: SessionRegion, dst: SessionRegion, size: int) -> TransferReport:
        """The DPU reads `src` and writes `dst`; nothing passes through this process."""
        pending = self.link.post(Move, src.handle, 0, dst.handle, 0, size)
        return TransferReport(self.finish(pending), self.provider)

    def digest(self, region: SessionRegion, offset: int, size: int) -> str:
        """SHA-256 in hex digits, of bytes that the DPU read."""
        pending = self.link.post(Digest, region.handle, offset, size)
        return str(self.finish(pending).sha256)

    def adopt(self, region: SessionRegion) -> None:
        """Makes a region of this process known to the agent."""
        assert region.local is not None
        region.token = region.local.export()
        region.handle = self.link.ask(Import, region.token, timeout=self._timeout).region

    def forget(self, region: SessionRegion, timeout: float) -> None:
        """The agent closes its side of a region."""
        if region.handle:
            self.link.ask(Free, region.handle, timeout, timeout=self._timeout + timeout)

    def counted(self) -> dict[str, int]:
        """Of Session.stats(), what the agent does not know: nothing."""
        return {}

    def close(self) -> None:
        """Frees the staging memory. The link is closed by then, so that nobody uses it."""
        for ring in self._rings.values():
            ring.close()
        self._rings.clear()


class AgentTransfer(SessionTransfer):
    """Data through staging slots, a Move a slot, as many at once as there are slots."""

    def __init__(
        self,
        dpu: AgentDpu,
        region: SessionRegion,
        offset: int,
        size: int,
        view: memoryview | None,
    ) -> None:
        super().__init__(size, None if view is not None else room(size))
        self._dpu, self._region, self._offset, self._view = dpu, region, offset, view
        self._ring = dpu.ring(size)
        self._totals = Totals(size)
        self._flying: dict[int, Pending] = {}
        self._posted = 0
        self._calls: list[Callable[[], object]] = []
        with dpu.link.lock:
            self._fill()
            if self._error is not None:
                raise self._error

    def _fill(self) -> None:
        while self._posted < self.size and self._error is None:
            slot = self._ring.take()
            if slot is None:
                if not self._flying:
                    self._ring.when_free(self._fill)
                return
            at, count = self._posted, min(self._ring.slot, self.size - self._posted)
            self._posted += count
            self._post(slot, at, count)

    def _post(self, slot: int, at: int, count: int) -> None:
        here, there = (self._ring.handle, slot), (self._region.handle, self._offset + at)
        if self._view is not None:
            self._ring.bytes[slot : slot + count] = self._view[at : at + count]
            spans = (*here, *there, count)
        else:
            spans = (*there, *here, count)
        try:
            pending = self._dpu.link.post(
                Move, *spans, then=lambda pending: self._land(pending, slot, at, count)
            )
        except DgkitError as exc:
            self._error = exc
            self._ring.give(slot)
            return
        if not pending.done:
            self._flying[pending.number] = pending

    def _land(self, pending: Pending, slot: int, at: int, count: int) -> None:
        self._flying.pop(pending.number, None)
        if pending.error is not None:
            self._error = self._error or pending.error
        else:
            self._totals.add(pending.reply)
            if self._data is not None:
                self._data[at : at + count] = self._ring.bytes[slot : slot + count]
        self._ring.give(slot)
        self._fill()
        if self._totals.done == self.size:
            self._report = self._totals.report(self._dpu.provider)
        if self._ended and not self._flying:
            self._view = None
            calls, self._calls = self._calls, []
            for call in calls:
                call()

    @property
    def _ended(self) -> bool:
        return super()._ended and not self._flying

    def _stop(self) -> None:
        with self._dpu.link.lock:
            self._error = self._error or PeerError("the transfer was interrupted")
            for pending in list(self._flying.values()):
                self._dpu.cancel(pending)

    def _count(self) -> int:
        return self._totals.done

    def _advance(self, timeout: float) -> None:
        link = self._dpu.link
        pending = next(iter(self._flying.values()), None) or link.oldest()
        if not timeout or pending is None:
            link.pump()
            if link.dead is not None and not self._flying:
                self._error = self._error or link.dead
            return
        link.wait(pending, timeout)
        if link.idle_s > SILENCE_S and not pending.done:
            raise PeerTimeout(f"the agent has said nothing for {SILENCE_S:.0f} s")

    def fileno(self) -> int:
        """Readable when done() has something to take in."""
        return self._dpu.link.fileno()

    def call_when_done(self, call: Callable[[], object]) -> None:
        """Calls once, from the thread that takes in the last reply; at once if that was before."""
        with self._dpu.link.lock:
            if not self._ended:
                self._calls.append(call)
                return
        call()

    def call_off(self, call: Callable[[], object]) -> None:
        """Takes call_when_done() back."""
        with self._dpu.link.lock:
            if call in self._calls:
                self._calls.remove(call)

    def __await__(self) -> Generator[Any, None, TransferReport]:
        from .aio import wait

        return wait(self).__await__()
