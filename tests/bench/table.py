# SPDX-License-Identifier: Apache-2.0
"""Prints the table of figures to reach, with what this machine gives now.

    python tests/bench/table.py                          all rows, about four minutes
    python tests/bench/table.py prepared batches         some of them
    python tests/bench/table.py --json results/NAME.json and stores them

Nothing here passes or fails a test: it reports.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import ratios
import rows
from rich.console import Console
from rich.table import Table
from rig import Figure, exporter, save

import dgkit

Row = Callable[[Any], Iterator[Figure]]
ALL = (*rows.ALL, *ratios.ALL)


def measured(names: list[str]) -> Iterator[Figure]:
    """The figures of the rows called `names`, or of all."""
    chosen = [row for row in ALL if not names or row.__name__ in names]
    with exporter(rows.SIZE) as (token,), dgkit.Device("soft") as device:
        bench = rows.Bench(
            device, device.register(dgkit.empty(rows.SIZE)), device.import_region(token), token
        )
        for row in chosen:
            yield from row(bench)


TITLE = "dgkit, software DPU, from Python: medians of rounds"


def shown(figures: list[Figure], title: str = TITLE) -> Table:
    """The figures as a table."""
    table = Table(title=title, title_justify="left")
    for name, justify in (
        ("what", "left"),
        ("measured", "right"),
        ("against", "right"),
        ("reach", "left"),
        ("of it", "right"),
        ("", "left"),
    ):
        table.add_column(name, justify=justify)
    for f in figures:
        value = "no steady round" if f.value is None else f"{_digits(f.value)} {f.unit}"
        beside = "" if f.reference is None else f"{f.against} {_digits(f.reference)}"
        ratio = "" if f.ratio is None else f"{f.ratio:.2f}"
        met = {True: "yes", False: "no", None: "?" if f.reference is None else ""}[f.met]
        table.add_row(f.what, value, beside, f.reach, ratio, met)
    return table


def _digits(value: float) -> str:
    """Four digits that count; all of those before the point, never as a power of ten."""
    return f"{value:,.0f}" if value >= 10_000 else f"{value:,.4g}"


def parse(about: str, known: Sequence[Row], providers: Sequence[str] = ()) -> argparse.Namespace:
    """Return the arguments of a program that measures some of the known rows."""
    parser = argparse.ArgumentParser(
        description=about, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    names = ", ".join(row.__name__ for row in known)
    parser.add_argument("names", nargs="*", metavar="NAME", help=names)
    if providers:
        parser.add_argument("--provider", choices=providers, default=providers[0])
    parser.add_argument("--json", type=Path, help="store the figures here")
    options = parser.parse_args()
    if unknown := set(options.names) - {row.__name__ for row in known}:
        parser.error(f"no rows are called {', '.join(sorted(unknown))}; there are {names}")
    return options


def printed(figures: Iterable[Figure], title: str = TITLE) -> list[Figure]:
    """Measure, print the table, and return the figures."""
    console = Console(width=None if sys.stdout.isatty() else 140)
    done = []
    with console.status("measuring") as status:
        for figure in figures:
            done.append(figure)
            status.update(f"measured: {figure.what}")
    console.print(shown(done, title))
    return done


def main() -> None:
    """Measures, prints, and stores if asked to."""
    options = parse(__doc__, ALL)
    figures = printed(measured(options.names))
    if options.json:
        save(options.json, figures)


if __name__ == "__main__":
    main()
