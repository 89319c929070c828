# SPDX-License-Identifier: Apache-2.0
"""The rows of the table: each function measures some of them."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
import statistics
import subprocess
import sys
import time
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from rig import Figure, exporter, floor_ns, median_call, per_call, rounds

import dgkit
from dgkit.dma import measure
from dgkit.runtime_folder import runtime_dir
from dgkit.schema import Moved
from dgkit.units import size_text
from dgkit.widgets.hexview.write_history import WriteHistory, record_writes
from dgkit.wire.messages import Move, MoveDone, encode

SIZE = 64 << 20
DEPTH = 256


@dataclass
class Bench:
    """This process is the DPU; the remote region belongs to a second process."""

    device: Any
    local: Any
    remote: Any
    token: bytes

    def records(self, n: int) -> np.ndarray[Any, Any]:
        """n writes of 64 bytes, one behind another."""
        batch = np.zeros(n, dgkit.WR_DTYPE)
        batch["local"], batch["remote"] = self.local.id, self.remote.id
        batch["size"], batch["op"] = 64, 1
        batch["local_offset"] = batch["remote_offset"] = np.arange(n) * 64
        return batch


def handoff() -> float:
    """The floor of a hand-off of 64 bytes."""
    return floor_ns(64, handoff=True)


def prepared(bench: Bench) -> Iterator[Figure]:
    """64 B through a prepared operation, spinning; and the same with a worker that sleeps."""
    with bench.device.queue(DEPTH, "worker") as queue:
        op = queue.prepare_write(bench.local, bench.remote, size=64)
        yield rounds(lambda: median_call(op.run), handoff).figure(
            "64 B, prepared, op.run(), worker path, spinning",
            "ns",
            "floor + 200 ns",
            "hand-off floor",
        )
    with bench.device.queue(DEPTH, "inline") as queue:
        op = queue.prepare_write(bench.local, bench.remote, size=64)
        yield rounds(lambda: median_call(op.run), handoff).figure(
            "64 B, prepared, op.run(), inline path", "ns", "200 ns", "hand-off floor"
        )
    yield sleeping(bench)


def sleeping(bench: Bench) -> Figure:
    """The engine and the waiter sleep between transfers: two wake-ups of the kernel each."""
    with dgkit.Device("soft", spin_us=0) as device:
        local = device.register(bench.local.memory)
        remote = device.import_region(bench.token)
        with device.queue(DEPTH, "worker", spin_us=0) as queue:
            op = queue.prepare_write(local, remote, size=64)
            taken = rounds(lambda: median_call(op.run, 200), handoff)
    return taken.figure("64 B, prepared, op.run(), sleeping worker", "ns", "published", "floor")


def one_call(bench: Bench) -> Iterator[Figure]:
    """`q.write(...).wait()` against the prepared operation, on both paths."""
    for path in ("inline", "worker"):
        with bench.device.queue(DEPTH, path) as queue:
            op = queue.prepare_write(bench.local, bench.remote, size=64)

            def write(q: Any = queue) -> None:
                q.write(bench.local, bench.remote, size=64).wait()

            yield rounds(lambda c=write: median_call(c), lambda o=op: median_call(o.run)).figure(
                f"64 B, q.write(...).wait(), {path} path", "ns", "prepared + 350 ns", "prepared"
            )


def posted(bench: Bench) -> Iterator[Figure]:
    """Posted one by one at depth 256, then reaped."""
    out = np.zeros(DEPTH, dgkit.WC_DTYPE)
    many = [None] * DEPTH
    with bench.device.queue(DEPTH, "worker") as queue:
        op = queue.prepare_write(bench.local, bench.remote, size=64)

        def prepared_posts() -> None:
            post = op.post
            for _ in many:
                post()
            got = 0
            while got < DEPTH:
                got += queue.poll(out)

        def writes() -> None:
            write, local, remote = queue.write, bench.local, bench.remote
            for transfer in [write(local, remote, size=64) for _ in many]:
                transfer.wait()

        for name, call, reach in (("op.post()", prepared_posts, 7.0), ("q.write", writes, 2.5)):
            rate = rounds(lambda c=call: DEPTH * 1e3 / median_call(c, 20), handoff)
            yield rate.figure(
                f"posted one by one, depth {DEPTH}, {name}",
                "M/s",
                f"{reach} M/s",
                "hand-off floor, ns",
            )


def batches(bench: Bench) -> Iterator[Figure]:
    """One call a batch, against a C loop over the same records; then inline, and strided."""
    for depth in (32, DEPTH):
        with bench.device.queue(depth, "worker") as queue:
            yield batch_worker(bench, queue, depth)
    with bench.device.queue(DEPTH, "inline") as queue:
        batch = queue.prepare(bench.records(DEPTH))
        rate = rounds(lambda: DEPTH * 1e3 / median_call(batch.run, 200), handoff)
        yield rate.figure(
            f"one call a batch, 64 B, inline path, depth {DEPTH}",
            "M/s",
            "200 M/s",
            "hand-off floor, ns",
        )
        rows = 4096
        shape = {"size": 64, "rows": rows, "local_stride": 64, "remote_stride": 64}
        op = queue.prepare_write(bench.local, bench.remote, **shape)
        rate = rounds(lambda: rows * 1e3 / median_call(op.run, 50), handoff)
        yield rate.figure(
            f"one strided transfer of {rows} rows of 64 B", "M/s", "254 M/s", "hand-off floor, ns"
        )


def batch_worker(bench: Bench, queue: Any, depth: int) -> Figure:
    """Half a window in one call while the other half is under way, as the C loop does."""
    half = depth // 2
    halves = [queue.prepare(part) for part in np.split(bench.records(depth), 2)]
    out = np.zeros(depth, dgkit.WC_DTYPE)

    def python_loop(calls: int = 400) -> float:
        poll, in_flight, done = queue.poll, 0, 0
        start = time.perf_counter_ns()
        while done < calls * half:
            while depth - in_flight >= half:
                halves[in_flight // half % 2].post()
                in_flight += half
            got = poll(out)
            in_flight -= got
            done += got
        elapsed = time.perf_counter_ns() - start
        while in_flight:
            in_flight -= poll(out)
        return done * 1e3 / elapsed

    def c_loop() -> float:
        rate = measure.rate(
            queue, bench.local, bench.remote, op="write", size=64, window=depth, seconds=0.02
        )
        return rate.ops * 1e3 / rate.elapsed_ns

    taken = rounds(
        lambda: statistics.median(python_loop() for _ in range(7)),
        lambda: statistics.median(c_loop() for _ in range(5)),
    )
    return taken.figure(
        f"one call a batch, 64 B, worker path, depth {depth}",
        "M/s",
        "0.8 x a C loop",
        "C loop, M/s",
    )


def awaited(bench: Bench) -> Iterator[Figure]:
    """`await q.write(...)` against `q.write(...).wait()`."""
    with bench.device.queue(DEPTH, "worker") as queue:

        async def loop(calls: int = 2000) -> float:
            start = time.perf_counter_ns()
            for _ in range(calls):
                await queue.write(bench.local, bench.remote, size=64)
            return (time.perf_counter_ns() - start) / calls

        def blocking() -> float:
            return median_call(lambda: queue.write(bench.local, bench.remote, size=64).wait())

        def awaiting() -> float:
            return statistics.median(asyncio.run(loop()) for _ in range(9))

        yield rounds(awaiting, blocking).figure(
            "await q.write(...), 64 B, worker path", "ns", "blocking + 400 ns", "blocking"
        )


def large(bench: Bench) -> Iterator[Figure]:
    """1 MiB and 64 MiB against one memcpy of as much."""
    for size, calls in ((1 << 20, 40), (SIZE, 2)):
        for path in ("inline", "worker"):
            with bench.device.queue(DEPTH, path) as queue:
                op = queue.prepare_write(bench.local, bench.remote, size=size)
                taken = rounds(
                    lambda o=op, n=calls, s=size: s / median_call(o.run, n, 5),
                    lambda n=calls, s=size: s / floor_ns(s, handoff=False, count=5 * n),
                )
                yield taken.figure(
                    f"{size >> 20} MiB, {path} path", "GB/s", "0.95 x memcpy", "memcpy, GB/s"
                )


def many_regions(bench: Bench) -> Iterator[Figure]:
    """One of 4,096 regions at a time, against one region alone."""
    with exporter(1 << 20, 4096) as tokens, bench.device.queue(DEPTH, "inline") as queue:
        remotes = [bench.device.import_region(token) for token in tokens]
        ops = [queue.prepare_write(bench.local, remote, size=8) for remote in remotes]
        runs = [op.run for op in ops]

        def all_of_them() -> float:
            start = time.perf_counter_ns()
            for run in runs:
                run()
            return (time.perf_counter_ns() - start) / len(runs)

        taken = rounds(
            lambda: statistics.median(all_of_them() for _ in range(9)),
            lambda: statistics.median(per_call(runs[0], 4096) for _ in range(9)),
        )
        yield taken.figure(
            "8 B, 4,096 regions over one buffer, inline path",
            "ns",
            "one region + 20 ns",
            "one region",
        )
        for remote in remotes:
            remote.close()


def _python(code: str) -> float:
    """ms of a fresh Python that runs `code`."""
    start = time.perf_counter_ns()
    subprocess.run(
        [sys.executable, "-c", f"import sys; sys.path[:] = {sys.path!r}\n{code}"], check=True
    )
    return (time.perf_counter_ns() - start) / 1e6


FIRST = """
import time; start = time.perf_counter_ns()
import dgkit
with dgkit.Device("soft") as device:
    here, there = device.register(bytearray(64)), device.register(dgkit.empty(4096))
    with device.queue() as queue:
        queue.write(here, device.import_region(there.export()), size=64).wait()
        sys.stdout.write(str(time.perf_counter_ns() - start))
