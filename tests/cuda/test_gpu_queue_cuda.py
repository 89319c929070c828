"""GPU queues of the provider cuda: kernels of the emulated GPU post, the fake driver's GPU copies.

With full=1 a kernel has every multiprocessor of the fake GPU: what a real one runs only after that
kernel, waits for full=0.
"""

import contextlib
import threading
import time

import numpy as np
import pytest
from support.dma import keep, pattern
from support.gpu.queue_kernels import KERNELS
from support.gpu.remote_region import HOST, MIB
from support.processes.children import child

import dgkit
from dgkit import Status
from dgkit.dma import gpu_queue
from dgkit.gpu_initiated import emulate

SIZE = 1 << 16
FULL = "full=1"


@pytest.fixture(scope="module")
def kernels():
    return emulate(KERNELS)


def put_bytes(memory, data):
    if memory.gpu is None:
        memory.buffer[: len(data)] = data
    else:
        memory.array[: len(data)] = np.frombuffer(data, np.uint8)


def bytes_in(memory, size=SIZE):
    return bytes(memory.buffer[:size] if memory.gpu is None else memory.array[:size].get())


class Rig:
    """A queue of a device with the provider cuda, between two memories of this process."""

    def __init__(self, stack, kernels, local="gpu", target="gpu", **queue):
        enter = stack.enter_context
        self.kernels = kernels
        self.device = keep(enter(dgkit.Device("cuda")))
        self.local_memory, self.target_memory = (
            enter(dgkit.empty(SIZE, on=on)) for on in (local, target)
        )
        put_bytes(self.local_memory, pattern(SIZE))
        put_bytes(self.target_memory, bytes(SIZE))
        self.local = self.device.register(self.local_memory)
        self.target = self.device.register(self.target_memory)
        self.remote = self.device.import_region(self.target.export())
        self.queue = enter(
            self.device.gpu_queue(**{"depth": 256, "regions": (self.local, self.remote), **queue})
        )

    def run(self, name, *args, threads=1, grid=1, **more):
        status = np.full(max(16, threads * grid), -7, np.int32)
        own = (self.queue, self.remote.id, self.local.id, status)
        self.kernels[name](grid, threads, (*own, *args), **more)
        return status[: threads * grid] if threads * grid > 1 else status


@pytest.fixture
def rig(kernels, fake_cuda):
    with contextlib.ExitStack() as stack:
        stack.callback(fake_cuda.order, "")  # before anything is closed, see `opened`

        def opened(*memories, **queue):
            made = Rig(stack, kernels, *memories, **queue)
            stack.callback(fake_cuda.order, "")
            return made

        yield opened


PLACES = [("gpu", "host"), ("gpu", "pinned"), ("pinned", "gpu"), ("host", "gpu"), ("gpu", "gpu")]
SIZES = [1, 7, 8, 16, 20, 4096, 4097, 40_000]


@pytest.mark.parametrize(("local", "target"), PLACES)
def test_puts_and_gets_go_through_while_a_kernel_fills_the_gpu(rig, fake_cuda, local, target):
    r = rig(local, target, timeout=30)
    wanted = bytearray(SIZE)
    fake_cuda.order(FULL)
    for i, size in enumerate(SIZES):
        assert r.run("put", 13 * i, 5 + i, size)[0] == Status.OK
        wanted[13 * i : 13 * i + size] = pattern(SIZE)[5 + i : 5 + i + size]
    assert not r.run("put_each", 8, 2, threads=64, grid=4).any()
    wanted[: 256 * 8] = pattern(SIZE)[: 256 * 8]
    fake_cuda.order("")
    assert bytes_in(r.target_memory) == wanted
    put_bytes(r.target_memory, pattern(SIZE, 3))
    fake_cuda.order(FULL)
    seen = bytearray(64 * 16)
    assert not r.run("get", bytearray(64 * 16), seen, threads=64).any()
    fake_cuda.order("")
    assert bytes_in(r.local_memory, 64 * 16) == pattern(SIZE, 3)[: 64 * 16]
    assert bytes_in(r.local_memory)[64 * 16 :] == pattern(SIZE)[64 * 16 :]


def test_large_puts_between_gpu_memories_pass_the_bounce_buffer_in_parts(kernels, fake_cuda):
    size = (5 << 20) + 1234
    with (
        dgkit.Device("cuda") as device,
        dgkit.empty(size, on="gpu") as source,
        dgkit.empty(size, on="gpu") as target,
    ):
        data = pattern(size)
        put_bytes(source, data)
        local, owned = device.register(source), device.register(target)
        remote = device.import_region(owned.export())
        with device.gpu_queue(64, regions=(local, remote)) as queue:
            fake_cuda.order(FULL)
            status = np.zeros(16, np.int32)
            kernels["put"](1, 1, (queue, remote.id, local.id, status, 3, 7, size - 9))
            fake_cuda.order("")
        assert status[0] == Status.OK
        assert bytes_in(target, size)[3 : size - 6] == data[7 : size - 2]


def test_no_kernel_and_no_copy_on_the_gpu_is_used(rig, fake_cuda):
    r = rig(timeout=30)
    fake_cuda.order(FULL)
    for _ in range(5):  # whatever was measured until then
        assert not r.run("put_each", 64, 4, threads=128, grid=4).any()
    assert fake_cuda.calls("cuLaunchKernel") == 0
    assert fake_cuda.calls("cuModuleLoadData") == 0
    assert fake_cuda.calls("cuMemcpyDtoDAsync") == 0


