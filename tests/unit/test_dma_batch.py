# SPDX-License-Identifier: Apache-2.0
"""Batches: post, poll and run with arrays of WR_DTYPE and WC_DTYPE."""

import numpy as np
import pytest
from support.dma import pattern, rig

import dgkit
from dgkit import WC_DTYPE, WR_DTYPE, FaultRule, Status
from dgkit.errors import BoundsError, ClosedError, PeerTimeout, QueueFull


def batch_of(r, n, size=64, op=1):
    batch = np.zeros(n, WR_DTYPE)
    batch["local"], batch["remote"] = r.local.id, r.remote.id
    batch["size"], batch["op"], batch["user"] = size, op, np.arange(n) + 100
    batch["local_offset"] = batch["remote_offset"] = np.arange(n) * size
    return batch


def poll_all(queue, n):
    out, got = np.zeros(n, WC_DTYPE), 0
    while got < n:
        count = queue.poll(out[got:], timeout=5)
        assert count, f"{got} of {n}"
        got += count
    return out


@pytest.fixture(
    params=[("soft", "auto"), ("soft", "inline"), ("soft", "worker"), ("fault", "auto")]
)
def r(request):
    with rig(request.param[0], path=request.param[1]) as opened:
        opened.local_bytes[:] = pattern(4096)
        yield opened


def test_layouts_are_those_of_the_header():
    assert (WR_DTYPE.itemsize, WC_DTYPE.itemsize) == (64, 48)
    assert WR_DTYPE.fields["size"][1] == 32
    assert WR_DTYPE.fields["flags"][1] == 61
    assert WC_DTYPE["status"] == np.int32


def test_a_posted_batch_moves_all_and_each_record_completes_once(r):
    r.queue.post(batch_of(r, 16))
    assert r.queue.pending == 16
    out = poll_all(r.queue, 16)
    assert sorted(out["user"]) == list(range(100, 116))
    assert set(out["status"]) == {Status.OK}
    assert set(out["size"]) == {64}
    assert set(out["path"]) <= {1, 2}
    assert (out["submit_ns"] <= out["post_ns"]).all()
    assert (out["post_ns"] <= out["complete_ns"]).all()
    assert r.remote_bytes[:1024] == r.local_bytes[:1024]
    assert not any(r.remote_bytes[1024:])
    assert r.queue.pending == 0


def test_run_gives_all_completions_in_the_order_of_the_records(r):
    out = np.zeros(20, WC_DTYPE)
    for _ in range(50):
        assert r.queue.run(batch_of(r, 16), out) == 16
        assert out["user"][:16].tolist() == list(range(100, 116))
    assert not out[16:]["user"].any()
    assert r.remote_bytes[:1024] == r.local_bytes[:1024]


def test_an_empty_batch_and_an_empty_out_do_nothing(r):
    nothing, out = np.zeros(0, WR_DTYPE), np.zeros(0, WC_DTYPE)
    r.queue.post(nothing)
    assert r.queue.run(nothing, out) == 0
    assert r.queue.poll(out, timeout=5) == 0
    assert r.queue.poll(np.zeros(4, WC_DTYPE), timeout=0.001) == 0
    assert r.queue.pending == 0


def test_what_is_changed_after_the_post_has_no_effect():
    with rig(path="worker") as r:
        batch = batch_of(r, 8)
        r.queue.post(batch)
        batch["size"], batch["user"] = 1, 0
        out = poll_all(r.queue, 8)
        assert set(out["size"]) == {64}
        assert 0 not in out["user"]


def test_slices_are_arrays_of_their_own(r):
    batch, out = batch_of(r, 16), np.zeros(16, WC_DTYPE)
    for part in (slice(0, 4), slice(4, 16), slice(15, 16)):
        n = len(batch[part])
        assert r.queue.run(batch[part], out[:n]) == n
        assert out["user"][:n].tolist() == batch["user"][part].tolist()


def test_arrays_come_and_go_without_one_being_taken_for_another(r):
    for n in range(1, 40):
        out = np.zeros(n % 16 + 1, WC_DTYPE)
        batch = batch_of(r, n % 16 + 1, size=n)
        assert r.queue.run(batch, out) == n % 16 + 1
        assert set(out["size"]) == {n}


