# SPDX-License-Identifier: Apache-2.0
"""Results of a LatencyPlot's runs and sweeps: reports, comparisons, tables and figures."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from ...html_cards import Html, badge, card, table
from ...units import size_text, us
from ..base.panel import handler
from .export import (
    SWEEP_FILES,
    csv_table,
    export_file,
    runs_latex,
    sweep_csv,
    sweep_file,
    sweep_latex,
)
from .ratios import Comparison, compare_runs, compare_sweeps
from .run import check_baseline

if TYPE_CHECKING:
    from bokeh.plotting import figure as Figure

    from ...report import LatencyReport
    from ..base.page_input import Reply
    from .sweeps import Sweeps
    from .view_model import ViewModel

_PAPER = ("svg", "pdf")


class Results:
    """Results of the runs and sweeps that a plot has, or had and keeps; it needs no panel."""

    def __init__(self, view_model: ViewModel, sweeps: Sweeps) -> None:
        self._view_model, self._sweeps = view_model, sweeps

    def report(self) -> LatencyReport:
        """Return a report on the last samples of the run, at most 1,000,000.

        If it has none yet, the report is that of the run that was kept last.

        Raises:
            ValueError: There are no samples yet.
        """
        with self._view_model.lock:
            *_, run = self._view_model.named().values() or [self._view_model.require_samples()]
            run = run.copy()
        return run.report()

    def compare(self, what: str = "runs", *, baseline: str | None = None) -> Comparison:
        """Return the ratio of each run to a baseline, with its 95 % confidence interval.

        The interval takes into account that neighbouring samples depend on each other; see
        Comparison for its rows, `to_csv` and `to_latex`.

        Args:
            what: "runs": p50, p99 and p99.9 of the runs; "sweep": p50 of each size.
            baseline: Name of a run or sweep; the one that was kept first if None.

        Raises:
            ValueError: An argument is invalid, or there are not two to compare.
        """
        if what not in ("runs", "sweep"):
            raise ValueError(f'what is {what!r}; it must be "runs" or "sweep"')
        if what == "sweep":
            sweeps = self._sweeps.named()
            return compare_sweeps(sweeps, check_baseline(sweeps, baseline))
        runs = self._view_model.runs()
        return compare_runs(runs, check_baseline(runs, baseline))

    def to_csv(self, what: str = "time") -> str:
        """Return a table of the run and of the previous run as CSV.

        Comment lines (#) name the operation, the provider and the machine.

        Args:
            what: "time", "histogram" or "percentiles"; "sweep": a row per size and round.

        Raises:
            ValueError: The table is unknown, or there are no samples yet.
        """
        if what == "sweep":
            return sweep_csv(self._sweeps.named())
        return csv_table(self._view_model.runs(), what)

    def to_latex(self, what: str = "runs") -> str:
        """Return a table for LaTeX (package booktabs), in microseconds.

        Args:
            what: "runs": a row per run; "sweep": a row per size.

        Raises:
            ValueError: The table is unknown, or there are no samples yet.
        """
        if what == "sweep":
            return sweep_latex(self._sweeps.named())
        if what != "runs":
            raise ValueError(f'there is no table {what!r}; tables: "runs", "sweep"')
        return runs_latex(self._view_model.runs())

    def figure(self, what: str = "time") -> Figure:
        """Return a Bokeh figure of the runs, or of the sweeps, to be changed and shown.

        Args:
            what: "time", "histogram", "percentiles", "cdf" or "ccdf"; of the sweeps "sweep"
                (latency) or "rate" (GB/s of one operation at a time).

        Raises:
            ValueError: The figure is unknown, or there are no samples yet.
        """
        return self._figure(what)[0]

    def save(
        self, path: str | os.PathLike[str], what: str = "time", *, width: str | float = "column",
        height: float | None = None,
    ) -> str:  # fmt: skip
        """Save a figure as PDF, SVG or PNG for a paper; see dgkit.widgets.save_figure.

        Args:
            path: A file that ends in .pdf, .svg or .png; it is replaced.
            what: As for figure().
            width: "column" (3.3 in), "page" (7 in), or inches.
            height: Inches; 0.62 of the width if None.

        Returns:
            The caption, with operation, provider and machine. It is in the file's metadata, too.

        Raises:
            ValueError: An argument is invalid, or there are no samples yet.
            ModuleNotFoundError: Matplotlib is not installed.
        """
        from ..figure import save_figure

        fig, caption = self._figure(what)
        return save_figure(fig, path, width=width, height=height, caption=caption)

    def _figure(self, what: str) -> tuple[Figure, str]:
        from .run_figures import OF_RUNS, OF_SWEEPS, caption

        if what in OF_SWEEPS:
            sweeps = self._sweeps.named()
            return OF_SWEEPS[what](sweeps), caption(sweeps)
        if what not in OF_RUNS:
            known = ", ".join([*OF_RUNS, *OF_SWEEPS])
            raise ValueError(f"there is no figure {what!r}; figures: {known}")
        runs = self._view_model.runs()
        return OF_RUNS[what](runs), caption(runs)

    @handler
    def export(self, kind: str) -> Reply:
        """Return a file: `time`, `histogram`, `percentiles` (CSV), `html` or `json` (reports).

        For the sweep: `sweep` (CSV) or `sweep-json` (reports).
        """
        if kind in SWEEP_FILES:
            name, text = sweep_file(self._sweeps.named(), kind)
        else:
            name, text = export_file(self._view_model.runs(), kind)
        return {"name": name}, [text.encode()]

    @handler
    def export_figure(self, what: str, kind: str) -> Reply:
        """Return a figure for a paper as a file, `svg` or `pdf`, with its caption; see save()."""
        if kind not in _PAPER:
            raise ValueError(f"a figure cannot be saved as {kind!r}; formats: {', '.join(_PAPER)}")
        fig, text = self._figure(what)
        from ..figure import save_figure

        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / f"latency-{what}.{kind}"
            caption = save_figure(fig, path, caption=text)
            return {"name": path.name, "caption": caption}, [path.read_bytes()]

    def position(self) -> tuple[int, int]:
        """Return the number of the run and of its samples so far."""
        with self._view_model.lock:
            run = self._view_model.run
            return (run.number, run.history.samples) if run is not None else (0, 0)

    def since(self, position: tuple[int, int]) -> str:
        """Return how many operations were measured since a position(), and their median, as text.

        "" without samples since.
        """
        with self._view_model.lock:
            run = self._view_model.run
            if run is None:
                return ""
            count = run.history.samples - (position[1] if run.number == position[0] else 0)
            last = run.history.tail.all()[-count:] if count else ()
        if not len(last):
            return ""
        what = f"{len(last):,} {run.config.op}s of {size_text(run.config.size)}"
        return f"{what} took {us(float(np.median(last)))} µs at the median"

    def headline(self) -> dict[str, str] | None:
        """Return the median as text, and a line on what was measured; None without samples."""
        with self._view_model.lock:
            run = self._view_model.run
            if run is None or not run.history.samples:
                return None
            figures, samples = run.history.figures(), run.history.samples
        p99 = f", p99 {us(figures['p99'])} µs" if "p99" in figures else ""
        about = f"p50 of {samples:,} samples: {run.config.description}{p99} ({run.config.label})"
        return {"value": f"{us(figures['p50'])} µs", "text": about}

    def _runs_html(self) -> str:
        with self._view_model.lock:  # without a copy of the samples
            runs = self._view_model.named()
            rows = [
                (name, run.config.description, f"{run.history.samples:,}",
                 ", ".join(f"{key} {us(ns)}" for key, ns in run.history.figures().items()))
                for name, run in runs.items()
            ]  # fmt: skip
        if not rows:
            return card("Latency", [("Samples", "none yet; run the cell for the live view")])
        *_, last = runs.values()
        body = table("Runs", ("Run", "Operation", "Samples", "Latency, µs"), rows)
        about = [("Where", last.config.where), ("Machine", str(last.config.machine))]
        return card("Latency", about, badge=_badge(last.config.label), body=body)

    def _sweep_html(self) -> str:
        """Return the table of the last sweep.

        Raises:
            ValueError: There is none yet.
        """
        *_, last = self._sweeps.named().values()
        origin = last.origin()
        header = ("size", "path", "p50 µs", "band µs", "floor µs", "p50 / floor")
        rows = [
            (row["text"], row["path"], us(row["p50"]), f"{us(row['low'])} to {us(row['high'])}",
             us(row["floor"]) if row["floor"] else "none",
             f"{row['ratio']:.2f}" if row["ratio"] else "unsteady" if row["moved"] else "none")
            for row in last.rows()
        ]  # fmt: skip
        about = [("Where", origin["where"]), ("Machine", origin["machine"])]
        body = table(origin["words"], header, rows)
        return card("Latency over sizes", about, badge=_badge(origin["label"]), body=body)


def _badge(label: str) -> Html:
    return badge(label, warn=label != "hardware")
