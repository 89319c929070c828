"""The one search that a hex view has at a time: it runs on the frame thread, and says how far."""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from typing import TYPE_CHECKING, Any

from ...errors import ClosedError
from ..base import scheduler
from .search import Differences, Found, Pattern, Probe, hunt

if TYPE_CHECKING:
    from ...session import SessionRegion
    from .fetch import Fetch, Reader

__all__ = ["Hunter"]

Hit = Callable[[int, int], None]


class Hunter:
    """`state` is what views show of it: `what`, `now` (running, found, none, cancelled, failed,
    freed, counted), `done` and `size` in bytes, and the result. `tell("hunt", ...)` sends it."""

    def __init__(
        self, reader: Reader, tell: Callable[..., None], fail: Callable[[Exception], None]
    ) -> None:
        self._reader, self._tell, self._fail = reader, tell, fail
        self._task: scheduler.Task | None = None
        self.state: dict[str, Any] = {}

    def pattern(
        self,
        region: SessionRegion,
        sources: Sequence[str],
        pattern: bytes,
        start: int,
        backward: bool,
        hit: Hit,
    ) -> None:
        """Looks for bytes; `hit(at, size)` is called on the frame thread if they are there."""
        about = {"what": "find", "length": len(pattern)}
        self._start(about, region, sources, Pattern(pattern), start, backward, hit)

    def differences(
        self, region: SessionRegion, start: int, backward: bool, count: bool, hit: Hit
    ) -> None:
        """Looks for the next run of bytes that DPU and host see differently, or counts them all."""
        from .fetch import why_no_dpu, why_no_host

        if why := why_no_host(region) or why_no_dpu(region):
            raise ValueError(f"there is one view to compare, not two. {why}")
        about = {"what": "count" if count else "difference", "length": 1}
        probe = Differences(count=count)
        both = ("dpu", "host")
        self._start(about, region, both, probe, 0 if count else start, backward, hit)

    def _start(
        self,
        about: dict[str, Any],
        region: SessionRegion,
        sources: Sequence[str],
        probe: Probe,
        start: int,
        backward: bool,
        hit: Hit,
    ) -> None:
        self.cancel()

        def fetch(at: int, size: int) -> Fetch:
            return self._reader.start(region, sources, at, size)

        self.state = {**about, "now": "running", "done": 0, "size": region.size}
        steps = hunt(fetch, region.size, start, probe, backward=backward, told=self._told)
        self._task = scheduler.start(self._run(steps, probe, hit), self._failed)

    def _run(
        self, steps: Generator[bool, None, Found], probe: Probe, hit: Hit
    ) -> Generator[bool, None, None]:
        self._say()
        found = yield from steps
        if isinstance(probe, Differences) and self.state["what"] == "count":
            self._say(now="counted", bytes=probe.bytes, runs=probe.runs)
        elif found.at < 0:
            self._say(now="none")
        else:
            self._say(now="found", at=found.at, wrapped=found.wrapped)
            hit(found.at, self.state["length"])

    def _say(self, **news: Any) -> None:
        self.state = self.state | news
        self._tell("hunt", **self.state)

    def _told(self, done: int) -> None:
        self._say(done=done)

    def _failed(self, error: Exception) -> None:
        if isinstance(error, ClosedError):  # the desk says it, too, when it is done
            self._say(now="freed")
            return
        self._say(now="failed")
        self._fail(error)

    def cancel(self) -> None:
        """Ends it, if one runs. Again: nothing."""
        task, self._task = self._task, None
        if task is not None and not task.done:
            task.cancel()
            if self.state.get("now") == "running":
                self._say(now="cancelled")

    def forget(self) -> None:
        """The region is another one, or gone."""
        self.cancel()
        self.state = {}
