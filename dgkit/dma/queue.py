"""A queue: post reads and writes, reap their completions."""

from __future__ import annotations

import os
import threading
import warnings
from collections.abc import Sequence

from ..errors import ClosedError
from ..types import Op, Path, parse_path
from ..validate import whole
from ._ffi import check, ffi, lib, nanoseconds
from .batches import Batches
from .prepared import PreparedOp
from .transfer import _NOT_YET, RACED, Pending, Transfer
from .work_request import chain, check_sides, record

TYPE_CHECKING = False  # typing's own costs more to import than all of this
if TYPE_CHECKING:
    from typing import Any

    from .aio import Waiters
    from .device import Device
    from .region import Region, RemoteRegion

    Segment = tuple[Region, int, int]

__all__ = ["Queue"]

_write, _read = lib.dg_transfer_write, lib.dg_transfer_read
_post_transfer = lib.dg_transfer_post
_READ, _WRITE = int(Op.READ), int(Op.WRITE)
_TICKET: int = lib.DG_TICKET
_SINK = 512  # completions that share one block of memory


class Queue(Batches):
    """A submission ring, a completion ring and one fd. Made by `Device.queue`.

    One thread at a time uses a queue; a second one gets QueueInUse. Every method that posts raises
    BoundsError, AccessDenied, ClosedError or QueueFull before anything was posted.
    """

    def __init__(
        self, device: Device, depth: int, path: str | Path, *, spin_us: float, op_timeout: float
    ) -> None:
        self._q: Any = None
        self._device = device
        self._pid = os.getpid()
        self._closed = False
        self.depth = whole("depth", depth, 1)
        self.path = parse_path(path)
        out = ffi.new("dg_queue **")
        spin_ns = nanoseconds(spin_us / 1e6, "spin_us")
        times = (spin_ns, nanoseconds(op_timeout, "op_timeout"))
        if self.depth > lib.DG_DEPTH_MAX:
            raise ValueError(f"depth is {depth}; the limit is {lib.DG_DEPTH_MAX}")
        check(lib.dg_queue_open(device._handle(), self.depth, self.path.value, *times, out))
        self._q = out[0]
        super().__init__()
        self._waiters: Waiters | None = None  # who awaits transfers, if anybody ever did
        self._sink_lock = threading.Lock()
        self._sink: Any
        self._new_sink()

    def _new_sink(self) -> Any:
        """A new block for completions; the old one lives as long as completions refer to it."""
        with self._sink_lock:
            # Who is between a post and its look at _sink sees that it changed: see `_transfer`.
            self._sink = RACED
            sink = ffi.new("dg_wc[]", _SINK)
            check(lib.dg_queue_sink(self._q, sink, _SINK))
            self._sink = sink
        return sink

    def _transfer(self, ticket: int, sink: Any) -> Transfer:
        """What a post gave, as an object. `sink` is the one from before the post.

        If it is another one now, a second thread was here too, and which of the two has this
        completion is not known: it must not pass for somebody else's.
        """
        if ticket < 0:
            self._refuse(ticket)
        if ticket < _TICKET:
            done = Transfer()
            done._wcs = sink if sink is self._sink else RACED
            done._i = ticket
            if ticket == _SINK - 1:
                self._new_sink()
            return done
        pending = Pending()
        pending._queue = self
        pending._ticket = ticket
        pending._wcs = _NOT_YET
        pending._i = -1
        return pending

    # Transfers

    def write(
        self,
        local: Region,
        remote: RemoteRegion,
        *,
        size: int | None = None,
        local_offset: int = 0,
        remote_offset: int = 0,
        fence: bool = False,
    ) -> Transfer:
        """Puts `size` local bytes into the remote region. None: all from `local_offset` on.

        With `fence` it starts only when all that was posted before is complete.
        """
        if fence:
            return self._post_checked(
                _WRITE, local, remote, size, local_offset, remote_offset, fence=True
            )
        sink = self._sink
        try:
            _ = size | local_offset | remote_offset  # type: ignore[operator]
            ticket = _write(self._q, local.id, remote.id, size, local_offset, remote_offset)
        except (TypeError, OverflowError, AttributeError):
            return self._post_checked(_WRITE, local, remote, size, local_offset, remote_offset)
        if 0 <= ticket < _SINK - 1 and sink is self._sink:  # done at once: the usual small one
            done = Transfer()
            done._wcs = sink
            done._i = ticket
            return done
        return self._transfer(ticket, sink)

    def read(
        self,
        local: Region,
        remote: RemoteRegion,
        *,
        size: int | None = None,
        local_offset: int = 0,
        remote_offset: int = 0,
        fence: bool = False,
    ) -> Transfer:
        """Brings `size` remote bytes into the local region. None: as many as `local` holds."""
        if fence:
            return self._post_checked(
                _READ, local, remote, size, local_offset, remote_offset, fence=True
            )
        sink = self._sink
        try:
            _ = size | local_offset | remote_offset  # type: ignore[operator]
            ticket = _read(self._q, local.id, remote.id, size, local_offset, remote_offset)
        except (TypeError, OverflowError, AttributeError):
            return self._post_checked(_READ, local, remote, size, local_offset, remote_offset)
        if 0 <= ticket < _SINK - 1 and sink is self._sink:
            done = Transfer()
            done._wcs = sink
            done._i = ticket
            return done
        return self._transfer(ticket, sink)

    def _post_checked(
        self,
        op: int,
        local: Region,
        remote: RemoteRegion,
        size: Any,
        *offsets: Any,
        fence: bool = False,
    ) -> Transfer:
        """The call with each number looked at: for what is not plain.

        What is no whole number came here by its `|`: cffi takes a Fraction, and cuts it.
        """
        check_sides(local, remote)
        places = (whole("local_offset", offsets[0]), whole("remote_offset", offsets[1]))
        length = max(1, local.size - places[0]) if size is None else whole("size", size)
        sink = self._sink
        ticket = _post_transfer(self._q, op, local.id, remote.id, length, *places, fence)
        return self._transfer(ticket, sink)

    def write_2d(self, local: Region, remote: RemoteRegion, **shape: int) -> Transfer:
        """Writes `rows` rows of `size` bytes, `local_stride` and `remote_stride` bytes apart.

        Also `local_offset`, `remote_offset`. The rows may not overlap where they are written.
        """
        return self._post_records([record(_WRITE, local, remote, shape)])

    def read_2d(self, local: Region, remote: RemoteRegion, **shape: int) -> Transfer:
        """Reads `rows` rows of `size` bytes; as `write_2d`."""
        return self._post_records([record(_READ, local, remote, shape)])

    def gather(
        self, segments: Sequence[Segment], remote: RemoteRegion, *, remote_offset: int = 0
    ) -> Transfer:
        """Writes local segments, (region, offset, size) each, one behind another into `remote`."""
        return self._post_records(chain(_WRITE, segments, remote, remote_offset))

    def scatter(
        self, remote: RemoteRegion, segments: Sequence[Segment], *, remote_offset: int = 0
    ) -> Transfer:
        """Reads from `remote` on into local segments, (region, offset, size) each, in turn."""
        return self._post_records(chain(_READ, segments, remote, remote_offset))

    def _post_records(self, records: list[dict[str, int]]) -> Transfer:
        raw = ffi.new("dg_wr[]", records)
        sink = self._sink
        ticket = lib.dg_transfer_post_wr(self._q, raw, len(records))
        return self._transfer(ticket, sink)

    # Prepared

    def prepare_write(self, local: Region, remote: RemoteRegion, **shape: int) -> PreparedOp:
        """Checks a write once: `size`, `local_offset`, `remote_offset`, `user`, and for rows
        `rows`, `local_stride`, `remote_stride`."""
        return self._prepare(record(_WRITE, local, remote, shape))

    def prepare_read(self, local: Region, remote: RemoteRegion, **shape: int) -> PreparedOp:
        """Checks a read once; as `prepare_write`."""
        return self._prepare(record(_READ, local, remote, shape))

    def _prepare(self, wr: dict[str, int]) -> PreparedOp:
        return PreparedOp(self, ffi.new("dg_wr[]", [wr]), 1)

    # Life

    @property
    def device(self) -> Device:
        """The device that it belongs to."""
        return self._device

    @property
    def pending(self) -> int:
        """Posted operations that were not yet reaped."""
        return int(lib.dg_queue_pending(self._q))

    @property
    def closed(self) -> bool:
        """Whether it is closed."""
        return self._closed

    def fileno(self) -> int:
        """An fd for select or epoll: readable after `arm()` gave True and something completed."""
        return check(lib.dg_queue_fileno(self._q))

    def arm(self) -> bool:
        """Before sleeping on `fileno()`: True if it will be written, False if work is there."""
        return check(lib.dg_queue_arm(self._q)) == 1

    def close(self) -> None:
        """What is pending completes as FLUSHED; completions can still be taken. Again: nothing."""
        if self._closed:
            return
        if self._waiters is not None:
            self._waiters.closing()
        check(lib.dg_queue_close(self._q))
        self._closed = True
        if self._waiters is not None:
            self._waiters.closed()

    def __enter__(self) -> Queue:
        if self._closed:
            raise ClosedError(f"{self!r} is closed")
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __del__(self) -> None:
        if self._q is None:
            return
        if not self._closed and self._pid == os.getpid():
            warnings.warn(f"{self!r} was not closed", ResourceWarning, stacklevel=1)
        lib.dg_queue_free(self._q)
        self._q, self._closed = None, True  # whoever has it may be finalized later, and close it

    def __repr__(self) -> str:
        state = "closed" if self._closed else f"{self.pending} pending"
        return f"<dgkit.Queue on {self._device.provider}, depth {self.depth}, {self.path}, {state}>"

    def _repr_html_(self) -> str:
        from ..html_cards import card, provider_badge

        rows = (
            ("Depth", f"{self.depth} operations"),
            ("Path", self.path),
            ("Pending", f"{self.pending} operations"),
        )
        title = "Queue (closed)" if self._closed else "Queue"
        return card(title, rows, badge=provider_badge(self._device.provider))
