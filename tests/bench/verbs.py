# SPDX-License-Identifier: Apache-2.0
"""Prints what the provider verbs costs over bare libibverbs calls, as ratios.

    dgkit testbed run host -- python tests/bench/verbs.py     in a guest: emulated
    python tests/bench/verbs.py                               on a machine with an RDMA adapter
    python tests/bench/verbs.py --json FILE                   stores them

The bare loop posts the same work requests on the same connection and polls for their completions,
in C, with no queue and no checks of dgkit's. The two take turns, round by round, so a machine that
is slower for a while is so for both. Where perftest is installed (apt install perftest), its
programs take turns with dgkit, too. They run as two processes that both poll, and ib_write_lat
reports half of a round trip of two writes, while dgkit's latency is that of one write and its
acknowledgement. Nothing here passes or fails a test: it reports.
"""

from __future__ import annotations

import argparse
import platform
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parent.parent))  # tests, for support

from support import json_lines

import dgkit
from dgkit.dma import measure

BATCH, SIZE = 256, 64


def paired(
    rounds: int, ours: Callable[[], float], bare: Callable[[], float]
) -> tuple[float, float, float]:
    """Return the median of ours / bare over the rounds, and its quartiles."""
    ours(), bare()  # what is made at the first call
    ratios = []
    for number in range(rounds):
        turns = [ours, bare] if number % 2 else [bare, ours]
        taken = {turn: turn() for turn in turns}
        ratios.append(taken[ours] / taken[bare])
    low, middle, high = statistics.quantiles(ratios, n=4)
    return middle, low, high


def latency(queue: dgkit.Queue, local: object, remote: object, op: str) -> Callable[[int], float]:
    """Return a function of a round: the median latency of `count` operations."""

    def take(count: int) -> float:
        samples = measure.latency(queue, local, remote, size=SIZE, op=op, count=count)
        return statistics.median(samples.ns)

    return take


def batch_of(local: dgkit.Region, remote: dgkit.RemoteRegion) -> np.ndarray:
    """Return a batch of writes, each to its own place."""
    batch = np.zeros(BATCH, dtype=dgkit.WR_DTYPE)
    batch["local"], batch["remote"] = local.id, remote.id
    batch["op"], batch["size"] = 1, SIZE
    batch["local_offset"] = batch["remote_offset"] = np.arange(BATCH) * SIZE
    return batch


def perftest(program: str, device: str, gid_index: int, count: int) -> float:
    """Run a program of perftest against itself on this machine.

    Returns:
        Nanoseconds of an operation, the median; of ib_write_bw, the mean of a message.
    """
    port = "18777"
    about = ["-d", device, "-x", str(gid_index), "-s", str(SIZE), "-n", str(count), "-p", port]
    command = [program, "-F", *about]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as server:
        while True:  # until the server listens
            done = subprocess.run(
                [*command, "127.0.0.1"], capture_output=True, text=True, check=False, timeout=120
            )
            if not done.returncode:
                break
            if server.poll() is not None:
                raise RuntimeError(f"{program} failed: {done.stdout}{done.stderr}")
        server.wait(120)
    row = next(x.split() for x in done.stdout.splitlines() if x.split()[:1] == [str(SIZE)])
    found = float(row[4])  # microseconds, the typical one; of ib_write_bw, millions a second
    if not found:
        raise RuntimeError(f"{program} needs more than {count} operations")
    return 1000 / found if program.endswith("_bw") else 1000 * found


