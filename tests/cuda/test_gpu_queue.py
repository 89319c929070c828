# SPDX-License-Identifier: Apache-2.0
"""Kernels of a GPU or the emulated one post operations; the proxy runs them over soft."""

import hashlib
import json
import threading
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.dma import pattern
from support.gpu import queue_rig
from support.gpu.queue_rig import Kernels, Rig, bytes_in, wait_for
from support.processes import children, cli

import dgkit
from dgkit import Status

pytestmark = pytest.mark.any_gpu
SIZE = 4096


def rig(kernels: Kernels, *, size: int = 2 * SIZE, **more: Any) -> AbstractContextManager[Rig]:
    return queue_rig.rig(kernels, "soft", "pinned", "host", size, **more)


def test_a_kernel_puts_bytes_into_another_process(kernels: Kernels) -> None:
    with (
        children.child(children.EXPORTER, SIZE, "memfd", "rw") as child,
        dgkit.Device("soft") as device,
        dgkit.empty(SIZE, on="pinned") as memory,
        device.gpu_queue() as q,
    ):
        token = bytes.fromhex(child.line())
        memory.buffer[:] = pattern(SIZE)
        local, remote = device.register(memory), device.import_region(token)
        r = Rig(device, q, memory, None, local, None, remote, kernels)
        assert r.run("put", 0, 0, SIZE)[0] == Status.OK
        assert child.ask("digest") == hashlib.sha256(pattern(SIZE)).hexdigest()


def test_many_threads_on_one_queue_each_move_their_own_bytes(kernels: Kernels) -> None:
    for seed in range(3):
        with rig(kernels) as r:
            status = r.run("put_each", 8, 3, threads=128, grid=4, seed=seed)
            assert not status.any()
            assert bytes_in(r.target_memory, 4096) == pattern(8192)[:4096]
            stats = r.queue.stats()
            assert (stats.taken, stats.completed, stats.failed) == (1536, 1536, 0)


def test_a_get_is_visible_to_the_kernel_that_waited(kernels: Kernels) -> None:
    with rig(kernels) as r:
        for salt in range(5):
            r.target_memory.buffer[:] = pattern(2 * SIZE, salt)
            with dgkit.empty(SIZE, on="pinned") as seen:
                assert not r.run("get", r.local, seen, threads=256).any()
                assert bytes(seen.buffer) == pattern(2 * SIZE, salt)[:SIZE]


def test_what_a_kernel_wrote_before_it_posted_is_what_moves(kernels: Kernels) -> None:
    with rig(kernels) as r:
        assert not r.run("put_own", r.local, threads=64).any()
        words = np.frombuffer(r.target_memory.buffer, np.uint64)[:64]
        assert list(words) == [1000 + i for i in range(64)]


def test_an_inline_put_carries_its_bytes(kernels: Kernels) -> None:
    with rig(kernels) as r:
        assert not r.run("put_inline", threads=5).any()
        wanted = bytes((t * 50 + i) & 255 for t in range(5) for i in range(40))
        assert bytes_in(r.target_memory, 200) == wanted


@pytest.mark.parametrize(
    ("size", "status"),
    [(1, Status.OK), (40, Status.OK), (0, Status.OUT_OF_BOUNDS), (41, Status.OUT_OF_BOUNDS)],
)
def test_an_inline_put_has_1_to_40_bytes(kernels: Kernels, size: int, status: Status) -> None:
    with rig(kernels) as r:
        assert r.run("inline_of", size)[0] == status


def test_put_signals_of_all_threads_add_up(kernels: Kernels) -> None:
    with rig(kernels) as r:
        r.target_memory.buffer[:8] = (7).to_bytes(8, "little")
        assert not r.run("put_signal", 3, threads=64, grid=2).any()
        assert int.from_bytes(bytes_in(r.target_memory, 8), "little") == 7 + 3 * 128
        assert bytes_in(r.target_memory, 1024, 64) == pattern(8192)[:1024]


def test_a_signal_sets_and_then_adds_to_what_was_set(kernels: Kernels) -> None:
    with rig(kernels) as r:
        assert r.run("signal_set", 16, 1 << 63)[0] == Status.OK
        assert r.run("signal", 16, (1 << 63) + 5)[0] == Status.OK  # wraps
        assert int.from_bytes(bytes_in(r.target_memory, 8, 16), "little") == 5


