# SPDX-License-Identifier: Apache-2.0
"""Sweeps the C core's copy of large sizes and libc's over sizes, and says which wins where.

    python tests/bench/copy_sweep.py --json tests/bench/results/copy_sweep.json

The two take turns in each round, so that a machine that changes its pace changes it for both.
"""

from __future__ import annotations

import argparse
import statistics
import sys
from pathlib import Path

from rich.console import Console
from rich.table import Table
from rig import Figure, save

from dgkit.dma._ffi import ffi, lib

METHODS = {"memmove": ffi.memmove, "dg_copy_large": lib.dg_copy_large}
SIZES = [1 << shift for shift in range(16, 28)]
ROUNDS = 9


def sweep(size: int) -> list[float]:
    """GB/s of each method, the median of the rounds."""
    count = max(3, min(200, (8 << 20) // size))
    source = ffi.from_buffer(bytearray(b"1") * size)
    target = ffi.from_buffer(bytearray(b"2") * size)
    rounds: list[list[float]] = [[] for _ in METHODS]
    for _ in range(ROUNDS):
        for copy, rates in zip(METHODS.values(), rounds, strict=True):
            times = []
            for _ in range(count):
                start = lib.dg_now_ns()
                copy(target, source, size)
                times.append(lib.dg_now_ns() - start)
            rates.append(size / statistics.median(times))
    return [statistics.median(rates) for rates in rounds]


def main() -> None:
    """Sweeps, prints, and stores if asked to."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--json", type=Path, help="store the figures here")
    options = parser.parse_args()
    names = list(METHODS)
    table = Table("size", *names, "wins", title="GB/s by copy method", title_justify="left")
    figures = []
    for size in SIZES:
        rates = sweep(size)
        best = names[rates.index(max(rates))]
        table.add_row(f"{size >> 10} KiB", *(f"{rate:.2f}" for rate in rates), best)
        for name, rate in zip(names, rates, strict=True):
            what = f"copy of {size} bytes by {name}"
            figures.append(Figure(what, "GB/s", rate, "", None, names[0], rates[0]))
    Console(width=None if sys.stdout.isatty() else 120).print(table)
    if options.json:
        save(options.json, figures)


if __name__ == "__main__":
    main()
