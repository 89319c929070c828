"""Whole arrays of records at a time."""

from __future__ import annotations

import errno

from ._ffi import FOREVER, lib, nanoseconds, refuse
from .array_cache import Arrays
from .prepared import PreparedBatch

TYPE_CHECKING = False  # typing's own costs more to import than all of this
if TYPE_CHECKING:
    from typing import Any

    import numpy as np

__all__ = ["Batches"]


class Batches:
    """What a queue does with arrays of WR_DTYPE and WC_DTYPE: one call a batch."""

    _q: Any

    def __init__(self) -> None:
        self._arrays = Arrays()
        self._dropped: list[int] = []

    def _refuse(self, rc: int) -> None:
        """Raises. Tickets that a finalizer could not drop in its thread are dropped first."""
        while self._dropped:
            lib.dg_transfer_drop(self._dropped.pop())
        refuse(rc)

    def _drop(self, ticket: int) -> None:
        if self._q is not None and lib.dg_transfer_drop(ticket) < 0:
            self._dropped.append(ticket)  # another thread is inside

    def prepare(self, batch: np.ndarray[Any, Any]) -> PreparedBatch:
        """Checks a batch of WR_DTYPE records once. It is copied: later changes have no effect."""
        raw = self._arrays.records(batch)
        chained = int((batch["flags"] & lib.DG_CHAIN).astype(bool).sum())
        return PreparedBatch(self, raw, len(batch), len(batch) - chained)

    # Batches

    def post(self, batch: np.ndarray[Any, Any]) -> None:
        """Posts a flat array of WR_DTYPE records, whole or not at all. Completions: `poll`."""
        rc = lib.dg_queue_post(self._q, self._arrays.records(batch), len(batch))
        if rc:
            self._refuse(rc)

    def poll(self, out: np.ndarray[Any, Any], timeout: float = 0.0) -> int:
        """Takes up to len(out) completions of posted records into `out` (WC_DTYPE); how many.

        With a `timeout` in seconds it waits for the first one.
        """
        wait_ns = nanoseconds(timeout) if timeout else 0
        got: int = lib.dg_queue_poll(self._q, self._arrays.completions(out), len(out), wait_ns)
        if got == -errno.EINTR:  # Python's own handlers ran when the call returned
            return self._poll_on(out, min(lib.dg_now_ns() + wait_ns, FOREVER))
        if got < 0:
            self._refuse(got)
        return got

    def _poll_on(self, out: np.ndarray[Any, Any], end_ns: int) -> int:
        """After a signal: waits on. A signal starts the time anew, once."""
        got = -errno.EINTR
        while got == -errno.EINTR:
            left_ns = max(0, end_ns - lib.dg_now_ns())
            got = lib.dg_queue_poll(self._q, self._arrays.completions(out), len(out), left_ns)
        if got < 0:
            self._refuse(got)
        return got

    def run(
        self, batch: np.ndarray[Any, Any], out: np.ndarray[Any, Any], timeout: float | None = None
    ) -> int:
        """Posts a batch and takes all its completions into `out`, in one call; how many.

        PeerTimeout if some are missing after `timeout` seconds: those are dropped when they come.
        """
        raw = (self._arrays.records(batch), len(batch), self._arrays.completions(out))
        if len(out) < len(batch):
            raise ValueError(f"out has {len(out)} places for {len(batch)} completions")
        got: int = lib.dg_queue_run(self._q, *raw, nanoseconds(timeout))
        if got < 0:
            self._refuse(got)
        return got
