# SPDX-License-Identifier: Apache-2.0
"""mpi4py: rank 0 puts into rank 1's window and flushes. Prints "SIZE US" lines. See peers.py.

With "many DEPTH" instead of sizes, it flushes once each DEPTH puts of 64 B: "DEPTH US", us a put.
"""

import statistics
import sys
import time

from mpi4py import MPI

comm = MPI.COMM_WORLD
window = MPI.Win.Allocate(1 << 20, 1, comm=comm)


def many(depth: int) -> float:
    """Median us of a put, of `depth` that are flushed together."""
    data = bytearray(64)
    blocks = []
    for _ in range(101):
        start = time.perf_counter_ns()
        for _ in range(depth):
            window.Put(data, 1)
        window.Flush(1)
        blocks.append((time.perf_counter_ns() - start) / depth)
    return statistics.median(blocks) / 1e3


if comm.Get_rank() == 0:
    window.Lock(1)
    if sys.argv[1] == "many":
        print(sys.argv[2], many(int(sys.argv[2])), flush=True)
        sys.argv[1:] = []
    for size in map(int, sys.argv[1:]):
        data = bytearray(size)
        calls = 1000 if size < 65536 else 50
        blocks = []
        for _ in range(11):
            start = time.perf_counter_ns()
            for _ in range(calls):
                window.Put(data, 1)
                window.Flush(1)
            blocks.append((time.perf_counter_ns() - start) / calls)
        print(size, statistics.median(blocks) / 1e3, flush=True)
    window.Unlock(1)
comm.Barrier()
