# SPDX-License-Identifier: Apache-2.0
"""Queue that posts reads, writes and atomic operations."""

from __future__ import annotations

import os
import warnings
from collections.abc import Sequence

from ..errors import ClosedError
from ..types import Op, TransferPath, parse_path
from ..validate import whole
from ._ffi import check, ffi, lib, nanoseconds, open_handle, spin_ns
from .prepared import PreparedBatch, PreparedOp
from .region import region_ids
from .transfer import CompletionQueue, Transfer
from .work_request import atomic_fields, chain, wr_fields

TYPE_CHECKING = False  # typing's own costs more to import than all of this
if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from typing import Any

    import numpy as np

    from ..live_set import LiveSet
    from .aio import Waiters
    from .device import Device
    from .queue_pair import QueuePair
    from .region import Region, RemoteRegion
    from .transfer import Pending

    Segment = tuple[Region, int, int]

_READ, _WRITE = int(Op.READ), int(Op.WRITE)
_FETCH_ADD, _COMPARE_SWAP = int(Op.FETCH_ADD), int(Op.COMPARE_SWAP)


def _ids_with(remote: RemoteRegion) -> Callable[[Region], tuple[int, int]]:
    """Return a function that returns the ids of a local region and of `remote`."""
    return lambda local: region_ids(local, remote)


def _checked_post(op: int, name: str) -> Callable[..., Transfer]:
    """Return the slow path of Queue.read or Queue.write, which checks each argument."""

    def post(
        self: Queue,
        local: Region | RemoteRegion,
        remote: RemoteRegion,
        *,
        size: int | None = None,
        local_offset: int = 0,
        remote_offset: int = 0,
        fence: bool = False,
    ) -> Transfer:
        ids = region_ids(local, remote)
        starts = (whole("local_offset", local_offset), whole("remote_offset", remote_offset))
        length = max(1, local.size - starts[0]) if size is None else whole("size", size)
        request = {
            "op": op, "local": ids[0], "remote": ids[1], "size": length, "rows": 1,
            "local_offset": starts[0], "remote_offset": starts[1], "flags": bool(fence),
        }  # fmt: skip
        return self._post_requests([request])

    post.__qualname__ = f"Queue.{name}"  # in Python's TypeError for a wrong call
    return post


