"""The one search of a hex view that runs at a time, on the frame thread."""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from typing import TYPE_CHECKING, Any

from ...errors import ClosedError
from ..base import scheduler
from .fetch import why_no_dpu, why_no_host
from .search import DifferenceMatcher, Match, Matcher, PatternMatcher, run_search
from .search_lines import compare_lines, find_lines

if TYPE_CHECKING:
    from ...session import SessionRegion
    from .fetch import Fetch, Reader

__all__ = ["SearchTask"]

OnMatch = Callable[[int, int], None]


class SearchTask:
    """Starts and cancels the search of a panel, and reports its state by `send("search", ...)`.

    `state` has `mode` (find, difference, count), `status` (running, found, none, cancelled,
    failed, freed, counted), `length` of a match, `done` and `size` in bytes, and the result: `at`
    and `wrapped`, or `bytes` and `runs`.
    """

    def __init__(
        self, reader: Reader, send: Callable[..., None], fail: Callable[[Exception], None]
    ) -> None:
        self._reader, self._send, self._fail = reader, send, fail
        self._task: scheduler.Task | None = None
        self._python = ""
        self.state: dict[str, Any] = {}

    def find(
        self,
        region: SessionRegion,
        sources: Sequence[str],
        pattern: bytes,
        start: int,
        backward: bool,
        on_match: OnMatch,
    ) -> None:
        """Search for bytes; `on_match(at, size)` is called on the frame thread for a match."""
        about = {"mode": "find", "length": len(pattern)}
        self._python = find_lines(region, sources[0], pattern, start, backward)
        self._start(about, region, sources, PatternMatcher(pattern), start, backward, on_match)

    def compare(
        self, region: SessionRegion, start: int, backward: bool, count: bool, on_match: OnMatch
    ) -> None:
        """Search for the next run of bytes in which DPU and host differ, or count them all.

        Raises:
            ValueError: The region has no host view or no DPU view to compare.
        """
        if why := why_no_host(region) or why_no_dpu(region):
            raise ValueError(f"DPU and host cannot be compared. {why}")
        about = {"mode": "count" if count else "difference", "length": 1}
        matcher = DifferenceMatcher(count=count)
        both = ("dpu", "host")
        self._python = compare_lines(region, start, backward, count)
        self._start(about, region, both, matcher, 0 if count else start, backward, on_match)

    def _start(
        self,
        about: dict[str, Any],
        region: SessionRegion,
        sources: Sequence[str],
        matcher: Matcher,
        start: int,
        backward: bool,
        on_match: OnMatch,
    ) -> None:
        self.cancel()

        def fetch(at: int, size: int) -> Fetch:
            return self._reader.start(region, sources, at, size)

        self.state = {**about, "status": "running", "done": 0, "size": region.size}
        steps = run_search(
            fetch, region.size, start, matcher, backward=backward, progress=self._progress
        )
        self._task = scheduler.start(self._run(steps, matcher, on_match), self._failed)

    def _run(
        self, steps: Generator[bool, None, Match], matcher: Matcher, on_match: OnMatch
    ) -> Generator[bool, None, None]:
        self._update()
        match = yield from steps
        if isinstance(matcher, DifferenceMatcher) and self.state["mode"] == "count":
            self._update(status="counted", bytes=matcher.bytes, runs=matcher.runs)
        elif match.at < 0:
            self._update(status="none")
        else:
            self._update(status="found", at=match.at, wrapped=match.wrapped)
            on_match(match.at, self.state["length"])

    def _update(self, **changes: Any) -> None:
        self.state = self.state | changes
        self._send("search", **self.state)

    def _progress(self, done: int) -> None:
        self._update(done=done)

    def _failed(self, error: Exception) -> None:
        if isinstance(error, ClosedError):  # the session reports the freed region, too
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

    def python(self) -> str:
        """Return the lines of Python that do what the last search did.

        Raises:
            ValueError: Nothing was searched in this region.
        """
        if not self._python:
            raise ValueError("nothing was searched yet")
        return self._python
