"""Bytes that a person types: each is a DMA write, and the last ones can be undone."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Generator
from typing import TYPE_CHECKING, Any, NamedTuple

from ...errors import DgkitError, PeerTimeout
from ..base import scheduler
from ..base.stall import Patience, settled

if TYPE_CHECKING:
    from ...session import SessionRegion

__all__ = ["Edit", "Edits"]

KEPT = 100  # edits that can be undone
FLYING = 32  # writes on their way
PATIENCE_S = 5.0


class Edit(NamedTuple):
    """One write: what it puts where, what was there before (None: not known), and its transfer."""

    region: int
    at: int
    data: bytes
    before: bytes | None
    transfer: Any
    undoes: bool


class Edits:
    """`done(edit, error)` is called on the frame thread as each write ends, in their order; `fail`
    hears of what nobody foresaw there."""

    def __init__(
        self,
        done: Callable[[Edit, Exception | None], None],
        fail: Callable[[Exception], None],
    ) -> None:
        self._done, self._fail = done, fail
        self._flying: deque[Edit] = deque()
        self._kept: deque[tuple[int, int, bytes]] = deque(maxlen=KEPT)
        self._lock = threading.RLock()
        self._settling = False

    @property
    def undoable(self) -> int:
        """How many can be undone."""
        return len(self._kept)

    def start(
        self,
        region: SessionRegion,
        at: int,
        data: bytes,
        before: bytes | None,
    ) -> Edit:
        """Starts the write. AccessDenied, BoundsError, PeerLost...; PeerTimeout: too many wait."""
        return self._start(region, at, data, before, False)

    def _start(
        self, region: SessionRegion, at: int, data: bytes, before: bytes | None, undoes: bool
    ) -> Edit:
        if len(self._flying) >= FLYING:
            raise PeerTimeout(f"the DPU has not answered the last {len(self._flying)} writes")
        transfer = region.session.start_write(region, data, offset=at)
        edit = Edit(region.id, at, data, before, transfer, undoes)
        with self._lock:
            self._flying.append(edit)
            if not self._settling:
                self._settling = True
                scheduler.start(self._settle(), self._failed)
        return edit

    def _next(self) -> Edit | None:
        with self._lock:
            self._settling = bool(self._flying)
            return self._flying.popleft() if self._flying else None

    def _settle(self) -> Generator[bool, None, None]:
        while (edit := self._next()) is not None:
            error = yield from _ended(edit.transfer)
            with self._lock:
                if edit.undoes and error is not None:  # it may be undone again
                    self._kept.append((edit.region, edit.at, edit.data))
                elif error is None and edit.before is not None and not edit.undoes:
                    self._kept.append((edit.region, edit.at, edit.before))
            self._done(edit, error)

    def _failed(self, error: Exception) -> None:
        with self._lock:
            self._settling = False
            self._flying.clear()
        self._fail(error)

    def undo(self, region: SessionRegion) -> Edit:
        """Starts to write back what the last edit of a region replaced. ValueError: there is none.

        What start() raises: then it can still be undone.
        """
        with self._lock:
            for place in reversed(range(len(self._kept))):
                number, at, data = self._kept[place]
                if number == region.id:
                    edit = self._start(region, at, data, None, True)
                    del self._kept[place]
                    return edit
        raise ValueError("nothing is left to undo")

    def forget(self) -> None:
        """The region is another one, or gone."""
        with self._lock:
            self._kept.clear()


def _ended(transfer: Any) -> Generator[bool, None, Exception | None]:
    """Gives way until the transfer is over; its error."""
    patience = Patience()
    while True:
        try:
            if settled(transfer):
                return None
        except DgkitError as error:
            return error
        if patience.look(transfer.progress) > PATIENCE_S:
            transfer.cancel()
            return PeerTimeout(f"the DPU has not answered a write for {PATIENCE_S:.0f} s")
        yield True
