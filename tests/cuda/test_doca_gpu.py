# SPDX-License-Identifier: Apache-2.0
"""GPU memory under DOCA's own objects, and in softdoca's samples, over softdoca.

No BlueField takes part: a dma-buf only says which memory is meant, and the GPU's copy engine moves
the bytes.
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

pytestmark = pytest.mark.any_gpu
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


def test_a_map_of_gpu_memory_says_that_no_hardware_takes_part():
    with side("Host", "vmm", MIB, "dmabuf") as host:
        for text in ("repr(it.map)", "it.map._repr_html_()", "it.device.info._repr_html_()"):
            assert "software DOCA, no hardware" in host(text)


def test_a_dma_buf_with_an_address_that_is_no_gpu_memory_is_refused():
    with side("Host", "vmm", MIB, "dmabuf") as host:
        host("setattr(it, 'shared', it.gpu.memory.dmabuf())")
        host("setattr(it, 'heap', bytearray(1 << 20))")
        refused = "doca.Mmap(({}, 4096), it.device, dmabuf=it.shared.fd)"
        for where in ("id(it)", "0x1000", "it.gpu.address + (1 << 40)"):
            said = host(refused.format(where))
            assert said.startswith("NotSupported"), said
            assert "is not GPU memory of this process" in said


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


def test_the_sample_goes_by_the_address_where_doca_takes_no_dma_buf(samples, tmp_path, fake_cuda):
    said = export_of_the_sample(samples, tmp_path, 4096, SOFTDOCA_LOG="info")
    assert "is not a dma-buf" in said  # the fake driver's is a memfd, and here it looks like one
    assert "as with nvidia-peermem" in said
    assert "by its address: nvidia-peermem" in said


def test_the_sample_goes_by_the_address_where_cuda_gives_no_dma_buf(samples, tmp_path, fake_cuda):
    knobs = {"DGKIT_FAKE_CUDA": "attr124=0", "SOFTDOCA_LOG": "info"}
    said = export_of_the_sample(samples, tmp_path, 4096, **knobs)
    assert "cuMemGetHandleForAddressRange failed" in said
    assert "as with nvidia-peermem" in said
