# SPDX-License-Identifier: Apache-2.0
"""Prints the table of GPU figures to reach, with what this machine gives now.

    python tests/bench/gpu.py                                all rows, about two minutes
    python tests/bench/gpu.py small batches                  some of them
    python tests/bench/gpu.py --json results/gpu-NAME.json   and stores them

One process owns the arrays, in CUDA virtual memory and in CuPy's pool (CUDA IPC); this one is the
DPU. Each floor is the driver's plain copy with a flag behind it, in a loop in C, over the same
addresses, taken before and after each round. Nothing here passes or fails a test: it reports.
"""

from __future__ import annotations

import contextlib
import statistics
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from itertools import product
from typing import Any

import numpy as np
from rig import Figure, Rounds, per_call, rounds, save
from table import parse, printed

import dgkit
from dgkit.dma import measure

MIB = 1 << 20
SIZE = 256 * MIB
OWNER = """
import sys, threading, cupy, dgkit
size = int(sys.argv[1])
memory = dgkit.empty(size, on="gpu")
pool = cupy.zeros(size, "u1")
busy, end = threading.Event(), threading.Event()
source = '''extern "C" __global__ void spin(long long cycles)
{ long long start = clock64(); while (clock64() - start < cycles); }'''
def keep_busy():
    spin = None
    while not end.is_set():
        if busy.wait(0.1):
            spin = spin or cupy.RawKernel(source, "spin")
            for _ in range(4):
                spin((264,), (1024,), (2_000_000,))
            cupy.cuda.get_current_stream().synchronize()
with dgkit.Device("soft") as device:
    region = device.register(memory)
    shared = device.register(dgkit.wrap(pool, share_block=True))
    print(region.export().hex(), shared.export().hex(), flush=True)
    worker = threading.Thread(target=keep_busy)
    worker.start()
    for line in sys.stdin:
        busy.set() if line == "busy\\n" else busy.clear()
        print("ok", flush=True)
    end.set()
    worker.join()
"""


@dataclass
class Bench:
    """What the rows share. `owner` is told "busy" or "idle"."""

    device: dgkit.Device
    local: dgkit.Region
    remote: dgkit.RemoteRegion  # CUDA virtual memory
    shared: dgkit.RemoteRegion  # CUDA IPC
    token: bytes
    owner: subprocess.Popen[str]

    @contextlib.contextmanager
    def busy(self) -> Iterator[None]:
        """The owner keeps its GPU busy with kernels."""
        self._tell("busy")
        # Until its kernels run: then the driver's plain small write waits for a time slice.
        with self.device.queue() as queue, self.prepared(queue, "write", 8) as operation:
            while max(measure.measure_bare(operation, 5)) < 500_000:
                pass
        try:
            yield
        finally:
            self._tell("idle")

    def _tell(self, what: str) -> None:
        self.owner.stdin.write(what + "\n")
        self.owner.stdin.flush()
        self.owner.stdout.readline()

    def prepared(self, queue: dgkit.Queue, op: str, size: int, remote: Any = None) -> Any:
        """A prepared operation."""
        return getattr(queue, f"prepare_{op}")(self.local, remote or self.remote, size=size)

    def memories(self) -> Iterator[tuple[str, dgkit.RemoteRegion]]:
        """Each remote region, and what it is called."""
        yield "CUDA VMM", self.remote
        yield "CUDA IPC", self.shared


def mean_bare(operation: Any, count: int = 500, window: int = 1) -> float:
    """Mean ns of a plain copy, the median of five loops: as per_call over blocks."""
    loops = (measure.measure_bare(operation, count, window) for _ in range(5))
    return statistics.median(sum(loop) / len(loop) for loop in loops)


def mean_call(call: Any, calls: int = 500) -> float:
    """Mean ns of a call, the median of five loops."""
    return statistics.median(per_call(call, calls) for _ in range(5))


def small(bench: Bench) -> Iterator[Figure]:
    """8 B and 4 KiB, both ways, from Python, the owner idle."""
    for op, size in product(("write", "read"), (8, 4096)):
        yield from _small(bench, op, size)
    for size in (8, 4096):
        yield from _small_shared(bench, size)


def _small_shared(bench: Bench, size: int) -> Iterator[Figure]:
    with (
        bench.device.queue() as queue,
        bench.prepared(queue, "write", size, bench.shared) as operation,
    ):
        mean_call(operation.run)
        taken = rounds(partial(mean_call, operation.run), lambda: mean_bare(operation))
    yield taken.figure(f"write {size} B, CUDA IPC, prepared", "ns", "1.15 x the C loop", "C loop")