def test_a_failed_put_leaves_its_signal_alone(kernels: Kernels) -> None:
    with rig(kernels, size=64) as r:
        assert r.run("put_signal", 3)[0] == Status.OUT_OF_BOUNDS
        assert bytes_in(r.target_memory, 64) == bytes(64)


def test_a_second_queue_that_adds_to_a_word_is_unsupported(kernels: Kernels) -> None:
    with rig(kernels) as r:
        assert r.run("signal", 0, 1)[0] == Status.OK
        first, r.queue = r.queue, r.device.gpu_queue()
        assert r.run("signal", 0, 1)[0] == Status.UNSUPPORTED
        assert r.run("signal", 8, 1)[0] == Status.OK
        first.close()
        assert r.run("signal", 0, 1)[0] == Status.OK
        r.queue.close()


def test_a_signal_into_memory_that_is_not_mapped_is_unsupported(kernels: Kernels) -> None:
    with children.child(children.EXPORTER, SIZE, "bytearray", "rw") as child, rig(kernels) as r:
        r.remote = r.device.import_region(bytes.fromhex(child.line()))
        assert r.remote.method != "map"
        assert r.run("signal", 0, 1)[0] == Status.UNSUPPORTED
        assert r.run("put", 0, 0, 8)[0] == Status.OK


def test_a_warp_and_a_block_post_together(kernels: Kernels) -> None:
    with rig(kernels) as r:
        assert not r.run("warp_and_block", r.local, threads=96).any()
        words = np.frombuffer(r.target_memory.buffer, np.uint64)
        assert list(words[:96]) == list(range(96))
        assert list(words[512 : 512 + 96]) == [1000 + i for i in range(96)]
        assert r.queue.stats().taken == 3 + 1


def test_in_weak_mode_the_kernel_names_the_places(kernels: Kernels) -> None:
    with rig(kernels, weak=True) as r:
        assert not r.run("weak", 999, threads=48).any()
        assert not r.run("weak", 999, threads=48).any()  # queue_info goes on where it ended
        assert not r.run("weak_rounds", 20, threads=64, initial=0).any()  # and past the depth
        assert r.queue.stats().completed == 96 + 20 * 64


SEEDS = range(6)  # lanes that diverge, that mix, and that go in step


@pytest.mark.usefixtures("fake_cuda")
@pytest.mark.parametrize("seed", SEEDS)
def test_in_weak_mode_no_wait_depends_on_another_lanes_wait(kernels: Kernels, seed: int) -> None:
    with rig(kernels, weak=True, timeout=2) as r:
        assert not r.run("weak_lanes", threads=2, seed=seed).any()
        assert r.queue.stats().completed == 3


@pytest.mark.usefixtures("fake_cuda")
@pytest.mark.parametrize("seed", SEEDS)
def test_a_lane_sends_after_its_wait_what_another_lane_waits_for(
    kernels: Kernels, seed: int
) -> None:
    with rig(kernels, timeout=2) as r, r.device.gpu_queue(64, timeout=2) as peer:
        r.queue.connect(peer)
        assert not r.run("lanes", peer, threads=2, seed=seed).any()


@pytest.mark.usefixtures("fake_cuda")
@pytest.mark.parametrize("seed", SEEDS)
def test_in_weak_mode_as_many_threads_as_places_go_round(kernels: Kernels, seed: int) -> None:
    with rig(kernels, weak=True, timeout=2) as r:
        assert not r.run("weak_rounds", 5, threads=64, seed=seed, initial=0).any()
        assert r.queue.stats().completed == 5 * 64


def test_a_hole_ends_the_waits_and_is_named(kernels: Kernels) -> None:
    with rig(kernels, weak=True, timeout=0.3) as r:
        assert list(r.run("weak", 5, threads=8)) == [0, 0, 0, 0, 0, -7, 105, 105]
        assert r.queue.stats().hole == 5


def test_the_mode_of_a_queue_is_fixed(kernels: Kernels) -> None:
    for weak in (False, True):
        with rig(kernels, weak=weak) as r:
            wanted = [Status.OK, Status.BAD_RECORD]
            assert list(r.run("wrong_mode")[:2]) == (wanted[::-1] if weak else wanted)


