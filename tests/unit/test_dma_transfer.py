# SPDX-License-Identifier: Apache-2.0
"""Single transfers: bytes, arguments, completions, waiting, rows and parts."""

import gc
import threading
import time
from decimal import Decimal
from fractions import Fraction

import numpy as np
import pytest
from support.dma import pattern, rig

import dgkit
from dgkit import FaultRule, Op, Status
from dgkit.dma.transfer import Pending
from dgkit.errors import BoundsError, ClosedError, DgkitError, QueueFull, QueueInUse

PATHS = ["auto", "inline", "worker"]


@pytest.fixture(
    params=[("soft", "auto"), ("soft", "inline"), ("soft", "worker"), ("fault", "auto")]
)
def r(request):
    provider, path = request.param
    with rig(provider, path=path, size=1 << 16) as opened:
        yield opened


def test_write_puts_exactly_its_bytes_where_they_belong(r):
    r.local_bytes[:] = pattern(1 << 16)
    r.queue.write(*r.pair, size=100, local_offset=7, remote_offset=1000).wait(5)
    assert r.remote_bytes[1000:1100] == r.local_bytes[7:107]
    assert not any(r.remote_bytes[:1000])
    assert not any(r.remote_bytes[1100:])


def test_read_brings_exactly_its_bytes(r):
    r.remote_bytes[:] = pattern(1 << 16)
    r.queue.read(*r.pair, size=100, local_offset=7, remote_offset=1000).wait(5)
    assert r.local_bytes[7:107] == r.remote_bytes[1000:1100]
    assert not any(r.local_bytes[:7])
    assert not any(r.local_bytes[107:])


def test_without_a_size_all_from_local_offset_on_moves(r):
    r.local_bytes[:] = pattern(1 << 16)
    assert r.queue.write(*r.pair, local_offset=65_000).wait(5).size == 536
    assert r.remote_bytes[:536] == r.local_bytes[65_000:]
    assert r.queue.read(*r.pair).wait(5).size == 1 << 16


def test_a_completion_says_what_happened(r):
    before = dgkit.dma.now_ns()
    done = r.queue.read(*r.pair, size=10).wait(5)
    assert (done.status, done.size, done.op, done.user) == (Status.OK, 10, Op.READ, 0)
    assert before <= done.submit_ns <= done.post_ns <= done.complete_ns <= dgkit.dma.now_ns()
    assert done.latency_ns == done.complete_ns - done.submit_ns
    assert not done.shared_stamp
    assert repr(done).startswith("<dgkit.Completion OK read of 10 bytes, ")
    assert not done.by_kernel
    assert "10 bytes" in done._repr_html_()


def test_the_path_is_the_one_that_was_taken():
    with rig(size=1 << 20, path="auto") as r:
        assert r.queue.write(*r.pair, size=64).wait(5).path == "inline"
        assert r.queue.write(*r.pair).wait(5).path == "worker"
    with rig(size=1 << 20, path="inline") as r:
        assert r.queue.write(*r.pair).wait(5).path == "inline"
    with rig(path="worker") as r:
        assert r.queue.write(*r.pair, size=1).wait(5).path == "worker"


def test_auto_does_nothing_inline_while_something_is_pending():
    with rig(size=1 << 26, path="auto") as r:
        large = r.queue.write(*r.pair)
        small = r.queue.write(*r.pair, size=8)
        paths = (large.wait(30).path, small.wait(30).path)
        assert paths == ("worker", "worker")


def test_waiting_again_gives_the_same_completion(r):
    transfer = r.queue.write(*r.pair, size=10)
    assert transfer.wait(5) is transfer.wait() is transfer.wait(0)
    assert transfer.done()
    assert "Completion OK write of 10 bytes" in repr(transfer)


def test_completions_stay_what_they_were_however_many_follow(r):
    kept = [r.queue.write(*r.pair, size=1 + i % 100).wait(5) for i in range(1500)]
    assert [c.size for c in kept] == [1 + i % 100 for i in range(1500)]


def test_done_never_blocks_and_becomes_true():
    with rig("fault", rules=[FaultRule("delay", delay_us=2000)]) as r:
        transfer = r.queue.write(*r.pair, size=8)
        looks = 0
        while not transfer.done():
            looks += 1
        assert looks > 0
        assert transfer.wait(0).size == 8


