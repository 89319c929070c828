"""Runs and sweeps of a LatencyPlot as tables for LaTeX, with the rules of the package booktabs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from ...units import size_text
from .run import Run
from .size_sweep import SizeSweep

_ESCAPED = str.maketrans({
    **{sign: f"\\{sign}" for sign in "&%$#_{}"},
    "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "\\": r"\textbackslash{}",
    "µ": r"\textmu{}", "<": r"\textless{}", ">": r"\textgreater{}",
})  # fmt: skip
_FIGURES = ("min", "p50", "mean", "stdev", "p99", "p99.9", "max")


def table(
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
    return table(("run", "operation", "samples", *_FIGURES), rows, notes, texts=2)


def sweep_latex(sweeps: Mapping[str, SizeSweep]) -> str:
    """Return a row per size and sweep: medians of the rounds, in microseconds, and GB/s."""
    head = ("sweep", "size", "path", "p50", "p99", "floor", "p50 / floor", "GB/s")
    notes = ["latency in microseconds; needs \\usepackage{booktabs}"]
    notes += [f"{name}: {_about(sweep)}" for name, sweep in sweeps.items()]
    return table(head, [row for each in sweeps.items() for row in _rows(*each)], notes, texts=3)


def _rows(name: str, sweep: SizeSweep) -> Iterator[list[str]]:
    for row in sweep.rows():
        ratio = "--" if row["ratio"] is None else f"{row['ratio']:.2f}"
        times = [_us(row[key]) for key in ("p50", "p99", "floor")]
        yield [name, row["text"], row["path"], *times, ratio, f"{row['gb_per_s']:.3g}"]


def _about(sweep: SizeSweep) -> str:
    origin = sweep.origin()
    return f"{origin['words']} ({origin['label']}); {origin['machine']}"
