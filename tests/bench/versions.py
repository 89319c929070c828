# SPDX-License-Identifier: Apache-2.0
"""Transfers of a session by two versions of dgkit in turn: wall time and CPU time of each call.

    python tests/bench/versions.py OLD NEW [--rounds 5] [--json FILE] [WORD ...]

OLD and NEW are values of PYTHONPATH with an installed dgkit and what it needs. The floors of other
tables do not apply: the two versions are each other's. CPU time is that of the calling process. A
WORD selects the rows that contain it.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

KIB, MIB = 1 << 10, 1 << 20
SIZES = (64, 4 * KIB, 64 * KIB, 128 * KIB, MIB, 4 * MIB, 16 * MIB, 64 * MIB)
REPEATS = 11


@contextmanager
def host_agent() -> Iterator[str]:
    """Start an agent that is the host, so that this process is the DPU; yield its address."""
    command = [sys.executable, "-P", "-m", "dgkit", "serve", "--role", "host"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        yield process.stdout.readline().strip()
        process.terminate()


def timed(call: Callable[[], object], count: int) -> tuple[float, float]:
    """Return the medians of the wall and CPU time of a call, in us."""
    call()
    wall, cpu = [], []
    for _ in range(REPEATS):
        since, used = time.perf_counter(), time.process_time()
        for _ in range(count):
            call()
        wall.append((time.perf_counter() - since) / count * 1e6)
        cpu.append((time.process_time() - used) / count * 1e6)
    return statistics.median(wall), statistics.median(cpu)


def calls(session: Any) -> Iterator[tuple[str, Callable[[], object], int, int]]:
    """Yield rows: what, a call, how many calls are timed together, transfers of each."""
    region = session.empty(max(SIZES))

    def many() -> None:
        for each in [session.start_write(region, bytes(64), offset=64 * k) for k in range(200)]:
            each.wait()

    yield "start_write, wait, 64 B", lambda: session.start_write(region, bytes(64)).wait(), 100, 1
    yield "start_read, wait, 64 B", lambda: session.start_read(region, 64).wait(), 100, 1
    yield "each of 200 start_write, 64 B", many, 1, 200
    for size in SIZES:
        name = f"{size} B" if size < KIB else f"{size // KIB} KiB"
        data, count = bytes(size), max(1, min(100, 4 * MIB // size))
        yield f"write, {name}", lambda data=data: session.write(region, data), count, 1
        yield f"read, {name}", lambda size=size: session.read(region, size), count, 1


def run(words: list[str]) -> None:
    """Print one JSON line for each row of the dgkit that is on the path."""
    import dgkit

    def measure(session: Any, where: str) -> None:
        for what, call, count, each in calls(session):
            row = f"{where}: {what}"
            if not words or any(word in row for word in words):
                wall, cpu = timed(call, count)
                print(json.dumps([row, wall / each, cpu / each]), flush=True)

    with dgkit.connect() as session:
        measure(session, "through an agent")
    with host_agent() as address, dgkit.connect(address) as session:
        measure(session, "the DPU here")


def main() -> None:
    """Run both versions in turn, and print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("old")
    parser.add_argument("new")
    parser.add_argument("words", nargs="*")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json", type=Path, metavar="FILE")
    given = parser.parse_intermixed_args()  # a WORD may follow the options
    rows: dict[str, dict[str, list[float]]] = {}
    for _ in range(given.rounds):
        for version in ("old", "new"):
            environment = {**os.environ, "PYTHONPATH": getattr(given, version)}
            command = [sys.executable, "-P", __file__, "--run", *given.words]
            out = subprocess.run(
                command, env=environment, check=True, stdout=subprocess.PIPE, text=True
            ).stdout
            for row, wall, cpu in map(json.loads, out.splitlines()):
                values = rows.setdefault(row, {"old": [], "new": [], "old_cpu": [], "new_cpu": []})
                values[version].append(round(wall, 2))
                values[f"{version}_cpu"].append(round(cpu, 2))
    print(f"{'us':44} {'old':>10} {'new':>10} {'new/old':>8} {'CPU new/old':>12}")
    for row, values in rows.items():
        old, new, old_cpu, new_cpu = map(statistics.median, values.values())
        print(f"{row:44} {old:10.1f} {new:10.1f} {new / old:8.2f} {new_cpu / old_cpu:12.2f}")
    if given.json:
        lines = [json.dumps({"what": row, "unit": "us", **values}) for row, values in rows.items()]
        about = {"cpus": os.cpu_count(), "arch": platform.machine(), "kernel": platform.release()}
        head = f'{{\n"machine": {json.dumps(about)},\n"figures": [\n'
        given.json.write_text(head + ",\n".join(lines) + "\n]\n}\n")


if __name__ == "__main__":
    if sys.argv[1:2] == ["--run"]:
        run(sys.argv[2:])
    else:
        main()
