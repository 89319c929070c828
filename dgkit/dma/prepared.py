"""Prepared operations: checked once, run often."""

from __future__ import annotations

from ..errors import ClosedError
from ..types import Op
from ._ffi import check, ffi, lib, refuse
from .completion import Completion, completion_at, raise_failed

TYPE_CHECKING = False  # typing's own costs more to import than all of this
if TYPE_CHECKING:
    from typing import Any

    import numpy as np

    from .batches import Batches

__all__ = ["PreparedBatch", "PreparedOp"]

_run = lib.dg_prep_run
_post = lib.dg_prep_post


class _Prepared:
    # The C object and its completions live as long as `_op`, `_wcs` or a view of `_wcs` does: what
    # a run gave stays readable after close(), and after the last reference to this.
    __slots__ = ("_n", "_op", "_queue", "_wcs")
    _queue: Any

    def __init__(self, queue: Batches, records: Any, n: int) -> None:
        self._op: Any = None
        self._queue = queue
        self._n = n
        out = ffi.new("dg_prep **")
        check(lib.dg_prep_open(queue._q, records, n, out))
        op = self._op = ffi.gc(out[0], lib.dg_prep_close)
        self._wcs = ffi.gc(lib.dg_prep_wc(op), lambda _, op=op: op)

    def _closed(self) -> ClosedError:
        return ClosedError("this prepared operation is closed")

    def _what(self) -> str:
        """What it does, in words."""
        return f"of {self._n} records"

    def __repr__(self) -> str:
        closed = ", closed" if self._op is None else ""
        where = f"on {self._queue.device.provider}, {self._queue.path}"
        return f"<dgkit.{type(self).__name__} {self._what()} {where}{closed}>"

    def _repr_html_(self) -> str:
        from ..html_cards import card, provider_badge

        queue = self._queue
        rows = (
            ("What", self._what().removeprefix("of ")),
            ("Queue", f"depth {queue.depth}, path {queue.path}"),
        )
        title = "Prepared" + (" (closed)" if self._op is None else "")
        return card(title, rows, badge=provider_badge(queue.device.provider))

    def post(self) -> None:
        """Posts it; its completions come from the queue's `poll`.

        QueueFull if it does not fit, ClosedError if a region or the queue is closed.
        """
        try:
            rc = _post(self._op)
        except TypeError:
            raise self._closed() from None
        if rc:
            refuse(rc)

    def close(self) -> None:
        """Gives it up; what its last run gave stays. Closing again does nothing."""
        self._op = None

    def __enter__(self) -> Any:
        if self._op is None:
            raise self._closed()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class PreparedOp(_Prepared):
    """One read or write, checked once. Made by `prepare_write` and `prepare_read`."""

    __slots__ = ("_wr", "completion")

    def __init__(self, queue: Batches, records: Any, n: int) -> None:
        super().__init__(queue, records, n)
        self._wr = records  # the array: what [0] gives does not keep it
        #: The completion of the last run: the same object each time, with new values.
        self.completion = completion_at(self._wcs, 0)

    def _what(self) -> str:
        wr = self._wr[0]
        rows = f"{wr.rows} rows of " if wr.rows > 1 else ""
        return f"{Op(wr.op).name.lower()} of {rows}{wr.size} bytes"

    def run(self) -> Completion:
        """Posts it and waits. The completion is `self.completion`: read it before the next run.

        TransferError if its status is not OK; else as `post`.
        """
        try:
            rc = _run(self._op)
        except TypeError:
            raise self._closed() from None
        if rc < 0:
            refuse(rc)
        if rc:
            raise_failed(self.completion)
        return self.completion


class PreparedBatch(_Prepared):
    """Many records, checked once. Made by `Queue.prepare`."""

    __slots__ = ("completions",)

    def __init__(self, queue: Batches, records: Any, n: int, n_wc: int) -> None:
        super().__init__(queue, records, n)
        import numpy as np

        from .dtypes import WC_DTYPE

        raw = ffi.buffer(self._wcs, n_wc * WC_DTYPE.itemsize)
        view = np.frombuffer(raw, dtype=WC_DTYPE)
        view.flags.writeable = False
        #: The completions of the last run, WC_DTYPE: the same array each time, with new values.
        self.completions: np.ndarray[Any, Any] = view

    def run(self) -> np.ndarray[Any, Any]:
        """Posts all and waits for all. Gives `self.completions`: look at its `status`.

        A record that failed raises nothing here: its completion says so. Else as `post`.
        """
        try:
            rc = _run(self._op)
        except TypeError:
            raise self._closed() from None
        if rc < 0:
            refuse(rc)
        return self.completions
