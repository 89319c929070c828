"""Kernels of a real GPU post to a GPU queue; the proxy runs their operations over soft."""

import hashlib
import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from support.dma import pattern
from support.gpu.queue_kernels import KERNELS
from support.processes import children, cli

import dgkit
from dgkit import Status
from dgkit.gpu_initiated import raw_module

pytestmark = pytest.mark.gpu
SIZE = 1 << 16


@pytest.fixture(scope="module")
def kernels() -> Any:
    return raw_module(KERNELS)


@dataclass
class Rig:
    queue: dgkit.GpuQueue
    device: dgkit.Device
    local_memory: Any
    target_memory: Any
    local: dgkit.Region
    remote: dgkit.RemoteRegion
    kernels: Any

    def launch(self, name: str, *args: Any, threads: int = 1, grid: int = 1) -> Any:
        """Launch a kernel on its common arguments; return the array of its statuses."""
        import cupy

        status = cupy.full(max(16, threads * grid), -7, np.int32)
        common = (self.queue, np.uint32(self.remote.id), np.uint32(self.local.id), status)
        self.kernels[name](grid, threads, (*common, *args))
        return status

    def run(self, name: str, *args: Any, **shape: int) -> np.ndarray[Any, Any]:
        return self.launch(name, *args, **shape).get()


@contextmanager
def rig(kernels: Any, *, size: int = SIZE, **queue: Any) -> Iterator[Rig]:
    with (
        dgkit.Device("soft") as device,
        dgkit.empty(size, on="pinned") as local_memory,
        dgkit.empty(size) as target_memory,
    ):
        local_memory.buffer[:SIZE] = pattern(SIZE)
        local, target = device.register(local_memory), device.register(target_memory)
        remote = device.import_region(target.export())
        with device.gpu_queue(**{"depth": 256, **queue}) as q:
            yield Rig(q, device, local_memory, target_memory, local, remote, kernels)


U32, U64, I32 = np.uint32, np.uint64, np.int32


def test_a_kernel_puts_bytes_into_another_process(kernels: Any) -> None:
    import cupy

    with (
        children.child(children.EXPORTER, SIZE, "memfd", "rw") as child,
        dgkit.Device("soft") as device,
        dgkit.empty(SIZE, on="pinned") as memory,
    ):
        token = bytes.fromhex(child.line())
        memory.buffer[:] = pattern(SIZE)
        local, remote = device.register(memory), device.import_region(token)
        status = cupy.full(1, -7, np.int32)
        with device.gpu_queue() as q:
            own = (q, U32(remote.id), U32(local.id), status)
            kernels["put"](1, 1, (*own, U64(0), U64(0), U64(SIZE)))
            assert status.get()[0] == Status.OK
        assert child.ask("digest") == hashlib.sha256(pattern(SIZE)).hexdigest()


def test_many_threads_on_one_queue_each_move_their_own_bytes(kernels: Any) -> None:
    with rig(kernels) as r:
        assert not r.run("put_each", U32(8), I32(20), threads=256, grid=16)[:4096].any()
        assert bytes(r.target_memory.buffer[: 4096 * 8]) == pattern(SIZE)[: 4096 * 8]
        assert r.queue.stats().completed == 4096 * 20


def test_what_a_kernel_wrote_before_it_posted_is_what_moves(kernels: Any) -> None:
    with rig(kernels) as r:
        for _ in range(20):
            r.target_memory.buffer[:2048] = bytes(2048)
            assert not r.run("put_own", r.local_memory, threads=256)[:256].any()
            words = np.frombuffer(r.target_memory.buffer, np.uint64)[:256]
            assert list(words) == [1000 + i for i in range(256)]
            r.local_memory.gpu_array[:2048] = 0


def test_a_get_is_visible_to_the_kernel_that_waited(kernels: Any) -> None:
    import cupy

    with rig(kernels) as r:
        for salt in range(20):
            r.target_memory.buffer[:] = pattern(SIZE, salt)
            seen = cupy.zeros(256 * 16, np.uint8)
            assert not r.run("get", r.local_memory, seen, threads=256)[:256].any()
            assert seen.get().tobytes() == pattern(SIZE, salt)[: 256 * 16]


def test_put_signals_of_all_threads_add_up(kernels: Any) -> None:
    with rig(kernels) as r:
        assert not r.run("put_signal", U64(3), threads=128, grid=8)[:1024].any()
        assert int.from_bytes(r.target_memory.buffer[:8], "little") == 3 * 1024


