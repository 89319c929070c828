# SPDX-License-Identifier: Apache-2.0
"""GPU queues of the provider cuda: kernels post, and a GPU's engine copies, while they fill it.

Over the fake driver, kernels of the emulated GPU post; with full=1 one of them has every
multiprocessor of the fake GPU, and what a real one runs only after that kernel waits for full=0.
On a GPU, the kernels themselves fill it: what waited for one would end as TIMED_OUT.
"""

import hashlib
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import numpy as np
import pytest
from support.dma import pattern
from support.gpu import queue_rig
from support.gpu.queue_rig import Kernels, Rig, bytes_in, empty, put_bytes, wait_for
from support.gpu.remote_region import HOST
from support.processes.children import EXPORTER, child

import dgkit
from dgkit import Status
from dgkit.dma import gpu_queue

pytestmark = pytest.mark.any_gpu
SIZE = 1 << 16
LIMIT = 5.0


@contextmanager
def full(knobs: Any) -> Iterator[None]:
    """Have kernels fill the fake GPU."""
    if knobs:
        knobs.order("full=1")
    try:
        yield
    finally:
        if knobs:
            knobs.order("")


def rig(
    kernels: Kernels, local: str = "gpu", target: str = "gpu", size: int = SIZE, **queue: Any
) -> AbstractContextManager[Rig]:
    depth = 1024 if kernels.real else 256
    given = {"depth": depth, "timeout": LIMIT if kernels.real else 30, **queue}
    return queue_rig.rig(kernels, "cuda", local, target, size, **given)


def filling(r: Rig, name: str, *args: Any) -> Callable[[], set[int]]:
    """Start a kernel that fills the GPU; return a function that waits for its blocks' statuses."""
    blocks = r.kernels.blocks
    ended = r.start(name, *args, threads=r.kernels.threads, grid=blocks)
    return lambda: set(ended()[:blocks].tolist())


PAIRS = [
    ("pinned", "gpu"), ("pinned", "pool"), ("gpu", "pinned"), ("gpu", "host"), ("gpu", "gpu"),
    ("pool", "pool"), ("pool", "gpu"), ("host", "gpu"), ("gpu", "pool"), ("pinned", "host"),
]  # fmt: skip
SIZES = [1, 7, 8, 20, 100, 4096, 4097, 40_000]


@pytest.mark.parametrize(("local", "target"), PAIRS)
def test_puts_and_gets_go_through_while_a_kernel_fills_the_gpu(kernels, knobs, local, target):
    whole = kernels.blocks * max(SIZES) + 200
    with rig(kernels, local, target, whole) as r:
        data, other = pattern(whole), pattern(whole, 3)
        wanted = bytearray(whole)
        for i, size in enumerate(SIZES):
            with full(knobs):
                assert filling(r, "put_full", 13 * i, 5 + i, size, 2)() == {Status.OK}
            moved = kernels.blocks * size
            wanted[13 * i : 13 * i + moved] = data[5 + i : 5 + i + moved]
        assert bytes_in(r.target_memory, whole) == wanted
        put_bytes(r.target_memory, other)
        with full(knobs):
            assert filling(r, "get_full", 5, 13, 4097)() == {Status.OK}
        moved, wanted = kernels.blocks * 4097, bytearray(data)
        wanted[5 : 5 + moved] = other[13 : 13 + moved]
        assert bytes_in(r.local_memory, whole) == wanted


def test_large_puts_between_gpu_memories_pass_the_bounce_buffer_in_parts(kernels, knobs):
    size = (5 << 20) + 1234
    with rig(kernels, size=size) as r:
        with full(knobs):
            assert r.run("put", 3, 7, size - 9)[0] == Status.OK
        assert bytes_in(r.target_memory, size - 9, 3) == pattern(size)[7 : size - 2]


def test_no_kernel_and_no_copy_on_the_gpu_is_used(kernels, fake_cuda):
    with rig(kernels) as r:
        fake_cuda.order("full=1")
        for _ in range(5):  # whatever was measured until then
            assert not r.run("put_each", 64, 4, threads=128, grid=4).any()
        for name in ("cuLaunchKernel", "cuModuleLoadData", "cuMemcpyDtoDAsync"):
            assert fake_cuda.calls(name) == 0
        fake_cuda.order("")


@contextmanager
def between_processes(kernels: Kernels, kind: str, local: str, size: int) -> Iterator[Any]:
    """Yield a Rig whose target is another process's memory, and that process."""
    script = (EXPORTER, size, "memfd", "rw") if kind == "host" else (HOST, size, kind, "rw")
    with (
        child(*script) as other,
        dgkit.Device("cuda") as device,
        empty(local, size) as memory,
    ):
        put_bytes(memory, pattern(size))
        token = bytes.fromhex(other.line())
        if kind != "host":
            other.line()
        own, remote = device.register(memory), device.import_region(token, timeout=10)
        depth = 1024 if kernels.real else 256
        with device.gpu_queue(depth, timeout=LIMIT, regions=(own, remote)) as q:
            yield Rig(device, q, memory, None, own, None, remote, kernels), other


