"""Arrays of work requests posted in one call, and operations checked once and run often."""

from __future__ import annotations

import errno

from ..errors import ClosedError
from ..types import Op
from ._ffi import FOREVER, check, ffi, lib, nanoseconds, raise_for
from .array_cache import ArrayCache
from .completion import Completion, completion_at, raise_failed
from .transfer import CompletionQueue

TYPE_CHECKING = False  # typing's own costs more to import than all of this
if TYPE_CHECKING:
    from typing import Any

    import numpy as np

__all__ = ["BatchQueue", "PreparedBatch", "PreparedOp"]

_run = lib.dg_prep_run
_post = lib.dg_prep_post


class _Prepared:
    # The C object and its completions live as long as `_op`, `_wcs` or a view of `_wcs` does: the
    # completions of a run stay readable after close() and after the last reference to this object.
    __slots__ = ("_n", "_op", "_queue", "_wcs")
    _queue: Any

    def __init__(self, queue: BatchQueue, requests: Any, n: int) -> None:
        self._op: Any = None
        self._queue = queue
        self._n = n
        out = ffi.new("dg_prep **")
        check(lib.dg_prep_open(queue._q, requests, n, out))
        op = self._op = ffi.gc(out[0], lib.dg_prep_close)
        self._wcs = ffi.gc(lib.dg_prep_wc(op), lambda _, op=op: op)

    def _closed_error(self) -> ClosedError:
        return ClosedError("this prepared operation is closed")

    def _summary(self) -> str:
        """Return what the operation does, for `repr`."""
        return f"of {self._n} records"

    def __repr__(self) -> str:
        closed = ", closed" if self._op is None else ""
        where = f"on {self._queue.device.provider}, {self._queue.path}"
        return f"<dgkit.{type(self).__name__} {self._summary()} {where}{closed}>"

    def _repr_html_(self) -> str:
        from ..html_cards import card, provider_badge

        queue = self._queue
        rows = (
            ("What", self._summary().removeprefix("of ")),
            ("Queue", f"depth {queue.depth}, path {queue.path}"),
        )
        title = "Prepared" + (" (closed)" if self._op is None else "")
        return card(title, rows, badge=provider_badge(queue.device.provider))

    def post(self) -> None:
        """Post the operation; its completions come from the queue's `poll`.

        Raises:
            QueueFull: The queue has too few free slots.
            ClosedError: The operation, a region or the queue is closed.
        """
        try:
            rc = _post(self._op)
        except TypeError:
            raise self._closed_error() from None
        if rc:
            raise_for(rc)

    def close(self) -> None:
        """Release the operation; the completions of its last run stay readable. Idempotent."""
        self._op = None

    def __enter__(self) -> Any:
        if self._op is None:
            raise self._closed_error()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class PreparedOp(_Prepared):
    """Read or write, checked once. Created by `Queue.prepare_write` and `Queue.prepare_read`."""

    __slots__ = ("_wr", "completion")

    def __init__(self, queue: BatchQueue, requests: Any, n: int) -> None:
        super().__init__(queue, requests, n)
        self._wr = requests  # the array: a reference to its item 0 does not keep it alive
        #: Completion of the last run: the same object each time, with new values.
        self.completion = completion_at(self._wcs, 0)

    def _summary(self) -> str:
        wr = self._wr[0]
        rows = f"{wr.rows} rows of " if wr.rows > 1 else ""
        return f"{Op(wr.op).name.lower()} of {rows}{wr.size} bytes"

    def run(self) -> Completion:
        """Post the operation and wait for it.

        Returns:
            `self.completion`, which the next run overwrites.

        Raises:
            TransferError: The status is not OK.
            QueueFull: The queue has too few free slots.
            ClosedError: The operation, a region or the queue is closed.
        """
        try:
            rc = _run(self._op)
        except TypeError:
            raise self._closed_error() from None
        if rc < 0:
            raise_for(rc)
        if rc:
            raise_failed(self.completion)
        return self.completion