def test_a_wait_that_times_out_leaves_the_transfer_going_on():
    with rig("fault", rules=[FaultRule("delay", delay_us=30_000)]) as r:
        transfer = r.queue.write(*r.pair, size=8)
        with pytest.raises(TimeoutError, match=r"not complete after 0\.001 s; it stays in flight"):
            transfer.wait(0.001)
        assert "1 pending" in repr(transfer)
        assert transfer.wait(5).status is Status.OK


def test_a_notebook_shows_a_transfer_before_and_after_it_is_complete():
    with rig("fault", rules=[FaultRule("delay", delay_us=30_000)]) as r:
        transfer = r.queue.write(*r.pair, size=8)
        shown = transfer._repr_html_()
        assert "Transfer (not complete)" in shown
        assert "software DPU, injected faults" in shown
        transfer.wait(5)
        assert "8 bytes" in transfer._repr_html_()


@pytest.mark.parametrize("timeout", [-1, float("nan")])
def test_a_nonsense_timeout_is_refused_by_name(timeout):
    with rig("fault", rules=[FaultRule("delay", delay_us=2000)]) as r:
        transfer = r.queue.write(*r.pair, size=8)
        with pytest.raises(ValueError, match="timeout is"):
            transfer.wait(timeout)
        transfer.wait(5)


@pytest.mark.parametrize("status", [s for s in Status if Status.OK < s <= Status.IO_FAILED])
def test_a_failed_transfer_raises_each_time_and_carries_its_completion(status):
    with rig("fault", rules=[FaultRule("error", status=status)]) as r:
        r.local_bytes[:4] = b"data"
        transfer = r.queue.write(*r.pair, size=8)
        for _ in range(2):
            with pytest.raises(
                dgkit.TransferError, match=f"write completed with {status.name}: "
            ) as e:
                transfer.wait(5)
            assert e.value.completion.status is status
            assert e.value.completion.size == 0
        assert transfer.done()
        assert not any(r.remote_bytes)


@pytest.mark.parametrize("provider", ["soft", "fault"])
def test_dropped_transfers_give_their_places_back(provider):
    with rig(provider, depth=4, path="worker") as r:
        for _ in range(200):
            r.queue.write(*r.pair, size=8)
            r.queue.read(*r.pair, size=8).done()
            while r.queue.pending > 2:
                r.queue.poll(np.zeros(1, dgkit.WC_DTYPE), timeout=0.01)
        last = [r.queue.write(*r.pair, size=8) for _ in range(2)]
        assert [t.wait(5).status for t in last] == [Status.OK] * 2


SIZES = [
    (0, ValueError),
    (-1, BoundsError),
    (-(1 << 63), BoundsError),
    (1 << 64, BoundsError),
    (1.0, TypeError),
    (0.5, TypeError),
    (np.float32(1.5), TypeError),
    (np.float64(2.0), TypeError),
    (Decimal("1.5"), TypeError),
    (Fraction(3, 2), TypeError),
    ("8", TypeError),
    (b"8", TypeError),
    ([8], TypeError),
]


@pytest.mark.parametrize(("size", "error"), SIZES, ids=repr)
@pytest.mark.parametrize("post", ["write", "read"])
def test_a_size_that_is_none_is_refused_before_anything_is_posted(size, error, post):
    with rig() as r, pytest.raises(error, match=r"size|0 bytes"):
        getattr(r.queue, post)(*r.pair, size=size)


@pytest.mark.parametrize("name", ["local_offset", "remote_offset"])
@pytest.mark.parametrize(("offset", "error"), [*SIZES[1:], (None, TypeError)], ids=repr)
def test_an_offset_that_is_none_is_refused_by_name(name, offset, error):
    with rig() as r, pytest.raises(error, match=name):
        r.queue.write(*r.pair, size=8, **{name: offset})


def test_numpys_integers_and_bools_are_whole_numbers():
    with rig() as r:
        for one in (np.uint8(1), np.int64(1), True):
            assert r.queue.write(*r.pair, size=one, local_offset=one).wait(5).size == 1


