"""Prints the figures of GPU-initiated operations, with what this machine gives now.

    python tests/bench/gpu_initiated.py                        half a minute
    python tests/bench/gpu_initiated.py --json results/FILE    and stores them

The provider is soft: the proxy, one thread of this process, moves the bytes between pinned memory
and memory of dgkit.empty(). The bare loop is a kernel's thread ringing a doorbell in pinned memory
that a loop in C answers, without a queue and without a proxy. `dgkit bench gpu-initiated` has more
rows; here each is the median of rounds, beside what it should reach on a real GPU. Nothing here
passes or fails a test: it reports.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from rich.console import Console
from rig import Figure, rounds, save
from table import shown

import dgkit
from dgkit.gpu_initiated.measure import RATE_RINGS, RATE_SIZE, RATE_THREADS, Meter


@dataclass
class Bench:
    """What the rows share."""

    device: dgkit.Device
    local: dgkit.Region
    remote: dgkit.RemoteRegion
    meter: Meter

    def bare(self) -> float:
        """Nanoseconds from a kernel's doorbell to the answer of a loop in C."""
        return median(self.meter.bare())

    def single(self, op: str, *, fenced: bool = True) -> float:
        """Nanoseconds of one operation of one thread, until it sees the completion."""
        with self.device.gpu_queue(1024) as q:
            ids = self.remote.id, self.local.id
            return median(self.meter.start_single(q, *ids, op=op, fenced=fenced).take())

    def rate(self, rings: int, threads: int, *, fenced: bool) -> float:
        """Millions of puts of 64 bytes a second."""
        with ExitStack() as stack:
            qs = [stack.enter_context(self.device.gpu_queue(4096, limit=20)) for _ in range(rings)]
            ids = self.remote.id, self.local.id
            return self.meter.rate(qs, *ids, threads=threads, fenced=fenced).per_s / 1e6

    def stored(self, rings: int, threads: int, *, fenced: bool) -> float:
        """Millions of records a second that the same threads store, not taken."""
        return self.meter.stored(rings, threads, fenced=fenced).per_s / 1e6


def figures(b: Bench) -> Iterator[Figure]:
    """Each row beside its floor, taken in the same run."""
    taken = rounds(lambda: b.single("doorbell"), b.bare)
    yield taken.figure(
        "doorbell, answered by the proxy", "ns", "1.25 x the bare loop",
        lambda v, r: v <= 1.25 * r, "bare loop",
    )  # fmt: skip
    for fenced, how in ((True, "fenced"), (False, "DG_NO_RELEASE")):
        taken = rounds(lambda fenced=fenced: b.single("put", fenced=fenced), b.bare)
        yield taken.figure(
            f"put of 8 B, {how}", "ns", "bare + 400 ns", lambda v, r: v <= r + 400, "bare loop"
        )
    for rings, threads, aims in ((1, 32, (6, 8)), (1, 256, (6, 8)), (8, 256, (20, 25))):
        for fenced, how, aim in zip((True, False), ("fenced", "DG_NO_RELEASE"), aims, strict=True):
            taken = rounds(
                lambda f=fenced, r=rings, t=threads: b.rate(r, t, fenced=f),
                lambda f=fenced, r=rings, t=threads: b.stored(r, t, fenced=f),
                count=5,
            )
            yield taken.figure(
                f"puts of 64 B, {rings} rings of {threads} threads, {how}", "M/s", f"{aim} M/s",
                lambda v, _, aim=aim: v >= aim, "records stored, M/s",
            )  # fmt: skip


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--json", type=Path, metavar="FILE", help="store the figures there")
    args = parser.parse_args()
    size, meter = RATE_RINGS * RATE_THREADS * RATE_SIZE, Meter()
    with (
        dgkit.Device("soft") as device,
        dgkit.empty(size, on=meter.local_kind) as source,
        dgkit.empty(size) as target,
    ):
        local, owned = device.register(source), device.register(target)
        remote = device.import_region(owned.export())
        found = list(figures(Bench(device, local, remote, meter)))
    title = f"GPU-initiated ({meter.label}), soft, one proxy thread: medians of rounds"
    Console().print(shown(found, title))
    if args.json and meter.emulated:
        print("not stored: the emulated GPU's figures are none of a GPU", file=sys.stderr)
    elif args.json:
        save(args.json, found)
    return 0


if __name__ == "__main__":
    sys.exit(main())
