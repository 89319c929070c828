# SPDX-License-Identifier: Apache-2.0
"""Stamps of operations that a GPU's copy engine completed."""

import pytest
from support.gpu.remote_region import MIB, rig
from support.processes.waiting import until

from dgkit.dma.system import cpus

WHERE = ["one process", "two processes"]


@pytest.fixture(params=WHERE)
def where(request):
    return request.param


@pytest.fixture
def r(where, fake_cuda):
    with rig(where, size=MIB + 300) as made:
        yield made


def test_stamps_are_in_order(r):
    done = r.queue.write(*r.pair, size=64).wait(20)
    assert 0 < done.submit_ns <= done.post_ns <= done.complete_ns


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
