"""A sweep over the pairs of a fleet: its plan, its rows, its end."""

from __future__ import annotations

import contextlib
import itertools
import threading
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .. import html_cards
from ..errors import DgkitError, PeerLost
from ..units import parse_size, plural, size_text, us
from ..validate import real, whole
from .dispatch import Dispatcher, Job, Outcome
from .heat_map import heat_map, slowness
from .pair_measurement import measure
from .part_files import PartFiles
from .row_table import RowTable, as_table

if TYPE_CHECKING:
    import pandas

    from .pair_registry import PairRegistry

__all__ = ["Failure", "Plan", "Sweep", "row_name"]

_STRAGGLER = ("pair", "op", "path", "size", "p50 µs", "GB/s", "z latency", "z rate")
_OPS, _PATHS = ("write", "read"), ("auto", "inline", "worker")
_WRITERS = 4  # of files, each of which waits for the disk
_SPARE_S = 60.0  # for a pair's answer, beyond what the plan says
_PER_SIZE_S = 2.0  # for latency and floors of one size
_MOST_BYTES = 1 << 40  # of a transfer: more than any machine has, so a size of more is an error
_MOST_S = 1_000_000  # of a limit


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """Sizes, ops and paths of a sweep, for each pair; arguments as Fleet.sweep()."""

    sizes: tuple[int, ...]
    ops: tuple[str, ...]
    paths: tuple[str, ...]
    on: str
    count: int
    seconds: float

    @classmethod
    def of(
        cls,
        sizes: Sequence[int | str],
        ops: Sequence[str],
        paths: Sequence[str],
        *,
        on: str,
        count: int,
        seconds: float,
    ) -> Plan:
        """Return the plan after checking the arguments.

        Raises:
            TypeError, ValueError: An argument is wrong; the message names it.
        """
        seconds = real("seconds", seconds, 0.001, 3600)
        if not isinstance(on, str):
            raise TypeError(f"on is {on!r}; it must be a text")
        if not 1 <= (count := whole("count", count)) <= 1_000_000:
            raise ValueError(f"count is {count}; it must be 1 to 1,000,000")
        return cls(
            sizes=_distinct("sizes", sizes, _size),
            ops=_distinct("ops", ops, lambda op: _choice("ops", op, _OPS)),
            paths=_distinct("paths", paths, lambda path: _choice("paths", path, _PATHS)),
            on=on, count=count, seconds=seconds,
        )  # fmt: skip

    def as_dict(self) -> dict[str, Any]:
        """Return plain values, as after JSON."""
        return {
            "sizes": list(self.sizes), "ops": list(self.ops), "paths": list(self.paths),
            "on": self.on, "count": self.count, "seconds": self.seconds,
        }  # fmt: skip

    @property
    def limit_s(self) -> float:
        """Seconds after which the answer for one op and path is not waited for."""
        return _SPARE_S + len(self.sizes) * (_PER_SIZE_S + 2 * self.seconds)


def _distinct(name: str, given: Sequence[Any], parse: Callable[[Any], Any]) -> tuple[Any, ...]:
    listed = isinstance(given, Iterable) and not isinstance(given, (str, bytes))
    found = tuple(dict.fromkeys(parse(each) for each in given)) if listed else ()
    if not found:
        raise ValueError(f"{name} is {given!r}; it must be a list of at least one")
    return found


def _plain(value: Any) -> Any:
    """Return a cell of a table as JSON has it: nan, which is no number of JSON, is null."""
    return None if value != value else value


def _size(size: int | str) -> int:
    number = parse_size(size) if isinstance(size, str) else whole("size", size, 1)
    if number > _MOST_BYTES:
        raise ValueError(f"size is {size}; the limit is {size_text(_MOST_BYTES)}")
    return number


def _choice(name: str, word: object, words: Sequence[str]) -> str:
    if word not in words:
        raise ValueError(f"{name} has {word!r}; it must be one of {', '.join(words)}")
    return str(word)


@dataclass(frozen=True, slots=True)
class Failure:
    """A pair, op and path without rows, and why."""

    pair: str
    op: str
    path: str
    why: str


def _straggler(row: Any) -> tuple[str, ...]:
    return (
        row.pair, row.op, row.requested_path, size_text(row.size), us(row.p50_ns),
        f"{row.gb_per_s:,.2f}", f"{row.slow_latency:.1f}", f"{row.slow_rate:.1f}",
    )  # fmt: skip


def row_name(pair: str, partner: str) -> str:
    """Return the name of a row: of a pair, or of its host with the DPU of another one."""
    return f"{pair} with {partner}" if partner else pair


