# SPDX-License-Identifier: Apache-2.0
"""dgkit beside what a user would pick instead, where that is installed: mpi4py and NIXL.

    python tests/bench/peers.py
    python tests/bench/peers.py --json tests/bench/results/NAME.json

One-sided writes from Python between two processes of this machine, medians. They take turns, so
that a machine that changes its pace changes it for all. An MPI put is a copy by the caller, with no
engine: dgkit's `inline` is the same kind of thing, its `worker` hands the copy to another core.
"""

from __future__ import annotations

import argparse
import importlib.util
import shutil
import statistics
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.table import Table
from rig import Figure, exporter, floor_ns, median_call, save

import dgkit

SIZES = (8, 64, 4096, 65536, 1 << 20)
ROUNDS = 3
HERE = Path(__file__).parent


def dgkit_us(path: str, *, prepared: bool) -> dict[int, float]:
    """us by size, through a prepared operation or one call a transfer."""
    found = {}
    with exporter(1 << 20) as (token,), dgkit.Device("soft") as device:
        local, remote = device.register(dgkit.empty(1 << 20)), device.import_region(token)
        with device.queue(256, path) as queue:
            for size in SIZES:
                op = queue.prepare_write(local, remote, size=size)

                def write(size: int = size) -> None:
                    queue.write(local, remote, size=size).wait()

                calls = 1000 if size < 65536 else 50
                found[size] = median_call(op.run if prepared else write, calls, 11) / 1e3
    return found


def floors(*, handoff: bool) -> dict[int, float]:
    """us by size of the floor."""
    return {size: floor_ns(size, handoff=handoff, count=500) / 1e3 for size in SIZES}


def lines(command: list[str]) -> dict[int, float]:
    """us by size, from a program that prints SIZE US lines; nothing if it fails."""
    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=120)
    pairs = (line.split() for line in done.stdout.splitlines())
    return {int(p[0]): float(p[1]) for p in pairs if len(p) == 2 and p[0].isdigit()}


def mpi_us(arguments: Sequence[str | int] = SIZES) -> dict[int, float]:
    """mpi4py's window put and flush; nothing where it is not installed. See peer_mpi.py."""
    beside = Path(sys.executable).with_name("mpiexec")
    mpiexec = str(beside) if beside.exists() else shutil.which("mpiexec")
    if not mpiexec or not importlib.util.find_spec("mpi4py"):
        return {}
    command = [mpiexec, "-n", "2", "--oversubscribe", "--allow-run-as-root"]
    return lines([*command, sys.executable, str(HERE / "peer_mpi.py"), *map(str, arguments)])


def nixl_us() -> dict[int, float]:
    """NIXL's write by a reused request."""
    if not importlib.util.find_spec("nixl"):
        return {}
    return lines([sys.executable, str(HERE / "peer_nixl.py"), *map(str, SIZES)])


WHO = {
    "floor: another core copies (C)": lambda: floors(handoff=True),
    "floor: memcpy (C)": lambda: floors(handoff=False),
    "dgkit prepared, inline": lambda: dgkit_us("inline", prepared=True),
    "dgkit prepared, worker": lambda: dgkit_us("worker", prepared=True),
    "dgkit write().wait(), inline": lambda: dgkit_us("inline", prepared=False),
    "dgkit write().wait(), worker": lambda: dgkit_us("worker", prepared=False),
    "mpi4py put + flush": mpi_us,
    "NIXL write, reused request": nixl_us,
}


def main() -> None:
    """Measures, prints, and stores if asked to."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--json", type=Path, help="store the figures here")
    options = parser.parse_args()
    taken: dict[str, list[dict[int, float]]] = {who: [] for who in WHO}
    for _ in range(ROUNDS):
        for who, measure in WHO.items():
            taken[who].append(measure())
    table = Table("us, median", *(f"{size} B" for size in SIZES), title="one-sided writes")
    figures = []
    for who, found in taken.items():
        cells = []
        for size in SIZES:
            values = [each[size] for each in found if size in each]
            cells.append(f"{statistics.median(values):.2f}" if values else "not installed")
            if values:
                value = statistics.median(values)
                figures.append(Figure(f"{who}, {size} B", "us", value, "", None, rounds=values))
        table.add_row(who, *cells)
    Console(width=None if sys.stdout.isatty() else 120).print(table)
    if options.json:
        save(options.json, figures)


if __name__ == "__main__":
    main()
