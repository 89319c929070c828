# SPDX-License-Identifier: Apache-2.0
"""Prepared operations and batches."""

import gc

import numpy as np
import pytest
from support.dma import pattern, rig

import dgkit
from dgkit import WC_DTYPE, WR_DTYPE, FaultRule, Op, Status
from dgkit.errors import BoundsError, ClosedError, QueueFull


@pytest.fixture(
    params=[("soft", "auto"), ("soft", "inline"), ("soft", "worker"), ("fault", "auto")]
)
def r(request):
    with rig(request.param[0], path=request.param[1]) as opened:
        opened.local_bytes[:] = pattern(4096)
        yield opened


def records(r, n):
    batch = np.zeros(n, WR_DTYPE)
    batch["local"], batch["remote"] = r.local.id, r.remote.id
    batch["size"], batch["op"], batch["user"] = 16, 1, np.arange(n)
    batch["local_offset"] = batch["remote_offset"] = np.arange(n) * 16
    return batch


def test_it_says_what_it_does_and_whether_it_is_closed(r):
    op = r.queue.prepare_read(*r.pair, size=8, rows=3, local_stride=16, remote_stride=16)
    batch = r.queue.prepare(records(r, 5))
    where = f"on {r.device.provider}, {r.queue.path}"
    assert repr(op) == f"<dgkit.PreparedOp read of 3 rows of 8 bytes {where}>"
    assert repr(batch) == f"<dgkit.PreparedBatch of 5 records {where}>"
    for prepared, what in ((op, "read of 3 rows of 8 bytes"), (batch, "5 records")):
        assert what in prepared._repr_html_()
        prepared.close()
        assert repr(prepared).endswith(", closed>")
        assert "Prepared (closed)" in prepared._repr_html_()


def test_run_moves_the_bytes_each_time(r):
    with r.queue.prepare_write(*r.pair, size=8, local_offset=4, remote_offset=100, user=9) as op:
        for first in (1, 2, 3):
            r.local_bytes[4] = first
            done = op.run()
            assert (done.status, done.size, done.op, done.user) == (Status.OK, 8, Op.WRITE, 9)
            assert r.remote_bytes[100:108] == r.local_bytes[4:12]
        assert done is op.completion
    with r.queue.prepare_read(*r.pair, size=8, remote_offset=100) as op:
        assert op.run().op is Op.READ
        assert r.local_bytes[:8] == r.remote_bytes[100:108]


def test_post_completes_in_poll_with_its_user(r):
    out = np.zeros(8, WC_DTYPE)
    with r.queue.prepare_write(*r.pair, size=8, user=77) as op:
        for _ in range(5):
            op.post()
        got = 0
        while got < 5:
            got += r.queue.poll(out[got:], timeout=5)
        assert out["user"][:5].tolist() == [77] * 5
    assert r.queue.pending == 0


def test_post_to_a_full_queue_is_refused():
    with (
        rig("fault", depth=2, rules=[FaultRule("lose")]) as r,
        r.queue.prepare_write(*r.pair, size=8) as op,
    ):
        op.post()
        op.post()
        for use in (op.post, op.run):
            with pytest.raises(QueueFull, match="2"):
                use()


@pytest.mark.parametrize(
    ("shape", "error", "words"),
    [
        ({"size": 0}, ValueError, "size is 0; it must be 1 or more"),
        ({"size": 1.5}, TypeError, r"size is 1\.5"),
        ({}, TypeError, "size is missing"),
        ({"size": 8, "speed": 1}, TypeError, "unknown fields: speed"),
        ({"size": 8, "user": -1}, BoundsError, "user is -1"),
    ],
)
def test_preparing_nonsense_is_refused(shape, error, words):
    with rig() as r:
        for prepare in (r.queue.prepare_write, r.queue.prepare_read):
            with pytest.raises(error, match=words):
                prepare(*r.pair, **shape)


def test_a_failure_raises_and_carries_the_completion():
    with (
        rig("fault", rules=[FaultRule("error", skip=1)]) as r,
        r.queue.prepare_write(*r.pair, size=8) as op,
    ):
        assert op.run().status is Status.OK
        with pytest.raises(dgkit.TransferError, match="IO_FAILED") as info:
            op.run()
        assert info.value.completion.status is Status.IO_FAILED


@pytest.mark.parametrize("what", ["op", "batch"])
def test_close_is_idempotent_and_use_after_it_is_a_closed_error(what):
    with rig() as r:
        prepared = (
            r.queue.prepare_write(*r.pair, size=8)
            if what == "op"
            else r.queue.prepare(records(r, 2))
        )
        prepared.close()
        prepared.close()
        for use in (prepared.run, prepared.post, prepared.__enter__):
            with pytest.raises(ClosedError, match="this prepared operation is closed"):
                use()


@pytest.mark.parametrize("closed", ["local", "remote", "queue"])
def test_what_it_needs_being_closed_is_a_closed_error(closed):
    with rig() as r:
        op, batch = r.queue.prepare_write(*r.pair, size=8), r.queue.prepare(records(r, 2))
        getattr(r, closed).close()
        for use in (op.run, op.post, batch.run, batch.post):
            with pytest.raises(ClosedError, match=f"{closed}.* is closed"):
                use()


def test_a_completion_outlives_its_prepared_operation():
    with rig() as r:
        kept = [r.queue.prepare_write(*r.pair, size=1 + i).run() for i in range(300)]
        gc.collect()
        assert [c.size for c in kept] == [1 + i for i in range(300)]
        op = r.queue.prepare_write(*r.pair, size=5)
        done = op.run()
        op.close()
        others = [r.queue.prepare_write(*r.pair, size=9) for _ in range(50)]
        assert done.size == op.completion.size == 5
        del others


def test_completions_of_a_batch_outlive_it():
    with rig() as r:
        kept = [r.queue.prepare(records(r, 1 + i % 9)).run() for i in range(300)]
        gc.collect()
        for i, wcs in enumerate(kept):
            assert wcs["user"].tolist() == list(range(1 + i % 9))
            assert set(wcs["size"]) == {16}
        batch = r.queue.prepare(records(r, 4))
        view = batch.run()[1:]
        batch.close()
        r.queue.prepare(records(r, 4)[::-1].copy())
        assert view["user"].tolist() == [1, 2, 3]
        assert batch.completions["user"].tolist() == [0, 1, 2, 3]


def test_a_prepared_batch_runs_again_and_again(r):
    batch = records(r, 8)
    with r.queue.prepare(batch) as prepared:
        batch["size"] = 0
        for first in (1, 2, 3):
            r.local_bytes[0] = first
            wcs = prepared.run()
            assert wcs is prepared.completions
            assert wcs["user"].tolist() == list(range(8))
            assert set(wcs["status"]) == {Status.OK}
            assert r.remote_bytes[:128] == r.local_bytes[:128]
        with pytest.raises(ValueError, match="read-only"):
            wcs["user"] = 1


def test_a_batch_of_nothing_or_of_too_much_cannot_be_prepared():
    with rig(depth=4) as r:
        for n in (0, 5):
            with pytest.raises(
                ValueError, match=f"cannot prepare {n} records: a queue of depth 4 takes 1 to 4"
            ):
                r.queue.prepare(records(r, n))