def digest_there(other: Any, kind: str) -> str:
    """Return the SHA-256 of another process's memory."""
    code = "__import__('hashlib').sha256(memory.array.get().tobytes()).hexdigest()"
    return other.ask("digest" if kind == "host" else code)


@pytest.mark.parametrize("local", ["pinned", "gpu", "pool"])
@pytest.mark.parametrize("kind", ["vmm", "ipc", "host"])
def test_memory_of_another_process(kernels, knobs, kind, local):
    size = 4097
    moved = kernels.blocks * size
    with between_processes(kernels, kind, local, moved + 100) as (r, other):
        with full(knobs):
            assert filling(r, "put_full", 3, 5, size, 2)() == {Status.OK}
        first = bytes(range(251)) if kind == "host" else bytes(251)  # as EXPORTER and HOST fill it
        wanted = bytearray((first * (moved // 251 + 1))[: moved + 100])
        wanted[3 : 3 + moved] = pattern(moved + 100)[5 : 5 + moved]
        assert digest_there(other, kind) == hashlib.sha256(wanted).hexdigest()
        put_bytes(r.local_memory, bytes(moved + 100))
        with full(knobs):
            assert filling(r, "get_full", 1, 3, size)() == {Status.OK}
        assert bytes_in(r.local_memory, moved + 2) == b"\0" + wanted[3 : 3 + moved] + b"\0"


def test_the_death_of_the_other_process_ends_the_puts(kernels, knobs):
    with (
        between_processes(kernels, "vmm", "gpu", 1 << 20) as (r, other),
        running(r, knobs) as ended,
    ):
        other.kill()
        assert ended() <= {Status.PEER_LOST, Status.REMOTE_ACCESS_ERROR}


@pytest.mark.parametrize("target", ["gpu", "pool", "pinned", "host"])
def test_signals_follow_their_bytes(kernels, knobs, target):
    with rig(kernels, "gpu", target) as r:
        with full(knobs):
            # In GPU memory the proxy cannot read what a word has: it is set before it is added to.
            unread = target in ("gpu", "pool")
            assert r.run("put_signal", 3)[0] == (Status.UNSUPPORTED if unread else Status.OK)
            assert r.run("signal_set", 0, 1000)[0] == Status.OK
            assert not r.run("put_signal", 3, threads=64, grid=2).any()
            assert r.run("signal", 12, 1)[0] == Status.BAD_RECORD
        found = bytes_in(r.target_memory, 64 + 1024)
        assert int.from_bytes(found[:8], "little") == 1000 + 3 * 128
        assert found[64:] == pattern(1024)
        with full(knobs):
            assert r.run("put_inline")[0] == Status.OK
        assert bytes_in(r.target_memory, 40) == bytes(range(40))
        assert r.queue.stats().completed == 1 + 1 + 128 + 1 + 1


@contextmanager
def running(r: Rig, knobs: Any) -> Iterator[Callable[[], set[int]]]:
    """Fill the GPU with a kernel that puts until the end of the block."""
    with dgkit.empty(4096, on="pinned") as stop:
        stop.buffer[:4] = bytes(4)
        with full(knobs):
            ended = filling(r, "put_until", stop)
            try:
                more_puts(r, 300)
                yield ended
            finally:
                stop.buffer[:4] = b"\1\0\0\0"
                ended()


def more_puts(r: Rig, n: int) -> None:
    before = r.queue.stats().completed
    wait_for(lambda: r.queue.stats().completed > before + n)


@pytest.mark.gpu
@pytest.mark.parametrize(("local", "target"), [("gpu", "gpu"), ("pinned", "gpu"), ("gpu", "host")])
def test_what_fills_the_gpu_lets_no_other_kernel_in_and_its_puts_go_on(kernels, local, target):
    import cupy

    other, size = cupy.cuda.Stream(non_blocking=True), kernels.blocks * 64
    touch, word = kernels.module["touch"], cupy.zeros(1, np.int32)
    touch(1, 1, (word,), stream=other)  # it is loaded now
    with rig(kernels, local, target, size) as r:
        other.synchronize()
        with running(r, None) as ended:
            touch(1, 1, (word,), stream=other)
            more_puts(r, 300)
            assert not other.done, "the GPU was not full: this test shows nothing"
        assert ended() == {Status.OK}
        other.synchronize()
        assert bytes_in(r.target_memory, size) == pattern(size)


def test_queues_open_and_close_while_a_kernel_fills_the_gpu(kernels, knobs):
    with rig(kernels, size=kernels.blocks * 64) as r, running(r, knobs) as ended:
        begin = time.monotonic()
        for depth in (64, 4096, 64):
            r.device.gpu_queue(depth, regions=(r.local, r.remote)).close()
        r.device.queue(64).close()
        assert time.monotonic() - begin < LIMIT / 2
        more_puts(r, 300)
        if knobs:
            assert knobs.calls("cuMemFreeHost") == knobs.calls("cuMemHostUnregister") == 0
    assert ended() == {Status.OK}


@pytest.mark.parametrize(("local", "target"), [("gpu", "gpu"), ("pinned", "gpu")])
def test_closing_a_queue_ends_a_kernel_that_fills_the_gpu(kernels, knobs, local, target):
    with rig(kernels, local, target, kernels.blocks * 64, timeout=60) as r:
        with running(r, knobs) as ended:
            begin = time.monotonic()
            r.queue.close()
            assert time.monotonic() - begin < LIMIT
            assert ended() <= {Status.FLUSHED, Status.CLOSED}
            assert time.monotonic() - begin < 2 * LIMIT
        r.device.close()


def test_memory_of_closed_queues_is_used_again_and_freed_with_the_device(fake_cuda):
    fake_cuda.order("")
    with dgkit.Device("cuda") as device:
        for _ in range(50):
            device.gpu_queue(64).close()
        assert fake_cuda.calls("cuMemHostAlloc") == 1
        assert fake_cuda.calls("cuMemHostRegister") == 1
        assert fake_cuda.calls("cuMemFreeHost") == 0
    assert fake_cuda.calls("cuMemFreeHost") == 1
    assert fake_cuda.calls("cuMemHostUnregister") == 1


def test_a_device_is_closed_once_no_kernel_uses_a_queue(fake_cuda, monkeypatch):
    running = [True]
    monkeypatch.setattr(gpu_queue, "collectors", [lambda: not running[0]])
    device = dgkit.Device("cuda")
    queue = device.gpu_queue()
    with pytest.raises(dgkit.RegionBusy, match="launched with a GPU queue still runs"):
        device.close(timeout=0.05)
    assert queue.closed
    assert not device.closed
    running[0] = False
    device.close()
    assert device.closed


@pytest.mark.parametrize(
    "order", ["cuMemHostAlloc=2", "cuStreamCreate=999@2", "cuStreamSynchronize=719"]
)
def test_a_queue_that_cannot_be_opened_leaves_nothing(fake_cuda, order):
    with dgkit.Device("cuda") as device:
        fake_cuda.order(order)
        with pytest.raises(dgkit.NativeError):
            device.gpu_queue()
        fake_cuda.order("")
        device.gpu_queue().close()


def test_what_cannot_be_served_is_refused_with_the_way_out(kernels, fake_cuda):
    with (
        child(HOST_BYTES, SIZE) as owner,
        dgkit.Device("cuda") as device,
        dgkit.empty(SIZE, on="gpu") as memory,
        dgkit.empty(SIZE, on="pinned") as pinned,
    ):
        remote = device.import_region(bytes.fromhex(owner.line()), timeout=10)
        local, near = device.register(memory), device.register(pinned)
        assert remote.method in ("vm", "proxy")
        with pytest.raises(dgkit.Unsupported, match=r"only its owner.*use memory from dgkit.empty"):
            device.gpu_queue(regions=(local, remote))
        with device.gpu_queue() as queue:  # a kernel that names it all the same
            for region in (local, near):
                r = Rig(device, queue, memory, None, region, None, remote, kernels)
                assert r.run("put", 0, 0, 8)[0] == Status.UNSUPPORTED


HOST_BYTES = """
import sys, dgkit
device = dgkit.Device()
region = device.register(bytearray(int(sys.argv[1])))
print(region.export("rw").hex(), flush=True)
sys.stdin.read()
region.close()
device.close()
"""


@pytest.mark.parametrize("on", ["gpu", "pinned"])
def test_kernels_put_from_gpu_memory_into_the_dpus_by_its_copy_engine(kernels, fake_cuda, on):
    with dgkit.connect(provider="cuda") as session, dgkit.empty(1024, on="pinned") as seen:
        near, far = session.empty(SIZE, on=on), session.empty(SIZE, on="dpu")
        session.write(near, pattern(SIZE))
        with session.gpu_queue(far, near, depth=64, trace=True) as queue:
            ids = (queue, queue.id_of(far), queue.id_of(near))
            assert not kernels.start("put_each", 2, 128, (*ids, 64, 3))().any()
            assert session.read(far, 256 * 64) == pattern(SIZE)[: 256 * 64]
            before = int.from_bytes(session.read(far, 8), "little")
            assert not kernels.start("put_signal", 1, 64, (*ids, 5))().any()
            assert int.from_bytes(session.read(far, 8), "little") == before + 5 * 64
            session.write(far, pattern(SIZE, 4))
            assert not kernels.start("get", 1, 64, (*ids, seen, seen))().any()
            assert session.read(near, 1024) == pattern(SIZE, 4)[:1024]
            assert len(queue.trace()) == 64
