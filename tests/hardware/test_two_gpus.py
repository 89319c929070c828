"""Memory of one GPU, copied by the engine of another of the same host, or used by its kernels."""

import hashlib
import os

import pytest
from support.processes.children import child

import dgkit
from dgkit import Device, memory
from dgkit.errors import Unsupported
from dgkit.memory import libcuda

pytestmark = pytest.mark.gpu

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
def two_gpus():
    if len(memory.gpus()) < 2:
        pytest.skip("there is one GPU")
    libcuda.require_cupy()


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


def test_memory_of_this_process_on_another_gpu_is_remote_memory_and_no_local_one():
    data = os.urandom(4096)
    with (
        dgkit.empty(4096, on="cuda:1") as there,
        Device("cuda", gpu=0) as device,
        device.register(there) as region,
        device.queue() as queue,
        device.register(bytearray(data)) as local,
        device.import_region(local.export()) as own,
    ):
        with device.import_region(region.export()) as remote:
            queue.write(local, remote).wait(10)
            assert bytes(there.array.get()) == data
        with pytest.raises(Unsupported, match="another GPU"):
            queue.write(region, own).wait()


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
