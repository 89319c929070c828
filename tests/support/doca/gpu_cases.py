"""GPU memory under DOCA's own objects, and in softdoca's samples, over softdoca.

tests/hardware/test_gpu_doca.py runs these tests on a real GPU, tests/cuda/test_doca_gpu.py over the
fake driver. No BlueField takes part: a dma-buf only says which memory is meant, and the GPU's copy
engine moves the bytes.
"""

import pytest
from support.doca.gpu_memory import (
    IDENTITY,
    MIB,
    SIZE,
    SIZES,
    TASK,
    digest,
    end,
    noise,
    pair,
    side,
)
from support.doca.samples import export_of_the_sample, samples_in
from support.processes import cli

WAYS = [(kind, way) for kind in ("vmm", "malloc") for way in ("dmabuf", "address", "memory")]


@pytest.mark.parametrize(("kind", "way"), WAYS)
def test_a_map_of_gpu_memory_is_read_and_written_by_another_process(kind, way):
    with pair(kind, SIZE, way) as (host, dpu):
        for size in SIZES:
            at = size % 5
            assert host(f"it.set({size})") == digest(noise(SIZE, size))
            assert dpu(f"it.get({at}, {size})") == digest(noise(SIZE, size)[at : at + size])
            assert dpu(f"it.put({size + 1}, {at}, {size})") == str(size)
            assert host(f"it.holds({size + 1}, {at}, {size}, {size})") == "True", size
        end(dpu.child)
        said = end(host.child)
    assert (f"{IDENTITY}: {SIZE} bytes" in said) == (way != "address")
    assert ("nvidia-peermem" in said) == (way == "address")


@pytest.mark.parametrize(("kind", "way"), WAYS)
def test_a_map_of_gpu_memory_is_read_and_written_by_its_own_process(kind, way):
    with side("Both", kind, SIZE, way) as both:
        for size in (1, 8, 63, 65537, TASK, 16 * MIB):
            assert both(f"it.host.set({size})") == digest(noise(SIZE, size))
            assert both(f"it.get(3, {size})") == digest(noise(SIZE, size)[3 : 3 + size])
            assert both(f"it.put({size + 1}, 3, {size})") == str(size)
            assert both(f"it.host.holds({size + 1}, 3, {size}, {size})") == "True", size
        end(both.child)


def test_one_task_gathers_from_many_places_of_gpu_memory():
    with pair("vmm", MIB, "dmabuf") as (host, dpu):
        host("it.set(3)")
        wanted = noise(MIB, 3)[: 64 * 2000].reshape(64, 2000)[:, :1000]
        assert dpu("it.gather(64, 1000)") == digest(wanted.tobytes())


def test_a_task_beyond_the_limit_fails_and_stops_its_context():
    with pair("vmm", SIZE, "dmabuf") as (_, dpu):
        said = dpu(f"it.too_large({TASK + 1})")
        assert f"the device copies at most {TASK} bytes" in said
        assert said.endswith("IDLE")


def test_a_map_of_gpu_memory_says_that_no_hardware_takes_part():
    with side("Host", "vmm", MIB, "dmabuf") as host:
        for text in ("repr(it.map)", "it.map._repr_html_()", "it.device.info._repr_html_()"):
            assert "software DOCA, no hardware" in host(text)


def test_a_read_only_export_is_read_and_not_written():
    with pair("vmm", MIB, "dmabuf", 16) as (host, dpu):
        host("it.set(1)")
        assert dpu("it.get(0, 4096)") == digest(noise(4096, 1))
        assert dpu("it.put(2, 0, 64)").startswith("IoFailed")
        assert host("it.holds(1, 0, 64, 1)") == "True"


def test_an_fd_that_is_no_dma_buf_is_refused():
    with side("Host", "vmm", MIB, "dmabuf") as host:
        host("setattr(it, 'pair', (it.gpu.address, 4096))")
        for fd, why in (("0", "fd 0 is not a dma-buf"), ("1000", "fd 1000 is not a dma-buf")):
            said = host(f"doca.Mmap(it.pair, it.device, dmabuf={fd})")
            assert said.startswith("InvalidValue")
            assert why in said


def test_a_dma_buf_with_an_address_that_is_no_gpu_memory_is_refused():
    with side("Host", "vmm", MIB, "dmabuf") as host:
        host("setattr(it, 'shared', it.gpu.memory.dmabuf())")
        host("setattr(it, 'heap', bytearray(1 << 20))")
        refused = "doca.Mmap(({}, 4096), it.device, dmabuf=it.shared.fd)"
        for where in ("id(it)", "0x1000", "it.gpu.address + (1 << 40)"):
            said = host(refused.format(where))
            assert said.startswith("NotSupported"), said
            assert "is not GPU memory of this process" in said


def test_a_range_that_leaves_the_dma_buf_or_the_allocation_is_refused():
    with side("Host", "malloc", 2 * MIB, "dmabuf") as host:
        host("setattr(it, 'shared', it.gpu.memory.dmabuf())")
        mmap = "doca.Mmap((it.gpu.address, {}), it.device, dmabuf=it.shared.fd, dmabuf_offset={})"
        for size, offset in ((2 * MIB + 1, 0), (2 * MIB, 1), (1, 2 * MIB), (1 << 62, 0)):
            said = host(mmap.format(size, offset))
            assert said.startswith("InvalidValue"), said
            assert "exceed the dma-buf of" in said
        # by the dma-buf but a different address, and by the address alone
        for more in ("", ", dmabuf=it.shared.fd"):
            said = host(f"doca.Mmap((it.gpu.address + {MIB}, {2 * MIB}), it.device{more})")
            assert said.startswith("InvalidValue" if more else "Driver"), said
            assert f"exceed their allocation, which ends {MIB} bytes after that address" in said


@pytest.mark.parametrize("kind", ["vmm", "malloc"])
def test_memory_that_was_freed_is_no_gpu_memory_any_more(kind):
    with side("Host", kind, 4 * MIB, "dmabuf") as host:
        for line in ("it.map.stop()", "it.gpu.free()"):
            assert host(line) == "None"
        said = host("it.map.start()")
        assert said.startswith("Driver"), said
        assert "no longer GPU memory" in said


def test_memory_that_was_freed_under_a_started_map_fails_the_copy():
    with side("Both", "malloc", 4 * MIB, "dmabuf") as both:
        assert both("it.put(1, 0, 100)") == "100"
        assert both("it.host.gpu.free()") == "None"
        assert both("it.put(2, 0, 100)").startswith("IoFailed")


def test_pages_of_the_host_that_several_maps_share_are_all_reached():
    with side("Both", "vmm", MIB, "dmabuf") as both:
        for at, size in ((0, 100), (100, 50), (4000, 200), (4200, 1)):
            assert both(f"it.through(9, {at}, {size})") == digest(noise(size, 9))


# ---- the samples ----


@pytest.fixture(scope="module")
def samples(tmp_path_factory):
    return samples_in(tmp_path_factory.mktemp("samples"))


def test_the_sample_that_exports_gpu_memory_meets_the_one_that_copies(samples, tmp_path):
    said = export_of_the_sample(samples, tmp_path, size=5_000_000)
    assert "by a dma-buf" in said
    assert IDENTITY in said


def test_the_demo_over_gpu_memory_says_that_the_dpu_is_software(tmp_path):
    done = cli.run(tmp_path, "demo", "--provider", "softdoca", "--on", "gpu")
    assert done.returncode == 0, done.stderr
    assert "equal on both sides" in done.stdout
    assert "software DPU, softdoca" in done.stdout
    assert "hardware" not in done.stdout + done.stderr