class Sweep:
    """A sweep that runs or has ended. Its rows can be read at any time.

    Attributes:
        plan: What is measured of each pair.
        total: Number of rows when it is complete.
    """

    def __init__(
        self,
        registry: PairRegistry,
        plan: Plan,
        pairs: Sequence[tuple[str, str]],
        *,
        folder: str | PathLike[str] | None,
        resume: bool,
        limit_s: float | None,
        rejoin_s: float,
    ) -> None:
        self.plan = plan
        self._registry = registry
        limit_s = real("limit", plan.limit_s if limit_s is None else limit_s, 0.001, _MOST_S)
        rejoin_s = real("rejoin", rejoin_s, 0, _MOST_S)
        self._folder = Path(folder) if folder is not None else None
        if resume and self._folder is None:
            raise ValueError("resume needs the folder of the sweep")
        self._files = (
            PartFiles(self._folder, plan.as_dict(), resume=resume) if self._folder else None
        )
        try:
            self._rows = RowTable() if self._files is None else self._files.read()
        except BaseException:
            self._close_files()
            raise
        self._failures: list[Failure] = []
        self._lock = threading.Lock()
        self._changed = threading.Condition(self._lock)
        self._ended = False
        self._error: BaseException | None = None
        self._pairs = tuple(itertools.starmap(row_name, pairs))
        self._workers = tuple(dict.fromkeys(pair for pair, _ in pairs))
        jobs = self._jobs(pairs)
        self.total = self.rows + len(jobs) * len(plan.sizes)
        self._dispatcher = Dispatcher(registry, jobs, limit_s=limit_s, rejoin_s=rejoin_s)
        self._thread = threading.Thread(target=self._run, name="dgkit-fleet-sweep", daemon=True)
        self._thread.start()

    def _jobs(self, pairs: Sequence[tuple[str, str]]) -> list[Job]:
        """Return the jobs for what is not in the folder."""
        jobs = []
        plan, plugin = self.plan, self._registry.plugin
        how = (plan.sizes, plan.on, plan.count, plan.seconds)
        for (pair, partner), op, path in itertools.product(pairs, plan.ops, plan.paths):
            name = row_name(pair, partner)
            if self._files is None or not self._files.path(name, op, path).exists():
                agent = self._registry.by_name[partner].agent if partner else ""
                arguments = (plugin, agent, op, path, *how)
                jobs.append(Job(pair, measure, arguments, (name, op, path), partner))
        return jobs

    def _run(self) -> None:
        try:
            with (
                ThreadPoolExecutor(_WRITERS, "dgkit-fleet-rows") as writers,
                contextlib.closing(self._dispatcher.outcomes()) as outcomes,
            ):
                taken: deque[Future[None]] = deque()
                for outcome in outcomes:
                    taken.append(writers.submit(self._take, outcome))
                    while taken and taken[0].done():
                        taken.popleft().result()
                for each in taken:
                    each.result()
        except BaseException as error:  # raised by wait()
            self._error = error
        finally:
            self._close_files()
            with self._changed:
                self._ended = True
                self._changed.notify_all()

    def _close_files(self) -> None:
        if self._files is not None:
            self._files.close()

    def _take(self, outcome: Outcome) -> None:
        """Keep the rows of a job, in the folder first."""
        name, op, path = outcome.job.key
        if outcome.error is not None:
            why = f"{type(outcome.error).__name__}: {outcome.error}"
            with self._changed:
                self._failures.append(Failure(name, op, path, why))
                self._changed.notify_all()
            return
        pair = self._registry.by_name.get(outcome.job.pair)
        known = {
            "pair": name,
            "host": pair.host if pair else "",
            "dgkit": pair.dgkit if pair else "",
        }
        rows = as_table([known | row for row in outcome.value])
        if self._files is not None:
            self._files.write(self._files.path(name, op, path), rows)
        with self._changed:
            self._rows.append(rows)
            self._changed.notify_all()

    @property
    def done(self) -> bool:
        """True if it has ended, by itself, by stop() or by an error."""
        return self._ended

    @property
    def rows(self) -> int:
        """Number of rows that are there."""
        with self._lock:
            return len(self._rows)

    @property
    def failures(self) -> tuple[Failure, ...]:
        """The pairs, ops and paths without rows, and why."""
        with self._lock:
            return tuple(self._failures)

    @property
    def table(self) -> pandas.DataFrame:
        """The rows that are there, sorted, with stragglers marked; the values are read-only."""
        with self._lock:
            return self._rows.frame()

    @property
    def stragglers(self) -> pandas.DataFrame:
        """The rows that are slower than those of the other pairs, the slowest first."""
        frame = self.table
        worst = frame[["slow_latency", "slow_rate"]].max(axis=1)
        return frame[frame["straggler"]].loc[
            lambda rows: worst[rows.index].sort_values().index[::-1]
        ]

    @property
    def summary(self) -> pandas.DataFrame:
        """A row for each op, path and size: the median pair, the slowest, and the floors.

        `floors_moved` counts the pairs whose floor was not steady while they were measured.
        """
        frame = self.table
        groups = frame.groupby(["op", "requested_path", "size"], observed=True, sort=True)
        columns = {
            "pairs": groups["pair"].size(),
            "p50_ns": groups["p50_ns"].median(),
            "worst_p50_ns": groups["p50_ns"].max(),
            "floor_ns": groups["floor_ns"].median(),
            "gb_per_s": groups["gb_per_s"].median(),
            "worst_gb_per_s": groups["gb_per_s"].min(),
            "floor_gb_per_s": groups["floor_gb_per_s"].median(),
            "stragglers": groups["straggler"].sum(),
            "floors_moved": groups["floor_moved"].sum(),
        }
        return type(frame)(columns).reset_index()

    @property
    def labels(self) -> tuple[str, ...]:
        """Providers of the bytes: `software DPU`, `hardware`, sorted."""
        pairs = (self._registry.by_name.get(name) for name in self._workers)
        return tuple(sorted({pair.label for pair in pairs if pair and pair.label}))

    def cells(self, figure: str = "p50_ns") -> pandas.DataFrame:
        """Return how many times as slow as the median of all pairs each pair is.

        A row for each pair of the plan, a column for each op, path and size; nan is not there yet.

        Args:
            figure: "p50_ns" or "gb_per_s".

        Raises:
            ValueError: There is no such figure.
        """
        import pandas as pd

        found = slowness(self.table, figure)
        plan = self.plan
        kinds = pd.MultiIndex.from_product([plan.ops, plan.paths, plan.sizes])
        return found.reindex(index=list(dict.fromkeys((*self._pairs, *found.index))), columns=kinds)

    def heat_map(self, figure: str = "p50_ns") -> html_cards.Html:
        """Return the rows that are there as HTML, each pair against the median of all.

        Args:
            figure: "p50_ns" or "gb_per_s".

        Raises:
            ValueError: There is no such figure.
        """
        return heat_map(self.table, figure)

    def as_dict(self) -> dict[str, Any]:
        """Return the plan, the rows and the failures as plain values, for JSON."""
        from dataclasses import asdict

        frame = self.table
        for name in frame.select_dtypes("float32"):
            frame[name] = frame[name].astype(str).astype(float)  # the digits that it has
        rows = frame.astype(object).to_dict("records")
        return {
            "plan": self.plan.as_dict(),
            "rows": [{key: _plain(value) for key, value in row.items()} for row in rows],
            "failures": [asdict(failure) for failure in self.failures],
        }

    def stop(self, timeout: float | None = 60.0) -> None:
        """Start nothing more, and wait for what runs, at most `timeout` seconds. Idempotent."""
        self._dispatcher.stop()
        self._thread.join(timeout)

    def wait(
        self,
        timeout: float | None = None,
        progress: Callable[[int, int], None] | None = None,
    ) -> bool:
        """Wait until it has ended; return whether it has.

        Args:
            timeout: Seconds; None waits without a limit.
            progress: Called with the number of rows that are there, and of all, in this thread.

        Raises:
            PeerLost: The scheduler is lost, or has restarted.
            OSError: A file could not be written.
        """
        import time

        until = None if timeout is None else time.monotonic() + timeout
        seen = -1
        while True:
            with self._changed:
                ended = self._ended
                left = 0.5 if until is None else min(0.5, until - time.monotonic())
                if not ended and left > 0:
                    self._changed.wait(left)
                    ended = self._ended
            if progress is not None and self.rows != seen:
                seen = self.rows
                progress(seen, self.total)
            if ended:
                break
            if until is not None and time.monotonic() >= until:
                return False
        self._raise()
        return True

    def _raise(self) -> None:
        error = self._error
        if error is None:
            return
        if isinstance(error, DgkitError) and self._folder is not None:
            raise PeerLost(
                f"{error}. {plural(self.rows, 'row')} of {self.total} are in {self._folder}: "
                "resume=True (`--resume`) goes on from there"
            ) from error
        raise error

    def _line(self) -> str:
        state = "ended" if self._ended else "running"
        failed = f", {plural(len(self.failures), 'failure')}" if self.failures else ""
        return f"{self.rows:,} of {plural(self.total, 'row')}{failed}, {state}"

    def __repr__(self) -> str:
        return f"<Sweep: {self._line()}>"

    def _repr_html_(self) -> str:
        plan = self.plan
        sizes = ", ".join(map(size_text, plan.sizes))
        rows = [("rows", self._line()), ("by", ", ".join(self.labels))]
        rows += [("sizes", sizes), ("ops", ", ".join(plan.ops))]
        rows += [(f.pair, f"{f.op}, {f.path}: {f.why}") for f in self.failures[:20]]
        body = self.heat_map() if self.rows else ""
        if len(slow := self.stragglers.head(20)):
            body += html_cards.table("stragglers", _STRAGGLER, map(_straggler, slow.itertuples()))
        return html_cards.card("fleet sweep", rows, body=html_cards.Html(body))
