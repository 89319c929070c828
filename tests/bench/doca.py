# SPDX-License-Identifier: Apache-2.0
"""Prints the figures of the provider doca, over softdoca or, on a BlueField, over DOCA itself.

    python tests/bench/doca.py                            all rows over softdoca
    python tests/bench/doca.py --provider doca            the same over NVIDIA's libraries
    python tests/bench/doca.py --json results/NAME.json   and stores them

The bare loop beside a figure is the library's own submit and progress in C, over the same
addresses, with no queue and no checks of dgkit's. Both sides are this process, so the bytes are
mapped; the last rows have a second process, whose own thread copies. Nothing here passes or fails
a test: it reports.
"""

from __future__ import annotations

import ctypes
import statistics
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import rows
from rig import Figure, per_call, rounds, save
from table import parse, printed

import dgkit
from dgkit.dma import measure

BATCH, MIB = 256, 1 << 20
OWNER = """
import sys, dgkit
provider, size = sys.argv[1], int(sys.argv[2])
with dgkit.Device(provider) as device:
    region = device.register(dgkit.empty(size))
    print(region.export().hex(), flush=True)
    sys.stdin.read()
"""


@dataclass
class Bench(rows.Bench):
    """The region here, and its own import; or that of a second process."""

    there: Any  # the memory behind remote, where it is of this process


def bare_ns(operation: Any, window: int, count: int = 4000) -> float:
    """Mean ns of the bare loop, the median of five."""
    loops = (measure.measure_bare(operation, count, window) for _ in range(5))
    return statistics.median(sum(loop) / len(loop) for loop in loops)


def small(bench: Bench) -> Iterator[Figure]:
    """64 B one after another: the C core's own loop against the bare one."""
    with bench.device.queue() as queue:
        operation = queue.prepare_write(bench.local, bench.remote, size=64)

        def latency() -> float:
            taken = measure.latency(queue, bench.local, bench.remote, size=64, count=4000)
            return sum(taken.ns) / len(taken.ns)

        yield rounds(latency, partial(bare_ns, operation, 1)).figure(
            "64 B, one after another, in C", "ns", "bare loop + 60 ns", "bare loop"
        )
        call = partial(per_call, operation.run, 4000)
        yield rounds(call, partial(bare_ns, operation, 1)).figure(
            "64 B, op.run() from Python", "ns", "published", "bare loop"
        )


def batches(bench: Bench) -> Iterator[Figure]:
    """A prepared batch of 256 operations of 64 B in one call."""
    with bench.device.queue(BATCH) as queue:
        one = queue.prepare_write(bench.local, bench.remote, size=64)
        batch = queue.prepare(bench.records(BATCH))
        taken = rounds(
            lambda: BATCH * 1e3 / per_call(batch.run, 200), lambda: 1e3 / bare_ns(one, BATCH)
        )
        yield taken.figure(f"64 B, batch of {BATCH}", "M/s", "10 M/s", "bare loop, M/s")


def _rate(bench: Bench, queue: dgkit.Queue, size: int) -> float:
    """16 in one call over the first `size` bytes, bytes per ns."""
    records = bench.records(16)
    records["size"], records["local_offset"], records["remote_offset"] = size, 0, 0
    with queue.prepare(records) as batch:
        return size * len(records) / statistics.median(per_call(batch.run, 2) for _ in range(9))


def _memcpy(bench: Bench, size: int) -> float:
    """The first `size` bytes of the same memory, by libc in this thread, bytes per ns."""
    source, target = (memory.array.ctypes.data for memory in (bench.local.memory, bench.there))
    copies = 20
    took = (per_call(partial(ctypes.memmove, target, source, size), copies) for _ in range(9))
    return size / statistics.median(took)


def large(bench: Bench) -> Iterator[Figure]:
    """2 MiB, the largest task of a BlueField, against memcpy over the same bytes."""
    with bench.device.queue() as queue:
        taken = rounds(lambda: _rate(bench, queue, 2 * MIB), lambda: _memcpy(bench, 2 * MIB))
        yield taken.figure("2 MiB copies of mapped memory", "GB/s", "0.95 x memcpy", "memcpy, GB/s")


def another(bench: Bench) -> Iterator[Figure]:
    """The same with a second process, which owns the remote bytes and copies them itself."""
    code = f"import sys; sys.path[:] = {sys.path!r}\n{OWNER}"
    command = [sys.executable, "-c", code, bench.device.provider, str(16 * MIB)]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True) as owner:
        token = bytes.fromhex(owner.stdout.readline())
        with bench.device.import_region(token) as remote, bench.device.queue() as queue:
            far = Bench(bench.device, bench.local, remote, token, bench.there)
            one = queue.prepare_write(far.local, remote, size=64)
            taken = rounds(partial(per_call, one.run, 500), partial(bare_ns, one, 1, 500))
            yield taken.figure("64 B, a second process", "ns", "published", "bare loop")
            taken = rounds(lambda: _rate(far, queue, 2 * MIB), lambda: _memcpy(far, 2 * MIB))
            yield taken.figure("2 MiB, a second process", "GB/s", "published", "memcpy, GB/s")
        owner.stdin.close()


ALL = (small, batches, large, another)


def measured(provider: str, names: list[str]) -> Iterator[Figure]:
    """The figures of the rows called `names`, or of all."""
    with dgkit.Device(provider) as device:
        local = device.register(dgkit.empty(16 * MIB))
        there = dgkit.empty(16 * MIB)
        owned = device.register(there)
        token = owned.export()
        bench = Bench(device, local, device.import_region(token), token, there)
        for row in ALL:
            if not names or row.__name__ in names:
                yield from row(bench)


def main() -> None:
    """Measures, prints, and stores if asked to."""
    options = parse(__doc__, ALL, ("softdoca", "doca"))
    label = "softdoca (software DPU)" if options.provider == "softdoca" else "doca"
    title = f"dgkit, {label}: medians of rounds"
    try:
        figures = printed(measured(options.provider, options.names), title)
    except dgkit.DeviceUnavailable as error:
        sys.exit(f"doca.py: {error}")
    if options.json:
        with dgkit.Device(options.provider) as device:
            save(options.json, figures, provider=label, engine=device.caps.engine)


if __name__ == "__main__":
    main()
