# SPDX-License-Identifier: Apache-2.0
"""Many threads, many queues, much in flight, and ends at any moment."""

import random
import threading
import time

import pytest

import dgkit
from dgkit import Status, TransferError

SECONDS = 3.0
ENDS = (Status.OK, Status.FLUSHED, Status.REMOTE_ACCESS_ERROR, Status.LOCAL_ERROR)


def _mover(device, remote, lane, lanes, seed, failures):
    """Writes and reads back in its own part of the region, against a model of it."""
    rng = random.Random(seed)
    size = remote.size // lanes
    base, model = lane * size, bytearray(size)
    here = bytearray(size)
    end = time.monotonic() + SECONDS
    with device.register(here) as local, device.queue(32, rng.choice(["auto", "worker"])) as queue:
        while time.monotonic() < end:
            at = rng.randrange(size)
            count = rng.randrange(1, size - at + 1)
            if rng.random() < 0.5:
                here[at : at + count] = model[at : at + count] = rng.randbytes(count)
                move = queue.write
            else:
                here[at : at + count] = bytes(count)
                move = queue.read
            move(local, remote, size=count, local_offset=at, remote_offset=base + at).wait(20)
            if here[at : at + count] != model[at : at + count]:
                failures.append((lane, at, count))
                return


@pytest.mark.parametrize("seed", [1, 2])
def test_threads_with_a_queue_each_keep_their_bytes_apart(seed):
    lanes, failures = 4, []
    with dgkit.Device() as device:
        target = device.register(dgkit.empty(lanes * 40_000))
        remote = device.import_region(target.export())
        threads = [
            threading.Thread(
                target=_mover, args=(device, remote, i, lanes, seed * 10 + i, failures)
            )
            for i in range(lanes)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
        assert not any(thread.is_alive() for thread in threads)
    assert not failures


def _status(transfer):
    try:
        return transfer.wait(10).status
    except TransferError as error:
        return error.completion.status


def test_a_queue_that_closes_with_work_in_flight_gives_each_transfer_an_end():
    rng = random.Random(3)
    with dgkit.Device() as device:
        local = device.register(dgkit.empty(1 << 20))
        target = device.register(dgkit.empty(1 << 20))
        remote = device.import_region(target.export())
        for _ in range(150):
            queue = device.queue(64, "worker")
            size = rng.choice([64, 4096, 1 << 18, 1 << 20])
            posted = [queue.write(local, remote, size=size) for _ in range(rng.randrange(1, 65))]
            queue.close()
            assert {_status(transfer) for transfer in posted} <= {Status.OK, Status.FLUSHED}


def test_a_region_that_closes_under_transfers_is_never_written_after():
    rng = random.Random(4)
    with dgkit.Device() as device, device.queue(64, "worker") as queue:
        local = device.register(bytearray(b"\xff") * (1 << 18))
        for _ in range(150):
            memory = dgkit.empty(1 << 18)
            target = device.register(memory)
            remote = device.import_region(target.export())
            posted = [queue.write(local, remote) for _ in range(rng.randrange(1, 33))]
            target.close(timeout=20)
            memory.buffer[:] = bytes(1 << 18)
            assert {_status(transfer) for transfer in posted} <= set(ENDS)
            assert not any(memory.buffer)
            remote.close(timeout=20)
