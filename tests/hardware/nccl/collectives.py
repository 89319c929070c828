# SPDX-License-Identifier: Apache-2.0
"""NCCL's collectives between two processes, each word compared; for the software adapter.

    export NCCL_IB_HCA=mlx5_0 NCCL_IB_GID_INDEX=0 NCCL_NET_GDR_LEVEL=SYS
    export NCCL_P2P_DISABLE=1 NCCL_SHM_DISABLE=1
    dgkit mlx5 run -- python tests/hardware/nccl/collectives.py 0 29500 0 &  # rank, port, GPU
    dgkit mlx5 run -- python tests/hardware/nccl/collectives.py 1 29500 1

Needs PyTorch with CUDA. The last argument may be one GPU for both. New kernels are launched behind
collectives all the time, which hangs with CUDA_MODULE_LOADING=LAZY (native/mlx5/README.md).
"""

import os
import sys
import time

import torch
import torch.distributed as dist

SIZES = 1, 7, 1000, 4096, 65537, 1 << 20, (8 << 20) + 3


def results(rank, n):
    """Yield the name of each collective of n words with its result and what that must be."""
    base = torch.arange(n, device="cuda", dtype=torch.float32) % 1009
    x = base + rank
    dist.all_reduce(x)
    yield "all_reduce", x, 2 * base + 1
    out = torch.empty(2 * n, device="cuda")
    dist.all_gather_into_tensor(out, base + 3 * rank)
    yield "all_gather", out, torch.cat([base, base + 3])
    out = torch.empty(n, device="cuda")
    dist.reduce_scatter_tensor(out, torch.cat([base, base + 5]) + rank)
    yield "reduce_scatter", out, 2 * (base + 5 * rank) + 1
    x = base + 9 * rank
    dist.broadcast(x, 1)
    yield "broadcast", x, base + 9
    source = torch.cat([base + 10 * rank, base + 10 * rank + 1])
    out = torch.empty_like(source)
    dist.all_to_all_single(out, source)
    yield "all_to_all", out, torch.cat([base + rank, base + 10 + rank])
    out = torch.empty(n, device="cuda")
    ops = [
        dist.P2POp(dist.isend, base + 20 * rank, 1 - rank),
        dist.P2POp(dist.irecv, out, 1 - rank),
    ]
    for work in dist.batch_isend_irecv(ops):
        work.wait()
    yield "send/recv", out, base + 20 * (1 - rank)


def main():
    """Run each collective, and time the all-reduce of two sizes."""
    rank, port, gpu = map(int, sys.argv[1:4])
    os.environ["NCCL_HOSTID"] = f"host{rank}"  # or NCCL refuses two ranks on one GPU
    torch.cuda.set_device(gpu)
    dist.init_process_group(
        "nccl",
        init_method=f"tcp://127.0.0.1:{port}",
        rank=rank,
        world_size=2,
        device_id=torch.device(f"cuda:{gpu}"),
    )
    right = total = 0
    for n in SIZES:
        for name, seen, wanted in results(rank, n):
            is_right = torch.equal(seen, wanted)
            right, total = right + is_right, total + 1
            if not is_right:
                print(f"rank {rank}: {name} of {n} words is wrong", flush=True)
    for mib in 64, 512:
        x = torch.ones(mib << 18, device="cuda")
        dist.all_reduce(x)
        torch.cuda.synchronize()
        start = time.perf_counter()
        for _ in range(5):
            dist.all_reduce(x)
        torch.cuda.synchronize()
        rate = 5 * mib * 2**20 / (time.perf_counter() - start) / 1e9
        if rank == 0:
            print(f"all_reduce of {mib} MiB: {rate:.2f} GB/s", flush=True)
    print(f"rank {rank}: {right} of {total} right", flush=True)
    dist.destroy_process_group()
    sys.exit(right != total)


if __name__ == "__main__":
    main()
