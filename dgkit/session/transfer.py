"""A write or read that was started, and the report of its DMA."""

from __future__ import annotations

import mmap
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Generator
from typing import TYPE_CHECKING, Any

from ..errors import PeerTimeout
from ..types import Op, Path, Status
from .argument_checks import function, seconds, within

if TYPE_CHECKING:
    from ..wire.messages import Moved

__all__ = ["SessionTransfer", "Totals", "TransferReport", "room"]

_LARGE = 8 << 20  # bytes; less gets its pages within some milliseconds


class TransferReport:
    """How a transfer went. The stamps are those of its last DMA, on the DPU's clock.

    `read_ns` and `write_ns` add up the latencies of the DMAs that READ and that WROTE, over
    `chunks` chunks: data of this process costs two, staging to DPU and DPU to region. `provider`
    moved them.
    """

    __slots__ = ("_moved", "provider", "size")

    def __init__(self, moved: Moved, provider: str) -> None:
        self._moved = moved
        self.size = moved.size
        self.provider = provider

    status = property(lambda _: Status.OK, doc="A transfer that failed raises instead.")
    op = property(lambda self: Op(self._moved.op), doc="The last DMA's.")
    path = property(lambda self: str(Path(self._moved.path)), doc="`inline` or `worker`.")
    submit_ns = property(lambda self: self._moved.submit_ns, doc="Nanoseconds.")
    post_ns = property(lambda self: self._moved.post_ns, doc="Nanoseconds.")
    complete_ns = property(lambda self: self._moved.complete_ns, doc="Nanoseconds.")
    read_ns = property(lambda self: self._moved.read_ns, doc="Nanoseconds in READs.")
    write_ns = property(lambda self: self._moved.write_ns, doc="Nanoseconds in WRITEs.")
    chunks = property(lambda self: self._moved.chunks, doc="How many pieces it went in.")

    @property
    def latency_ns(self) -> int:
        """Nanoseconds from submit to completion of the last DMA."""
        return self._moved.complete_ns - self._moved.submit_ns

    def __repr__(self) -> str:
        from ..units import us  # late: connect() must be quick

        return (
            f"<TransferReport OK, {self.size} bytes by {self.provider}, {self.path}: DMA read "
            f"{us(self.read_ns)} us, write {us(self.write_ns)} us, in {_pieces(self.chunks)}>"
        )

    def _repr_html_(self) -> str:
        from ..html_cards import card, provider_badge
        from ..units import size_text, us

        moved = (("DMA reads", self.read_ns), ("DMA writes", self.write_ns))
        rows = [
            ("Status", "OK"),
            ("Size", f"{size_text(self.size)}, in {_pieces(self.chunks)}"),
            *((name, f"{us(took)} us in all") for name, took in moved if took),
            ("Last DMA", f"{self.op.name}, {self.path}, {us(self.latency_ns)} us"),
        ]
        return card("Transfer", rows, badge=provider_badge(self.provider))


def _pieces(count: int) -> str:
    return "1 piece" if count == 1 else f"{count} pieces"


class Totals:
    """Adds up the replies of a transfer's chunks."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.done = self.read_ns = self.write_ns = self.chunks = 0
        self.last: Moved | None = None

    def add(self, moved: Moved) -> None:
        """One chunk's reply."""
        self.done += moved.size
        self.read_ns += moved.read_ns
        self.write_ns += moved.write_ns
        self.chunks += moved.chunks
        self.last = moved

    def report(self, provider: str) -> TransferReport:
        """The whole transfer's."""
        last = self.last
        assert last is not None
        last.size, last.chunks = self.size, self.chunks
        last.read_ns, last.write_ns = self.read_ns, self.write_ns
        return TransferReport(last, provider)


def room(size: int) -> bytearray | mmap.mmap:
    """Memory for what a read brings. MemoryError: there is none.

    A large one gets its pages as the bytes come: all at once would hold up every thread.
    """
    if size < _LARGE:
        return bytearray(size)
    try:
        return mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    except (OSError, OverflowError) as error:
        raise MemoryError(f"no memory for the {size} bytes of a read") from error


class SessionTransfer(ABC):
    """A transfer on its way. What is larger than the staging memory moves on while it is waited
    for, awaited, or asked whether it is done()."""

    def __init__(self, size: int, data: bytearray | mmap.mmap | None) -> None:
        self.size = size
        self._data = data
        self._report: TransferReport | None = None
        self._error: Exception | None = None

    @abstractmethod
    def _advance(self, timeout: float) -> None:
        """Takes in what has come, waiting at most `timeout` seconds for something to come."""

    @abstractmethod
    def _stop(self) -> None:
        """Posts no more; what is on its way ends as it may."""

    @abstractmethod
    def _count(self) -> int:
        """Bytes that have arrived."""

    @abstractmethod
    def __await__(self) -> Generator[Any, None, TransferReport]: ...

    @property
    def progress(self) -> float:
        """From 0.0 to 1.0."""
        return self._count() / self.size

    @property
    def _ended(self) -> bool:
        return self._report is not None or self._error is not None

    def done(self) -> bool:
        """Whether wait() would return at once."""
        if not self._ended:
            self._advance(0.0)
        return self._ended

    def wait(
        self,
        timeout: float | None = None,
        progress: Callable[[int, int], object] | None = None,
    ) -> TransferReport:
        """Waits for the end. PeerTimeout: not done within `timeout` seconds; wait again.

        `progress(done, total)` in bytes is called now and then and in the end, in this thread.
        TransferError, AccessDenied, PeerLost...: how the transfer ended.
        """
        function("progress", progress)
        if timeout is not None:
            timeout = seconds("timeout", timeout, zero=True, most=float("inf"))
        deadline = None if timeout is None else time.monotonic() + timeout
        while not self._ended:
            left = 1.0 if deadline is None else deadline - time.monotonic()
            if left <= 0:
                raise PeerTimeout(f"{self._count()} of {self.size} bytes moved in {timeout} s")
            self._advance(min(left, 1.0))
            if progress is not None:
                progress(self._count(), self.size)
        if self._error is not None:
            raise self._error.with_traceback(None)
        assert self._report is not None
        if progress is not None:
            progress(self.size, self.size)
        return self._report

    def cancel(self) -> None:
        """Ends it early: no more is posted, and wait() raises PeerError. Again: nothing."""
        if not self._ended:
            self._stop()

    def finish(self) -> TransferReport:
        """wait(), for a caller that keeps no hold of the transfer: what interrupts it ends it."""
        try:
            return self.wait()
        except BaseException:
            if not self._ended:
                self._stop()
            raise

    def __repr__(self) -> str:
        kind = "write" if self._data is None else "read"
        if self._error is not None:
            state = f"failed: {self._error}"
        else:
            state = "done" if self._report is not None else f"{100 * self.progress:.0f} % done"
        return f"<SessionTransfer {kind} of {self.size} bytes, {state}>"

    @property
    def data(self) -> bytes:
        """What a read brought, a copy; waits for it. ValueError: it is a write."""
        return self.first(self.size)

    def first(self, size: int) -> bytes:
        """The first `size` bytes of what a read brought (less: all), and as data in all else."""
        if self._data is None:
            raise ValueError("a write brings no data")
        self.wait()
        with memoryview(self._data) as whole:
            return bytes(whole[: within("size", size, 0, 1 << 63)])
