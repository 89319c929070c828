"""Kernels of a real GPU post to queues of the provider cuda, which moves GPU memory.

Most of them hold every multiprocessor until their own operations are complete: what waited for such
a kernel would end as TIMED_OUT.
"""

import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from support.dma import pattern
from support.gpu.queue_kernels import KERNELS
from support.gpu.remote_region import HOST
from support.processes.children import EXPORTER, Child, child

import dgkit
from dgkit import Status
from dgkit.gpu_initiated import raw_module

pytestmark = pytest.mark.gpu
U32, U64, I32 = np.uint32, np.uint64, np.int32
THREADS = 1024  # of a block; two of them fill a multiprocessor
LIMIT = 5.0

# Two blocks of THREADS threads a multiprocessor: no other kernel gets in before one ends.
FULL = """
#define FULL extern "C" __global__ void __launch_bounds__(1024, 2)
FULL put_full(ARGS, unsigned size, int rounds)
{
    if (threadIdx.x == 0) {
        int worst = DG_OK;
        for (int i = 0; i < rounds; i++) {
            const u64 at = (u64)blockIdx.x * size;
            const int s = dg_wait(q, dg_put(q, remote, at, local, at, size));
            worst = s ? s : worst;
        }
        status[blockIdx.x] = worst;
    }
    __syncthreads();
}
FULL get_full(ARGS, unsigned size)
{
    if (threadIdx.x == 0) {
        const u64 at = (u64)blockIdx.x * size;
        status[blockIdx.x] = dg_get_wait(q, dg_get(q, remote, at, local, at, size));
    }
    __syncthreads();
}
FULL put_until(ARGS, int *stop)
{
    if (threadIdx.x == 0) {
        const u64 at = (u64)blockIdx.x * 64;
        int s = DG_OK;
        while (s == DG_OK && !*(volatile int *)stop)
            s = dg_wait(q, dg_put(q, remote, at, local, at, 64));
        status[blockIdx.x] = s;
    }
    __syncthreads();
}
extern "C" __global__ void touch(int *word)
{
    *word = 1;
}
"""


@pytest.fixture(scope="module")
def kernels() -> Any:
    return raw_module(KERNELS + FULL)


@pytest.fixture(scope="module")
def blocks() -> int:
    import cupy

    return 2 * int(cupy.cuda.Device().attributes["MultiProcessorCount"])


def empty(kind: str, size: int) -> Any:
    """Memory of a kind: `pool` is an array of CuPy's own pool."""
    import cupy

    if kind == "pool":
        return dgkit.wrap(cupy.zeros(size, np.uint8), share_block=True)
    return dgkit.empty(size, on=kind)


def fill(memory: Any, data: bytes) -> None:
    import cupy

    if memory.gpu is None:
        memory.buffer[: len(data)] = data
    else:
        memory.array[: len(data)] = cupy.asarray(np.frombuffer(data, np.uint8))
        cupy.cuda.Device().synchronize()


def seen(memory: Any, size: int) -> bytes:
    return bytes(memory.buffer[:size] if memory.gpu is None else memory.array[:size].get())


def wait_until(reached: Any, seconds: float = LIMIT) -> None:
    end = time.monotonic() + seconds
    while not reached():
        assert time.monotonic() < end
        time.sleep(0.001)


def statuses(status: Any, n: int) -> set[int]:
    """Wait for the end of the kernel, and return what its first blocks stored.

    By an event: `get()` alone waits inside the driver, which lets no other thread in meanwhile, so
    the proxy would not get on.
    """
    import cupy

    event = cupy.cuda.Event(disable_timing=True)
    event.record()
    wait_until(lambda: event.done, 3 * LIMIT)
    return set(status.get()[:n].tolist())


@dataclass
class Rig:
    device: dgkit.Device
    queue: dgkit.GpuQueue
    local_memory: Any
    target_memory: Any
    local: dgkit.Region
    remote: dgkit.RemoteRegion
    kernels: Any
    blocks: int

    def launch(self, name: str, *args: Any, grid: int, threads: int = THREADS) -> Any:
        import cupy

        status = cupy.full(max(16, threads * grid), -7, np.int32)
        cupy.cuda.Device().synchronize()
        common = (self.queue, U32(self.remote.id), U32(self.local.id), status)
        self.kernels[name](grid, threads, (*common, *args))
        return status


