# SPDX-License-Identifier: Apache-2.0
"""Latency of a session's transfers started by a kernel on the host: one run, or a monitor."""

from __future__ import annotations

import contextlib
import os
import statistics
import threading
import time
from dataclasses import dataclass

from ..dma import cpus
from ..errors import ClosedError, DgkitError, PeerLost
from ..gpu_initiated.kernel_benchmark import gpu_name, shared_meter
from ..memory import why_no_gpu
from ..report import GPU_INITIATED, Machine, PostedLatencyReport
from ..threads import starting
from ..validate import whole

TYPE_CHECKING = False  # importing typing takes longer than importing this whole module
if TYPE_CHECKING:
    from array import array
    from collections.abc import Callable
    from typing import Any

    from ..gpu_initiated.kernel_benchmark import Meter, Pending
    from .session import Session
    from .session_region import SessionRegion

_BLOCK = 2000  # samples of one launch
_SECONDS = 5.0  # longest duration of one launch
_MOST = 1_000_000
_OPS = {"read": "put", "write": "get"}  # operation as seen from the DPU: operation of the kernel


class _Channel:
    """Queue of a session between host memory and scratch memory of the DPU.

    A "read" reads the given region. A "write" writes to scratch memory on the host, so that the
    region keeps its bytes.
    """

    def __init__(self, session: Session, region: SessionRegion, size: int, op: str) -> None:
        if op not in _OPS:
            raise ValueError(f"op is {op!r}; it must be 'read' or 'write'")
        region.span(0, size)
        self.op, self.size = op, size
        with contextlib.ExitStack() as undo:
            self._dpu = session.empty(size, on="dpu", name="GPU-initiated, DPU")
            undo.callback(self._dpu.close)
            self._host = region
            if op == "write":
                self._host = session.empty(size, name="GPU-initiated, host")
                undo.callback(self._host.close)
            self.queue = undo.enter_context(session.gpu_queue(self._dpu, self._host, depth=64))
            self._close = undo.pop_all()
        dpu, host = session.info["dpu"]["pid"], os.getpid()
        self.where = f"{self._host.name} on {self._host.where}; proxy pid {dpu}, kernel pid {host}"

    @property
    def scratch(self) -> tuple[SessionRegion, ...]:
        """Regions that the channel allocated."""
        return (self._dpu, self._host) if self.op == "write" else (self._dpu,)

    def start(self, meter: Meter, count: int) -> Pending:
        """Start a kernel that takes `count` samples."""
        ids = self.queue.id_of(self._dpu), self.queue.id_of(self._host)
        return meter.start_single(
            self.queue, ids, op=_OPS[self.op], size=self.size, count=count, seconds=_SECONDS
        )

    def close(self) -> None:
        """Close the queue, then free the scratch memory."""
        self._close.close()


def _posted() -> dict[str, Any]:
    """Return the fields of a report that are the same for all operations started by kernels."""
    return {
        "fenced": True, "gpu": gpu_name(), "emulated": bool(why_no_gpu()), "owner": "idle",
        "proxy": "DPU process",
    }  # fmt: skip


def latency(
    session: Session,
    region: SessionRegion,
    size: int = 64,
    *,
    op: str = "write",
    count: int = 10_000,
    progress: Callable[[int, int], None] | None = None,
) -> PostedLatencyReport:
    """Measure transfers started by a kernel of this process, with the kernel's clock.

    Args:
        session: Session in which this process is the host side, with a DPU on this machine.
        region: Region of the host. It keeps its bytes: writes go to scratch memory.
        size: Bytes of each transfer.
        op: "read" or "write" as seen from the DPU; the kernel executes a put or a get,
            respectively.
        count: Transfers, at most 1,000,000.
        progress: Called from time to time with (transfers done, total), in this thread.

    Raises:
        Unsupported: The provider, the memory or the DPU cannot be used.
        KernelError: A transfer failed.
    """
    if not 1 <= whole("count", count, 1) <= _MOST:
        raise ValueError(f"count is {count}; the limit is {_MOST:,}")
    channel, meter = _Channel(session, region, size, op), shared_meter()
    try:
        floors = [int(statistics.median(meter.bare(_BLOCK, 0.1)))]
        taken: array[int] = channel.start(meter, min(count, _BLOCK)).take()
        while len(taken) < count:
            if progress is not None:
                progress(len(taken), count)
            taken += channel.start(meter, min(count - len(taken), _BLOCK)).take()
        floors.append(int(statistics.median(meter.bare(_BLOCK, 0.1))))
    finally:
        channel.close()
    return PostedLatencyReport.of(
        taken, size=size, op=op, provider=session.dpu.provider, path=GPU_INITIATED,
        floor_ns=floors, machine=Machine.here(), spinning=cpus() > 1, where=channel.where,
        **_posted(),
    )  # fmt: skip


