"""This process is the DPU: it moves the bytes itself; the agent lends the host's memory."""

from __future__ import annotations

import contextlib
from collections import deque
from collections.abc import Generator
from typing import TYPE_CHECKING, Any

from ..agent.client import Held
from ..dpu import benchmark
from ..dpu.copier import moved
from ..errors import ClosedError, DgkitError, PeerError
from ..types import Op
from ..wire.messages import Digest, Free
from .copier_pool import Movers
from .fair_lock import Turns
from .staging import Ring
from .transfer import SessionTransfer, Totals, TransferReport, room

if TYPE_CHECKING:
    from ..dma import Device, Queue, RemoteRegion, Transfer
    from ..wire.connection import Connection
    from .region import SessionRegion

__all__ = ["LocalDpu", "LocalTransfer"]

SLOT, SLOTS = 1 << 21, 4
_TURN_S = 0.02  # that a wait keeps other threads out


class LocalDpu:
    """Moves bytes by a queue of its own, and copies and digests beside it. Thread-safe."""

    def __init__(self, link: Connection, device: Device, timeout: float) -> None:
        self.link = link
        self.device = device
        self.provider = device.provider
        self.lock = Turns()
        self._timeout = timeout
        self._queue: Queue | None = None
        self._movers = Movers(device)
        self._ring: Ring | None = None
        self._held: dict[int, Held] = {}
        self.flying: list[LocalTransfer] = []
        self._moves = self._bytes = 0
        self._closed = False

    @property
    def queue(self) -> Queue:
        """The session's queue; `lock` must be held."""
        if self._closed:
            raise ClosedError("the session is closed")
        if self._queue is None:
            self._queue = self.device.queue(depth=64, op_timeout=30.0)
        return self._queue

    @property
    def ring(self) -> Ring:
        """Staging memory, made at first use."""
        with self.lock:
            if self._ring is None:
                self._ring = Ring(self.device, SLOT, SLOTS)
            return self._ring

    def held(self, region: SessionRegion) -> Held:
        """The region in the terms of the agent's mover and jobs, which work here, too."""
        with self.lock:
            held = self._held.get(region.id)
            if held is None:
                held = self._held[region.id] = Held(region=region.local, remote=region.remote)
            return held

    def write(self, region: SessionRegion, view: memoryview | bytes, offset: int) -> TransferReport:
        """Waits."""
        return self.start(region, offset, len(view), memoryview(view)).finish()

    def read(self, region: SessionRegion, offset: int, size: int) -> bytes:
        """Waits; the bytes."""
        transfer = self.start(region, offset, size, None)
        transfer.finish()
        return transfer.data

    def start(
        self, region: SessionRegion, offset: int, size: int, view: memoryview | None
    ) -> LocalTransfer:
        """A write of `view`, or a read if that is None."""
        return LocalTransfer(self, self.held(region).reachable(), offset, size, view)

    def copy(self, src: SessionRegion, dst: SessionRegion, size: int) -> TransferReport:
        """Reads `src` into this process, writes `dst`, after the transfers that were started."""
        source, target = self.held(src), self.held(dst)
        self._settle(source, target)
        with self._movers.lent(source, target) as mover:
            reply = mover.move(0, source, 0, target, 0, size, self._movers.go_on)
        self.moved(size)
        return TransferReport(reply, self.provider)

    def digest(self, region: SessionRegion, offset: int, size: int) -> str:
        """SHA-256 in hex digits, of bytes that were READ by DMA; after what copy() comes after."""
        held = self.held(region)
        self._settle(held)
        with self._movers.lent(held) as mover:
            return benchmark.digest(
                Digest(0, 1, offset, size), held, mover, self._movers.go_on
            ).sha256

    def _settle(self, *regions: Held) -> None:
        """Waits for the transfers with these regions that were started before."""
        far = [held.reachable() for held in regions]
        with self.lock:
            begun = [transfer for transfer in self.flying if transfer.remote in far]
        for transfer in begun:
            while not transfer.over:
                with self.lock:
                    self.pump(transfer.oldest(), _TURN_S)

    def moved(self, size: int) -> None:
        """Counts a request that succeeded."""
        with self.lock:
            self._moves, self._bytes = self._moves + 1, self._bytes + size

    def counted(self) -> dict[str, int]:
        """Of Session.stats(): the agent, which lends memory, knows nothing of it."""
        with self.lock:
            moves, size = self._moves, self._bytes
        return {"moves": moves, "bytes": size, "your_moves": moves, "your_bytes": size}

    def adopt(self, region: SessionRegion) -> None:
        """Memory of this process is the DPU's own: the agent need not know it."""
        assert region.local is not None
        region.token = region.local.export()

    def forget(self, region: SessionRegion, timeout: float) -> None:
        """Closes this process's part, then the agent's."""
        with self.lock:
            held = self._held.pop(region.id, None)
        if held is not None:
            self._movers.left(held)
            with self.lock:
                held.close(timeout)
        if region.handle:
            self.link.ask(Free, region.handle, timeout, timeout=self._timeout + timeout)

    def pump(self, head: Transfer | None, timeout: float) -> None:
        """Waits for one DMA, then takes in all that are complete: one transfer's wait must not
        starve another of staging memory. The caller locks."""
        head = head or next(filter(None, (other.oldest() for other in self.flying)), None)
        if head is not None and timeout:
            with contextlib.suppress(TimeoutError, DgkitError):  # collect() meets the error again
                head.wait(timeout)
        for transfer in self.flying:
            transfer.collect()
        for transfer in sorted(self.flying, key=LocalTransfer.turn):
            transfer.go_on()
        self.flying[:] = [transfer for transfer in self.flying if not transfer.over]

    def close(self) -> None:
        """Ends the queue and frees the staging memory."""
        self._movers.close()
        with self.lock:
            self._closed = True
            if self._queue is not None:
                self._queue.close()
            for held in self._held.values():
                held.close_loop()
            self._held.clear()
            if self._ring is not None:
                self._ring.close()