def test_what_is_no_region_is_a_type_error_that_shows_it():
    with rig() as r:
        for local, remote in (
            (r.local_bytes, r.remote),
            (r.local, r.remote_bytes),
            (r.local, b"token"),
            (None, r.remote),
            (r.queue, r.remote),
        ):
            for post in (
                r.queue.write, r.queue.read, r.queue.write_2d, r.queue.read_2d,
                r.queue.prepare_write, r.queue.prepare_read,
            ):  # fmt: skip
                with pytest.raises(TypeError, match=r"must be a (Remote)?Region"):
                    post(local, remote, size=8)
            with pytest.raises(TypeError, match=r"must be a (Remote)?Region"):
                r.queue.gather([(local, 0, 8)], remote)


def test_regions_on_the_wrong_side_are_a_value_error():
    with rig() as r:
        with pytest.raises(
            ValueError, match="the local side of a transfer must be a registered region"
        ):
            r.queue.write(r.remote, r.remote, size=8)
        with pytest.raises(ValueError, match="the remote side of a transfer must be an imported"):
            r.queue.write(r.local, r.target, size=8)


def test_a_region_of_another_device_is_a_value_error():
    with rig() as one, rig() as two, pytest.raises(ValueError, match="belongs to another device"):
        one.queue.write(one.local, two.remote, size=8)


def test_an_offset_past_the_end_is_out_of_bounds_also_without_a_size():
    with rig() as r, pytest.raises(BoundsError, match="offset 5,000"):
        r.queue.write(*r.pair, local_offset=5000)


def test_fence_holds_also_when_the_provider_reorders():
    with rig("fault", rules=[FaultRule("reorder", count=1)]) as r:
        r.local_bytes[:2] = b"ab"
        first = r.queue.write(*r.pair, size=1)
        second = r.queue.write(*r.pair, size=1, local_offset=1, fence=True)
        assert second.wait(20).complete_ns >= first.wait(20).complete_ns
        assert r.remote_bytes[:1] == b"b"


def test_a_transfer_over_a_closed_region_is_a_closed_error_that_names_the_side():
    with rig() as r:
        prepared = r.queue.prepare_write(*r.pair, size=8)
        r.local.close()
        with pytest.raises(ClosedError, match=f"local region #{r.local.id} is closed"):
            r.queue.write(*r.pair, size=8)
        with pytest.raises(ClosedError, match=f"local region #{r.local.id} is closed"):
            prepared.run()
        local = r.device.register(bytearray(8))
        r.remote.close()
        with pytest.raises(ClosedError, match=f"remote region #{r.remote.id} is closed"):
            r.queue.write(local, r.remote)


def test_a_transfer_keeps_its_queue():
    with rig("fault", rules=[FaultRule("delay", delay_us=3000)]) as r:
        queue = r.device.queue()
        transfer = queue.write(*r.pair, size=8)
        del queue
        gc.collect()
        assert transfer.wait(5).size == 8


def test_a_transfer_that_was_never_posted_has_no_completion():
    with pytest.raises(DgkitError, match="not complete"):
        _ = Pending().wait().size
    assert Pending().done()


def test_the_shortest_wait_looks_for_the_completion_also_without_spinning():
    with rig("soft", path="worker", spin_us=0) as r:
        transfer = r.queue.write(*r.pair, size=8)
        end = time.monotonic() + 20
        while time.monotonic() < end:
            try:
                assert transfer.wait(1e-6).size == 8
                return
            except TimeoutError:
                pass
    pytest.fail("no completion within 20 s")


def _in_use(queue):
    try:
        queue.arm()
    except QueueInUse:
        return True
    return False


def _wait_beside_arm(transfer):
    """Wait, also where another thread's arm() has the queue for a moment."""
    while True:
        try:
            transfer.wait(20)
        except QueueInUse:
            continue
        return


def test_a_transfer_given_up_twice_while_another_thread_waits_leaves_its_place():
    with rig("fault", depth=2, rules=[FaultRule("delay", delay_us=2_000_000, count=2)]) as r:
        first, second = r.queue.write(*r.pair, size=8), r.queue.write(*r.pair, size=8)
        thread = threading.Thread(target=_wait_beside_arm, args=(first,))
        thread.start()
        while not _in_use(r.queue):
            assert thread.is_alive()
        del second
        with pytest.raises(QueueInUse):
            r.queue.write(*r.pair, size=8)
        thread.join(20)
        third = r.queue.write(*r.pair, size=8)
        end = time.monotonic() + 20
        while True:
            try:
                assert r.queue.write(*r.pair, size=8).wait(5).size == 8
                break
            except QueueFull:  # until the second one is complete, too
                assert time.monotonic() < end
        assert third.wait(5).size == 8