@pytest.mark.parametrize(
    "batch",
    [
        np.zeros(4, "u8"),
        np.zeros((2, 2), WR_DTYPE),
        np.zeros(4, WC_DTYPE),
        np.zeros(8, WR_DTYPE)[::2],
        np.zeros((), WR_DTYPE),
        [1, 2],
        b"x" * 64,
        None,
    ],
    ids=["u8", "2-d", "WC", "strided", "0-d", "list", "bytes", "None"],
)
def test_what_is_no_flat_array_of_records_is_a_type_error(batch):
    with rig() as r:
        for use in (r.queue.post, r.queue.prepare, lambda b: r.queue.run(b, np.zeros(9, WC_DTYPE))):
            with pytest.raises(TypeError):
                use(batch)


@pytest.mark.parametrize(
    "out", [np.zeros(4, WR_DTYPE), np.zeros((2, 2), WC_DTYPE), np.zeros(8, WC_DTYPE)[::2], [], None]
)
def test_an_out_that_is_no_flat_array_of_completions_is_a_type_error(out):
    with rig() as r, pytest.raises(TypeError):
        r.queue.poll(out)


def test_an_out_that_cannot_be_written_is_a_type_error():
    with rig() as r:
        out = np.zeros(4, WC_DTYPE)
        out.flags.writeable = False
        with pytest.raises(TypeError, match="writable"):
            r.queue.poll(out)


def test_an_out_that_is_too_short_is_refused_before_anything_is_posted():
    with rig() as r:
        with pytest.raises(ValueError, match="out has 3 places for 4 completions"):
            r.queue.run(batch_of(r, 4), np.zeros(3, WC_DTYPE))
        assert r.queue.pending == 0


def test_a_batch_larger_than_the_queue_is_refused():
    with rig(depth=4) as r:
        for post in (r.queue.post, lambda b: r.queue.run(b, np.zeros(5, WC_DTYPE))):
            with pytest.raises((QueueFull, ValueError), match="5"):
                post(batch_of(r, 5))


def test_failed_records_complete_with_their_status_and_others_with_theirs():
    with rig("fault", rules=[FaultRule("error", every=2, status=Status.LOCAL_ERROR)]) as r:
        out = np.zeros(8, WC_DTYPE)
        assert r.queue.run(batch_of(r, 8), out) == 8
        assert out["status"].tolist() == [Status.LOCAL_ERROR, Status.OK] * 4
        assert out["size"].tolist() == [0, 64] * 4


def test_run_with_a_lost_completion_says_how_many_are_missing():
    with rig("fault", rules=[FaultRule("lose", count=1)], op_timeout=2) as r:
        out = np.zeros(4, WC_DTYPE)
        with pytest.raises(PeerTimeout, match=r"1 operations are not complete after 0.[3-9]"):
            r.queue.run(batch_of(r, 4), out, timeout=0.3)
        assert r.queue.run(batch_of(r, 4), out, timeout=5) == 4


def test_poll_never_gives_the_completion_of_a_transfer_or_a_run():
    with rig(path="worker") as r:
        transfer = r.queue.write(*r.pair, size=8)
        r.queue.post(batch_of(r, 1))
        assert poll_all(r.queue, 1)["user"].tolist() == [100]
        assert r.queue.poll(np.zeros(4, WC_DTYPE), timeout=0.001) == 0
        assert transfer.wait(5).size == 8


@pytest.mark.parametrize("timeout", [-1, float("nan")])
def test_a_nonsense_timeout_is_refused(timeout):
    with rig() as r:
        with pytest.raises(ValueError, match="timeout is"):
            r.queue.poll(np.zeros(1, WC_DTYPE), timeout)
        with pytest.raises(ValueError, match="timeout is"):
            r.queue.run(batch_of(r, 1), np.zeros(1, WC_DTYPE), timeout)
        assert r.queue.pending == 0


def test_an_array_whose_dtype_is_changed_in_place_is_not_read_past_its_end():
    with rig() as r:
        batch, out = batch_of(r, 4), np.zeros(4, WC_DTYPE)
        r.queue.run(batch, out)
        changed = batch.view("u8")
        with pytest.raises(TypeError):
            r.queue.post(changed)
        assert dgkit.Status(int(out["status"][0])) is Status.OK


