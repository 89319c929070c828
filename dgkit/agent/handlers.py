# SPDX-License-Identifier: Apache-2.0
"""Handlers of the requests: each returns its reply, or None if a worker sends it later."""

from __future__ import annotations

import contextlib
import errno
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ..dpu.job import DigestJob, copy_job
from ..errors import BoundsError, LimitReached, PeerError, Unsupported
from ..sizes import BLOCKS_AHEAD
from ..types import Access
from ..wire import messages as m
from .client import is_gpu_place
from .latency_monitor import Monitor

if TYPE_CHECKING:
    from ..dpu.region_ref import RegionRef
    from .client import Client
    from .state import AgentState

_PROGRESS_S = 0.1
_WAIT_S = 0.001


class Handlers:
    """One method for each request. The loop calls them; long work runs in the client's workers."""

    def __init__(self, state: AgentState) -> None:
        self._state = state

    def table(self) -> dict[type, Callable[[Client, Any], Any]]:
        """Return the handler of each message; a host's agent moves no bytes."""
        common: dict[type, Callable[[Client, Any], Any]] = {
            m.Hello: self.hello,
            m.Allocate: self.allocate,
            m.Export: self.export,
            m.Free: self.free,
            m.Cancel: self.cancel,
            m.Stats: self.stats,
            m.Subscribe: self.subscribe,
            m.Outstanding: self.outstanding,
            m.Stage: self.stage,
            m.Fetch: self.fetch,
        }
        of_dpu: dict[type, Callable[[Client, Any], Any]] = {
            m.Import: self.import_,
            m.Move: self.move,
            m.Digest: self.digest,
            m.Latency: self.latency,
            m.Rate: self.rate,
            m.Watch: self.watch,
            m.OpenRing: self.open_ring,
            m.CloseRing: self.close_ring,
        }
        if self._state.role == "host":
            return common | dict.fromkeys(of_dpu, self.unsupported)
        return common | of_dpu

    def hello(self, _client: Client, _request: m.Hello) -> Any:
        """Refuse a second Hello on one connection."""
        raise PeerError("a second Hello on this connection")

    def unsupported(self, _client: Client, request: Any) -> Any:
        """Refuse a request that only a DPU's agent serves."""
        raise Unsupported(
            errno.EOPNOTSUPP,
            f"{type(request).__name__}: this agent lends a host's memory; the DPU moves the bytes",
        )

    def allocate(self, client: Client, request: m.Allocate) -> None:
        """Allocate in a worker, since providing the pages of a large region takes a while."""
        work = lambda: self._allocate(client, request)  # noqa: E731
        self._state.run_job(client, client.control, request, work)

    def _allocate(self, client: Client, request: m.Allocate) -> m.Allocated:
        allowance, charged = client.allowance, 0 if is_gpu_place(request.place) else request.size
        self._state.limits.check_descriptors()
        with contextlib.ExitStack() as undo:
            staging = client.charge_region(staging=request.staging)
            undo.callback(allowance.release_region, staging=staging)
            allowance.charge_memory(charged)
            undo.callback(allowance.release_memory, charged)
            access, name = Access(request.access), request.name or None
            ref = self._state.service.allocate(request.size, request.place, access, name)
            undo.callback(ref.close, 0.0)
            region = ref.region
            assert region is not None
            token = region.export() if request.export else b""
            # "auto" may have chosen GPU memory
            ref.charged = 0 if is_gpu_place(region.place) else charged
            ref.staging = staging
            handle = client.add(request.id, ref)
            undo.pop_all()
        allowance.release_memory(charged - ref.charged)
        chosen = getattr(ref.memory, "chosen", "")
        return m.Allocated(
            region=handle, token=token, place=region.place, chosen=chosen,
            registration=region.registration,
        )  # fmt: skip

    def import_(self, client: Client, request: m.Import) -> None:
        """Import in a worker, since the exporter may be slow to answer."""

        def work() -> m.Imported:
            self._state.limits.check_descriptors()
            with contextlib.ExitStack() as undo:
                staging = client.charge_region(staging=request.staging)
                undo.callback(client.allowance.release_region, staging=staging)
                ref = self._state.service.import_(request.token)
                undo.callback(ref.close, 0.0)
                ref.staging = staging
                handle = client.add(request.id, ref)
                undo.pop_all()
            remote = ref.as_remote()
            return m.Imported(
                region=handle, size=ref.size, access=int(remote.access), method=str(remote.method)
            )

        self._state.run_job(client, client.control, request, work)

    def export(self, client: Client, request: m.Export) -> m.Exported:
        """Return the descriptor of a region that the agent allocated."""
        region = client.regions[request.region].region
        if region is None:
            raise PeerError(
                f"region {request.region} was imported; its exporter has the descriptor"
            )
        access = Access(request.access) if request.access else None
        return m.Exported(token=region.export(access))

    def stage(self, client: Client, request: m.Stage) -> m.Done:
        """Store bytes in the client's memory; they are few, so no worker is needed."""
        _bytes(client, request.region, request.offset, len(request.data))[:] = request.data
        return m.Done()

    def fetch(self, client: Client, request: m.Fetch) -> m.Fetched:
        """Return bytes of the client's memory."""
        span = _bytes(client, request.region, request.offset, request.size)
        return m.Fetched(data=bytes(span))

    def free(self, client: Client, request: m.Free) -> None:
        """Close a region in the worker: an exporter can delay closing an import by a second."""
        _ = client.regions[request.region]  # refused at once if it is unknown

        def work() -> m.Done:
            client.free(request.region, request.timeout)
            return m.Done()

        self._state.run_job(client, client.moves, request, work)

    def move(self, client: Client, request: m.Move) -> m.MoveDone | None:
        """Copy small data at once if no move of this client is queued, else in a worker."""
        service, size = self._state.service, request.size
        src, dst = client.regions[request.src], client.regions[request.dst]
        span = (src, request.src_offset, dst, request.dst_offset, size)
        if client.moves.idle:
            copied = service.copy_unless_slow(*span)
            if copied is not None:
                return m.MoveDone(moved=copied)

        def work() -> m.MoveDone:
            step = self._stepper(client, request.id, size)
            moved = copy_job(*span).run(client.copier(service.device), step)
            return m.MoveDone(moved=moved)

        self._state.run_job(client, client.moves, request, work)
        return None

    def digest(self, client: Client, request: m.Digest) -> None:
        """Hash in the moves' worker, after the moves that were requested earlier."""
        ref = client.regions[request.region]

        def work() -> m.DigestDone:
            step = self._stepper(client, request.id, request.size)
            job = DigestJob(ref, request.offset, request.size)
            digested = job.run(client.copier(self._state.device), step)
            return m.DigestDone(digested=digested)

        self._state.run_job(client, client.moves, request, work)

    def latency(self, client: Client, request: m.Latency) -> None:
        """Measure latencies in the measurements' worker."""
        self._measure(client, request, self._state.service.latency, m.LatencyDone)

    def rate(self, client: Client, request: m.Rate) -> None:
        """Measure bandwidth in the measurements' worker."""
        self._measure(client, request, self._state.service.rate, m.RateDone)

    def _measure(
        self,
        client: Client,
        request: m.Latency | m.Rate,
        measure: Callable[..., Any],
        reply: Callable[..., Any],
    ) -> None:
        ref, task = client.regions[request.region], request.task
        _check_span(ref, request.region, getattr(task, "offset", 0), task.size)

        def work() -> Any:
            client.allowance.charge_memory(task.size)
            try:
                listener = _Measurement(self._state, client, request.id)
                return reply(result=measure(ref, task, listener))
            finally:
                client.allowance.release_memory(task.size)

        self._state.run_job(client, client.measures, request, work)

    def watch(self, client: Client, request: m.Watch) -> None:
        """Start a monitor, which runs on its own thread until it is cancelled."""
        ref = client.regions[request.region]
        _check_span(ref, request.region, request.task.offset, request.task.size)
        if len(client.monitors) >= m.MONITORS:
            raise LimitReached(
                errno.ENOSPC,
                f"a client may have {m.MONITORS} monitors at an agent at a time: close one first",
            )
        self._state.limits.check_descriptors()
        self._state.start_telemetry()
        Monitor(self._state, client, request, ref).start()

    def open_ring(self, client: Client, request: m.OpenRing) -> None:
        """Serve a GPU queue of the client, in the control worker, which handles its rings."""
        state = self._state

        def work() -> m.RingOpened:
            state.limits.check_descriptors()
            return client.rings.open(state.device, request, client.handle(request.id))

        state.run_job(client, client.control, request, work)

    def close_ring(self, client: Client, request: m.CloseRing) -> None:
        """Close a GPU queue."""

        def work() -> m.Done:
            client.rings.close(request.ring)
            return m.Done()

        self._state.run_job(client, client.control, request, work)

    def cancel(self, client: Client, request: m.Cancel) -> m.Done | None:
        """End a request early and free what it created; a job ends at its next slice.

        The loop frees what a job creates that has not replied.
        """
        monitor = client.monitors.get(request.target)
        if monitor is not None:
            client.active.add(request.id)
            monitor.end(on_end=lambda: self._state.send(client, m.Done(id=request.id)))
            return None
        if request.target in client.active:
            client.cancelled.add(request.target)
        elif client.has_created(request.target):

            def work() -> m.Done:
                client.undo(request.target)
                return m.Done()

            self._state.run_job(client, client.control, request, work)
            return None
        return m.Done()

    def outstanding(self, client: Client, request: m.Outstanding) -> None:
        """Queue the reply behind all other replies; the loop fills in the numbers on sending."""
        self._state.send(client, m.OutstandingDone(id=request.id, numbers=[]))

    def stats(self, client: Client, _request: m.Stats) -> m.StatsDone:
        """Return the counters since the agent started and what is in use now.

        `moves` counts the DMA requests that succeeded, `bytes` the bytes they moved. Names that
        start with `your_` count this client alone, names with `user_` those of its key or user. So
        do all others, unless the agent shares its telemetry; but `engine_sleeps` (of the thread
        that copies), `internal_errors` and the limits are always the agent's.
        """
        state, memory = self._state, self._state.memory_limit
        seen = list(state.clients.values()) if state.shared_telemetry else [client]
        counters = state.counters if state.shared_telemetry else client.counters
        names = {name: counters[name] for name in state.counters}
        now = {
            "clients": len(seen),
            "regions": sum(len(other.regions) for other in seen),
            "your_regions": len(client.regions),
            "monitors": sum(len(other.monitors) for other in seen),
            "your_monitors": len(client.monitors),
            "your_moves": client.counters["moves"],
            "your_bytes": client.counters["bytes"],
            "allocated": memory.used if state.shared_telemetry else client.allowance.memory,
            "your_memory": client.allowance.memory,
            "shared_telemetry": int(state.shared_telemetry),
            "engine_sleeps": state.device.stats.engine_sleeps,
            "internal_errors": state.counters["internal_errors"],
            "max_memory": memory.limit,
            "max_client_memory": state.limits.memory_each,
            "max_clients": state.limits.clients,
            "max_regions": state.limits.regions_each,
            "max_monitors": m.MONITORS,
            "max_descriptors": state.limits.descriptors,
            "max_connections": state.limits.connections,
            "uptime_ns": time.monotonic_ns() - state.started_ns,
        }
        return m.StatsDone(counters=names | now | client.allowance.account.counters())

    def subscribe(self, client: Client, _request: m.Subscribe) -> m.Subscribed:
        """Return the endpoint of the telemetry, which the first call opens.

        Raises:
            LimitReached: The client's key or user has as many subscriptions as it may, or has
                flooded the agent.
        """
        client.allowance.account.check_penalty()
        client.allowance.account.check("subscriptions")
        telemetry = self._state.start_telemetry()
        return m.Subscribed(endpoint=telemetry.endpoint, monitor=telemetry.monitor_number(client))

    def _stepper(self, client: Client, number: int, total: int) -> Callable[[int], None]:
        """Return a step function that checks for cancellation and reports progress.

        A client that does not read its replies gets no reports: they would count as flooding.
        """
        reported = time.monotonic()

        def step(done: int) -> None:
            nonlocal reported
            _check(client, number)
            now = time.monotonic()
            if now - reported > _PROGRESS_S and not client.unsent:
                reported = now
                self._state.send(client, m.Progress(id=number, done=done, total=total))

        return step


