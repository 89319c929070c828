# SPDX-License-Identifier: Apache-2.0
"""A started write or read, and the report of its DMA."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Generator
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from ..errors import PeerError, PeerTimeout, copy_of
from ..types import PATHS, Op, Status, machine_is_emulated
from .argument_checks import function, seconds, within

if TYPE_CHECKING:
    from ..dpu.job import TransferJob
    from ..schema import Moved
    from .session_region import SessionRegion

_POLL_S = 0.1  # how often an awaited transfer checks that the worker runs
_OVER_WIRE = "between this process and the DPU by the control connection, without DMA"


class TransferReport:
    """Result of a transfer. The timestamps are those of its last DMA, by the DPU's clock.

    `read_ns` and `write_ns` are the summed latencies of its DMA reads and of its DMA writes, over
    `chunks` chunks: data of this process needs two DMAs, staging to DPU and DPU to region.
    `provider` is the provider that moved the bytes. `over_wire` means that this process is on
    neither side: its data crossed the control connection to the DPU, without DMA, and that was not
    timed. The report says that the bytes were moved, not that the other side is alive or has seen
    them (see dgkit.Status). `emulated`: the DPU is an emulated machine elsewhere.
    """

    __slots__ = ("_moved", "emulated", "over_wire", "provider", "size")

    def __init__(
        self,
        moved: Moved,
        provider: str,
        over_wire: bool = False,
        emulated: bool = False,
    ) -> None:
        self._moved, self.emulated = moved, emulated
        self.over_wire = over_wire
        self.size = moved.size
        self.provider = provider

    status = property(lambda _: Status.OK, doc="Always OK: a transfer that fails raises instead.")
    op = property(lambda self: Op(self._moved.op), doc="Operation of the last DMA.")
    path = property(
        lambda self: PATHS[self._moved.path], doc="Path of the last DMA: `inline` or `worker`."
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
        how = f"{self.provider}{', emulated' * (self.emulated or machine_is_emulated())}"
        moved = f"{plural(self.size, 'byte')} by {how}, {self.path}"
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
        return card("Transfer", rows, badge=provider_badge(self.provider, self.emulated))


def _pieces(count: int) -> str:
    from ..units import plural

    return plural(count, "piece")


class EndedWrite(NamedTuple):
    """Write of a session to a region, which has ended: what Session.on_write() reports.

    Attributes:
        region: The region.
        offset: Its byte that the write started at.
        size: Bytes.
        data: The bytes, valid during the call; None if the DPU made them: a copy, a measurement.
        failed: Whether it failed: any part of the bytes may have been written.
        begin_ns: Begin, by time.monotonic_ns().
    """

    region: SessionRegion
    offset: int
    size: int
    data: memoryview | bytes | None
    failed: bool
    begin_ns: int


class Jobs(Protocol):
    """Runs the jobs of transfers: the DPU service of this process, or a worker."""

    def submit(self, job: TransferJob) -> None:
        """Start a job."""

    def run(self, job: TransferJob) -> None:
        """Start a job whose caller waits; it may have ended on return."""

    def wait(self, job: TransferJob, timeout: float) -> bool:
        """Wait for a job at most `timeout` seconds, perhaps less; return whether it has ended."""


class SessionTransfer:
    """Transfer in progress; wait for it with wait() or `await`, or poll it with done().

    `over_wire` and `emulated` are as in TransferReport.
    """

    def __init__(
        self,
        jobs: Jobs,
        job: TransferJob,
        provider: str,
        over_wire: bool = False,
        emulated: bool = False,
    ) -> None:
        self.size, self.over_wire, self.emulated = job.size, over_wire, emulated
        self._jobs, self._job, self._provider = jobs, job, provider
        self._report: TransferReport | None = None
        self._error: Exception | None = None

    def start(self) -> SessionTransfer:
        """Start the transfer, which then proceeds without further calls, and return it."""
        try:
            self._jobs.submit(self._job)
        except BaseException:  # the caller has no transfer to cancel
            self.cancel()
            raise
        return self

    @property
    def _ended(self) -> bool:
        """Return whether the report or the error is available and nothing is in flight."""
        if self._job.ended and self._report is None and self._error is None:
            try:
                result = self._job.result()
                about = self._provider, self.over_wire, self.emulated
                self._report = TransferReport(result, *about)
            except Exception as exc:
                self._error = exc.with_traceback(None)
        return self._job.ended

    @property
    def failed(self) -> bool:
        """Return whether the transfer has ended with an error, which wait() raises."""
        return self._ended and self._error is not None

    def cancel(self) -> None:
        """End the transfer early: nothing more is posted, and wait() raises PeerError. Idempotent.

        Chunks in flight may still complete.
        """
        self._job.cancel(PeerError("the transfer was interrupted"))

    def call_on_end(self, call: Callable[[], object]) -> None:
        """Call `call` once, from the thread that ends the transfer; at once if it has ended."""
        self._job.call_on_end(call)

    def cancel_call(self, call: Callable[[], object]) -> None:
        """Undo call_on_end()."""
        self._job.cancel_call(call)

    def __await__(self) -> Generator[Any, None, TransferReport]:
        return self._wait_in_loop().__await__()

    async def _wait_in_loop(self) -> TransferReport:
        import asyncio  # imported here: only who awaits a transfer needs it

        loop, ended = asyncio.get_running_loop(), asyncio.Event()
        notify = lambda: loop.call_soon_threadsafe(ended.set)  # noqa: E731
        self.call_on_end(notify)
        try:
            while not self.done():
                with contextlib.suppress(asyncio.TimeoutError):
                    await asyncio.wait_for(ended.wait(), _POLL_S)
        finally:
            self.cancel_call(notify)
        return self.wait()

    @property
    def progress(self) -> float:
        """Return the fraction of the bytes that has been moved, from 0.0 to 1.0."""
        return self._job.done / self.size

    def done(self) -> bool:
        """Return whether wait() would return at once."""
        return self.poll(0.0)

    def poll(self, timeout: float) -> bool:
        """Wait at most `timeout` seconds, and return whether wait() would return at once.

        Raises:
            PeerTimeout: The agent's process is stopped, or it is silent.
        """
        end = time.monotonic() + timeout
        while not self._ended:
            left = min(1.0, max(0.0, end - time.monotonic()))
            if not self._jobs.wait(self._job, left) and not left:
                return False
        return True

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
        if progress is not None:
            function("progress", progress)
        if timeout is not None:
            timeout = seconds("timeout", timeout, zero=True, most=float("inf"))
        deadline = None if timeout is None else time.monotonic() + timeout
        while not self._ended:
            left = 1.0 if deadline is None else deadline - time.monotonic()
            if left <= 0:
                done = self._job.done
                raise PeerTimeout(f"{done:,} of {self.size:,} bytes moved in {timeout} s")
            self._jobs.wait(self._job, min(left, 1.0))
            if progress is not None:
                progress(self._job.done, self.size)
        if self._error is not None:
            raise copy_of(self._error)
        assert self._report is not None
        if progress is not None:
            progress(self.size, self.size)
        return self._report

    def run(self) -> TransferReport:
        """Move the bytes and return the report; cancel the transfer if interrupted."""
        try:
            self._jobs.run(self._job)
            return self.wait()
        except BaseException:
            self.cancel()
            raise

    def __repr__(self) -> str:
        from ..units import plural

        kind = "write" if self._job.writes else "read"
        if self._error is not None:
            state = f"failed: {self._error}"
        else:
            state = "done" if self._report is not None else f"{100 * self.progress:.0f} % done"
        where = ", emulated" * self.emulated
        return f"<SessionTransfer {kind} of {plural(self.size, 'byte')}{where}, {state}>"

    @property
    def data(self) -> bytes:
        """Return the bytes of a read; wait for them.

        Raises:
            ValueError: The transfer is a write.
        """
        return self.first(self.size)

    def first(self, size: int) -> bytes:
        """Return the first `size` bytes of a read, or all if it has fewer. See `data`."""
        if self._job.writes:
            raise ValueError("a write returns no data")
        self.wait()
        return self._job.data[: within("size", size, 0, 1 << 63)]
