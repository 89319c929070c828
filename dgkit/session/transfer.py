"""A started write or read, in chunks through staging memory, and the report of its DMA."""

from __future__ import annotations

import contextlib
import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Generator
from typing import TYPE_CHECKING, Any, TypeVar

from ..errors import ClosedError, DgkitError, PeerError, PeerTimeout
from ..types import Op, Path, Status
from .argument_checks import function, seconds, within
from .staging import Chunk

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from ..dma.byte_pool import BytePool
    from ..wire.messages import Moved
    from .staging import SlotPool

__all__ = ["SessionTransfer", "TransferReport"]

_OVER_WIRE = "between this process and the DPU by the control connection, without DMA"
_Transfer = TypeVar("_Transfer", bound="SessionTransfer")


class TransferReport:
    """Result of a transfer. The timestamps are those of its last DMA, on the DPU's clock.

    `read_ns` and `write_ns` are the summed latencies of its DMA reads and DMA writes, over `chunks`
    chunks: data of this process needs two DMAs, staging to DPU and DPU to region. `provider` is
    the provider that moved the bytes. With `over_wire` this process is on neither side: its data
    crossed the control connection to the DPU, without DMA, and was not timed. The report says
    that the bytes were moved, not that the other side is alive or has seen them (see dgkit.Status).
    """

    __slots__ = ("_moved", "over_wire", "provider", "size")

    def __init__(self, moved: Moved, provider: str, over_wire: bool = False) -> None:
        self._moved = moved
        self.over_wire = over_wire
        self.size = moved.size
        self.provider = provider

    status = property(lambda _: Status.OK, doc="Always OK: a transfer that fails raises instead.")
    op = property(lambda self: Op(self._moved.op), doc="Operation of the last DMA.")
    path = property(
        lambda self: str(Path(self._moved.path)), doc="Path of the last DMA: `inline` or `worker`."
    )
    submit_ns = property(lambda self: self._moved.submit_ns, doc="Submission, in ns.")
    post_ns = property(lambda self: self._moved.post_ns, doc="Posting, in ns.")
    complete_ns = property(lambda self: self._moved.complete_ns, doc="Completion, in ns.")
    read_ns = property(lambda self: self._moved.read_ns, doc="Summed latency of the DMA reads.")
    write_ns = property(lambda self: self._moved.write_ns, doc="Summed latency of the DMA writes.")
    chunks = property(lambda self: self._moved.chunks, doc="Number of chunks.")

    @property
    def first_stamps(self) -> tuple[int, int, int] | None:
        """Return `(submit_ns, post_ns, complete_ns)` of the first DMA.

        It is the last one, too, if there was one only; None if the agent does not report it.
        """
        moved = self._moved
        if not moved.first_complete_ns:
            return None
        return moved.first_submit_ns, moved.first_post_ns, moved.first_complete_ns

    @property
    def direct(self) -> bool:
        """Return whether one DMA moved each byte, not two by way of the DPU's memory.

        A copy from GPU to GPU is direct where one of them has peer access to the other.
        """
        return not (self.over_wire or (self.read_ns and self.write_ns))

    @property
    def latency_ns(self) -> int:
        """Return the time from submission to completion of the last DMA, in ns."""
        return self._moved.complete_ns - self._moved.submit_ns

    def __repr__(self) -> str:
        from ..units import plural, us  # late: connect() must be quick

        dma = f"DMA read {us(self.read_ns)} µs, write {us(self.write_ns)} µs"
        if self.direct:
            dma = f"DMA {self.op.name.lower()} {us(self.read_ns + self.write_ns)} µs, direct"
        moved = f"{plural(self.size, 'byte')} by {self.provider}, {self.path}"
        return (
            f"<TransferReport OK, {moved}: {dma}, "
            f"in {_pieces(self.chunks)}{f'; {_OVER_WIRE}' if self.over_wire else ''}>"
        )

    def _repr_html_(self) -> str:
        from ..html_cards import card, provider_badge
        from ..units import size_text, us

        moved = (("DMA reads", self.read_ns), ("DMA writes", self.write_ns))
        rows = [
            ("Status", "OK"),
            ("Size", f"{size_text(self.size)}, in {_pieces(self.chunks)}"),
            *((name, f"{us(took)} µs in all") for name, took in moved if took),
            ("Route", "direct" if self.direct else "through the DPU's memory"),
            ("Last DMA", f"{self.op.name}, {self.path}, {us(self.latency_ns)} µs"),
            *([("Not by DMA", _OVER_WIRE)] if self.over_wire else []),
        ]
        return card("Transfer", rows, badge=provider_badge(self.provider))


