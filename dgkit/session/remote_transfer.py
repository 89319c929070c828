"""Transfer where the DPU is an agent: chunks in staging memory, one request for each."""

from __future__ import annotations

import contextlib
from collections import deque
from collections.abc import Callable, Generator
from typing import TYPE_CHECKING, Any, TypeVar

from ..dma.byte_pool import BytePool
from ..dpu.values import Moved
from ..errors import ClosedError, DgkitError, PeerError, PeerTimeout
from ..wire import messages
from ..wire.connection import Pending, ReplyLost
from .staging import Chunk
from .transfer import SessionTransfer, TransferReport

if TYPE_CHECKING:
    from ..wire.connection import Connection
    from .staging import SlotPool

SILENCE_S = 30.0  # a request is given up if the agent sends nothing for this long

_Remote = TypeVar("_Remote", bound="RemoteTransfer")


def check_silence(link: Connection) -> None:
    """Raise PeerTimeout if the agent has sent nothing for SILENCE_S."""
    if link.idle_s > SILENCE_S:
        raise PeerTimeout(f"the agent has sent nothing for {SILENCE_S:.0f} s")


def cancel(link: Connection, pending: Pending) -> None:
    """Ask the agent to end a request early, unless it has been answered."""
    if link.dead is None and not pending.done:
        link.post(messages.Cancel, pending.number)


