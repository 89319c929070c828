"""Session: a host and a DPU put together, one of them in this process or both at agents."""

from __future__ import annotations

import contextlib
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from ..errors import ClosedError, DgkitError
from ..live_set import LiveSet
from ..types import Access, parse_access
from ..wire.messages import Stats, Subscribe
from ..wire.telemetry import topic
from . import argument_checks, describe, lifecycle, region_factory
from .region import SessionRegion, not_of_session
from .region_registry import RegionRegistry
from .staging import flat

if TYPE_CHECKING:
    from ..dma import Device
    from ..report import BandwidthReport, LatencyReport
    from .backend import Backend
    from .gpu_queue import SessionGpuQueue
    from .monitor import Monitor
    from .spawn import SoftwareDpu
    from .transfer import SessionTransfer, TransferReport

__all__ = ["Session"]

_SPREAD = 16 << 20  # bytes of scratch memory that a window of transfers spreads over


class Session:
    """Host and DPU put together, created by dgkit.connect(). Thread-safe.

    `role` is this process's side: "host" or "dpu", or "neither" where both are agents. A session
    that was open before a fork() is the parent's: in the child each call raises ClosedError, and
    the child's exit does not affect it.
    """

    def __init__(
        self,
        backend: Backend,
        device: Device,
        welcome: Any,
        timeout: float,
        owned: SoftwareDpu | None,
        *,
        host: Any = None,
    ) -> None:
        self.role = "host" if welcome.role == "dpu" else "dpu"
        if host is not None:  # the Welcome of the host's agent, beside that of the DPU's
            self.role = "neither"
        self.agent = welcome
        self.device = device
        self.timeout = timeout
        self.registry = RegionRegistry()
        self.monitors: set[Monitor] = set()
        self._gpu_queues = LiveSet()
        self._dpu = backend
        self._link = backend.link
        self._other_info = describe.agent_info(host) if host else describe.local_info(device)
        self._owned = owned
        self._closed = False
        self._closer: dict[str, int] = {}  # which thread closes the session
        lifecycle.open_sessions.add(self)
        lifecycle.close_at_exit()

    def _check(self) -> None:
        if self._link.dead is not None:  # closed, forked, or the other side is gone
            raise self._link.dead.with_traceback(None)

    def _span(self, region: SessionRegion, offset: int, size: int) -> tuple[int, int]:
        """Return the checked span, after synchronizing with the stream that produces its bytes."""
        if type(region) is not SessionRegion or region.session is not self:
            raise not_of_session(self, region)
        span = region.span(offset, size)
        if region.producer is not None:
            region.producer()
        return span

    def empty(
        self,
        shape: int | tuple[int, ...],
        dtype: str = "u1",
        on: str = "host",
        name: str | None = None,
        *,
        replace: bool = False,
    ) -> SessionRegion:
        """Allocate a region, filled with zeros and registered with both sides.

        Args:
            shape: As NumPy's; at the agent the bytes are flat.
            dtype: As NumPy's.
            on: "dpu" or "host", or another kind of the host's memory: "pinned" (the GPU reaches
                it), "gpu" (the current or the first), "cuda:1", or "auto" (a GPU if one is usable
                and this session's DPU reaches it, else "host"; the region says which, and why).
            name: At most 128 characters.
            replace: Close the open regions of this name once the new one exists.

        Raises:
            OutOfMemory, DeviceUnavailable, Unsupported: Nothing was allocated.
            RegionBusy: A region to be replaced has a transfer in flight; the new one was freed.
        """
        self._check()
        argument_checks.name(name, required=replace)
        return self._replacing(region_factory.empty(self, shape, dtype, on, name), replace)

    def register(
        self,
        obj: Any,
        access: str | Access | None = None,
        name: str | None = None,
        share_block: bool = False,
        *,
        replace: bool = False,
    ) -> SessionRegion:
        """Register existing memory of this process, in place.

        Args:
            obj: Any object with the buffer protocol, or an array on a GPU (CuPy, PyTorch, JAX,
                Numba: `__cuda_array_interface__` or DLPack).
            access: What DMA may do to it: "r", "w" or "rw"; None for all that the object allows,
                which is "r" for a read-only one (bytes, arrays of JAX).
            name: At most 128 characters.
            share_block: Allow an array that shares its CUDA allocation with other data (CuPy's
                pool): CUDA exports whole allocations only.
            replace: Close the open regions of this name once the new one exists.

        Raises:
            AccessDenied: `access` is more than the object allows.
            ExportError: Another process cannot import the memory; the error names the remedy.
            Unsupported: The DPU cannot reach the memory, or it is a PyTorch tensor that requires
                grad.
            RegionBusy: A region to be replaced has a transfer in flight; the new one was closed.
        """
        self._check()
        argument_checks.name(name, required=replace)
        wanted = None if access is None else parse_access(access)
        region = region_factory.register(self, obj, wanted, name, share_block)
        return self._replacing(region, replace)

    def _replacing(self, made: SessionRegion, replace: bool) -> SessionRegion:
        """Return a new region, after closing the others of its name if `replace`."""
        for other in self.regions if replace else ():
            if other is not made and other.name == made.name:
                try:
                    other.close()
                except BaseException:
                    made.close()
                    raise
        return made

    def take_over(self, lost: Session) -> dict[SessionRegion, DgkitError | None]:
        """Take the regions of this process's memory from a session whose other side is lost.

        The same region objects become regions of this session, with their names, bytes and access,
        registered and exported again. Memory that the lost side had is gone with it.

        Returns:
            Each such region, and None or why it could not be taken over.

        Raises:
            ValueError: `lost` is this session, or its process has the other role.
        """
        self._check()
        if lost is self or lost.role != self.role:
            raise ValueError(f"{lost!r} is not another session of a {self.role}")
        done: dict[SessionRegion, DgkitError | None] = {}
        for region in lost.regions:
            if region.local is not None:
                try:
                    region_factory.take_over(self, lost, region)
                    done[region] = None
                except DgkitError as error:
                    done[region] = error
        return done

    def forget(self, region: SessionRegion, timeout: float) -> None:
        """Close both sides of a region, for SessionRegion.close()."""
        if self._link.dead is None:
            self._dpu.forget(region, timeout)
        region.free(timeout)
        self.registry.remove(region)

    @property
    def regions(self) -> tuple[SessionRegion, ...]:
        """Return the open regions, in order of creation."""
        return self.registry.open

    def on_change(self, call: Callable[[], object]) -> Callable[[], None]:
        """Call a function after each creation and close of a region, and after the session's close.

        It is called in the thread that made the change.

        Returns:
            A function that undoes this.
        """
        return self.registry.on_change(call)

    def write(self, region: SessionRegion, data: Any, offset: int = 0) -> TransferReport:
        """Write `data` into the region by DMA, and wait.

        Args:
            region: Region of this session.
            data: Any object with the buffer protocol.
            offset: Byte of the region to start at.

        Raises:
            BoundsError, AccessDenied, TransferError, PeerLost, PeerTimeout: The write failed.
        """
        self._check()
        view = data if type(data) is bytes else flat(data)
        offset, _ = self._span(region, offset, len(view))
        return self._dpu.write(region, view, offset)

    def read(self, region: SessionRegion, size: int, offset: int = 0) -> bytes:
        """Read `size` bytes of the region by DMA, wait, and return them. Errors as write()."""
        self._check()
        offset, size = self._span(region, offset, size)
        return self._dpu.read(region, offset, size)

    def start_write(self, region: SessionRegion, data: Any, offset: int = 0) -> SessionTransfer:
        """Start a write; `data` must not change until it is done. Errors as write()."""
        self._check()
        view = flat(data)
        offset, size = self._span(region, offset, len(view))
        return self._dpu.start(region, offset, size, view)

    def start_read(self, region: SessionRegion, size: int, offset: int = 0) -> SessionTransfer:
        """Start a read; `data` of the transfer has the bytes. Errors as write()."""
        self._check()
        offset, size = self._span(region, offset, size)
        return self._dpu.start(region, offset, size, None)

    def copy(self, src: SessionRegion, dst: SessionRegion) -> TransferReport:
        """Copy all of `src` to the start of `dst`, and wait.

        More than 64 KiB between memory of GPUs are copied from GPU to GPU, all else through the
        DPU's memory: `direct` of the report says which.
        """
        self._check()
        _, size = self._span(src, 0, getattr(src, "size", 0))
        self._span(dst, 0, size)
        return self._dpu.copy(src, dst, size)

    def digest(self, region: SessionRegion, size: int | None = None, offset: int = 0) -> str:
        """Return the SHA-256, in hex digits, that the DPU computes over bytes it reads by DMA.

        `size` None: up to the end of the region.
        """
        self._check()
        if size is None and type(region) is SessionRegion:
            size = region.size - region.span(offset, 1)[0]
        offset, size = self._span(region, offset, 1 if size is None else size)
        return self._dpu.digest(region, offset, size)

    def latency(
        self,
        region: SessionRegion,
        size: int = 64,
        op: str = "write",
        count: int = 10_000,
        path: str = "auto",
        progress: Callable[[int, int], None] | None = None,
        *,
        destructive: bool = False,
    ) -> LatencyReport:
        """Measure the latency of transfers, in C, at the DPU. Ctrl-C ends it early.

        Args:
            region: Region at the remote end. Writes go to scratch memory of the same kind, which
                `where` of the report names, so the region keeps its bytes.
            size: Bytes of each transfer.
            op: "read" or "write", seen from the DPU.
            count: Transfers, at most 1,000,000.
            path: "auto", "inline" or "worker".
            progress: Called with (transfers done, total) now and then, in this thread.
            destructive: Write to the region itself: its first `size` bytes become zeros.
        """
        from . import measure

        self._check()
        _, size = self._span(region, 0, size)
        with self._measured(region, size, op, destructive) as (used, where):
            return measure.latency(
                self._dpu, used, size, op=op, count=count, path=path, progress=progress,
                info=self.info, where=where,
            )  # fmt: skip

    @contextlib.contextmanager
    def _measured(
        self, region: SessionRegion, size: int, op: str, destructive: bool
    ) -> Iterator[tuple[SessionRegion, str]]:
        """Give the region to measure, scratch memory or `region` itself, and what names it."""
        from .measure import describe_sides
        from .scratch import scratch_for

        made = scratch_for(self, region, 0, size, op=op, destructive=destructive)
        used = region if made is None else made.region
        try:
            yield used, describe_sides(self.info, used)
        finally:
            if made is not None:
                made.free()

    def bandwidth(
        self,
        region: SessionRegion,
        size: int = 1 << 20,
        op: str = "write",
        seconds: float = 1.0,
        window: int = 32,
        path: str = "auto",
        progress: Callable[[int, int], None] | None = None,
        *,
        destructive: bool = False,
    ) -> BandwidthReport:
        """Measure bandwidth, in C, at the DPU, with `window` transfers in flight for `seconds`.

        Other arguments as for latency(). Scratch memory is as large as the region, at most 16 MiB
        or `size`; a destructive write fills as much of the region with zeros.
        """
        from . import measure

        self._check()
        _, size = self._span(region, 0, size)
        spread = max(size, min(region.size, _SPREAD))
        with self._measured(region, spread, op, destructive) as (used, where):
            return measure.bandwidth(
                self._dpu, used, size, op=op, seconds=seconds, window=window, path=path,
                progress=progress, info=self.info, where=where,
            )  # fmt: skip

    def monitor(
        self,
        region: SessionRegion,
        size: int = 64,
        op: str = "write",
        path: str = "auto",
        count: int = 50,
        every_s: float = 0.05,
        offset: int = 0,
        *,
        destructive: bool = False,
    ) -> Monitor:
        """Start continuous latency measurement, in C, at the DPU; Monitor.read() has the samples.

        Args:
            region: Region at the remote end. Writes go to scratch memory of the same kind, which
                `where` of the monitor names, so the region keeps its bytes.
            size: Bytes of each transfer.
            op: "read" or "write", seen from the DPU.
            path: "auto", "inline" or "worker".
            count: Samples in a block, 1 to 4,096.
            every_s: Seconds from block to block, 0.01 to 60.
            offset: Byte of the region to start at.
            destructive: Write to the region itself: the span becomes zeros.

        Raises:
            LimitReached: The session has 8 monitors open.
        """
        from .monitor import Monitor
        from .scratch import scratch_for

        self._check()
        offset, size = self._span(region, offset, size)
        return Monitor(
            self._dpu, region, offset, size, op=op, path=path, count=count, every_s=every_s,
            siblings=self.monitors, info=self.info, timeout=self.timeout,
            scratch=lambda: scratch_for(
                self, region, offset, size, op=op, destructive=destructive
            ),
        )  # fmt: skip

    def gpu_queue(
        self,
        region: SessionRegion,
        local: SessionRegion | Sequence[SessionRegion],
        *,
        depth: int = 1024,
        weak: bool = False,
        limit: float = 10.0,
        trace: bool = False,
    ) -> SessionGpuQueue:
        """Open a queue that kernels of this process post to (dgkit_device.cuh); the DPU serves it.

        Args:
            region: Memory of the DPU (on="dpu"): the remote region of the kernels.
            local: Memory of the host: the kernels' local regions, at most 8.
            depth: Most operations posted and not complete: rounded up to a power of two, 64 to
                16,384.
            weak: Kernels name the place of each operation, instead of taking the next one.
            limit: Seconds after which a wait of a kernel ends as TIMED_OUT.
            trace: Kernels and the DPU store their clocks for each operation; see
                `SessionGpuQueue.trace`.

        Raises:
            Unsupported: This process is the DPU, the DPU is on another machine, or its provider
                cannot run a kernel's operations.
            ValueError: A region is on the wrong side, or `depth` is out of range.
            LimitReached: The session has 8 GPU queues, or the agent has too little memory left.
        """
        from .gpu_queue import open_gpu_queue

        self._check()
        queue = open_gpu_queue(
            self, region, local, depth=depth, weak=weak, limit=limit, trace=trace
        )
        self._gpu_queues.add(queue)
        return queue

    def stats(self) -> dict[str, int]:
        """Return the agent's counters, and the number of this session's regions.

        `moves` and `bytes` count requests for DMA that succeeded and the bytes they moved, of this
        session, as `your_moves` and `your_bytes` do; of all clients if the agent was started with
        --shared-telemetry, as do the other counters then. A transfer larger than
        2 MiB is several requests, and a panel that shows memory makes requests, too. Bytes
        moved by monitors, measurements and digests are not counted. `engine_sleeps` is how often
        the thread of the DPU that copies slept: the next operation then waits until it is awake.
        """
        self._check()
        counters: dict[str, int] = self._link.ask(Stats, timeout=self.timeout).counters
        return counters | self._dpu.counters() | {"session_regions": len(self.registry)}

    def telemetry(self) -> str:
        """Return the endpoint where the agent publishes latency samples (dgkit.wire.telemetry)."""
        return self.telemetry_topic()[0]

    def telemetry_topic(self) -> tuple[str, bytes]:
        """Return the telemetry's endpoint, and the topic of this session's samples.

        A ZeroMQ SUB socket receives them after subscribe(topic); other topics carry the samples of
        other clients only if the agent was started with --shared-telemetry.
        """
        reply = self._link.ask(Subscribe, timeout=self.timeout)
        return str(reply.endpoint), topic(reply.monitor)

    @property
    def info(self) -> dict[str, Any]:
        """Return both sides, the agent's address, and what this session is.

        `host` and `dpu` each have a provider, why no better one was chosen, pid, machine and cpus.
        `role` is this process's side, `owned` whether it started the agent, `no_dma` why no DMA
        reaches the host's memory ("" if it does).
        """
        return describe.session_info(
            self.agent, self._other_info,
            role=self.role, address=str(self._link.address), owned=bool(self.owned_pid),
            no_dma=str(self._dpu.no_dma.strerror) if self._dpu.no_dma else "",
        )  # fmt: skip

    @property
    def owned_pid(self) -> int:
        """Return the process id of the software DPU that this session started; 0 if none."""
        return self._owned.pid if self._owned is not None else 0

    @property
    def closed(self) -> bool:
        """Return whether close() was called."""
        return self._closed

    @property
    def dpu(self) -> Backend:
        """Return the backend, which moves the bytes."""
        return self._dpu

    def close(self) -> None:
        """Free everything on both sides, and end the software DPU if it started one. Idempotent.

        After an exception such as Ctrl-C, call it again.

        Raises:
            RegionBusy: Another process has a transfer in flight with memory of this session.
        """
        me = threading.get_ident()
        try:
            if self._closed or self._closer.setdefault("thread", me) != me:
                return  # closed, or another thread is closing it
            self._closed = True
            self._free()
            lifecycle.open_sessions.discard(self)
        except Exception:
            raise  # the other steps were done
        except BaseException:  # Ctrl-C: the next close() does what is left
            if self._closer.get("thread") == me:
                self._closed = False
                self._closer.clear()
            raise

    def _free(self) -> None:
        with contextlib.ExitStack() as last_to_first:
            last_to_first.callback(
                lifecycle.close,
                self._dpu, self.device, self.registry, self.monitors, self._owned, self.timeout,
            )  # fmt: skip
            for queue in self._gpu_queues:
                last_to_first.callback(queue.close)

    def abandon(self) -> None:
        """Detach in a forked child: the parent owns the connection and the software DPU."""
        self._closed = True
        self._link.abandon()
        for monitor in self.monitors:
            monitor.abandon()
        if self._owned is not None:
            self._owned.abandon()

    @property
    def _state(self) -> str:
        return describe.state(self._link, self._closed)

    def __enter__(self) -> Session:
        if self._closed:
            raise ClosedError("the session is closed")
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def __del__(self) -> None:
        if not getattr(self, "_closed", True) and not sys.is_finalizing():
            lifecycle.close_forgotten(self)

    def __repr__(self) -> str:
        return f"<Session {describe.line(self.info, self._state)}>"

    def _repr_html_(self) -> str:
        return describe.html(self.info, self._state)
