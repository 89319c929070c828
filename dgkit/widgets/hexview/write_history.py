# SPDX-License-Identifier: Apache-2.0
"""History of a region's bytes: as they were before and after each of the last writes to it."""

from __future__ import annotations

import contextlib
import itertools
import threading
import time
from bisect import bisect_right
from collections import deque
from typing import TYPE_CHECKING, NamedTuple

from ...errors import DgkitError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from ...session import EndedWrite, Session, SessionRegion

MAX_WRITES = 65_536  # also bounds the time to reconstruct bytes: some milliseconds
MAX_ARRAY = 64 << 10  # bytes; to copy a larger array would slow its write noticeably
_WRITE_COST = 300  # bytes of memory that a recorded write occupies besides its data
_PIECE_COST = 300
OUTSIDE = "outside"  # writer of bytes that no write of the session explains
UNKNOWN = "unknown"  # instead of the writer of bytes that were not kept
_WRITERS = {"host": "host", "dpu": "DPU", "neither": "client"}  # by the role of the session


class Write(NamedTuple):
    """Write to a region that has ended, or bytes that were found to have changed.

    Attributes:
        number: Number of the write among those that were recorded, from 1; 0: bytes were found.
        writer: Whose bytes they are: "host", "DPU" (also a copy that it made), "client" (this
            process, where both sides are agents), "kernel" or OUTSIDE. The DPU writes the first
            three.
        offset: Byte of the region it starts at.
        size: Bytes.
        data: The bytes; None if they are unknown, because it failed.
        t_ns: End, by time.time_ns().
        begin_ns: Begin, by time.monotonic_ns().
        end_ns: End, by time.monotonic_ns().
    """

    number: int
    writer: str
    offset: int
    size: int
    data: bytes | None
    t_ns: int
    begin_ns: int
    end_ns: int

    def overlaps(self, other: Write) -> bool:
        """Return whether both write the same byte."""
        end, other_end = self.offset + self.size, other.offset + other.size
        return self.offset < other_end and other.offset < end


class _Piece(NamedTuple):
    """Bytes `start` to `stop` of the region: those of `data` from offset `at` on, or UNKNOWN."""

    start: int
    stop: int
    data: bytes
    at: int
    writer: str

    @property
    def content(self) -> bytes:
        """The bytes; zeros if they are unknown."""
        size = self.stop - self.start
        return bytes(size) if self.writer == UNKNOWN else self.data[self.at : self.at + size]

    def part(self, start: int, stop: int) -> _Piece:
        """Return the piece of the bytes from `start` to `stop`."""
        return _Piece(start, stop, self.data, self.at + start - self.start, self.writer)