def test_a_warp_a_block_and_inline_records(kernels: Any) -> None:
    with rig(kernels) as r:
        assert not r.run("warp_and_block", r.local_memory, threads=96)[:96].any()
        words = np.frombuffer(r.target_memory.buffer, np.uint64)
        assert list(words[:96]) == list(range(96))
        assert not r.run("put_inline", threads=64)[:64].any()
        wanted = bytes((t * 50 + i) & 255 for t in range(64) for i in range(40))
        assert bytes(r.target_memory.buffer[:2560]) == wanted


def test_in_weak_mode_the_kernel_names_the_places(kernels: Any) -> None:
    with rig(kernels, weak=True, timeout=0.5) as r:
        status = r.launch("weak_rounds", I32(50), threads=256)
        assert set(status.get()[:256]) <= {-7}  # the kernel only adds bits
        assert r.queue.stats().completed == 50 * 256
        holes = r.run("weak", U64(5), threads=8)
        assert list(holes[:8]) == [0, 0, 0, 0, 0, -7, 105, 105]


def test_messages_match_receives_in_order(kernels: Any) -> None:
    import cupy

    with rig(kernels) as r, r.device.gpu_queue() as peer:
        r.queue.connect(peer)
        got = cupy.zeros(80, np.uint32)
        r.run("messages", peer, I32(40), got, I32(1), grid=2)
        assert list(got.get()) == [v for i in range(40) for v in (8, i)]


def test_a_wrong_operation_ends_with_its_status_and_stops_no_other(kernels: Any) -> None:
    with rig(kernels) as r:
        status = [Status(int(s)) for s in r.run("errors", U32(12345))[:9]]
        assert status[1:3] == [Status.OUT_OF_BOUNDS] * 2
        assert status[3:8] == [
            Status.REMOTE_ACCESS_ERROR, Status.LOCAL_ERROR, Status.BAD_RECORD, Status.OK,
            Status.BAD_RECORD,
        ]  # fmt: skip


def test_closing_the_queue_ends_the_waits_of_a_running_kernel(kernels: Any) -> None:
    with rig(kernels, timeout=60) as r, r.device.gpu_queue() as peer:
        r.queue.connect(peer)
        status = r.launch("receive")
        end = time.monotonic() + 20
        while r.queue.stats().taken == 0:
            assert time.monotonic() < end
        begin = time.monotonic()
        r.queue.close()
        assert time.monotonic() - begin < 5
        assert status.get()[0] in (Status.FLUSHED, Status.CLOSED)


def test_a_kernel_that_fills_the_gpu_waits_for_its_own_puts(kernels: Any) -> None:
    import cupy

    sms = cupy.cuda.Device().attributes["MultiProcessorCount"]
    threads = 2048 * sms  # as many as are resident at a time
    with rig(kernels, size=8 * threads, depth=16384) as r:
        assert not r.run("put_each", U32(8), I32(1), threads=1024, grid=2 * sms).any()
        assert bytes(r.target_memory.buffer) == bytes(r.local_memory.buffer)


def test_every_counter_may_wrap(kernels: Any) -> None:
    for first in (256 - 3, 256 * 256 - 3, (1 << 32) - 3, (1 << 56) - 3):
        with rig(kernels, first=first) as r:
            assert not r.run("put_each", U32(8), I32(4), threads=256, grid=4)[:1024].any()
            assert r.queue.stats().failed == 0


def test_two_clocks_of_a_put(kernels: Any) -> None:
    with rig(kernels, trace=True) as r:
        r.run("put_each", U32(8), I32(10), threads=1)
        for s in r.queue.trace():
            assert s.gpu_post_ns <= s.gpu_complete_ns
            assert s.seen_ns <= s.posted_ns <= s.completed_ns


def test_dgkit_bench_measures_kernels_of_the_gpu(tmp_path: Any) -> None:
    done = cli.run(tmp_path, "bench", "gpu-initiated", "--seconds", "0.05", "--json", timeout=300)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert not found["emulated"]
    assert found["why_emulated"] == ""
    rows = [*found["latency"], *found["rates"]]
    assert {(row["owner"], row["proxy"]) for row in rows} == {
        (owner, proxy) for owner in ("idle", "busy") for proxy in ("this process", "DPU process")
    }
    for row in rows:
        on_gpu = row["memory"].split(",")[0] in ("pinned to GPU", "GPU to GPU")
        assert row["provider"] == ("cuda" if on_gpu else "soft")
        assert "emulated" not in row["gpu"]
    assert {row["memory"] for row in found["rates"]} == {
        "host to host",
        *(
            f"{to}{where}"
            for to in ("pinned to GPU", "GPU to GPU")
            for where in ("", ", scattered")
        ),
    }
    assert found["not_measured"] == []
    assert all(row["percentiles"]["p50_ns"] > 500 for row in found["latency"])  # over PCIe
