# SPDX-License-Identifier: Apache-2.0
"""View model of a LatencyPlot: the current run, the previous run, the data of the next frame.

Handlers and the frame thread use it concurrently: each method holds its lock.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import wraps
from typing import TYPE_CHECKING, Concatenate, ParamSpec, TypeVar

from ..base.page_input import Json
from ..base.panel import Viewers
from .run import Run, RunConfig, check_kept, current_name, drop_named

if TYPE_CHECKING:
    from .history import History, Ring
    from .run import Block

FIGURES_S = 0.4  # between updates of histogram, percentiles and figures

Frame = tuple[Json, list[bytes]]
P = ParamSpec("P")
T = TypeVar("T")


def _locked(
    method: Callable[Concatenate[ViewModel, P], T],
) -> Callable[Concatenate[ViewModel, P], T]:
    @wraps(method)
    def call(model: ViewModel, /, *args: P.args, **kwargs: P.kwargs) -> T:
        with model.lock:
            return method(model, *args, **kwargs)

    return call


class ViewModel:
    """Runs and frames. `run` is None until the first start; `number` counts the frames.

    `kept` has the runs that were kept, by name; the views compare with the last one, `before`.
    """

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.viewers = Viewers()
        self.run: Run | None = None
        self.kept: dict[str, Run] = {}
        self.number = self._runs = 0
        self._sent, self._distribution_at = (0, 0, 0), 0.0

    @_locked
    def begin(self, config: RunConfig, *, restarted: bool = False) -> None:
        """Resume the run if its configuration is the same, else start a new one.

        Args:
            config: The configuration.
            restarted: The DPU of the run was lost: `where` names another process.
        """
        run = self.run
        where = config.where if run is None or restarted else run.config.where
        if run is None or replace(run.config, where=where) != config:
            self.run = self._new(config)
        else:
            run.resume(config)

    def _new(self, config: RunConfig, after: Run | None = None) -> Run:
        self._runs += 1
        self._sent, self._distribution_at = (0, 0, 0), 0.0
        run = Run(self._runs, config)
        if after is not None:
            run.continue_from(after)
        return run

    @_locked
    def add(self, blocks: Iterable[Block]) -> bool:
        """Add blocks to the run; return True if its configuration changed."""
        return self.run is not None and self.run.add(blocks)

    @_locked
    def add_load(self, row: Sequence[float]) -> None:
        """Add a reading of the machine's load at the time of the last samples."""
        history = self.run.history if self.run is not None else None
        if history is not None and history.samples:
            history.load.add(history.seconds, *row)

    @_locked
    def clear(self) -> None:
        """Discard the samples of the run; the previous run stays."""
        self.run = self._new(self.run.config, self.run) if self.run is not None else None

    @property
    def before(self) -> Run | None:
        """The run that was kept last."""
        return next(reversed(self.kept.values()), None)

    @_locked
    def keep(self, name: str) -> None:
        """Keep the run under a name, which replaces one of that name, and start a new one.

        Raises:
            ValueError: There are no samples yet.
        """
        run = self.require_samples()
        self.kept.pop(name, None)  # so that the new one is the last
        run.finish()
        self.kept[name], self.run = run, self._new(run.config, run)

    @_locked
    def drop(self, name: str | None) -> None:
        """Discard a kept run, or all.

        Raises:
            ValueError: There is no such run.
        """
        drop_named(self.kept, name)

    @_locked
    def compare_with(self, name: str) -> None:
        """Compare with another kept run, in all views.

        Raises:
            ValueError: There is no such run.
        """
        check_kept(self.kept, name)
        self.kept[name] = self.kept.pop(name)

    @_locked
    def require_samples(self) -> Run:
        """Return the run.

        Raises:
            ValueError: There are no samples yet.
        """
        if self.run is None or not self.run.history.samples:
            raise ValueError("no samples yet: start the plot first")
        return self.run

    @_locked
    def runs(self) -> dict[str, Run]:
        """Return copies of the runs that have samples: those kept, then `run`.

        Where one is kept as `before`, the present run is `after`.

        Slow work is done on the copies, so that no sample waits for it.

        Raises:
            ValueError: There are no samples yet.
        """
        if not (named := self.named()):
            self.require_samples()
        return {name: run.copy() for name, run in named.items()}

    def named(self) -> dict[str, Run]:
        """Return the runs that runs() copies; the caller holds the lock while it reads them."""
        named = {**self.kept, current_name(self.kept, "run"): self.run}
        return {name: run for name, run in named.items() if run and run.history.samples}

    @_locked
    def figures(self) -> dict[str, float]:
        """Return min, max and the percentiles of the run, in ns; empty without samples."""
        return self.run.history.figures() if self.run is not None else {}

    @_locked
    def frame(self) -> Frame | None:
        """Return the data since the last frame, or None if there is none or no view is visible.

        Buffers: points per block, points per second, readings of the load, and in some frames
        histogram and percentiles.
        """
        run = self.run
        if run is None or run.history.fine.total == self._sent[0] or not self.viewers.due():
            return None
        history = run.history
        buffers = [
            ring.since(sent).tobytes()
            for ring, sent in zip(_rings(history), self._sent, strict=True)
        ]
        about: Json = history.counts()
        if time.monotonic() - self._distribution_at >= FIGURES_S:
            self._distribution_at = time.monotonic()
            buffers += run.distribution()
            about["figures"] = history.figures()
        self._sent = (history.fine.total, history.coarse.total, history.load.total)
        self.number += 1
        return {"n": self.number, "run": run.number, **about}, buffers

    @_locked
    def state(self) -> Json:
        """Return the runs as text and figures, and the number of the last frame."""
        run, before = self.run, self.before
        last, now = next(reversed(self.kept), ""), current_name(self.kept, "run")
        return {
            "n": self.number, "run": run and run.state(), "before": before and before.state(),
            "before_name": last, "now_name": now, "kept": list(self.kept),
        }  # fmt: skip

    @_locked
    def buffers(self) -> list[bytes]:
        """Return rings, histogram and percentiles of the run; the last two of the previous run.

        There are seven buffers; buffers of a missing run are empty.
        """
        rings = _rings(self.run.history) if self.run else ()
        points = [ring.all().tobytes() for ring in rings] or [b"", b"", b""]
        runs = (self.run, self.before)
        distributions = [run.distribution() if run else [b"", b""] for run in runs]
        return [*points, *distributions[0], *distributions[1]]


def _rings(history: History) -> tuple[Ring, Ring, Ring]:
    return history.fine, history.coarse, history.load
