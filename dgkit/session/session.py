# SPDX-License-Identifier: Apache-2.0
"""Session: a host and a DPU put together, one of them in this process or both at agents."""

from __future__ import annotations

import contextlib
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from ..buffers import contiguous_view
from ..callbacks import Callbacks, session_opened
from ..errors import ClosedError, DgkitError, PeerError
from ..sizes import MIB, RATE_BYTES
from ..types import Access, parse_access
from ..unique import Unique
from ..wire.messages import Stats, Subscribe, Subscription, encode
from . import argument_checks, describe, lifecycle
from .region_factory import RegionFactory
from .session_region import (
    READ_ONLY,
    WRITE_ONLY,
    RegionRegistry,
    SessionRegion,
    check_region,
    checked_span,
)
from .session_transfer import EndedWrite

if TYPE_CHECKING:
    from ..dma import Device
    from ..report import BandwidthReport, LatencyReport
    from .backend import Backend
    from .monitor import Monitor
    from .resources import SessionResources
    from .session_gpu_queue import SessionGpuQueue
    from .session_transfer import SessionTransfer, TransferReport


class Session(Unique):
    """Host and DPU put together, created by dgkit.connect(). Thread-safe.

    `role` is this process's side: "host" or "dpu", or "neither" if both sides are agents. A session
    that was open before a fork() belongs to the parent: in the child each call raises ClosedError,
    and the child's exit does not affect the session.

    Sizes and offsets are numbers of bytes, or texts such as "64K" or "0x100".
    """

    def __init__(self, resources: SessionResources) -> None:
        self.role = resources.role
        self._registry = RegionRegistry()
        self._observers: Callbacks[[EndedWrite]] = Callbacks("a write of a session")
        self._restarting = threading.Lock()
        self._adopt_resources(resources)
        lifecycle.open_sessions.add(self)
        lifecycle.close_at_exit()
        session_opened(self)

    def _adopt_resources(self, resources: SessionResources) -> None:
        """Use these resources from now on."""
        self.agent = resources.agent
        self.device: Device = resources.device
        self.timeout = resources.timeout
        self.dpu: Backend = resources.dpu
        self._resources, self._link = resources, resources.dpu.link
        self._factory = RegionFactory(self, resources, self._registry)
        self.lifetime = lifecycle.Lifetime(resources, self._registry)
        self.monitors = self.lifetime.monitors

    def empty(
        self,
        shape: str | int | tuple[int, ...],
        dtype: Any = "u1",
        on: str = "host",
        name: str | None = None,
        *,
        replace: bool = False,
    ) -> SessionRegion:
        """Allocate a region, filled with zeros and registered with both sides.

        Args:
            shape: As in NumPy, or a text such as "16M" (K is 1024); memory at the agent keeps only
                the total size: its bytes are flat.
            dtype: As in NumPy.
            on: "dpu" or "host", or another kind of the host's memory: "pinned" (the GPU reaches
                it), "gpu" (the current or the first), "cuda:1", or "auto" (a GPU if one is usable
                and this session's DPU reaches it, else "host"; the region says which, and why).
            name: At most 128 characters; a name that an open region has warns.
            replace: Close the open regions of this name once the new one exists.

        Raises:
            OutOfMemory, DeviceUnavailable, Unsupported: Nothing was allocated.
            RegionBusy: A region to be replaced has a transfer in flight; the new one was freed.
        """
        self._link.check()
        self._check_name(name, replace)
        region = self._factory.empty(shape, dtype, on, name)
        return self._factory.replace_others(region) if replace else region

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

        The region keeps `obj` alive. Do not call `resize(..., refcheck=False)` of a registered
        NumPy array: it frees the memory under the region, which cannot be detected.

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
        self._link.check()
        self._check_name(name, replace)
        wanted = None if access is None else parse_access(access)
        region = self._factory.register(obj, wanted, name, share_block)
        return self._factory.replace_others(region) if replace else region

    def _check_name(self, name: str | None, replace: bool) -> None:
        """Check the name of a new region; warn if an open one has it and is not replaced."""
        argument_checks.name(name, required=replace)
        if not name or replace:
            return
        frame = sys._getframe(1).f_back  # None: a thread began here
        own = frame and frame.f_globals.get("__name__", "").startswith("dgkit.")  # of a panel
        if not own and any(each.name == name for each in self.regions):
            warnings.warn(
                f"there is an open region {name!r}, and this is a second one: replace=True would "
                "close the first",
                stacklevel=3,
            )

    def take_over(self, lost: Session) -> dict[SessionRegion, DgkitError | None]:
        """Take the regions of this process's memory from a session whose other side is lost.

        The same region objects become regions of this session, with their names, bytes and access,
        registered and exported again. Memory on the lost side is gone.

        Returns:
            Each such region, mapped to None or to the error that prevented taking it over.

        Raises:
            ValueError: `lost` is this session, or its process has the other role.
        """
        self._link.check()
        if lost is self or lost.role != self.role:
            raise ValueError(f"{lost!r} is not another session of a {self.role}")
        done: dict[SessionRegion, DgkitError | None] = {}
        for region in lost.regions:
            if region.local is not None:
                try:
                    self._factory.take_over(region, lost._registry)
                    done[region] = None
                except DgkitError as error:
                    done[region] = error
        return done

    @property
    def lost(self) -> bool:
        """Return whether the connection has ended: the agent or its process is gone."""
        return self._link.dead is not None

    @property
    def restartable(self) -> bool:
        """Return whether restart() can replace a lost DPU: this session started its own."""
        return self._resources.reopen is not None and not self.closed

    def restart(self) -> dict[SessionRegion, DgkitError]:
        """Start another software DPU in place of a lost one that this session started.

        The session and its regions of this process's memory remain, with their bytes. Memory of the
        lost DPU, monitors and GPU queues are closed. If the DPU answers, nothing is done.

        Returns:
            The regions that could not be registered again, which are closed, with the errors.

        Raises:
            ValueError: The session did not start its DPU.
            ClosedError: The session is closed.
            DgkitError: As connect(); the session stays as it is.
        """
        if self._resources.reopen is None:
            raise ValueError(f"{self!r} did not start its DPU: start that again, then connect()")
        with self._restarting:
            if self._dpu_answers():
                return {}
            lost = self.lifetime
            self._adopt_resources(self._resources.reopen())
            if lost.closed:  # meanwhile, by another thread
                self.lifetime.close()
                raise ClosedError("the session is closed")
            errors = self._factory.reregister_all()
            lost.release_lost()
        self._registry.notify()
        return errors

    def _dpu_answers(self) -> bool:
        if self.closed:
            raise ClosedError("the session is closed")
        try:
            self._link.ask(Stats(), timeout=self.timeout)
        except PeerError:
            return False
        return True

    def detach_resources(self) -> SessionResources:
        """Take the resources from this session, which must have no regions, and close it."""
        lifecycle.open_sessions.discard(self)
        self.lifetime.closed = True
        return self._resources

    @property
    def regions(self) -> tuple[SessionRegion, ...]:
        """Return the open regions, in order of creation."""
        return self._registry.open

    def on_change(self, call: Callable[[], object]) -> Callable[[], None]:
        """Call a function after each region is created or closed, and after the session is closed.

        It is called in the thread that made the change.

        Returns:
            A function that unregisters it.
        """
        return self._registry.notify.add(call)

    def on_write(self, call: Callable[[EndedWrite], object]) -> Callable[[], None]:
        """Call a function after each write(), start_write() and copy(), and writing measurement.

        It is called in the thread that ends the write, perhaps shortly after a wait for it has
        returned, and must be quick. Writes of monitors, GPU queues and others are not reported.

        Returns:
            A function that unregisters it.
        """
        return self._observers.add(call)

    @contextlib.contextmanager
    def _report_write(
        self, region: SessionRegion, offset: int, size: int, data: memoryview | bytes | None = None
    ) -> Iterator[None]:
        """Report the body's write to the observers, unless it has 0 bytes."""
        begin_ns, failed = time.monotonic_ns(), True
        try:
            yield
            failed = False
        finally:
            if size:
                self._observers(EndedWrite(region, offset, size, data, failed, begin_ns))

    def write(self, region: SessionRegion, data: Any, offset: int | str = 0) -> TransferReport:
        """Write `data` into the region by DMA, and wait.

        Args:
            data: Any object with the buffer protocol.
            offset: Byte of the region to start at.

        Raises:
            BoundsError, AccessDenied, TransferError, PeerLost, PeerTimeout: The write failed.
        """
        if self._link.dead is not None:
            self._link.check()
        view = data if type(data) is bytes else contiguous_view(data)
        offset, _ = checked_span(self, region, offset, len(view), READ_ONLY)
        if self._observers.calls:
            with self._report_write(region, offset, len(view), view):
                return self.dpu.write(region, view, offset)
        return self.dpu.write(region, view, offset)

    def read(self, region: SessionRegion, size: int | str, offset: int | str = 0) -> bytes:
        """Read `size` bytes of the region by DMA, wait, and return them. Errors as write()."""
        self._link.check()
        offset, size = checked_span(self, region, offset, size, WRITE_ONLY)
        return self.dpu.read(region, offset, size)

    def start_write(
        self, region: SessionRegion, data: Any, offset: int | str = 0
    ) -> SessionTransfer:
        """Start a write; `data` must not change until it is done. Errors as write()."""
        self._link.check()
        view = memoryview(data) if type(data) is bytes else contiguous_view(data)
        offset, size = checked_span(self, region, offset, len(view), READ_ONLY)
        if not self._observers.calls:
            return self.dpu.start(region, offset, size, view)
        begin_ns = time.monotonic_ns()
        transfer = self.dpu.start(region, offset, size, view)
        kept = bytes(view)  # the caller may change its own as soon as the transfer is done

        def report() -> None:
            self._observers(EndedWrite(region, offset, size, kept, transfer.failed, begin_ns))

        transfer.call_on_end(report)
        return transfer

    def start_read(
        self, region: SessionRegion, size: int | str, offset: int | str = 0
    ) -> SessionTransfer:
        """Start a read; the transfer's `data` has the bytes. Errors as write()."""
        self._link.check()
        offset, size = checked_span(self, region, offset, size, WRITE_ONLY)
        return self.dpu.start(region, offset, size, None)

    def copy(self, src: SessionRegion, dst: SessionRegion) -> TransferReport:
        """Copy all of `src` to the start of `dst`, and wait.

        Copies of more than 64 KiB between GPU memories go directly from GPU to GPU, all others
        through the DPU's memory: `direct` of the report says which.
        """
        self._link.check()
        _, size = checked_span(self, src, 0, getattr(src, "size", 0), WRITE_ONLY)
        checked_span(self, dst, 0, size, READ_ONLY)
        with self._report_write(dst, 0, size):
            return self.dpu.copy(src, dst, size)

    def digest(
        self, region: SessionRegion, size: int | str | None = None, offset: int | str = 0
    ) -> str:
        """Return the SHA-256, in hex digits, that the DPU computes over bytes it reads by DMA.

        `size` None: up to the end of the region.
        """
        self._link.check()
        if size is None and type(region) is SessionRegion:
            size = region.size - region.span(offset, 1)[0]
        size = 1 if size is None else size
        offset, size = checked_span(self, region, offset, size, WRITE_ONLY)
        return self.dpu.digest(region, offset, size)

    def latency(
        self,
        region: SessionRegion,
        size: int | str = 64,
        op: str = "write",
        count: int = 10_000,
        path: str = "auto",
        progress: Callable[[int, int], None] | None = None,
        *,
        destructive: bool = False,
    ) -> LatencyReport:
        """Measure the latency of transfers, in C, at the DPU. Ctrl-C ends the measurement early.

        Args:
            region: Region at the remote end. Writes go to scratch memory of the same kind, which
                `where` of the report names, so the region keeps its bytes.
            size: Bytes of each transfer.
            op: "read" or "write", seen from the DPU.
            count: Transfers, at most 1,000,000.
            path: "auto", "inline" or "worker".
            progress: Called periodically with (transfers done, total), in this thread.
            destructive: Write to the region itself: its first `size` bytes become zeros.
        """
        from .session_reports import Measured, latency, on_scratch_memory

        self._link.check()
        _, size = checked_span(self, region, 0, size)
        given = Measured(region, size, op, path, self.info)
        with (
            on_scratch_memory(self._factory, given, size, destructive=destructive) as used,
            self._report_write(used.region, 0, size if op == "write" else 0),
        ):
            return latency(self.dpu, used, count=count, progress=progress)

    def bandwidth(
        self,
        region: SessionRegion,
        size: int | str | None = None,
        op: str = "write",
        seconds: float = 1.0,
        window: int = 32,
        path: str = "auto",
        progress: Callable[[int, int], None] | None = None,
        *,
        destructive: bool = False,
    ) -> BandwidthReport:
        """Measure bandwidth, in C, at the DPU, with `window` transfers in flight for `seconds`.

        `size` None: 1 MiB, or all of a smaller region. The other arguments are those of latency().
        Scratch memory is as large as the region, at most 16 MiB or `size`; a destructive write
        fills that much of the region with zeros.
        """
        from .session_reports import Measured, bandwidth, on_scratch_memory

        self._link.check()
        if size is None:
            size = min(getattr(region, "size", 1), MIB)
        _, size = checked_span(self, region, 0, size)
        given, spread = Measured(region, size, op, path, self.info), min(region.size, RATE_BYTES)
        with (
            on_scratch_memory(
                self._factory, given, max(size, spread), destructive=destructive
            ) as used,
            self._report_write(used.region, 0, used.region.size if op == "write" else 0),
        ):
            return bandwidth(self.dpu, used, seconds=seconds, window=window, progress=progress)

    def monitor(
        self,
        region: SessionRegion,
        size: int | str = 64,
        op: str = "write",
        path: str = "auto",
        count: int = 50,
        every_s: float = 0.05,
        offset: int | str = 0,
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
        from .session_reports import Measured

        self._link.check()
        offset, size = checked_span(self, region, offset, size)
        return Monitor(
            self._factory, self.monitors, Measured(region, size, op, path, self.info), offset,
            count=count, every_s=every_s, destructive=destructive,
        )  # fmt: skip

    def gpu_queue(
        self,
        region: SessionRegion,
        local: SessionRegion | Sequence[SessionRegion],
        *,
        depth: int = 1024,
        weak: bool = False,
        timeout: float = 10.0,
        trace: bool = False,
    ) -> SessionGpuQueue:
        """Open a queue that kernels of this process post to (dgkit_device.cuh); the DPU serves it.

        Args:
            region: Memory of the DPU (on="dpu"): the remote region of the kernels. Closing it ends
                the queue.
            local: Memory of the host: the kernels' local regions, at most 8. The queue refuses
                one that is closed, and serves the others.
            depth: Maximum number of operations posted and not complete: rounded up to a power of
                two, 64 to 16,384.
            weak: Kernels choose the slot of each operation, instead of taking the next one.
            timeout: Seconds after which a wait of a kernel ends as TIMED_OUT.
            trace: Kernels and the DPU store their clocks for each operation; see
                `SessionGpuQueue.trace`.

        Raises:
            Unsupported: This process is the DPU, the DPU is on another machine, or its provider
                cannot run a kernel's operations.
            ValueError: A region is on the wrong side, or `depth` is out of range.
            LimitReached: The session has 8 GPU queues, or the agent has too little memory left.
        """
        from .session_gpu_queue import open_gpu_queue

        self._link.check()
        locals_ = [local] if isinstance(local, SessionRegion) else list(local)
        for each in (region, *locals_):
            check_region(self, each)
        queue = open_gpu_queue(
            self._resources, region, locals_, depth=depth, weak=weak, timeout=timeout, trace=trace
        )
        self.lifetime.gpu_queues.add(queue)
        return queue

    def stats(self) -> dict[str, int]:
        """Return the agent's counters, and the number of this session's regions.

        `moves` and `bytes` count the DMA requests that succeeded and the bytes they moved, of this
        session, as `your_moves` and `your_bytes` do; if the agent was started with
        --shared-telemetry, they and the other counters are those of all clients. A transfer larger
        than 2 MiB is several requests, and a panel that shows memory makes requests as well. Bytes
        moved by monitors, measurements and digests are not counted. `engine_sleeps` is how often
        the DPU's copying thread slept: the next operation then waits until the thread is awake.
        """
        self._link.check()
        counters: dict[str, int] = self._link.ask(Stats(), timeout=self.timeout).counters
        return counters | self.dpu.counters() | {"session_regions": len(self._registry)}

    def telemetry(self) -> str:
        """Return the endpoint where the agent publishes latency samples (dgkit.wire.messages)."""
        return self.telemetry_subscription()[0]

    def telemetry_subscription(self) -> tuple[str, bytes]:
        """Return the telemetry's endpoint, and the message that subscribes to the own samples.

        A ZeroMQ DEALER socket that sends it receives an empty message, then up to 1,000 blocks; the
        message again, once they are read, lets the agent send as many more. The samples are those
        of all clients if the agent was started with --shared-telemetry.
        """
        reply = self._link.ask(Subscribe(), timeout=self.timeout)
        return str(reply.endpoint), encode(Subscription(monitor=reply.monitor))

    @property
    def info(self) -> dict[str, Any]:
        """Return a description of both sides, the agent's address and this session.

        `host` and `dpu` each have a provider, why no better one was chosen, pid, machine and cpus.
        `role` is this process's side, `owned` whether it started the agent, `no_dma` why no DMA
        reaches the host's memory ("" if it does).
        """
        return self._resources.info

    @property
    def owned_pid(self) -> int:
        """Return the process id of the software DPU that this session started; 0 if none."""
        return self._resources.owned_pid

    @property
    def closed(self) -> bool:
        """Return whether close() was called."""
        return self.lifetime.closed

    def close(self) -> None:
        """Free everything on both sides, and end the software DPU if it started one. Idempotent.

        If an exception such as Ctrl-C interrupts it, call it again.

        Raises:
            RegionBusy: Another process has a transfer in flight with memory of this session.
        """
        if self.lifetime.close():
            lifecycle.open_sessions.discard(self)

    def __enter__(self) -> Session:
        if self.closed:
            raise ClosedError("the session is closed")
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def __del__(self) -> None:
        if hasattr(self, "lifetime") and not self.closed and not sys.is_finalizing():
            lifecycle.close_forgotten(self, self.lifetime)

    def __repr__(self) -> str:
        return f"<Session {describe.line(self.info, describe.state(self._link, self.closed))}>"

    def _repr_html_(self) -> str:
        return describe.html(self.info, describe.state(self._link, self.closed))