@contextmanager
def rig(
    kernels: Any, blocks: int, local: str, target: str, *, size: int, **queue: Any
) -> Iterator[Rig]:
    with ExitStack() as stack:
        near, far = (stack.enter_context(empty(kind, size)) for kind in (local, target))
        fill(near, pattern(size))
        fill(far, bytes(size))
        device = stack.enter_context(dgkit.Device("cuda"))
        own, owned = device.register(near), device.register(far)
        remote = device.import_region(owned.export())
        given = {"depth": 1024, "timeout": LIMIT, "regions": (own, remote), **queue}
        q = stack.enter_context(device.gpu_queue(**given))
        yield Rig(device, q, near, far, own, remote, kernels, blocks)


PAIRS = [
    ("pinned", "gpu"), ("pinned", "pool"), ("gpu", "pinned"), ("gpu", "host"), ("gpu", "gpu"),
    ("pool", "pool"), ("pool", "gpu"), ("pool", "pinned"), ("gpu", "pool"), ("pinned", "host"),
]  # fmt: skip


@pytest.mark.parametrize("size", [8, 100, 4096, 40_000])
@pytest.mark.parametrize(("local", "target"), PAIRS)
def test_a_kernel_that_fills_the_gpu_waits_for_its_own_puts(
    kernels: Any, blocks: int, local: str, target: str, size: int
) -> None:
    with rig(kernels, blocks, local, target, size=blocks * size) as r:
        status = r.launch("put_full", U32(size), I32(2), grid=blocks)
        assert statuses(status, blocks) == {Status.OK}
        assert seen(r.target_memory, blocks * size) == pattern(blocks * size)


@pytest.mark.parametrize(("local", "target"), PAIRS)
def test_a_kernel_that_fills_the_gpu_waits_for_its_own_gets(
    kernels: Any, blocks: int, local: str, target: str
) -> None:
    size = 4096
    with rig(kernels, blocks, local, target, size=blocks * size) as r:
        fill(r.target_memory, pattern(blocks * size, 9))
        status = r.launch("get_full", U32(size), grid=blocks)
        assert statuses(status, blocks) == {Status.OK}
        assert seen(r.local_memory, blocks * size) == pattern(blocks * size, 9)


@contextmanager
def running(r: Rig, stop: Any) -> Iterator[Any]:
    """A kernel that holds every multiprocessor and puts until `stop` is set."""
    status = r.launch("put_until", stop, grid=r.blocks)
    try:
        wait_until(lambda: r.queue.stats().completed > 600)
        yield status
    finally:
        stop.buffer[:4] = b"\1\0\0\0"


@pytest.mark.parametrize(("local", "target"), [("gpu", "gpu"), ("pinned", "gpu"), ("gpu", "host")])
def test_what_fills_the_gpu_lets_no_other_kernel_in_and_its_puts_go_on(
    kernels: Any, blocks: int, local: str, target: str
) -> None:
    import cupy

    word, other = cupy.zeros(1, np.int32), cupy.cuda.Stream(non_blocking=True)
    with (
        dgkit.empty(4096, on="pinned") as stop,
        rig(kernels, blocks, local, target, size=blocks * 64) as r,
    ):
        stop.buffer[:4] = bytes(4)
        kernels["touch"](1, 1, (word,), stream=other)
        other.synchronize()
        with running(r, stop) as status:
            kernels["touch"](1, 1, (word,), stream=other)
            before = r.queue.stats().completed
            wait_until(lambda: r.queue.stats().completed > before + 300)
            assert not other.done, "the GPU was not full: this test shows nothing"
        assert statuses(status, blocks) == {Status.OK}
        other.synchronize()
        assert seen(r.target_memory, blocks * 64) == pattern(blocks * 64)


def test_queues_open_and_close_beside_a_kernel_that_fills_the_gpu(
    kernels: Any, blocks: int
) -> None:
    with (
        dgkit.empty(4096, on="pinned") as stop,
        rig(kernels, blocks, "gpu", "gpu", size=blocks * 64) as r,
    ):
        stop.buffer[:4] = bytes(4)
        with running(r, stop) as status:
            begin = time.monotonic()
            for depth in (64, 4096, 64):
                r.device.gpu_queue(depth, regions=(r.local, r.remote)).close()
            r.device.queue(64).close()
            took = time.monotonic() - begin
            before = r.queue.stats().completed
            wait_until(lambda: r.queue.stats().completed > before + 300)
        assert took < LIMIT / 2
        assert statuses(status, blocks) == {Status.OK}


