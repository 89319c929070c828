# SPDX-License-Identifier: Apache-2.0
"""Search through a whole region, chunk by chunk: for a pattern, or where DPU and host differ."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Generator, Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

from ...errors import ClosedError
from ..base import scheduler
from ..base.as_python import region_lines, script
from ..base.panel import handler
from .fetch import Fetch, why_no_dpu, why_no_host
from .matchers import DifferenceMatcher, Matcher, parse_wanted

if TYPE_CHECKING:
    from ...session import SessionRegion
    from ..base.page_input import Json, JsonValue
    from .fetch import Fetch, Reader
    from .selection import RegionSelection

CHUNK = 1 << 20  # bytes searched in one step: a few milliseconds at most
READ_AHEAD = 4  # chunks in flight; a session has as many slots for large data
PROGRESS_S = 0.2  # interval of progress reports


class Match(NamedTuple):
    """The offset of a match, or -1; `wrapped` if the search continued at the other end."""

    at: int
    wrapped: bool


def chunks(
    size: int, start: int, backward: bool, chunk: int = CHUNK
) -> Iterator[tuple[int, int, bool]]:
    """Yield the chunks in which a match may start, in search order.

    Forward: from `start` to the end, then from 0. Backward: down from `start`, then from the end.

    Yields:
        The first offset, the offset after the last, and whether the search has wrapped.
    """
    parts = [(0, start), (start, size)] if backward else [(start, size), (0, start)]
    for wrapped, (low, high) in enumerate(parts):
        if backward:
            for last in range(high, low, -chunk):
                yield max(low, last - chunk), last, bool(wrapped)
        else:
            for first in range(low, high, chunk):
                yield first, min(high, first + chunk), bool(wrapped)


def run_search(
    fetch: Callable[[int, int], Fetch],
    size: int,
    start: int,
    matcher: Matcher,
    *,
    backward: bool = False,
    progress: Callable[[int], None] = lambda _: None,
    chunk: int = CHUNK,
) -> Generator[bool, None, Match]:
    """Search on the frame thread and return the first match.

    Args:
        fetch: Starts a read: fetch(at, size).
        size: The size of the region in bytes.
        start: The offset at which the search starts.
        matcher: Finds a match within one chunk.
        backward: Search towards lower offsets.
        progress: Called with the number of bytes searched, every PROGRESS_S seconds.
        chunk: Bytes per step.
    """
    aligned = size - size % matcher.step
    start = min(start + -start % matcher.step, aligned)
    remaining = chunks(aligned, start, backward, chunk)
    in_flight: deque[tuple[int, int, bool, Fetch]] = deque()
    done, next_report = 0, time.monotonic() + PROGRESS_S
    try:
        while True:
            while len(in_flight) < READ_AHEAD and (span := next(remaining, None)) is not None:
                low = max(0, span[0] - matcher.lead)
                in_flight.append((*span, fetch(low, min(size, span[1] + matcher.tail) - low)))
            if not in_flight:
                return Match(-1, True)
            first, last, wrapped, piece = in_flight[0]
            parts = yield from piece.steps()
            in_flight.popleft()
            index = matcher.find(parts, first - piece.at, last - piece.at, backward)
            if index >= 0:
                return Match(piece.at + index, wrapped)
            done += last - first
            if time.monotonic() >= next_report:
                progress(done)
                next_report = time.monotonic() + PROGRESS_S
            yield True
    finally:
        for *_, piece in in_flight:
            piece.cancel()


_READ = "session.read(region, region.size)"


class SearchTask:
    """Starts and cancels the search of a panel, and reports its state by `send("search", ...)`.

    `state` has `mode` (find, difference, count), `status` (running, found, none, cancelled,
    failed, freed, counted), `length` of a match, `done` and `size` in bytes, and the result: `at`
    and `wrapped`, or `bytes` and `runs`.
    """

    def __init__(
        self, reader: Reader, selection: RegionSelection, sources: Callable[[], Sequence[str]], *,
        send: Callable[..., None], fail: Callable[[Exception], None],
        on_match: Callable[[int, int], None],
    ) -> None:  # fmt: skip
        """Prepare the task without starting a search.

        Args:
            reader: Reads the bytes.
            selection: The region that is searched.
            sources: Returns the sources shown; bytes are searched in the first.
            send: Sends a message to all views.
            fail: Called with an unexpected error.
            on_match: Called on the frame thread with the offset and the size of a match.
        """
        self._reader, self._selection, self._sources = reader, selection, sources
        self._send, self._fail, self._on_match = send, fail, on_match
        self._task: scheduler.Task | None = None
        self._python = ""
        self.state: Json = {}

    @handler
    def search(
        self, text: str, kind: str, start: int, backward: bool = False,
        dtype: str = "hex", endian: str = "little",
    ) -> None:  # fmt: skip
        """Start a search for what parse_wanted() reads in `text`."""
        self.find(parse_wanted(text, kind, dtype, endian), start, backward)

    def find(self, matcher: Matcher, start: int, backward: bool) -> None:
        """Start a search, from an offset or, if that is not in the region, from 0."""
        region, sources = self._selection.require(), self._sources()[:1]
        start = _within(start, region)
        data = _READ if sources[0] == "dpu" else _host(region)
        self._python = script([
            *region_lines(region), f"data = {data}", *matcher.lines(), *_pick(start, backward),
        ])  # fmt: skip
        about = {"mode": "find", "length": matcher.length}
        self._start(about, _Where(region, sources, start, backward), matcher)

    @handler
    def compare(self, start: int, backward: bool = False, count: bool = False) -> None:
        """Start a search for the next difference of DPU and host, or `count` all of them.

        Raises:
            ValueError: The region has no host view or no DPU view to compare.
        """
        region = self._selection.require()
        start = _within(start, region)
        if why := why_no_host(region) or why_no_dpu(region):
            raise ValueError(f"DPU and host cannot be compared. {why}")
        about = {"mode": "count" if count else "difference", "length": 1}
        matcher = DifferenceMatcher(count=count)
        self._python = _compare_lines(region, matcher, start, backward)
        where = _Where(region, ("dpu", "host"), 0 if count else start, backward)
        self._start(about, where, matcher)

    @handler
    def stop(self) -> None:
        """Cancel the search."""
        self.cancel()

    @handler
    def as_python(self) -> dict[str, str]:
        """Return Python code that repeats the last search.

        Raises:
            ValueError: Nothing was searched in this region.
        """
        if not self._python:
            raise ValueError("nothing was searched yet")
        return {"text": self._python}

    def _start(self, about: Json, where: _Where, matcher: Matcher) -> None:
        self.cancel()
        region, sources, start, backward = where

        def fetch(at: int, size: int) -> Fetch:
            return self._reader.start(region, sources, at, size)

        self.state = {**about, "status": "running", "done": 0, "size": region.size}
        steps = run_search(
            fetch, region.size, start, matcher, backward=backward, progress=self._progress
        )
        self._task = scheduler.start(self._run(steps, matcher), self._failed)

    def _run(self, steps: Generator[bool, None, Match], matcher: Matcher) -> scheduler.Steps:
        self._update()
        match = yield from steps
        if isinstance(matcher, DifferenceMatcher) and matcher.counts:
            self._update(status="counted", bytes=matcher.bytes, runs=matcher.runs)
        elif match.at < 0:
            self._update(status="none")
        else:
            about = {"at": match.at, "wrapped": match.wrapped, "length": matcher.length}
            self._update(status="found", **about)
            self._on_match(match.at, self.state["length"])

    def _update(self, **changes: JsonValue) -> None:
        self.state = self.state | changes
        self._send("search", **self.state)

    def _progress(self, done: int) -> None:
        self._update(done=done)

    def _failed(self, error: Exception) -> None:
        if isinstance(error, ClosedError):  # the session also reports the freed region
            self._update(status="freed")
            return
        self._update(status="failed")
        self._fail(error)

    def cancel(self) -> None:
        """Cancel the running search. Idempotent."""
        task, self._task = self._task, None
        if task is not None and not task.done:
            task.cancel()
            if self.state.get("status") == "running":
                self._update(status="cancelled")

    def reset(self) -> None:
        """Cancel the search and discard its result: the region changed or was freed."""
        self.cancel()
        self.state, self._python = {}, ""


class _Where(NamedTuple):
    """Bytes to search, and where to begin."""

    region: SessionRegion
    sources: Sequence[str]
    start: int
    backward: bool


def _within(start: JsonValue, region: SessionRegion) -> int:
    """Return the offset at which a search starts: `start`, or 0 if it is not in the region."""
    return start if type(start) is int and 0 <= start <= region.size else 0


def _host(region: SessionRegion) -> str:
    get = ".get()" if region.place.startswith("cuda") else ""
    return f"region.array{get}.tobytes()"


def _pick(start: int, backward: bool) -> list[str]:
    """Return the lines that choose `at`, the next one of the offsets `found`, or -1."""
    side, index = (f"found < {start}", -1) if backward else (f"found >= {start}", 0)
    return [
        f"wanted = found[{side}] if ({side}).any() else found",
        f"at = int(wanted[{index}]) if len(wanted) else -1",
    ]


def _compare_lines(
    region: SessionRegion, matcher: DifferenceMatcher, start: int, backward: bool
) -> str:
    """Return the lines that compare DPU and host; `at` is the next run of differences, or -1."""
    counted = "print(int(differs.sum()), 'bytes in', len(found), 'places')"
    return script([
        *region_lines(region),
        f'dpu = np.frombuffer({_READ}, "u1")',
        f'host = np.frombuffer({_host(region)}, "u1")',
        *matcher.lines(),
        *([counted] if matcher.counts else _pick(start, backward)),
    ])  # fmt: skip
