"""Session: a host and a DPU put together, one of them in this process."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ..errors import ClosedError
from ..types import Access, parse_access
from ..wire.messages import Stats, Subscribe
from . import argument_checks, describe, lifecycle, region_factory
from .forks import at_exit, opened
from .region import SessionRegion
from .region_registry import Filing
from .remote_dpu import AgentDpu
from .staging import flat

if TYPE_CHECKING:
    from ..dma import Device
    from ..report import BandwidthReport, LatencyReport
    from ..wire.connection import Connection
    from .local_dpu import LocalDpu
    from .monitor import Monitor
    from .spawn import SoftwareDpu
    from .transfer import SessionTransfer, TransferReport

__all__ = ["Session"]


class Session:
    """Made by dgkit.connect(). `role` is this process's side: "host" or "dpu". Thread-safe.

    What was opened before a fork() is the parent's: in the child each call raises ClosedError, and
    the child's end does nothing to it.
    """

    def __init__(
        self,
        link: Connection,
        device: Device,
        welcome: Any,
        timeout: float,
        owned: SoftwareDpu | None,
    ) -> None:
        self.role = "host" if welcome.role == "dpu" else "dpu"
        self.agent = welcome
        self.device = device
        self.here = describe.here(device)
        self.timeout = timeout
        self._link = link
        self._owned = owned
        self.filing = Filing(self)
        self.monitors: set[Monitor] = set()
        self._closed = False
        self._dpu: AgentDpu | LocalDpu
        if self.role == "host":
            self._dpu = AgentDpu(link, device, welcome.provider, timeout)
        else:
            from .local_dpu import LocalDpu  # late, as measuring is: connect() must be quick

            self._dpu = LocalDpu(link, device, timeout)
        opened.add(self)
        at_exit()

    def _check(self) -> None:
        if self._link.dead is not None:  # closed, forked, or the other side is gone
            raise self._link.dead.with_traceback(None)

    def _span(self, region: SessionRegion, offset: int, size: int) -> tuple[int, int]:
        if type(region) is not SessionRegion or region.session is not self:
            raise argument_checks.stranger(self, region)
        span = region.span(offset, size)
        if region.producer is not None:  # what the GPU still computes there comes first
            region.producer()
        return span

    def empty(
        self,
        shape: int | tuple[int, ...],
        dtype: str = "u1",
        on: str = "host",
        name: str | None = None,
    ) -> SessionRegion:
        """New memory, filled with zeros, known to both sides.

        `on` the "dpu", or the "host": there also "pinned" (the GPU reaches it), "gpu" (the current
        or the first), "cuda:1", or "auto" (a GPU where one is usable and this session's DPU reaches
        it, else host; the region says which, and why). `shape` and `dtype` as NumPy's; at the agent
        the bytes are flat. `name`: at most 128 characters. OutOfMemory, DeviceUnavailable,
        Unsupported: nothing was made.
        """
        self._check()
        argument_checks.name(name)
        return region_factory.empty(self, shape, dtype, on, name)

    def register(
        self,
        obj: Any,
        access: str | Access = "rw",
        name: str | None = None,
        share_block: bool = False,
    ) -> SessionRegion:
        """Memory that this process has already, in place: anything with the buffer protocol, and
        arrays on a GPU (CuPy, PyTorch, JAX, Numba: `__cuda_array_interface__` or DLPack).

        CUDA shares whole blocks: an array with other bytes beside it in its block (CuPy's pool)
        needs `share_block`. ExportError: no other process can have it, and what to do. Unsupported.
        """
        self._check()
        argument_checks.name(name)
        return region_factory.register(self, obj, parse_access(access), name, share_block)

    def forget(self, region: SessionRegion, timeout: float) -> None:
        """Closes both sides of a region: SessionRegion.close() calls it."""
        if self._link.dead is None:
            self._dpu.forget(region, timeout)
        region.free(timeout)
        self.filing.drop(region)

    @property
    def regions(self) -> tuple[SessionRegion, ...]:
        """Those that are open, in the order made."""
        return self.filing.open

    def on_change(self, call: Callable[[], object]) -> Callable[[], None]:
        """Calls after a region was made or closed, and after the session was closed, in the thread
        that did it. What it returns takes that back."""
        return self.filing.on_change(call)

    def write(self, region: SessionRegion, data: Any, offset: int = 0) -> TransferReport:
        """Puts `data` (anything with the buffer protocol) into the region by DMA, and waits.

        BoundsError, AccessDenied, TransferError, PeerLost, PeerTimeout.
        """
        self._check()
        view = data if type(data) is bytes else flat(data)
        offset, _ = self._span(region, offset, len(view))
        return self._dpu.write(region, view, offset)

    def read(self, region: SessionRegion, size: int, offset: int = 0) -> bytes:
        """Brings `size` bytes of the region by DMA, and waits. Errors as write()."""
        self._check()
        offset, size = self._span(region, offset, size)
        return self._dpu.read(region, offset, size)

    def start_write(self, region: SessionRegion, data: Any, offset: int = 0) -> SessionTransfer:
        """Starts a write; `data` must not change until it is done."""
        self._check()
        view = flat(data)
        offset, size = self._span(region, offset, len(view))
        return self._dpu.start(region, offset, size, view)

    def start_read(self, region: SessionRegion, size: int, offset: int = 0) -> SessionTransfer:
        """Starts a read; the transfer's `data` has the bytes once it is done."""
        self._check()
        offset, size = self._span(region, offset, size)
        return self._dpu.start(region, offset, size, None)

    def copy(self, src: SessionRegion, dst: SessionRegion) -> TransferReport:
        """The DPU reads all of `src` into its own memory and writes it to `dst`."""
        self._check()
        _, size = self._span(src, 0, getattr(src, "size", 0))
        self._span(dst, 0, size)
        return self._dpu.copy(src, dst, size)

    def digest(self, region: SessionRegion, size: int | None = None, offset: int = 0) -> str:
        """SHA-256 in hex digits, made by the DPU over bytes that it READ by DMA."""
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
    ) -> LatencyReport:
        """Times `count` (at most 1,000,000) transfers of `size` bytes, in C, at the DPU.

        `progress(done, total)` is called now and then, in this thread. Ctrl-C ends it early.
        """
        from . import measure

        self._check()
        _, size = self._span(region, 0, size)
        return measure.latency(self, region, size, op=op, count=count, path=path, told=progress)

    def bandwidth(
        self,
        region: SessionRegion,
        size: int = 1 << 20,
        op: str = "write",
        seconds: float = 1.0,
        window: int = 32,
        path: str = "auto",
        progress: Callable[[int, int], None] | None = None,
    ) -> BandwidthReport:
        """Keeps `window` transfers of `size` bytes in flight for `seconds`, in C, at the DPU."""
        from . import measure

        self._check()
        _, size = self._span(region, 0, size)
        return measure.bandwidth(
            self, region, size, op=op, seconds=seconds, window=window, path=path, told=progress
        )

    def monitor(
        self,
        region: SessionRegion,
        size: int = 64,
        op: str = "write",
        path: str = "auto",
        count: int = 50,
        every_s: float = 0.05,
        offset: int = 0,
    ) -> Monitor:
        """Times `count` (1 to 4,096) transfers of `size` bytes every `every_s` seconds (0.01 to
        60), in C, at the DPU, beside all else, until it is closed; its read() has the samples.

        A write puts zeros there. Errors as latency(). LimitReached: a session may have 8 open.
        """
        from .monitor import Monitor

        self._check()
        offset, size = self._span(region, offset, size)
        return Monitor(self, region, offset, size, op=op, path=path, count=count, every_s=every_s)

    def stats(self) -> dict[str, int]:
        """The agent's counters, and how many regions this session has.

        `moves` and `bytes`: requests for DMA that succeeded, of all clients, and what they moved;
        `your_moves` and `your_bytes`: of this session. A transfer larger than 2 MiB is several
        requests, and a panel that shows memory asks, too. What a monitor, a measurement or a digest
        moves is in none of them.
        """
        self._check()
        counters: dict[str, int] = self._link.ask(Stats, timeout=self.timeout).counters
        return counters | self._dpu.counted() | {"session_regions": len(self.filing)}

    def telemetry(self) -> str:
        """The endpoint where the agent publishes latency samples (dgkit.agent.telemetry)."""
        return str(self._link.ask(Subscribe, timeout=self.timeout).endpoint)

    @property
    def info(self) -> dict[str, Any]:
        """Both sides: provider, pid, machine, cpus, and why no better provider was taken."""
        return describe.info(self)

    @property
    def owned_pid(self) -> int:
        """The process of the software DPU that this session started; 0 if it started none."""
        return self._owned.pid if self._owned is not None else 0

    @property
    def closed(self) -> bool:
        """close() was called."""
        return self._closed

    @property
    def dpu(self) -> AgentDpu | LocalDpu:
        """What moves the bytes."""
        return self._dpu

    def close(self) -> None:
        """Frees everything on both sides and ends a software DPU of its own. Again: nothing.

        RegionBusy: an importer elsewhere is in a transfer with memory of this session.
        """
        if not self._closed:
            self._closed = True
            opened.discard(self)
            lifecycle.close(self)

    def abandon(self) -> None:
        """In a forked child: lets go of what is the parent's."""
        self._closed = True
        self._link.abandon()
        for monitor in self.monitors:
            monitor.abandon()
        if self._owned is not None:
            self._owned.abandon()

    def __enter__(self) -> Session:
        if self._closed:
            raise ClosedError("the session is closed")
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def __del__(self) -> None:
        if not getattr(self, "_closed", True) and not sys.is_finalizing():
            lifecycle.forgotten(self)

    def __repr__(self) -> str:
        return f"<Session {describe.line(self)}>"

    def _repr_html_(self) -> str:
        return describe.html(self)