@pytest.mark.parametrize("kind", ["vmm", "ipc"])
@pytest.mark.parametrize("local", ["gpu", "pinned"])
def test_memory_of_another_process(kernels, fake_cuda, kind, local):
    with (
        child(HOST, MIB, kind, "rw") as host,
        dgkit.Device("cuda") as device,
        dgkit.empty(SIZE, on=local) as memory,
    ):
        put_bytes(memory, pattern(SIZE))
        mine = device.register(memory)
        remote = device.import_region(bytes.fromhex(host.line()), timeout=10)
        host.line()
        with device.gpu_queue(regions=(mine, remote)) as queue:
            fake_cuda.order(FULL)
            for i, size in enumerate(SIZES):
                status = np.full(16, -7, np.int32)
                common = (queue, remote.id, mine.id, status)
                kernels["put"](1, 1, (*common, 50_000 * i + 3, 5, size))
                assert status[0] == Status.OK
            fake_cuda.order("")
        for i, size in enumerate(SIZES):
            at = 50_000 * i + 3
            seen = host.ask(f"bytes(memory.array[{at - 1}:{at + size + 1}].get()).hex()")
            assert bytes.fromhex(seen) == b"\0" + pattern(SIZE)[5 : 5 + size] + b"\0"


@pytest.mark.parametrize("target", ["gpu", "host"])
def test_signals_follow_their_bytes(rig, fake_cuda, target):
    r = rig("gpu", target)
    fake_cuda.order(FULL)
    # In GPU memory the proxy cannot read what a word has: it is set before it is added to.
    first = r.run("put_signal", 3, threads=1)[0]
    assert first == (Status.UNSUPPORTED if target == "gpu" else Status.OK)
    assert r.run("signal_set", 0, 1000)[0] == Status.OK
    assert not r.run("put_signal", 3, threads=64, grid=2).any()
    assert r.run("signal", 12, 1)[0] == Status.BAD_RECORD
    assert r.run("put_inline")[0] == Status.OK
    fake_cuda.order("")
    found = bytes_in(r.target_memory)
    assert found[64 : 64 + 1024] == pattern(SIZE)[:1024]
    assert r.queue.stats().completed == 1 + 1 + 128 + 1 + 1


def test_a_signal_in_gpu_memory_has_its_sum(rig, fake_cuda):
    r = rig()
    fake_cuda.order(FULL)
    assert r.run("signal_set", 0, 1000)[0] == Status.OK
    assert not r.run("put_signal", 3, threads=64, grid=2).any()
    fake_cuda.order("")
    assert int.from_bytes(bytes_in(r.target_memory, 8), "little") == 1000 + 3 * 128


def in_time(call, *, seconds=10):
    thread = threading.Thread(target=call, daemon=True)
    begin = time.monotonic()
    thread.start()
    thread.join(seconds)
    assert not thread.is_alive(), f"it waits for the kernel ({seconds} s)"
    return time.monotonic() - begin


def test_queues_open_and_close_while_a_kernel_fills_the_gpu(rig, fake_cuda):
    r = rig()
    fake_cuda.order(FULL)

    def both():
        for depth in (64, 256, 64, 1024):
            r.device.gpu_queue(depth).close()
        r.queue.close()
        r.device.queue(64).close()

    in_time(both)
    assert fake_cuda.calls("cuMemFreeHost") == 0
    assert fake_cuda.calls("cuMemHostUnregister") == 0


def test_closing_a_queue_ends_the_waits_of_a_kernel_that_fills_the_gpu(rig, fake_cuda):
    r = rig(timeout=60)
    fake_cuda.order(FULL)
    status = np.full(64, -7, np.int32)
    launch = r.kernels["forever"].start(1, 64, (r.queue, r.remote.id, r.local.id, status))
    end = time.monotonic() + 20
    while r.queue.stats().completed < 100:
        assert time.monotonic() < end
    in_time(r.queue.close)
    launch.wait()
    assert set(status) <= {Status.FLUSHED, Status.CLOSED}


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
            status = np.zeros(16, np.int32)
            for region in (local, near):
                kernels["put"](1, 1, (queue, remote.id, region.id, status, 0, 0, 8))
                assert status[0] == Status.UNSUPPORTED


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
def test_kernels_put_from_gpu_memory_into_the_dpus_by_its_copy_engine(kernels, on):
    with dgkit.connect(provider="cuda") as session:
        near, far = session.empty(SIZE, on=on), session.empty(SIZE, on="dpu")
        session.write(near, pattern(SIZE))
        with session.gpu_queue(far, near, depth=64, trace=True) as queue:
            status = np.full(256, -7, np.int32)
            common = (queue, queue.id_of(far), queue.id_of(near), status)
            kernels["put_each"](2, 128, (*common, 64, 3))
            assert not status.any()
            assert session.read(far, 256 * 64) == pattern(SIZE)[: 256 * 64]
            before = int.from_bytes(session.read(far, 8), "little")
            kernels["put_signal"](1, 64, (*common, 5))
            assert not status[:64].any()
            assert int.from_bytes(session.read(far, 8), "little") == before + 5 * 64
            session.write(far, pattern(SIZE, 4))
            kernels["get"](1, 64, (*common, bytearray(1024), bytearray(1024)))
            assert not status[:64].any()
            assert session.read(near, 1024) == pattern(SIZE, 4)[:1024]
            assert len(queue.trace()) == 64
