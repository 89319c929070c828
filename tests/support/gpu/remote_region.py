# SPDX-License-Identifier: Apache-2.0
"""Remote region of GPU memory, of this process or another, with all bytes of its block in view.

For the fake driver, whose GPU memory the CPU can read: a view shows what DMA moved and whether it
changed other bytes.
"""

import ctypes
import gc
import mmap
import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
from support.dma import keep
from support.processes.children import Child, child
from support.processes.waiting import held, steady

import dgkit
from dgkit import WC_DTYPE, WR_DTYPE, Device
from dgkit.dma import Queue, Region, RemoteRegion

MIB = 1 << 20

# Exports GPU memory of argv[1] bytes, as argv[2] "vmm" or "ipc" (a pool's array), with an access;
# prints the descriptor, then fd and bytes of its block. It evaluates each line and prints that.
HOST = """
import sys, cupy, dgkit
size, kind, access = int(sys.argv[1]), sys.argv[2], sys.argv[3]
if kind == "vmm":
    memory = dgkit.empty(size, on="gpu")
else:
    array = cupy.zeros(size, "u1")
    memory = dgkit.wrap(array, share_block=True)
device = dgkit.Device()
region = device.register(memory)
print(region.export(access).hex(), flush=True)
print(memory.gpu.fd, memory.gpu.block, flush=True)
for line in sys.stdin:
    try:
        print(eval(line), flush=True)
    except Exception as error:
        print(type(error).__name__, error, flush=True)
region.close()
device.close()
"""

# Imports the descriptor argv[1] by the provider cuda, with host memory of its size under `local`;
# evaluates each line and prints that.
DPU = """
import sys, dgkit, numpy as np
device = dgkit.Device("cuda")
queue = device.queue(1024)
remote = device.import_region(bytes.fromhex(sys.argv[1]), timeout=5)
memory = dgkit.empty(remote.size)
local = device.register(memory)
kept = []
print(remote.method, flush=True)
for line in sys.stdin:
    try:
        print(eval(line), flush=True)
    except Exception as error:
        print(type(error).__name__, error, flush=True)
queue.close()
remote.close()
local.close()
device.close()
"""


def seen_here(memory: Any) -> np.ndarray:
    """Return all bytes of the block of this process's GPU memory."""
    span = memory.gpu
    block = (ctypes.c_char * span.block).from_address(span.address - span.offset)
    return np.frombuffer(block, "u1")


def seen_there(host: Child, fd: int, block: int) -> np.ndarray:
    """Return all bytes of another process's block, whose fd there is `fd`."""
    mine = os.open(f"/proc/{host.pid}/fd/{fd}", os.O_RDWR)
    pages = mmap.mmap(mine, block)
    os.close(mine)
    return np.frombuffer(pages, "u1")


@dataclass
class Rig:
    """`local_bytes` is the host memory of `local`; `remote_bytes` the GPU block of `remote`."""

    device: Device
    queue: Queue
    local: Region
    remote: RemoteRegion
    local_bytes: np.ndarray
    remote_bytes: np.ndarray
    host: Child | None  # its owner, if not this process
    region: Region | None  # what was exported, if by this process
    token: bytes  # its descriptor

    @property
    def pair(self) -> tuple[Region, RemoteRegion]:
        return self.local, self.remote


def _of_this_process(stack: ExitStack, device: Device, size: int, access: str) -> Any:
    memory = stack.enter_context(dgkit.empty(size, on="gpu"))
    region = device.register(memory)
    stack.callback(region.close)
    return region.export(access), seen_here(memory), None, region


def _of_another(stack: ExitStack, size: int, access: str) -> Any:
    host = stack.enter_context(child(HOST, size, "vmm", access))
    token = bytes.fromhex(host.line())
    fd, block = map(int, host.line().split())
    return token, seen_there(host, fd, block), host, None


@contextmanager
def rig(where: str, *, size: int = MIB, access: str = "rw", **queue: Any) -> Iterator[Rig]:
    """Yield a Rig in "one process" or "two processes" (`where`), exported with `access`."""
    with ExitStack() as stack:
        device = keep(Device("cuda"))
        stack.callback(device.close)
        if where == "one process":
            token, there, host, region = _of_this_process(stack, device, size, access)
        else:
            token, there, host, region = _of_another(stack, size, access)
        q = device.queue(**{"depth": 1024, **queue})
        memory = stack.enter_context(dgkit.empty(size))
        local, remote = device.register(memory), device.import_region(token, timeout=5)
        stack.callback(local.close)
        stack.callback(remote.close)
        stack.callback(q.close)
        yield Rig(device, q, local, remote, memory.array, there, host, region, token)
        del there


def noise(size: int, seed: int) -> np.ndarray:
    """Return the bytes of a seed."""
    return np.random.default_rng(seed).integers(0, 256, size, "u1")


def records(r: Rig, n: int) -> np.ndarray:
    """Return n WR_DTYPE records between the two regions, numbered from 100 on, to be filled in."""
    batch = np.zeros(n, WR_DTYPE)
    batch["local"], batch["remote"] = r.local.id, r.remote.id
    batch["user"] = np.arange(n) + 100
    return batch


def completions(queue: Queue, n: int) -> np.ndarray:
    """Poll until n completions have arrived."""
    out, got = np.zeros(n, WC_DTYPE), 0
    while got < n:
        count = queue.poll(out[got:], timeout=20)
        assert count, f"{got} of {n}"
        got += count
    return out


def move(here: np.ndarray, there: np.ndarray, record: Any) -> None:
    """Do with NumPy what a record of one contiguous range does."""
    at, size = int(record["local_offset"]), int(record["size"])
    far = int(record["remote_offset"])
    if record["op"]:
        there[far : far + size] = here[at : at + size]
    else:
        here[at : at + size] = there[far : far + size]


def holdings() -> tuple[dict[str, int], int]:
    """Return what this process holds once all work has ended, and the GPU's free bytes."""
    gc.collect()
    return steady(held), free()


def free() -> int:
    """Return the free bytes of the first GPU."""
    import cupy

    return int(cupy.cuda.runtime.memGetInfo()[0])
