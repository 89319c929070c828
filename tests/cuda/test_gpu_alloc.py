"""Memory by GPUNetIO's types: on the GPU, mapped for the CPU where that works, or pinned."""

import pytest
from support.gpu.memory import free

import dgkit
from dgkit.gpu_initiated import alloc

pytestmark = pytest.mark.usefixtures("fake_cuda")


@pytest.fixture
def no_gdrcopy(monkeypatch, tmp_path):
    monkeypatch.setenv("GDRCOPY_PATH_L", str(tmp_path))
    monkeypatch.setattr("dgkit.memory.cpu_mapping._NAMES", ("libgdrapi-not-here.so",))


def test_memory_of_the_gpu_alone_has_no_view_for_the_cpu():
    before = free()
    with alloc(4096) as memory:
        assert (memory.where, memory.cpu, memory.why) == ("GPU memory", None, "")
        assert memory.memory.place == "cuda:0"
        assert free() < before
    assert free() == before


def test_memory_of_the_gpu_is_mapped_for_the_cpu(fake_cuda, no_gdrcopy):
    fake_cuda.order("dmabuf_mmap=1")
    with alloc(4096, "gpu_cpu") as memory:
        assert (memory.where, memory.why) == ("GPU memory, mapped for the CPU", "")
        memory.cpu[:2] = b"\x34\x12"
        assert memory.memory.array[:2].get().tobytes() == b"\x34\x12"


def test_where_nothing_maps_it_it_is_pinned_and_says_why(no_gdrcopy):
    before = free()
    with alloc(4096, "gpu_cpu") as memory:
        assert memory.where == "pinned host memory"
        assert "By GDRCopy" in memory.why
        assert "By GDRCopy" in repr(memory)
        assert memory.memory.place == "pinned"
        assert free() == before


def test_pinned_memory_can_be_moved_by_a_gpu_queue():
    with alloc(4096, "cpu_gpu") as memory, dgkit.Device("soft") as device:
        assert (memory.where, memory.why) == ("pinned host memory", "")
        assert memory.cpu.nbytes == 4096
        region = device.register(memory.memory)
        device.gpu_queue(regions=(region,)).close()
    with alloc(4096) as memory, dgkit.Device("soft") as device:
        region = device.register(memory.memory)
        with pytest.raises(dgkit.Unsupported, match="is GPU memory"):
            device.gpu_queue(regions=(region,))
