# SPDX-License-Identifier: Apache-2.0
"""Rows that are held against another program of the same round, by a ratio.

The others: Python's slice copy, a bare hand-off between two threads, the bare ring engine of
bare_engine.c, OpenMPI's put where mpi4py is installed, an eventfd.
"""

from __future__ import annotations

import contextlib
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
from bare import engine_batch, eventfd_ns
from peers import mpi_us
from rig import (
    MOVED,
    Figure,
    Taken,
    floor_ns,
    interleaved,
    median_call,
    ratio_figure,
    statement_ns,
)

import dgkit
from dgkit.dma import measure

if TYPE_CHECKING:
    from rows import Bench

DEPTH = 256
NO_MPI = "mpi4py or its mpiexec is not installed"


def slice_copy() -> float:
    """ns of Python's `a[0:64] = b[0:64]` between two memoryviews."""
    a, b = (memoryview(bytearray(64)) for _ in range(2))
    return statement_ns("a[0:64] = b[0:64]", {"a": a, "b": b})


def handoff() -> float:
    """ns of a hand-off of 64 bytes to another thread and back, in C."""
    return floor_ns(64, handoff=True)


def single(bench: Bench) -> Iterator[Figure]:
    """One operation of 64 B at a time: prepared, and `q.write().wait()`, on both paths."""
    names: dict[str, Any] = {"local": bench.local, "remote": bench.remote}
    with contextlib.ExitStack() as stack:
        for path in ("inline", "worker"):
            queue = stack.enter_context(bench.device.queue(DEPTH, path))
            op = queue.prepare_write(bench.local, bench.remote, size=64)
            names |= {f"{path}_run": op.run, f"{path}_write": queue.write}

        def timed(path: str, *, prepared: bool) -> float:
            call = f"{path}_run()" if prepared else f"{path}_write(local, remote, size=64).wait()"
            return statement_ns(call, names)

        measures = {
            "slice copy": slice_copy,
            "prepared inline": lambda: timed("inline", prepared=True),
            "prepared worker": lambda: timed("worker", prepared=True),
            "write inline": lambda: timed("inline", prepared=False),
            "write worker": lambda: timed("worker", prepared=False),
            "OpenMPI": lambda: mpi_us((64,)).get(64, 0) * 1e3,
        }
        taken = interleaved(measures, handoff)
    yield from _single_figures(taken)


def _single_figures(taken: tuple[list[Taken], int]) -> Iterator[Figure]:
    both = "hand-off floor + k x slice copy"
    for what, value, limit, reach, against in (
        (
            "64 B, prepared, op.run(), inline path",
            "prepared inline",
            lambda t: t["slice copy"],
            "1.0 x the slice copy",
            "slice copy",
        ),
        (
            "64 B, prepared, op.run(), worker path",
            "prepared worker",
            lambda t: t["floor"] + 1.3 * t["slice copy"],
            "floor + 1.3 x the slice copy",
            both,
        ),
        (
            "64 B, q.write().wait(), worker path",
            "write worker",
            lambda t: t["floor"] + 3.2 * t["slice copy"],
            "floor + 3.2 x the slice copy",
            both,
        ),
    ):
        yield ratio_figure(
            what, "ns", taken, value=value, limit=limit, reach=reach, against=against, most=True
        )
    what = "64 B, q.write().wait(), inline path"
    if not all(each["OpenMPI"] for each in taken[0]):
        yield _without_mpi(what, "ns", [each["write inline"] for each in taken[0]], taken[1])
        return
    yield ratio_figure(
        what, "ns", taken, value="write inline", limit=lambda t: t["OpenMPI"],
        reach="OpenMPI's", against="OpenMPI put + flush", most=True,
    )  # fmt: skip


def _without_mpi(what: str, unit: str, values: list[float], dropped: int) -> Figure:
    value = statistics.median(values) if values else None
    return Figure(what, unit, value, NO_MPI, None, rounds=values, dropped=dropped)


