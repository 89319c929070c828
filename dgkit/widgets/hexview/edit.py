# SPDX-License-Identifier: Apache-2.0
"""Edits of bytes: each edit is a DMA write; the last ones can be undone, and done again."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Generator, Sequence
from typing import TYPE_CHECKING, Literal, NamedTuple

from ...errors import AccessDenied, DgkitError, PeerTimeout
from ..base import scheduler
from ..base.as_python import MAX_ENCODED, bytes_expression, region_lines, script
from ..base.scheduler import StallTimer, wait_done
from .fetch import why_no_dpu, why_no_host, why_no_write

if TYPE_CHECKING:
    from ...session import SessionRegion, SessionTransfer
    from .fetch import Reader

MAX_UNDO = 100  # edits
MAX_IN_FLIGHT = 32  # writes
TIMEOUT_S = 5.0
_SHOWN = 16  # bytes of an edit in the list


class Change(NamedTuple):
    """Bytes of a region that an edit replaces; `before` is None if they are unknown."""

    region: int
    at: int
    before: bytes | None
    after: bytes


class Edit(NamedTuple):
    """One write: the change, which it makes, undoes or makes again, and its transfer."""

    change: Change
    what: Literal["edit", "undo", "redo"]
    transfer: SessionTransfer


class EditHistory:
    """Writes in flight, the edits that can be undone, and those undone.

    `done(edit, error)` is called on the frame thread as each write ends, in posting order;
    `fail(error)` is called there for an unexpected error.
    """

    def __init__(
        self,
        done: Callable[[Edit, Exception | None], None],
        fail: Callable[[Exception], None],
    ) -> None:
        self._done, self._fail = done, fail
        self._in_flight: deque[Edit] = deque()
        self._undo: deque[Change] = deque(maxlen=MAX_UNDO)
        self._redo: deque[Change] = deque(maxlen=MAX_UNDO)
        self._lock = threading.RLock()
        self._settling = False

    @property
    def undoable(self) -> int:
        """The number of edits that can be undone."""
        return len(self._undo)

    @property
    def redoable(self) -> int:
        """The number of undone edits that can be made again."""
        return len(self._redo)

    def changes(self, region: SessionRegion) -> list[Change]:
        """Return the edits of a region that can be undone, the oldest first."""
        with self._lock:
            return [change for change in self._undo if change.region == region.id]

    def write(self, region: SessionRegion, at: int, data: bytes, reader: Reader) -> Edit:
        """Read the bytes that an edit replaces, if they can be read, and start the write.

        Raises:
            AccessDenied: The region cannot be written.
            DgkitError: As raised by start().
        """
        if why := why_no_write(region):
            raise AccessDenied(why)
        before = None
        source = "host" if why_no_dpu(region) else "dpu"
        if source == "dpu" or not why_no_host(region):
            before = reader.read(region, (source,), at, len(data))[0]
        return self.start(region, at, data, before)

    def start(
        self,
        region: SessionRegion,
        at: int,
        data: bytes,
        before: bytes | None,
    ) -> Edit:
        """Start a write.

        Args:
            region: The region to write to.
            at: The offset of the first byte.
            data: The new bytes.
            before: The bytes replaced; None if unknown, then the edit cannot be undone.

        Raises:
            PeerTimeout: Too many writes are in flight.
            DgkitError: As raised by Session.start_write: AccessDenied, BoundsError, PeerLost, ...
        """
        return self._start(region, Change(region.id, at, before, data), "edit")

    def _start(
        self, region: SessionRegion, change: Change, what: Literal["edit", "undo", "redo"]
    ) -> Edit:
        if len(self._in_flight) >= MAX_IN_FLIGHT:
            raise PeerTimeout(f"the DPU has not answered the last {len(self._in_flight)} writes")
        data = change.before if what == "undo" else change.after
        assert data is not None  # only a change with known bytes can be undone
        edit = Edit(change, what, region.session.start_write(region, data, offset=change.at))
        with self._lock:
            self._in_flight.append(edit)
            if what == "edit":
                kept = [other for other in self._redo if other.region != region.id]
                self._redo = deque(kept, MAX_UNDO)
            if not self._settling:
                self._settling = True
                scheduler.start(self._finish_edits(), self._failed)
        return edit

    def _next(self) -> Edit | None:
        with self._lock:
            self._settling = bool(self._in_flight)
            return self._in_flight.popleft() if self._in_flight else None

    def _finish_edits(self) -> scheduler.Steps:
        while (edit := self._next()) is not None:
            error = yield from _wait(edit.transfer)
            with self._lock:
                self._record(edit, error is None)
            self._done(edit, error)

    def _failed(self, error: Exception) -> None:
        with self._lock:
            self._settling = False
            self._in_flight.clear()
        self._fail(error)

    def _record(self, edit: Edit, made: bool) -> None:
        """Note what can be undone or redone now; what failed can be tried again."""
        change, what, _ = edit
        if change.before is None or (what == "edit" and not made):
            return
        (self._undo if (what == "undo") != made else self._redo).append(change)

    def undo(self, region: SessionRegion) -> Edit:
        """Start to write back the bytes that the last edit of a region replaced.

        Raises:
            ValueError: No edit of the region can be undone.
            DgkitError: As raised by start(); the edit can then still be undone.
        """
        return self._repeat(region, self._undo, "undo")

    def redo(self, region: SessionRegion) -> Edit:
        """Start to make the edit of a region again that was undone last.

        Raises:
            ValueError: No edit of the region was undone since the last new one.
            DgkitError: As raised by start(); the edit can then still be made again.
        """
        return self._repeat(region, self._redo, "redo")

    def _repeat(
        self, region: SessionRegion, changes: deque[Change], what: Literal["undo", "redo"]
    ) -> Edit:
        with self._lock:
            for index in reversed(range(len(changes))):
                if changes[index].region == region.id:
                    edit = self._start(region, changes[index], what)
                    del changes[index]
                    return edit
        raise ValueError(f"there is no edit to {what}")

    def clear(self) -> None:
        """Discard all edits that could be undone or redone: the region changed or was freed."""
        with self._lock:
            self._undo.clear()
            self._redo.clear()


def edit_row(change: Change) -> list[int | str]:
    """Return offset, size, and the first bytes before and after in hex digits, for a view."""
    _, at, before, after = change
    more = " ..." if len(after) > _SHOWN else ""
    texts = (data[:_SHOWN].hex(" ") + more for data in (before or b"", after))
    return [at, len(after), *texts]


def edit_lines(region: SessionRegion, changes: Sequence[Change]) -> str:
    """Return Python code that makes the changes again.

    Raises:
        ValueError: There are none, or one is too long for a cell.
    """
    if not changes:
        raise ValueError("there are no edits of this region")
    lines = []
    for _, at, _, after in changes:
        data = bytes_expression(after, "")
        if not data:
            raise ValueError(
                f"an edit of {len(after):,} bytes is too long for a cell: at most {MAX_ENCODED:,}"
            )
        lines.append(f"session.write(region, {data}, offset={at})")
    return script([*region_lines(region), *lines])


def _wait(transfer: SessionTransfer) -> Generator[bool, None, Exception | None]:
    """Yield until the transfer has ended; return its error, if any."""
    stall = StallTimer()
    while True:
        try:
            if wait_done(transfer):
                return None
        except DgkitError as error:
            return error
        if stall.check(transfer.progress) > TIMEOUT_S:
            transfer.cancel()
            return PeerTimeout(f"the DPU has not answered a write for {TIMEOUT_S:.0f} s")
        yield True