class PreparedBatch(_Prepared):
    """Batch of work requests, checked once. Created by `Queue.prepare`."""

    __slots__ = ("completions",)

    def __init__(self, queue: BatchQueue, requests: Any, n: int, n_wc: int) -> None:
        super().__init__(queue, requests, n)
        import numpy as np

        from .dtypes import WC_DTYPE

        raw = ffi.buffer(self._wcs, n_wc * WC_DTYPE.itemsize)
        view = np.frombuffer(raw, dtype=WC_DTYPE)
        view.flags.writeable = False
        #: Completions of the last run, WC_DTYPE: the same array each time, with new values.
        self.completions: np.ndarray[Any, Any] = view

    def run(self) -> np.ndarray[Any, Any]:
        """Post all work requests and wait for all of them.

        A failed work request raises no error: check the `status` of its completion.

        Returns:
            `self.completions`, which the next run overwrites.

        Raises:
            QueueFull: The queue has too few free slots.
            ClosedError: The batch, a region or the queue is closed.
        """
        try:
            rc = _run(self._op)
        except TypeError:
            raise self._closed_error() from None
        if rc < 0:
            raise_for(rc)
        return self.completions


class BatchQueue(CompletionQueue):
    """Queue operations on arrays of WR_DTYPE and WC_DTYPE, one C call per batch."""

    def __init__(self) -> None:
        super().__init__()
        self._arrays = ArrayCache()

    def prepare(self, batch: np.ndarray[Any, Any]) -> PreparedBatch:
        """Check a flat array of WR_DTYPE once and return a prepared batch of a copy of it."""
        raw = self._arrays.work_requests(batch)
        chained = int((batch["flags"] & lib.DG_CHAIN).astype(bool).sum())
        return PreparedBatch(self, raw, len(batch), len(batch) - chained)

    def post(self, batch: np.ndarray[Any, Any]) -> None:
        """Post a flat array of WR_DTYPE, entirely or not at all; reap completions with `poll`."""
        rc = lib.dg_queue_post(self._q, self._arrays.work_requests(batch), len(batch))
        if rc:
            self._raise_for(rc)

    def poll(self, out: np.ndarray[Any, Any], timeout: float = 0.0) -> int:
        """Reap completions of posted work requests into `out`.

        Args:
            out: Flat, writable array of WC_DTYPE; at most `len(out)` completions are taken.
            timeout: Seconds to wait for the first completion.

        Returns:
            The number of completions written to `out`.
        """
        wait_ns = nanoseconds(timeout) if timeout else 0
        got: int = lib.dg_queue_poll(self._q, self._arrays.completions(out), len(out), wait_ns)
        if got == -errno.EINTR:  # Python's signal handlers ran when the call returned
            return self._poll_again(out, min(lib.dg_now_ns() + wait_ns, FOREVER))
        if got < 0:
            self._raise_for(got)
        return got

    def _poll_again(self, out: np.ndarray[Any, Any], end_ns: int) -> int:
        """Continue to poll after a signal, which restarts the timeout once."""
        got = -errno.EINTR
        while got == -errno.EINTR:
            left_ns = max(0, end_ns - lib.dg_now_ns())
            got = lib.dg_queue_poll(self._q, self._arrays.completions(out), len(out), left_ns)
        if got < 0:
            self._raise_for(got)
        return got

    def run(
        self, batch: np.ndarray[Any, Any], out: np.ndarray[Any, Any], timeout: float | None = None
    ) -> int:
        """Post a batch and reap all its completions in one call.

        Args:
            batch: Flat array of WR_DTYPE.
            out: Flat, writable array of WC_DTYPE, at least as long as `batch`.
            timeout: Seconds to wait; None for no limit.

        Returns:
            The number of completions written to `out`.

        Raises:
            PeerTimeout: Completions are missing after `timeout` seconds; they are discarded when
                they arrive.
        """
        raw = (self._arrays.work_requests(batch), len(batch), self._arrays.completions(out))
        if len(out) < len(batch):
            raise ValueError(f"out has {len(out)} places for {len(batch)} completions")
        got: int = lib.dg_queue_run(self._q, *raw, nanoseconds(timeout))
        if got < 0:
            self._raise_for(got)
        return got
