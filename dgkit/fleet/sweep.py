# SPDX-License-Identifier: Apache-2.0
"""A sweep over the pairs of a fleet: options, plan, and the running sweep with its rows."""

from __future__ import annotations

import contextlib
import itertools
import threading
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import KW_ONLY, dataclass
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .. import html_cards
from ..errors import DgkitError, PeerLost
from ..threads import starting
from ..units import plural, size_text, us
from ..validate import byte_count, real, whole
from .dispatch import Dispatcher, Job, Outcome
from .pair_measurement import measure
from .part_files import PartFiles
from .row_table import RowTable, as_table
from .stragglers import slowness

if TYPE_CHECKING:
    import pandas

    from .pair_registry import PairRegistry

_STRAGGLER = ("pair", "op", "path", "size", "p50 µs", "GB/s", "z latency", "z rate")
_OPS, _PATHS = ("write", "read"), ("auto", "inline", "worker")
_WRITERS = 4  # threads that write files, each waiting for the disk
_SPARE_S = 60.0  # time to wait for a pair's result beyond the planned duration
_PER_SIZE_S = 2.0  # planned duration of latency and floors of one size
_MOST_BYTES = 1 << 40  # largest size of a transfer: more memory than any machine has
_MOST_S = 1_000_000  # largest accepted limit


@dataclass(frozen=True, slots=True)
class SweepOptions:
    """Options of Fleet.sweep() and Fleet.start_sweep().

    Attributes:
        sizes: Sizes of a transfer in bytes, as numbers or texts such as "64K".
        ops: "write" and "read", seen from the DPU.
        paths: "auto", "inline", "worker".
        pairs: "own": each worker with its own DPU; "all": also with the agents of all other
            pairs, in rows such as `node1/0 with node2/0`; or names of some pairs.
        on: Where the regions are, as for Session.empty().
        count: Samples of a latency; fewer for large sizes.
        seconds: Duration of each measurement of a rate.
        folder: Folder for Parquet files, one for each pair, op and path; created if missing.
        resume: Continue from the files in the folder, which the same sweep must have written.
        limit: Seconds to wait for a pair's result of one op and path; None derives it from the
            sizes and `seconds`.
        rejoin: Seconds within which a lost worker, or a DPU that reboots, has to come back.
    """

    sizes: Sequence[int | str] = ("64", "4K", "64K", "1M")
    ops: Sequence[str] = _OPS
    paths: Sequence[str] = ("auto",)
    pairs: str | Sequence[str] = "own"
    _: KW_ONLY
    on: str = "host"
    count: int = 10_000
    seconds: float = 0.2
    folder: str | PathLike[str] | None = None
    resume: bool = False
    limit: float | None = None
    rejoin: float = 30.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """Measurements that a sweep performs on each pair; stored in the sweep's folder."""

    sizes: tuple[int, ...]
    ops: tuple[str, ...]
    paths: tuple[str, ...]
    on: str
    count: int
    seconds: float

    @classmethod
    def of(cls, options: SweepOptions) -> Plan:
        """Return the plan after checking the options.

        Raises:
            TypeError, ValueError: An option is wrong; the message names it.
        """
        seconds = real("seconds", options.seconds, 0.001, 3600)
        if not isinstance(options.on, str):
            raise TypeError(f"on is {options.on!r}; it must be a text")
        if not 1 <= (count := whole("count", options.count)) <= 1_000_000:
            raise ValueError(f"count is {count}; it must be 1 to 1,000,000")
        return cls(
            sizes=_parse_distinct("sizes", options.sizes, _parse_size),
            ops=_parse_distinct("ops", options.ops, lambda op: _choice("ops", op, _OPS)),
            paths=_parse_distinct("paths", options.paths, lambda p: _choice("paths", p, _PATHS)),
            on=options.on, count=count, seconds=seconds,
        )  # fmt: skip

    def as_dict(self) -> dict[str, Any]:
        """Return plain values that compare equal to themselves after a round trip through JSON."""
        return {
            "sizes": list(self.sizes), "ops": list(self.ops), "paths": list(self.paths),
            "on": self.on, "count": self.count, "seconds": self.seconds,
        }  # fmt: skip

    @property
    def limit_s(self) -> float:
        """Seconds to wait for a pair's result of one op and path."""
        return _SPARE_S + len(self.sizes) * (_PER_SIZE_S + 2 * self.seconds)


def _parse_distinct(
    name: str, given: Sequence[Any], parse: Callable[[Any], Any]
) -> tuple[Any, ...]:
    listed = isinstance(given, Iterable) and not isinstance(given, (str, bytes))
    found = tuple(dict.fromkeys(parse(each) for each in given)) if listed else ()
    if not found:
        raise ValueError(f"{name} is {given!r}; it must be a list of at least one")
    return found


def _plain(value: Any) -> Any:
    """Return a table's cell for JSON; replace NaN, which JSON does not have, by None."""
    return None if value != value else value


def _parse_size(size: int | str) -> int:
    number = byte_count("size", size, 1)
    if number > _MOST_BYTES:
        raise ValueError(f"size is {size}; the limit is {size_text(_MOST_BYTES)}")
    return number