def _small(bench: Bench, op: str, size: int) -> Iterator[Figure]:
    with bench.device.queue() as queue, bench.prepared(queue, op, size) as operation:
        once = getattr(queue, op)
        calls = {
            "prepared": operation.run,
            f"q.{op}().wait()": lambda: once(bench.local, bench.remote, size=size).wait(),
        }
        for how, call in calls.items():
            mean_call(call)
            taken = rounds(partial(mean_call, call), lambda: mean_bare(operation))
            yield taken.figure(f"{op} {size} B, {how}", "ns", "1.15 x the C loop", "C loop")


def _samples(bench: Bench, remote: Any, op: str, size: int, count: int) -> list[int]:
    with bench.device.queue() as queue:
        taken = measure.latency(queue, bench.local, remote, op=op, size=size, count=count)
    return sorted(taken.ns)


def busy(bench: Bench) -> Iterator[Figure]:
    """One small operation while the owner's kernels keep the GPU busy, beside it idle."""
    for (memory, remote), op, size in product(
        bench.memories(), ("write", "read"), (8, 20, 64, 4096)
    ):
        yield from _busy(bench, memory, remote, op, size)
    for size in (8, 4096):
        yield _busy_plain(bench, size)


def _busy(bench: Bench, memory: str, remote: Any, op: str, size: int) -> Iterator[Figure]:
    medians, tails = Rounds(), Rounds()
    for _ in range(5):
        idle = statistics.median(_samples(bench, remote, op, size, 5000))
        with bench.busy():
            taken = _samples(bench, remote, op, size, 5000)
        for rounds_, value in ((medians, taken[2500]), (tails, taken[4950])):
            rounds_.values.append(value)
            rounds_.references.append(idle)
    what = f"{op} {size} B, {memory}, owner busy"
    yield medians.figure(f"{what}, p50", "ns", "1.5 x idle", "idle")
    yield tails.figure(f"{what}, p99", "ns", "50,000 ns", "idle p50")


def _busy_plain(bench: Bench, size: int) -> Figure:
    with (
        bench.device.queue() as queue,
        bench.prepared(queue, "write", size) as operation,
        bench.busy(),
    ):
        plain = statistics.median(measure.measure_bare(operation, 100))
    return Figure(f"write {size} B, owner busy, the driver's plain call", "ns", plain, "", None)


def busy_batches(bench: Bench) -> Iterator[Figure]:
    """256 operations of 64 B at any addresses, and strided rows, while the owner computes."""
    for (memory, remote), op in product(bench.memories(), ("write", "read")):
        wr, wc = _anywhere(bench, op, 256, remote), np.zeros(256, dgkit.WC_DTYPE)
        with bench.device.queue(depth=256) as queue:
            what = f"{op} 64 B, any addresses, batch of 256, {memory}, owner busy"
            yield from _busy_calls(bench, what, 256, {"write": 1.5, "read": 2.5}[op],
                                   lambda queue=queue, wr=wr, wc=wc: queue.run(wr, wc))  # fmt: skip
    shape = {"rows": 4096, "size": 64, "local_stride": 128, "remote_stride": 128}
    for op in ("write", "read"):
        with bench.device.queue() as queue:
            call = getattr(queue, f"{op}_2d")
            run = lambda call=call: call(bench.local, bench.remote, **shape).wait()  # noqa: E731
            yield from _busy_calls(
                bench, f"{op} 64 B, 4096 strided rows, owner busy", 4096, 200, run
            )


def _busy_calls(bench: Bench, what: str, n: int, reach: float, call: Any) -> Iterator[Figure]:
    medians, tails = Rounds(), Rounds()
    for _ in range(3):
        idle = statistics.median(per_call(call, 1) for _ in range(300))
        with bench.busy():
            taken = sorted(per_call(call, 1) for _ in range(1000))
        medians.values.append(n * 1e3 / taken[500])
        tails.values.append(taken[990])
        medians.references.append(n * 1e3 / idle)
        tails.references.append(idle)
    yield medians.figure(what, "M/s", f"{reach} M/s", "idle")
    yield tails.figure(f"{what}, p99", "ns", "published", "idle p50")


def bandwidth(bench: Bench) -> Iterator[Figure]:
    """1 MiB with 16 in flight, and 32 MiB with 2."""
    for op, (size, window) in product(("write", "read"), ((MIB, 16), (32 * MIB, 2))):
        yield from _bandwidth(bench, op, size, window)