def _bytes(client: Client, handle: int, offset: int, size: int) -> memoryview:
    """Return bytes of host memory that the client has allocated at the agent.

    Raises:
        PeerError: The region was imported.
        Unsupported: It is memory of a GPU.
        BoundsError: The span exceeds the region.
    """
    ref = client.regions[handle]
    if ref.region is None or ref.memory is None:
        raise PeerError(f"region {handle} was imported; only a DMA reaches its bytes")
    if is_gpu_place(ref.region.place):
        text = f"region {handle} is on {ref.region.place}; only a DMA reaches its bytes"
        raise Unsupported(errno.EOPNOTSUPP, text)
    _check_span(ref, handle, offset, size)
    return ref.memory.buffer[offset : offset + size]


def _check_span(ref: RegionRef, handle: int, offset: int, size: int) -> None:
    """Check that a region has these bytes, before memory is taken for them."""
    if offset + size > ref.size:
        raise BoundsError(
            f"{size} bytes at offset {offset} leave region {handle}, which has {ref.size} bytes"
        )


class _Measurement:
    """Listener that sends samples and progress to the client, and waits until it reads them."""

    def __init__(self, state: AgentState, client: Client, number: int) -> None:
        self._state, self._client, self._number = state, client, number

    def check(self) -> None:
        """Raise PeerError if the client has cancelled the request or is leaving."""
        _check(self._client, self._number)

    def add_block(self, number: int, samples: bytes) -> None:
        """Send a block of samples."""
        self._wait()
        self._client.blocks_queued += 1
        self._state.send(self._client, m.Block(id=self._number, number=number, samples=samples))

    def add_progress(self, done: int, total: int) -> None:
        """Send the progress of the measurement."""
        self._wait()
        self._state.send(self._client, m.Progress(id=self._number, done=done, total=total))

    def _wait(self) -> None:
        client = self._client
        while client.blocks_queued - client.blocks_sent >= BLOCKS_AHEAD or client.unsent:
            self.check()
            time.sleep(_WAIT_S)


def _check(client: Client, number: int) -> None:
    if client.leaving or number in client.cancelled:
        raise PeerError("the request was cancelled")
