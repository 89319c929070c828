# SPDX-License-Identifier: Apache-2.0
"""Bad luck around a GPU: whatever dies or closes, there is a typed error and nothing leaks."""

import signal
import time

import numpy as np
import pytest
from support.dma import keep
from support.gpu.dpu_work import Echo, second
from support.gpu.remote_region import DPU, HOST, MIB, free, holdings, seen_here
from support.processes.children import child
from support.processes.waiting import until

import dgkit
from dgkit import Device, Status
from dgkit.errors import TransferError

# What a DPU does without an end, until it is refused: then it says how.
ENDLESS = """
def endless(size):
    print("go", flush=True)
    n = 0
    while True:
        try:
            queue.write(local, remote, size=size, remote_offset=n % 7).wait(20)
        except Exception as error:
            return type(error).__name__, error.completion.status.name, n > 0
        n += 1
"""


def statuses(transfers):
    """Of those that were posted, once each has ended."""
    ended = []
    for transfer in transfers:
        try:
            ended.append(transfer.wait(20).status)
        except TransferError as error:
            ended.append(error.completion.status)
    return ended


# The host


@pytest.mark.parametrize("size", [8, 5000, 100_000])
def test_once_close_returned_nobody_writes_any_more(device, gpu, size):
    region = device.register(gpu)
    program = DPU.replace("kept = []", f"kept = []{ENDLESS}\nmemory.array.fill(9)")
    with child(program, region.export().hex(), DGKIT_FAKE_CUDA="copy_us=100") as dpu:
        assert dpu.line() == "gpu"
        dpu.say(f"endless({size})")
        assert dpu.line() == "go"
        until(seen_here(gpu)[:size].any, "the DPU writes")
        region.close(timeout=1)
        gpu.array.fill(0)
        assert dpu.line() == "('TransferError', 'REMOTE_ACCESS_ERROR', True)"
        assert dpu.end() == (0, "")
        assert not seen_here(gpu).any()


def test_a_host_that_gives_its_array_up_keeps_it_as_long_as_its_region(fake_cuda):
    before = free()
    with Device("cuda") as device:
        keep(device)
        memory = dgkit.empty(4 * MIB, on="gpu")
        region = device.register(memory)
        with child(DPU, region.export().hex()) as dpu:
            assert dpu.line() == "gpu"
            memory.close()
            assert free() < before
            assert dpu.ask("queue.write(local, remote, size=4096).wait(5).size") == "4096"
            region.close()
            assert dpu.end() == (0, "")
    del memory, region
    assert free() == before


@pytest.mark.parametrize("kind", ["vmm", "ipc"])
@pytest.mark.parametrize(
    ("size", "count"), [(8, 20), (50_000, 20), pytest.param(32 * MIB, 32, marks=pytest.mark.gpu)]
)
def test_what_ends_as_ok_after_its_host_was_killed_moved_the_bytes(
    device, knobs, size, count, kind
):
    with child(HOST, max(MIB, size * count), kind, "rw") as host:
        remote = device.import_region(bytes.fromhex(host.line(60)), timeout=10)
        if knobs:
            knobs.order("copy_us=20000")
        echo = Echo(device, remote, size, count)
        killed = time.monotonic_ns()
        host.send(signal.SIGKILL)
        assert echo.statuses() <= {Status.OK, Status.PEER_LOST}
        assert echo.ended_after(killed) > 0
        assert echo.right()
        if knobs:
            knobs.order("")
        until(lambda: remote.lost, "the region says so")
        echo.close()
        remote.close()


def test_hosts_that_are_killed_leave_nothing_behind(device, fake_cuda):
    def used():
        with child(HOST, 2 * MIB, "vmm", "rw") as host, device.queue() as queue:
            with Device("cuda") as other:
                remote = keep(other).import_region(bytes.fromhex(host.line()), timeout=10)
                local = other.register(bytearray(4096))
                transfer = other.queue().write(local, remote, size=4096)
                host.kill()
                assert statuses([transfer])[0] in (Status.OK, Status.PEER_LOST)
            assert queue.pending == 0

    used()
    before = holdings()
    for _ in range(5):
        used()
    assert holdings() == before


# The DPU


@pytest.mark.parametrize("size", [8, 100_000])
def test_a_dpu_that_is_killed_while_it_copies_lets_the_host_go_on(device, gpu, size):
    region = device.register(gpu)
    with child(DPU, region.export().hex(), DGKIT_FAKE_CUDA="copy_us=20000") as dpu:
        assert dpu.line() == "gpu"
        post = f"bool([kept.append(queue.write(local, remote, size={size})) for _ in range(100)])"
        assert dpu.ask(post) == "True"
        dpu.kill()
        until(lambda: region.importers == 0, "the door has noticed")
        region.close(timeout=1)
    gpu.array.fill(1)
    assert seen_here(gpu)[:MIB].all()


@pytest.mark.any_gpu
def test_two_dpus_that_write_the_same_array_never_mix_within_a_word(knobs):
    with (
        dgkit.empty(65536, on="gpu") as memory,
        Device() as device,
        device.register(memory) as region,
        second(region) as one,
        second(region) as two,
    ):

        def values():
            # The sum is a kernel's, which reads whole words.
            return set(np.unique((memory.array.view("u8") + 0).get()).tolist())

        turns = "300" if knobs else "3000"
        one.say(f"dpu.scribble(1, {turns})")
        two.say(f"dpu.scribble(2, {turns})")
        first, other, seen = 0x0101010101010101, 0x0202020202020202, set()
        until(lambda: seen.update(values()) or {first, other} <= seen, "both write", timeout=30)
        for _ in range(100):
            seen.update(values())
        assert (one.line(60), two.line(60)) == (turns, turns)
        assert seen | values() <= {0, first, other}
