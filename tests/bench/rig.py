# SPDX-License-Identifier: Apache-2.0
"""What every measurement here shares: an exporter process, rounds, the floor before and after.

The machines are shared and noisy. So each figure is the median of rounds, each round has its floor
taken right before and right after, and a round in which the two differ by more than 1.5 times is
dropped: the cross-core floor of such machines has states that switch within minutes.
"""

from __future__ import annotations

import contextlib
import gc
import re
import statistics
import subprocess
import sys
import time
import timeit
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent.parent))  # tests, for support

from support import json_lines

import dgkit
from dgkit.dma import measure
from dgkit.report import Machine

RESULTS = Path(__file__).parent / "results"
MOVED = 1.5  # a floor that moved by more than this is no floor

EXPORT = """
import sys, dgkit
size, regions = int(sys.argv[1]), int(sys.argv[2])
memory = dgkit.empty(size)
with dgkit.Device("soft") as device:
    tokens = [device.register(memory) for _ in range(regions)]
    for region in tokens:
        print(region.export().hex(), flush=regions == 1)
    sys.stdout.flush()
    sys.stdin.read()
"""


@contextlib.contextmanager
def exporter(size: int, regions: int = 1) -> Iterator[list[bytes]]:
    """A second process that owns `size` bytes and exports them `regions` times."""
    code = f"import sys; sys.path[:] = {sys.path!r}\n{EXPORT}"
    command = [sys.executable, "-c", code, str(size), str(regions)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        try:
            yield [bytes.fromhex(child.stdout.readline().decode()) for _ in range(regions)]
        finally:
            child.stdin.close()
            child.wait(10)


def per_call(call: Callable[[], Any], calls: int) -> float:
    """Mean ns of one call in a tight loop of `calls`, with the garbage collector off."""
    each = [None] * calls
    enabled = gc.isenabled()
    gc.disable()
    try:
        start = time.perf_counter_ns()
        for _ in each:
            call()
        return (time.perf_counter_ns() - start) / calls
    finally:
        if enabled:
            gc.enable()


def median_call(call: Callable[[], Any], calls: int = 2000, blocks: int = 15) -> float:
    """Median ns of one call over `blocks` tight loops."""
    per_call(call, calls)
    return statistics.median(per_call(call, calls) for _ in range(blocks))


def statement_ns(statement: str, names: Mapping[str, Any], calls: int = 2000) -> float:
    """Median ns of a statement in a loop, without the call of a function around it."""
    timer = timeit.Timer(statement, globals=dict(names))
    timer.timeit(calls)
    return statistics.median(timer.repeat(9, calls)) * 1e9 / calls


def floor_ns(size: int, *, handoff: bool, count: int = 3000) -> float:
    """The floor now: median ns of a hand-off between two threads, or of one memcpy."""
    return statistics.median(measure.floor(size, count, handoff))


@dataclass
class Figure:
    """One row: the median of the rounds that counted, and what it is held against."""

    what: str
    unit: str
    value: float | None
    reach: str
    met: bool | None
    against: str = ""
    reference: float | None = None
    rounds: list[float] = field(default_factory=list)
    references: list[float] = field(default_factory=list)
    dropped: int = 0
    ratio: float | None = None  # measured / to reach, where that is a multiple of another figure


def reached(reach: str, unit: str, value: float, reference: float) -> bool:
    """Whether a value is as `reach` says; of times less is better, of rates more.

    "published": any; "200 ns": that figure; "1.15 x idle": so many times the reference; "idle +
    200 ns": so much more than the reference; both: "2 x the floor + 1,000 ns".
    """
    if reach == "published":
        return True
    factor, more = re.match(r"([\d.]+) x ", reach), re.search(r"\+ ([\d.,]+) ", reach)
    if factor or more:
        limit = reference * float(factor[1] if factor else 1)
        limit += float(more[1].replace(",", "")) if more else 0
    else:
        limit = float(reach.partition(" ")[0].replace(",", ""))
    return value <= limit if unit in ("ns", "us", "ms") else value >= limit


@dataclass
class Rounds:
    """Values with the reference taken beside each."""

    values: list[float] = field(default_factory=list)
    references: list[float] = field(default_factory=list)
    dropped: int = 0

    def add(self, value: Callable[[], float], reference: Callable[[], float]) -> None:
        """One round: the reference, the value, the reference again."""
        before = reference()
        found = value()
        after = reference()
        if max(before, after) > MOVED * min(before, after):
            self.dropped += 1
            return
        self.values.append(found)
        self.references.append(statistics.median((before, after)))

    def figure(self, what: str, unit: str, reach: str, against: str) -> Figure:
        """The row. No round that counted: no value, and the reach is not met."""
        if not self.values:
            return Figure(what, unit, None, reach, None, against, dropped=self.dropped)
        value, reference = statistics.median(self.values), statistics.median(self.references)
        verdict = statistics.median(
            [reached(reach, unit, *one) for one in zip(self.values, self.references, strict=True)]
        )
        return Figure(
            what,
            unit,
            value,
            reach,
            verdict >= 0.5,
            against,
            reference,
            self.values,
            self.references,
            self.dropped,
        )


def rounds(value: Callable[[], float], reference: Callable[[], float], count: int = 7) -> Rounds:
    """`count` rounds."""
    taken = Rounds()
    for _ in range(count):
        taken.add(value, reference)
    return taken


Taken = dict[str, float]  # by the name of what was measured


def interleaved(
    measures: Mapping[str, Callable[[], float]], floor: Callable[[], float], count: int = 9
) -> tuple[list[Taken], int]:
    """`count` rounds in which each thing is measured in turn, and the rounds that were dropped.

    The floor, as "floor" the median of before and after, is part of each round.
    """
    kept = []
    for _ in range(count):
        before = floor()
        found = {name: measure() for name, measure in measures.items()}
        after = floor()
        if max(before, after) <= MOVED * min(before, after):
            kept.append(found | {"floor": statistics.median((before, after))})
    return kept, count - len(kept)


def ratio_figure(
    what: str,
    unit: str,
    taken: tuple[list[Taken], int],
    *,
    value: str,
    limit: Callable[[Taken], float],
    reach: str,
    against: str,
    most: bool,
) -> Figure:
    """The row of `value` against a limit made of what was measured in the same round.

    Args:
        what: The row's name.
        unit: Of the value.
        taken: From interleaved().
        value: Name of the measured thing.
        limit: The figure to reach, from one round.
        reach: The limit in words.
        against: What the limit is made of, in words.
        most: The value should be at most the limit; if False, at least.
    """
    kept, dropped = taken
    if not kept:
        return Figure(what, unit, None, reach, None, against, dropped=dropped)
    values, limits = [each[value] for each in kept], [limit(each) for each in kept]
    ratio = statistics.median(v / base for v, base in zip(values, limits, strict=True))
    return Figure(
        what, unit, statistics.median(values), reach, ratio <= 1 if most else ratio >= 1, against,
        statistics.median(limits), values, limits, dropped, ratio,
    )  # fmt: skip


def save(path: Path, figures: list[Figure], **about: Any) -> None:
    """The figures as JSON, with the machine, the versions and the command."""
    document = {
        "machine": asdict(Machine.here(cpus=dgkit.dma.cpus())),
        "python": sys.version,
        "dgkit": dgkit.__version__,
        "provider": "soft (software DPU)",
        "command": " ".join(["python", *(Path(word).name for word in sys.argv)]),
        **about,
        "figures": [asdict(figure) for figure in figures],
    }
    json_lines.write(path, document)
