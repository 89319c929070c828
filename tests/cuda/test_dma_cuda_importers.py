# SPDX-License-Identifier: Apache-2.0
"""Regions of GPU memory: who exports, imports and closes them; what a device says of itself."""

import re

import cupy
import numpy as np
import pytest
from support.dma import keep
from support.gpu.remote_region import DPU, HOST, MIB, noise, rig, seen_here
from support.processes.children import child

import dgkit
from dgkit import Device, FaultRule, Status
from dgkit.dma.measure import measure_bare
from dgkit.errors import (
    DeviceUnavailable,
    TransferError,
    Unsupported,
)

WHERE = ["one process", "two processes"]


@pytest.fixture
def gpu():
    with dgkit.empty(MIB, on="gpu") as memory:
        memory.array[:] = cupy.asarray(noise(MIB, 1))
        yield memory


def test_a_part_of_an_exporter_is_all_that_an_importer_reaches(device, gpu):
    part = device.register(gpu, offset=1000, size=500)
    with child(DPU, part.export().hex()) as dpu:
        assert dpu.line() == "gpu"
        assert dpu.ask("remote.size") == "500"
        assert "BoundsError" in dpu.ask("queue.read(local, remote, size=2, remote_offset=499)")
        before = seen_here(gpu).copy()
        before[1000:1500] = 200
        assert dpu.ask("memory.array.fill(200), queue.write(local, remote).wait(20).size") == (
            "(None, 500)"
        )
        assert np.array_equal(seen_here(gpu), before)
        assert part.importers == 1
        assert dpu.end() == (0, "")


def test_a_pools_array_crosses_with_its_block(fake_cuda):
    with child(HOST, 3000, "ipc", "rw") as host, Device("cuda") as device:
        remote = keep(device).import_region(bytes.fromhex(host.line()), timeout=10)
        assert host.line().startswith("-1 ")  # it has no fd
        assert (remote.method, remote.size) == ("gpu", 3000)
        local, queue = device.register(bytearray(noise(3000, 8).tobytes())), device.queue()
        queue.write(local, remote, size=2999, remote_offset=1).wait(20)
        assert bytes.fromhex(host.ask("array[1:].get().tobytes().hex()")) == local.memory[:2999]
        host.ask("array.fill(7)")
        queue.read(local, remote, size=3000).wait(20)
        assert local.memory == b"\7" * 3000
        assert fake_cuda.calls("cuIpcOpenMemHandle") == 1
        remote.close()
        assert fake_cuda.calls("cuIpcCloseMemHandle") == 1


def test_two_arrays_of_one_block_are_imported_side_by_side(fake_cuda):
    with child(HOST, 1000, "ipc", "rw") as host, Device("cuda") as device:
        keep(device)
        first = device.import_region(bytes.fromhex(host.line()), timeout=10)
        assert host.line().startswith("-1 ")
        more = "(two := device.register(dgkit.wrap(array[500:], share_block=True))).export().hex()"
        second = device.import_region(bytes.fromhex(host.ask(more)), timeout=10)
        local, queue = device.register(bytearray(b"x" * 500)), device.queue()
        queue.write(local, second).wait(20)
        first.close()
        queue.write(local, second, size=2).wait(20)
        assert host.ask("array.get().tobytes().count(b'x')") == "500"
        second.close()
        assert host.ask("two.close()") == "None"


def test_the_provider_soft_lends_gpu_memory_and_does_not_copy_it(gpu):
    with Device() as soft, soft.register(gpu) as region, soft.register(bytearray(64)) as target:
        soft = keep(soft)
        remote, queue = soft.import_region(target.export()), soft.queue()
        with pytest.raises(Unsupported, match=r"local region is GPU memory.*the provider cuda"):
            queue.write(region, remote, size=8)
        with pytest.raises(Unsupported, match="open a device with the provider cuda"):
            soft.import_region(region.export())
        with child(HOST, 4096, "vmm", "rw") as host:
            token = bytes.fromhex(host.line())
            with pytest.raises(Unsupported, match=r"the provider soft cannot copy.*provider cuda"):
                soft.import_region(token, timeout=10)
        remote.close()
        assert region.importers == 0


