"""Prints the figures of GPU-initiated operations on a real GPU, with what this machine gives now.

    python tests/bench/gpu_initiated.py                        half a minute
    python tests/bench/gpu_initiated.py --json results/FILE    and stores them

The provider is soft: the proxy, one thread of this process, moves the bytes between pinned memory
and memory of dgkit.empty(). The bare loop is a kernel's thread ringing a doorbell in pinned memory
that a loop in C answers, without a queue and without a proxy. It needs a C compiler, or that loop
as a library (`--answerer FILE`). Nothing here passes or fails a test: it reports.
"""

from __future__ import annotations

import argparse
import ctypes
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rig import Figure, rounds, save
from table import shown

import dgkit
from dgkit.gpu_initiated import raw_module

ANSWERER = """
#include <stdatomic.h>
#include <stdint.h>
void answer(_Atomic uint64_t *w, uint64_t n)
{
    for (uint64_t i = 1; i <= n; i++) {
        while (atomic_load_explicit(&w[0], memory_order_acquire) != i)
            ;
        atomic_store_explicit(&w[8], i, memory_order_release);
    }
}
"""
KERNELS = r"""
#include <dgkit_device.cuh>
typedef unsigned long long u64;
__device__ u64 now_ns()
{
    u64 v;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(v));
    return v;
}
extern "C" __global__ void bare(volatile u64 *w, u64 n, u64 *ns)
{
    const u64 begin = now_ns();
    for (u64 i = 1; i <= n; i++) {
        w[0] = i;
        while (w[8] != i)
            ;
    }
    *ns = now_ns() - begin;
}
extern "C" __global__ void doorbell(dg_gpu_queue *q, u64 n, u64 *ns)
{
    const u64 begin = now_ns();
    for (u64 i = 0; i < n; i++)
        dg_wait<DG_SHARING_THREAD>(q, dg_commit<DG_SHARING_THREAD>(q));
    *ns = now_ns() - begin;
}
template <unsigned flags>
__device__ void put(dg_gpu_queue *q, unsigned remote, unsigned local, u64 n, u64 *ns)
{
    const u64 begin = now_ns();
    for (u64 i = 0; i < n; i++)
        dg_wait<DG_SHARING_THREAD>(q, dg_put<DG_SHARING_THREAD, DG_SCOPE_THREAD, flags>(
                                          q, remote, 0, local, 0, 8));
    *ns = now_ns() - begin;
}
#define PUT dg_gpu_queue *q, unsigned remote, unsigned local, u64 n, u64 *ns
extern "C" __global__ void put_fenced(PUT) { put<0>(q, remote, local, n, ns); }
extern "C" __global__ void put_free(PUT) { put<DG_NO_RELEASE>(q, remote, local, n, ns); }
#define RINGS dg_gpu_queue *a, dg_gpu_queue *b, dg_gpu_queue *c, dg_gpu_queue *d,                  \
              dg_gpu_queue *e, dg_gpu_queue *f, dg_gpu_queue *g, dg_gpu_queue *h,                  \
              unsigned remote, unsigned local, u64 n, int *status
template <unsigned flags>
__device__ void rate(dg_gpu_queue *q, unsigned remote, unsigned local, u64 n, int *status)
{
    const unsigned me = (threadIdx.x + blockIdx.x * blockDim.x) * 64;
    for (u64 i = 0; i < n; i++)
        dg_put<DG_SHARING_BLOCK, DG_SCOPE_THREAD, flags>(q, remote, me, local, me, 64);
    __syncthreads();
    if (threadIdx.x == 0)
        status[blockIdx.x] = dg_quiet(q);
}
extern "C" __global__ void rate_fenced(RINGS)
{
    dg_gpu_queue *q[] = {a, b, c, d, e, f, g, h};
    rate<0>(q[blockIdx.x], remote, local, n, status);
}
extern "C" __global__ void rate_free(RINGS)
{
    dg_gpu_queue *q[] = {a, b, c, d, e, f, g, h};
    rate<DG_NO_RELEASE>(q[blockIdx.x], remote, local, n, status);
}
"""
ROUND_TRIPS, PUTS = 20_000, 2_000_000
RINGS = 8


