# SPDX-License-Identifier: Apache-2.0
"""Kernels that measure their own operations: samples, floors, and what they report as wrong."""

import threading
import time
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import dgkit
from dgkit.dma import measure
from dgkit.gpu_initiated.kernel_benchmark import RATE_RINGS, RATE_SIZE, RATE_THREADS, Meter

SIZE = RATE_RINGS * RATE_THREADS * RATE_SIZE


@pytest.fixture(scope="module")
def meter() -> Meter:
    return Meter()


@pytest.fixture
def device() -> Iterator[dgkit.Device]:
    with dgkit.Device("soft") as device:
        yield device


@pytest.fixture
def regions(device: dgkit.Device) -> Any:
    local, owned = device.register(dgkit.empty(SIZE)), device.register(dgkit.empty(SIZE))
    return owned, device.import_region(owned.export()), local


@pytest.mark.parametrize(("op", "fenced"), [("put", True), ("put", False), ("get", True)])
def test_each_sample_is_an_operation_that_moved_its_bytes(
    meter: Meter, device: dgkit.Device, regions: Any, op: str, fenced: bool
) -> None:
    owned, remote, local = regions
    local.memory.array[:8] = np.arange(8) if op == "put" else 0
    owned.memory.array[:8] = 0 if op == "put" else np.arange(8)
    with device.gpu_queue(64) as queue:
        ids = remote.id, local.id
        taken = meter.start_single(queue, ids, op=op, fenced=fenced, count=100).take()
        assert queue.stats().completed == len(taken) == 100
    assert min(taken) > 0
    moved = owned if op == "put" else local
    assert list(moved.memory.array[:9]) == [*range(8), 0]


def test_a_measurement_ends_at_its_time(meter: Meter, device: dgkit.Device, regions: Any) -> None:
    _, remote, local = regions
    with device.gpu_queue(64) as queue:
        ids = remote.id, local.id
        kernel = meter.start_single(queue, ids, op="doorbell", count=1 << 20, seconds=0.02)
        taken = kernel.take()
        assert 0 < len(taken) < 1 << 20
        # The clock is read every 16 operations, and a busy machine may stop the kernel meanwhile.
        assert sum(sorted(taken)[: len(taken) // 2]) < 20_000_000


def test_rates_count_each_put_once(meter: Meter, device: dgkit.Device, regions: Any) -> None:
    owned, remote, local = regions
    local.memory.array[:] = 7
    queues = [device.gpu_queue(256) for _ in range(3)]
    done = meter.rate(queues, remote.id, local.id, threads=64, seconds=0.001)
    assert done.ops >= 3 * 64 * 64
    assert done.per_s == pytest.approx(done.ops * 1e9 / done.elapsed_ns)
    assert (owned.memory.array[: 3 * 64 * 64] == 7).all()
    assert not owned.memory.array[3 * 64 * 64 :].any()
    for queue in queues:
        assert queue.stats().failed == 0
        queue.close()
    assert meter.stored(3, 64, seconds=0.001).ops >= 3 * 64 * 64


def test_the_floor_is_answered_while_another_kernel_computes(meter: Meter) -> None:
    with meter.busy(30.0):
        taken = meter.bare(50, seconds=5.0)
    assert 0 < len(taken) <= 50
    assert min(taken) > 0


def test_an_operation_that_fails_is_no_figure(
    meter: Meter, device: dgkit.Device, regions: Any
) -> None:
    _, remote, local = regions
    with device.gpu_queue(64) as queue, pytest.raises(dgkit.errors.KernelError) as raised:
        meter.start_single(queue, (remote.id, 12345), op="put", count=10).take()
    assert str(raised.value) == "the kernel put_fenced ended with LOCAL_ERROR"
    with (
        device.gpu_queue(64, weak=True) as queue,
        pytest.raises(dgkit.errors.KernelError, match="rate_fenced ended with BAD_RECORD"),
    ):
        meter.rate([queue], remote.id, local.id, threads=32)


def test_doorbells_are_answered_until_the_last_one() -> None:
    memory = dgkit.empty(4096)
    words = np.frombuffer(memory.buffer, np.uint64)
    answers = threading.Thread(target=measure.answer, args=(memory, 20.0))
    answers.start()
    for i in (1, 2, 77):
        words[0] = i
        limit = time.monotonic() + 20
        while words[8] != i:
            assert time.monotonic() < limit
    words[0] = 2**64 - 1
    answers.join(20)
    assert not answers.is_alive()
    words[0] = 3
    with pytest.raises(TimeoutError, match=r"no doorbell was rung for 0\.010 s"):
        measure.answer(memory, 0.01)