"""

CONNECT = """
import time; start = time.perf_counter_ns()
import dgkit
with dgkit.connect() as session:
    session.write(session.empty(4096), b"first bytes")
    sys.stdout.write(str(time.perf_counter_ns() - start))
"""


def _inside(code: str) -> float:
    command = [sys.executable, "-c", f"import sys; sys.path[:] = {sys.path!r}\n{code}"]
    return int(subprocess.run(command, check=True, capture_output=True).stdout) / 1e6


def start_up(_: Bench) -> Iterator[Figure]:
    """Import, the first transfer in this process, the first through a software DPU."""

    def bare() -> float:
        return statistics.median(_python("") for _ in range(5))

    def imported() -> float:
        return statistics.median(_python("import dgkit") for _ in range(5))

    yield rounds(imported, bare, 5).figure(
        "import dgkit", "ms", "bare Python + 10 ms", "bare Python"
    )
    for what, code, limit in (
        ("import to first transfer in process", FIRST, 30),
        ("connect() to first transfer", CONNECT, 400),
    ):
        yield rounds(lambda c=code: _inside(c), bare, 7).figure(
            what, "ms", f"{limit} ms", "bare Python"
        )


ECHO = """
import sys, zmq
socket = zmq.Context().socket(zmq.ROUTER)
socket.bind(sys.argv[1])
reply = bytes(int(sys.argv[2]))
print("ready", flush=True)
while (parts := socket.recv_multipart())[-1] != b"end":
    socket.send_multipart([parts[0], reply])
