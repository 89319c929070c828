# SPDX-License-Identifier: Apache-2.0
"""Per-client resources, released on disconnect, and the limits on them."""

from __future__ import annotations

import os
import time
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

import zmq

from ..dpu.copier import Copier
from ..errors import ClosedError, PeerRefused, RegionBusy
from ..sizes import COPY_CHUNK, WINDOW
from .agent_limits import REQUESTS, REQUESTS_NS, UNSENT, WAITING
from .gpu_rings import ClientRings
from .worker import MonitorEnd, SerialWorker

if TYPE_CHECKING:
    from ..dma import Device
    from ..dpu.region_ref import RegionRef
    from ..wire.listener import Caller
    from .account import Allowance

COUNTERS = ("moves", "bytes", "jobs", "failed", "lost_replies", "internal_errors")

_RELEASE_TRIES = 60  # one per second; longer than any transfer takes to time out
_RELEASE_FAILURES = 3  # of one region, after which it is given up
_MESSAGE_BYTES = 200  # memory of a short reply besides its body
_COPIED = 16 << 10  # shorter bodies are copied: each frame may keep a buffer of 8 KiB of libzmq
_REQUEST_BYTES = 1 << 10  # added to each body: 2,000 short requests may wait


def is_gpu_place(place: str) -> bool:
    """Return whether a place is GPU memory, which is not charged to any limit."""
    return place == "gpu" or place.startswith("cuda:")


class Regions(dict[int, "RegionRef"]):
    """Regions of a client by handle; ClosedError for one that is unknown or was closed."""

    def __missing__(self, handle: int) -> RegionRef:
        raise ClosedError(f"region {handle} is unknown to the agent, or was closed")