@dataclass
class Bench:
    """What the rows share."""

    device: dgkit.Device
    local: dgkit.Region
    remote: dgkit.RemoteRegion
    kernels: Any
    answerer: Any

    def bare(self) -> float:
        """Nanoseconds from a kernel's doorbell to the answer of a loop in C."""
        import cupy

        with dgkit.empty(4096, on="pinned") as memory:
            address = np.frombuffer(memory.buffer, np.uint8).ctypes.data
            thread = threading.Thread(target=self.answerer.answer, args=(address, ROUND_TRIPS))
            thread.start()
            ns = cupy.zeros(1, np.uint64)
            self.kernels["bare"](1, 1, (memory.gpu_array, np.uint64(ROUND_TRIPS), ns))
            found = int(ns.get()[0]) / ROUND_TRIPS
            thread.join()
            return found

    def round_trip(self, name: str, *regions: np.uint32) -> float:
        """Nanoseconds of one operation of one thread, until it sees the completion."""
        import cupy

        with self.device.gpu_queue(1024) as q:
            ns = cupy.zeros(1, np.uint64)
            self.kernels[name](1, 1, (q, *regions, np.uint64(ROUND_TRIPS), ns))
            found = int(ns.get()[0]) / ROUND_TRIPS
            assert q.stats().completed == ROUND_TRIPS
            assert q.stats().failed == 0
            return found

    def rate(self, name: str, rings: int, threads: int) -> float:
        """Millions of puts of 64 bytes a second."""
        import cupy

        each = PUTS // (rings * threads)
        with ExitStack() as stack:
            qs = [stack.enter_context(self.device.gpu_queue(4096, limit=20)) for _ in range(rings)]
            status = cupy.full(rings, -1, np.int32)
            begin, end = cupy.cuda.Event(), cupy.cuda.Event()
            begin.record()
            self.kernels[name](
                rings, threads,
                (*qs, *[qs[0]] * (RINGS - rings), np.uint32(self.remote.id),
                 np.uint32(self.local.id), np.uint64(each), status),
            )  # fmt: skip
            end.record()
            end.synchronize()
            assert not status.get().any()
            assert sum(q.stats().completed for q in qs) == each * rings * threads
            return each * rings * threads / cupy.cuda.get_elapsed_time(begin, end) / 1e3


def figures(b: Bench) -> Iterator[Figure]:
    """Each row beside the bare round trip, taken in the same run."""
    regions = np.uint32(b.remote.id), np.uint32(b.local.id)
    taken = rounds(lambda: b.round_trip("doorbell"), b.bare)
    yield taken.figure(
        "doorbell, answered by the proxy", "ns", "1.25 x the bare loop",
        lambda v, r: v <= 1.25 * r, "bare loop",
    )  # fmt: skip
    for name, how in (("put_fenced", "fenced"), ("put_free", "DG_NO_RELEASE")):
        taken = rounds(lambda name=name: b.round_trip(name, *regions), b.bare)
        yield taken.figure(
            f"put of 8 B, {how}", "ns", "bare + 400 ns", lambda v, r: v <= r + 400, "bare loop"
        )
    for rings, threads, aims in ((1, 32, (6, 8)), (1, 256, (6, 8)), (8, 256, (20, 25))):
        for name, how, aim in zip(
            ("rate_fenced", "rate_free"), ("fenced", "DG_NO_RELEASE"), aims, strict=True
        ):
            taken = rounds(
                lambda n=name, r=rings, t=threads: b.rate(n, r, t), b.bare, count=5
            )  # fmt: skip
            yield taken.figure(
                f"puts of 64 B, {rings} rings of {threads} threads, {how}", "M/s", f"{aim} M/s",
                lambda v, _, aim=aim: v >= aim, "bare loop, ns",
            )  # fmt: skip


def answerer(given: str | None) -> Any:
    """The bare loop's C side, compiled here if it is not given."""
    with tempfile.TemporaryDirectory() as folder:
        path = given or f"{folder}/answerer.so"
        if given is None:
            subprocess.run(
                ["cc", "-O2", "-shared", "-fPIC", "-x", "c", "-", "-o", path],
                input=ANSWERER, text=True, check=True,
            )  # fmt: skip
        library = ctypes.CDLL(path)
    library.answer.argtypes = [ctypes.c_void_p, ctypes.c_uint64]
    library.answer.restype = None
    return library


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--json", type=Path, metavar="FILE", help="store the figures there")
    parser.add_argument("--answerer", metavar="FILE", help="library with the bare loop's C side")
    args = parser.parse_args()
    size = RINGS * 256 * 64
    with (
        dgkit.Device("soft") as device,
        dgkit.empty(size, on="pinned") as source,
        dgkit.empty(size) as target,
    ):
        local, owned = device.register(source), device.register(target)
        remote = device.import_region(owned.export())
        found = list(
            figures(Bench(device, local, remote, raw_module(KERNELS), answerer(args.answerer)))
        )
    Console().print(shown(found, "GPU-initiated, soft, one proxy thread: medians of rounds"))
    if args.json:
        save(args.json, found)
    return 0


if __name__ == "__main__":
    sys.exit(main())
