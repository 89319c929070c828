# SPDX-License-Identifier: Apache-2.0
"""Latency and bandwidth reports of a session; the DPU measures, in C."""

from __future__ import annotations

import contextlib
from array import array
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Optional, cast

from ..dma.context import provider_name
from ..dpu import benchmark
from ..dpu.region_ref import RegionRef
from ..errors import PeerError
from ..report import BandwidthReport, LatencyReport
from ..schema import MAX_SAMPLES, LatencyTask, RateTask
from ..sizes import SCRATCH_PAGE, SWEEP_BYTES
from ..types import Access, Op, TransferPath, parse_path
from . import argument_checks
from .describe import machine_of

if TYPE_CHECKING:
    from ..dma import Device, RemoteRegion
    from .backend import Backend
    from .describe import Info
    from .region_factory import RegionFactory
    from .session_region import SessionRegion


_MAX_NAME = 128  # characters of a region's name


class Scratch:
    """Memory of the same kind as a region, which belongs to a measurement and not to the session.

    It has the region's place, access and method (how the DPU reaches it). If dgkit allocated the
    region's memory, scratch memory is allocated in the same way; in place of a user's array,
    another array is used.

    Attributes:
        region: What to measure instead of the user's region.
        offset: Where to start in it; equal to the requested offset modulo 64 KiB.
    """

    def __init__(self, factory: RegionFactory, like: SessionRegion, offset: int, size: int) -> None:
        self._resources = factory.resources
        self.offset = offset % SCRATCH_PAGE
        name = f"scratch memory like {like.name}"[:_MAX_NAME]
        self.region = factory.empty_like(like, self.offset + size, name)

    def free(self) -> None:
        """Free the memory on both sides. Idempotent."""
        region = self.region
        if not region.closed:
            timeout = self._resources.timeout
            try:
                with contextlib.suppress(PeerError):  # a lost or stuck agent frees its side itself
                    self._resources.dpu.forget(region, timeout)
            finally:
                region.free(timeout)
                region.closed = True


def scratch_for(
    factory: RegionFactory,
    region: SessionRegion,
    offset: int,
    size: int,
    *,
    op: str,
    destructive: bool,
) -> Scratch | None:
    """Return scratch memory for a measurement that writes.

    Returns:
        None if the measurement may use the region itself: it reads, `destructive` is true, or the
        region refuses writes.
    """
    if type(destructive) is not bool:
        raise TypeError(f"destructive is {destructive!r}; it must be True or False")
    writes = argument_checks.op(op) == Op.WRITE and bool(region.access & Access.WRITE)
    if destructive or not writes:
        return None
    return Scratch(factory, region, offset, size)


ProgressCall = Optional[Callable[[int, int], None]]  # noqa: UP045 (evaluated on 3.10)


class _Listener:
    """Collects the numbered blocks of samples, `count` in all, and the progress."""

    def __init__(self, progress: ProgressCall, count: int = 0) -> None:
        self._count = count
        self.samples: array[int] = array("Q")
        self.blocks = 0
        self._call = progress
        self._latest: tuple[int, int] | None = None

    def add_block(self, number: int, samples: bytes) -> None:
        """Append a block to the samples; ignore a block after a missing one.

        Raises:
            PeerError: There are more samples than were requested.
        """
        if number == self.blocks:
            self.samples.frombytes(samples)
        self.blocks += 1
        if len(self.samples) > self._count:
            raise PeerError(f"{self._count} samples were requested, and the agent sent more")

    def add_progress(self, done: int, total: int) -> None:
        """Store the progress for check()."""
        self._latest = (done, total)

    def check(self) -> None:
        """Call the caller's progress function, in the caller's thread; it may raise."""
        latest, self._latest = self._latest, None
        if latest is not None and self._call is not None:
            self._call(*latest)


@dataclass(frozen=True)
class Measured:
    """Transfers of a measurement.

    Attributes:
        region: Region at the remote end: the user's, or scratch memory.
        size: Bytes of each transfer.
        op: "read" or "write".
        path: "auto", "inline" or "worker".
        info: Session.info.
    """

    region: SessionRegion
    size: int
    op: str
    path: str
    info: Info

    @property
    def where(self) -> str:
        """Return a line with the region, its place and the process of each side."""
        return describe_sides(self.info, self.region)


