# SPDX-License-Identifier: Apache-2.0
"""Soak: a host and a DPU agent at work for hours, and what each of them holds meanwhile.

    tests/run soak                  5 minutes
    tests/run soak --hours 2        by hand; CI does not run it

One session of this process transfers, measures and opens and closes regions and monitors without a
pause. Clients come and go beside it: some end well, some are killed. Memory, fds and threads of
both processes are sampled when the session is idle. This process first frees what it keeps for the
next results (BytePool, at most 256 MiB) and what the C library keeps of freed memory: how much that
is depends on how many results of 8 MiB were in use at a time. The report has both figures.
The verdict is FAILED if bytes differ, a call fails or does not return, or one of the figures grows:
its slope after the warm-up (Theil-Sen: the median slope of all pairs of samples, which outliers do
not move) times the time exceeds its limit.
"""

from __future__ import annotations

import argparse
import faulthandler
import gc
import itertools
import json
import os
import random
import signal
import statistics
import subprocess
import sys
import time
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
WARM_UP = 0.25  # share of the samples that is left out: caches and pools fill
MIN_SAMPLES, MAX_SAMPLES = 8, 400  # of one run
HANG_S = 60  # no round may take longer
REGIONS = 16_384 + 64  # entries of the table of regions before it reuses one: region_table.c
LIMITS = {"rss_kib": 4096, "fds": 2, "threads": 2}  # growth over the run: allocators keep some
CLIENT = """
import os, random, sys, time
import dgkit
address, seed = sys.argv[1], int(sys.argv[2])
chance = random.Random(seed)
with dgkit.connect(address) as session:
    with session.empty(chance.randrange(1, 1 << 20)) as region:
        data = chance.randbytes(region.size)
        session.write(region, data)
        assert session.read(region, region.size) == data
        if seed % 3 == 0:
            session.start_write(region, data)
            os.kill(os.getpid(), 9)
        with session.monitor(region, size=8, every_s=0.01):
            if seed % 3 == 1:
                os._exit(0)
"""


@dataclass(frozen=True, slots=True)
class Sample:
    """What a process holds: `t_s` since the start, resident memory in KiB, fds, threads.

    `cached_kib` is the memory that was freed before, of this process only.
    """

    t_s: float
    rss_kib: int
    fds: int
    threads: int
    cached_kib: int = 0


@dataclass
class Counts:
    """What the run did."""

    rounds: int = 0
    transfers: int = 0
    bytes: int = 0
    monitors: int = 0
    clients: int = 0
    failures: list[str] = field(default_factory=list)


def sample(pid: int, start: float) -> Sample:
    """Return what a process holds now. Source: proc_pid_status(5)."""
    root = Path(f"/proc/{pid}")
    status = dict(
        line.split(":", 1) for line in (root / "status").read_text().splitlines() if ":" in line
    )
    return Sample(
        round(time.monotonic() - start, 3),
        int(status["VmRSS"].split()[0]),
        len(list((root / "fd").iterdir())),
        int(status["Threads"]),
    )


def sample_here(start: float) -> Sample:
    """Return what this process holds without its caches."""
    from dgkit.dpu.byte_pool import BytePool
    from dgkit.wire.inflow import heap_trimmer

    before = sample(os.getpid(), start).rss_kib
    for each in gc.get_objects():
        if isinstance(each, BytePool):
            each.clear()
    heap_trimmer()()
    after = sample(os.getpid(), start)
    return replace(after, cached_kib=before - after.rss_kib)


def growth(samples: list[Sample], name: str) -> float:
    """Return how much a figure grew after the warm-up: Theil-Sen slope times the time."""
    used = samples[int(len(samples) * WARM_UP) :]
    pairs = ((a, b) for a, b in itertools.combinations(used, 2) if b.t_s > a.t_s)
    slopes = [(getattr(b, name) - getattr(a, name)) / (b.t_s - a.t_s) for a, b in pairs]
    return statistics.median(slopes) * (used[-1].t_s - used[0].t_s) if slopes else 0.0


def judge(sides: dict[str, list[Sample]], counts: Counts) -> dict[str, Any]:
    """Return the report: growth and slope of each figure of each side, and the verdict."""
    rows, failures = [], list(counts.failures)
    for side, samples in sides.items():
        if len(samples) < MIN_SAMPLES:
            failures.append(f"{side}: {len(samples)} samples; a slope needs {MIN_SAMPLES}")
            continue
        for name, limit in LIMITS.items():
            grown = growth(samples, name)
            hours = (samples[-1].t_s - samples[0].t_s) * (1 - WARM_UP) / 3600
            first, last = getattr(samples[0], name), getattr(samples[-1], name)
            rows.append({
                "side": side, "figure": name, "first": first, "last": last,
                "growth": round(grown, 1), "limit": limit,
                "per_hour": round(grown / hours, 1) if hours else 0.0,
            })  # fmt: skip
            if grown > limit:
                failures.append(f"{side}: {name} grew by {grown:.1f}; the limit is {limit}")
    done = {name: value for name, value in asdict(counts).items() if name != "failures"}
    cached = max((each.cached_kib for samples in sides.values() for each in samples), default=0)
    return {
        "ok": not failures, "failures": failures, "done": done, "rows": rows, "cached_kib": cached,
    }  # fmt: skip


