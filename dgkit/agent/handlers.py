"""What each request does. A handler returns its reply, or None when a lane will send it."""

from __future__ import annotations

import contextlib
import errno
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from .. import memory
from ..dpu import benchmark
from ..errors import LimitReached, PeerError, Unsupported
from ..types import Access
from ..wire import messages as m
from .client import SMALL, Client, Held, on_gpu
from .monitor import Monitor
from .telemetry import Telemetry

if TYPE_CHECKING:
    from .server import Agent

__all__ = ["Handlers"]

_PROGRESS_S = 0.1


class Handlers:
    """One method a request."""

    def __init__(self, agent: Agent) -> None:
        self.agent = agent

    def table(self) -> dict[type, Callable[[Client, Any], Any]]:
        """The method for each message; a host's agent moves no bytes."""
        common: dict[type, Callable[[Client, Any], Any]] = {
            m.Hello: self.hello,
            m.Allocate: self.allocate,
            m.Export: self.export,
            m.Free: self.free,
            m.Cancel: self.cancel,
            m.Stats: self.stats,
            m.Subscribe: self.subscribe,
        }
        mover: dict[type, Callable[[Client, Any], Any]] = {
            m.Import: self.import_,
            m.Move: self.move,
            m.Digest: self.digest,
            m.Latency: self.latency,
            m.Rate: self.rate,
            m.Watch: self.watch,
        }
        if self.agent.role == "host":
            return common | dict.fromkeys(mover, self.not_here)
        return common | mover

    def hello(self, _client: Client, _request: m.Hello) -> Any:
        """A second Hello over one connection."""
        raise PeerError("Hello was said already")

    def not_here(self, _client: Client, request: Any) -> Any:
        """What only a DPU's agent does."""
        raise Unsupported(
            errno.EOPNOTSUPP,
            f"{type(request).__name__}: this agent lends a host's memory; the DPU moves the bytes",
        )

    def allocate(self, client: Client, request: m.Allocate) -> None:
        """In the lane: a large allocation takes a while to get its pages."""
        work = lambda: self._allocate(client, request)  # noqa: E731
        self.agent.job(client, client.control, request, work)

    def _allocate(self, client: Client, request: m.Allocate) -> m.Allocated:
        limit, counted = self.agent.limit, 0 if on_gpu(request.place) else request.size
        with contextlib.ExitStack() as undo:
            limit.take(counted)
            undo.callback(limit.give, counted)
            mem = memory.empty(request.size, on=request.place, name=request.name or None)
            undo.callback(mem.close)
            region = self.agent.device.register(mem, Access(request.access))
            undo.callback(region.close)
            token = region.export() if request.export else b""
            kept = 0 if on_gpu(region.place) else counted  # which of them, this side may choose
            handle = client.keep(Held(region=region, memory=mem, counted=kept))
            undo.pop_all()
        limit.give(counted - kept)
        chosen = getattr(mem, "chosen", "")
        return m.Allocated(request.id, handle, token, region.place, chosen)

    def import_(self, client: Client, request: m.Import) -> None:
        """In the lane: its exporter may be slow to answer."""

        def work() -> m.Imported:
            remote = self.agent.device.import_region(request.token)
            handle = client.keep(Held(remote=remote))
            return m.Imported(
                request.id, handle, remote.size, int(remote.access), str(remote.method)
            )

        self.agent.job(client, client.control, request, work)

    def export(self, client: Client, request: m.Export) -> m.Exported:
        """The descriptor of a region that the agent allocated."""
        region = client.held(request.region).region
        if region is None:
            raise PeerError(
                f"region {request.region} was imported; its exporter has the descriptor"
            )
        access = Access(request.access) if request.access else None
        return m.Exported(request.id, region.export(access))

    def free(self, client: Client, request: m.Free) -> Any:
        """At once if it cannot wait for anybody; else in the lane."""
        held = client.held(request.region)
        idle = client.moves.idle and client.measures.idle and not client.watched(request.region)
        if held.region is None and idle:
            client.free(request.region, 0.0)
            return m.Done(request.id)

        def work() -> m.Done:
            client.free(request.region, request.timeout)
            return m.Done(request.id)

        self.agent.job(client, client.moves, request, work)
        return None

    def move(self, client: Client, request: m.Move) -> m.Moved | None:
        """Small ones at once, when nothing of this client is before them; others in the lane."""
        agent, size = self.agent, request.size
        src, dst = client.held(request.src), client.held(request.dst)
        small = size <= SMALL and src.quick and dst.quick and client.moves.idle
        if small and agent.inline:
            reply = self._move_now(request, src, dst)
            agent.moved(client, reply)
            return reply
        spans = (src, request.src_offset, dst, request.dst_offset, size)

        def work() -> m.Moved:
            mover = client.large_mover(agent.device)
            return mover.move(request.id, *spans, self._stepper(client, request.id, size))

        agent.job(client, client.moves, request, work)
        return None

    def _move_now(self, request: m.Move, src: Held, dst: Held) -> m.Moved:
        mover, src_at, dst_at = self.agent.mover, request.src_offset, request.dst_offset
        if src.remote is not None and dst.remote is not None:
            reply = mover.small(request.id, src.remote, src_at, dst.remote, dst_at, request.size)
        else:
            reply = mover.move(request.id, src, src_at, dst, dst_at, request.size, _no_step)
        if self.agent.telemetry is not None:
            self.agent.telemetry.add(reply.complete_ns - reply.submit_ns)
        return reply

    def digest(self, client: Client, request: m.Digest) -> None:
        """In the lane, after the moves that came before it."""
        held = client.held(request.region)

        def work() -> m.Digested:
            step = self._stepper(client, request.id, request.size)
            return benchmark.digest(request, held, client.large_mover(self.agent.device), step)

        self.agent.job(client, client.moves, request, work)

    def latency(self, client: Client, request: m.Latency) -> None:
        """In the lane for measurements."""
        self._measure(client, request, benchmark.latency)

    def rate(self, client: Client, request: m.Rate) -> None:
        """In the lane for measurements."""
        self._measure(client, request, benchmark.rate)

    def _measure(self, client: Client, request: Any, measure: Callable[..., Any]) -> None:
        held = client.held(request.region)

        def work() -> Any:
            self.agent.limit.take(request.size)
            try:
                send = lambda message: self.agent.send(client, message)  # noqa: E731
                check = lambda: _check(client, request.id)  # noqa: E731
                return measure(request, held, self.agent.device, send, check)
            finally:
                self.agent.limit.give(request.size)

        self.agent.job(client, client.measures, request, work)

    def watch(self, client: Client, request: m.Watch) -> None:
        """In a lane of its own, until it is cancelled."""
        held = client.held(request.region)
        if len(client.monitors) >= m.MONITORS:
            raise LimitReached(
                errno.ENOSPC,
                f"a client may have {m.MONITORS} monitors at an agent at a time: close one first",
            )
        self._publish()
        Monitor(self.agent, client, request, held).start()

    def cancel(self, client: Client, request: m.Cancel) -> m.Done | None:
        """A job sees it between two slices; a monitor's end is told when it is over."""
        monitor = client.monitors.get(request.target)
        if monitor is not None:
            monitor.end(told=lambda: self.agent.send(client, m.Done(request.id)))
            return None
        if request.target in client.active:
            client.cancelled.add(request.target)
        return m.Done(request.id)

    def stats(self, client: Client, request: m.Stats) -> m.StatsDone:
        """Counters since the agent started, and what is held now; `your_` is this client's alone.

        `moves` counts requests for DMA that succeeded, `bytes` what they moved.
        """
        agent = self.agent
        now = {
            "clients": len(agent.clients),
            "regions": sum(len(other.regions) for other in agent.clients.values()),
            "your_regions": len(client.regions),
            "monitors": sum(len(other.monitors) for other in agent.clients.values()),
            "your_monitors": len(client.monitors),
            "your_moves": client.moved,
            "your_bytes": client.moved_bytes,
            "allocated": agent.limit.used,
            "max_memory": agent.limit.limit,
            "uptime_ns": time.monotonic_ns() - agent.started_ns,
        }
        return m.StatsDone(request.id, agent.counters | now)

    def subscribe(self, _client: Client, request: m.Subscribe) -> m.Subscribed:
        """Where telemetry is published; nobody pays for it before the first call."""
        return m.Subscribed(request.id, self._publish().endpoint)

    def _publish(self) -> Telemetry:
        agent = self.agent
        if agent.telemetry is None:
            sock, address = agent.listener.publisher()
            agent.listener.router.rcvtimeo = 50  # the loop wakes to publish what was gathered
            agent.telemetry = Telemetry(sock, str(address), agent.device.provider)
        return agent.telemetry

    def _stepper(self, client: Client, number: int, total: int) -> Callable[[int], None]:
        reported = time.monotonic()

        def step(done: int) -> None:
            nonlocal reported
            _check(client, number)
            now = time.monotonic()
            if now - reported > _PROGRESS_S:
                reported = now
                self.agent.send(client, m.Progress(number, done, total))

        return step


def _no_step(done: int) -> None:
    """A small move has one chunk."""


def _check(client: Client, number: int) -> None:
    if client.leaving or number in client.cancelled:
        raise PeerError("cancelled")
