"""The one search of a hex view that runs at a time, on the frame thread."""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from ...errors import ClosedError
from ..base import scheduler
from ..base.as_python import bytes_expression, region_lines, script
from ..base.panel import handler
from .fetch import why_no_dpu, why_no_host
from .search import DifferenceMatcher, Match, Matcher, PatternMatcher, parse_pattern, run_search

if TYPE_CHECKING:
    from ...session import SessionRegion
    from .fetch import Fetch, Reader
    from .selection import RegionSelection

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
        self.state: dict[str, Any] = {}

    @handler
    def search(self, text: str, kind: str, start: int, backward: bool = False) -> None:
        """Start a search for `text`, which is `hex` or `text`."""
        self.find(parse_pattern(text, kind), start, backward)

    def find(self, pattern: bytes, start: int, backward: bool) -> None:
        """Start a search for bytes, from an offset or, if that is not in the region, from 0."""
        region, sources = self._selection.require(), self._sources()[:1]
        start = _within(start, region)
        about = {"mode": "find", "length": len(pattern)}
        self._python = _find_lines(region, sources[0], pattern, start, backward)
        self._start(about, _Where(region, sources, start, backward), PatternMatcher(pattern))

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
        self._python = _compare_lines(region, start, backward, count)
        where = _Where(region, ("dpu", "host"), 0 if count else start, backward)
        self._start(about, where, DifferenceMatcher(count=count))

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

    def _start(self, about: dict[str, Any], where: _Where, matcher: Matcher) -> None:
        self.cancel()
        region, sources, start, backward = where

        def fetch(at: int, size: int) -> Fetch:
            return self._reader.start(region, sources, at, size)

        self.state = {**about, "status": "running", "done": 0, "size": region.size}
        steps = run_search(
            fetch, region.size, start, matcher, backward=backward, progress=self._progress
        )
        self._task = scheduler.start(self._run(steps, matcher), self._failed)

    def _run(
        self, steps: Generator[bool, None, Match], matcher: Matcher
    ) -> Generator[bool, None, None]:
        self._update()
        match = yield from steps
        if isinstance(matcher, DifferenceMatcher) and self.state["mode"] == "count":
            self._update(status="counted", bytes=matcher.bytes, runs=matcher.runs)
        elif match.at < 0:
            self._update(status="none")
        else:
            self._update(status="found", at=match.at, wrapped=match.wrapped)
            self._on_match(match.at, self.state["length"])

    def _update(self, **changes: Any) -> None:
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


def _within(start: Any, region: SessionRegion) -> int:
    """Return the offset at which a search starts: `start`, or 0 if it is not in the region."""
    return start if type(start) is int and 0 <= start <= region.size else 0


def _host(region: SessionRegion) -> str:
    get = ".get()" if region.place.startswith("cuda") else ""
    return f"region.array{get}.tobytes()"


def _find_lines(
    region: SessionRegion, source: str, pattern: bytes, start: int, backward: bool
) -> str:
    """Return the lines that search for a pattern; `at` is where it is, or -1."""
    first, again = f"data.find(pattern, {start})", "data.find(pattern)"
    if backward:
        first = f"data.rfind(pattern, 0, {start} + len(pattern) - 1)"
        again = "data.rfind(pattern)"
    return script([
        *region_lines(region),
        f"pattern = {bytes_expression(pattern, '')}",
        f"data = {_READ if source == 'dpu' else _host(region)}",
        f"at = {first}",
        "if at < 0:  # from the other end",
        f"    at = {again}",
    ])  # fmt: skip


def _compare_lines(region: SessionRegion, start: int, backward: bool, count: bool) -> str:
    """Return the lines that compare DPU and host; `at` is the next run of differences, or -1."""
    lines = [
        *region_lines(region),
        f'dpu = np.frombuffer({_READ}, "u1")',
        f'host = np.frombuffer({_host(region)}, "u1")',
        "differs = dpu != host",
        "runs = np.flatnonzero(differs & ~np.r_[False, differs[:-1]])  # where each begins",
    ]
    if count:
        return script([*lines, "print(int(differs.sum()), 'bytes in', len(runs), 'places')"])
    side, pick = (f"runs < {start}", -1) if backward else (f"runs >= {start}", 0)
    return script([
        *lines,
        f"wanted = runs[{side}] if ({side}).any() else runs",
        f"at = int(wanted[{pick}]) if len(wanted) else -1",
    ])  # fmt: skip
