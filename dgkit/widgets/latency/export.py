"""Runs of a LatencyPlot as files: tables, and a page with their reports."""

from __future__ import annotations

import csv
import html
import io
import json
from typing import Any

import numpy as np

from .history import History
from .run import Run

__all__ = ["TABLES", "file", "page", "table"]

TABLES = ("time", "histogram", "percentiles")

Runs = dict[str, Run]


def file(runs: Runs, kind: str) -> tuple[str, str]:
    """Name and text: a table as CSV, or the reports as `html` or `json`. ValueError: no such."""
    if kind == "html":
        return "latency.html", page(runs)
    if kind == "json":
        reports = {name: run.report().to_dict() for name, run in runs.items()}
        return "latency.json", json.dumps(reports, indent=2)
    return f"latency-{kind}.csv", table(runs, kind)


def _points(history: History) -> Any:
    """(seconds, p50, p99, max, samples): a point a second, and a point a block where it has one."""
    coarse, fine = history.coarse.all(), history.fine.all()
    older = coarse[coarse[:, 0] < fine[0, 0]] if len(fine) else coarse
    return np.concatenate((older, fine))


_COLUMNS = {
    "time": (("t_s", "p50_ns", "p99_ns", "max_ns", "samples"), _points),
    "histogram": (("from_ns", "to_ns", "samples"), History.histogram),
    "percentiles": (("percentile", "ns"), lambda history: _percent(history.curve())),
}


def _percent(curve: Any) -> Any:
    return np.column_stack((100 * (1 - 1 / curve[:, 0]), curve[:, 1]))


def table(runs: Runs, what: str = "time") -> str:
    """CSV: comment lines (#) on each run by its name, then rows that begin with that name.

    A gap is a row without figures. ValueError: there is no such table.
    """
    if what not in TABLES:
        raise ValueError(f"there is no table {what!r}; there are {', '.join(TABLES)}")
    names, rows = _COLUMNS[what]
    out = io.StringIO()
    for name, run in runs.items():
        for key, value in {**run.what.state(), **_counts(run)}.items():
            out.write(f"# {name}: {key}: {value}\n")
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(("run", *names))
    for name, run in runs.items():
        writer.writerows((name, *map(_figure, row)) for row in rows(run.history))
    return out.getvalue()


def _counts(run: Run) -> dict[str, int]:
    counted = run.history.counted()
    return {
        "samples": counted["samples"], "blocks lost": counted["lost"],
        "samples a second": round(counted["rate"]),
    }  # fmt: skip


def _figure(value: float) -> str:
    return "" if np.isnan(value) else f"{value:.12g}"


def page(runs: Runs) -> str:
    """A file that shows the reports of the runs, and needs no other."""
    cards = "".join(
        f"<h2>{html.escape(name)}: {html.escape(run.what.words)}</h2>{run.report()._repr_html_()}"
        for name, run in runs.items()
    )
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8"><title>dgkit latency</title>'
        "<style>:root{color-scheme:light dark}body{font:14px/1.5 system-ui,sans-serif;"
        "margin:2em auto;max-width:680px;padding:0 1em}h2{font-size:16px}</style></head>"
        f"<body><h1>Latency</h1>{cards}</body></html>"
    )