def beside_perftest(
    queue: dgkit.Queue, local: dgkit.Region, remote: dgkit.RemoteRegion, args: argparse.Namespace
) -> list[tuple[str, str, tuple[float, float, float]]]:
    """Return what was compared, with which program, and the ratios of dgkit over it."""
    with queue.queue_pair() as made:
        gid_index = made.address.gid_index
    name = queue.device.caps.engine.split()[2].rstrip(",")
    rows = []
    for op, program in (("write", "ib_write_lat"), ("read", "ib_read_lat")):
        ours = latency(queue, local, remote, op)
        ratios = paired(
            args.perftest_rounds,
            lambda ours=ours: ours(args.count),
            lambda program=program: perftest(program, name, gid_index, args.count),
        )
        rows.append((f"latency of a {op} of {SIZE} B", program, ratios))
    with queue.prepare(batch_of(local, remote)) as prepared:
        middle, low, high = paired(
            args.perftest_rounds,
            lambda: timed(prepared.run) / BATCH,
            lambda: perftest("ib_write_bw", name, gid_index, max(args.count, 20 * BATCH)),
        )
    rate = f"rate of a batch of {BATCH} writes of {SIZE} B"
    return [*rows, (rate, "ib_write_bw", (1 / middle, 1 / high, 1 / low))]


def timed(call: Callable[[], object]) -> float:
    """Return the nanoseconds of a call."""
    began = time.perf_counter_ns()
    call()
    return time.perf_counter_ns() - began


def main() -> None:
    """Print a line for each ratio."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=31)
    parser.add_argument("--count", type=int, default=200, help="operations of a round")
    parser.add_argument("--perftest-rounds", type=int, default=7, metavar="ROUNDS")
    parser.add_argument("--json", type=Path, metavar="FILE", help="store the ratios there")
    args = parser.parse_args()
    rows: list[dict[str, object]] = []

    def add(
        what: str, reach: str, ratios: tuple[float, float, float], beside: str = "bare"
    ) -> None:
        middle, low, high = ratios
        row = {"what": what, "beside": beside, "ratio": middle, "quartiles": [low, high]}
        rows.append(row | {"reach": reach})
        found = f"{middle:.3f} ({low:.3f} to {high:.3f}; to reach: {reach})"
        print(f"{what}, dgkit over {beside}: {found}", flush=True)

    with dgkit.Device("verbs") as device, device.queue(depth=BATCH) as queue:
        local = device.register(dgkit.empty(BATCH * SIZE))
        target = device.register(dgkit.empty(BATCH * SIZE))
        remote = device.import_region(target.export())
        engine, software = device.caps.engine, "in software" in device.caps.engine
        print(f"{engine}{': emulated, not a measurement' if software else ''}")
        for op in ("write", "read"):
            ours = latency(queue, local, remote, op)
            prepare = queue.prepare_write if op == "write" else queue.prepare_read
            with prepare(local, remote, size=SIZE) as one:
                ratios = paired(
                    args.rounds,
                    lambda ours=ours: ours(args.count),
                    lambda one=one: statistics.median(measure.measure_bare(one, args.count)),
                )
            add(f"latency of a {op} of {SIZE} B", "at most 1.15", ratios)
        with (
            queue.prepare(batch_of(local, remote)) as prepared,
            queue.prepare_write(local, remote, size=SIZE) as one,
        ):
            middle, low, high = paired(
                args.rounds,
                lambda: timed(prepared.run),
                lambda: timed(lambda: measure.measure_bare(one, BATCH, BATCH)),
            )
        rate = f"rate of a batch of {BATCH} writes of {SIZE} B"
        add(rate, "at least 0.95", (1 / middle, 1 / high, 1 / low))
        if shutil.which("ib_write_lat"):
            for what, program, ratios in beside_perftest(queue, local, remote, args):
                add(what, "reported", ratios, program)
        else:
            print("perftest is not installed (apt install perftest)")
    if args.json:
        about = {
            "command": f"tests/bench/verbs.py --rounds {args.rounds} --count {args.count} "
            f"--perftest-rounds {args.perftest_rounds}",
            "engine": engine,
            "emulated": software,
            "machine": f"{platform.machine()}, Linux {platform.release()}",
        }
        json_lines.write(args.json, {**about, "rows": rows})


if __name__ == "__main__":
    main()
