"""Latency and bandwidth reports of a session. The DPU measures, in C; samples come here."""

from __future__ import annotations

from array import array
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Optional

from ..dpu import benchmark
from ..errors import PeerError, PeerTimeout
from ..report import BandwidthReport, LatencyReport, Machine
from ..wire.messages import MAX_SAMPLES, Block, Latency, Progress, Rate
from . import argument_checks
from .local_dpu import LocalDpu
from .remote_dpu import SILENCE_S

if TYPE_CHECKING:
    from .region import SessionRegion
    from .session import Session

__all__ = ["bandwidth", "latency", "spinning", "where"]

Told = Optional[Callable[[int, int], None]]  # noqa: UP045 (evaluated on 3.10)
_GLANCE_S = 0.1  # how often progress is told


class _News:
    """What comes before the result: samples, in numbered blocks, and how far it is."""

    def __init__(self, told: Told) -> None:
        self.samples: array[int] = array("Q")
        self.blocks = 0
        self._told = told
        self._progress: Progress | None = None

    def take(self, message: Any) -> None:
        """One Block or Progress. PeerError: a block is missing."""
        if isinstance(message, Progress):
            self._progress = message
        elif isinstance(message, Block):
            if message.number == self.blocks:
                self.samples.frombytes(message.samples)
            self.blocks += 1

    def tell(self) -> None:
        """Calls the caller's progress function, in the caller's thread."""
        news, self._progress = self._progress, None
        if news is not None and self._told is not None:
            self._told(news.done, news.total)


def latency(
    session: Session,
    region: SessionRegion,
    size: int,
    *,
    op: str,
    count: int,
    path: str,
    told: Told,
) -> LatencyReport:
    """As Session.latency()."""
    count = argument_checks.within("count", count, 1, MAX_SAMPLES)
    argument_checks.function("progress", told)
    news = _News(told)
    fields = (0, size, argument_checks.op(op).value, count, argument_checks.path(path).value)
    done = _run(session, region, Latency, fields, news, benchmark.latency)
    if done.blocks != news.blocks or len(news.samples) != count:
        raise PeerError(f"{count} samples were taken and {len(news.samples)} arrived")
    floors = [ns for ns in (done.floor_before, done.floor_after) if ns]
    return LatencyReport.of(
        news.samples, size=size, op=op, provider=session.dpu.provider, path=done.path,
        floor_ns=floors, machine=Machine(**done.machine),
        spinning=spinning(session), where=where(session, region),
    )  # fmt: skip


def bandwidth(
    session: Session,
    region: SessionRegion,
    size: int,
    *,
    op: str,
    seconds: float,
    window: int,
    path: str,
    told: Told,
) -> BandwidthReport:
    """As Session.bandwidth()."""
    seconds = argument_checks.seconds("seconds", seconds)
    window = argument_checks.within("window", window, 1, 65536)
    argument_checks.function("progress", told)
    fields = (size, argument_checks.op(op).value, window, seconds, argument_checks.path(path).value)
    done = _run(session, region, Rate, fields, _News(told), benchmark.rate)
    floors = [size / ns for ns in (done.floor_before, done.floor_after) if ns]
    return BandwidthReport.of(
        done.moved, done.ops, done.elapsed_ns, size=size, op=op, window=window,
        provider=session.dpu.provider, path=done.path, floor_gbps=floors,
        machine=Machine(**done.machine), spinning=spinning(session),
        where=where(session, region), failed=done.failed,
    )  # fmt: skip


def _run(
    session: Session,
    region: SessionRegion,
    kind: Any,
    fields: tuple[Any, ...],
    news: _News,
    here: Callable[..., Any],
) -> Any:
    dpu = session.dpu
    if isinstance(dpu, LocalDpu):
        held = dpu.held(region)
        return here(kind(0, 1, *fields), held, dpu.device, news.take, news.tell)
    link = dpu.link
    pending = link.post(kind, region.handle, *fields, news=news.take)
    try:
        while not link.wait(pending, _GLANCE_S):
            news.tell()
            if link.idle_s > SILENCE_S:
                raise PeerTimeout(f"the agent has said nothing for {SILENCE_S:.0f} s")
    except BaseException:  # Ctrl-C, too: the agent need not go on
        dpu.cancel(pending)
        raise
    news.tell()
    return pending.result()


def spinning(session: Session) -> bool:
    """Whether the DPU waits for a completion by spinning, before it sleeps."""
    return bool(session.info["dpu"]["spinning"])


def where(session: Session, region: SessionRegion) -> str:
    """Which memory, and whose processes."""
    about = session.info
    pids = f"DPU pid {about['dpu']['pid']}, host pid {about['host']['pid']}"
    return f"{region.name} on {region.where}; {pids}"
