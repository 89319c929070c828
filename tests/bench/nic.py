# SPDX-License-Identifier: Apache-2.0
"""Prints the figures of GPUNetIO Verbs, DMA and RDMA by the software NIC, beside dgkit's own queue.

    python tests/bench/nic.py                        half a minute
    python tests/bench/nic.py --json results/FILE    and stores them

One thread moves the bytes between pinned memories: that of the NIC, which executes mlx5 work queue
entries, or that of GPU queues, which executes dgkit's records. The bare loop is a kernel's thread
ringing a doorbell in pinned memory that a loop in C answers. Without a GPU the emulated one runs
the kernels, and nothing is stored.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack
from itertools import product
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
from gpu_initiated import SIZE, Bench, report
from rig import Figure, rounds

import dgkit
from dgkit.gpu_initiated import emulate, raw_module
from dgkit.gpu_initiated.kernel_benchmark import RATE_RINGS, RATE_SIZE, RATE_THREADS, Meter

SAMPLES = 2000  # a tenth on the emulated GPU
KERNELS = r"""
#include <doca_gpunetio_dev_dma.cuh>
#include <doca_gpunetio_dev_rdma.cuh>
#include <doca_gpunetio_dev_verbs_onesided.cuh>
typedef unsigned long long u64;
typedef doca_gpu_dev_verbs_qp Q;
struct ends {
    u64 remote, local;
    unsigned rkey, lkey, pad[2];
    doca_gpu_buf to, from; /* the same memory */
};
#define REMOTE(at) doca_gpu_dev_verbs_addr{e->remote + (at), e->rkey}
#define LOCAL(at) doca_gpu_dev_verbs_addr{e->local + (at), e->lkey}

__device__ static int wait_for(Q *q, u64 ticket)
{
    return doca_gpu_dev_verbs_poll_cq_at(doca_gpu_dev_verbs_qp_get_cq_sq(q), ticket);
}

extern "C" __global__ void put(Q *q, const ends *e, int count, u64 *cycles, int *bad)
{
    int failed = 0;
    doca_gpu_dev_verbs_ticket_t ticket;
    for (int i = 0; i < count; i++) {
        const u64 before = (u64)clock64();
        doca_gpu_dev_verbs_put(q, REMOTE(0), LOCAL(0), 8, &ticket);
        failed += wait_for(q, ticket) != 0;
        cycles[i] = (u64)clock64() - before;
    }
    *bad = failed;
}

extern "C" __global__ void put_signal(Q *q, const ends *e, int count, u64 *cycles, int *bad)
{
    int failed = 0;
    doca_gpu_dev_verbs_ticket_t ticket;
    for (int i = 0; i < count; i++) {
        const u64 before = (u64)clock64();
        doca_gpu_dev_verbs_put_signal<DOCA_GPUNETIO_VERBS_SIGNAL_OP_ADD>(
            q, REMOTE(64), LOCAL(0), 8, REMOTE(0), LOCAL(64), 1, &ticket);
        failed += wait_for(q, ticket) != 0;
        cycles[i] = (u64)clock64() - before;
    }
    *bad = failed;
}

/* A DMA context's structure is its queue pair. */
extern "C" __global__ void dma_copy(Q *q, const ends *e, int count, u64 *cycles, int *bad)
{
    int failed = 0;
    doca_gpu_buf *from = (doca_gpu_buf *)&e->from, *to = (doca_gpu_buf *)&e->to;
    doca_gpu_dma *dma = (doca_gpu_dma *)q;
    const u64 first = q->sq_rsvd_index; /* a copy has no ticket */
    for (int i = 0; i < count; i++) {
        const u64 before = (u64)clock64();
        failed += doca_gpu_dev_dma_memcpy(dma, from, 0, to, 0, 8) != 0;
        doca_gpu_dev_dma_commit(dma);
        failed += wait_for(q, first + i) != 0;
        cycles[i] = (u64)clock64() - before;
    }
    *bad = failed;
}

