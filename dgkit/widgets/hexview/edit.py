"""Edits of bytes: each edit is a DMA write, and the last ones can be undone."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Generator
from typing import TYPE_CHECKING, NamedTuple

from ...errors import AccessDenied, DgkitError, PeerTimeout
from ..base import scheduler
from ..base.scheduler import StallTimer, wait_done
from .fetch import why_no_dpu, why_no_host, why_no_write

if TYPE_CHECKING:
    from ...session import SessionRegion, SessionTransfer
    from .fetch import Reader

MAX_UNDO = 100  # edits
MAX_IN_FLIGHT = 32  # writes
TIMEOUT_S = 5.0


class Edit(NamedTuple):
    """One write: region, offset, bytes, the bytes replaced (None: unknown), transfer."""

    region: int
    at: int
    data: bytes
    before: bytes | None
    transfer: SessionTransfer
    is_undo: bool


class EditHistory:
    """Writes in flight and the edits that can be undone.

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
        self._undo: deque[tuple[int, int, bytes]] = deque(maxlen=MAX_UNDO)
        self._lock = threading.RLock()
        self._settling = False

    @property
    def undoable(self) -> int:
        """The number of edits that can be undone."""
        return len(self._undo)

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
        return self._start(region, at, data, before, False)

    def _start(
        self, region: SessionRegion, at: int, data: bytes, before: bytes | None, is_undo: bool
    ) -> Edit:
        if len(self._in_flight) >= MAX_IN_FLIGHT:
            raise PeerTimeout(f"the DPU has not answered the last {len(self._in_flight)} writes")
        transfer = region.session.start_write(region, data, offset=at)
        edit = Edit(region.id, at, data, before, transfer, is_undo)
        with self._lock:
            self._in_flight.append(edit)
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
                if edit.is_undo and error is not None:  # a failed undo can be tried again
                    self._undo.append((edit.region, edit.at, edit.data))
                elif error is None and edit.before is not None and not edit.is_undo:
                    self._undo.append((edit.region, edit.at, edit.before))
            self._done(edit, error)

    def _failed(self, error: Exception) -> None:
        with self._lock:
            self._settling = False
            self._in_flight.clear()
        self._fail(error)

    def undo(self, region: SessionRegion) -> Edit:
        """Start to write back the bytes that the last edit of a region replaced.

        Raises:
            ValueError: No edit of the region can be undone.
            DgkitError: As raised by start(); the edit can then still be undone.
        """
        with self._lock:
            for index in reversed(range(len(self._undo))):
                region_id, at, data = self._undo[index]
                if region_id == region.id:
                    edit = self._start(region, at, data, None, True)
                    del self._undo[index]
                    return edit
        raise ValueError("there is no edit to undo")

    def clear(self) -> None:
        """Discard all edits that could be undone: the region changed or was freed."""
        with self._lock:
            self._undo.clear()


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
