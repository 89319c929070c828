# SPDX-License-Identifier: Apache-2.0
"""Runs NVIDIA's open device headers of GPUNetIO, unmodified, against the software NIC.

    git clone https://github.com/NVIDIA-DOCA/gpunetio
    python tests/hardware/open_gpunetio.py gpunetio [another version ...]

32 emulated threads put, put with a signal, put inline, get, and put with a counter, in each
doorbell mode, compiled as for compute capability 8.0 and 9.0. Each line ends with "ok", or the
program fails.
The headers are NVIDIA's (BSD-3-Clause) and are not part of dgkit.
"""

from __future__ import annotations

import argparse
import sys
from contextlib import ExitStack
from pathlib import Path

import numpy as np

import dgkit
from dgkit.gpu_initiated import emulate
from dgkit.gpu_initiated.emulate import EmulatedModule

ROUNDS, GRID, BLOCK = 20, 2, 16
MODES = (("CPU_PROXY", "proxy"), ("GPU_SM_DB", "record"), ("GPU_SM_NO_DBR", "no record"),
         ("AUTO", "proxy"))  # fmt: skip
FOLDERS = ("include", "include/device", "include/common", "include/host")
SOURCE = r"""
#include <doca_gpunetio_device.h>
#define SHARED DOCA_GPUNETIO_VERBS_RESOURCE_SHARING_MODE_GPU
#define ARGUMENTS doca_gpu_dev_verbs_qp *q, doca_gpu_dev_verbs_qp *companion, unsigned char *far, \
    unsigned rkey, unsigned char *near, unsigned lkey, int rounds, int *bad
#define REMOTE(at) doca_gpu_dev_verbs_addr{(uint64_t)far + (at), rkey}
#define LOCAL(at) doca_gpu_dev_verbs_addr{(uint64_t)near + (at), lkey}
#define WAIT wrong += doca_gpu_dev_verbs_poll_cq_at<SHARED>(                                      \
    doca_gpu_dev_verbs_qp_get_cq_sq(q), ticket) != 0

template <doca_gpu_dev_verbs_nic_handler handler> __device__ void work(ARGUMENTS)
{
    const unsigned me = blockIdx.x * blockDim.x + threadIdx.x;
    const auto THREAD = DOCA_GPUNETIO_VERBS_EXEC_SCOPE_THREAD;
    const auto ADD = DOCA_GPUNETIO_VERBS_SIGNAL_OP_ADD;
    uint64_t ticket;
    int wrong = 0;
    for (int r = 0; r < rounds; r++) {
        const uint64_t value = me * 1000ull + r;
        for (int i = 0; i < 64; i++)
            ((volatile uint8_t *)near)[me * 64 + i] = me + r * 3 + i;
        doca_gpu_dev_verbs_put<SHARED, handler>(q, REMOTE(me * 64), LOCAL(me * 64), 64, &ticket);
        WAIT;
        wrong += memcmp(far + me * 64, near + me * 64, 64) != 0;
        doca_gpu_dev_verbs_put_signal<ADD, SHARED, handler>(
            q, REMOTE(me * 64), LOCAL(me * 64 + 8), 8, REMOTE(60000), LOCAL(50000 + 8 * me), 1,
            &ticket);
        WAIT;
        doca_gpu_dev_verbs_p<uint64_t, SHARED, handler>(q, REMOTE(30000 + 8 * me), value, &ticket);
        WAIT;
        doca_gpu_dev_verbs_get<SHARED, handler, THREAD>(
            q, REMOTE(30000 + 8 * me), LOCAL(40000 + 8 * me), 8, LOCAL(64000), &ticket);
        WAIT;
        wrong += *(volatile uint64_t *)(near + 40000 + 8 * me) != value;
        doca_gpu_dev_verbs_put_counter<SHARED, handler>(
            q, REMOTE(me * 64), LOCAL(me * 64), 16, companion, REMOTE(60008),
            LOCAL(50000 + 8 * me), 2);
    }
    const uint64_t all = 2ull * rounds * gridDim.x * blockDim.x;
    while (__atomic_load_n((uint64_t *)(far + 60008), __ATOMIC_ACQUIRE) < all)
        __nanosleep(0);
    if (wrong)
        atomicAdd(bad, wrong);
}

extern "C" __global__ void run(int mode, ARGUMENTS)
{
#define CALL(mode) work<DOCA_GPUNETIO_VERBS_NIC_HANDLER_##mode>(                                  \
    q, companion, far, rkey, near, lkey, rounds, bad)
    if (mode == 0) CALL(CPU_PROXY);
    if (mode == 1) CALL(GPU_SM_DB);
    if (mode == 2) CALL(GPU_SM_NO_DBR);
    if (mode == 3) CALL(AUTO);
}
"""


def run(module: EmulatedModule, mode: int, doorbell: str) -> str:
    """Run all operations in one doorbell mode; return "ok", or what went wrong."""
    with ExitStack() as stack:
        device = stack.enter_context(dgkit.Device("soft"))
        nic = stack.enter_context(device.nic())
        near, far = (stack.enter_context(dgkit.empty(1 << 16)) for _ in range(2))
        local, remote = device.register(near), device.register(far)
        # The second waits for completions of the first.
        queues = [nic.queue_pair(128, doorbell=doorbell) for _ in range(2)]
        peers = [nic.queue_pair(8) for _ in range(2)]
        for queue, peer in zip(queues, peers, strict=True):
            queue.connect(peer)
            peer.connect(queue)
        lkey, rkey = np.uint32(nic.key(local).big_endian), np.uint32(nic.key(remote).big_endian)
        bad = np.zeros(1, np.int32)
        args = (np.int32(mode), *queues, remote, rkey, local, lkey, np.int32(ROUNDS), bad)
        module["run"](GRID, BLOCK, args, timeout=60)
        signals, counter = far.array.view(np.uint64)[7500:7502].tolist()
        count = ROUNDS * GRID * BLOCK
        found = (int(bad[0]), signals, counter)
        return "ok" if found == (0, count, 2 * count) else f"wrong, signals, counter: {found}"


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("checkout", type=Path, nargs="+")
    failed = 0
    for checkout in parser.parse_args().checkout:
        for capability in (800, 900):
            folders = [f"-I{checkout.resolve() / each}" for each in FOLDERS]
            module = emulate(SOURCE, options=[*folders, f"-D__CUDA_ARCH__={capability}", "-w"])
            for mode, (name, doorbell) in enumerate(MODES):
                verdict = run(module, mode, doorbell)
                failed += verdict != "ok"
                print(f"{checkout.name}, {capability // 100}.0, {name}: {verdict}", flush=True)
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())
