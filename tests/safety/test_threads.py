# SPDX-License-Identifier: Apache-2.0
"""Two threads on one queue: QueueInUse, and never a wrong byte or a wrong completion."""

import contextlib
import signal
import threading
import time

import numpy as np
import pytest
from support.dma import rig

import dgkit
from dgkit import FaultRule
from dgkit.errors import QueueFull, QueueInUse


def in_threads(*jobs):
    """Runs all at once; what they raised."""
    raised = []

    def guarded(job):
        try:
            job()
        except Exception as error:
            raised.append(error)

    threads = [threading.Thread(target=guarded, args=(job,)) for job in jobs]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
        assert not thread.is_alive()
    return raised


def endlessly(call):
    while True:
        call()


class Interrupted(Exception):
    """Raised by a signal's handler."""


@pytest.mark.parametrize("spin_us", [0, 1e5])
def test_a_second_thread_is_refused_while_the_first_waits(spin_us):
    """This thread waits for a write that does not end, until the other one interrupts it."""

    def refused_once_the_other_waits():
        out, batch = np.zeros(1, dgkit.WC_DTYPE), np.zeros(1, dgkit.WR_DTYPE)
        batch["local"], batch["remote"], batch["size"] = r.local.id, r.remote.id, 8
        why = "another thread is waiting in this queue: open one queue for each thread"
        with pytest.raises(QueueInUse, match=why):
            endlessly(lambda: r.queue.poll(out))
        for use in (
            lambda: r.queue.write(*r.pair, size=8),
            lambda: r.queue.post(batch),
            lambda: r.queue.run(batch, out),
            lambda: r.queue.prepare_write(*r.pair, size=8),
            r.queue.arm,
            r.queue.close,
        ):
            with pytest.raises(QueueInUse, match="another thread is"):
                use()

    def wait():
        with contextlib.suppress(QueueInUse):  # the other thread is polling just now
            endless.wait()

    def other():
        raised.extend(in_threads(refused_once_the_other_waits))
        while not interrupted.wait(0.01):  # a signal during the spinning is not seen
            signal.pthread_kill(threading.main_thread().ident, signal.SIGUSR1)

    def interrupt(*_):
        if not interrupted.is_set():
            interrupted.set()
            raise Interrupted

    raised, interrupted = [], threading.Event()
    before = signal.signal(signal.SIGUSR1, interrupt)
    rules = [FaultRule("delay", delay_us=1e12, count=1)]
    with rig("fault", rules=rules, spin_us=spin_us) as r:
        endless = r.queue.write(*r.pair, size=8)
        thread = threading.Thread(target=other)
        thread.start()
        with pytest.raises(Interrupted):
            endlessly(wait)
        thread.join(10)
        signal.signal(signal.SIGUSR1, before)
        assert raised == []
        assert r.queue.write(*r.pair, size=8).wait(10).size == 8
        r.queue.close()
        with pytest.raises(dgkit.TransferError, match="FLUSHED"):
            endless.wait(1)


@pytest.mark.parametrize("path", ["auto", "worker"])
def test_threads_that_share_a_queue_never_get_a_wrong_completion_or_byte(path):
    def one(k, size):
        end = time.monotonic() + 20
        transfer = r.queue.write(locals_[k], r.remote, size=size, remote_offset=k * 256)
        while True:
            try:
                done = transfer.wait(10)
            except QueueInUse:
                assert time.monotonic() < end
                continue
            assert done.size == size
            return

    def job(k):
        def go():
            for i in range(2000):
                with contextlib.suppress(QueueInUse, QueueFull):
                    one(k, 1 + (i * 4 + k) % 200)

        return go

    with rig(path=path, depth=64) as r:
        locals_ = [r.device.register(bytearray([k + 1]) * 256) for k in range(4)]
        assert in_threads(*(job(k) for k in range(4))) == []
        for k in range(4):
            assert set(r.remote_bytes[k * 256 : k * 256 + 200]) <= {0, k + 1}


def test_a_transfer_dropped_in_another_thread_gives_its_place_back_at_the_latest_when_refused():
    with rig("fault", depth=2, rules=[FaultRule("delay", delay_us=100_000)]) as r:
        dropped = [r.queue.write(*r.pair, size=8)]
        late = r.queue.write(*r.pair, size=8)
        waiter = threading.Thread(target=late.wait, args=(10,))
        waiter.start()
        dropped.clear()  # the other thread is inside by now, or will be: both must work
        waiter.join(10)
        again = [r.queue.write(*r.pair, size=1)]
        try:
            again.append(r.queue.write(*r.pair, size=1))
        except QueueFull:
            again.append(r.queue.write(*r.pair, size=1))
        assert [t.wait(10).size for t in again] == [1, 1]
