# SPDX-License-Identifier: Apache-2.0
"""Rings of GPU queues registered with CUDA: once each, for every GPU, and never leaked."""

import contextlib
from types import SimpleNamespace

import numpy as np
import pytest

import dgkit
from dgkit.gpu_initiated import gpu_module, launching
from dgkit.memory import libcuda


class FakeStream(contextlib.nullcontext):
    def __init__(self, ptr=0):
        super().__init__()
        self.ptr = ptr

    def synchronize(self):
        pass


class FakeEvent:
    done = True

    def __init__(self, gpu, recorded):
        self.gpu, self.recorded = gpu, recorded

    def record(self, stream):
        assert libcuda.current_device() == self.gpu, "an event of another GPU"
        self.recorded.append(stream.ptr)


class FakeCuda:
    def __init__(self):
        self.gpu, self.fails = 0, False
        self.registered, self.launches, self.recorded = [], [], []
        self.cupy = SimpleNamespace(
            asarray=self.asarray,
            cuda=SimpleNamespace(
                get_current_stream=FakeStream,
                Event=lambda **_: FakeEvent(self.gpu, self.recorded),
                ExternalStream=FakeStream,
                Device=lambda: SimpleNamespace(attributes={"ClockRate": 1000}),
            ),
        )

    def asarray(self, words):
        if self.fails:
            raise MemoryError("the fake GPU is full")
        self.copied = np.array(words)
        return SimpleNamespace(
            gpu=self.gpu, words=self.copied, data=SimpleNamespace(ptr=self.copied.ctypes.data)
        )

    def call(self, function, *args):
        if function == "cuMemHostRegister":
            assert args[0] not in self.registered, "CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED"
            self.registered.append(args[0])
        elif function == "cuMemHostUnregister":
            self.registered.remove(args[0])
        else:
            assert function == "cuMemHostGetDevicePointer"
            return args[0]
        return None

    def kernel(self):
        launch = lambda *args, **_: self.launches.append((self.gpu, args[2]))  # noqa: E731
        raw = SimpleNamespace(get_function=lambda _: launch)
        return gpu_module.GpuModule(raw)["k"]


@pytest.fixture
def fake(monkeypatch):
    fake = FakeCuda()
    flags = SimpleNamespace(CU_MEMHOSTREGISTER_PORTABLE=1, CU_MEMHOSTREGISTER_DEVICEMAP=2)
    monkeypatch.setattr(libcuda, "require_cupy", lambda: fake.cupy)
    monkeypatch.setattr(libcuda, "driver", lambda: flags)
    monkeypatch.setattr(libcuda, "call", fake.call)
    monkeypatch.setattr(libcuda, "primary_context", contextlib.nullcontext)
    monkeypatch.setattr(libcuda, "current_device", lambda: fake.gpu)
    return fake


def test_each_gpu_gets_a_handle_in_its_own_memory(fake):
    kernel = fake.kernel()
    with dgkit.Device("soft") as device, device.gpu_queue() as queue:
        for fake.gpu in (0, 1, 0):
            kernel(1, 1, (queue,))
        assert len(fake.registered) == 1
    assert [(gpu, handle.gpu) for gpu, (handle,) in fake.launches] == [(0, 0), (1, 1), (0, 0)]
    assert fake.launches[0][1][0] is fake.launches[2][1][0]
    assert not fake.registered


def test_to_close_a_queue_unregisters_nothing_until_many_are_closed(fake, monkeypatch):
    kernel = fake.kernel()
    with dgkit.Device("soft") as device:
        for _ in range(3):
            with device.gpu_queue() as queue:
                kernel(1, 1, (queue,))
        assert len(fake.registered) == 3  # that would wait for every kernel of the process
        monkeypatch.setattr(gpu_module, "_KEPT", 0)
        with device.gpu_queue() as queue:
            kernel(1, 1, (queue,))
        assert not fake.registered
    assert not fake.registered


def test_a_handle_that_does_not_fit_leaves_no_ring_registered(fake):
    kernel = fake.kernel()
    with dgkit.Device("soft") as device, device.gpu_queue() as queue:
        fake.fails = True
        with pytest.raises(MemoryError):
            kernel(1, 1, (queue,))
        fake.fails = False
        kernel(1, 1, (queue,))
        assert len(fake.launches) == 1
    assert not fake.registered


class StreamOfAnother:
    def __cuda_stream__(self):
        return 0, 0x300


def test_launches_of_other_libraries_get_an_address_and_keep_the_ring(fake, monkeypatch):
    with dgkit.Device("soft") as device:
        queue = device.gpu_queue()
        with launching(queue, stream=StreamOfAnother()) as address:
            assert address == fake.copied.ctypes.data
            assert not fake.recorded
        with launching(queue, stream=0x400), launching(queue):
            pass
        assert fake.recorded == [0x300, 0, 0x400]
        monkeypatch.setattr(FakeEvent, "done", False)
        queue.close()
        assert len(fake.registered) == 1  # a launch may still run
        monkeypatch.setattr(FakeEvent, "done", True)
        gpu_module._collect()
        assert not fake.registered


def test_a_launch_that_raises_may_have_started(fake):
    with dgkit.Device("soft") as device, device.gpu_queue() as queue:
        with pytest.raises(RuntimeError), launching(queue):
            raise RuntimeError
        assert fake.recorded == [0]


def test_the_ring_of_a_sessions_queue_is_registered_and_freed_likewise(fake, monkeypatch):
    with dgkit.connect() as session:
        host, dpu = session.empty(64), session.empty(64, on="dpu")
        queue = session.gpu_queue(dpu, host)
        fake.kernel()(1, 1, (queue,))
        assert fake.registered == [queue._shared_memory()[2]]
        monkeypatch.setattr(FakeEvent, "done", False)
        queue.close()
        assert not queue._memory.closed  # a launch may still run
        monkeypatch.setattr(FakeEvent, "done", True)
        gpu_module._collect()
        assert not fake.registered
        assert queue._memory.closed