def _choice(name: str, word: object, words: Sequence[str]) -> str:
    if word not in words:
        raise ValueError(f"{name} has {word!r}; it must be one of {', '.join(words)}")
    return str(word)


@dataclass(frozen=True, slots=True)
class Failure:
    """A pair, op and path without rows, and the reason."""

    pair: str
    op: str
    path: str
    why: str


def _straggler_reasons(row: Any) -> tuple[str, ...]:
    return (
        row.pair, row.op, row.requested_path, size_text(row.size), us(row.p50_ns),
        f"{row.gb_per_s:,.2f}", f"{row.slow_latency:.1f}", f"{row.slow_rate:.1f}",
    )  # fmt: skip


def row_name(pair: str, partner: str) -> str:
    """Return the name in a row: a pair's name, or `A with B` for a host with B's DPU."""
    return f"{pair} with {partner}" if partner else pair


class Sweep:
    """A running or finished sweep. Its rows can be read at any time.

    Attributes:
        plan: Measurements performed on each pair.
        total: Number of rows of the complete sweep.
    """

    def __init__(
        self, registry: PairRegistry, pairs: Sequence[tuple[str, str]], options: SweepOptions
    ) -> None:
        self.plan = plan = Plan.of(options)
        self._registry = registry
        limit = plan.limit_s if options.limit is None else options.limit
        limit_s = real("limit", limit, 0.001, _MOST_S)
        rejoin_s = real("rejoin", options.rejoin, 0, _MOST_S)
        self._folder = Path(options.folder) if options.folder is not None else None
        self._files: PartFiles | None = None
        if self._folder is not None:
            self._files = PartFiles(self._folder, plan.as_dict(), resume=options.resume)
        elif options.resume:
            raise ValueError("resume needs the folder of the sweep")
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
        with starting("a sweep"):
            self._thread.start()

    def _jobs(self, pairs: Sequence[tuple[str, str]]) -> list[Job]:
        """Return a job for each pair, op and path without a file in the folder."""
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
        try:
            self._close_files()
        except BaseException as error:
            self._error = self._error or error
        with self._changed:
            self._ended = True
            self._changed.notify_all()

    def _close_files(self) -> None:
        if self._files is not None:
            self._files.close()

    def _take(self, outcome: Outcome) -> None:
        """Store the rows of a job: in the folder, then in memory."""
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
        """True once the sweep has ended: completed, stopped or failed."""
        return self._ended

    @property
    def rows(self) -> int:
        """Number of rows measured so far."""
        with self._lock:
            return len(self._rows)

    @property
    def failures(self) -> tuple[Failure, ...]:
        """The pairs, ops and paths without rows, with the reasons."""
        with self._lock:
            return tuple(self._failures)

    @property
    def table(self) -> pandas.DataFrame:
        """The rows measured so far, sorted, with stragglers marked; the values are read-only."""
        with self._lock:
            return self._rows.frame()

    @property
    def stragglers(self) -> pandas.DataFrame:
        """The rows of pairs that are slower than the others, slowest first."""
        frame = self.table
        worst = frame[["slow_latency", "slow_rate"]].max(axis=1)
        return frame[frame["straggler"]].loc[
            lambda rows: worst[rows.index].sort_values().index[::-1]
        ]

    @property
    def summary(self) -> pandas.DataFrame:
        """One row for each op, path and size: median pair, slowest pair, and floors.

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
        """Labels of the providers that move the bytes, `software DPU` or `hardware`, sorted."""
        pairs = (self._registry.by_name.get(name) for name in self._workers)
        return tuple(sorted({pair.label for pair in pairs if pair and pair.label}))

    def cells(self, figure: str = "p50_ns") -> pandas.DataFrame:
        """Return each pair's slowness relative to the median of all pairs; above 1 is slower.

        One row for each pair of the sweep, one column for each op, path and size; NaN where nothing
        was measured yet.

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

    def as_dict(self) -> dict[str, Any]:
        """Return the plan, the rows and the failures as plain values, for JSON."""
        from dataclasses import asdict

        frame = self.table
        for name in frame.select_dtypes("float32"):
            # through text, so that JSON shows no more digits than float32 has
            frame[name] = frame[name].astype(str).astype(float)
        rows = frame.astype(object).to_dict("records")
        return {
            "plan": self.plan.as_dict(),
            "rows": [{key: _plain(value) for key, value in row.items()} for row in rows],
            "failures": [asdict(failure) for failure in self.failures],
        }

    def stop(self, timeout: float | None = 60.0) -> None:
        """Stop starting jobs, and wait up to `timeout` s for the running ones. Idempotent."""
        self._dispatcher.stop()
        self._thread.join(timeout)

    def wait(
        self,
        timeout: float | None = None,
        progress: Callable[[int, int], None] | None = None,
    ) -> bool:
        """Wait for the end of the sweep; return False if `timeout` passed first.

        Args:
            timeout: Seconds; None waits without a limit.
            progress: Called in this thread with the number of rows measured so far, and the total.

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
                "resume=True (`--resume`) continues from there"
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
        body = ""
        if len(slow := self.stragglers.head(20)):
            body += html_cards.table(
                "stragglers", _STRAGGLER, map(_straggler_reasons, slow.itertuples())
            )
        return html_cards.card("fleet sweep", rows, body=html_cards.Html(body))