def test_quiet_waits_for_everything_before_it(kernels: Kernels) -> None:
    with rig(kernels) as r:
        assert not r.run("quiet", threads=16).any()
        assert r.queue.stats().completed == 160


def test_held_operations_start_with_the_commit(kernels: Kernels) -> None:
    with rig(kernels) as r:
        assert list(r.run("held")[:2]) == [-1, Status.OK]
        assert bytes_in(r.target_memory, 16) == pattern(8192)[:16]


def test_a_wrong_operation_ends_with_its_status_and_stops_no_other(kernels: Kernels) -> None:
    with rig(kernels, size=SIZE) as r:
        assert [Status(s) for s in r.run("errors", 12345)[:9]] == [
            Status.OUT_OF_BOUNDS, Status.OUT_OF_BOUNDS, Status.OUT_OF_BOUNDS,
            Status.REMOTE_ACCESS_ERROR, Status.LOCAL_ERROR, Status.BAD_RECORD, Status.OK,
            Status.BAD_RECORD, Status.UNSUPPORTED,
        ]  # fmt: skip
        stats = r.queue.stats()
        assert (stats.first_error, stats.first_failed) == (Status.OUT_OF_BOUNDS, 0)


def test_access_and_revocation_are_checked_for_each_record(kernels: Kernels) -> None:
    with rig(kernels, access="r") as r:
        assert r.run("put", 0, 0, 8)[0] == Status.ACCESS_DENIED
        r.target.close()
        assert r.run("put", 0, 0, 8)[0] in (Status.REMOTE_ACCESS_ERROR, Status.ACCESS_DENIED)
    with rig(kernels) as r:
        r.target.close()
        assert r.run("put", 0, 0, 8)[0] == Status.REMOTE_ACCESS_ERROR
        r.local.close()
        assert r.run("put", 0, 0, 8)[0] == Status.LOCAL_ERROR


def test_an_overtaken_ticket_is_ok_or_the_first_error(kernels: Kernels) -> None:
    with rig(kernels) as r:
        assert list(r.run("overtaken", -1)[:4]) == [0, 0, 0, 0]
    with rig(kernels) as r:
        bad = Status.OUT_OF_BOUNDS
        assert list(r.run("overtaken", 80)[:4]) == [0, 0, bad, 0]


def test_a_put_waits_for_a_counter_of_another_queue(kernels: Kernels) -> None:
    with rig(kernels) as r, r.device.gpu_queue() as other:
        assert not r.run("counter", other, 20, 0, threads=2, initial=0).any()
        assert other.stats().completed == 20


def test_a_ring_that_waits_holds_up_no_other(kernels: Kernels) -> None:
    with rig(kernels, timeout=0.5) as r, r.device.gpu_queue() as other:
        waited = r.start("counter", other, 1000, 1)
        first, r.queue = r.queue, other
        assert r.run("put", 0, 0, 8)[0] == Status.OK
        assert waited()[0] == Status.TIMED_OUT
        assert first.stats().waiting


@pytest.mark.parametrize("late", [0, 1])
def test_messages_match_receives_in_order(kernels: Kernels, late: int) -> None:
    with (
        rig(kernels) as r,
        r.device.gpu_queue() as peer,
        dgkit.empty(2 * 40, "u4", on="pinned") as got,
    ):
        r.queue.connect(peer)
        assert not r.run("messages", peer, 40, got, late, grid=2, initial=0).any()
        assert list(got.array) == [v for i in range(40) for v in (8, i)]
        for i in range(40):
            assert bytes_in(r.local_memory, 8, 2048 + 16 * i) == pattern(8192)[8 * i : 8 * i + 8]


def test_a_short_receive_moves_nothing(kernels: Kernels) -> None:
    with rig(kernels) as r, r.device.gpu_queue() as peer:
        r.queue.connect(peer)
        before = bytes_in(r.local_memory, 64, 2048)
        wrong = Status.OUT_OF_BOUNDS
        assert list(r.run("message", peer, 64, 63)[:4]) == [wrong, wrong, 0, 0]
        assert bytes_in(r.local_memory, 64, 2048) == before
        assert list(r.run("message", peer, 64, 64)[:4]) == [0, 0, 64, 7]


