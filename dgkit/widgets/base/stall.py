"""Polling transfers in short steps, cancelling them, and detecting a stalled DPU."""

from __future__ import annotations

import time
from collections.abc import Generator
from typing import TYPE_CHECKING

from ...errors import DgkitError, PeerTimeout

if TYPE_CHECKING:
    from ...session import SessionTransfer

STEP_S = 0.01  # time of one step on the frame thread
STALL_TIMEOUT_S = 30.0  # without progress; the same as a session's own limit
_GRACE_S = 1.0  # for cancelled transfers to end


class StallTimer:
    """Time since the last progress."""

    def __init__(self) -> None:
        self._last: object = None
        self._since = time.monotonic()

    def check(self, progress: object) -> float:
        """Return the seconds since the value of `progress` last changed.

        Raises:
            PeerTimeout: It has not changed for STALL_TIMEOUT_S.
        """
        now = time.monotonic()
        if progress != self._last:
            self._last, self._since = progress, now
        if now - self._since > STALL_TIMEOUT_S:
            raise PeerTimeout(f"the DPU has made no progress for {STALL_TIMEOUT_S:.0f} s")
        return now - self._since


def wait_done(transfer: SessionTransfer, seconds: float = STEP_S) -> bool:
    """Wait for a transfer for at most `seconds` and return whether it is complete.

    Raises:
        DgkitError: The transfer failed.
    """
    try:
        transfer.wait(max(0.0, seconds))
    except PeerTimeout:  # of this wait, or the transfer's own, which wait() raises again
        if not transfer.done():
            return False
        transfer.wait()
    return True


def cancel_all(transfers: list[SessionTransfer]) -> Generator[bool, None, None]:
    """Cancel transfers and wait for up to 1 s until they have ended; their errors are ignored."""
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