@pytest.mark.parametrize("where", WHERE)
def test_the_provider_fault_wraps_cuda(where, fake_cuda):
    rules = [FaultRule("error", status=Status.TIMED_OUT, min_size=64, max_size=64)]
    with rig(where) as r, Device("fault", over="cuda", rules=rules) as faulty:
        keep(faulty)
        local, queue = faulty.register(bytearray(b"q" * 4096)), faulty.queue(spin_us=0)
        remote = faulty.import_region(r.token, timeout=5)
        queue.write(local, remote, size=65).wait(20)
        assert (r.remote_bytes[:65] == ord("q")).all()
        with pytest.raises(TransferError, match="TIMED_OUT"):
            queue.write(local, remote, size=64).wait(20)
        remote.close()


# Closing


@pytest.mark.parametrize("posts", [1, 50])
def test_an_exporter_closes_although_its_importer_never_looks(device, gpu, posts, fake_cuda):
    region = device.register(gpu)
    with child(DPU, region.export().hex(), DGKIT_FAKE_CUDA="copy_us=200") as dpu:
        assert dpu.line() == "gpu"
        post = f"[kept.append(queue.write(local, remote, size=40000)) for _ in range({posts})]"
        assert dpu.ask(f"bool({post})") == "True"
        region.close(timeout=1)
        assert region.closed
        assert "REMOTE_ACCESS_ERROR" in dpu.ask("queue.read(local, remote, size=8).wait(5)")
        assert dpu.ask("{t.wait(20).status for t in kept}") == "{<Status.OK: 0>}"


# The device


def test_a_gpu_that_is_not_there_is_named():
    with pytest.raises(DeviceUnavailable, match="there is no GPU 7: this process sees 1"):
        Device("cuda", gpu=7)


def test_it_says_what_it_is_and_never_hardware(device):
    assert repr(device) == "<dgkit.Device cuda, software DPU, GPU copy engine, open>"
    shown = device._repr_html_()
    for words in ("software DPU, GPU copy engine", "GPU 0, dgkit fake GPU", "between posts"):
        assert words in shown
    assert "hardware" not in shown
    caps = device.caps
    assert (caps.provider, caps.engine) == ("cuda", "GPU 0, dgkit fake GPU")
    assert (caps.inline_max, caps.ordered) == (0, False)
    with pytest.raises(Unsupported, match="does not copy inline"):
        device.queue(path="inline")


def test_a_remote_region_says_that_it_is_mapped_on_the_gpu(fake_cuda):
    with rig("two processes") as r:
        assert re.fullmatch(
            rf"<dgkit.RemoteRegion id \d+, {MIB:,} bytes of process {r.host.pid}, rw, gpu>",
            repr(r.remote),
        )
        assert "mapped on the GPU" in r.remote._repr_html_()


@pytest.mark.parametrize("where", WHERE)
@pytest.mark.parametrize("window", [1, 16])
def test_the_floor_is_the_drivers_own_copy(where, window, fake_cuda):
    with rig(where) as r:
        r.local_bytes[:64] = 6
        for prepare in (r.queue.prepare_write, r.queue.prepare_read):
            with prepare(*r.pair, size=64) as prepared:
                samples = measure_bare(prepared, 700, window)
                assert len(samples) == 700
                assert sum(samples) > 0
        assert (r.remote_bytes[:64] == 6).all()
        with (
            r.queue.prepare_write(*r.pair, size=8, rows=2, local_stride=8, remote_stride=8) as rows,
            pytest.raises(Unsupported, match="an operation of one row"),
        ):
            measure_bare(rows, 10)


def test_the_provider_soft_has_no_such_floor():
    with Device() as soft, soft.register(bytearray(64)) as target, soft.queue() as queue:
        remote = soft.import_region(target.export())
        with (
            queue.prepare_write(target, remote, size=8) as prepared,
            pytest.raises(Unsupported),
        ):
            measure_bare(prepared, 10)
        remote.close()