@pytest.mark.filterwarnings("ignore:Setting the shape:DeprecationWarning")  # of NumPy 2.5
def test_an_array_that_loses_its_dimension_in_place_is_not_flat_any_more():
    with rig() as r:
        batch, out = batch_of(r, 1), np.zeros(1, WC_DTYPE)
        r.queue.run(batch, out)
        batch.shape = ()
        with pytest.raises(TypeError, match=r"a flat array of dgkit\.WR_DTYPE is needed"):
            r.queue.post(batch)


@pytest.mark.parametrize("size", [1, 8, 33, 64])
@pytest.mark.parametrize("path", ["auto", "inline", "worker"])
def test_requests_of_one_size_each_get_their_completion_in_order(path, size):
    with rig(path=path, depth=64, size=1 << 16) as r:
        for n in (1, 2, 15, 16, 17, 31, 61, 64, 50, 7):  # groups of 16, at any place of the rings
            r.local_bytes[:] = pattern(1 << 16)
            r.remote_bytes[:] = bytes(1 << 16)
            batch, out = batch_of(r, n, size=size), np.zeros(n + 1, WC_DTYPE)
            batch["remote_offset"] = 100 + 70 * np.arange(n)[::-1]
            assert r.queue.run(batch, out) == n
            r.queue.post(batch)
            reaped = np.concatenate([poll_all(r.queue, min(5, n - i)) for i in range(0, n, 5)])
            r.queue.prepare(batch).post()
            again = poll_all(r.queue, n)
            for found in (out[:n], reaped, again, r.queue.prepare(batch).run()):
                assert found["user"].tolist() == batch["user"].tolist()
                assert set(found["size"]) == {size}
                assert not any(found["status"])
                assert (found["submit_ns"] <= found["complete_ns"]).all()
            for record in batch:
                a, b = record["local_offset"], record["remote_offset"]
                assert r.remote_bytes[b : b + size] == r.local_bytes[a : a + size]
            assert sum(map(bool, r.remote_bytes)) <= n * size
            assert r.queue.pending == 0


@pytest.mark.parametrize(
    ("field", "value", "error", "words"),
    [
        ("remote_offset", 1 << 63, BoundsError, "record 20 of 37: remote region"),
        ("local_offset", 4033, BoundsError, "record 20 of 37: local region"),
        ("size", 0, BoundsError, "record 20 of 37: a transfer has 0 bytes"),
        ("local", 5, ClosedError, "record 20 of 37: local region #5 is closed"),
        ("op", 4, ValueError, "record 20 of 37: operation 4"),
    ],
)
@pytest.mark.parametrize("path", ["inline", "worker"])
def test_one_bad_request_among_uniform_ones_refuses_them_all(path, field, value, error, words):
    with rig(path=path, depth=64) as r:
        before = bytes(r.remote_bytes)
        batch = batch_of(r, 37, size=64)
        batch[field][20] = value
        for use in (r.queue.post, lambda b: r.queue.run(b, np.zeros(37, WC_DTYPE))):
            with pytest.raises(error, match=words):
                use(batch)
        assert bytes(r.remote_bytes) == before
        assert r.queue.pending == 0
        batch = batch_of(r, 37, size=64)
        batch["size"][20], batch["op"][21] = 32, 0  # valid, and not uniform
        out = np.zeros(37, WC_DTYPE)
        assert r.queue.run(batch, out) == 37
        assert out["size"].tolist() == batch["size"].tolist()
        assert out["op"].tolist() == batch["op"].tolist()


def test_uniform_requests_to_a_revoked_region_fail_each_with_its_status():
    with rig(path="worker", depth=64) as r:
        batch, out = batch_of(r, 37, size=64), np.zeros(37, WC_DTYPE)
        prepared = r.queue.prepare(batch)
        r.target.close()
        assert r.queue.run(batch, out) == 37
        for found in (out, prepared.run()):
            assert set(found["status"]) == {dgkit.Status.REMOTE_ACCESS_ERROR}
            assert set(found["size"]) == {0}
            assert found["user"].tolist() == batch["user"].tolist()
