# SPDX-License-Identifier: Apache-2.0
"""Launches of kernels that post to a GPU queue, by a real GPU or the emulated one."""

import functools
import re
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
from support.dma import keep, pattern
from support.gpu.queue_kernels import KERNELS

import dgkit
from dgkit.gpu_initiated import emulate, raw_module

_TYPES = {"u64": np.uint64, "unsigned": np.uint32, "int": np.int32}


class Kernels:
    """KERNELS, compiled for a GPU, or for the emulated GPU over the fake CUDA driver.

    Attributes:
        real: Whether a GPU runs them.
        blocks: Blocks of `threads` threads that fill the GPU.
    """

    def __init__(self, real: bool) -> None:
        self.real = real
        self.module: Any = (raw_module if real else emulate)(KERNELS)
        self.blocks, self.threads = 4, 8
        if real:
            import cupy

            sms = int(cupy.cuda.Device().attributes["MultiProcessorCount"])
            self.blocks, self.threads = 2 * sms, 1024

    def start(
        self,
        name: str,
        grid: int,
        threads: int,
        args: tuple[Any, ...],
        *,
        initial: int = -7,
        seed: int = 0,
    ) -> Callable[[], Any]:
        """Launch a kernel; return a function that waits for it and returns its statuses.

        Args:
            args: Queue, remote id and local id, then the kernel's own arguments.
            initial: What the statuses are before the launch.
            seed: Seed of the order of the emulated GPU's threads.
        """
        kernel, n = self.module[name], max(16, threads * grid)
        (declared,) = re.findall(rf" {name}\(ARGS([^)]*)\)", KERNELS)
        types = ["unsigned", "unsigned", *(part.split()[0] for part in declared.split(",")[1:])]
        queue, *rest = args
        typed = [
            _TYPES[t](v) if isinstance(v, int) else v for t, v in zip(types, rest, strict=True)
        ]
        if not self.real:
            status = np.full(n, initial, np.int32)
            launch = kernel.start(grid, threads, (queue, *typed[:2], status, *typed[2:]), seed=seed)
            return functools.cache(lambda: launch.wait() or status)
        import cupy

        on_gpu = cupy.full(n, initial, np.int32)
        cupy.cuda.get_current_stream().synchronize()
        kernel(grid, threads, (queue, *typed[:2], on_gpu, *typed[2:]))
        event = cupy.cuda.Event(disable_timing=True)
        event.record()

        @functools.cache
        def ended() -> Any:
            # get() alone waits inside the driver, which lets no other thread in meanwhile.
            wait_for(lambda: event.done)
            return on_gpu.get()

        return ended


def wait_for(reached: Callable[[], Any], seconds: float = 20) -> None:
    end = time.monotonic() + seconds
    while not reached():
        assert time.monotonic() < end
        time.sleep(0.001)


def empty(on: str, size: int) -> Any:
    """Return memory of zeros; `pool` is an array of CuPy's own pool."""
    if on == "pool":
        import cupy

        return dgkit.wrap(cupy.zeros(size, np.uint8), share_block=True)
    return dgkit.empty(size, on=on)


def put_bytes(memory: Any, data: bytes) -> None:
    if memory.gpu is None:
        memory.buffer[: len(data)] = data
    else:
        import cupy

        memory.array[: len(data)] = cupy.asarray(np.frombuffer(data, np.uint8))
        memory.synchronize()


def bytes_in(memory: Any, size: int, start: int = 0) -> bytes:
    array = memory.buffer if memory.gpu is None else memory.array
    part = array[start : start + size]
    return bytes(part if memory.gpu is None else part.get())


@dataclass
class Rig:
    """A queue between two memories of this process."""

    device: dgkit.Device
    queue: dgkit.GpuQueue
    local_memory: Any
    target_memory: Any
    local: dgkit.Region
    target: dgkit.Region | None
    remote: dgkit.RemoteRegion
    kernels: Kernels

    def start(
        self,
        name: str,
        *args: Any,
        threads: int = 1,
        grid: int = 1,
        initial: int = -7,
        seed: int = 0,
    ) -> Callable[[], Any]:
        """Launch a kernel on its common arguments; see Kernels.start."""
        own = (self.queue, self.remote.id, self.local.id, *args)
        return self.kernels.start(name, grid, threads, own, initial=initial, seed=seed)

    def run(self, name: str, *args: Any, threads: int = 1, grid: int = 1, **more: int) -> Any:
        """Run a kernel to its end; return one status a thread, or 16."""
        status = self.start(name, *args, threads=threads, grid=grid, **more)()
        return status[: threads * grid] if threads * grid > 1 else status


@contextmanager
def rig(
    kernels: Kernels,
    provider: str,
    local: str,
    target: str,
    size: int,
    access: str = "rw",
    **queue: Any,
) -> Iterator[Rig]:
    """Yield a Rig of a provider, between memory of two places; `queue` are options of its queue."""
    with ExitStack() as stack:
        near, far = empty(local, size), empty(target, size)
        for memory in (near, far):
            stack.callback(memory.close)
        put_bytes(near, pattern(size))
        device = keep(stack.enter_context(dgkit.Device(provider)))
        own, owned = device.register(near), device.register(far)
        remote = device.import_region(owned.export(access))
        if provider == "cuda":
            queue = {"regions": (own, remote), **queue}
        q = stack.enter_context(device.gpu_queue(**{"depth": 64, **queue}))
        yield Rig(device, q, near, far, own, owned, remote, kernels)
