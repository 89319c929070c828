"""A started write or read, and the report of its DMA."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Generator
from typing import TYPE_CHECKING, Any, TypeVar

from ..errors import PeerTimeout
from ..types import Op, Path, Status
from .argument_checks import function, seconds, within

if TYPE_CHECKING:
    from ..dpu.values import Moved
    from ..wire import messages

_OVER_WIRE = "between this process and the DPU by the control connection, without DMA"
_Transfer = TypeVar("_Transfer", bound="SessionTransfer")


class TransferReport:
    """Result of a transfer. The timestamps are those of its last DMA, by the DPU's clock.

    `read_ns` and `write_ns` are the summed latencies of its DMA reads and of its DMA writes, over
    `chunks` chunks: data of this process needs two DMAs, staging to DPU and DPU to region.
    `provider` is the provider that moved the bytes. `over_wire` means that this process is on
    neither side: its data crossed the control connection to the DPU, without DMA, and that was not
    timed. The report says that the bytes were moved, not that the other side is alive or has seen
    them (see dgkit.Status).
    """

    __slots__ = ("_moved", "over_wire", "provider", "size")

    def __init__(
        self, moved: Moved | messages.Moved, provider: str, over_wire: bool = False
    ) -> None:
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

        The first is also the last if there was only one; None if the agent does not report it.
        """
        moved = self._moved
        if not moved.first_complete_ns:
            return None
        return moved.first_submit_ns, moved.first_post_ns, moved.first_complete_ns

    @property
    def direct(self) -> bool:
        """Return whether one DMA moved each byte, instead of two through the DPU's memory.

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


class SessionTransfer(ABC):
    """Transfer in progress; wait for it with wait() or `await`, or poll it with done()."""

    #: As in TransferReport.
    over_wire = False

    def __init__(self, size: int, data: bytes | None) -> None:
        self.size = size
        self._data = data  # bytes of a read
        self._report: TransferReport | None = None
        self._error: Exception | None = None

    @abstractmethod
    def start(self: _Transfer) -> _Transfer:
        """Start the transfer and return it; raise the error if starting fails."""

    @abstractmethod
    def _advance(self, timeout: float) -> None:
        """Handle the completions that have arrived; wait at most `timeout` seconds for one."""

    @property
    @abstractmethod
    def _ended(self) -> bool:
        """Return whether the report or the error is available and nothing is in flight."""

    @property
    @abstractmethod
    def _bytes_done(self) -> int:
        """Return the bytes that have been moved."""

    @abstractmethod
    def cancel(self) -> None:
        """End the transfer early: nothing more is posted, and wait() raises PeerError. Idempotent.

        Chunks in flight may still complete.
        """

    @abstractmethod
    def fileno(self) -> int:
        """Return a descriptor that is readable when done() has something to handle; -1 if none."""

    @abstractmethod
    def call_on_end(self, call: Callable[[], object]) -> None:
        """Call `call` once, from the thread that ends the transfer; at once if it has ended."""

    @abstractmethod
    def cancel_call(self, call: Callable[[], object]) -> object:
        """Undo call_on_end()."""

    @abstractmethod
    def __await__(self) -> Generator[Any, None, TransferReport]: ...

    @property
    def progress(self) -> float:
        """Return the fraction of the bytes that has been moved, from 0.0 to 1.0."""
        return self._bytes_done / self.size

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
            progress: Called periodically and at the end with (bytes done, total bytes), in this
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
                done = self._bytes_done
                raise PeerTimeout(f"{done:,} of {self.size:,} bytes moved in {timeout} s")
            self._advance(min(left, 1.0))
            if progress is not None:
                progress(self._bytes_done, self.size)
        if self._error is not None:
            raise self._error.with_traceback(None)
        assert self._report is not None
        if progress is not None:
            progress(self.size, self.size)
        return self._report

    def run(self) -> TransferReport:
        """Start, wait and return the report; cancel if an exception such as Ctrl-C comes."""
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
        """Return the first `size` bytes of a read, or all if it has fewer. See `data`."""
        if self._data is None:
            raise ValueError("a write returns no data")
        self.wait()
        return self._data[: within("size", size, 0, 1 << 63)]
