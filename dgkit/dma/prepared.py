"""Arrays of work requests posted in one call, and operations checked once and run often."""

from __future__ import annotations

from ..errors import ClosedError
from ..types import Op
from ._ffi import check, ffi, lib, native
from .completion import completion_at
from .transfer import CompletionQueue

TYPE_CHECKING = False  # typing's own costs more to import than all of this
if TYPE_CHECKING:
    from typing import Any

    import numpy as np


class _Prepared(native.Prepared):
    # The C object and its completions live as long as `_op`, `_wcs` or a view of `_wcs`: the
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
        """Return a description of the operation for `repr`."""
        return f"of {self._n} records"

    def __repr__(self) -> str:
        closed = ", closed" if self._op is None else ""
        where = f"on {self._queue.device._label}, {self._queue.path}"
        return f"<dgkit.{type(self).__name__} {self._summary()} {where}{closed}>"

    def _repr_html_(self) -> str:
        from ..html_cards import card, provider_badge

        queue = self._queue
        rows = (
            ("What", self._summary().removeprefix("of ")),
            ("Queue", f"depth {queue.depth}, path {queue.path}"),
        )
        title = "Prepared" + (" (closed)" if self._op is None else "")
        return card(title, rows, badge=provider_badge(queue.device._label))

    def close(self) -> None:
        """Release the operation; the completions of its last run stay readable. Idempotent."""
        self._op = None
        self._unbind()

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
        self._wr = requests  # keep the array: a reference to its item 0 does not
        #: Completion of the last run: the same object each time, with new values.
        self.completion = completion_at(self._wcs, 0)
        self._bind(int(ffi.cast("uintptr_t", self._op)), self._op, self.completion, True)

    def _summary(self) -> str:
        from ..units import plural

        wr = self._wr[0]
        rows = f"{wr.rows:,} rows of " if wr.rows > 1 else ""
        return f"{Op(wr.op).name.lower()} of {rows}{plural(wr.size, 'byte')}"


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
        self._bind(int(ffi.cast("uintptr_t", self._op)), self._op, view, False)


class BatchQueue(CompletionQueue):
    """Queue operations on arrays of WR_DTYPE and WC_DTYPE, one C call per batch."""

    def prepare(self, batch: np.ndarray[Any, Any]) -> PreparedBatch:
        """Copy a flat array of WR_DTYPE, check it once, and return it as a prepared batch."""
        from .dtypes import work_requests

        raw = work_requests(batch)
        chained = int((batch["flags"] & lib.DG_CHAIN).astype(bool).sum())
        return PreparedBatch(self, raw, len(batch), len(batch) - chained)

    def _array(self, array: Any, completions: int) -> tuple[Any, int, int]:
        """Return buffer, address and length of an array that the C methods have not cached."""
        from . import dtypes

        raw = dtypes.completions(array) if completions else dtypes.work_requests(array)
        return raw, int(ffi.cast("uintptr_t", raw)), len(array)
