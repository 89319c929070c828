# SPDX-License-Identifier: Apache-2.0
"""Runs and sweeps of a LatencyPlot as text: CSV, tables for LaTeX, and reports as HTML or JSON."""

from __future__ import annotations

import csv
import html
import io
import json
from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from ...units import size_text
from .history import Floats, History
from .run import Run
from .size_sweep import P99_LEAST, SizeSweep

TABLES = ("time", "histogram", "percentiles")
SWEEP_FILES = ("sweep", "sweep-json")

Runs = dict[str, Run]
Sweeps = dict[str, SizeSweep]


def export_file(runs: Runs, kind: str) -> tuple[str, str]:
    """Return the name and the text of a file.

    Args:
        kind: A name in TABLES for a CSV file; "html" or "json" for the reports.

    Raises:
        ValueError: The kind is unknown.
    """
    if kind == "html":
        return "latency.html", html_page(runs)
    if kind == "json":
        reports = {name: run.report().to_dict() for name, run in runs.items()}
        return "latency.json", json.dumps(reports, indent=2)
    return f"latency-{kind}.csv", csv_table(runs, kind)


def _points(history: History) -> Floats:
    """Return rows (s, p50, p99, max, samples): per second, and per block where still available.

    The figures of a row cover one window: its second, or its block and the blocks before it, up to
    one second or 1,000 samples (see History).
    """
    coarse, fine = history.coarse.all(), history.fine.all()
    older = coarse[coarse[:, 0] < fine[0, 0]] if len(fine) else coarse
    return np.concatenate((older, np.column_stack((fine[:, 0], history.windows.all()))))


def _percentiles(history: History) -> Floats:
    """Return rows (percentile in %, ns)."""
    curve = history.curve()
    return np.column_stack((100 * (1 - 1 / curve[:, 0]), curve[:, 1]))


_COLUMNS = {
    "time": (("t_s", "p50_ns", "p99_ns", "max_ns", "samples"), _points),
    "histogram": (("from_ns", "to_ns", "samples"), History.histogram),
    "percentiles": (("percentile", "ns"), _percentiles),
}


def csv_table(runs: Runs, what: str = "time") -> str:
    """Return a table as CSV.

    Comment lines (#) describe each run; each row starts with the name of its run. A gap is a row
    without figures. In the table "time", p50, p99, max and samples of a row cover one window; the
    windows of blocks overlap.

    Args:
        what: A name in TABLES.

    Raises:
        ValueError: The table is unknown.
    """
    if what not in TABLES:
        raise ValueError(f"there is no table {what!r}; tables: {', '.join(TABLES)}")
    names, rows = _COLUMNS[what]
    out = io.StringIO()
    for name, run in runs.items():
        for key, value in {**run.config.state(), **_sample_counts(run)}.items():
            out.write(f"# {name}: {key}: {value}\n")
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(("run", *names))
    for name, run in runs.items():
        writer.writerows((name, *map(_cell, row)) for row in rows(run.history))
    return out.getvalue()


def sweep_csv(sweeps: Sweeps) -> str:
    """Return a row per size and round as CSV, after comment lines (#) that describe each sweep.

    p99 is empty for fewer than 100 samples; floors are empty if not measured.
    """
    out = io.StringIO()
    for name, sweep in sweeps.items():
        for key, value in sweep.origin().items():
            out.write(f"# {name}: {key}: {value}\n")
    writer = csv.writer(out, lineterminator="\n")
    figures = ("p50_ns", "p99_ns", "max_ns", "samples", "floor_before_ns", "floor_after_ns")
    writer.writerow(("run", "size", "round", "path", *figures, "floor_kind", "floor_moved"))
    for name, sweep in sweeps.items():
        for size, reports in sweep.reports.items():
            for number, report in enumerate(reports, start=1):
                known = report.percentiles
                p99 = known.p99_ns if known.n >= P99_LEAST else ""
                floors = (*report.floor_ns, "", "")[:2]
                writer.writerow((
                    name, size, number, report.path, known.p50_ns, p99, known.max_ns, known.n,
                    *floors, report.floor_kind, report.floor_moved,
                ))  # fmt: skip
    return out.getvalue()


def sweep_file(sweeps: Sweeps, kind: str) -> tuple[str, str]:
    """Return the name and the text of a file of sweeps; `kind` is one of SWEEP_FILES."""
    if kind == "sweep":
        return "latency-sweep.csv", sweep_csv(sweeps)
    reports = {
        name: [report.to_dict() for rounds in sweep.reports.values() for report in rounds]
        for name, sweep in sweeps.items()
    }
    return "latency-sweep.json", json.dumps(reports, indent=2)


