"""Soak test: write on all pairs for hours; compare the DPU's digest and the bytes read back."""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from .. import html_cards
from ..errors import PeerError
from ..units import plural, size_text
from .dispatch import Dispatcher, Job, Outcome
from .pair_plugin import session_here

if TYPE_CHECKING:
    import pandas

    from .pair_registry import PairRegistry

_SLICE_S = 5.0  # duration of a pair's turn, before the next pair of the machine
_SPARE_S = 60.0  # time to wait for a turn's result beyond its duration


@dataclass(slots=True)
class _PairTotals:
    """Totals of one pair."""

    pair: str
    slices: int = 0
    rounds: int = 0
    bytes: int = 0
    wrong: int = 0
    failures: int = 0
    last_failure: str = ""


@dataclass(frozen=True, slots=True)
class SoakReport:
    """Result of a soak.

    Attributes:
        took_s: Duration in seconds.
        totals: For each pair: turns (slices), rounds of write, digest and read, bytes compared,
            rounds with wrong bytes, and failures with the text of the last failure.
        stopped: Whether Ctrl-C ended it.
    """

    took_s: float
    totals: tuple[_PairTotals, ...]
    stopped: bool = False

    @property
    def ok(self) -> bool:
        """True if every pair completed rounds, without a failure or a wrong byte."""
        return all(each.rounds and not each.wrong and not each.failures for each in self.totals)

    @property
    def table(self) -> pandas.DataFrame:
        """One row for each pair."""
        import pandas as pd

        return pd.DataFrame([asdict(each) for each in self.totals])

    def as_dict(self) -> dict[str, Any]:
        """Return plain values, for JSON."""
        return {
            "took_s": self.took_s,
            "stopped": self.stopped,
            "ok": self.ok,
            "pairs": [asdict(each) for each in self.totals],
        }

    def __repr__(self) -> str:
        moved = size_text(sum(each.bytes for each in self.totals))
        wrong = sum(each.wrong for each in self.totals)
        failed = plural(sum(each.failures for each in self.totals), "failure")
        pairs = plural(len(self.totals), "pair")
        end = ", stopped" if self.stopped else ""
        return f"<SoakReport of {pairs}: {moved} compared, {wrong:,} rounds wrong, {failed}{end}>"

    def _repr_html_(self) -> str:
        header = ("pair", "rounds", "bytes", "wrong", "failures", "last failure")
        rows = [
            (t.pair, t.rounds, size_text(t.bytes), t.wrong, t.failures, t.last_failure)
            for t in sorted(self.totals, key=lambda t: (-t.wrong, -t.failures, t.pair))
        ]
        body = html_cards.table("pairs", header, rows)
        return html_cards.card("fleet soak", [("took", f"{self.took_s:,.0f} s")], body=body)


def soak_here(plugin: str, size: int, seconds: float, seed: int) -> dict[str, int]:
    """Run rounds of write, digest and read on the session of this task's worker, for `seconds`."""
    import numpy as np

    session = session_here(plugin)
    random = np.random.default_rng(seed)
    rounds = wrong = 0
    until = time.monotonic() + seconds
    with session.empty(size, name="soak") as region:
        while not rounds or time.monotonic() < until:
            data = random.bytes(size)
            session.write(region, data)
            digest = session.digest(region)
            same = digest == hashlib.sha256(data).hexdigest() and session.read(region, size) == data
            rounds, wrong = rounds + 1, wrong + (not same)
    return {"rounds": rounds, "wrong": wrong}


def soak(
    registry: PairRegistry,
    pairs: Sequence[str],
    *,
    seconds: float,
    size: int,
    progress: Callable[[float, float], None] | None = None,
) -> SoakReport:
    """Run the soak in turns, one pair of a machine at a time, until the time is over or Ctrl-C."""
    start = time.monotonic()
    totals = {name: _PairTotals(name) for name in pairs}

    def report(*, stopped: bool = False) -> SoakReport:
        return SoakReport(time.monotonic() - start, tuple(totals.values()), stopped)

    try:
        for outcome in _slices(registry, pairs, start, seconds, size):
            _add(totals[outcome.job.pair], outcome, size)
            if progress is not None:
                progress(min(time.monotonic() - start, seconds), seconds)
    except KeyboardInterrupt:
        return report(stopped=True)
    except PeerError as error:
        raise type(error)(f"{error}. Until then: {report()!r}") from error
    return report()


def _slices(
    registry: PairRegistry, pairs: Sequence[str], start: float, seconds: float, size: int
) -> Iterator[Outcome]:
    """Yield the outcome of each turn; each pair has at least one."""
    length = min(_SLICE_S, max(seconds / 2, 0.01))
    for number in itertools.count():
        jobs = [Job(name, soak_here, (registry.plugin, size, length, number)) for name in pairs]
        dispatcher = Dispatcher(registry, jobs, limit_s=length + _SPARE_S)
        with contextlib.closing(dispatcher.outcomes()) as outcomes:
            yield from outcomes
        if time.monotonic() - start >= seconds:
            return


def _add(total: _PairTotals, outcome: Outcome, size: int) -> None:
    total.slices += 1
    if outcome.error is not None:
        total.failures += 1
        total.last_failure = f"{type(outcome.error).__name__}: {outcome.error}"
        return
    total.rounds += outcome.value["rounds"]
    total.wrong += outcome.value["wrong"]
    total.bytes += outcome.value["rounds"] * size