@dataclass(frozen=True, slots=True)
class KernelBlock:
    """Block of samples; has the interface of the blocks of a session's monitor.

    Attributes:
        number: Number of the block, from 0.
        t_ns: CLOCK_MONOTONIC when the samples were taken from the kernel.
        samples: Latencies in ns, native-endian u64.
    """

    number: int
    t_ns: int
    provider: str
    op: str
    size: int
    samples: bytes
    path: str = GPU_INITIATED


class KernelMonitor:
    """Monitor of the latency of transfers started by kernels, with a session monitor's interface.

    A thread compiles the kernels, so that the constructor does not wait for the compiler. Then each
    read() takes the samples of the last kernel, and starts the next kernel when its block is due.
    Thread-safe.

    Args:
        session, region, size, op: As for latency().
        count: Samples of a block.
        every_s: Shortest time in seconds from one block to the next.
    """

    path = GPU_INITIATED
    lost = 0
    buffered = False

    def __init__(
        self,
        session: Session,
        region: SessionRegion,
        *,
        size: int,
        op: str,
        count: int,
        every_s: float,
    ) -> None:
        self.size, self.op, self.count, self.every_s = size, op, count, every_s
        self.provider: str = session.dpu.provider
        self.machine, self.spinning = Machine.here(), cpus() > 1
        self.posted = tuple(_posted().items())
        self._session, self._region, self._lock = session, region, threading.Lock()
        self._channel = _Channel(session, region, size, op)
        self.where = self._channel.where
        self._closed, self._number, self._due = False, 0, 0.0
        self._pending: Pending | None = None
        self._meter: Meter | None = None
        self._failed: Exception | None = None
        with starting("a measurement"):
            threading.Thread(target=self._compile, name="dgkit-compile", daemon=True).start()

    @property
    def scratch(self) -> tuple[SessionRegion, ...]:
        """Regions of the session that the monitor allocated."""
        return self._channel.scratch

    def _compile(self) -> None:
        try:
            self._meter = shared_meter()
        except Exception as error:  # read() raises it
            self._failed = error

    def read(self) -> list[KernelBlock]:
        """Return the block that is complete, if any, without waiting.

        Raises:
            ClosedError: The monitor or its session was closed.
            PeerLost: The DPU's process has ended.
            KernelError: A transfer failed.
            Unsupported: There is no C++ compiler for the emulated GPU.
        """
        with self._lock:
            self._check()
            if self._meter is None:
                return []
            found = self._take()
            if self._pending is None and time.monotonic() >= self._due:
                self._due = time.monotonic() + self.every_s
                self._pending = self._channel.start(self._meter, self.count)
            return found

    def _check(self) -> None:
        if self._closed:
            raise ClosedError("the monitor is closed")
        if self._session.closed:
            raise ClosedError("the session is closed")
        if self._channel.queue.lost:
            raise PeerLost("the DPU's process has ended, and with it the proxy")
        if self._region.closed:
            raise ClosedError(f"region {self._region.name!r} was closed while it was monitored")
        if self._failed is not None:
            raise self._failed

    def _take(self) -> list[KernelBlock]:
        if self._pending is None or self._pending.running:
            return []
        pending, self._pending = self._pending, None
        try:
            samples = pending.take()
        except DgkitError:
            self._check()  # raises the reason for the failure, if it is known
            raise
        number, self._number = self._number, self._number + 1
        now = time.monotonic_ns()
        return [KernelBlock(number, now, self.provider, self.op, self.size, samples.tobytes())]

    def close(self) -> None:
        """Close the queue and free the scratch memory. Idempotent.

        Waits for a running kernel, which ends because closing its queue ends its waits.
        """
        with self._lock:
            if self._closed:
                return
            self._closed = True
            with contextlib.suppress(DgkitError):
                self._channel.close()
            pending, self._pending = self._pending, None
            if pending is not None:
                with contextlib.suppress(DgkitError):
                    pending.take()
