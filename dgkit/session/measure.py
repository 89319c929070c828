"""Latency and bandwidth reports of a session; the DPU measures, in C."""

from __future__ import annotations

from array import array
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Optional

from ..errors import PeerError
from ..report import BandwidthReport, LatencyReport
from ..wire.messages import MAX_SAMPLES, Block, Progress
from . import argument_checks
from .describe import machine_of

if TYPE_CHECKING:
    from .backend import Backend
    from .region import SessionRegion

__all__ = ["bandwidth", "describe_sides", "latency", "samples_for", "spinning"]

_MAX_BYTES = 512 << 20  # moved per latency of a sweep, so that 64 MiB does not take minutes

ProgressCall = Optional[Callable[[int, int], None]]  # noqa: UP045 (evaluated on 3.10)
Info = dict[str, Any]  # Session.info


class _Listener:
    """Collects the numbered blocks of samples, `count` in all, and the progress."""

    def __init__(self, progress: ProgressCall, count: int = 0) -> None:
        self._count = count
        self.samples: array[int] = array("Q")
        self.blocks = 0
        self._call = progress
        self._latest: Progress | None = None

    def add(self, message: Any) -> None:
        """Take one Block or Progress.

        Raises:
            PeerError: There are more samples than were requested.
        """
        if isinstance(message, Progress):
            self._latest = message
        elif isinstance(message, Block):
            if message.number == self.blocks:
                self.samples.frombytes(message.samples)
            self.blocks += 1
            if len(self.samples) > self._count:
                raise PeerError(f"{self._count} samples were requested, and the agent sent more")

    def report_progress(self) -> None:
        """Call the caller's progress function, in the caller's thread."""
        latest, self._latest = self._latest, None
        if latest is not None and self._call is not None:
            self._call(latest.done, latest.total)


def latency(
    backend: Backend,
    region: SessionRegion,
    size: int,
    *,
    op: str,
    count: int,
    path: str,
    progress: ProgressCall,
    info: Info,
    where: str,
) -> LatencyReport:
    """Measure latencies as Session.latency().

    `info` is Session.info, `where` names the region (see describe_sides).
    """
    count = argument_checks.within("count", count, 1, MAX_SAMPLES)
    argument_checks.function("progress", progress)
    listener = _Listener(progress, count)
    fields = (0, size, argument_checks.op(op).value, count, argument_checks.path(path).value)
    done = backend.latency(region, fields, listener)
    if done.blocks != listener.blocks or len(listener.samples) != count:
        raise PeerError(f"{count} samples were taken, but {len(listener.samples)} arrived")
    floors = [ns for ns in (done.floor_before, done.floor_after) if ns]
    return LatencyReport.of(
        listener.samples, size=size, op=op, provider=backend.provider, path=done.path,
        floor_ns=floors, machine=machine_of(done.machine),
        spinning=spinning(info), where=where, sleeps=done.sleeps,
    )  # fmt: skip


def bandwidth(
    backend: Backend,
    region: SessionRegion,
    size: int,
    *,
    op: str,
    seconds: float,
    window: int,
    path: str,
    progress: ProgressCall,
    info: Info,
    where: str,
) -> BandwidthReport:
    """Measure bandwidth as Session.bandwidth(); `info` and `where` as in latency()."""
    seconds = argument_checks.seconds("seconds", seconds)
    window = argument_checks.within("window", window, 1, 65536)
    argument_checks.function("progress", progress)
    fields = (size, argument_checks.op(op).value, window, seconds, argument_checks.path(path).value)
    done = backend.bandwidth(region, fields, _Listener(progress))
    floors = [size / ns for ns in (done.floor_before, done.floor_after) if ns]
    return BandwidthReport.of(
        done.moved, done.ops, done.elapsed_ns, size=size, op=op, window=window,
        provider=backend.provider, path=done.path, floor_gbps=floors,
        machine=machine_of(done.machine), spinning=spinning(info),
        where=where, failed=done.failed, sleeps=done.sleeps,
    )  # fmt: skip


def samples_for(size: int, count: int) -> int:
    """Return `count` samples of a latency, or fewer for large sizes, but at least 20."""
    return max(20, min(count, _MAX_BYTES // size))


def spinning(info: Info) -> bool:
    """Return whether the DPU spins for a completion before it sleeps."""
    return bool(info["dpu"]["spinning"])


def describe_sides(info: Info, region: SessionRegion) -> str:
    """Return a line with the region, its place and the process of each side."""
    pids = f"DPU pid {info['dpu']['pid']}, host pid {info['host']['pid']}"
    return f"{region.name} on {region.where}; {pids}"