class Clients:
    """Processes that connect, use the agent, and end in one of three ways."""

    def __init__(self, address: str, chance: random.Random, counts: Counts) -> None:
        self._address, self._chance, self._counts = address, chance, counts
        self._running: list[tuple[int, subprocess.Popen[bytes]]] = []

    def turn(self, at_most: int) -> None:
        """Collect those that ended; start one if fewer than `at_most` run."""
        from support.processes.agents import python

        for seed, process in list(self._running):
            if process.poll() is None:
                continue
            self._running.remove((seed, process))
            self._counts.clients += 1
            if process.returncode != (-9 if seed % 3 == 0 else 0):
                self._counts.failures.append(f"client {seed} ended with {process.returncode}")
        if len(self._running) < at_most:
            seed = self._chance.randrange(1 << 30)
            process = subprocess.Popen(python(CLIENT, self._address, str(seed)))
            self._running.append((seed, process))

    def finish(self) -> None:
        """Wait until all have ended."""
        deadline = time.monotonic() + HANG_S
        while self._running:
            self.turn(0)
            if time.monotonic() > deadline:
                self._counts.failures.append(f"{len(self._running)} clients hang")
                for _, process in self._running:
                    process.kill()
                    process.wait()
                self._running.clear()
            time.sleep(0.01)


def work(session: Any, chance: random.Random, counts: Counts) -> None:
    """Do one round of work: regions, transfers that are checked, a monitor, a measurement."""
    size = chance.choice([1, 4096, 65_537, 1 << 20, 8 << 20])
    with session.empty(size) as region, session.empty(size) as other:
        data = chance.randbytes(size)
        session.write(region, data)
        session.copy(region, other)
        if session.read(other, size) != data:
            counts.failures.append(f"round {counts.rounds}: bytes differ")
        started = [session.start_read(region, size) for _ in range(4)]
        for transfer in started[::2]:
            transfer.cancel()
        for transfer in started[1::2]:
            transfer.wait()
        with session.monitor(region, size=min(size, 64), every_s=0.01) as monitor:
            monitor.read()
        session.latency(region, size=min(size, 64), count=20)
        session.digest(region)
    counts.rounds += 1
    counts.transfers += 7
    counts.bytes += 5 * size
    counts.monitors += 1


def fill_tables(session: Any) -> None:
    """Open and close so many regions that no process needs another entry of its table (3 MiB)."""
    for _ in range(REGIONS):
        session.empty(1).close()


def idle(session: Any, clients: Clients) -> None:
    """Wait until the agent has freed what clients that ended had."""
    clients.finish()
    deadline = time.monotonic() + HANG_S
    while session.stats()["clients"] > 1:
        if time.monotonic() > deadline:
            raise TimeoutError("the agent keeps clients that ended")
        time.sleep(0.01)


def _hangs(_number: int, _frame: object) -> None:
    faulthandler.dump_traceback()
    raise TimeoutError(f"a round takes over {HANG_S} s")


def run(seconds: float, seed: int, at_most: int) -> tuple[dict[str, list[Sample]], Counts]:
    """Run the soak and return the samples of both sides and what was done."""
    from support.processes import agents

    import dgkit

    chance, counts = random.Random(seed), Counts()
    sides: dict[str, list[Sample]] = {"host": [], "agent": []}
    signal.signal(signal.SIGALRM, _hangs)
    every_s = max(2.0, seconds / MAX_SAMPLES)
    with agents.agent() as running, dgkit.connect(running.address) as session:
        clients = Clients(running.address, chance, counts)
        fill_tables(session)
        start = time.monotonic()
        due = start
        while time.monotonic() < start + seconds and not counts.failures:
            try:
                signal.alarm(HANG_S)
                work(session, chance, counts)
                clients.turn(at_most)
                if time.monotonic() > due:
                    idle(session, clients)
                    sides["host"].append(sample_here(start))
                    sides["agent"].append(sample(running.pid, start))
                    due = time.monotonic() + every_s
            except Exception as error:
                counts.failures.append(f"round {counts.rounds}: {type(error).__name__}: {error}")
        signal.alarm(0)
        clients.finish()
    return sides, counts


def show(report: dict[str, Any], seconds: float) -> None:
    """Print the report as text."""
    done = report["done"]
    print(f"{seconds:.0f} s:", ", ".join(f"{value:,} {name}" for name, value in done.items()))
    for row in report["rows"]:
        print(
            f"{row['side']:<6} {row['figure']:<8} {row['first']:>9,} -> {row['last']:>9,}  "
            f"growth {row['growth']:>9,} (limit {row['limit']:,}), {row['per_hour']:,} an hour"
        )
    print(f"host: {report['cached_kib']:,} KiB at most in caches, which were freed at each sample")
    for failure in report["failures"]:
        print(f"FAILED: {failure}")
    print("ok" if report["ok"] else "FAILED", flush=True)


def main() -> int:
    """Read the command line, run the soak, print the report; 1 if the verdict is FAILED."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--hours", type=float, default=5 / 60, help="duration (5 minutes)")
    parser.add_argument("--clients", type=int, default=2, help="clients at a time (2)")
    parser.add_argument("--seed", type=int, default=time.time_ns() % (1 << 30))
    parser.add_argument("--json", type=Path, help="file for report and samples")
    arguments = parser.parse_args()
    seconds = arguments.hours * 3600
    print(f"seed {arguments.seed}", flush=True)
    sides, counts = run(seconds, arguments.seed, arguments.clients)
    report = judge(sides, counts)
    show(report, seconds)
    if arguments.json:
        samples = {side: [asdict(each) for each in rows] for side, rows in sides.items()}
        text = json.dumps(
            {"seed": arguments.seed, "seconds": seconds, **report, "samples": samples}
        )
        arguments.json.write_text(text + "\n", encoding="utf-8")
    return 0 if report["ok"] else 1


if __name__ == "__main__":
    sys.path.insert(0, str(ROOT / "tests"))
    sys.exit(main())
