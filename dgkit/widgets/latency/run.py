"""A run of a LatencyPlot: what is measured, and what came of it."""

from __future__ import annotations

from copy import deepcopy
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from ...errors import PeerError
from ...html_cards import provider_label
from ...report import LatencyReport, Machine
from ...types import DOCA, MIXED
from ...units import size_text
from .history import History

__all__ = ["Run", "What"]


@dataclass(frozen=True, slots=True)
class What:
    """What one run measures. Figures of two of them are never mixed."""

    size: int
    op: str
    path: str
    provider: str
    machine: Machine
    where: str
    spinning: bool
    count: int
    every_s: float

    @classmethod
    def of(cls, monitor: Any) -> What:
        """What an open monitor measures."""
        taken = monitor.size, monitor.op, monitor.path, monitor.provider, monitor.machine
        return cls(*taken, monitor.where, monitor.spinning, monitor.count, monitor.every_s)

    @property
    def label(self) -> str:
        """`software DPU` unless the provider is hardware, as a report of it says."""
        return provider_label(self.machine.mover(self.provider))

    @property
    def how(self) -> str:
        """Which path, and by whom."""
        if self.path != "worker":
            return f"{'inline and worker' if self.path == MIXED else self.path} path"
        if self.provider == "cuda":
            return "copy engine" if self.machine.engine else "copied by the CPU"
        if self.provider in DOCA:
            return "DMA tasks"
        return f"worker path ({'spinning' if self.spinning else 'sleeping'})"

    @property
    def words(self) -> str:
        """In a legend: `write 64 B, inline path`."""
        return f"{self.op} {size_text(self.size)}, {self.how}"

    @property
    def taken(self) -> str:
        """How often it was to be measured; how often it was, the history knows."""
        return f"asked for {self.count:,} samples every {self.every_s * 1000:g} ms"

    def state(self) -> dict[str, str]:
        """For a view."""
        return {
            "words": self.words, "label": self.label, "provider": self.provider,
            "where": self.where, "machine": str(self.machine), "taken": self.taken,
        }  # fmt: skip


@dataclass(slots=True)
class Run:
    """What was measured of one thing, from its first start to its last stop."""

    number: int
    what: What
    history: History = field(default_factory=History)
    _next: int = 0

    def resume(self) -> None:
        """A new monitor: it numbers its blocks from 0, and what was between is a gap."""
        self._next = 0
        self.history.gap()

    def follow(self, before: Run) -> None:
        """The same monitor goes on: its next block is not the first."""
        self._next = before._next

    def take(self, blocks: Any) -> bool:
        """Blocks in the order they came; a number that is missing is a gap.

        True: they went another path than those before, and `what` says that now. PeerError: they
        are of something else than was asked for.
        """
        before = self.what
        for block in blocks:
            self._compare(block)
            if block.number > self._next:
                self.history.gap(lost=block.number - self._next)
            self._next = block.number + 1
            self.history.add(block.t_ns, np.frombuffer(block.samples, np.uint64))
        return self.what is not before

    def _compare(self, block: Any) -> None:
        what = self.what
        if (block.provider, block.op, block.size) != (what.provider, what.op, what.size):
            raise PeerError(
                f"samples of a {block.op} of {block.size} bytes by {block.provider} came, and a "
                f"{what.op} of {what.size} bytes by {what.provider} was asked for"
            )
        if what.path not in (block.path, MIXED):
            self.what = replace(what, path=MIXED)

    def copy(self) -> Run:
        """As it is now: for who reads it while samples come."""
        return replace(self, history=deepcopy(self.history))

    def report(self) -> LatencyReport:
        """On the last samples, at most 1,000,000; `where` says how many that are of how many.

        ValueError: nothing was measured yet.
        """
        samples, what, took = np.sort(self.history.tail.all()), self.what, self.history
        if not len(samples):
            raise ValueError("nothing was measured yet: start() the plot first")
        kept = f"the last {len(samples):,} of" if len(samples) < took.samples else "all"
        about = f"{kept} {took.samples:,} samples of {took.seconds:,.0f} s, {what.taken}"
        about += f", measured {took.rate:,.0f} a second" if took.rate else ""
        lost = f", {took.lost:,} blocks lost" if took.lost else ""
        return LatencyReport.of(
            samples.tolist(), size=what.size, op=what.op, provider=what.provider, path=what.path,
            floor_ns=(), machine=what.machine, spinning=what.spinning,
            where=f"{what.where}; {about}{lost}",
        )  # fmt: skip

    def state(self) -> dict[str, Any]:
        """For a view."""
        about = self.history.counted()
        figures = self.history.figures()
        return {**self.what.state(), **about, "number": self.number, "figures": figures}

    def spread(self) -> list[bytes]:
        """The histogram and the percentile curve, as rows of float64."""
        return [self.history.histogram().tobytes(), self.history.curve().tobytes()]