@pytest.mark.parametrize(("local", "target"), [("gpu", "gpu"), ("pinned", "gpu")])
def test_closing_the_queue_ends_a_kernel_that_fills_the_gpu(
    kernels: Any, blocks: int, local: str, target: str
) -> None:
    with (
        dgkit.empty(4096, on="pinned") as stop,
        rig(kernels, blocks, local, target, size=blocks * 64, timeout=20) as r,
    ):
        stop.buffer[:4] = bytes(4)
        with running(r, stop) as status:
            begin = time.monotonic()
            r.queue.close()
            assert time.monotonic() - begin < 5
            found = statuses(status, blocks)
            assert time.monotonic() - begin < 10
        assert found <= {Status.FLUSHED, Status.CLOSED}
        r.device.close()


def test_signals_in_gpu_memory_and_in_host_memory(kernels: Any, blocks: int) -> None:
    for target in ("gpu", "pool", "pinned"):
        with rig(kernels, blocks, "gpu", target, size=1 << 16) as r:
            status = r.launch("signal_set", U64(0), U64(1000), grid=1, threads=1)
            assert statuses(status, 1) == {Status.OK}
            status = r.launch("put_signal", U64(3), grid=8, threads=128)
            assert statuses(status, 1024) == {Status.OK}
            found = seen(r.target_memory, 64 + 8192)
            assert int.from_bytes(found[:8], "little") == 1000 + 3 * 1024
            assert found[64:] == pattern(8192)


@contextmanager
def other_process(kind: str, size: int) -> Iterator[Child]:
    script = (EXPORTER, size, "memfd", "rw") if kind == "host" else (HOST, size, kind, "rw")
    with child(*script) as started:
        yield started


@pytest.mark.parametrize("local", ["pinned", "gpu", "pool"])
@pytest.mark.parametrize("kind", ["vmm", "ipc", "host"])
def test_memory_of_another_process(kernels: Any, blocks: int, kind: str, local: str) -> None:
    import hashlib

    size = 4096
    whole = blocks * size
    with (
        other_process(kind, whole) as other,
        dgkit.Device("cuda") as device,
        empty(local, whole) as memory,
    ):
        fill(memory, pattern(whole))
        token = bytes.fromhex(other.line())
        if kind != "host":
            other.line()
        own, remote = device.register(memory), device.import_region(token, timeout=10)
        with device.gpu_queue(1024, timeout=LIMIT, regions=(own, remote)) as q:
            r = Rig(device, q, memory, None, own, remote, kernels, blocks)
            status = r.launch("put_full", U32(size), I32(2), grid=blocks)
            assert statuses(status, blocks) == {Status.OK}
            wanted = hashlib.sha256(pattern(whole)).hexdigest()
            if kind == "host":
                assert other.ask("digest") == wanted
            else:
                code = "__import__('hashlib').sha256(memory.array.get().tobytes()).hexdigest()"
                assert other.ask(code) == wanted
            fill(memory, bytes(whole))
            status = r.launch("get_full", U32(size), grid=blocks)
            assert statuses(status, blocks) == {Status.OK}
            assert seen(memory, whole) == pattern(whole)


def test_the_death_of_the_other_process_ends_the_puts(kernels: Any, blocks: int) -> None:
    with (
        other_process("vmm", 1 << 20) as other,
        dgkit.Device("cuda") as device,
        dgkit.empty(1 << 20, on="gpu") as memory,
        dgkit.empty(4096, on="pinned") as stop,
    ):
        stop.buffer[:4] = bytes(4)
        token = bytes.fromhex(other.line())
        own, remote = device.register(memory), device.import_region(token, timeout=10)
        with device.gpu_queue(1024, timeout=LIMIT, regions=(own, remote)) as q:
            r = Rig(device, q, memory, None, own, remote, kernels, blocks)
            with running(r, stop) as status:
                other.kill()
                found = statuses(status, blocks)
            assert found <= {Status.PEER_LOST, Status.REMOTE_ACCESS_ERROR}
