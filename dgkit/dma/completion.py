# SPDX-License-Identifier: Apache-2.0
"""Result of one operation."""

from __future__ import annotations

from ..errors import TransferError
from ..types import PATHS, Op, Status
from ._ffi import native

_OPS = tuple(Op)  # by code: an index takes a tenth of what a call of the enum takes
_LATE = "late: when the queue was next polled"
_STAMPS = ("per operation", "shared by a batch", _LATE, f"shared by a batch, {_LATE}")

_MEANING = {
    Status.LOCAL_ERROR: "the local region was closed or its memory could not be read",
    Status.REMOTE_ACCESS_ERROR: "the exporter revoked the region, or its memory cannot be reached",
    Status.PEER_LOST: "the exporter is gone",
    Status.TIMED_OUT: "no completion came in time (the queue's op_timeout)",
    Status.FLUSHED: "the queue was closed first, or an operation before it broke its queue pair",
    Status.IO_FAILED: "the provider reported a failure",
}


class Completion(native.Completion):
    """Lazy view of one `dg_wc`, which reads a field when it is accessed.

    Stamps are integer ns of CLOCK_MONOTONIC on the side that moved the bytes: `submit_ns` when the
    operation was requested, `post_ns` when it was handed to the provider, `complete_ns` after the
    last byte.

    It reports that bytes were moved, not the state of the other process: see `Status`.
    """

    __slots__ = ()

    @property
    def status(self) -> Status:
        """OK, or the kind of failure."""
        return Status(self._status)

    @property
    def path(self) -> str:
        """`inline` (the calling thread copied) or `worker` (the engine did)."""
        return PATHS[self._path].value

    @property
    def op(self) -> Op:
        """READ, WRITE, FETCH_ADD or COMPARE_SWAP."""
        return _OPS[self._op]

    @property
    def shared_stamp(self) -> bool:
        """True if several operations of a batch share one stamp."""
        return bool(self._flags & 1)

    @property
    def late_stamp(self) -> bool:
        """True if `complete_ns` is the time of the next poll: the bytes had been moved earlier."""
        return bool(self._flags & 2)

    @property
    def by_kernel(self) -> bool:
        """True if a GPU kernel copied, as part of a batch, instead of the copy engine."""
        return bool(self._flags & 4)

    def __repr__(self) -> str:
        from ..units import plural

        by = self._by_kernel_text()
        about = f"{self.op.name.lower()} of {plural(self.size, 'byte')}, {self.path}{by}"
        return f"<dgkit.Completion {self.status.name} {about}, {self.latency_ns:,} ns>"

    def _by_kernel_text(self) -> str:
        return " by a kernel" if self.by_kernel else ""

    def _repr_html_(self) -> str:
        from ..html_cards import badge, card
        from ..units import plural, us

        rows = (
            ("Operation", self.op.name.lower()),
            ("Size", plural(self.size, "byte")),
            ("Path", self.path + self._by_kernel_text()),
            ("Submit to post", f"{us(self.post_ns - self.submit_ns)} µs"),
            ("Post to complete", f"{us(self.complete_ns - self.post_ns)} µs"),
            ("Stamp", _STAMPS[self._flags & 3]),
        )
        tag = badge(self.status.name, warn=self.status is not Status.OK)
        return card("Completion", rows, badge=tag)


def raise_failed(completion: Completion) -> None:
    """Raise TransferError if the status is not OK."""
    status = completion.status
    if status is not Status.OK:
        text = f"{completion.op.name.lower()} completed with {status.name}: {_MEANING[status]}"
        raise TransferError(text, completion)
