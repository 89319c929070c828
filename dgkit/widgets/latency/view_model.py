"""What a LatencyPlot shows: the run, the one before, and what of them is new since the last frame.

Handlers and the frame thread use it at once: each method holds its lock.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from functools import wraps
from typing import Any, TypeVar

from ..base.viewers import Audience
from .run import Run, What

__all__ = ["Frame", "Stage"]

_SPREAD_S = 0.4  # how often histogram and percentiles are drawn

Frame = tuple[dict[str, Any], list[bytes]]
F = TypeVar("F", bound=Callable[..., Any])


def _locked(method: F) -> F:
    @wraps(method)
    def call(stage: Stage, *args: Any, **kwargs: Any) -> Any:
        with stage.lock:
            return method(stage, *args, **kwargs)

    return call  # type: ignore[return-value]


class Stage:
    """`run` is None until the first start. `number` counts the frames, so that a gap is seen."""

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.audience = Audience()
        self.run: Run | None = None
        self.before: Run | None = None
        self.number = self._runs = 0
        self._sent, self._spread_at = (0, 0), 0.0

    @_locked
    def begin(self, what: What) -> None:
        """It is measured from now on: the run goes on if it is of the same, else one begins."""
        if self.run is None or self.run.what != what:
            self.run = self._new(what)
        else:
            self.run.resume()

    def _new(self, what: What, after: Run | None = None) -> Run:
        self._runs += 1
        self._sent, self._spread_at = (0, 0), 0.0
        run = Run(self._runs, what)
        if after is not None:
            run.follow(after)
        return run

    @_locked
    def take(self, blocks: Any) -> bool:
        """Blocks of the run, as they came. True: what it measures is called otherwise now."""
        return self.run is not None and self.run.take(blocks)

    @_locked
    def clear(self) -> None:
        """Forgets what was measured, but for the one before."""
        self.run = self._new(self.run.what, self.run) if self.run is not None else None

    @_locked
    def keep(self) -> None:
        """The run is the one before; another begins. ValueError: nothing was measured."""
        run = self.measured()
        self.before, self.run = run, self._new(run.what, run)

    @_locked
    def drop(self) -> None:
        """Forgets the one before."""
        self.before = None

    @_locked
    def measured(self) -> Run:
        """The run. ValueError: it has no sample yet."""
        if self.run is None or not self.run.history.samples:
            raise ValueError("nothing was measured yet: start it first")
        return self.run

    @_locked
    def runs(self) -> dict[str, Run]:
        """Copies of those with samples, by the names that a person knows: what takes long is done
        with them, and no sample waits for it. ValueError: there is none."""
        if self.before is None:
            return {"run": self.measured().copy()}
        after = self.run if self.run and self.run.history.samples else None
        return {"before": self.before.copy()} | ({"after": after.copy()} if after else {})

    @_locked
    def frame(self) -> Frame | None:
        """What is new since the last frame, if somebody looks: points a block, points a second,
        and now and then the histogram and the percentiles."""
        run = self.run
        if run is None or run.history.fine.total == self._sent[0] or not self.audience.due():
            return None
        history = run.history
        made = [
            ring.since(sent).tobytes()
            for ring, sent in zip((history.fine, history.coarse), self._sent, strict=True)
        ]
        about: dict[str, Any] = history.counted()
        if time.monotonic() - self._spread_at >= _SPREAD_S:
            self._spread_at = time.monotonic()
            made += run.spread()
            about["figures"] = history.figures()
        self._sent = (history.fine.total, history.coarse.total)
        self.number += 1
        return {"n": self.number, "run": run.number, **about}, made

    @_locked
    def state(self) -> dict[str, Any]:
        """The runs in words and figures, and the number of the last frame."""
        run, before = self.run, self.before
        return {
            "n": self.number, "run": run and run.state(), "before": before and before.state(),
        }  # fmt: skip

    @_locked
    def buffers(self) -> list[bytes]:
        """Of the run both rings of points, histogram and percentiles; these of the one before."""
        rings = (self.run.history.fine, self.run.history.coarse) if self.run else ()
        points = [ring.all().tobytes() for ring in rings] or [b"", b""]
        spreads = [run.spread() if run else [b"", b""] for run in (self.run, self.before)]
        return [*points, *spreads[0], *spreads[1]]
