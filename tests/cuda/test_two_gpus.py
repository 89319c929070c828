# SPDX-License-Identifier: Apache-2.0
"""Memory of one GPU, copied by the engine of another of the same host, or used by its kernels."""

import hashlib
import os

import pytest
from support.processes.children import child, run

import dgkit
from dgkit import Device, memory
from dgkit.errors import Unsupported
from dgkit.memory import libcuda

MIB = 1 << 20

# Owns memory on GPU argv[1]; each line of Python that it reads it evaluates and prints.
OWNER = """
import sys, cupy, dgkit
cupy.cuda.Device(int(sys.argv[1])).use()
memory = dgkit.empty(1 << 20, on=f"cuda:{sys.argv[1]}")
array = memory.array
device = dgkit.Device()
region = device.register(memory)
print(region.export().hex(), flush=True)
for line in sys.stdin:
    print(eval(line), flush=True)
region.close()
device.close()
"""

ADD = """
extern "C" __global__ void add(unsigned int *words, unsigned int n)
{ words[blockIdx.x * blockDim.x + threadIdx.x] += n; }
"""


@pytest.fixture(autouse=True)
def two_gpus(knobs):
    if not knobs and len(memory.gpus()) < 2:
        pytest.skip("there is one GPU")


@pytest.mark.gpu
@pytest.mark.parametrize(("owner", "engine"), [(0, 1), (1, 0)])
def test_the_engine_of_another_gpu_copies_where_there_is_peer_access(owner, engine):
    data = os.urandom(MIB)
    with child(OWNER, owner) as other, Device("cuda", gpu=engine) as device:
        remote = device.import_region(bytes.fromhex(other.line(60)), timeout=10)
        with device.queue() as queue, device.register(bytearray(data)) as local:
            for size in (8, 24, 4096, MIB):
                assert queue.write(local, remote, size=size).wait(10).size == size
            there = other.ask("__import__('hashlib').sha256(array.get()).hexdigest()")
            assert there == hashlib.sha256(data).hexdigest()
            local.memory[:] = bytes(MIB)
            queue.read(local, remote).wait(10)
            assert local.memory == data
        remote.close()


@pytest.mark.gpu
@pytest.mark.parametrize(("owner", "current"), [(0, 1), (1, 0)])
def test_a_kernel_of_a_gpu_with_peer_access_uses_memory_of_the_other(owner, current):
    cupy = libcuda.require_cupy()
    add = cupy.RawKernel(ADD, "add")
    with dgkit.empty(4096, "u4", on=f"cuda:{owner}") as there:
        with cupy.cuda.Device(current):
            if not cupy.cuda.runtime.deviceCanAccessPeer(current, owner):
                with pytest.raises(Unsupported, match=rf"cuda:{current} is current"):
                    _ = there.array
                pytest.skip("the GPUs have no peer access to each other")
            array = there.array
            for _ in range(3):
                add((16,), (256,), (array, cupy.uint32(5)))
            cupy.cuda.Device().synchronize()
        with cupy.cuda.Device(owner):
            array[:] = array + 1
            assert array.get().tolist() == [16] * 4096
        del array
    for gpu in (owner, current):  # neither context is lost
        with cupy.cuda.Device(gpu):
            assert int(cupy.arange(10).sum()) == 45


# Memory of this process on GPU argv[1], used with a device of GPU argv[2].
PROGRAM = """
import sys, cupy, numpy as np, dgkit
from dgkit import WC_DTYPE, WR_DTYPE
cupy.cuda.Device(int(sys.argv[1])).use()
memory = dgkit.empty(4096, on="gpu")
host = dgkit.empty(4096)
with dgkit.Device("cuda", gpu=int(sys.argv[2])) as device, device.queue() as queue:
    with device.register(memory) as region, device.register(host) as local:
        token = region.export()
        def remote():
            with device.import_region(token) as made:
                batch = np.zeros(20, WR_DTYPE)
                batch["local"], batch["remote"] = local.id, made.id
                batch["size"], batch["op"], batch["remote_offset"] = 8, 1, np.arange(20) * 8
                host.array[:] = 1
                out = np.zeros(20, WC_DTYPE)
                queue.run(batch, out, timeout=5)
                return set(out["status"].tolist()), bool(memory.array[:160].get().all())
        def as_local():
            with device.register(host) as lent, device.import_region(lent.export()) as made:
                return int(queue.read(region, made, size=64).wait(5).status)
        for use in (remote, as_local):
            try:
                print(use())
            except Exception as error:
                print(type(error).__name__, error)
        memory.array.fill(3)  # the context of each GPU lives
        print(int(memory.array.get().sum()), local.size)
host.close()
memory.close()
"""


def used(memory: int, device: int) -> list[str]:
    return run(PROGRAM, memory, device, DGKIT_FAKE_CUDA="gpus=2").splitlines()


@pytest.mark.any_gpu
@pytest.mark.parametrize("gpu", [0, 1])
def test_a_device_copies_memory_of_its_gpu(gpu):
    assert used(gpu, gpu) == ["({0}, True)", "0", "12288 4096"]


@pytest.mark.any_gpu
@pytest.mark.parametrize("gpu", [0, 1])
def test_memory_of_another_gpu_is_remote_memory_and_no_local_one(gpu):
    imported, copied, after = used(1 - gpu, gpu)
    assert imported == "({0}, True)"
    assert copied.startswith("Unsupported")
    assert f"another GPU than this device's (GPU {gpu}" in copied
    assert "Device('cuda', gpu=" in copied
    assert after == "12288 4096"