def test_a_put_with_an_immediate_value_completes_a_receive(kernels: Kernels) -> None:
    with rig(kernels) as r, r.device.gpu_queue() as peer:
        r.queue.connect(peer)
        status = r.run("put_immediate", peer)
        assert list(status[:3]) == [0, 0, 0]
        assert int(status[3]) & 0xFFFFFFFF == 0xFEEDF00D
        assert bytes_in(r.target_memory, 64) == pattern(8192)[:64]


def test_the_peers_end_ends_a_receive(kernels: Kernels) -> None:
    with rig(kernels) as r, r.device.gpu_queue() as peer:
        r.queue.connect(peer)
        received = r.start("receive")
        wait_for(lambda: r.queue.stats().taken == 1)
        peer.close()
        assert received()[0] == Status.PEER_LOST
        assert r.run("receive")[0] == Status.PEER_LOST


def test_closing_the_queue_ends_the_waits_of_a_running_kernel(kernels: Kernels) -> None:
    with rig(kernels, timeout=60) as r, r.device.gpu_queue() as peer:
        r.queue.connect(peer)
        received = r.start("receive")
        wait_for(lambda: r.queue.stats().taken == 1)
        r.queue.close()
        assert received()[0] in (Status.FLUSHED, Status.CLOSED)


def test_a_full_ring_refuses_by_the_limit(kernels: Kernels) -> None:
    with rig(kernels, timeout=0.3) as r, r.device.gpu_queue() as peer:
        r.queue.connect(peer)
        assert list(r.run("flood", 100)[:2]) == [1, Status.QUEUE_FULL]
        assert r.queue.stats().taken == 64


@pytest.mark.usefixtures("fake_cuda")
def test_a_killed_kernel_leaves_the_queue_usable(kernels: Kernels) -> None:
    with rig(kernels, timeout=60) as r, r.device.gpu_queue() as peer:
        r.queue.connect(peer)
        args = (r.queue, r.remote.id, r.local.id, np.zeros(16, np.int32))
        launch = kernels.module["receive"].start(1, 1, args)
        wait_for(lambda: r.queue.stats().taken == 1)
        launch.kill()
        with pytest.raises(dgkit.KernelError, match="emulated GPU: receive failed"):
            launch.wait()
        assert r.run("put", 0, 0, 8)[0] == Status.OK


# Just before each counter wraps: the place, the epoch's byte, and the ticket of 56 bits.
WRAPS = [64 - 3, 64 * 256 - 3, (1 << 32) - 3, (1 << 56) - 3, (1 << 56) - 64 * 2]


@pytest.mark.parametrize("first", WRAPS)
@pytest.mark.parametrize("weak", [False, True])
def test_every_counter_may_wrap(kernels: Kernels, first: int, weak: bool) -> None:
    with rig(kernels, first=first, weak=weak) as r:
        if weak:
            assert not r.run("weak_rounds", 8, threads=64, initial=0).any()
        else:
            assert not r.run("put_each", 8, 4, threads=64, grid=2).any()
        assert r.queue.stats().failed == 0
        assert bytes_in(r.target_memory, 512) == pattern(8192)[:512]


def test_a_trace_has_both_clocks_in_order(kernels: Kernels) -> None:
    with rig(kernels, trace=True) as r:
        assert not r.run("put_each", 8, 1, threads=8).any()
        stamps = r.queue.trace()
        assert [s.ticket for s in stamps] == list(range(8))
        for s in stamps:
            seen = [s.seen_ns, s.posted_ns, s.completed_ns]
            assert s.gpu_post_ns <= s.gpu_complete_ns
            assert seen == sorted(seen)
            if not kernels.real:  # the emulated GPU's clock is the CPU's
                assert s.gpu_post_ns <= s.seen_ns
                assert s.completed_ns <= s.gpu_complete_ns
            assert (s.op, s.status) == ("put", Status.OK)


