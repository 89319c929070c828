# SPDX-License-Identifier: Apache-2.0
"""Regions of GPU memory and of the host's: what is registered, and between which memory it goes."""

import mmap

import cupy
import numpy as np
import pytest
from support.gpu.remote_region import MIB, completions, noise, rig, seen_here
from support.processes.children import EXPORTER, child

import dgkit
from dgkit import Device, Status
from dgkit.errors import TransferError, Unsupported

WHERE = ["one process", "two processes"]


@pytest.fixture
def gpu():
    with dgkit.empty(MIB, on="gpu") as memory:
        memory.array[:] = cupy.asarray(noise(MIB, 1))
        yield memory


def both_ways(device, local, remote, here, there):
    """Sizes of each kind, written and read back, as views of both sides show them."""
    queue = device.queue(512)
    for size in (1, 8, 24, 100, 4096, 32767, 32768, 100_003):
        at, far = size % 13, size % 7
        here[:], before = noise(len(here), size), there.copy()
        before[far : far + size] = here[at : at + size]
        place = {"size": size, "local_offset": at, "remote_offset": far}
        queue.write(local, remote, **place).wait(20)
        assert np.array_equal(there, before)
        here[:] = 0
        queue.read(local, remote, **place).wait(20)
        assert np.array_equal(here[at : at + size], there[far : far + size])
        assert not here[at + size :].any()
    batch = np.zeros(300, dgkit.WR_DTYPE)
    batch["local"], batch["remote"], batch["op"] = local.id, remote.id, 1
    batch["size"], batch["local_offset"] = 24, np.arange(300) * 32
    batch["remote_offset"] = np.arange(300)[::-1] * 40
    here[:], before = noise(len(here), 9), there.copy()
    for i in range(300):
        before[(299 - i) * 40 : (299 - i) * 40 + 24] = here[i * 32 : i * 32 + 24]
    queue.post(batch)
    assert set(completions(queue, 300)["status"]) == {Status.OK}
    assert np.array_equal(there, before)
    queue.close()


def test_local_memory_of_a_gpu_and_remote_memory_of_this_process(device, gpu):
    memory = dgkit.empty(MIB)
    with Device() as lender, lender.register(memory) as region:
        local, remote = device.register(gpu), device.import_region(region.export())
        assert remote.method == "map"
        both_ways(device, local, remote, seen_here(gpu)[:MIB], memory.array)
        remote.close()


def test_local_memory_of_a_gpu_and_remote_memory_of_another_process(device, gpu):
    with child(EXPORTER, MIB, "memfd", "rw") as host:
        remote = device.import_region(bytes.fromhex(host.line()), timeout=10)
        assert remote.method == "map"
        queue, local = device.queue(), device.register(gpu)
        pattern = np.resize(np.arange(251, dtype="u1"), MIB)
        queue.read(local, remote).wait(20)
        assert np.array_equal(seen_here(gpu)[:MIB], pattern)
        seen_here(gpu)[:MIB] = pattern[::-1]
        for at in range(0, MIB, 65536):
            queue.write(local, remote, size=65536, local_offset=at, remote_offset=at).wait(20)
        seen_here(gpu)[:MIB] = 0
        queue.read(local, remote).wait(20)
        assert np.array_equal(seen_here(gpu)[:MIB], pattern[::-1])
        remote.close()


@pytest.mark.parametrize("no_vm", ["0", "1"])
def test_remote_memory_that_its_owner_copies_does_not_go_to_a_gpu(device, gpu, no_vm, monkeypatch):
    monkeypatch.setenv("DGKIT_NO_PROCESS_VM", no_vm)
    with child(EXPORTER, 4096, "bytearray", "rw") as host:
        remote = device.import_region(bytes.fromhex(host.line()), timeout=10)
        local, own, queue = device.register(gpu), device.register(bytearray(4096)), device.queue()
        with pytest.raises(Unsupported, match=r"the GPU cannot access.*dgkit.empty"):
            queue.read(local, remote, size=64)
        assert queue.read(own, remote, size=64).wait(20).status is Status.OK
        assert own.memory[:64] == bytes(range(64))
        remote.close()


@pytest.mark.parametrize("where", WHERE)
def test_from_gpu_to_gpu(where, gpu, fake_cuda):
    with rig(where) as r, r.device.register(gpu) as local:
        both_ways(r.device, local, r.remote, seen_here(gpu)[:MIB], r.remote_bytes[:MIB])


def test_memory_of_the_host_goes_by_the_same_queue(device):
    here, there = bytearray(5000), bytearray(5000)
    local, target = device.register(here), device.register(there)
    remote, queue = device.import_region(target.export()), device.queue()
    here[:] = noise(5000, 4).tobytes()
    done = queue.write(local, remote, size=4999, remote_offset=1).wait(20)
    assert (done.status, done.late_stamp) == (Status.OK, False)
    assert there[1:] == here[:4999]
    assert there[0] == 0


@pytest.mark.parametrize("where", WHERE)
def test_a_fence_of_the_host_s_memory_waits_for_the_gpu(where, fake_cuda):
    with rig(where) as r:
        fake_cuda.order("copy_us=3000")
        bounce = bytearray(MIB)
        with r.device.register(bounce) as target:
            self_remote = r.device.import_region(target.export())
            r.remote_bytes[:64], r.local_bytes[:64] = 5, 1
            r.queue.read(*r.pair, size=64)  # GPU to here, then, behind a fence, here to bounce
            last = r.queue.write(r.local, self_remote, size=64, fence=True)
            assert last.wait(20).status is Status.OK
            assert bounce[:64] == b"\5" * 64
            self_remote.close()


