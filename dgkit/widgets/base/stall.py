"""Transfers that are looked at in steps of a moment; a DPU that is silent is given up."""

from __future__ import annotations

import time
from collections.abc import Generator
from typing import TYPE_CHECKING

from ...errors import DgkitError, PeerTimeout

if TYPE_CHECKING:
    from ...session import SessionTransfer

__all__ = ["STALL_TIMEOUT_S", "STEP_S", "StallTimer", "cancel_all", "wait_done"]

STEP_S = 0.01  # of the frame thread, for one step
STALL_TIMEOUT_S = 30.0  # as a session's own: a DPU that moves nothing for so long is given up
_GRACE_S = 1.0  # what was cancelled may end by itself for so long


class StallTimer:
    """How long nothing has moved."""

    def __init__(self) -> None:
        self._last: object = None
        self._since = time.monotonic()

    def check(self, moved: object) -> float:
        """Seconds since `moved` was another value. PeerTimeout: STALL_TIMEOUT_S."""
        now = time.monotonic()
        if moved != self._last:
            self._last, self._since = moved, now
        if now - self._since > STALL_TIMEOUT_S:
            raise PeerTimeout(f"the DPU has moved nothing for {STALL_TIMEOUT_S:.0f} s")
        return now - self._since


def wait_done(transfer: SessionTransfer, seconds: float = STEP_S) -> bool:
    """Whether a transfer ended well, after at most so long. Raises how it ended otherwise."""
    try:
        transfer.wait(max(0.0, seconds))
    except PeerTimeout:  # also what ended it: then done() says so, and wait() raises it again
        if not transfer.done():
            return False
        transfer.wait()
    return True


def cancel_all(transfers: list[SessionTransfer]) -> Generator[bool, None, None]:
    """Cancels transfers and gives them a moment to end; they may fail as they like."""
    end = time.monotonic() + _GRACE_S
    for transfer in transfers:
        transfer.cancel()
    for transfer in transfers:
        while time.monotonic() < end:
            try:
                if wait_done(transfer):
                    break
            except DgkitError:
                break
            yield True
