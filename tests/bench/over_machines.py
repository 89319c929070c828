# SPDX-License-Identifier: Apache-2.0
"""Prints the rows of several result files as one Markdown table: medians and ranges over machines.

    python tests/bench/over_machines.py results/gpu-h200-*.json
    python tests/bench/over_machines.py results/table-xeon-*.json

A row's value is the median of the files' medians, with the lowest and the highest in brackets, and
so is what it is held against. The last column says in how many of the files it reached its aim.
"""

from __future__ import annotations

import argparse
import json
import statistics
from pathlib import Path
from typing import Any

Row = dict[str, Any]


def by_row(files: list[Path]) -> dict[tuple[str, str], list[Row]]:
    """The figures of all files by their row's name and aim, in the order of the first file."""
    rows: dict[tuple[str, str], list[Row]] = {}
    for file in files:
        for figure in json.loads(file.read_text(encoding="utf-8"))["figures"]:
            rows.setdefault((figure["what"], figure["reach"]), []).append(figure)
    return rows


def scaled(values: list[float], unit: str) -> tuple[list[float], str]:
    """Nanoseconds from 1,000 on as microseconds; everything else as it is."""
    if unit == "ns" and statistics.median(values) >= 1000:
        return [value / 1000 for value in values], "us"
    return values, unit


def spread(values: list[float], unit: str) -> str:
    """The median, and the lowest and the highest where there are several."""
    values, unit = scaled(values, unit)
    digits = 0 if statistics.median(values) >= 100 else 2
    middle = f"{statistics.median(values):,.{digits}f} {unit}"
    if len(values) == 1:
        return middle
    return f"{middle} ({min(values):,.{digits}f} to {max(values):,.{digits}f})"


def line(what: str, figures: list[Row]) -> str:
    """One row of the table."""
    values = [figure["value"] for figure in figures if figure["value"] is not None]
    if not values:
        return f"| {what} | no steady round | | | |"
    unit, against = figures[0]["unit"], figures[0]["against"]
    references = [figure["reference"] for figure in figures if figure["reference"] is not None]
    against, _, other_unit = against.partition(", ")  # a reference in a unit of its own
    beside = f"{against} {spread(references, other_unit or unit)}" if references else ""
    verdicts = [figure["met"] for figure in figures if figure["met"] is not None]
    met = f"{sum(verdicts)} of {len(verdicts)}" if verdicts else ""
    return f"| {what} | {spread(values, unit)} | {beside} | {figures[0]['reach']} | {met} |"


def main() -> None:
    """Read the files, print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("files", nargs="+", type=Path, metavar="FILE")
    options = parser.parse_args()
    print("| what | measured | beside it | to reach | reached |")
    print("|---|---|---|---|---|")
    for (what, _), figures in by_row(options.files).items():
        print(line(what, figures))


if __name__ == "__main__":
    main()