class LocalTransfer(SessionTransfer):
    """Data through staging slots, a DMA a slot, as many at once as there are slots."""

    def __init__(
        self, dpu: LocalDpu, remote: RemoteRegion, offset: int, size: int, view: memoryview | None
    ) -> None:
        super().__init__(size, None if view is not None else room(size))
        self._dpu, self.remote, self._offset, self._view = dpu, remote, offset, view
        self._ring = dpu.ring
        self._totals = Totals(size)
        self._flying: deque[tuple[Transfer, int, int, int]] = deque()
        self._posted = 0
        with dpu.lock:
            self._fill()
            dpu.flying.append(self)

    def _fill(self) -> None:
        while self._posted < self.size and self._error is None:
            slot = self._ring.take()
            if slot is None:
                return
            at, count = self._posted, min(SLOT, self.size - self._posted)
            spans: dict[str, Any] = {
                "size": count,
                "local_offset": slot,
                "remote_offset": self._offset + at,
            }
            try:
                if self._view is not None:
                    self._ring.bytes[slot : slot + count] = self._view[at : at + count]
                    transfer = self._dpu.queue.write(self._ring.region, self.remote, **spans)
                else:
                    transfer = self._dpu.queue.read(self._ring.region, self.remote, **spans)
            except DgkitError:
                self._ring.give(slot)
                raise
            self._posted += count
            self._flying.append((transfer, slot, at, count))

    def _land(self, transfer: Transfer, slot: int, at: int, count: int) -> None:
        try:
            last = transfer.wait()
            ns = last.latency_ns
            reads, writes = (ns, 0) if last.op == Op.READ else (0, ns)
            self._totals.add(moved(0, count, last, reads, writes, 1))
            self._dpu.moved(count)
            if self._data is not None:
                self._data[at : at + count] = self._ring.bytes[slot : slot + count]
        except DgkitError as exc:
            self._error = self._error or exc
        finally:
            self._ring.give(slot)

    def oldest(self) -> Transfer | None:
        """The DMA that was posted first and is not taken in."""
        return self._flying[0][0] if self._flying else None

    def collect(self) -> None:
        """Takes in what is complete. The caller locks."""
        while self._flying and self._flying[0][0].done():
            self._land(*self._flying.popleft())
        if self._totals.done == self.size:
            self._report = self._totals.report(self._dpu.provider)

    def turn(self) -> tuple[int, int]:
        """Who has least of the staging memory goes first, then who was given least of it so far."""
        return len(self._flying), self._posted

    def go_on(self) -> None:
        """Posts what fits. The caller locks."""
        try:
            self._fill()
        except DgkitError as exc:  # it is this one's, whoever waits here
            self._error = self._error or exc

    def _advance(self, timeout: float) -> None:
        with self._dpu.lock:
            self._dpu.pump(self.oldest(), min(timeout, _TURN_S))

    @property
    def _ended(self) -> bool:
        return super()._ended and not self._flying

    @property
    def over(self) -> bool:
        """Nothing of it is left to do."""
        return self._ended

    def _stop(self) -> None:
        with self._dpu.lock:
            self._error = self._error or PeerError("the transfer was interrupted")

    def _count(self) -> int:
        return self._totals.done

    def __await__(self) -> Generator[Any, None, TransferReport]:
        while not self.done():
            head = self.oldest()
            if head is not None:
                with contextlib.suppress(DgkitError):  # wait() raises it
                    yield from head.__await__()
        return self.wait()