def _sample_counts(run: Run) -> dict[str, int]:
    counts = run.history.counts()
    return {
        "samples": counts["samples"], "blocks lost": counts["lost"],
        "samples a second": round(counts["rate"]),
    }  # fmt: skip


def _cell(value: float) -> str:
    return "" if np.isnan(value) else f"{value:.12g}"


def html_page(runs: Runs) -> str:
    """Return a self-contained HTML page with the reports of the runs."""
    cards = "".join(
        f"<h2>{html.escape(name)}: {html.escape(run.config.description)}</h2>"
        f"{run.report()._repr_html_()}"
        for name, run in runs.items()
    )
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8"><title>dgkit latency</title>'
        "<style>:root{color-scheme:light dark}body{font:14px/1.5 system-ui,sans-serif;"
        "margin:2em auto;max-width:680px;padding:0 1em}h2{font-size:16px}</style></head>"
        f"<body><h1>Latency</h1>{cards}</body></html>"
    )


_ESCAPED = str.maketrans({
    **{sign: f"\\{sign}" for sign in "&%$#_{}"},
    "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "\\": r"\textbackslash{}",
    "µ": r"\textmu{}", "<": r"\textless{}", ">": r"\textgreater{}",
})  # fmt: skip
_FIGURES = ("min", "p50", "mean", "stdev", "p99", "p99.9", "max")


def latex_table(
    head: Sequence[str], rows: Sequence[Sequence[str]], notes: Sequence[str], texts: int = 1
) -> str:
    """Return a tabular; `notes` are comments above it.

    Args:
        head: Names of the columns.
        rows: Cells of each row, as plain text.
        notes: Lines such as the machine, as plain text.
        texts: Columns from the left that are aligned left; the others are numbers.
    """
    lines = [f"% {' '.join(note.split())}" for note in notes]
    columns = "l" * texts + "r" * (len(head) - texts)
    lines += [rf"\begin{{tabular}}{{{columns}}}", r"\toprule", _row(head), r"\midrule"]
    return "\n".join([*lines, *map(_row, rows), r"\bottomrule", r"\end{tabular}", ""])


def _row(cells: Sequence[str]) -> str:
    return " & ".join(cell.translate(_ESCAPED) for cell in cells) + r" \\"


def _us(ns: float | None) -> str:
    return "--" if ns is None else f"{ns / 1000:.2f}"


def runs_latex(runs: Mapping[str, Run]) -> str:
    """Return a row per run: operation, samples and the figures of its report."""
    rows, notes = [], ["latency in microseconds; needs \\usepackage{booktabs}"]
    for name, run in runs.items():
        report = run.report()
        found = report.percentiles
        figures = dict(found.rows()) | {"mean": found.mean_ns, "stdev": found.stdev_ns}
        about = name, f"{report.op} {size_text(report.size)}", str(found.n)
        rows.append([*about, *(_us(figures[key]) for key in _FIGURES)])
        notes.append(f"{name}: {run.config.description} ({report.label}); {report.machine}")
    return latex_table(("run", "operation", "samples", *_FIGURES), rows, notes, texts=2)


def sweep_latex(sweeps: Mapping[str, SizeSweep]) -> str:
    """Return a row per size and sweep: medians of the rounds, in microseconds, and GB/s."""
    head = ("sweep", "size", "path", "p50", "p99", "floor", "p50 / floor", "GB/s")
    notes = ["latency in microseconds; needs \\usepackage{booktabs}"]
    notes += [f"{name}: {_about(sweep)}" for name, sweep in sweeps.items()]
    return latex_table(
        head, [row for each in sweeps.items() for row in _sweep_rows(*each)], notes, texts=3
    )


def _sweep_rows(name: str, sweep: SizeSweep) -> Iterator[list[str]]:
    for row in sweep.rows():
        ratio = "--" if row["ratio"] is None else f"{row['ratio']:.2f}"
        times = [_us(row[key]) for key in ("p50", "p99", "floor")]
        yield [name, row["text"], row["path"], *times, ratio, f"{row['gb_per_s']:.3g}"]


def _about(sweep: SizeSweep) -> str:
    origin = sweep.origin()
    return f"{origin['words']} ({origin['label']}); {origin['machine']}"
