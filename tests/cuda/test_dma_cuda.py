"""DMA by a GPU's copy engine: each byte arrives where it belongs, and nothing beside it changes."""

import asyncio
import select

import numpy as np
import pytest
from support.gpu.remote_region import MIB, noise, rig
from support.processes.waiting import until

from dgkit import Op, Status
from dgkit.dma import transfer as transfer_module
from dgkit.dma.system import cpus

SIZES = [*range(1, 41), 4095, 4096, 4097, 32767, 32768, 32769, MIB]
WHERE = ["one process", "two processes"]


@pytest.fixture(params=WHERE)
def where(request):
    return request.param


@pytest.fixture
def r(where, fake_cuda):
    with rig(where, size=MIB + 300) as made:
        yield made


def offsets(size):
    """Local and remote ones: aligned, odd, at the end of the local region."""
    return [(0, 0), (8, 16), (1, 3), (7, 64), (64, 13), (MIB + 300 - size, 5)]


@pytest.mark.parametrize("op", [Op.READ, Op.WRITE])
def test_each_size_arrives_whole_and_touches_nothing_beside_it(r, op):
    for size in SIZES:
        for at, far in offsets(size):
            r.local_bytes[:], r.remote_bytes[:] = (
                noise(len(r.local_bytes), size),
                noise(len(r.remote_bytes), size + 1),
            )
            here, there = r.local_bytes.copy(), r.remote_bytes.copy()
            if op is Op.WRITE:
                there[far : far + size] = here[at : at + size]
            else:
                here[at : at + size] = there[far : far + size]
            post = r.queue.write if op is Op.WRITE else r.queue.read
            done = post(*r.pair, size=size, local_offset=at, remote_offset=far).wait(20)
            assert (done.status, done.size, done.op, done.path) == (Status.OK, size, op, "worker")
            assert np.array_equal(r.local_bytes, here), (size, at, far)
            assert np.array_equal(r.remote_bytes, there), (size, at, far)


def test_stamps_are_in_order(r):
    done = r.queue.write(*r.pair, size=64).wait(20)
    assert 0 < done.submit_ns <= done.post_ns <= done.complete_ns


def test_posts_are_done_in_their_order(r):
    rng = np.random.default_rng(7)
    r.local_bytes[:], r.remote_bytes[:] = (
        noise(len(r.local_bytes), 2),
        noise(len(r.remote_bytes), 3),
    )
    here, there = r.local_bytes.copy(), r.remote_bytes.copy()
    transfers = []
    for _ in range(400):
        size = int(rng.choice([1, 7, 8, 16, 40, 333, 4000, 40_000]))
        at, far = (int(x) for x in rng.integers(0, 60_000, 2))
        if rng.integers(2):
            there[far : far + size] = here[at : at + size]
            post = r.queue.write
        else:
            here[at : at + size] = there[far : far + size]
            post = r.queue.read
        transfers.append(post(*r.pair, size=size, local_offset=at, remote_offset=far))
    assert all(t.wait(20).status is Status.OK for t in transfers)
    assert np.array_equal(r.local_bytes, here)
    assert np.array_equal(r.remote_bytes, there)


def test_parts_are_gathered_into_one_run_and_scattered_from_it(r):
    r.local_bytes[:], r.remote_bytes[:] = (
        noise(len(r.local_bytes), 8),
        noise(len(r.remote_bytes), 9),
    )
    there = r.remote_bytes.copy()
    parts = [(r.local, 3, 5), (r.local, 1000, 4097), (r.local, 70_000, 40_000), (r.local, 8, 8)]
    joined = np.concatenate([r.local_bytes[at : at + size] for _, at, size in parts])
    there[77 : 77 + len(joined)] = joined
    done = r.queue.gather(parts, r.remote, remote_offset=77).wait(20)
    assert done.size == len(joined)
    assert np.array_equal(r.remote_bytes, there)
    wanted = r.local_bytes.copy()
    r.local_bytes[:] = 0
    assert r.queue.scatter(r.remote, parts, remote_offset=77).wait(20).size == len(joined)
    for _, at, size in parts:
        assert np.array_equal(r.local_bytes[at : at + size], wanted[at : at + size])


def test_await_gives_the_completion_and_the_loop_turns_meanwhile(r, fake_cuda, monkeypatch):
    monkeypatch.setattr(transfer_module, "AWAIT_SPIN_NS", 0)
    fake_cuda.order("copy_us=2000")
    r.local_bytes[:] = noise(len(r.local_bytes), 10)

    async def one(i):
        return await r.queue.write(*r.pair, size=999, local_offset=i * 1000, remote_offset=i * 1000)

    async def main():
        turns = 0

        async def count():
            nonlocal turns
            while True:
                turns += 1
                await asyncio.sleep(0)

        counting = asyncio.create_task(count())
        done = await asyncio.gather(*(one(i) for i in range(10)))
        counting.cancel()
        return done, turns

    done, turns = asyncio.run(main())
    assert {(d.status, d.size) for d in done} == {(Status.OK, 999)}
    assert turns > 10
    for i in range(10):
        at = slice(i * 1000, i * 1000 + 999)
        assert np.array_equal(r.remote_bytes[at], r.local_bytes[at])


def test_the_fd_of_an_armed_queue_becomes_readable(r, fake_cuda):
    for turn in range(20):
        fake_cuda.order(f"copy_us={turn % 3 * 1000}")
        transfer = r.queue.write(*r.pair, size=32)
        while not transfer.done():  # a wake-up that was asked for before may come, too
            if r.queue.arm():
                ready, _, _ = select.select([r.queue.fileno()], [], [], 20)
                assert ready


def test_a_stamp_is_late_when_the_queue_was_looked_at_late(r):
    r.local_bytes[:8] = 1
    r.remote_bytes[:8] = 0
    transfer = r.queue.write(*r.pair, size=8)
    until(r.remote_bytes[:8].all, "the bytes are there")
    assert transfer.wait(20).late_stamp
    assert "late" in transfer._repr_html_()


def test_a_stamp_is_its_own_when_the_completion_was_waited_for(where, fake_cuda):
    with rig(where, spin_us=1e6) as r:
        fake_cuda.order("copy_us=50")

        def waited():
            return not r.queue.write(*r.pair, size=8).wait(20).late_stamp

        if cpus() > 1:  # on one the waiter sleeps, and looks when it is woken
            until(waited, "one that was not interrupted while it spun", timeout=120)