@contextlib.contextmanager
def on_scratch_memory(
    factory: RegionFactory, given: Measured, spread: int, *, destructive: bool
) -> Iterator[Measured]:
    """Replace the region by `spread` bytes of scratch memory, unless `destructive`."""
    scratch = scratch_for(factory, given.region, 0, spread, op=given.op, destructive=destructive)
    try:
        yield given if scratch is None else replace(given, region=scratch.region)
    finally:
        if scratch is not None:
            scratch.free()


def latency(backend: Backend, of: Measured, *, count: int, progress: ProgressCall) -> LatencyReport:
    """Measure latencies for Session.latency()."""
    count = argument_checks.within("count", count, 1, MAX_SAMPLES)
    argument_checks.function("progress", progress)
    listener = _Listener(progress, count)
    op, path = argument_checks.op(of.op).value, parse_path(of.path).code
    task = LatencyTask(offset=0, size=of.size, op=op, samples=count, path=path)
    done = backend.latency(of.region, task, listener)
    if done.blocks != listener.blocks or len(listener.samples) != count:
        raise PeerError(f"{count} samples were taken, but {len(listener.samples)} arrived")
    floors = [ns for ns in (done.floor_before, done.floor_after) if ns]
    return LatencyReport.of(
        listener.samples, size=of.size, op=of.op, provider=backend.provider, path=done.path,
        floor_ns=floors, machine=machine_of(done.machine),
        spinning=spinning(of.info), where=of.where, sleeps=done.sleeps,
    )  # fmt: skip


def latency_of_import(remote: RemoteRegion, *, size: int, op: str, count: int) -> LatencyReport:
    """Measure latencies of transfers with an imported region, without a session."""
    count = argument_checks.within("count", count, 1, MAX_SAMPLES)
    listener, device = _Listener(None, count), cast("Device", remote.device)
    code = argument_checks.op(op).value
    task = LatencyTask(offset=0, size=size, op=code, samples=count, path=TransferPath.AUTO.code)
    done = benchmark.latency(task, RegionRef(remote=remote), device, listener)
    return LatencyReport.of(
        listener.samples, size=size, op=op,
        provider=provider_name(device.provider, remote.emulated),
        path=done.path, floor_ns=[done.floor_before, done.floor_after],
        machine=machine_of(done.machine), spinning=device.caps.spin_ns > 0, where=repr(remote),
        sleeps=done.sleeps,
    )  # fmt: skip


def bandwidth(
    backend: Backend, of: Measured, *, seconds: float, window: int, progress: ProgressCall
) -> BandwidthReport:
    """Measure bandwidth for Session.bandwidth()."""
    seconds = argument_checks.seconds("seconds", seconds)
    window = argument_checks.within("window", window, 1, 65536)
    argument_checks.function("progress", progress)
    op, path = argument_checks.op(of.op).value, parse_path(of.path).code
    task = RateTask(size=of.size, op=op, window=window, seconds=seconds, path=path)
    done = backend.bandwidth(of.region, task, _Listener(progress))
    floors = [of.size / ns for ns in (done.floor_before, done.floor_after) if ns]
    return BandwidthReport.of(
        done.moved, done.ops, done.elapsed_ns, size=of.size, op=of.op, window=window,
        provider=backend.provider, path=done.path, floor_gb_per_s=floors,
        machine=machine_of(done.machine), spinning=spinning(of.info),
        where=of.where, failed=done.failed, sleeps=done.sleeps,
    )  # fmt: skip


def samples_for(size: int, count: int) -> int:
    """Return the number of latency samples: `count`, or fewer for large sizes (at least 20)."""
    return max(20, min(count, SWEEP_BYTES // size))


def spinning(info: Info) -> bool:
    """Return whether the DPU spins for a completion before it sleeps."""
    return bool(info["dpu"]["spinning"])


def describe_sides(info: Info, region: SessionRegion) -> str:
    """Return a line with the region, its place and the process of each side."""
    pids = f"DPU pid {info['dpu']['pid']}, host pid {info['host']['pid']}"
    return f"{region.name} on {region.where}; {pids}"