"""


def through_agent(_: Bench) -> Iterator[Figure]:
    """`session.write` of 64 B against a bare round trip of messages of the same sizes.

    Both have a DEALER and a ROUTER over ipc in two processes, and no CURVE. They take turns, so
    that both see the same machine.
    """
    import zmq

    request = len(encode(Move(id=1 << 40, src=1, src_offset=0, dst=2, dst_offset=0, size=64)))
    now = time.monotonic_ns()
    moved = Moved(
        size=64, op=1, path=1, submit_ns=now, post_ns=now, complete_ns=now, read_ns=1000,
        write_ns=1000, chunks=1, first_submit_ns=now, first_post_ns=now, first_complete_ns=now,
    )  # fmt: skip
    reply = len(encode(MoveDone(id=1 << 40, moved=moved)))
    address = f"ipc://{runtime_dir()}/bench-echo-{time.monotonic_ns()}"
    code = f"import sys; sys.path[:] = {sys.path!r}\n{ECHO}"
    command = [sys.executable, "-c", code, address, str(reply)]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as echo, dgkit.connect() as session:
        echo.stdout.readline()
        socket = zmq.Context.instance().socket(zmq.DEALER)
        socket.connect(address)
        region = session.empty(4096)
        payload, data = bytes(request), bytes(64)

        def bare() -> None:
            socket.send(payload)
            socket.recv()

        taken = rounds(
            lambda: median_call(lambda: session.write(region, data), 100, 7) / 1e3,
            lambda: median_call(bare, 100, 7) / 1e3,
            count=25,
        )
        socket.send(b"end")
        socket.close(linger=1000)
        yield taken.figure(
            "session.write of 64 B through an agent", "us", "1.15 x bare ZeroMQ", "bare ZeroMQ"
        )


def large_through_session(_: Bench) -> Iterator[Figure]:
    """64 MiB of this process's bytes: write and read against memcpy, in turns."""
    data = np.ones(SIZE, "u1")
    copy = np.zeros(SIZE, "u1")

    def memcpy() -> None:
        copy[:] = data

    def rate(call: Callable[[], object]) -> float:
        return SIZE / median_call(call, 1, 3)

    with agent("host") as address, dgkit.connect() as far, dgkit.connect(address) as near:
        for where, session in (("the DPU an agent", far), ("the DPU this process", near)):
            with session.empty(SIZE) as region:
                write = rounds(
                    lambda s=session, r=region: rate(lambda: s.write(r, data)),
                    lambda: rate(memcpy),
                )
                read = rounds(
                    lambda s=session, r=region: rate(lambda: s.read(r, SIZE)),
                    lambda s=session, r=region: rate(lambda: s.write(r, data)),
                )
                kept = deque(maxlen=6)  # more than a session keeps to reuse them
                new = rounds(
                    lambda s=session, r=region, k=kept: rate(lambda: k.append(s.read(r, SIZE))),
                    lambda s=session, r=region: rate(lambda: s.read(r, SIZE)),
                )
            yield write.figure(
                f"session.write of 64 MiB, {where}", "GB/s", "0.5 x memcpy", "memcpy"
            )
            yield read.figure(
                f"session.read of 64 MiB, {where}", "GB/s", "0.8 x session.write", "session.write"
            )
            yield new.figure(
                f"session.read of 64 MiB whose results are kept, {where}",
                "GB/s",
                "published",
                "session.read",
            )


