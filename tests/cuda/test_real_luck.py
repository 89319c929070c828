# SPDX-License-Identifier: Apache-2.0
"""Bad luck around a real GPU, and a session from end to end."""

import gc

import pytest
from support.gpu.dpu_work import kill, second
from support.gpu.memory import MIB, free
from support.gpu.remote_region import HOST
from support.processes.children import child, run
from support.processes.waiting import held, steady, until

import dgkit
from dgkit import Device, Status
from dgkit.errors import TransferError
from dgkit.memory import libcuda

pytestmark = pytest.mark.gpu

GIB = 1 << 30
DRIVER = "the driver's own copy, bare C loop"


def ended(transfers):
    """The statuses of what was posted."""
    found = set()
    for transfer in transfers:
        try:
            found.add(transfer.wait(30).status)
        except TransferError as error:
            found.add(error.completion.status)
    return found


def test_a_host_that_is_killed_while_1_gib_is_copied_is_lost():
    dgkit.empty(1, on="gpu").close()
    before = free()
    with child(HOST, GIB, "vmm", "rw") as host, Device("cuda") as device, device.queue() as queue:
        remote = device.import_region(bytes.fromhex(host.line(60)), timeout=10)
        with dgkit.empty(GIB) as memory, device.register(memory) as local:
            transfers = [queue.write(local, remote) for _ in range(8)]
            host.kill()
            assert ended(transfers) <= {Status.OK, Status.PEER_LOST}
            until(lambda: remote.lost, "the region says so")
            assert ended([queue.write(local, remote, size=8)]) == {Status.PEER_LOST}
            remote.close()
    until(lambda: free() > before - 256 * MIB, "the card has its memory back", timeout=20)


def test_a_dpu_that_is_killed_while_it_copies_1_gib_lets_the_host_go_on():
    libcuda.require_cupy()
    with dgkit.empty(GIB, on="gpu") as memory, Device() as device:
        region = device.register(memory)
        with second(region) as dpu:
            assert dpu.ask("dpu.post(8)", timeout=60) == "8"
            kill(dpu)
            until(lambda: region.importers == 0, "the door has noticed")
            region.close(timeout=5)
        memory.array.fill(3)
        memory.synchronize()
        assert bool((memory.array == 3).all())


def test_a_region_closes_while_a_dpu_copies_1_gib_and_nothing_comes_after_it():
    libcuda.require_cupy()
    with dgkit.empty(GIB, on="gpu") as memory, Device() as device:
        region = device.register(memory)
        with second(region) as dpu:
            assert dpu.ask("dpu.array.fill(9)", timeout=60) == "None"
            assert dpu.ask("dpu.post(8)", timeout=60) == "8"
            region.close(timeout=5)
            memory.array.fill(0)
            memory.synchronize()
            said = dpu.ask("dpu.put(1, 8, 0, 0)")
            assert "REMOTE_ACCESS_ERROR" in said
        assert not bool(memory.array.any())


def test_200_cycles_leave_the_card_and_both_processes_as_they_were():
    libcuda.require_cupy()
    with (
        dgkit.empty(4096, on="gpu") as first,
        Device() as device,
        device.register(first) as region,
        second(region) as dpu,
    ):

        def cycle():
            with dgkit.empty(8 * MIB, on="gpu") as memory, device.register(memory) as lent:
                memory.array.fill(1)
                memory.synchronize()
                assert dpu.ask(f"dpu.cycle({lent.export().hex()!r})") == "done"

        def state():
            gc.collect()
            return steady(held), steady(lambda: held(dpu.pid))

        assert dpu.ask("dpu.asleep(4)") == "4"  # the driver's thread for it stays
        for _ in range(5):
            cycle()
        before, room = state(), free()
        for _ in range(200):
            cycle()
        assert state() == before
        assert abs(free() - room) < 8 * MIB  # a single block that was lost would be as much


LOST = """
import os, sys, cupy, numpy as np, dgkit
device = dgkit.Device("cuda")
queue, local = device.queue(), device.register(dgkit.empty(1 << 20))
remote = device.import_region(bytes.fromhex(sys.argv[1]), timeout=10)
queue.write(local, remote).wait(20)
bad = cupy.RawKernel('extern "C" __global__ void bad(int *p) { *p = 1; }', "bad")
try:
    bad((1,), (1,), (np.uint64(16),))
    cupy.cuda.get_current_stream().synchronize()
    print("the kernel is fine")
except Exception as error:
    print(type(error).__name__)
for use in (
    lambda: queue.write(local, remote, size=8).wait(20),
    lambda: queue.read(local, remote).wait(20),
    lambda: device.register(bytearray(64)),
    lambda: device.queue(),
):
    try:
        use()
        print("not refused")
    except dgkit.DgkitError as error:
        print(type(error).__name__, error)
for end in (remote, local, queue, device):
    end.close()
print("closed", flush=True)
os._exit(0)
"""


def test_a_context_that_is_lost_is_named_and_costs_the_other_process_nothing():
    libcuda.require_cupy()
    with dgkit.empty(MIB, on="gpu") as memory, Device() as device:
        memory.array.fill(4)
        memory.synchronize()
        with device.register(memory) as region:
            said = run(LOST, region.export().hex(), timeout=100).splitlines()
        assert len(said) == 6, said
        assert all(line.startswith("TransferError") for line in said[1:3]), said
        assert all("IO_FAILED" in line for line in said[1:3]), said
        assert all(line.startswith("DeviceUnavailable") for line in said[3:5]), said
        assert said[5] == "closed"
        memory.array.fill(5)
        memory.synchronize()
        assert bool((memory.array == 5).all())
