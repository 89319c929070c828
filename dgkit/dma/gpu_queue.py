# SPDX-License-Identifier: Apache-2.0
"""Queue that a GPU's kernels post to; a proxy thread of this process runs the operations."""

from __future__ import annotations

import errno
import os
import time
import warnings
from dataclasses import dataclass

from ..errors import ClosedError, RegionBusy, Unsupported
from ..types import Status
from ..unique import Unique
from ..validate import whole
from ._ffi import check, ffi, lib, nanoseconds
from .region import region_method

TYPE_CHECKING = False  # typing's own costs more to import than all of this
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from ._ffi import native as core
    from .context import DeviceContext
    from .gpu_queue_proxy import Proxy
    from .region import Region, RemoteRegion

# Limits in native/gpu_initiated/dgkit_device.cuh.
_DEPTH_MIN, _DEPTH_MAX = 64, 16384
TICKET_MAX = (1 << 56) - 1
_NO_HOLE = (1 << 64) - 1
_STATUSES = frozenset(Status)
_OPS = ("none", "put", "get", "put_inline", "signal", "send", "recv", "fence", "commit")


# For each provider and each method of the local region (enum dg_method): the methods of the remote
# regions that it can copy to and from for a kernel. A signal needs a remote region that is mapped,
# or GPU memory.
_SERVED: dict[str, dict[str, tuple[str, ...]]] = {
    "soft": {"map": ("map", "vm", "proxy", "bar")},
    "cuda": {"map": ("map", "gpu"), "gpu": ("map", "gpu")},
}

# Functions that free the rings of closed queues that no kernel uses any more; each returns True if
# no running kernel uses a queue. The package that registers rings with CUDA adds them.
collectors: list[Callable[[], bool]] = []


@dataclass(frozen=True, slots=True)
class GpuStamp:
    """Time stamps of one operation by the clocks of CPU and GPU, in ns; 0 if not taken.

    Attributes:
        ticket: Ticket of the operation.
        op: "put", "get", ...
        status: Result.
        seen_ns: The proxy saw the record; CLOCK_MONOTONIC.
        posted_ns: The provider got the operation.
        completed_ns: The completion was stored.
        gpu_post_ns: The kernel stored the record; its own clock, with `trace=True`.
        gpu_complete_ns: A wait of the kernel saw the completion.
    """

    ticket: int
    op: str
    status: Status
    seen_ns: int
    posted_ns: int
    completed_ns: int
    gpu_post_ns: int
    gpu_complete_ns: int


@dataclass(frozen=True, slots=True)
class GpuQueueStats:
    """Counts of one queue.

    Attributes:
        taken: Records that the proxy has taken.
        completed: Operations that are complete.
        failed: Operations with a status other than OK.
        waiting: The next record waits for a counter, a receive or a fence.
        hole: First slot that is empty although a later slot is filled, or None.
        first_error: Status of the first operation that failed, or OK.
        first_failed: Ticket of that operation, or None.
    """

    taken: int
    completed: int
    failed: int
    waiting: bool
    hole: int | None
    first_error: Status
    first_failed: int | None


@dataclass(frozen=True, slots=True)
class RingConfig:
    """Configuration of the ring of a GPU queue.

    Attributes:
        depth: Maximum number of operations posted and not complete; a result of `ring_depth`.
        weak: Kernels choose the slots themselves.
        timeout: Seconds after which a wait of a kernel ends as TIMED_OUT.
        trace: Kernels store their clock for each operation.
        first: Number of the first operation.
        index: Number by which a kernel's counters name the ring.

    Raises:
        ValueError: `first` is out of range.
    """

    depth: int
    weak: bool = False
    timeout: float = 10.0
    trace: bool = False
    first: int = 0
    index: int = 0

    def __post_init__(self) -> None:
        if not 0 <= whole("first", self.first) <= TICKET_MAX:
            raise ValueError(f"first is {self.first}; the limit is {TICKET_MAX}")

    def native(self, trace: int = 1) -> core.dg_ring_config:
        """Return a new `dg_ring_config`.

        Args:
            trace: Value of the C field `trace`, if this configuration has a trace.
        """
        raw = ffi.new("dg_ring_config *")
        raw.depth, raw.weak, raw.index, raw.first = self.depth, self.weak, self.index, self.first
        raw.trace = trace if self.trace else 0
        # The emulated GPU's clock counts nanoseconds.
        raw.limit = min(nanoseconds(self.timeout, "timeout"), 1 << 62)
        return raw


def ring_depth(depth: int) -> int:
    """Return the number of slots of a queue: the next power of two, 64 or more.

    Raises:
        ValueError: The number exceeds 16,384.
    """
    wanted = whole("depth", depth, 1)
    if wanted > _DEPTH_MAX:
        raise ValueError(f"depth is {wanted}; the limit of a GPU queue is {_DEPTH_MAX}")
    return int(max(_DEPTH_MIN, 1 << (wanted - 1).bit_length()))


