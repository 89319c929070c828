# SPDX-License-Identifier: Apache-2.0
"""Copies through bounce memory: none leaves a transfer with it in flight."""

from types import SimpleNamespace

import pytest

from dgkit.dpu.copier import Copier
from dgkit.dpu.job import copy_job
from dgkit.dpu.region_ref import RegionRef
from dgkit.errors import TransferError
from dgkit.types import Op, TransferPath


class FakeTransfer:
    latency_ns, submit_ns, post_ns, complete_ns, _path = 1, 1, 2, 3, TransferPath.WORKER.code

    def __init__(self, op, fails=False):
        self.op, self._op, self.fails = op, op, fails
        self.ended = False

    def done(self):
        return True

    def wait(self):
        self.ended = True
        if self.fails:
            raise TransferError("the fake transfer failed", self)
        return self


class FakeQueue:
    def __init__(self, failing_write=None):
        self.posted = []
        self._writes = iter(number == failing_write for number in range(100))

    def read(self, *_, **__):
        self.posted.append(FakeTransfer(Op.READ))
        return self.posted[-1]

    def write(self, *_, **__):
        self.posted.append(FakeTransfer(Op.WRITE, next(self._writes)))
        return self.posted[-1]


def remote():
    return RegionRef(remote=SimpleNamespace(method="vm", size=1 << 20))


def copier_over(queue):
    copier = Copier(SimpleNamespace(caps=SimpleNamespace(inline_max=64)), 64, 2)
    copier._queue, copier._bounce = queue, object()
    return copier


def test_a_cancelled_copy_waits_for_the_read_ahead():
    """The next copy may use the other queue, and so would race with it for the same memory."""
    queue = FakeQueue()

    def step(_done):
        raise KeyError("cancelled")

    with pytest.raises(KeyError, match="cancelled"):
        copy_job(remote(), 0, remote(), 0, 256).run(copier_over(queue), step)
    assert len(queue.posted) == 3
    assert all(transfer.ended for transfer in queue.posted)


def test_a_failed_write_waits_for_the_read_ahead():
    queue = FakeQueue(failing_write=1)
    with pytest.raises(TransferError):
        copy_job(remote(), 0, remote(), 0, 256).run(copier_over(queue))
    assert len(queue.posted) == 5
    assert all(transfer.ended for transfer in queue.posted)


def test_a_copy_reports_every_chunk():
    steps = []
    moved = copy_job(remote(), 0, remote(), 0, 200).run(copier_over(FakeQueue()), steps.append)
    assert steps == [64, 128, 192, 200]
    assert (moved.size, moved.chunks, moved.read_ns, moved.write_ns) == (200, 4, 4, 4)