class _Pieces:
    """Bytes of a whole region, as pieces of immutable data: a write is laid over it, not copied."""

    def __init__(self, size: int, data: bytes | None) -> None:
        unknown = data is None
        data = data or b""
        self._pieces = [_Piece(0, size, data, 0, UNKNOWN if unknown else "")]
        self._starts = [0]
        self._uses = {id(data): 1}  # number of pieces, by the id of their data
        self._held = len(data)

    @property
    def cost(self) -> int:
        """Bytes of memory in use."""
        return self._held + _PIECE_COST * len(self._pieces)

    def _span(self, start: int, stop: int) -> tuple[int, int]:
        """Return the indices of the pieces that contain these bytes, as [first, last)."""
        return bisect_right(self._starts, start) - 1, bisect_right(self._starts, stop - 1)

    def within(self, start: int, stop: int) -> Iterator[_Piece]:
        """Yield the pieces of these bytes, in order."""
        first, last = self._span(start, stop)
        for piece in self._pieces[first:last]:
            yield piece.part(max(start, piece.start), min(stop, piece.stop))

    def overwrite(self, start: int, data: bytes, writer: str) -> None:
        """Replace the bytes from `start` on by those of `data`."""
        stop = start + len(data)
        first, last = self._span(start, stop)
        new = [_Piece(start, stop, data, 0, writer)]
        if last == first + 1 and self._pieces[first][:2] == (start, stop):  # as often
            self._count_use(data, 1)
            self._count_use(self._pieces[first].data, -1)
            self._pieces[first] = new[0]
            return
        old = self._pieces[first:last]
        if old[0].start < start:
            new.insert(0, old[0].part(old[0].start, start))
        if old[-1].stop > stop:
            new.append(old[-1].part(stop, old[-1].stop))
        self._pieces[first:last] = new
        self._starts[first:last] = [piece.start for piece in new]
        for piece in new:
            self._count_use(piece.data, 1)
        for piece in old:
            self._count_use(piece.data, -1)

    def _count_use(self, data: bytes, count: int) -> None:
        before = self._uses.get(id(data), 0)
        self._uses[id(data)] = before + count
        if not before:
            self._held += len(data)
        elif not before + count:
            self._held -= len(data)
            del self._uses[id(data)]

    def compact(self, *, by_writer: bool) -> None:
        """Join the pieces of one writer, or all, to free the bytes that later pieces cover."""
        runs: list[list[_Piece]] = []
        for piece in self._pieces:
            writers = {runs[-1][0].writer, piece.writer} if runs else set()
            if len(writers) == 1 or (writers and not by_writer and UNKNOWN not in writers):
                runs[-1].append(piece)
            else:
                runs.append([piece])
        self._pieces = [_join(run) for run in runs]
        self._starts = [piece.start for piece in self._pieces]
        self._uses, self._held = {}, 0
        for piece in self._pieces:
            self._count_use(piece.data, 1)


def _join(run: list[_Piece]) -> _Piece:
    writer = run[0].writer if len({piece.writer for piece in run}) == 1 else ""
    data = b"" if writer == UNKNOWN else b"".join(piece.content for piece in run)
    return _Piece(run[0].start, run[-1].stop, data, 0, writer)


class Past(NamedTuple):
    """Bytes as they were at a moment.

    Attributes:
        data: The bytes.
        writers: Who wrote them, as (bytes, writer) in order; "" if nobody since the history began,
            UNKNOWN if they were not kept: their `data` are zeros.
    """

    data: bytes
    writers: list[tuple[int, str]]