def _bandwidth(bench: Bench, op: str, size: int, window: int) -> Iterator[Figure]:
    with bench.device.queue() as queue, bench.prepared(queue, op, size) as operation:
        shape = {"op": op, "size": size, "window": window, "seconds": 0.3}

        def ours() -> float:
            got = measure.rate(queue, bench.local, bench.remote, **shape)
            return got.bytes / got.elapsed_ns

        count = max(20, (512 * MIB) // size)
        taken = rounds(ours, lambda: size / mean_bare(operation, count, window))
    yield taken.figure(
        f"{op} {size // MIB} MiB, {window} in flight", "GB/s", "0.97 x the C loop", "C loop"
    )


def _anywhere(bench: Bench, op: str, n: int, remote: Any = None) -> np.ndarray[Any, Any]:
    wr = np.zeros(n, dgkit.WR_DTYPE)
    places = np.random.default_rng(1)
    wr["op"], wr["size"] = dgkit.Op[op.upper()], 64
    wr["local"], wr["remote"] = bench.local.id, (remote or bench.remote).id
    wr["local_offset"] = places.choice(SIZE // 128, n, replace=False) * 128
    wr["remote_offset"] = places.choice(SIZE // 128, n, replace=False) * 128
    return wr


def batches(bench: Bench) -> Iterator[Figure]:
    """64 B operations at any addresses, in one call a batch."""
    for op, n in product(("write", "read"), (32, 256, 1024)):
        yield from _batches(bench, op, n)


def _batches(bench: Bench, op: str, n: int) -> Iterator[Figure]:
    wr, wc = _anywhere(bench, op, n), np.zeros(n, dgkit.WC_DTYPE)
    with (
        bench.device.queue(depth=n) as queue,
        bench.prepared(queue, op, 64) as one,
        queue.prepare(wr) as batch,
    ):
        for how, call in (("batch", lambda: queue.run(wr, wc)), ("prepared batch", batch.run)):
            mean_call(call, 50)
            taken = rounds(
                lambda call=call: n * 1e3 / mean_call(call, 200),
                lambda: 1e3 / mean_bare(one, window=32),
            )
            yield taken.figure(
                f"{op} 64 B, any addresses, {how} of {n}", "M/s", "2.5 M/s", "plain copies"
            )


def strided(bench: Bench) -> Iterator[Figure]:
    """64 B rows, 128 B apart, as one strided transfer."""
    for op, n in product(("write", "read"), (4096, 65536)):
        yield from _strided(bench, op, n)


def _strided(bench: Bench, op: str, n: int) -> Iterator[Figure]:
    shape = {"rows": n, "size": 64, "local_stride": 128, "remote_stride": 128}
    with bench.device.queue() as queue, bench.prepared(queue, op, 64) as one:
        call = getattr(queue, f"{op}_2d")
        run = lambda: call(bench.local, bench.remote, **shape).wait()  # noqa: E731
        taken = rounds(
            lambda: n * 1e3 / mean_call(run, 100), lambda: 1e3 / mean_bare(one, window=32)
        )
    yield taken.figure(f"{op} 64 B, {n} strided rows", "M/s", "200 M/s", "plain copies")


def imports(bench: Bench) -> Iterator[Figure]:
    """Importing and mapping a region of 64 MiB of another process."""
    code = f"import sys; sys.path[:] = {sys.path!r}\n{OWNER}"
    with _owner(code, 64 * MIB) as ((token, _), _):
        times: list[float] = []

        def once() -> None:
            kept = []
            times.append(per_call(lambda: kept.append(bench.device.import_region(token)), 1))
            kept[0].close()

        for _ in range(5):
            once()
        first = times[0]
        times.clear()
        for _ in range(50):
            once()
        yield Figure("import and map 64 MiB, the first", "ns", first, "", None)
        value = statistics.median(times)
        yield Figure(
            "import and map 64 MiB, p50 of 50", "ns", value, "150,000 ns", value <= 150_000
        )


ALL = (small, busy, bandwidth, batches, busy_batches, strided, imports)


@contextlib.contextmanager
def _owner(code: str, size: int) -> Iterator[tuple[list[bytes], subprocess.Popen[str]]]:
    command = [sys.executable, "-c", code, str(size)]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True) as owner:
        try:
            yield [bytes.fromhex(word) for word in owner.stdout.readline().split()], owner
        finally:
            owner.stdin.close()
            owner.wait(20)


def measured(names: list[str]) -> Iterator[Figure]:
    """The figures of the rows called `names`, or of all."""
    code = f"import sys; sys.path[:] = {sys.path!r}\n{OWNER}"
    with _owner(code, SIZE) as (tokens, owner), dgkit.Device("cuda") as device:
        local = device.register(dgkit.empty(SIZE))
        remotes = [device.import_region(token) for token in tokens]
        bench = Bench(device, local, *remotes, tokens[0], owner)
        for row in ALL:
            if not names or row.__name__ in names:
                yield from row(bench)


def main() -> None:
    """Measures, prints, and stores if asked to."""
    options = parse(__doc__, ALL)
    title = "dgkit, software DPU, GPU copy engine, from Python: medians of rounds"
    figures = printed(measured(options.names), title)
    if options.json:
        driver = dgkit.memory.gpus()[0]
        save(
            options.json, figures, provider="cuda (software DPU, GPU copy engine)",
            gpu=driver.name, driver=driver.driver,
        )  # fmt: skip


if __name__ == "__main__":
    main()
