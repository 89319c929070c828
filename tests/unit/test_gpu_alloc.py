"""Memory by GPUNetIO's types, where there is no GPU: the emulated one and the CPU share it."""

import numpy as np
import pytest

import dgkit
from dgkit.gpu_initiated import alloc, emulate

FILL = """
extern "C" __global__ void fill(unsigned char *bytes) { bytes[threadIdx.x] += 1; }
"""


@pytest.mark.parametrize("type_", ["gpu", "gpu_cpu", "cpu_gpu"])
def test_the_emulated_gpu_and_the_cpu_have_the_same_bytes(type_: str) -> None:
    with alloc(64, type_) as memory:
        assert (memory.type, memory.size, memory.where) == (type_, 64, "host memory")
        assert memory.why.startswith("emulated GPU: ")
        assert memory.cpu is not None
        memory.cpu[:64] = bytes(range(64))
        emulate(FILL)["fill"](1, 64, (memory.memory,))
        assert np.array_equal(np.frombuffer(memory.cpu, "u1"), np.arange(1, 65))
        assert "host memory; emulated GPU" in repr(memory)
    memory.close()
    with pytest.raises(dgkit.ClosedError):
        memory.memory.fd  # noqa: B018


def test_an_unknown_type_is_refused() -> None:
    with pytest.raises(ValueError, match="type is 'pinned'; it must be one of: gpu, gpu_cpu"):
        alloc(64, "pinned")
