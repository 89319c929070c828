# SPDX-License-Identifier: Apache-2.0
"""One run of a LatencyPlot: its configuration, samples and report, and names of kept runs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from copy import deepcopy
from dataclasses import dataclass, field, replace
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

import numpy as np

from ...errors import PeerError
from ...report import LatencyReport, Machine, PostedLatencyReport, path_text, posted_label
from ...types import MIXED, provider_label
from ...units import size_text
from .history import History

if TYPE_CHECKING:
    from ...schema import Sampled
    from ...session.kernel_latency import KernelBlock, KernelMonitor
    from ...session.monitor import Monitor as SessionMonitor
    from ..base.page_input import Json

    Monitor: TypeAlias = SessionMonitor | KernelMonitor
    Block: TypeAlias = Sampled | KernelBlock


@dataclass(frozen=True, slots=True)
class RunConfig:
    """Configuration of one run. Samples of two configurations are never mixed."""

    size: int
    op: str
    path: str
    provider: str
    machine: Machine
    where: str
    spinning: bool
    count: int
    every_s: float
    posted: tuple[tuple[str, Any], ...] = ()  # fields that a report of a kernel's operations adds

    @classmethod
    def of(cls, monitor: Monitor) -> RunConfig:
        """Return the configuration of an open monitor."""
        taken = monitor.size, monitor.op, monitor.path, monitor.provider, monitor.machine
        posted = getattr(monitor, "posted", ())
        rate = monitor.count, monitor.every_s
        return cls(*taken, monitor.where, monitor.spinning, *rate, posted)

    @property
    def label(self) -> str:
        """The label of the provider, as in a report: `software DPU` unless it is hardware."""
        label = provider_label(self.machine.mover(self.provider))
        return posted_label(label, emulated=bool(dict(self.posted).get("emulated")))

    @property
    def path_text(self) -> str:
        """The path of the transfers, and what copies the bytes."""
        path = "inline and worker" if self.path == MIXED else self.path
        return path_text(path, self.provider, self.machine, spinning=self.spinning)

    @property
    def description(self) -> str:
        """The operation for a legend: `write 64 B, inline path`."""
        return f"{self.op} {size_text(self.size)}, {self.path_text}"

    @property
    def requested_rate(self) -> str:
        """The requested sampling rate; History.rate is the measured one."""
        return f"requested {self.count:,} samples every {self.every_s * 1000:g} ms"

    def state(self) -> dict[str, str]:
        """Return the configuration as text, for a view and for CSV (the keys are its format)."""
        return {
            "words": self.description, "label": self.label, "provider": self.provider,
            "where": self.where, "machine": str(self.machine), "taken": self.requested_rate,
        }  # fmt: skip


@dataclass(slots=True)
class Run:
    """Samples of one configuration, from its first start to its last stop.

    `kept` is the time at which it was kept, as text.
    """

    number: int
    config: RunConfig
    history: History = field(default_factory=History)
    _next: int = 0
    kept: str = ""
    _lost: str = ""  # where samples were taken before a DPU was lost

    def finish(self) -> None:
        """End the run and set its time; it gets no more samples."""
        self.kept = datetime.now(timezone.utc).strftime("%Y-%m-%d %H:%M UTC")

    def resume(self, config: RunConfig) -> None:
        """Continue with a new monitor, which numbers its blocks from 0; add a gap."""
        if config.where != self.config.where:
            self._lost += f", and {self.config.where} before a restart"
        self.config, self._next = config, 0
        self.history.gap()

    def continue_from(self, earlier: Run) -> None:
        """Continue with the monitor of an earlier run: expect its next block number."""
        self._next = earlier._next

    def add(self, blocks: Iterable[Block]) -> bool:
        """Add blocks in order; a missing number is a gap.

        Returns:
            True if the blocks took another path than those before, and `config` changed.

        Raises:
            PeerError: A block is of another operation than was requested.
        """
        before = self.config
        for block in blocks:
            self._check(block)
            if block.number > self._next:
                self.history.gap(lost=block.number - self._next)
            self._next = block.number + 1
            self.history.add(block.t_ns, np.frombuffer(block.samples, np.uint64))
        return self.config is not before

    def _check(self, block: Block) -> None:
        config = self.config
        if (block.provider, block.op, block.size) != (config.provider, config.op, config.size):
            raise PeerError(
                f"received samples of a {block.op} of {block.size:,} bytes by {block.provider}, "
                f"but a {config.op} of {config.size:,} bytes by {config.provider} was requested"
            )
        if config.path not in (block.path, MIXED):
            self.config = replace(config, path=MIXED)

    def copy(self) -> Run:
        """Return a copy, for a reader that works while samples arrive; it takes 8 MB."""
        return replace(self, history=deepcopy(self.history))

    def report(self) -> LatencyReport:
        """Return a report on the last samples, at most 1,000,000; `where` says how many.

        Raises:
            ValueError: There are no samples yet.
        """
        config, history = self.config, self.history
        percentiles, histogram = history.exact()
        last = percentiles.n
        kept = f"the last {last:,} of" if last < history.samples else "all"
        about = f"{kept} {history.samples:,} samples of {history.seconds:,.0f} s"
        about += f", {config.requested_rate}"
        about += f", measured {history.rate:,.0f} samples/s" if history.rate else ""
        lost = f", {history.lost:,} blocks lost" if history.lost else ""
        kind = PostedLatencyReport if config.posted else LatencyReport
        return kind(
            percentiles=percentiles, histogram=histogram, size=config.size, op=config.op,
            provider=config.provider, path=config.path, floor_ns=(), machine=config.machine,
            spinning=config.spinning, where=f"{config.where}{self._lost}; {about}{lost}",
            **dict(config.posted),
        )  # fmt: skip

    def state(self) -> Json:
        """Return the configuration, the counts and the percentiles, for a view."""
        counts = self.history.counts()
        figures = self.history.figures()
        about = {"number": self.number, "figures": figures, "kept": self.kept}
        return {**self.config.state(), **counts, **about}

    def distribution(self) -> list[bytes]:
        """Return the histogram and the percentile curve, as rows of float64."""
        return [self.history.histogram().tobytes(), self.history.curve().tobytes()]


BEFORE = "before"  # the name, if none is given
_PRESENT = ("run", "sweep", "after")  # names of what is being measured
_MOST = 40  # letters: a legend has room for them

T = TypeVar("T")


def check_name(name: str) -> str:
    """Return the name of a run or sweep to keep.

    Raises:
        TypeError: It is no text.
        ValueError: It is empty, too long, has control characters, or is that of the present run.
    """
    if not isinstance(name, str):
        raise TypeError(f"name is {name!r}; it must be text")
    if not (name.isprintable() and name.strip() and len(name) <= _MOST):
        raise ValueError(f"name is {name!r}; it must be 1 to {_MOST} printable characters")
    if name in _PRESENT:
        raise ValueError(f"name is {name!r}, which is the name of what is being measured")
    return name


def check_baseline(named: dict[str, T], baseline: str | None) -> str:
    """Return the name of the baseline: the first one if None was given.

    Raises:
        ValueError: There is nothing to compare, or nothing of that name.
    """
    if len(named) < 2:
        raise ValueError("there is only one to compare: keep it under a name, and measure again")
    if baseline is None:
        return next(iter(named))
    if baseline not in named:
        raise ValueError(f"baseline is {baseline!r}; there are: {', '.join(named)}")
    return baseline


def check_kept(kept: Mapping[str, T], name: str) -> None:
    """Raise ValueError if nothing was kept under that name."""
    if name not in kept:
        raise ValueError(f"nothing was kept as {name!r}; kept: {', '.join(kept) or 'nothing'}")


def current_name(kept: dict[str, T], otherwise: str) -> str:
    """Return the name of the current run: `after` if the only kept one is `before`."""
    return "after" if list(kept) == [BEFORE] else otherwise


def drop_named(kept: dict[str, T], name: str | None) -> None:
    """Remove what was kept under a name, or all.

    Raises:
        ValueError: Nothing was kept under that name.
    """
    if name is None:
        kept.clear()
    else:
        check_kept(kept, name)
        del kept[name]