/* The threads write 64 bytes each, and one of them commits: weak mode. */
extern "C" __global__ void write_weak(Q *q, const ends *e, int count, int *bad)
{
    doca_gpu_buf *from = (doca_gpu_buf *)&e->from, *to = (doca_gpu_buf *)&e->to;
    doca_priv_gpu_dev_rdma_connection connection = {q, 0};
    doca_gpu_dev_rdma rdma = {{}, &connection, 1};
    unsigned position, mask, done;
    int failed = 0;
    for (int i = 0; i < count; i++) {
        doca_gpu_dev_rdma_get_info(&rdma, 0, &position, &mask);
        failed += doca_gpu_dev_rdma_write_weak(&rdma, 0, to, 64 * threadIdx.x, from,
                                               64 * threadIdx.x, 64, 0, 0,
                                               (position + threadIdx.x) & mask) != 0;
        __threadfence();
        __syncthreads();
        if (threadIdx.x == 0)
            failed += doca_gpu_dev_rdma_commit_weak(&rdma, 0, blockDim.x) != 0;
        __syncthreads();
    }
    if (threadIdx.x == 0)
        failed += doca_gpu_dev_rdma_wait_all(&rdma, &done) != 0;
    if (failed)
        atomicAdd(bad, failed);
}

extern "C" __global__ void put_many(Q *q0, Q *q1, Q *q2, Q *q3, Q *q4, Q *q5, Q *q6, Q *q7,
                                const ends *e, int count, int each, int warp, int *bad)
{
    Q *const all[] = {q0, q1, q2, q3, q4, q5, q6, q7};
    Q *const q = all[blockIdx.x];
    const u64 at = 64 * (u64)(threadIdx.x + blockIdx.x * blockDim.x);
    doca_gpu_dev_verbs_ticket_t ticket = 0;
    int failed = 0;
    for (int i = 0; i < count; i++) {
        if (warp)
            doca_gpu_dev_verbs_put<DOCA_GPUNETIO_VERBS_RESOURCE_SHARING_MODE_GPU,
                                   DOCA_GPUNETIO_VERBS_NIC_HANDLER_AUTO,
                                   DOCA_GPUNETIO_VERBS_EXEC_SCOPE_WARP>(
                q, REMOTE(at), LOCAL(at), 64, &ticket);
        else
            doca_gpu_dev_verbs_put(q, REMOTE(at), LOCAL(at), 64, &ticket);
        if (each)
            failed += wait_for(q, ticket) != 0;
    }
    failed += wait_for(q, ticket) != 0;
    if (failed)
        atomicAdd(bad, failed);
}
"""


class NicBench:
    """Kernels that post to queue pairs, and the memory that they use."""

    def __init__(self, device: dgkit.Device, meter: Meter, local: Any, target: Any) -> None:
        self.meter = meter
        self.nic = device.nic()
        self.module: Any = emulate(KERNELS) if meter.emulated else raw_module(KERNELS)
        owned = device.register(target)
        lkey, rkey = self.nic.key(local), self.nic.key(owned)
        ends = np.array([rkey.address, lkey.address, 0, 0] + [0, SIZE, 0] * 2, np.uint64)
        ends[4], ends[7] = rkey.address, lkey.address
        keys = ends.view(np.uint32)
        keys[4] = keys[12] = rkey.big_endian
        keys[5] = keys[18] = lkey.big_endian
        self.ends = self._array(ends)

    def _array(self, values: Any) -> Any:
        if self.meter.emulated:
            return values
        import cupy

        return cupy.asarray(values)

    def _run(self, kernel: str, grid: int, block: int, args: tuple[Any, ...]) -> float:
        """Run a kernel to its end; return the seconds that it took."""
        bad = self._array(np.zeros(1, np.int32))
        since = time.perf_counter()
        self.module[kernel](grid, block, (*args, bad))
        if not self.meter.emulated:
            import cupy

            cupy.cuda.get_current_stream().synchronize()
        taken = time.perf_counter() - since
        if failed := int(bad[0]):
            sys.exit(f"{failed} operations of {kernel} failed: {args[0].info().why}")
        return taken

    def pairs(self, stack: ExitStack, count: int, doorbell: str, entries: int) -> list[Any]:
        """Open connected queue pairs, and return one side of each."""
        opened = []
        for _ in range(count):
            one, other = (
                stack.enter_context(self.nic.queue_pair(n, doorbell=doorbell)) for n in (entries, 2)
            )
            one.connect(other)
            other.connect(one)
            opened.append(one)
        return opened

    def single(self, kernel: str, queue: Any) -> float:
        """Nanoseconds of one operation of one thread, until it sees the completion."""
        count = SAMPLES // 10 if self.meter.emulated else SAMPLES
        cycles = self._array(np.zeros(count, np.uint64))
        self._run(kernel, 1, 1, (queue, self.ends, np.int32(count), cycles))
        host = cycles if self.meter.emulated else cycles.get()
        return float(median(host.tolist())) / self.meter._cycles_per_second() * 1e9

    def rate(self, queues: list[Any], *, each: bool, warp: bool) -> float:
        """Millions of puts of 64 bytes a second, by RATE_THREADS threads on each queue pair."""
        args = [*queues, *[queues[0]] * (RATE_RINGS - len(queues))]
        count = 2 if self.meter.emulated else 1000
        done = len(queues) * RATE_THREADS * count
        what = (*args, self.ends, np.int32(count), np.int32(each), np.int32(warp))
        return done / self._run("put_many", len(queues), RATE_THREADS, what) / 1e6

    def weak_rate(self, queue: Any) -> float:
        """Millions of RDMA writes of 64 bytes a second, in weak mode by RATE_THREADS threads."""
        count = 2 if self.meter.emulated else 1000
        taken = self._run("write_weak", 1, RATE_THREADS, (queue, self.ends, np.int32(count)))
        return RATE_THREADS * count / taken / 1e6


def figures(own: Bench, nic: NicBench) -> Iterator[Figure]:
    """Each row beside what dgkit's own queue takes, in the same run."""
    for doorbell in ("proxy", "record"):
        with ExitStack() as stack:
            (queue,) = nic.pairs(stack, 1, doorbell, 1024)
            taken = rounds(lambda q=queue: nic.single("put", q), own.bare)
            yield taken.figure(f"put of 8 B, {doorbell}", "ns", "published", "bare loop")
            taken = rounds(lambda q=queue: nic.single("put", q), lambda: own.single("put"))
            yield taken.figure(
                f"put of 8 B, {doorbell}", "ns", "1.1 x dgkit's", "dgkit's queue, fenced"
            )
            taken = rounds(lambda q=queue: nic.single("put_signal", q), own.bare)
            yield taken.figure(
                f"put_signal, {doorbell}", "ns", "2 x the floor + 1,000 ns", "bare loop"
            )
        with ExitStack() as stack:
            (queue,) = nic.pairs(stack, 1, doorbell, 4096)
            taken = rounds(
                lambda q=queue: nic.single("dma_copy", q), lambda q=queue: nic.single("put", q)
            )
            yield taken.figure(
                f"DMA copy of 8 B, {doorbell}", "ns", "the NIC's put + 300 ns", "the NIC's put"
            )
            nic.weak_rate(queue)
            taken = rounds(
                lambda q=queue: nic.weak_rate(q),
                lambda q=queue: nic.rate([q], each=False, warp=True),
                count=5,
            )
            yield taken.figure(
                f"RDMA writes of {RATE_SIZE} B, weak mode, {doorbell}",
                "M/s",
                "0.9 x the NIC's puts by warp",
                "the NIC's puts by warp",
            )
        for pairs in (1, RATE_RINGS):
            for each, warp in product((False, True), (False, True)):
                how = "each waited for" if each else "in flight"
                how += ", by warp" if warp else ", by thread"
                with ExitStack() as stack:
                    queues = nic.pairs(stack, pairs, doorbell, 4096)
                    nic.rate(queues, each=each, warp=warp)
                    taken = rounds(
                        lambda q=queues, e=each, w=warp: nic.rate(q, each=e, warp=w),
                        lambda p=pairs: own.rate(p, RATE_THREADS, fenced=True),
                        count=5,
                    )
                yield taken.figure(
                    f"puts of {RATE_SIZE} B, {pairs} queue pairs, {doorbell}, {how}",
                    "M/s",
                    "0.5 x dgkit's",
                    "dgkit's rings, in flight",
                )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--json", type=Path, metavar="FILE", help="store the figures there")
    args = parser.parse_args()
    meter = Meter()
    with (
        dgkit.Device("soft") as device,
        dgkit.empty(SIZE, on=meter.local_kind) as source,
        dgkit.empty(SIZE, on=meter.local_kind) as target,
    ):
        local, owned = device.register(source), device.register(target)
        remote = device.import_region(owned.export())
        own = Bench(device, local, remote, meter)
        found = list(figures(own, NicBench(device, meter, local, target)))
    title = f"GPUNetIO Verbs by the software NIC ({meter.label}): medians of rounds"
    report(found, title, args.json, meter)
    return 0


if __name__ == "__main__":
    sys.exit(main())
