"""GPU memory through DOCA, over softdoca and the fake driver: tests/support/doca/gpu_*cases.py."""

import pytest

pytest.register_assert_rewrite(
    "support.doca.gpu_cases",
    "support.doca.gpu_provider_cases",
    "support.doca.gpu_memory",
    "support.doca.samples",
)

from support.doca.gpu_cases import *  # noqa: E402, F403
from support.doca.gpu_provider_cases import *  # noqa: E402, F403
from support.doca.samples import export_of_the_sample  # noqa: E402
from support.processes.children import run  # noqa: E402


def test_the_sample_goes_by_the_address_where_doca_takes_no_dma_buf(samples, tmp_path):
    said = export_of_the_sample(samples, tmp_path, 4096, SOFTDOCA_LOG="info")
    assert "is not a dma-buf" in said  # the fake driver's is a memfd, and here it looks like one
    assert "as with nvidia-peermem" in said
    assert "by its address: nvidia-peermem" in said


def test_the_sample_goes_by_the_address_where_cuda_gives_no_dma_buf(samples, tmp_path):
    knobs = {"DGKIT_FAKE_CUDA": "attr124=0", "SOFTDOCA_LOG": "info"}
    said = export_of_the_sample(samples, tmp_path, 4096, **knobs)
    assert "cuMemGetHandleForAddressRange failed" in said
    assert "as with nvidia-peermem" in said


# Memory of the second GPU, which is softdoca's from then on; the DPU reaches it as a peer.
SECOND = """
import sys, cupy, dgkit
from support.gpu.dpu_work import second
with dgkit.Device("softdoca") as device:
    with dgkit.empty(4096, on="cuda:1") as there, device.register(there) as region:
        far, here = device.import_region(region.export()), device.register(bytearray(b"x" * 4096))
        with device.queue() as queue:
            print(queue.write(here, far).wait(20).size)
        with cupy.cuda.Device(1):
            print(bytes(there.array[-3:].get()))
        far.close()
        here.close()
        with second(region, "softdoca") as dpu:
            print(dpu.ask("dpu.get(64, 0, 0)[1]"))
        with dgkit.empty(4096, on="cuda:0") as other:
            try:
                device.register(other)
            except dgkit.DgkitError as error:
                print(type(error).__name__, error)
"""


def test_memory_of_another_gpu_than_the_first_is_reached_and_of_two_is_refused():
    said = run(SECOND, DGKIT_FAKE_CUDA="gpus=2").splitlines()
    assert said[:3] == ["4096", "b'xxx'", "True"]
    assert "is on another GPU than the memory before it" in said[3]
