# SPDX-License-Identifier: Apache-2.0
"""Transfers in an event loop."""

import asyncio
import gc
import time
import weakref

import pytest
from support.dma import pattern, rig
from support.processes.waiting import until

import dgkit
from dgkit import FaultRule, Status
from dgkit.dma import transfer as transfer_module

DELAY = [FaultRule("delay", delay_us=20_000)]
LONG_DELAY = [FaultRule("delay", delay_us=1_000_000)]
MIB = 1 << 20


async def result(transfer):
    return await transfer


@pytest.fixture(autouse=True)
def sleeps_at_once(monkeypatch):
    """So that the loop has to wait, and the first look does not find the completion."""
    monkeypatch.setattr(transfer_module, "AWAIT_SPIN_NS", 0)


@pytest.mark.parametrize("path", ["auto", "inline", "worker"])
def test_await_gives_the_completion(path):
    with rig(path=path) as r:
        r.local_bytes[:] = pattern(4096)
        done = asyncio.run(result(r.queue.write(*r.pair, size=64)))
        assert (done.status, done.size) == (Status.OK, 64)
        assert r.remote_bytes[:64] == r.local_bytes[:64]


def test_await_and_wait_give_the_same_completion():
    with rig(path="worker") as r:
        transfer = r.queue.read(*r.pair, size=64)
        done = asyncio.run(result(transfer))
        assert transfer.wait(0) is done
        assert asyncio.run(result(transfer)) is done


def test_the_loop_runs_other_tasks_while_a_transfer_is_awaited():
    async def main(transfer):
        turns = 0

        async def count():
            nonlocal turns
            while True:
                turns += 1
                await asyncio.sleep(0)

        counting = asyncio.create_task(count())
        await transfer
        counting.cancel()
        return turns

    with rig("fault", rules=LONG_DELAY) as r:
        assert asyncio.run(main(r.queue.write(*r.pair, size=8))) > 10


def test_a_sleeping_loop_is_woken_by_the_worker():
    async def main(queue, pair):
        return [await queue.write(*pair) for _ in range(20)]

    with rig(path="worker", size=4 * MIB) as r:
        assert {c.size for c in asyncio.run(main(r.queue, r.pair))} == {4 * MIB}


@pytest.mark.parametrize("provider", ["soft", "fault"])
def test_many_transfers_can_be_awaited_at_once(provider):
    rules = [FaultRule("delay", every=3, delay_us=500)] if provider == "fault" else ()

    async def main(r):
        async def one(i):
            done = await r.queue.write(*r.pair, size=1 + i, remote_offset=i * 300)
            return done.size

        return await asyncio.gather(*(one(i) for i in range(256)))

    with rig(provider, depth=256, path="auto", size=1 << 17, rules=rules) as r:
        for _ in range(3):
            assert asyncio.run(main(r)) == [1 + i for i in range(256)]
        assert r.queue.pending == 0


def test_one_transfer_can_be_awaited_by_two_tasks():
    async def main(transfer):
        return await asyncio.gather(result(transfer), result(transfer))

    with rig("fault", rules=DELAY) as r:
        first, second = asyncio.run(main(r.queue.write(*r.pair, size=8)))
        assert first is second


def test_a_cancelled_await_lets_the_transfer_go_on():
    async def main(transfer):
        task = asyncio.create_task(result(transfer))
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    with rig("fault", rules=DELAY) as r:
        r.local_bytes[:4] = b"data"
        transfer = r.queue.write(*r.pair, size=4)
        asyncio.run(main(transfer))
        assert transfer.wait(5).status is Status.OK
        assert r.remote_bytes[:4] == b"data"
        assert r.queue.pending == 0


def test_a_cancelled_and_dropped_transfer_gives_its_place_back():
    async def posted(r):
        while True:
            try:
                return r.queue.write(*r.pair, size=4)
            except dgkit.QueueFull:
                await asyncio.sleep(0.001)

    async def main(r):
        for _ in range(12):
            task = asyncio.create_task(result(await posted(r)))
            await asyncio.sleep(0)
            task.cancel()
            await asyncio.wait([task])

    with rig("fault", depth=4, rules=[FaultRule("delay", delay_us=200_000)]) as r:
        asyncio.run(main(r))


def test_two_loops_one_after_another_use_one_queue():
    with rig("fault", rules=DELAY) as r:
        for size in (1, 2, 3):
            assert asyncio.run(result(r.queue.write(*r.pair, size=size))).size == size


def test_a_queue_that_is_closed_while_awaited_flushes_at_once():
    async def main(r):
        task = asyncio.create_task(result(r.queue.write(*r.pair, size=8)))
        await asyncio.sleep(0.01)
        start = time.monotonic()
        r.queue.close()
        with pytest.raises(dgkit.TransferError, match="FLUSHED") as info:
            await task
        assert time.monotonic() - start < 0.9
        # Its fd is free for others: the loop must not watch it any more.
        other = r.device.queue(4, "auto")
        done = await other.write(*r.pair, size=5)
        assert done.size == 5
        return info.value.completion.status

    with rig("fault", rules=LONG_DELAY) as r:
        assert asyncio.run(main(r)) is Status.FLUSHED


@pytest.mark.parametrize("status", [Status.PEER_LOST, Status.IO_FAILED])
def test_an_error_status_raises_in_the_task(status):
    with (
        rig("fault", rules=[FaultRule("error", status=status)]) as r,
        pytest.raises(dgkit.TransferError, match=status.name) as info,
    ):
        asyncio.run(result(r.queue.write(*r.pair, size=8)))
    assert info.value.completion.status is status


def test_an_awaited_queue_is_freed_with_its_last_reference():
    with rig("fault", rules=DELAY) as r:
        queue = r.device.__class__.queue(r.device, 4)
        asyncio.run(result(queue.write(*r.pair, size=8)))
        seen = weakref.ref(queue)
        queue.close()
        del queue
        gc.collect()
        assert seen() is None


def test_completions_of_posts_do_not_disturb_an_await():
    import numpy as np

    async def main(r):
        batch = np.zeros(2, dgkit.WR_DTYPE)
        batch["local"], batch["remote"], batch["size"] = r.local.id, r.remote.id, 8
        r.queue.post(batch)
        return await r.queue.write(*r.pair, size=9)

    with rig(path="worker") as r:
        assert asyncio.run(main(r)).size == 9
        out = np.zeros(4, dgkit.WC_DTYPE)
        assert until(lambda: r.queue.poll(out, timeout=1), "two completions") == 2
