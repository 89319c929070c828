# SPDX-License-Identifier: Apache-2.0
"""Prints the figures of GPU-initiated operations, with what this machine gives now.

    python tests/bench/gpu_initiated.py                        half a minute
    python tests/bench/gpu_initiated.py --json results/FILE    and stores them

The provider is soft: the proxy, one thread of this process, moves the bytes between pinned memory
and memory of dgkit.empty(). On a real GPU the provider cuda follows: its copy engine moves them
into GPU memory of another process, from pinned and from GPU memory. The bare loop is a kernel's
thread ringing a doorbell in pinned memory that a loop in C answers, without a queue and without a
proxy. `dgkit bench gpu-initiated` has more rows; here each is the median of rounds, beside what it
should reach on a real GPU. Nothing here passes or fails a test: it reports.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from statistics import median
from typing import Any

from rich.console import Console
from rig import Figure, rounds, save
from table import shown

import dgkit
from dgkit.dma import measure
from dgkit.gpu_initiated.kernel_benchmark import RATE_RINGS, RATE_SIZE, RATE_THREADS, Meter

SIZE = RATE_RINGS * RATE_THREADS * RATE_SIZE
OWNER = """
import sys, dgkit
memory = dgkit.empty(int(sys.argv[1]), on="gpu")
with dgkit.Device("soft") as device:
    region = device.register(memory)
    print(region.export().hex(), flush=True)
    sys.stdin.read()
"""


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
            return median(self.meter.start_single(q, ids, op=op, fenced=fenced).take())

    @contextmanager
    def rates(
        self, rings: int, threads: int, *, fenced: bool, scattered: bool = False
    ) -> Iterator[Callable[[], float]]:
        """Open queues; yield what measures millions of puts of 64 bytes a second."""
        with ExitStack() as stack:
            qs = [
                stack.enter_context(self.device.gpu_queue(4096, timeout=20)) for _ in range(rings)
            ]
            ids = self.remote.id, self.local.id
            how: Any = {"threads": threads, "fenced": fenced, "scattered": scattered}
            yield lambda: self.meter.rate(qs, *ids, **how).per_s / 1e6

    def rate(self, rings: int, threads: int, *, fenced: bool) -> float:
        """Millions of puts of 64 bytes a second, by new queues."""
        with self.rates(rings, threads, fenced=fenced) as rate:
            return rate()

    def written(self) -> float:
        """Nanoseconds of the provider's own write of 8 bytes between the same memories."""
        with self.device.queue() as q:
            taken = measure.latency(q, self.local, self.remote, op="write", size=8, count=2000)
        return median(taken.ns)

    def stored(self, rings: int, threads: int, *, fenced: bool) -> float:
        """Millions of records a second that the same threads store, not taken."""
        return self.meter.stored(rings, threads, fenced=fenced).per_s / 1e6


def figures(b: Bench) -> Iterator[Figure]:
    """Each row beside its floor, taken in the same run."""
    taken = rounds(lambda: b.single("doorbell"), b.bare)
    yield taken.figure("doorbell, answered by the proxy", "ns", "1.25 x the bare loop", "bare loop")
    for fenced, how in ((True, "fenced"), (False, "DG_NO_RELEASE")):
        taken = rounds(lambda fenced=fenced: b.single("put", fenced=fenced), b.bare)
        yield taken.figure(f"put of 8 B, {how}", "ns", "bare + 400 ns", "bare loop")
    for rings, threads, aims in ((1, 32, (6, 8)), (1, 256, (6, 8)), (8, 256, (20, 25))):
        for fenced, how, aim in zip((True, False), ("fenced", "DG_NO_RELEASE"), aims, strict=True):
            taken = rounds(
                lambda f=fenced, r=rings, t=threads: b.rate(r, t, fenced=f),
                lambda f=fenced, r=rings, t=threads: b.stored(r, t, fenced=f),
                count=5,
            )
            yield taken.figure(
                f"puts of 64 B, {rings} rings of {threads} threads, {how}",
                "M/s",
                f"{aim} M/s",
                "records stored, M/s",
            )


def gpu_figures(b: Bench, source: str) -> Iterator[Figure]:
    """Puts by the copy engine into GPU memory of another process."""
    taken = rounds(lambda: b.single("put"), lambda: b.bare() + b.written())
    yield taken.figure(
        f"put of 8 B, {source} to GPU memory of another process",
        "ns",
        "both + 500 ns",
        "bare loop + own write",
    )
    aim = 2.5 if source == "pinned" else 1.2
    for owner, scattered in product(("idle", "busy"), (False, True)):
        with (
            b.rates(RATE_RINGS, RATE_THREADS, fenced=True, scattered=scattered) as rate,
            b.meter.busy() if owner == "busy" else nullcontext(),
        ):
            taken = rounds(rate, lambda: b.stored(RATE_RINGS, RATE_THREADS, fenced=True), count=5)
        places = "scattered" if scattered else "neighbours"
        what = f"puts of 64 B, {places}, 8 rings of 256 threads, {source} to GPU memory"
        yield taken.figure(f"{what}, owner {owner}", "M/s", f"{aim} M/s", "records stored, M/s")


@contextmanager
def exported() -> Iterator[bytes]:
    """GPU memory of another process: its descriptor."""
    code = f"import sys; sys.path[:] = {sys.path!r}\n{OWNER}"
    command = [sys.executable, "-c", code, str(SIZE)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as owner:
        try:
            yield bytes.fromhex(owner.stdout.readline().decode())
        finally:
            owner.stdin.close()
            owner.wait(10)


def on_gpu(meter: Meter) -> Iterator[Figure]:
    """The rows of the provider cuda."""
    with (
        exported() as token,
        dgkit.Device("cuda") as device,
        dgkit.empty(SIZE, on="pinned") as pinned,
        dgkit.empty(SIZE, on="gpu") as own,
    ):
        remote = device.import_region(token, timeout=10)
        for source, memory in (("pinned", pinned), ("GPU", own)):
            yield from gpu_figures(Bench(device, device.register(memory), remote, meter), source)


def report(found: list[Figure], title: str, file: Path | None, meter: Meter) -> None:
    """Print the figures; store them in the file, if one is given and they are those of a GPU."""
    Console().print(shown(found, title))
    if file and meter.emulated:
        print("not stored: the emulated GPU's figures are none of a GPU", file=sys.stderr)
    elif file:
        save(file, found)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--json", type=Path, metavar="FILE", help="store the figures there")
    args = parser.parse_args()
    meter = Meter()
    with (
        dgkit.Device("soft") as device,
        dgkit.empty(SIZE, on=meter.local_kind) as source,
        dgkit.empty(SIZE) as target,
    ):
        local, owned = device.register(source), device.register(target)
        remote = device.import_region(owned.export())
        found = list(figures(Bench(device, local, remote, meter)))
    if not meter.emulated:
        found += on_gpu(meter)
    title = f"GPU-initiated ({meter.label}), one proxy thread: medians of rounds"
    report(found, title, args.json, meter)
    return 0


if __name__ == "__main__":
    sys.exit(main())
