"""What the agent holds for each client, so that a client that goes takes all of it along."""

from __future__ import annotations

import contextlib
import errno
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from ..dpu.copier import Mover
from ..errors import ClosedError, LimitReached, OutOfMemory, PeerRefused, RegionBusy
from .worker import Lane

if TYPE_CHECKING:
    from ..dma import Device, Region, RemoteRegion
    from ..memory import HostMemory
    from ..wire.listener import Caller
    from .monitor import Monitor

__all__ = ["SMALL", "Client", "Held", "MemoryLimit", "on_gpu"]

_REGIONS = 100_000  # of one client
_RATE = 10_000  # requests of one client in _WINDOW_NS
_WINDOW_NS = 100_000_000
_RELEASE_TRIES = 60  # seconds; longer than any transfer takes to time out
SMALL = 1 << 16  # bytes that the loop itself may copy: some 10 us
_LARGE = 1 << 20  # bytes: a lane's chunk; a large copy gives way to others as often

_importing = threading.Lock()


def on_gpu(place: str) -> bool:
    """Whether memory of that place is a GPU's, which has a limit of its own: its size."""
    return place == "gpu" or place.startswith("cuda:")


class MemoryLimit:
    """How much memory of the host all clients together may allocate. Bytes; thread-safe."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.used = 0
        self._lock = threading.Lock()

    def take(self, size: int) -> None:
        """OutOfMemory names the limit; then nothing is taken."""
        with self._lock:
            if self.used + size > self.limit:
                raise OutOfMemory(
                    errno.ENOMEM,
                    f"{size} bytes asked for, {self.limit - self.used} of this agent's limit of "
                    f"{self.limit} are left (`dgkit serve --max-memory` sets it)",
                )
            self.used += size

    def give(self, size: int) -> None:
        """Gives back what take() took."""
        with self._lock:
            self.used -= size


class Held:
    """One region at the agent: its own (`region`, `memory`) or imported (`remote`)."""

    __slots__ = ("_loop", "counted", "memory", "quick", "region", "remote", "size")

    def __init__(
        self,
        *,
        region: Region | None = None,
        memory: HostMemory | None = None,
        remote: RemoteRegion | None = None,
        counted: int = 0,
    ) -> None:
        self.region, self.memory, self.remote = region, memory, remote
        self.counted = counted  # bytes that the agent's limit knows of
        self.size = (region or remote).size  # type: ignore[union-attr]
        self._loop: RemoteRegion | None = None
        #: Whether the loop itself may copy a few bytes: no other process takes part. In softdoca,
        #: which has no hardware to reach it with, the exporter may.
        self.quick = remote is None or remote.method in ("map", "gpu")
        if remote is not None and remote.method == "doca":
            self.quick = remote.device.provider == "doca"

    def reachable(self) -> RemoteRegion:
        """As the far end of a DMA; the agent's own memory by way of its own descriptor."""
        if self.remote is not None:
            return self.remote
        with _importing:  # lanes ask beside one another
            if self._loop is None:
                assert self.region is not None
                self._loop = self.region.device.import_region(self.region.export())
            return self._loop

    def close_loop(self) -> None:
        """Gives up the import of its own memory; the memory stays."""
        if self._loop is not None:
            self._loop.close()
            self._loop = None

    def close(self, timeout: float) -> None:
        """RegionBusy: an importer is in the middle of a transfer; call again."""
        self.close_loop()
        if self.remote is not None:
            self.remote.close()
        if self.region is not None:
            self.region.close(timeout)
        if self.memory is not None:
            self.memory.close()


class Client:
    """One connection: its regions, its lanes, its monitors, its share of the limits."""

    def __init__(self, route: bytes, caller: Caller, first_id: int, limit: MemoryLimit) -> None:
        self.route = route
        self.caller = caller
        self.next_id = first_id
        self.regions: dict[int, Held] = {}
        self.active: set[int] = set()  # requests in the lanes
        self.cancelled: set[int] = set()  # those of them that are to end
        self.control = Lane(f"dgkit-control-{caller.pid}")
        self.moves = Lane(f"dgkit-moves-{caller.pid}")
        self.measures = Lane(f"dgkit-measures-{caller.pid}")
        self.monitors: dict[int, Monitor] = {}  # by the numbers of their requests
        self.mover: Mover | None = None
        self.moved = self.moved_bytes = 0  # requests that succeeded, and their bytes
        self._limit = limit
        self._handles = 0
        self._window_ns = 0
        self._count = 0

    @property
    def leaving(self) -> bool:
        """The connection is gone, or said Bye."""
        return self.control.stopping

    def admit(self) -> None:
        """Counts a request. PeerRefused: too many in a short time."""
        now = time.monotonic_ns()
        if now - self._window_ns > _WINDOW_NS:
            self._window_ns, self._count = now, 0
        self._count += 1
        if self._count > _RATE:
            raise PeerRefused(f"more than {_RATE} requests in {_WINDOW_NS // 1_000_000} ms")

    def large_mover(self, device: Device) -> Mover:
        """The mover of this client's moves lane."""
        if self.mover is None:
            self.mover = Mover(device, chunk=_LARGE, op_timeout=30.0)
        return self.mover

    def keep(self, held: Held) -> int:
        """Files a region under a new handle. LimitReached: this client has too many."""
        if len(self.regions) >= _REGIONS:
            held.close(0.0)
            raise LimitReached(errno.ENOSPC, f"a client may have {_REGIONS} regions at an agent")
        self._handles += 1
        self.regions[self._handles] = held
        return self._handles

    def held(self, handle: int) -> Held:
        """ClosedError: there is no such region, or no longer."""
        held = self.regions.get(handle)
        if held is None:
            raise ClosedError(f"region {handle} is not known here, or was closed")
        return held

    def free(self, handle: int, timeout: float) -> None:
        """Ends its monitors, and closes a region. On RegionBusy it stays filed."""
        held = self.held(handle)
        self._unwatch(handle, timeout)
        held.close(timeout)
        if self.regions.pop(handle, None) is not None:
            self._limit.give(held.counted)

    def watched(self, handle: int) -> list[Monitor]:
        """The monitors of a region."""
        return [monitor for monitor in list(self.monitors.values()) if monitor.region == handle]

    def _unwatch(self, handle: int, timeout: float) -> None:
        watched = self.watched(handle)
        for monitor in watched:
            monitor.end(why=ClosedError(f"region {handle} was closed while it was monitored"))
        deadline = time.monotonic() + timeout
        for monitor in watched:
            monitor.join(max(0.0, deadline - time.monotonic()))

    def leave(self, told: Callable[[], None] | None) -> None:
        """Ends the lanes, frees everything, then calls `told`. Returns at once."""

        def last() -> None:
            self._release()
            if told is not None:
                told()

        self.control.finish(last)
        self.moves.finish()
        self.measures.finish()
        for monitor in list(self.monitors.values()):
            monitor.end()

    def _release(self) -> None:
        """Runs last in the control lane."""
        self.moves.join(_RELEASE_TRIES)
        self.measures.join(_RELEASE_TRIES)
        for monitor in list(self.monitors.values()):
            monitor.join(_RELEASE_TRIES)
        if self.mover is not None:
            self.mover.close()
        for handle in list(self.regions):
            for _ in range(_RELEASE_TRIES):
                with contextlib.suppress(RegionBusy):  # an importer is in a transfer: a second more
                    self.free(handle, 1.0)
                    break