class Queue(CompletionQueue):
    """Submission ring, completion ring and one file descriptor. Created by `Device.queue`.

    One thread at a time uses a queue; a second one gets QueueInUse. Methods that post raise
    BoundsError, AccessDenied, ClosedError or QueueFull before anything is posted.
    """

    _device: Device

    def __init__(
        self,
        device: Device,
        depth: int,
        path: str | TransferPath,
        *,
        spin_us: float,
        op_timeout: float,
    ) -> None:
        self._q: Any = None
        self._device = device
        self._pid = os.getpid()
        self._closed = False
        self.depth = whole("depth", depth, 1)
        self.path = parse_path(path)
        times = (spin_ns(spin_us), nanoseconds(op_timeout, "op_timeout"))
        if self.depth > lib.DG_DEPTH_MAX:
            raise ValueError(f"depth is {depth}; the limit is {lib.DG_DEPTH_MAX}")
        args = (device._handle(), self.depth, self.path.code, *times)
        open_handle(self, "_q", "dg_queue", (device._d,), lib.dg_queue_open, *args)
        super().__init__()
        self._queue_pairs: LiveSet[QueuePair] | None = None
        self._waiters: Waiters | None = None  # those of the last event loop that awaited transfers

    # The C methods write and read call these two functions for unusual arguments: no size, a fence,
    # or values that are not ints.
    _write = _checked_post(_WRITE, "write")
    _read = _checked_post(_READ, "read")

    def write_2d(self, local: Region, remote: RemoteRegion, **shape: int) -> Transfer:
        """Write rows of bytes that are a stride apart.

        Args:
            local: Region to read from.
            remote: Remote region to write to. The rows may not overlap in it.
            shape: `size` (bytes of a row), `rows`, `local_stride`, `remote_stride`, `local_offset`,
                `remote_offset` (bytes).
        """
        return self._post_requests([wr_fields(_WRITE, region_ids(local, remote), shape)])

    def read_2d(self, local: Region, remote: RemoteRegion, **shape: int) -> Transfer:
        """Read rows of bytes that are a stride apart; arguments as in `write_2d`."""
        return self._post_requests([wr_fields(_READ, region_ids(local, remote), shape)])

    def gather(
        self, segments: Sequence[Segment], remote: RemoteRegion, *, remote_offset: int = 0
    ) -> Transfer:
        """Write local segments to consecutive bytes of `remote`.

        Args:
            segments: `(region, offset, size)` of each segment; bytes.
            remote: Remote region to write to.
            remote_offset: Where the first segment goes; bytes.
        """
        return self._post_requests(chain(_WRITE, segments, _ids_with(remote), remote_offset))

    def scatter(
        self, remote: RemoteRegion, segments: Sequence[Segment], *, remote_offset: int = 0
    ) -> Transfer:
        """Read consecutive bytes of `remote` into local segments.

        Args:
            remote: Remote region to read from.
            segments: `(region, offset, size)` of each segment; bytes.
            remote_offset: Where to start to read; bytes.
        """
        return self._post_requests(chain(_READ, segments, _ids_with(remote), remote_offset))

    def fetch_add(
        self,
        local: Region | RemoteRegion,
        remote: RemoteRegion,
        addend: int,
        *,
        local_offset: int = 0,
        remote_offset: int = 0,
        fence: bool = False,
    ) -> Transfer:
        """Add to a remote word of 8 bytes, atomically, and read its old value.

        The sum wraps at 2^64. `Caps.atomics` says with respect to which other accesses it is
        atomic. A word is an unsigned number in the byte order of the host (little-endian).

        Args:
            local: Region to write the old value to.
            remote: Remote region with the word; it needs read and write access.
            addend: -2^63 to 2^64 - 1; a negative number is added in two's complement, so it is
                subtracted.
            local_offset: Where the old value goes; bytes.
            remote_offset: Where the word is; bytes. Its address in the process that exported it
                must be a multiple of 8.
            fence: Start only when all operations posted before are complete.

        Returns:
            The transfer, already complete if it was done inline. Its size is 8.

        Raises:
            TypeError: `addend` is not an integer.
            ValueError: `addend` is out of range, or the word is not aligned.
            Unsupported: The provider has no atomic operations, or the remote memory is a mapped
                file.
        """
        operands = (whole("addend", addend, -(1 << 63)) % (1 << 64), 0)
        return self._post_atomic(
            _FETCH_ADD, local, remote, operands, (local_offset, remote_offset), fence=fence
        )

    def compare_swap(
        self,
        local: Region | RemoteRegion,
        remote: RemoteRegion,
        compare: int,
        swap: int,
        *,
        local_offset: int = 0,
        remote_offset: int = 0,
        fence: bool = False,
    ) -> Transfer:
        """Store a remote word of 8 bytes if it has an expected value, and read its old value.

        The value was stored if the old value equals `compare`. All else is as in `fetch_add`.

        Args:
            local: Region to write the old value to.
            remote: Remote region with the word; it needs read and write access.
            compare: Expected value, 0 to 2^64 - 1.
            swap: Value to store, 0 to 2^64 - 1.
            local_offset: Where the old value goes; bytes.
            remote_offset: Where the word is; bytes.
            fence: Start only when all operations posted before are complete.
        """
        operands = (whole("compare", compare), whole("swap", swap))
        return self._post_atomic(
            _COMPARE_SWAP, local, remote, operands, (local_offset, remote_offset), fence=fence
        )

    def _post_atomic(
        self,
        op: int,
        local: Region | RemoteRegion,
        remote: RemoteRegion,
        operands: tuple[int, int],
        offsets: tuple[Any, Any],
        *,
        fence: bool,
    ) -> Transfer:
        ids = region_ids(local, remote)
        return self._post_requests([atomic_fields(op, ids, operands, offsets, fence=fence)])

    def _post_requests(self, requests: list[dict[str, int]]) -> Transfer:
        raw = ffi.new("dg_wr[]", requests)
        return self._post_records(int(ffi.cast("uintptr_t", raw)), len(requests))

    def prepare_write(self, local: Region, remote: RemoteRegion, **shape: int) -> PreparedOp:
        """Check a write once and return it as a prepared operation.

        Args:
            local: Region to read from.
            shape: `size`, `local_offset`, `remote_offset`, `user`, and for rows `rows`,
                `local_stride`, `remote_stride`.
        """
        return self._prepare(wr_fields(_WRITE, region_ids(local, remote), shape))

    def prepare_read(self, local: Region, remote: RemoteRegion, **shape: int) -> PreparedOp:
        """Check a read once and return it as a prepared operation; see `prepare_write`."""
        return self._prepare(wr_fields(_READ, region_ids(local, remote), shape))

    def _prepare(self, wr: dict[str, int]) -> PreparedOp:
        return PreparedOp(self, ffi.new("dg_wr[]", [wr]), 1)

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

    def _wait_in_loop(self, transfer: Pending) -> Awaitable[None]:
        from .aio import running_waiters

        self._waiters = waiters = running_waiters(self, self._waiters)
        return waiters.add(transfer)

    def queue_pair(self) -> QueuePair:
        """Open a queue pair to be connected manually to any program that uses libibverbs.

        Raises:
            Unsupported: The provider has no queue pairs; only `verbs` has.
            DeviceUnavailable: The port has no link, or no GID with the device's address.
        """
        from ..live_set import LiveSet
        from .queue_pair import QueuePair

        if self._closed:
            raise ClosedError(f"{self!r} is closed")
        pair = QueuePair(self)
        if self._queue_pairs is None:
            self._queue_pairs = LiveSet()
        self._queue_pairs.add(pair)
        return pair

    @property
    def device(self) -> Device:
        """Device that opened the queue."""
        return self._device

    def close(self) -> None:
        """Complete pending operations as FLUSHED and close the queue. Idempotent.

        Closes its queue pairs first. Completions can still be reaped afterwards.
        """
        if self._closed:
            return
        for queue_pair in self._queue_pairs or ():
            queue_pair.close()
        if self._waiters is not None:
            self._waiters.before_close()
        check(lib.dg_queue_close(self._q.c))
        self._closed = True
        if self._waiters is not None:
            self._waiters.after_close()

    def __enter__(self) -> Queue:
        if self._closed:
            raise ClosedError(f"{self!r} is closed")
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __del__(self) -> None:
        if getattr(self, "_q", None) is None or self._closed:
            return
        if self._pid == os.getpid() and not self._device.closed:
            warnings.warn(f"{self!r} was not closed", ResourceWarning, stacklevel=1)
        lib.dg_queue_close(self._q.c)
        self._closed = True

    def __repr__(self) -> str:
        state = "closed" if self._closed else f"{self.pending} pending"
        return f"<dgkit.Queue on {self._device._label}, depth {self.depth}, {self.path}, {state}>"

    def _repr_html_(self) -> str:
        from ..html_cards import card, provider_badge
        from ..units import plural

        rows = (
            ("Depth", plural(self.depth, "operation")),
            ("Path", self.path),
            ("Pending", plural(self.pending, "operation")),
        )
        title = "Queue (closed)" if self._closed else "Queue"
        return card(title, rows, badge=provider_badge(self._device._label))
