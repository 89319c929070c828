"""Prints what the provider verbs costs over bare libibverbs calls, as ratios.

    dgkit testbed run host -- python tests/bench/verbs.py     in a guest: emulated
    python tests/bench/verbs.py                               on a machine with an RDMA adapter
    python tests/bench/verbs.py --json FILE                   stores them

The bare loop posts the same work requests on the same connection and polls for their completions,
in C, with no queue and no checks of dgkit's. The two take turns, round by round, so a machine that
is slower for a while is so for both. Nothing here passes or fails a test: it reports.
"""

from __future__ import annotations

import argparse
import json
import platform
import statistics
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

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
    parser.add_argument("--json", type=Path, metavar="FILE", help="store the ratios there")
    args = parser.parse_args()
    rows: list[dict[str, object]] = []

    def add(what: str, reach: str, ratios: tuple[float, float, float]) -> None:
        middle, low, high = ratios
        rows.append({"what": what, "ratio": middle, "quartiles": [low, high], "reach": reach})
        print(f"{what}, dgkit over bare: {middle:.3f} ({low:.3f} to {high:.3f}; to reach: {reach})")

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
    if args.json:
        about = {
            "command": f"tests/bench/verbs.py --rounds {args.rounds} --count {args.count}",
            "engine": engine,
            "emulated": software,
            "machine": f"{platform.machine()}, Linux {platform.release()}",
        }
        args.json.write_text(json.dumps({**about, "rows": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()
