"""Per-client resources, released on disconnect, and the limits on them."""

from __future__ import annotations

import errno
import os
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from ..dpu.copier import Copier
from ..errors import ClosedError, LimitReached, OutOfMemory, PeerRefused, RegionBusy
from .worker import SerialWorker

if TYPE_CHECKING:
    from typing import Protocol

    from ..dma import Device
    from ..dpu.region_ref import RegionRef
    from ..wire.listener import Caller

    class RunningMonitor(Protocol):
        """Monitor of a client (monitor.py): `region` is the handle of the region it times."""

        region: int

        def end(
            self,
            *,
            reason: Exception | None = None,
            on_end: Callable[[], None] | None = None,
        ) -> None: ...

        def join(self, timeout: float) -> bool: ...


__all__ = ["COUNTERS", "Client", "MemoryLimit", "on_gpu"]

COUNTERS = ("moves", "bytes", "jobs", "failed", "lost_replies", "internal_errors")

_RATE = 10_000  # requests of one client in _WINDOW_NS
_WINDOW_NS = 100_000_000
_RELEASE_TRIES = 60  # seconds; longer than any transfer takes to time out
_RELEASE_FAILURES = 3  # of one region, until it is given up
_CHUNK = 1 << 20  # bytes that a worker copies between two looks at cancellation


def on_gpu(place: str) -> bool:
    """Return whether a place is GPU memory, which MemoryLimit does not count."""
    return place == "gpu" or place.startswith("cuda:")


class MemoryLimit:
    """Limit in bytes on the host memory that all clients together allocate. Thread-safe."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.used = 0
        self._lock = threading.Lock()

    def take(self, size: int) -> None:
        """Charge `size` bytes.

        Raises:
            OutOfMemory: Less is left; nothing was charged.
        """
        with self._lock:
            if self.used + size > self.limit:
                raise OutOfMemory(
                    errno.ENOMEM,
                    f"{size} bytes asked for, {self.limit - self.used} of this agent's limit of "
                    f"{self.limit} are left (`dgkit serve --max-memory` sets it)",
                )
            self.used += size

    def give(self, size: int) -> None:
        """Return `size` bytes that take() charged."""
        with self._lock:
            self.used -= size


class Client:
    """One connection: its regions, workers, monitors, and its share of the limits."""

    def __init__(
        self,
        route: bytes,
        caller: Caller,
        first_id: int,
        limit: MemoryLimit,
        report: Callable[[str, Exception], None],
        max_regions: int,
    ) -> None:
        self.route = route
        self.caller = caller
        self.next_id = first_id
        self.regions: dict[int, RegionRef] = {}
        self.active: set[int] = set()  # ids of the requests with a reply to come; the loop's
        self.cancelled: set[int] = set()  # those of them that are to end
        self._report = report
        self._max_regions = max_regions
        self.control = self.worker("control")
        self.moves = self.worker("moves")
        self.measures = self.worker("measures")
        self.monitors: dict[int, RunningMonitor] = {}  # by the id of the request
        self.counters = dict.fromkeys(COUNTERS, 0)
        self.secret = int.from_bytes(os.urandom(7), "little") + 1  # number of its samples
        self._copier: Copier | None = None
        self._limit = limit
        self._handles = 0
        self._window_ns = 0
        self._count = 0

    @property
    def allocated(self) -> int:
        """Return the bytes of the memory limit that this client's regions take."""
        return sum(ref.charged for ref in list(self.regions.values()))

    def worker(self, kind: str) -> SerialWorker:
        """Return a new worker for this client."""
        return SerialWorker(
            f"dgkit-{kind}-{self.caller.pid}", lambda exc: self._report(f"{kind} job", exc)
        )

    @property
    def leaving(self) -> bool:
        """Return whether the connection is gone, or sent Bye."""
        return self.control.stopping

    def admit(self) -> None:
        """Count a request against the rate limit.

        Raises:
            PeerRefused: Too many requests in a short time.
        """
        now = time.monotonic_ns()
        if now - self._window_ns > _WINDOW_NS:
            self._window_ns, self._count = now, 0
        self._count += 1
        if self._count > _RATE:
            raise PeerRefused(f"more than {_RATE} requests in {_WINDOW_NS // 1_000_000} ms")

    def copier(self, device: Device) -> Copier:
        """Return the copier of the `moves` worker, created on first use."""
        if self._copier is None:
            self._copier = Copier(device, chunk=_CHUNK, op_timeout=30.0)
        return self._copier

    def add(self, ref: RegionRef) -> int:
        """Register a region with this client and return its new handle.

        Raises:
            LimitReached: The client has the maximum number of regions; `ref` was closed.
        """
        if len(self.regions) >= self._max_regions:
            ref.close(0.0)
            raise LimitReached(
                errno.ENOSPC,
                f"a client may have {self._max_regions} regions at this agent: close some first "
                "(`dgkit serve --max-regions` and the limit of file descriptors, `ulimit -Hn`, "
                "set it)",
            )
        self._handles += 1
        self.regions[self._handles] = ref
        return self._handles

    def region(self, handle: int) -> RegionRef:
        """Return the region of a handle.

        Raises:
            ClosedError: The handle is unknown, or its region was closed.
        """
        ref = self.regions.get(handle)
        if ref is None:
            raise ClosedError(f"region {handle} is unknown to the agent, or was closed")
        return ref

    def free(self, handle: int, timeout: float) -> None:
        """End the monitors of a region and close it. After RegionBusy it stays registered."""
        ref = self.region(handle)
        self._end_monitors(handle, timeout)
        ref.close(timeout)
        if self.regions.pop(handle, None) is not None:
            self._limit.give(ref.charged)

    def monitors_of(self, handle: int) -> list[RunningMonitor]:
        """Return the monitors of a region."""
        return [monitor for monitor in list(self.monitors.values()) if monitor.region == handle]

    def _end_monitors(self, handle: int, timeout: float) -> None:
        monitors = self.monitors_of(handle)
        for monitor in monitors:
            monitor.end(reason=ClosedError(f"region {handle} was closed while it was monitored"))
        deadline = time.monotonic() + timeout
        for monitor in monitors:
            monitor.join(max(0.0, deadline - time.monotonic()))

    def leave(self, on_released: Callable[[], None] | None) -> None:
        """Stop the workers and free everything, then call `on_released`. Returns at once."""

        def last() -> None:
            try:
                self._release()
            finally:
                if on_released is not None:
                    on_released()

        self.control.finish(last)
        self.moves.finish()
        self.measures.finish()
        for monitor in list(self.monitors.values()):
            monitor.end()

    def _release(self) -> None:
        """Free everything; the last job of the `control` worker."""
        self.moves.join(_RELEASE_TRIES)
        self.measures.join(_RELEASE_TRIES)
        for monitor in list(self.monitors.values()):
            monitor.join(_RELEASE_TRIES)
        if self._copier is not None:
            try:
                self._copier.close()
            except Exception as exc:
                self._report("release of a queue", exc)
        for handle in list(self.regions):
            self._release_region(handle)

    def _release_region(self, handle: int) -> None:
        failures = 0
        for _ in range(_RELEASE_TRIES):
            try:
                self.free(handle, 1.0)
                return
            except RegionBusy:  # an importer's transfer is in flight: retry
                continue
            except Exception as exc:
                self._report("release of a region", exc)
                failures += 1
                if failures == _RELEASE_FAILURES:
                    return
