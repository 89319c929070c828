"""Two GPUs in one machine: a device copies memory of its own GPU, and of no other by mistake."""

import pytest
from support.processes.children import run

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


@pytest.mark.parametrize("gpu", [0, 1])
def test_a_device_copies_memory_of_its_gpu(gpu, fake_cuda):
    assert used(gpu, gpu) == ["({0}, True)", "0", "12288 4096"]


@pytest.mark.parametrize("gpu", [0, 1])
def test_memory_of_another_gpu_is_remote_memory_and_no_local_one(gpu, fake_cuda):
    imported, copied, after = used(1 - gpu, gpu)
    assert imported == "({0}, True)"
    assert copied.startswith("Unsupported")
    assert f"another GPU than this device's (GPU {gpu}" in copied
    assert "Device('cuda', gpu=" in copied
    assert after == "12288 4096"