@pytest.mark.any_gpu
def test_two_devices_register_the_same_memory(device, gpu):
    memory = dgkit.empty(4096)
    with Device("cuda") as second:
        for use in (device, second, device):
            with use.register(memory) as local, use.register(gpu) as region, use.queue() as queue:
                memory.array[:] = 9
                remote = use.import_region(region.export())
                queue.write(local, remote).wait(20)
                assert (gpu.array[:4096].get() == 9).all()
                remote.close()
        one, two = device.register(memory), second.register(memory)
        one.close()  # the memory stays pinned for the other
        region = second.register(gpu)
        remote = second.import_region(region.export())
        memory.array[:] = 33
        batch = np.zeros(64, dgkit.WR_DTYPE)
        batch["local"], batch["remote"], batch["op"] = two.id, remote.id, 1
        batch["size"], batch["local_offset"] = 64, np.arange(64) * 64
        batch["remote_offset"] = batch["local_offset"]
        out = np.zeros(64, dgkit.WC_DTYPE)
        with second.queue() as queue:
            queue.run(batch, out, timeout=20)
        assert set(out["status"]) == {Status.OK}
        assert (gpu.array[:4096].get() == 33).all()
        for end in (remote, region, two):
            end.close()


def test_parts_of_a_memory_are_regions_of_their_own(device, gpu, fake_cuda):
    memory = dgkit.empty(8192)
    whole = device.register(memory)
    parts = [device.register(memory, offset=i * 1000, size=900) for i in range(8)]
    assert fake_cuda.calls("cuMemHostRegister") == 1
    there = [device.register(gpu, offset=i * 1001, size=900) for i in range(8)]
    remotes = [device.import_region(region.export()) for region in there]
    queue = device.queue()
    memory.array[:] = noise(8192, 5)
    seen_here(gpu)[:MIB] = 0
    for local, remote in zip(parts, remotes, strict=True):
        queue.write(local, remote).wait(20)
    for i in range(8):
        found = seen_here(gpu)[i * 1001 : (i + 1) * 1001]
        assert np.array_equal(found[:900], memory.array[i * 1000 : i * 1000 + 900])
        assert not found[900:].any()
    for region in (*remotes, *there, *parts):
        region.close()
    assert fake_cuda.calls("cuMemHostUnregister") == 0
    whole.close()
    assert fake_cuda.calls("cuMemHostUnregister") == 1


def test_a_region_that_overlaps_a_pinned_part_is_refused_with_the_way_out(device):
    memory = dgkit.empty(8192)
    part = device.register(memory, offset=4000, size=100)
    with pytest.raises(ValueError, match="register the whole memory first, then its parts"):
        device.register(memory)
    part.close()
    device.register(memory).close()


def test_pinned_memory_is_used_as_it_is(device, gpu, fake_cuda):
    with dgkit.empty(MIB, on="pinned") as memory:
        fake_cuda.order("")
        local, region = device.register(memory), device.register(gpu)
        assert local.place == "pinned"
        remote = device.import_region(region.export())
        both_ways(device, local, remote, memory.array, seen_here(gpu)[:MIB])
        local.close()
        assert fake_cuda.calls("cuMemHostUnregister") == 0  # it is not this region's to unpin
        remote.close()


def test_a_mapped_file_is_refused_with_the_way_out(device, tmp_path):
    path = tmp_path / "file"
    path.write_bytes(bytes(4096))
    with (
        path.open("r+b") as file,
        mmap.mmap(file.fileno(), 4096) as pages,
        pytest.raises(Unsupported, match=r"a mapped file.*memory from dgkit.empty\(\)"),
    ):
        device.register(pages)


def test_memory_that_cuda_cannot_pin_says_so(device, fake_cuda):
    fake_cuda.order("cuMemHostRegister=1")
    with pytest.raises(Unsupported, match="CUDA cannot pin this memory"):
        device.register(bytearray(64))
    fake_cuda.order("cuMemHostRegister=2")
    with pytest.raises(dgkit.OutOfMemory, match=r"64 bytes of host memory.*ulimit -l"):
        device.register(bytearray(64))
    fake_cuda.order("")
    device.register(bytearray(64)).close()


def test_an_array_on_a_gpu_that_is_registered_as_it_is_says_how_to(fake_cuda):
    with (
        Device("cuda") as device,
        pytest.raises(TypeError, match=r"is in GPU memory: .*dgkit\.wrap"),
    ):
        device.register(cupy.zeros(16))


def test_imported_gpu_memory_may_be_the_local_side(device, gpu):
    with dgkit.empty(MIB, on="gpu") as other, device.queue(64) as queue:
        first, second = device.register(gpu), device.register(other)
        source, target = (device.import_region(made.export()) for made in (first, second))
        queue.write(source, target, size=MIB).wait(20)
        assert np.array_equal(seen_here(other)[:MIB], seen_here(gpu)[:MIB])
        other.array.fill(3)
        queue.read(source, target, size=100, local_offset=7).wait(20)
        assert set(seen_here(gpu)[7:107]) == {3}
        first.close()
        with pytest.raises(TransferError) as caught:
            queue.write(source, target, size=64).wait(20)
        assert caught.value.completion.status == Status.REMOTE_ACCESS_ERROR
