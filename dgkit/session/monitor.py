"""Latencies for as long as somebody looks."""

from __future__ import annotations

import errno
import threading
from typing import TYPE_CHECKING

from ..agent.telemetry import Sampled
from ..errors import ClosedError, LimitReached
from ..wire.messages import EVERY_S, MONITOR_SAMPLES, MONITORS
from . import argument_checks
from .local_dpu import LocalDpu
from .measure import spinning, where
from .sample_source import AgentSource, LocalSource, Source

if TYPE_CHECKING:
    from ..report import Machine
    from .region import SessionRegion
    from .session import Session

__all__ = ["Monitor", "Sampled"]


class Monitor:
    """Made by Session.monitor(). Thread-safe; close() it, or let a `with` do so, or the session.

    The DPU takes `count` samples every `every_s` seconds, whatever this process does meanwhile;
    where this process is the DPU, read() takes them when they are due. `path` is that of a first
    transfer, which is no sample. A block's `t_ns` is stamped by Python when the block is whole: it
    is for the axis of a plot, and no sample is made of it. `lost` counts the blocks that did not
    come: some 1,000 wait for a read(). `where` says which memory, and whose processes.
    """

    def __init__(
        self, session: Session, region: SessionRegion, offset: int, size: int, *,
        op: str, path: str, count: int, every_s: float,
    ) -> None:  # fmt: skip
        self.region, self.offset, self.size, self.op = region, offset, size, op
        self.count = argument_checks.within("count", count, 1, MONITOR_SAMPLES)
        self.every_s = argument_checks.seconds(
            "every_s", every_s, least=EVERY_S[0], most=EVERY_S[1]
        )
        code, way = argument_checks.op(op).value, argument_checks.path(path).value
        self._session = session
        self._lock = threading.Lock()
        self._next = 0
        self._dead: Exception | None = None
        self.lost = 0
        self.provider = session.dpu.provider
        self.spinning = spinning(session)
        self.where = where(session, region)
        self._enrol()
        try:
            fields = (offset, size, code, self.count, way, self.every_s)
            self._source = self._open(fields)
        except BaseException:
            session.monitors.discard(self)
            raise

    def _enrol(self) -> None:
        monitors = self._session.monitors
        monitors.add(self)
        if len(monitors) > MONITORS:
            monitors.discard(self)
            raise LimitReached(
                errno.ENOSPC,
                f"this session has {MONITORS} monitors open, which is the most: close one first",
            )

    def _open(self, fields: tuple[int | float, ...]) -> Source:
        dpu = self._session.dpu
        if isinstance(dpu, LocalDpu):
            return LocalSource(dpu, self.region, fields)
        return AgentSource(dpu.link, self.region, fields, self._session.timeout)

    @property
    def path(self) -> str:
        """`inline` or `worker`."""
        return self._source.path

    @property
    def machine(self) -> Machine:
        """The machine that takes the figures."""
        return self._source.machine

    @property
    def label(self) -> str:
        """What the figures are to be called: `software DPU` unless the provider is hardware; that a
        GPU copied is said only where it did."""
        from ..html_cards import provider_label

        return provider_label(self.machine.mover(self.provider))

    def read(self) -> list[Sampled]:
        """The blocks that came since the last read, oldest first; it never waits for one.

        Once there is none left it raises why there will be no more: ClosedError (it, its region or
        its session was closed), TransferError or AccessDenied (of a sample), PeerLost. PeerTimeout:
        the agent's process is stopped; read again when it goes on.
        """
        with self._lock:
            if self._dead is not None:
                raise self._dead.with_traceback(None)
            blocks = self._source.take()
            for block in blocks:
                self.lost += block.number - self._next
                self._next = block.number + 1
            if not blocks:
                self._look()
            return blocks

    def _look(self) -> None:
        """Raises what ended it, if something did; then nothing of it is left here."""
        error = self._source.ended or self._session._link.dead
        if error is None:
            return
        if self.region.closed:
            error = ClosedError(f"region {self.region.name!r} was closed while it was monitored")
        self._dead = error
        self._session.monitors.discard(self)
        self._source.stop()
        raise error

    def close(self) -> None:
        """Ends it; what it had is free on both sides when this returns. Again: nothing."""
        with self._lock:
            self._session.monitors.discard(self)
            ended, self._dead = self._dead, ClosedError("the monitor is closed")
            if ended is not None:
                return
            self._source.stop()
        self._source.free()

    @property
    def closed(self) -> bool:
        """No more blocks will come."""
        return self._dead is not None

    def abandon(self) -> None:
        """In a forked child: it is the parent's, and its lock may be held there."""
        self._lock = threading.Lock()
        self._dead = self._session._link.dead

    def __enter__(self) -> Monitor:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def __repr__(self) -> str:
        state = ", closed" if self.closed else f", {self.lost} blocks lost" if self.lost else ""
        return (
            f"<Monitor {self.op} of {self.size} bytes, {self.count} every {self.every_s:g} s, "
            f"{self.path}, {self.label}{state}>"
        )

    def _repr_html_(self) -> str:
        from ..html_cards import card, provider_badge
        from ..units import size_text

        rows = [
            ("Times", f"{self.op} of {size_text(self.size)} at offset {self.offset}"),
            ("Samples", f"{self.count} every {self.every_s:g} s"),
            ("Path", self.path),
            ("Where", self.where),
            ("Machine", str(self.machine)),
            *([("Lost", f"{self.lost} blocks")] if self.lost else []),
        ]
        title = "Monitor (closed)" if self.closed else "Monitor"
        return card(title, rows, badge=provider_badge(self.machine.mover(self.provider)))