def with_history(_: Bench) -> Iterator[Figure]:
    """Writes of a region whose last writes are kept, against writes of one that nobody follows."""
    kinds = {"bytes": lambda size: b"\1" * size, "an array": lambda size: np.ones(size, "u1")}
    for size, (kind, make) in itertools.product((64, 1 << 20, 1 << 24), kinds.items()):
        with dgkit.connect() as session, session.empty(size) as region:
            data, history = make(size), WriteHistory(bytes(size), 64 << 20)

            def rate(session=session, region=region, data=data) -> float:
                write = lambda: session.write(region, data)  # noqa: E731
                return len(data) / median_call(write, min(2000, (1 << 24) // len(data)), 5)

            def followed(session=session, region=region, history=history, rate=rate) -> float:
                stop = record_writes(session, region, history)
                try:
                    return rate()
                finally:
                    stop()

            for _ in range(3):  # the ring is full, and its memory warm
                followed()
            yield rounds(followed, rate).figure(
                f"session.write of {size_text(size)} of {kind}, with a history",
                "GB/s",
                "0.95 x without" if kind == "bytes" else "published",
                "without",
            )


@contextlib.contextmanager
def agent(role: str) -> Iterator[str]:
    """An agent in a second process: its address."""
    command = [sys.executable, "-P", "-m", "dgkit", "serve", "--role", role]
    environ = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, env=environ
    ) as process:
        try:
            yield process.stdout.readline().strip()
        finally:
            process.terminate()


ALL = (
    prepared,
    one_call,
    posted,
    batches,
    awaited,
    large,
    many_regions,
    through_agent,
    large_through_session,
    with_history,
    start_up,
)