def _pieces(count: int) -> str:
    from ..units import plural

    return plural(count, "piece")


class _Totals:
    """Sums of the replies to a transfer's chunks."""

    def __init__(self) -> None:
        self.done = self.read_ns = self.write_ns = self.chunks = 0
        self.first: Moved | None = None
        self.last: Moved | None = None

    def add(self, chunk: Chunk, moved: Moved) -> None:
        """Add the reply to one chunk, and finish the chunk.

        No call is made, so that no signal handler runs in between.
        """
        self.done += moved.size
        self.read_ns += moved.read_ns
        self.write_ns += moved.write_ns
        self.chunks += moved.chunks
        if self.first is None:
            self.first = moved
        self.last = moved
        chunk.finished = True

    def report(self, provider: str, over_wire: bool) -> TransferReport:
        """Return the report of the whole transfer."""
        first, last = self.first, self.last
        assert first is not None
        assert last is not None
        last.size, last.chunks = self.done, self.chunks
        last.read_ns, last.write_ns = self.read_ns, self.write_ns
        last.first_submit_ns, last.first_post_ns = first.first_submit_ns, first.first_post_ns
        last.first_complete_ns = first.first_complete_ns
        return TransferReport(last, provider, over_wire)


class SessionTransfer(ABC):
    """Transfer in progress, cut into chunks of one staging slot each.

    A transfer larger than the staging memory advances while it is waited for, awaited, or polled
    with done(). A backend's subclass starts the DMA of a chunk in `_post`, passes its result to
    `_finish_chunk`, and calls `_post_chunks` when slots may be free; `lock` guards all three.
    """

    #: As of TransferReport.
    over_wire = False

    def __init__(
        self,
        pool: SlotPool,
        lock: AbstractContextManager[Any],
        provider: str,
        offset: int,
        size: int,
        view: memoryview | None,
        results: BytePool,
    ) -> None:
        self.size = size
        self._pool, self._lock, self._provider = pool, lock, provider
        self._offset, self._view = offset, view
        self._data = results.take(size) if view is None else None
        self._fill = results.fill
        self._posted = 0  # bytes
        self._torn = False  # an exception interrupted _post_chunks()
        self._in_flight: deque[Chunk] = deque()
        self._totals = _Totals()
        self._report: TransferReport | None = None
        self._error: Exception | None = None

    @abstractmethod
    def _post(self, chunk: Chunk) -> None:
        """Start the DMA of a chunk, whose data is staged, and set its request."""

    @abstractmethod
    def _is_posted(self, chunk: Chunk) -> bool:
        """Return whether the DMA of an unfinished chunk was started."""

    @abstractmethod
    def _advance(self, timeout: float) -> None:
        """Handle the completions that have arrived; wait at most `timeout` seconds for one."""

    @abstractmethod
    def __await__(self) -> Generator[Any, None, TransferReport]: ...

    @abstractmethod
    def _wait_for_slot(self) -> None:
        """Arrange for `_post_chunks` to be called when a slot is free; none is now."""

    @abstractmethod
    def _cancel_in_flight(self) -> None:
        """Cancel the chunks in flight, if the backend can."""

    @abstractmethod
    def _prepare(self) -> None:
        """Get ready for the first chunk. The caller holds the lock."""

    def start(self: _Transfer) -> _Transfer:
        """Post the first chunks and return the transfer; raise the error if one fails."""
        try:
            with self._lock:
                self._prepare()
                self._go_on()
                if self._error is not None:
                    raise self._error
            return self
        except BaseException:  # Ctrl-C, too: the caller has no transfer to cancel
            self.cancel()
            raise

    def _go_on(self) -> None:
        """Post chunks, then pass on the slots that are left. The caller holds the lock."""
        self._post_chunks()
        self._pool.wake()

    def _post_chunks(self) -> None:
        """Post chunks as long as staging slots are free. The caller holds the lock."""
        try:
            if self._torn:
                self._resume()
            while self._posted < self.size and self._error is None and self._post_next():
                pass
        except BaseException:
            self._torn = True
            raise

    def _resume(self) -> None:
        """Post the chunks that an exception such as Ctrl-C kept from being posted."""
        self._torn = False
        for chunk in list(self._in_flight):
            if not chunk.finished and self._is_posted(chunk):
                continue
            if chunk.finished or self._error is not None:
                self._finish_chunk(chunk, None, self._error)
            else:
                self._stage_and_post(chunk)

    def _post_next(self) -> bool:
        """Post the next chunk; return False if there is no free slot for it."""
        at = self._posted
        chunk = Chunk(at, min(self._pool.slot_size, self.size - at))
        try:
            slot = self._pool.acquire(chunk)
        except ClosedError as exc:
            self._error = exc
            return False
        if slot is None:
            self._wait_for_slot()
            return False
        self._posted = at + chunk.size  # no call before the next line is done: both or none happen
        self._in_flight.append(chunk)
        self._stage_and_post(chunk)
        return True

    def _stage_and_post(self, chunk: Chunk) -> None:
        slot, at = chunk.slot, chunk.at
        if self._view is not None:
            self._pool.buffer[slot : slot + chunk.size] = self._view[at : at + chunk.size]
        try:
            self._post(chunk)
        except DgkitError as exc:
            self._finish_chunk(chunk, None, exc)

    def _finish_chunk(self, chunk: Chunk, reply: Moved | None, error: Exception | None) -> None:
        """Take in the result of a chunk, and free its slot. The caller holds the lock.

        If an exception such as Ctrl-C interrupts it, it is called again.
        """
        if not chunk.finished:
            if reply is None:
                self._error = self._error or error
                chunk.finished = True
            else:
                if self._data is not None:
                    staged = self._pool.buffer[chunk.slot : chunk.slot + chunk.size]
                    self._fill(self._data, chunk.at, staged)
                self._totals.add(chunk, reply)
        chunk.request = None  # it refers back to the transfer
        if self._totals.done == self.size and self._report is None:
            # before the removal, after which nothing would repeat it
            self._report = self._totals.report(self._provider, self.over_wire)
        with contextlib.suppress(ValueError):  # removed before an interruption
            self._in_flight.remove(chunk)
        if self._ended:
            self._view = None

    def _oldest_request(self) -> Any:
        """Return the request of the chunk that was posted first and is in flight, or None."""
        try:
            return self._in_flight[0].request
        except IndexError:
            return None

    @property
    def _ended(self) -> bool:
        return (self._report is not None or self._error is not None) and not self._in_flight

    @property
    def progress(self) -> float:
        """Return the part that has been moved, from 0.0 to 1.0."""
        return self._totals.done / self.size

    def done(self) -> bool:
        """Return whether wait() would return at once."""
        if not self._ended:
            self._advance(0.0)
        return self._ended

    def wait(
        self,
        timeout: float | None = None,
        progress: Callable[[int, int], object] | None = None,
    ) -> TransferReport:
        """Wait for the end of the transfer and return its report.

        Args:
            timeout: Seconds to wait at most; None: no limit.
            progress: Called with (bytes done, total bytes) now and then and at the end, in this
                thread.

        Raises:
            PeerTimeout: Not done within `timeout` seconds; call wait() again.
            TransferError, AccessDenied, PeerLost: The transfer failed.
        """
        function("progress", progress)
        if timeout is not None:
            timeout = seconds("timeout", timeout, zero=True, most=float("inf"))
        deadline = None if timeout is None else time.monotonic() + timeout
        while not self._ended:
            left = 1.0 if deadline is None else deadline - time.monotonic()
            if left <= 0:
                done = self._totals.done
                raise PeerTimeout(f"{done:,} of {self.size:,} bytes moved in {timeout} s")
            self._advance(min(left, 1.0))
            if progress is not None:
                progress(self._totals.done, self.size)
        if self._error is not None:
            raise self._error.with_traceback(None)
        assert self._report is not None
        if progress is not None:
            progress(self.size, self.size)
        return self._report

    def cancel(self) -> None:
        """End the transfer early: nothing more is posted, and wait() raises PeerError. Idempotent.

        Chunks in flight may still complete.
        """
        if not self._ended:
            with self._lock:
                self._error = self._error or PeerError("the transfer was interrupted")
                self._cancel_in_flight()

    def run(self) -> TransferReport:
        """Start, wait and return the report; cancel if an exception such as Ctrl-C interrupts."""
        try:
            self.start()
            return self.wait()
        except BaseException:
            self.cancel()
            raise

    def __repr__(self) -> str:
        from ..units import plural

        kind = "write" if self._data is None else "read"
        if self._error is not None:
            state = f"failed: {self._error}"
        else:
            state = "done" if self._report is not None else f"{100 * self.progress:.0f} % done"
        return f"<SessionTransfer {kind} of {plural(self.size, 'byte')}, {state}>"

    @property
    def data(self) -> bytes:
        """Return the bytes of a read; wait for them.

        Raises:
            ValueError: The transfer is a write.
        """
        return self.first(self.size)

    def first(self, size: int) -> bytes:
        """Return the first `size` bytes of a read, or all if it has fewer; else as `data`."""
        if self._data is None:
            raise ValueError("a write returns no data")
        self.wait()
        return self._data[: within("size", size, 0, 1 << 63)]
