"""Bad luck around a GPU: whatever dies or closes, there is a typed error and nothing leaks."""

import time

import numpy as np
import pytest
from support.dma import keep
from support.gpu.dpu_work import Echo
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
@pytest.mark.parametrize("size", [8, 50_000])
def test_what_ends_as_ok_after_its_host_was_killed_moved_the_bytes(device, fake_cuda, size, kind):
    with child(HOST, MIB, kind, "rw") as host:
        remote = device.import_region(bytes.fromhex(host.line()), timeout=10)
        fake_cuda.order("copy_us=20000")
        echo = Echo(device, remote, size, 20)
        host.kill()
        killed = time.monotonic_ns()
        assert echo.statuses() <= {Status.OK, Status.PEER_LOST}
        assert echo.ended_after(killed) > 0
        assert echo.right()
        fake_cuda.order("")
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


def test_two_dpus_that_write_the_same_array_never_mix_within_a_word(device, gpu):
    region = device.register(gpu, size=65536)
    write = """
def fill(value, turns):
    memory.array.fill(value)
    batch = np.zeros(1000, dgkit.WR_DTYPE)
    batch["local"], batch["remote"], batch["op"], batch["size"] = local.id, remote.id, 1, 8
    out = np.zeros(1000, dgkit.WC_DTYPE)
    rng = np.random.default_rng(value)
    for _ in range(turns):
        at, size = int(rng.integers(0, 8000)) * 8, int(rng.choice([8, 16, 24, 104, 1024]))
        queue.write(local, remote, size=size, remote_offset=at).wait(20)
        batch["remote_offset"] = rng.integers(0, 8192, 1000) * 8
        queue.run(batch, out, timeout=20)
    return int(out["status"].max())
"""
    program = DPU.replace("kept = []", f"kept = []{write}")
    token = region.export().hex()
    with child(program, token) as one, child(program, token) as two:
        assert (one.line(), two.line()) == ("gpu", "gpu")
        one.say("fill(1, 500)")
        two.say("fill(2, 500)")
        words = seen_here(gpu)[:65536].view("u8")
        first, other, seen = 0x0101010101010101, 0x0202020202020202, set()

        def both():
            seen.update(np.unique(words.copy()).tolist())
            return {first, other} <= seen

        until(both, "both write", timeout=20)
        for _ in range(200):
            both()
        assert (one.line(60), two.line(60)) == ("0", "0")
        both()
        assert seen <= {0, first, other}
    region.close()