class WriteHistory:
    """Bytes of a region before and after each of its last writes. Thread-safe.

    A moment is a number of writes since the history began: `first` to `last` can be shown. Writes
    beyond the budget fall out, the oldest first. It keeps the bytes of the region as they were at
    `first`, and the bytes of each write since; `bytes` objects that were written are not copied.
    Of a region that is too large for the budget it keeps, of the bytes at `first`, only those that
    were observed, until they take a quarter of the budget: the others are UNKNOWN.

    Attributes:
        lock: Held by each method; a caller that holds it sees no write meanwhile.
        budget: Bytes of memory that it may occupy.
        left_out: Whether an array was written that was too large to be copied.

    Args:
        data: Bytes of the region as the history begins, at most half the budget, or its size.
        budget: Bytes of memory that it may occupy.
    """

    def __init__(self, data: bytes | int, budget: int) -> None:
        self.first = 0
        self.budget = budget
        self.left_out = False
        known, self._size = (None, data) if isinstance(data, int) else (data, len(data))
        self._base = _Pieces(self._size, known)
        self._base_limit = len(known or b"") + max(budget // 4, _PIECE_COST)
        self._writes: deque[Write] = deque()
        self._cost = 0
        self._active_ns = 0
        self._doubts: deque[Write] = deque(maxlen=64)  # writes whose bytes are unknown
        self.lock = threading.RLock()

    @property
    def last(self) -> int:
        """The latest moment: the number of writes since the history began."""
        return self.first + len(self._writes)

    @property
    def cost(self) -> int:
        """Bytes of memory in use."""
        return self._base.cost + self._cost

    def ended(self, write: Write, *, left_out: bool = False) -> None:
        """Record a write that has ended; begin again behind one that is `left_out`."""
        with self.lock:
            self._active_ns = max(self._active_ns, write.end_ns)
            self.left_out |= left_out
            if left_out or write.size > self.budget:
                self._begin_again()
                return
            raced = False
            for other in reversed(list(self._writes)):
                if other.end_ns < write.begin_ns:
                    break
                if other.overlaps(write):
                    raced = raced or other.number > 0
                    if not other.number:  # bytes found while it was in flight are its own
                        self._remove(other)
            if write.data is None or raced:  # which of two came last is seen in the bytes
                self._doubts.append(write)
            else:
                self._add(write, write.data)

    def _begin_again(self) -> None:
        """Begin behind a write that is too large to keep, with no byte known."""
        self.first = self.last + 1
        self._writes.clear()
        self._doubts.clear()
        self._cost = 0
        self._base = _Pieces(self._size, None)

    def observe(self, offset: int, data: bytes, since_ns: int, writer: str = OUTSIDE) -> bool:
        """Record the changes that bytes, as read now, show and that no transfer reported.

        Args:
            offset: Where they are.
            since_ns: time.monotonic_ns() before they were read; if a write has ended since, they
                prove nothing.
            writer: Who has changed them; a write whose bytes are unknown takes precedence.

        Returns:
            Whether they are the bytes of now.
        """
        with self.lock:
            if self._active_ns >= since_ns:
                return False
            pieces = self._pieces(self._until(self.last), offset, offset + len(data))
            seen = [data[each.start - offset : each.stop - offset] for each in pieces]
            known = [
                now if each.writer == UNKNOWN else each.content
                for each, now in zip(pieces, seen, strict=True)
            ]
            for each, now in zip(pieces, seen, strict=True):
                if each.writer == UNKNOWN:
                    self._observe_unknown(each.start, now, writer)
            self._trim_base()
            self._fit()
            for start, stop in _differences(b"".join(known), data):
                self._add_found(offset + start, data[start:stop], writer)
            self._doubts = deque(
                (
                    doubt._replace(offset=start, size=stop - start)
                    for doubt in self._doubts
                    for start, stop in _without(
                        doubt.offset, doubt.offset + doubt.size, offset, offset + len(data)
                    )
                ),
                maxlen=self._doubts.maxlen,
            )
        return True

    def _observe_unknown(self, offset: int, data: bytes, writer: str) -> None:
        """Lay bytes of now under `first`, but those that a write of unknown bytes changed."""
        parts = [(offset, offset + len(data))]
        for doubt in self._doubts:
            end = doubt.offset + doubt.size
            for start, stop in parts:
                low, high = max(start, doubt.offset), min(stop, end)
                if low < high:
                    self._add_found(low, data[low - offset : high - offset], writer)
            parts = [rest for part in parts for rest in _without(*part, doubt.offset, end)]
        for start, stop in parts:
            self._base.overwrite(start, data[start - offset : stop - offset], "")

    def _add_found(self, offset: int, data: bytes, writer: str) -> None:
        stop, number = offset + len(data), 0
        for doubt in self._doubts:
            if doubt.offset < stop and offset < doubt.offset + doubt.size:
                number, writer = doubt.number, doubt.writer
        t_ns, now_ns = time.time_ns(), time.monotonic_ns()
        self._add(Write(number, writer, offset, len(data), data, t_ns, now_ns, now_ns), data)

    def _add(self, write: Write, data: bytes) -> None:
        self._writes.append(write)
        self._cost += len(data) + _WRITE_COST
        self._fit()

    def _fit(self) -> None:
        while self._writes and (len(self._writes) > MAX_WRITES or self.cost > self.budget):
            self._drop()

    def _remove(self, write: Write) -> None:
        self._writes.remove(write)
        self._cost -= write.size + _WRITE_COST

    def _drop(self) -> None:
        """Lay the oldest write over the first bytes."""
        write = self._writes.popleft()
        assert write.data is not None
        self._cost -= len(write.data) + _WRITE_COST
        self._base.overwrite(write.offset, write.data, write.writer)
        self.first += 1
        self._trim_base()

    def _trim_base(self) -> None:
        for by_writer in (True, False):
            if self._base.cost > self._base_limit:
                self._base.compact(by_writer=by_writer)
        if self._base.cost > self._base_limit:
            self._base = _Pieces(self._size, None)

    def write(self, moment: int) -> Write | None:
        """Return the write that led to a moment; None if it is not kept any more."""
        with self.lock:
            at = moment - self.first - 1
            return self._writes[at] if 0 <= at < len(self._writes) else None

    def moment_of(self, moment: int, at: int) -> int:
        """Return the moment of the last write to byte `at` up to a moment; 0 if there is none."""
        with self.lock:
            for back, write in enumerate(self._until(moment)):
                if write.offset <= at < write.offset + write.size:
                    return moment - back
        return 0

    def at(self, moment: int, offset: int, size: int) -> Past:
        """Return bytes as they were at a moment.

        Raises:
            ValueError: The moment cannot be shown.
        """
        with self.lock:
            pieces = self._pieces(self._until(moment), offset, offset + size)
        return Past(
            b"".join(piece.content for piece in pieces),
            [(piece.stop - piece.start, piece.writer) for piece in pieces],
        )

    def _until(self, moment: int) -> list[Write]:
        """Return the writes up to a moment, the latest first."""
        if not self.first <= moment <= self.last:
            raise ValueError(f"moment {moment} is not among {self.first} to {self.last}")
        writes = list(self._writes)[: moment - self.first]
        writes.reverse()
        return writes

    def _pieces(self, writes: list[Write], start: int, stop: int) -> list[_Piece]:
        """Return the pieces of these bytes, in order: each byte is that of its latest write."""
        found: list[_Piece] = []
        missing = [(start, stop)]
        for write in writes:
            end = write.offset + write.size
            if write.offset >= stop or end <= start or write.data is None:
                continue
            rest = []
            piece = _Piece(write.offset, end, write.data, 0, write.writer)
            for low, high in missing:
                first, last = max(low, write.offset), min(high, end)
                if first >= last:
                    rest.append((low, high))
                    continue
                found.append(piece.part(first, last))
                rest += _without(low, high, first, last)
            missing = rest
            if not missing:
                break
        for low, high in missing:
            found += self._base.within(low, high)
        return sorted(found)


def record_writes(
    session: Session,
    region: SessionRegion,
    history: WriteHistory,
    then: Callable[[], object] | None = None,
) -> Callable[[], None]:
    """Record a session's writes to a region; `bytes` that were written are not copied.

    The history begins again behind an array of more than MAX_ARRAY bytes.
    The bytes of a copy that the DPU made are read back.

    Args:
        then: Called after each write, in the thread that ends it.

    Returns:
        A function that stops the recording.
    """
    numbers, writer = itertools.count(1), _WRITERS[session.role]

    def record(write: EndedWrite) -> None:
        if write.region is not region:
            return
        ended = time.time_ns(), write.begin_ns, time.monotonic_ns()
        array = not isinstance(write.data, bytes | None)
        left_out, data = array and write.size > MAX_ARRAY, None
        if not write.failed and not left_out and write.size <= history.budget:
            with contextlib.suppress(DgkitError):  # for example, the DPU may only write the region
                data = write.data
                if data is None:
                    data = session.read(region, write.size, write.offset)
        by = writer if write.data is not None else "DPU"
        kept = None if data is None else bytes(data)
        ended_write = Write(next(numbers), by, write.offset, write.size, kept, *ended)
        history.ended(ended_write, left_out=left_out)
        if then is not None:
            then()

    return session.on_write(record)


def _differences(before: bytes, after: bytes) -> Iterator[tuple[int, int]]:
    """Yield each run of bytes that differ, as (start, stop)."""
    if before == after:
        return
    start = -1
    for at, (one, other) in enumerate(zip(before, after, strict=True)):
        if one != other and start < 0:
            start = at
        elif one == other and start >= 0:
            yield start, at
            start = -1
    if start >= 0:
        yield start, len(after)


def _without(start: int, stop: int, low: int, high: int) -> list[tuple[int, int]]:
    """Return the parts of `start` to `stop` that are not in `low` to `high`."""
    parts = ((start, min(stop, low)), (max(start, high), stop))
    return [(first, last) for first, last in parts if first < last]