def one_by_one(bench: Bench) -> Iterator[Figure]:
    """`q.write` one by one with 256 in flight, then a wait for each, beside as many puts."""
    many = [None] * DEPTH
    local, remote = bench.local, bench.remote
    with contextlib.ExitStack() as stack:
        queues = {
            p: stack.enter_context(bench.device.queue(DEPTH, p)) for p in ("inline", "worker")
        }

        def rate(path: str) -> float:
            write = queues[path].write

            def call() -> None:
                for transfer in [write(local, remote, size=64) for _ in many]:
                    transfer.wait()

            return DEPTH * 1e3 / median_call(call, 20)

        def puts() -> float:
            us = mpi_us(("many", DEPTH)).get(DEPTH)
            return 1 / us if us else 0.0

        measures = {
            "inline": lambda: rate("inline"),
            "worker": lambda: rate("worker"),
            "OpenMPI": puts,
        }
        taken = interleaved(measures, handoff)
    for path, share in (("inline", 1.0), ("worker", 0.7)):
        what = f"posted one by one, depth {DEPTH}, q.write, {path} path"
        if not all(each["OpenMPI"] for each in taken[0]):
            yield _without_mpi(what, "M/s", [each[path] for each in taken[0]], taken[1])
            continue
        yield ratio_figure(
            what, "M/s", taken, value=path, limit=lambda t, s=share: s * t["OpenMPI"],
            reach=f"{share} x OpenMPI's", against=f"{share} x OpenMPI's puts", most=False,
        )  # fmt: skip


def one_batch(bench: Bench) -> Iterator[Figure]:
    """One call a batch of 256 x 64 B, prepared and not, beside one call of the bare engine."""
    batch, out = bench.records(DEPTH), np.zeros(DEPTH, dgkit.WC_DTYPE)
    with contextlib.ExitStack() as stack:
        measures = {}
        bare = stack.enter_context(engine_batch(DEPTH))
        for path in ("worker", "inline"):
            queue = stack.enter_context(bench.device.queue(DEPTH, path))
            prepared = queue.prepare(batch)
            measures[f"{path} prepared"] = prepared.run
            measures[path] = lambda q=queue: q.run(batch, out)
        with_bare = {"bare": bare, **{n: m for n, m in measures.items() if "worker" in n}}
        worker = interleaved(_rates(with_bare), handoff)
        inline = interleaved(_rates({n: m for n, m in measures.items() if "inline" in n}), handoff)
    what = f"one call a batch of {DEPTH} x 64 B"
    for value, share in (("worker", 0.75), ("worker prepared", 0.9)):
        yield ratio_figure(
            f"{what}, {value}", "M/s", worker, value=value, limit=lambda t, s=share: s * t["bare"],
            reach=f"{share} x a bare engine", against=f"{share} x a bare engine's", most=False,
        )  # fmt: skip
    yield ratio_figure(
        f"{what}, inline", "M/s", inline, value="inline",
        limit=lambda t: 0.6 * t["inline prepared"],
        reach="0.6 x prepared", against="0.6 x prepared", most=False,
    )  # fmt: skip


def _rates(calls: dict[str, Any]) -> dict[str, Any]:
    return {name: lambda c=call: DEPTH * 1e3 / median_call(c, 100) for name, call in calls.items()}


SPIN = "import os\nos.nice(0)\nwhile True: pass"


@contextlib.contextmanager
def busy_cores() -> Iterator[None]:
    """Another busy process for each CPU that this one may use."""
    command = [sys.executable, "-c", SPIN]
    others = [subprocess.Popen(command) for _ in os.sched_getaffinity(0)]
    try:
        yield
    finally:
        for other in others:
            other.kill()
            other.wait()


def busy(bench: Bench) -> Iterator[Figure]:
    """The worker path while each core has other work: the share of runs that take long."""
    with bench.device.queue(DEPTH, "worker") as queue:

        def p50s(count: int = 30) -> list[float]:
            found = []
            for _ in range(count):
                samples = measure.latency(queue, bench.local, bench.remote, size=64, count=2000)
                found.append(statistics.median(samples.ns))
                time.sleep(0.02)
            return found

        quiet = p50s()
        with busy_cores():
            loaded, eventfd = p50s(), statistics.median(eventfd_ns() for _ in range(5))
    for what, values in (("idle cores", quiet), ("a busy process on each core", loaded)):
        slow = sum(value > 10 * MOVED * min(quiet) for value in values)
        yield Figure(
            f"64 B, worker path, 30 runs, {what}: p50 of the median run", "ns",
            statistics.median(values), f"{slow} of 30 runs slow", slow == 0,
            "eventfd, both cores busy", eventfd, values,
        )  # fmt: skip


ALL = (single, one_by_one, one_batch, busy)