class Client:
    """One connection: its regions, workers, monitors, and its share of the limits."""

    def __init__(
        self,
        route: bytes,
        caller: Caller,
        first_id: int,
        allowance: Allowance,
        report: Callable[[str, Exception], None],
    ) -> None:
        self.route = route
        self.caller = caller
        self.next_id = self._first_id = first_id
        self.taken = 0  # bytes of its requests, as they crossed the wire
        self.regions = Regions()
        self.active: set[int] = set()  # ids of requests whose reply is pending; used by the loop
        self.cancelled: set[int] = set()  # active requests that are to end
        self.allowance = allowance
        self.unsent: deque[bytes] = deque()  # replies that its connection does not accept yet
        self.blocks_queued = 0  # by the measurements' worker
        self.blocks_sent = 0  # by the loop
        self._unsent_bytes = 0
        self._report = report
        self.control = self.worker("control")
        self.moves = self.worker("moves")
        self.measures = self.worker("measures")
        self.monitors: dict[int, MonitorEnd] = {}  # by the id of the request
        self.counters = dict.fromkeys(COUNTERS, 0)
        # Number under which its samples are published; only this client knows it.
        self.secret = int.from_bytes(os.urandom(7), "little") + 1
        self.rings = ClientRings(allowance, self.regions)
        self._copier: Copier | None = None
        self._window_ns = 0
        self._count = 0

    def worker(self, kind: str) -> SerialWorker:
        """Return a new worker for this client."""
        return SerialWorker(
            f"dgkit-{kind}-{self.caller.pid}", lambda exc: self._report(f"{kind} job", exc)
        )

    @property
    def leaving(self) -> bool:
        """Return whether the connection has ended or the client has sent Bye."""
        return self.control.stopping

    def count_request(self) -> None:
        """Count a request against the rate limit.

        Raises:
            PeerRefused: Too many requests in a short time.
        """
        now = time.monotonic_ns()
        if now - self._window_ns > REQUESTS_NS:
            self._window_ns, self._count = now, 0
        self._count += 1
        if self._count > REQUESTS:
            raise PeerRefused(f"more than {REQUESTS} requests in {REQUESTS_NS // 1_000_000} ms")

    def copier(self, device: Device) -> Copier:
        """Return the copier of the `moves` worker, created on first use."""
        if self._copier is None:
            self._copier = Copier(device, COPY_CHUNK, WINDOW)
        return self._copier

    def queue_reply(self, body: bytes) -> bool:
        """Queue a reply that the connection does not accept yet; return False if too many wait."""
        self.unsent.append(body)
        self._unsent_bytes += len(body) + _MESSAGE_BYTES
        return self._unsent_bytes <= UNSENT

    def pop_unsent(self) -> None:
        """Remove the first queued reply, after it was sent."""
        self._unsent_bytes -= len(self.unsent.popleft()) + _MESSAGE_BYTES

    def charge_region(self, *, staging: bool) -> bool:
        """Charge a region that is about to be created; return whether it is staging memory.

        Raises:
            LimitReached: The client, or all of its key or user, have as many as they may.
        """
        return self.allowance.charge_region(len(self.regions), staging=staging)

    def handle(self, number: int) -> int:
        """Return the handle of what a request creates; unlike request numbers, it is no secret."""
        return number - self._first_id + 1

    def add(self, number: int, ref: RegionRef) -> int:
        """Register a region that charge_region() has charged; return its handle."""
        handle = self.handle(number)
        self.regions[handle] = ref
        return handle

    def free(self, handle: int, timeout: float) -> None:
        """End the monitors and GPU queues of a region and close it.

        After RegionBusy it stays registered.
        """
        ref = self.regions[handle]
        with self.rings.revoked(handle):
            try:
                self._end_monitors(handle, timeout)
            finally:
                ref.close(timeout)
                if self.regions.pop(handle, None) is not None:
                    self.allowance.release_memory(ref.charged)
                    self.allowance.release_region(staging=ref.staging)

    def _end_monitors(self, handle: int, timeout: float) -> None:
        monitors = [monitor for monitor in list(self.monitors.values()) if monitor.region == handle]
        for monitor in monitors:
            monitor.end(reason=ClosedError(f"region {handle} was closed while it was monitored"))
        deadline = time.monotonic() + timeout
        for monitor in monitors:
            monitor.join(max(0.0, deadline - time.monotonic()))

    def start_release(self, on_released: Callable[[], None] | None) -> None:
        """Stop the workers and free everything, then call `on_released`. Returns at once."""

        def release() -> None:
            self._attempt("release of a client", self._release)
            if on_released is not None:
                on_released()

        self._attempt("the end of a worker", lambda: self.control.finish(release))
        self._attempt("the end of a worker", self.moves.finish)
        self._attempt("the end of a worker", self.measures.finish)
        for monitor in list(self.monitors.values()):
            self._attempt("the end of a monitor", monitor.end)

    def _attempt(self, place: str, step: Callable[[], object]) -> None:
        """Run one step of the release; report an exception, so that the next steps run."""
        try:
            step()
        except Exception as exc:
            self._report(place, exc)

    def _release(self) -> None:
        """Free everything, as the last job of the `control` worker."""
        for worker in (self.moves, self.measures):
            self._attempt("the end of a worker", worker.finish)
            self._attempt("the end of a worker", partial(worker.join, _RELEASE_TRIES))
        for monitor in list(self.monitors.values()):
            self._attempt("the end of a monitor", monitor.end)
            self._attempt("the end of a monitor", partial(monitor.join, _RELEASE_TRIES))
        if self._copier is not None:
            self._attempt("release of a queue", self._copier.close)
        self._attempt("release of a GPU queue", self.rings.close_all)
        # Regions charged to the memory limit first: unmapping a large import takes a while.
        regions = sorted(self.regions.items(), key=lambda each: each[1].charged, reverse=True)
        for handle, _ in regions:
            self._release_region(handle)

    def has_created(self, number: int) -> bool:
        """Return whether undo() has something to free."""
        handle = self.handle(number)
        return handle in self.regions or handle in self.rings

    def undo(self, number: int) -> None:
        """Free what a request created, as a job of the `control` worker."""
        handle = self.handle(number)
        if handle in self.rings:
            self.rings.close(handle)
        self._release_region(handle)

    def _release_region(self, handle: int) -> None:
        failures = 0
        for _ in range(_RELEASE_TRIES):
            if handle not in self.regions:  # closed, although its monitors failed to end
                return
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


class WaitingRequests:
    """Waiting requests of one connection, in order of arrival; their total size is limited.

    Attributes:
        messages: Each message, and whether it had further parts, which were dropped.
    """

    __slots__ = ("_bytes", "messages")

    def __init__(self) -> None:
        self.messages: deque[tuple[bytes | zmq.Frame, bool]] = deque()
        self._bytes = 0

    def add(self, frame: zmq.Frame, multipart: bool) -> bool:
        """Add a request; return False, and drop it, if too many wait."""
        length = len(frame)
        if self._bytes + length + _REQUEST_BYTES > WAITING:
            return False
        self._bytes += length + _REQUEST_BYTES
        self.messages.append((frame.bytes if length < _COPIED else frame, multipart))
        return True

    def next(self) -> tuple[bytes, bool]:
        """Remove and return the oldest request."""
        message, multipart = self.messages.popleft()
        body = message if isinstance(message, bytes) else message.bytes
        self._bytes -= len(body) + _REQUEST_BYTES
        return body, multipart
