# SPDX-License-Identifier: Apache-2.0
"""Queues: their limits, their life, and what a full one says."""

import gc
import select

import numpy as np
import pytest
from support.dma import keep, rig

import dgkit
from dgkit import Device, FaultRule, Status, TransferPath
from dgkit.errors import BoundsError, ClosedError, QueueFull

LOSE = [FaultRule("lose")]


@pytest.mark.parametrize(
    ("path", "kept"),
    [(name, path) for path in TransferPath for name in (path.value, path)],
)
def test_depth_and_path_are_kept(path, kept):
    with Device() as device, device.queue(7, path) as queue:
        assert (queue.depth, queue.path, queue.pending, queue.device) == (7, kept, 0, device)
        assert repr(queue) == f"<dgkit.Queue on soft, depth 7, {kept}, 0 pending>"
        assert "7 operations" in queue._repr_html_()
    assert repr(queue) == f"<dgkit.Queue on soft, depth 7, {kept}, closed>"
    assert "Queue (closed)" in queue._repr_html_()


@pytest.mark.parametrize(
    ("depth", "error"),
    [
        (0, ValueError),
        (-1, BoundsError),
        (65_537, ValueError),
        (1 << 70, ValueError),
        (1.5, TypeError),
    ],
)
def test_a_depth_outside_its_limits_is_refused_by_name(depth, error):
    with Device() as device, pytest.raises(error, match="depth is"):
        device.queue(depth)


@pytest.mark.parametrize("path", ["", "fast", None, 1])
def test_an_unknown_path_is_a_value_error(path):
    with Device() as device, pytest.raises(ValueError, match="it must be 'auto', 'inline'"):
        device.queue(8, path)


def test_a_provider_that_does_nothing_inline_says_so():
    with (
        Device("fault") as device,
        pytest.raises(dgkit.Unsupported, match="fault does not copy inline"),
    ):
        device.queue(8, "inline")


@pytest.mark.parametrize("times", [{"spin_us": -1}, {"op_timeout": -0.1}, {"op_timeout": "1"}])
def test_nonsense_times_are_refused_by_name(times):
    with Device() as device, pytest.raises((ValueError, TypeError)):
        device.queue(8, **times)


def test_full_is_refused_and_room_comes_back_with_each_completion():
    with rig("fault", depth=4, rules=[FaultRule("delay", delay_us=20_000)]) as r:
        late = [r.queue.write(*r.pair, size=8) for _ in range(4)]
        with pytest.raises(QueueFull, match="4"):
            r.queue.write(*r.pair, size=8)
        late[0].wait(5)
        assert r.queue.pending == 3
        assert r.queue.write(*r.pair, size=8).wait(5).size == 8


def test_close_is_idempotent_flushes_and_refuses_what_comes_after():
    with rig("fault", rules=LOSE) as r:
        lost = r.queue.write(*r.pair, size=8)
        r.queue.close()
        r.queue.close()
        assert r.queue.closed
        with pytest.raises(dgkit.TransferError, match="FLUSHED: the queue was closed") as info:
            lost.wait(1)
        assert info.value.completion.status is Status.FLUSHED
        assert info.value.completion.size == 0
        batch, out = np.zeros(1, dgkit.WR_DTYPE), np.zeros(4, dgkit.WC_DTYPE)
        batch["local"], batch["remote"], batch["size"] = r.local.id, r.remote.id, 8
        for use in (
            lambda: r.queue.write(*r.pair, size=8),
            lambda: r.queue.read(*r.pair),
            lambda: r.queue.prepare_write(*r.pair, size=8),
            lambda: r.queue.post(batch),
            lambda: r.queue.run(batch, out),
            r.queue.fileno,
            r.queue.arm,
            r.queue.__enter__,
        ):
            with pytest.raises(ClosedError, match="closed"):
                use()
        assert r.queue.poll(out) == 0


def test_completions_can_be_polled_after_close():
    with rig("fault", rules=LOSE) as r:
        batch, out = np.zeros(3, dgkit.WR_DTYPE), np.zeros(8, dgkit.WC_DTYPE)
        batch["local"], batch["remote"], batch["size"] = r.local.id, r.remote.id, 8
        batch["user"] = [5, 6, 7]
        r.queue.post(batch)
        r.queue.close()
        assert r.queue.poll(out) == 3
        assert set(out["user"][:3]) == {5, 6, 7}
        assert set(out["status"][:3]) == {Status.FLUSHED}


def test_a_queue_that_was_not_closed_warns_and_closes():
    with Device() as device:
        queue = device.queue()
        with pytest.warns(ResourceWarning, match=r"dgkit\.Queue on soft.*was not closed"):
            del queue


def test_a_closed_queue_warns_of_nothing():
    with Device() as device:
        device.queue().close()
        gc.collect()


def test_the_fd_of_soft_is_readable_when_the_worker_completed():
    with rig(size=1 << 24, path="worker") as r:
        transfer = r.queue.write(*r.pair)
        while r.queue.arm() and not transfer.done():
            ready, _, _ = select.select([r.queue.fileno()], [], [], 5)
            assert ready or transfer.done()
        assert transfer.wait(5).size == 1 << 24


def test_arm_is_false_when_completions_are_there_already():
    with rig(path="worker") as r:
        batch, out = np.zeros(1, dgkit.WR_DTYPE), np.zeros(1, dgkit.WC_DTYPE)
        batch["local"], batch["remote"], batch["size"] = r.local.id, r.remote.id, 8
        r.queue.post(batch)
        while r.queue.arm():
            ready, _, _ = select.select([r.queue.fileno()], [], [], 5)
            assert ready
        assert r.queue.poll(out) == 1


def test_more_queues_than_the_provider_has_is_a_named_limit():
    with Device() as device:
        keep(device)
        most = device.caps.max_queues
        for _ in range(most):
            device.queue(1)
        with pytest.raises(dgkit.LimitReached, match=f"{most} queues open, which is the maximum"):
            device.queue(1)


def test_the_enum_of_paths_has_an_old_name_for_one_release():
    with pytest.warns(DeprecationWarning, match=r"dgkit.Path is called dgkit.TransferPath"):
        assert dgkit.Path is dgkit.TransferPath
