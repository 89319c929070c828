# SPDX-License-Identifier: Apache-2.0
"""A GPU that another process keeps busy: no small operation waits for its compute engine."""

import contextlib
import time

import numpy as np
import pytest
from support.gpu.remote_region import HOST, MIB, noise
from support.processes.children import child

import dgkit
from dgkit import WC_DTYPE, WR_DTYPE, Device

BY_KERNEL = 4
SLICE = 0.5  # seconds that the compute engine takes to answer
BUSY = f"compute_us={int(SLICE * 1e6)}"


class Dpu:
    """A queue between host memory and a block of another process, of a kind."""

    def __init__(self, stack, kind):
        host = stack.enter_context(child(HOST, MIB, kind, "rw"))
        self.device = stack.enter_context(Device("cuda"))
        self.remote = self.device.import_region(bytes.fromhex(host.line()), timeout=10)
        self.memory = stack.enter_context(dgkit.empty(MIB))
        self.local = self.device.register(self.memory)
        self.queue = self.device.queue(512)
        self.array = self.memory.array

    def moved(self, call):
        """Runs a call that must not wait for a time slice."""
        since = time.monotonic()
        found = call()
        assert time.monotonic() - since < SLICE / 2
        return found

    def batch(self, op, n, size, seed):
        rng = np.random.default_rng(seed)
        wr = np.zeros(n, WR_DTYPE)
        wr["op"], wr["size"] = op, size
        wr["local"], wr["remote"] = self.local.id, self.remote.id
        wr["local_offset"] = rng.permutation(n) * 2048 + rng.integers(0, 8)
        wr["remote_offset"] = rng.permutation(n) * 2048 + rng.integers(0, 8)
        return wr


@pytest.fixture(params=["vmm", "ipc"])
def dpu(request, fake_cuda):
    with contextlib.ExitStack() as stack:
        yield Dpu(stack, request.param)
        fake_cuda.order("")


@pytest.mark.parametrize("size", [1, 3, 4, 7, 8, 13, 16, 20, 24, 32, 64, 100, 4095, 4096, 20_000])
def test_a_small_operation_moves_its_bytes_without_a_time_slice(dpu, fake_cuda, size):
    fake_cuda.order(BUSY)
    for turn, at in enumerate((0, 8, 13)):
        dpu.array[:] = noise(MIB, turn)
        sent = dpu.array[at : at + size].copy()
        place = {"size": size, "local_offset": at, "remote_offset": 4096 + at}
        write = dpu.moved(dpu.queue.write(dpu.local, dpu.remote, **place).wait)
        dpu.array[:] = 0
        dpu.moved(dpu.queue.read(dpu.local, dpu.remote, **place).wait)
        assert (dpu.array[at : at + size] == sent).all()
        assert not write.by_kernel
        with dpu.queue.prepare_write(dpu.local, dpu.remote, size=size) as operation:
            dpu.moved(operation.run)


@pytest.mark.parametrize("n", [2, 7, 8, 400])
def test_a_batch_moves_its_bytes_without_a_time_slice(dpu, fake_cuda, n):
    fake_cuda.order(BUSY)
    out = np.zeros(n, WC_DTYPE)
    for turn in range(4):
        dpu.array[:] = noise(MIB, turn)
        sent = dpu.array.copy()
        there = dpu.batch(1, n, 60, turn)
        dpu.moved(lambda wr=there: dpu.queue.run(wr, out))
        assert not (out["flags"] & BY_KERNEL).any()
        back = there.copy()
        back["op"] = 0
        dpu.array[:] = 0
        dpu.moved(lambda wr=back: dpu.queue.run(wr, out))
        assert not (out["flags"] & BY_KERNEL).any()
        for at in there["local_offset"].tolist():
            assert (dpu.array[at : at + 60] == sent[at : at + 60]).all()
