# SPDX-License-Identifier: Apache-2.0
"""Arrays of work requests posted in one call, and operations checked once and run often."""

from __future__ import annotations

from ..errors import ClosedError
from ..types import Op
from ._ffi import ffi, lib, native, open_handle
from .completion import Completion
from .transfer import CompletionQueue

TYPE_CHECKING = False  # typing's own costs more to import than all of this
if TYPE_CHECKING:
    from typing import Any

    import numpy as np


class _Prepared(native.Prepared):
    # The C object and its completions live as long as `_op`, to which each view refers: the
    # completions of a run stay readable after close() and after the last reference to this object.
    __slots__ = ("_n", "_op", "_queue")
    _queue: CompletionQueue

    def __init__(self, queue: CompletionQueue, requests: Any, n: int) -> None:
        self._op: Any = None
        self._queue = queue
        self._n = n
        args = queue._q.c, requests, n
        open_handle(self, "_op", "dg_prep", (queue._q,), lib.dg_prep_open, *args)

    def _completions(self) -> int:
        """Return the address of the completions of the last run."""
        return int(ffi.cast("uintptr_t", lib.dg_prep_wc(self._op.c)))

    def _handle(self) -> native.Handle:
        op: native.Handle | None = self._op
        if op is None:
            raise self._closed_error()
        return op

    def _closed_error(self) -> ClosedError:
        return ClosedError("this prepared operation is closed")

    def _summary(self) -> str:
        """Return a description of the operation for `repr`."""
        return f"of {self._n} records"

    def __repr__(self) -> str:
        closed = ", closed" if self._op is None else ""
        where = f"on {self._queue._device._label}, {self._queue.path}"
        return f"<dgkit.{type(self).__name__} {self._summary()} {where}{closed}>"

    def _repr_html_(self) -> str:
        from ..html_cards import card, provider_badge

        queue = self._queue
        rows = (
            ("What", self._summary().removeprefix("of ")),
            ("Queue", f"depth {queue.depth}, path {queue.path}"),
        )
        title = "Prepared" + (" (closed)" if self._op is None else "")
        return card(title, rows, badge=provider_badge(queue._device._label))

    def close(self) -> None:
        """Release the operation; the completions of its last run stay readable. Idempotent."""
        self._op = None
        self._unbind()

    def __enter__(self) -> Any:
        self._handle()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class PreparedOp(_Prepared):
    """Read or write, checked once. Created by `Queue.prepare_write` and `Queue.prepare_read`."""

    __slots__ = ("_wr", "completion")

    def __init__(self, queue: CompletionQueue, requests: Any, n: int) -> None:
        super().__init__(queue, requests, n)
        self._wr = requests  # keep the array: a reference to its item 0 does not
        #: Completion of the last run: the same object each time, with new values.
        self.completion = Completion()
        self.completion._view(self._completions(), self._op)
        self._bind(self._op, self.completion, True)

    def _summary(self) -> str:
        from ..units import plural

        wr = self._wr[0]
        rows = f"{wr.rows:,} rows of " if wr.rows > 1 else ""
        return f"{Op(wr.op).name.lower()} of {rows}{plural(wr.size, 'byte')}"


class _Memory:
    """Completions of a prepared operation as NumPy takes memory, read-only; keeps the operation."""

    __slots__ = ("__array_interface__", "_op")

    def __init__(self, op: native.Handle, address: int, count: int, size: int) -> None:
        self._op = op
        self.__array_interface__ = {
            "version": 3, "typestr": f"|V{size}", "shape": (count,), "data": (address, True)
        }  # fmt: skip


class PreparedBatch(_Prepared):
    """Batch of work requests, checked once. Created by `Queue.prepare`."""

    __slots__ = ("completions",)

    def __init__(self, queue: CompletionQueue, requests: Any, n: int, n_wc: int) -> None:
        super().__init__(queue, requests, n)
        import numpy as np

        from .dtypes import WC_DTYPE

        view = np.asarray(_Memory(self._op, self._completions(), n_wc, WC_DTYPE.itemsize))
        view = view.view(WC_DTYPE)
        #: Completions of the last run, WC_DTYPE: the same array each time, with new values.
        self.completions: np.ndarray[Any, Any] = view
        self._bind(self._op, view, False)