def check_served(device: DeviceContext, regions: Iterable[Region | RemoteRegion]) -> None:
    """Check that a device's provider can copy for kernels between these regions.

    Raises:
        Unsupported: It cannot; the error names the region and the remedy.
        ValueError: A region belongs to another device.
        ClosedError: A region is closed.
    """
    served = _SERVED.get(device.provider)
    if served is None:
        raise Unsupported(
            errno.EOPNOTSUPP,
            f"a kernel's operations cannot be run by the provider {device.provider}: open "
            f"the GPU queue of a device with {' or '.join(_SERVED)}",
        )
    try:
        given = list(regions)
    except TypeError:
        raise TypeError(f"regions is {regions!r:.60}; it must be a list of regions") from None
    for region in given:
        if not hasattr(region, "device"):
            raise TypeError(f"regions has {region!r}, which is not a region")
        if region.device is not device:
            raise ValueError(f"{region!r} belongs to another device than the GPU queue: {device!r}")
        if region.closed:
            raise ClosedError(f"{region!r} is closed")
    remotes = [region for region in given if hasattr(region, "method")]
    for region in given:
        if region in remotes:
            fits = any(region_method(region) in reached for reached in served.values())
        else:
            fits = region_method(region) in served
        if not fits:
            raise Unsupported(errno.EOPNOTSUPP, f"{region!r} {_why_not(device, region)}")


def _why_not(device: DeviceContext, region: Region | RemoteRegion) -> str:
    method = region_method(region)
    if device.provider == "cuda" and method in ("vm", "proxy"):
        return (
            "is memory that only its owner's process can access, which the provider cuda cannot "
            "copy for a kernel: have the owner use memory from dgkit.empty()"
        )
    if device.provider == "cuda":
        return (
            "is memory of another GPU than this device's, which cannot copy it: open "
            "Device('cuda', gpu=...) with that GPU"
        )
    return (
        f"is GPU memory, which the provider {device.provider} cannot copy for a kernel: open the "
        "GPU queue of Device('cuda'), or use host memory that the GPU can access (on='pinned')"
    )


def free_rings() -> bool:
    """Free the rings of closed queues that no kernel uses; return whether no kernel uses any."""
    return not sum(not collect() for collect in collectors)  # unlike any(), calls each one


def wait_for_kernels(timeout: float) -> None:
    """Wait until no kernel that was launched with a GPU queue runs.

    CUDA's functions that free memory wait inside the driver for all kernels of the process. That
    would block the proxy that such a kernel waits for.

    Raises:
        RegionBusy: A kernel still runs.
    """
    end = time.monotonic() + timeout
    while not free_rings():
        if time.monotonic() > end:
            raise RegionBusy(
                errno.EBUSY,
                f"after {timeout:g} s a kernel that was launched with a GPU queue still runs, and "
                "freeing its memory would wait for it: let it end, then close again",
            )
        time.sleep(0.001)


def status_of(raw: int) -> Status:
    """Return the status with this number in a ring's memory, which a peer may also have written."""
    return Status(raw) if raw in _STATUSES else Status.IO_FAILED


def stamps(raw: core.Array, count: int) -> list[GpuStamp]:
    """Return `count` items of `dg_ring_stamp[]`."""
    return [
        GpuStamp(
            s.ticket, _OPS[s.op] if s.op < len(_OPS) else f"op {s.op}", status_of(s.status),
            s.seen_ns, s.posted_ns, s.completed_ns, s.gpu_post_ns, s.gpu_complete_ns,
        )
        for s in raw[0:count]
    ]  # fmt: skip


@dataclass(frozen=True, slots=True)
class HandleLayout:
    """Layout of the structure that a kernel gets a pointer to; indices are of 64-bit words.

    Attributes:
        size: Bytes.
        addresses: Indices of the addresses in it.
        limit: Index of the limit of a wait, in cycles of the GPU's clock; None if there is none.
    """

    size: int
    addresses: tuple[int, ...]
    limit: int | None = None


class KernelQueue(Unique):
    """Queue of a device, of a session or of a NIC; a kernel gets it as one pointer.

    Attributes:
        handle_layout: Layout of the structure at that pointer.
        handle_version: Changes when the structure is written anew.
        timeout: Seconds after which a wait of a kernel ends as TIMED_OUT.
        depth: Maximum number of operations posted and not complete.
        weak: Kernels choose the slots themselves.
    """

    # struct dg_gpu_queue (dgkit_device.cuh): ring, completions, records, trace; limit
    handle_layout = HandleLayout(384, (0, 1, 2, 3), 4)
    handle_version = 0
    shared_offset = 0  # of the memory, in the file of _shared_memory()
    timeout: float
    depth: int
    weak: bool

    def __init__(self) -> None:
        # Functions that unregister the ring's memory from CUDA; each is called with the function
        # that frees the memory afterwards.
        self._on_close: list[Callable[[Callable[[], None]], None]] = []

    def _shared_memory(self) -> tuple[int, int, int, int]:
        """Return fd, size and address of the memory, and the address of the structure."""
        raise NotImplementedError

    def _handle_bytes(self, size: int) -> bytes:
        """Return the first bytes of the queue's structure, with addresses of this process."""
        address = self._shared_memory()[3]
        return bytes(ffi.buffer(ffi.cast("char *", address), size))

    def _free(self, free: Callable[[], None]) -> None:
        """Free the ring's memory, once no launch on a GPU uses it."""
        for release in self._on_close[:1]:
            release(free)
        if not self._on_close:
            free()


