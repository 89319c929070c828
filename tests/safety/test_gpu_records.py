# SPDX-License-Identifier: Apache-2.0
"""Records of GPU queues that no function of the header would write; and many puts, byte by byte."""

import importlib.util
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import dgkit
from dgkit import Status
from dgkit.dma.gpu_queue import RingConfig
from dgkit.dma.remote_ring import ExportedRing
from dgkit.gpu_initiated import emulate

SIZE, GUARD, RECORDS = 4096, 0xA5, 4000
# Takes places as a post does, and stores words that the host made; then waits for all of them.
KERNEL = """
#include <dgkit_device.cuh>
extern "C" __global__ void post(dg_gpu_queue *q, const dg_u64 *words, int n, int *status)
{
    for (int i = threadIdx.x; i < n; i += blockDim.x) {
        const dg_u64 place = dg_reserve<DG_SHARING_GPU>(q, dg_places_of<DG_SHARING_GPU>(q));
        if (place & DG_REFUSED) {
            status[i] = (int)(place & 255);
            continue;
        }
        dg_publish<true>(dg_line(q), place, words + 8 * i);
        status[i] = dg_wait(q, place);
    }
}
"""
OPS = (*range(10), 77, 255)
COUNTER, HOLD = 32, 4  # they wait for what may never come


def words_of(rng: random.Random, ids: list[int]) -> list[int]:
    """Return the words of a record: fields that are mostly near what is allowed."""
    if rng.random() < 0.2:
        made = [rng.getrandbits(56) for _ in range(8)]
        made[0] &= ~((COUNTER | HOLD) << 8)
        return made

    def offset() -> int:
        return rng.choice((0, 8, SIZE - 1, SIZE, rng.randrange(SIZE), rng.getrandbits(56)))

    flags = rng.getrandbits(8) & ~(COUNTER | HOLD) if rng.random() < 0.3 else 0
    local, remote, signal = (rng.choice(ids) for _ in range(3))
    addend = rng.getrandbits(64)
    return [
        rng.choice(OPS) | flags << 8 | rng.randrange(256) << 16 | signal << 24,
        offset(), offset(), offset(),
        local | (addend & 0xFFFFFF) << 32, remote | (addend >> 24 & 0xFFFFFF) << 32,
        offset(), addend >> 48 | rng.getrandbits(32) << 16,
    ]  # fmt: skip


def guarded(memory: Any) -> None:
    memory.buffer[:] = bytes([GUARD]) * len(memory.buffer)


def is_guarded(memory: Any) -> bool:
    return bytes(memory.buffer) == bytes([GUARD]) * len(memory.buffer)


@pytest.mark.parametrize("seed", range(3))
def test_no_record_moves_a_byte_that_it_may_not(seed: int) -> None:
    rng = random.Random(seed)
    with (
        dgkit.empty(SIZE) as source, dgkit.empty(SIZE) as target, dgkit.empty(SIZE) as sealed,
        dgkit.empty(SIZE) as foreign, dgkit.empty(SIZE) as closed,
        dgkit.Device("soft") as device, dgkit.Device("soft") as other,
    ):  # fmt: skip
        for memory in (source, sealed, foreign, closed):
            guarded(memory)
        local, owned = device.register(source, "r"), device.register(target)
        lent = device.register(sealed, "r")
        read_only = device.import_region(lent.export())
        remote = device.import_region(owned.export())
        alien, gone = other.register(foreign), device.register(closed)
        ids = [local.id, remote.id, read_only.id, alien.id, gone.id, 0, rng.getrandbits(32)]
        gone.close()
        words = np.array([words_of(rng, ids) for _ in range(RECORDS)], np.uint64)
        status = np.full(RECORDS, -7, np.int32)
        with device.gpu_queue(256, timeout=20, regions=(local, remote)) as queue:
            emulate(KERNEL)["post"](1, 64, (queue, words, RECORDS, status), seed=seed)
            known = {int(each) for each in Status}
            assert set(status.tolist()) <= known - {Status.TIMED_OUT, Status.HOLE, Status.CLOSED}
            assert len(set(status.tolist())) >= 5
            assert queue.stats().completed == RECORDS
            assert all(map(is_guarded, (source, sealed, foreign, closed)))


def test_many_puts_move_exactly_their_bytes() -> None:
    path = Path(__file__).with_name("gpu_puts.py")
    spec = importlib.util.spec_from_file_location("gpu_puts", path)
    assert spec is not None
    assert spec.loader is not None
    puts = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(puts)
    for rig in puts.RIGS:
        verdict = puts.verify(rig, 1)
        assert verdict["ok"], verdict


def test_what_a_peer_stored_in_a_rings_memory_is_read_whatever_it_is():
    rng, config = random.Random(29), RingConfig(64, trace=True)
    with dgkit.Device() as device, dgkit.empty(ExportedRing.size_of(config)) as memory:
        ring = ExportedRing(device.register(memory), config)
        for _ in range(300):
            memory.buffer[:] = rng.randbytes(len(memory.buffer))
            _, _, status, ticket = ring.words()
            stamps = ring.trace()
            assert all(type(each) is Status for each in (status, *(s.status for s in stamps)))
            assert len(stamps) <= 64
            assert ticket is None or 0 <= ticket < 1 << 56
        ring.release()


def test_a_ring_whose_server_has_ended_is_closed_and_names_the_operation_that_it_lost():
    with dgkit.Device() as device, dgkit.empty(ExportedRing.size_of(RingConfig(64))) as memory:
        ring = ExportedRing(device.register(memory), RingConfig(64))
        assert ring.words() == (0, 0, Status.OK, None)
        ring.lose()
        assert ring.words() == (2, 0, Status.PEER_LOST, 0)
        ring.release()