class _Totals:
    """Sums of the replies to a transfer's chunks."""

    def __init__(self) -> None:
        self.done = self.read_ns = self.write_ns = self.chunks = 0
        self.first: messages.Moved | None = None
        self.last: messages.Moved | None = None

    def add(self, chunk: Chunk, moved: messages.Moved) -> None:
        """Add the reply to one chunk, and finish the chunk.

        It makes no calls, so that no signal handler runs in between.
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
        moved = Moved(
            self.done, last.op, last.path, last.submit_ns, last.post_ns, last.complete_ns,
            self.read_ns, self.write_ns, self.chunks,
            first.first_submit_ns, first.first_post_ns, first.first_complete_ns,
        )  # fmt: skip
        return TransferReport(moved, provider, over_wire)


class RemoteTransfer(SessionTransfer):
    """Transfer by one Move request per chunk, with one chunk in flight for each staging slot.

    A transfer larger than the staging memory advances only while it is waited for, awaited, or
    polled with done(). `_post` starts a chunk, `_end_chunk` records its result, and both hold the
    connection's lock.
    """

    def __init__(
        self,
        link: Connection,
        pool: SlotPool,
        provider: str,
        region: tuple[int, int],
        view: memoryview | None,
        data: bytes | None,
    ) -> None:
        """Set up a transfer between a region, by its handle at the agent, and local bytes."""
        super().__init__(len(view if data is None else data), data)  # type: ignore[arg-type]
        self._link, self._pool, self._provider = link, pool, provider
        self._handle, self._offset = region
        self._view = view
        self._posted = 0  # bytes
        self._torn = False  # an exception interrupted _post_chunks()
        self._in_flight: deque[Chunk] = deque()
        self._totals = _Totals()
        self._on_end: list[Callable[[], object]] = []

    def start(self: _Remote) -> _Remote:
        """Post the first chunks and return the transfer; raise the error if one fails."""
        try:
            with self._link.lock:
                self._go_on()
                if self._error is not None:
                    raise self._error
            return self
        except BaseException:  # also Ctrl-C: the caller has no transfer to cancel
            self.cancel()
            raise

    def _go_on(self) -> None:
        """Post chunks, then pass on the remaining slots. The caller holds the lock."""
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
        """Post the chunks that an exception such as Ctrl-C prevented from being posted."""
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
        self._posted = at + chunk.size  # no call before the end of the next line: both or neither
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

    def _finish_chunk(
        self, chunk: Chunk, reply: messages.Moved | None, error: Exception | None
    ) -> None:
        """Record the result of a chunk, and free its slot. The caller holds the lock.

        If an exception such as Ctrl-C interrupts it, it is called again.
        """
        if not chunk.finished:
            if reply is None:
                self._error = self._error or error
                chunk.finished = True
            else:
                if self._data is not None:
                    staged = self._pool.buffer[chunk.slot : chunk.slot + chunk.size]
                    BytePool.fill(self._data, chunk.at, staged)
                self._totals.add(chunk, reply)
        chunk.request = None  # break the reference cycle with the transfer
        if self._totals.done == self.size and self._report is None:
            # Before the removal, because nothing would repeat it afterwards.
            self._report = self._totals.report(self._provider, self.over_wire)
        with contextlib.suppress(ValueError):  # already removed before an interruption
            self._in_flight.remove(chunk)
        if self._ended:
            self._view = None

    def _oldest_request(self) -> Any:
        """Return the request of the oldest chunk in flight, or None."""
        try:
            return self._in_flight[0].request
        except IndexError:
            return None

    @property
    def _ended(self) -> bool:
        return (self._report is not None or self._error is not None) and not self._in_flight

    @property
    def _bytes_done(self) -> int:
        return self._totals.done

    def cancel(self) -> None:
        """End the transfer early, as SessionTransfer.cancel()."""
        if not self._ended:
            with self._link.lock:
                self._error = self._error or PeerError("the transfer was interrupted")
                self._cancel_in_flight()

    def _post(self, chunk: Chunk) -> None:
        self._move(chunk, self._on_reply)

    def _move(self, chunk: Chunk, then: Callable[[Chunk, Pending], None]) -> None:
        """Request the DMA of a chunk between staging memory and the region."""
        staged = (self._pool.handle, chunk.slot)
        remote = (self._handle, self._offset + chunk.at)
        ends = (*staged, *remote) if self._data is None else (*remote, *staged)
        self._request(chunk, then, messages.Move, *ends, chunk.size)

    def _request(
        self, chunk: Chunk, then: Callable[[Chunk, Pending], None], kind: type, *fields: Any
    ) -> None:
        chunk.request = Pending()
        self._link.post(
            kind, *fields, then=lambda pending: then(chunk, pending), pending=chunk.request
        )

    def _is_posted(self, chunk: Chunk) -> bool:
        return chunk.request is not None and chunk.request.sent

    def _wait_for_slot(self) -> None:
        if not self._in_flight:  # otherwise the next reply posts the next chunk
            self._pool.call_on_release(self._post_chunks)

    def _on_reply(self, chunk: Chunk, pending: Pending) -> None:
        self._end_chunk(chunk, pending, pending.reply)

    def _end_chunk(self, chunk: Chunk, pending: Pending, reply: messages.Moved | None) -> None:
        """Record the result of a chunk, and continue with the others."""
        if chunk.request is not pending and not chunk.finished:
            return  # a repeated call
        if isinstance(pending.error, ReplyLost):  # repeating the move is harmless
            self._torn = True
            chunk.request = None
        else:
            reply = reply if pending.error is None else None
            self._finish_chunk(chunk, reply, pending.error)
        self._pool.wake()  # before posting its own next chunk: others have waited longer
        self._go_on()
        if self._ended:
            calls, self._on_end = self._on_end, []
            for call in calls:
                call()

    def _cancel_in_flight(self) -> None:
        self._pool.cancel_call(self._post_chunks)
        self._go_on()  # posts nothing any more; finishes the chunks that were not posted
        for chunk in list(self._in_flight):
            if chunk.request is not None:
                cancel(self._link, chunk.request)

    def _advance(self, timeout: float) -> None:
        link = self._link
        if self._torn or not self._in_flight:  # no reply will post the next chunk
            with link.lock:
                self._go_on()
        pending = self._oldest_request() or link.oldest()
        if not timeout or pending is None:
            link.pump()
            if link.dead is not None and not self._in_flight:
                self._error = self._error or link.dead
            return
        link.wait(pending, timeout)
        if not pending.done:
            check_silence(self._link)

    def fileno(self) -> int:
        """Return the connection's descriptor."""
        return self._link.fileno()

    def call_on_end(self, call: Callable[[], object]) -> None:
        """Call once, from the thread that handles the last reply; at once if it was handled."""
        with self._link.lock:
            if not self._ended:
                self._on_end.append(call)
                return
        call()

    def cancel_call(self, call: Callable[[], object]) -> None:
        """Undo call_on_end()."""
        with self._link.lock:
            if call in self._on_end:
                self._on_end.remove(call)

    def __await__(self) -> Generator[Any, None, TransferReport]:
        from .aio import wait

        return wait(self).__await__()