def test_the_proxy_sleeps_when_all_rings_are_idle(kernels: Kernels) -> None:
    with rig(kernels, spin_us=100) as r:
        wait_for(lambda: r.queue.proxy.stats().sleeps > 10)
        assert r.run("put", 0, 0, 8)[0] == Status.OK
        stats = r.queue.proxy.stats()
        assert stats.slept_ns > 0
        assert stats.rings == 1
        assert stats.records == 1


@pytest.mark.parametrize(
    ("arguments", "error", "text"),
    [
        ({"depth": 0}, ValueError, "depth is 0"),
        ({"depth": 16385}, ValueError, "the limit of a GPU queue is 16384"),
        ({"first": 1 << 56}, ValueError, "first is 72057594037927936"),
        ({"timeout": -1.0}, ValueError, "timeout is -1.0 s"),
    ],
)
def test_a_wrong_argument_is_refused(arguments: Any, error: Any, text: str) -> None:
    with dgkit.Device("soft") as device, pytest.raises(error, match=text):
        device.gpu_queue(**arguments)


def test_another_provider_is_unsupported_and_named() -> None:
    with (
        dgkit.Device("fault") as device,
        pytest.raises(dgkit.Unsupported, match="by the provider fault: open the GPU queue of"),
    ):
        device.gpu_queue()


def test_regions_are_checked_before_a_kernel_runs() -> None:
    with (
        children.child(children.EXPORTER, SIZE, "bytearray", "rw") as child,
        dgkit.Device("soft") as device,
        dgkit.Device("soft") as other,
        dgkit.empty(SIZE) as memory,
    ):
        local, elsewhere = device.register(memory), other.register(memory)
        remote = device.import_region(bytes.fromhex(child.line()))
        assert remote.method != "map"  # puts and gets work with it
        device.gpu_queue(regions=(local, remote)).close()
        with pytest.raises(ValueError, match=r"dgkit.Region id .* belongs to another device"):
            device.gpu_queue(regions=(remote, elsewhere))
        with pytest.raises(TypeError, match="5, which is not a region"):
            device.gpu_queue(regions=[5])  # type: ignore[list-item]
        with pytest.raises(ValueError, match="spin_us is nan"):
            device.gpu_queue(spin_us=float("nan"))
        local.close()
        with pytest.raises(dgkit.ClosedError, match="is closed"):
            device.gpu_queue(regions=(local,))


def test_a_queue_is_closed_once_and_used_no_more() -> None:
    with dgkit.Device("soft") as device:
        q, other = device.gpu_queue(100), device.gpu_queue()
        assert q.depth == 128
        assert repr(q) == "<dgkit.GpuQueue on soft, depth 128, strong>"
        q.connect(other)
        with pytest.raises(dgkit.RegionBusy, match="connected once"):
            q.connect(other)
        with pytest.raises(ValueError, match="connected to another one"):
            q.connect(q)
        q.close()
        q.close()
        with pytest.raises(dgkit.ClosedError):
            q.stats()
        assert "closed" in repr(q)
    assert other.closed


def test_threads_may_close_a_gpu_queue_that_others_close_and_query():
    errors: list[BaseException] = []

    def call(method: Any, barrier: threading.Barrier) -> None:
        barrier.wait(20)
        try:
            method()
        except dgkit.ClosedError:
            pass
        except BaseException as error:
            errors.append(error)

    for _ in range(60):
        device = dgkit.Device("soft")
        queue = device.gpu_queue()
        proxy, barrier = queue.proxy, threading.Barrier(6)
        methods = (queue.close, queue.close, queue.stats, queue.trace, proxy.stats, device.close)
        threads = [threading.Thread(target=call, args=(method, barrier)) for method in methods]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(20)
        device.close()
    assert not errors


@pytest.mark.gpu
def test_a_kernel_that_fills_the_gpu_waits_for_its_own_puts(kernels: Kernels) -> None:
    threads = kernels.blocks * kernels.threads
    with rig(kernels, size=8 * threads, depth=16384) as r:
        assert not r.run("put_each", 8, 1, threads=kernels.threads, grid=kernels.blocks).any()
        assert bytes(r.target_memory.buffer) == bytes(r.local_memory.buffer)


@pytest.mark.gpu
def test_dgkit_bench_measures_kernels_of_the_gpu(tmp_path: Path) -> None:
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