class GpuQueue(KernelQueue):
    """Ring that kernels post to. Created by `Device.gpu_queue`.

    A kernel gets it as one pointer, `dg_gpu_queue *`, and calls the functions of
    dgkit_device.cuh. Regions are named by their `id`.

    Args:
        proxy: Thread that serves the queue.
        config: Configuration of the queue's ring.
        regions: Regions that kernels will use; checked now.
    """

    def __init__(
        self, proxy: Proxy, config: RingConfig, regions: Iterable[Region | RemoteRegion]
    ) -> None:
        super().__init__()
        self._r: core.dg_ring | None = None
        self._device, self._proxy, self._pid = proxy.device, proxy, os.getpid()
        check_served(proxy.device, regions)
        self.weak, self.timeout = config.weak, config.timeout
        raw = config.native()
        out = ffi.new("dg_ring **")
        try:
            with proxy.using:
                check(lib.dg_ring_open(proxy._handle(), raw, out))
        finally:
            self._r = out[0] or None
        info = self._info()
        self.depth, self.index = int(info.depth), int(info.index)

    def _handle(self) -> core.dg_ring:
        if self._r is None:
            raise ClosedError("this GPU queue is closed")
        self._device._handle()
        return self._r

    def _info(self) -> core.dg_ring_info:
        raw = ffi.new("dg_ring_info *")
        with self._proxy.using:
            check(lib.dg_ring_info_get(self._handle(), raw))
        return raw

    def _shared_memory(self) -> tuple[int, int, int, int]:
        info = self._info()
        return int(info.fd), int(info.size), int(info.address), int(info.handle)

    def connect(self, other: GpuQueue) -> None:
        """Connect two queues of one device: a send on one matches the next receive on the other.

        The n-th send or put with an immediate value matches the n-th receive. A message waits for a
        late receive, as do the operations that its kernel posted behind it; if a message is longer
        than its receive, both end as OUT_OF_BOUNDS. Once one queue is closed, operations of the
        other that need it end as PEER_LOST.

        Raises:
            RegionBusy: One of the queues is already connected.
            ValueError: They are the same queue, or belong to two devices.
        """
        if self._proxy is not other._proxy:
            raise ValueError("a GPU queue is connected to another one of the same device")
        with self._proxy.using:
            check(lib.dg_ring_connect(self._handle(), other._handle()))

    def stats(self) -> GpuQueueStats:
        """Return the counts of this queue."""
        raw = ffi.new("dg_ring_stats *")
        with self._proxy.using:
            check(lib.dg_ring_stats_get(self._handle(), raw))
        failed = bool(raw.first_error)
        return GpuQueueStats(
            raw.taken, raw.completed, raw.failed, bool(raw.waiting),
            None if raw.hole == _NO_HOLE else int(raw.hole),
            Status(raw.first_error), int(raw.first_failed) if failed else None,
        )  # fmt: skip

    def trace(self) -> list[GpuStamp]:
        """Return the stamps of the latest operations, at most `depth`, oldest first."""
        raw = ffi.new("dg_ring_stamp[]", self.depth)
        with self._proxy.using:
            count = check(lib.dg_ring_trace(self._handle(), raw, self.depth))
        return stamps(raw, count)

    @property
    def device(self) -> DeviceContext:
        """Device that opened the queue."""
        return self._device

    @property
    def proxy(self) -> Proxy:
        """Thread that serves the queue."""
        return self._proxy

    @property
    def closed(self) -> bool:
        """True if the queue is closed."""
        return self._r is None

    def close(self) -> None:
        """Refuse new operations, end those in progress, and end every wait of a kernel. Idempotent.

        It never waits for a kernel: a kernel's waits end as FLUSHED or CLOSED.
        """
        with self._proxy.using:
            if self._r is None:
                return
            check(lib.dg_ring_close(self._r))
            ring, self._r = self._r, None
        self._free(lambda: lib.dg_ring_free(ring))

    def __enter__(self) -> GpuQueue:
        self._handle()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __del__(self) -> None:
        if getattr(self, "_r", None) is None:
            return
        if self._pid == os.getpid():
            warnings.warn(f"{self!r} was not closed", ResourceWarning, stacklevel=1)
        self.close()

    def __repr__(self) -> str:
        state = "closed" if self._r is None else "weak" if self.weak else "strong"
        depth = getattr(self, "depth", 0)
        return f"<dgkit.GpuQueue on {self._device.provider}, depth {depth}, {state}>"
