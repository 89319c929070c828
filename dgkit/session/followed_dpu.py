"""Backend that reports the writes of a session, as they begin and end, to who follows them."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, cast

from ..dma.byte_pool import BytePool
from ..errors import DgkitError
from ..sizes import SMALL
from ..types import Op

if TYPE_CHECKING:
    from collections.abc import Callable

    from ..dpu.values import (
        LatencyResult,
        LatencyTask,
        MeasurementListener,
        RateResult,
        RateTask,
    )
    from .backend import Backend
    from .region import SessionRegion
    from .transfer import SessionTransfer, TransferReport

_COPIED_FIRST = 4096  # bytes; the copy takes less time than to make it during the transfer
_WRITERS = {"host": "host", "dpu": "DPU", "neither": "client"}


class Write(NamedTuple):
    """Write of a session that has ended.

    Attributes:
        number: Number of the transfer among those that were reported, from 1.
        writer: Whose bytes they are: "host", "DPU" (also a copy that it made) or "client" (this
            process, where both sides are agents).
        offset: Byte of the region it starts at.
        size: Bytes.
        data: The bytes; None if they are unknown: it failed, or another write to the same bytes was
            in flight beside it.
        t_ns: End, by time.time_ns().
        end_ns: End, by time.monotonic_ns().
    """

    number: int
    writer: str
    offset: int
    size: int
    data: bytes | None
    t_ns: int
    end_ns: int


class Follower(Protocol):
    """Receives the writes to one region, in the order in which they ended.

    Called in the thread of a write, which waits: the calls must return quickly.
    """

    def began(self) -> None:
        """Record that a write begins."""

    def ended(self, write: Write, /) -> None:
        """Record a write that has ended: while the DPU moves the next one, or in settle()."""


class _InFlight:
    """A write that has begun."""

    __slots__ = ("data", "end_ns", "offset", "raced", "region", "size", "transfer", "writer")

    def __init__(self, region: int, writer: str, offset: int, size: int) -> None:
        self.region, self.writer, self.offset, self.size = region, writer, offset, size
        self.data: bytes | None = None
        self.end_ns = 0  # by time.monotonic_ns()
        self.transfer: SessionTransfer | None = None
        self.raced = False  # another write to some of the bytes was in flight meanwhile

    def overlaps(self, other: _InFlight) -> bool:
        """Return whether both are in flight and write the same byte."""
        return (
            not self.end_ns
            and self.region == other.region
            and self.offset < other.offset + other.size
            and other.offset < self.offset + self.size
        )


class FollowedDpu:
    """Reports writes; all else is the other backend's. Thread-safe.

    Attributes:
        lock: Held while followers are added, removed and called.
        chosen: This backend while somebody follows writes, else the one that moves the bytes.

    Args:
        dpu: The backend that moves the bytes.
        role: Role of this process.
    """

    def __init__(self, dpu: Backend, role: str) -> None:
        self._dpu, self._writer = dpu, _WRITERS[role]
        self._followers: dict[int, list[Follower]] = {}
        self._in_flight: list[_InFlight] = []
        self._count = 0
        self._pool = BytePool(least=SMALL, oldest_first=True)  # followers keep the latest writes
        self.lock = threading.RLock()
        self.chosen = dpu

    def __getattr__(self, name: str) -> Any:
        return getattr(self._dpu, name)

    def replace(self, dpu: Backend) -> None:
        """Use another backend from now on."""
        self._dpu = dpu
        with self.lock:
            self._choose()

    def _choose(self) -> None:
        self.chosen = cast("Backend", self) if self._followers else self._dpu

    def follow(self, region: SessionRegion, follower: Follower) -> Callable[[], None]:
        """Report the writes to a region from now on; return a function that ends that."""
        self.settle()
        with self.lock:
            self._followers.setdefault(region.id, []).append(follower)
            self._choose()

        def stop() -> None:
            self.settle()
            with self.lock:
                followers = self._followers.get(region.id, [])
                if follower in followers:
                    followers.remove(follower)
                if not followers:
                    self._followers.pop(region.id, None)
                self._choose()

        return stop

    def write(self, region: SessionRegion, view: memoryview | bytes, offset: int) -> TransferReport:
        """Write and wait."""
        if region.id not in self._followers:
            return self._dpu.write(region, view, offset)
        write = self._begin(region, self._writer, offset, len(view))
        known = isinstance(view, bytes) or len(view) <= _COPIED_FIRST
        data = bytes(view) if known else b""

        def keep(at: int, part: memoryview) -> None:  # while the DPU moves the bytes
            nonlocal data
            if not at:
                self._report()
            if not known:
                data = data or self._pool.take(len(view))
                BytePool.fill(data, at, part, streamed=True)

        try:
            report = self._dpu.write(region, view, offset, keep)
            write.data = data
        finally:
            write.end_ns = time.monotonic_ns()
        return report

    def start(
        self, region: SessionRegion, offset: int, size: int, view: memoryview | None
    ) -> SessionTransfer:
        """Start a write, which is reported as it ends, or a read."""
        if view is None or region.id not in self._followers:
            return self._dpu.start(region, offset, size, view)
        write = self._begin(region, self._writer, offset, size)
        try:
            write.data = _kept(view)
            write.transfer = transfer = self._dpu.start(region, offset, size, view)
        except BaseException:
            write.data = None
            self._end(write)
            raise
        transfer.call_on_end(lambda: self._end(write))
        return transfer

    def copy(self, src: SessionRegion, dst: SessionRegion, size: int) -> TransferReport:
        """Copy and wait; the bytes are read back for the report."""
        if dst.id not in self._followers:
            return self._dpu.copy(src, dst, size)
        write = self._begin(dst, "DPU", 0, size)
        try:
            report = self._dpu.copy(src, dst, size)
            write.data = self._read_back(dst, size)
        finally:
            self._end(write)
        return report

    def _read_back(self, region: SessionRegion, size: int) -> bytes | None:
        try:
            return self._dpu.read(region, 0, size)
        except DgkitError:  # for example, the DPU may only write the region
            return None

    def latency(
        self, region: SessionRegion, task: LatencyTask, listener: MeasurementListener
    ) -> LatencyResult:
        """Measure latencies; a measurement that writes to the region is reported."""
        if region.id not in self._followers or task.op != Op.WRITE:
            return self._dpu.latency(region, task, listener)
        write = self._begin(region, "DPU", task.offset, task.size)
        try:
            return self._dpu.latency(region, task, listener)
        finally:
            self._end(write)

    def bandwidth(
        self, region: SessionRegion, task: RateTask, listener: MeasurementListener
    ) -> RateResult:
        """Measure bandwidth; a measurement that writes to the region is reported."""
        if region.id not in self._followers or task.op != Op.WRITE:
            return self._dpu.bandwidth(region, task, listener)
        write = self._begin(region, "DPU", 0, region.size)
        try:
            return self._dpu.bandwidth(region, task, listener)
        finally:
            self._end(write)

    def _begin(self, region: SessionRegion, writer: str, offset: int, size: int) -> _InFlight:
        self._find_ended()
        write = _InFlight(region.id, writer, offset, size)
        with self.lock:
            for other in self._in_flight:
                if other.overlaps(write):
                    other.raced = write.raced = True
            self._in_flight.append(write)
            for follower in self._followers.get(region.id, ()):
                follower.began()
        return write

    def settle(self) -> None:
        """Report the writes that have ended, and were not reported yet."""
        self._find_ended()
        self._report()

    def _find_ended(self) -> None:
        """Note the end of started writes whose threads have not come to it yet."""
        for write in list(self._in_flight):
            if write.transfer is not None and not write.end_ns and write.transfer.done():
                self._note_end(write)

    def _end(self, write: _InFlight) -> None:
        self._note_end(write)
        self._report()

    def _note_end(self, write: _InFlight) -> None:
        if write.transfer is not None and _failed(write.transfer):
            write.data = None
        write.end_ns = write.end_ns or time.monotonic_ns()

    def _report(self) -> None:
        """Report each write that has ended, once."""
        with self.lock:
            ended = [write for write in self._in_flight if write.end_ns]
            for write in sorted(ended, key=lambda write: write.end_ns):
                self._in_flight.remove(write)
                self._count += 1
                data = None if write.raced else write.data
                t_ns = time.time_ns() - time.monotonic_ns() + write.end_ns
                about = (write.writer, write.offset, write.size, data, t_ns, write.end_ns)
                for follower in self._followers.get(write.region, ()):
                    follower.ended(Write(self._count, *about))


def _kept(view: memoryview) -> bytes:
    """Return the bytes of a view: not copied if it is of a whole `bytes` object."""
    whole = view.obj
    return whole if type(whole) is bytes and len(whole) == len(view) else bytes(view)


def _failed(transfer: SessionTransfer) -> bool:
    """Return whether a transfer that has ended has failed."""
    try:
        transfer.wait(0)
    except Exception:
        return True
    return False
