# SPDX-License-Identifier: Apache-2.0
"""Access flags of both sides, for each way to post."""

import numpy as np
import pytest
from support.dma import rig

import dgkit
from dgkit.errors import AccessDenied


def record(r, op):
    batch = np.zeros(1, dgkit.WR_DTYPE)
    batch["local"], batch["remote"], batch["size"], batch["op"] = r.local.id, r.remote.id, 8, op
    return batch


def ways(r, op):
    out = np.zeros(1, dgkit.WC_DTYPE)
    q, write = r.queue, op == 1
    parts = [(r.local, 0, 8)]
    return [
        lambda: (q.write if write else q.read)(*r.pair, size=8),
        lambda: (q.write_2d if write else q.read_2d)(*r.pair, size=8),
        lambda: (q.prepare_write if write else q.prepare_read)(*r.pair, size=8),
        lambda: q.gather(parts, r.remote) if write else q.scatter(r.remote, parts),
        lambda: q.post(record(r, op)),
        lambda: q.run(record(r, op), out),
        lambda: q.prepare(record(r, op)),
    ]


@pytest.mark.parametrize(
    ("access", "remote_access", "op", "words"),
    [
        ("rw", "r", 1, "remote region #{remote} is read-only: a write is not allowed"),
        ("rw", "w", 0, "remote region #{remote} is write-only: a read is not allowed"),
        ("w", "rw", 1, "local region #{local} is write-only: it cannot be the source"),
        ("r", "rw", 0, "local region #{local} is read-only: it cannot be the target"),
    ],
)
def test_what_access_forbids_is_denied_and_named(access, remote_access, op, words):
    with rig(access=access, remote_access=remote_access) as r:
        text = words.format(local=r.local.id, remote=r.remote.id)
        for way in ways(r, op):
            with pytest.raises(AccessDenied, match=text):
                way()
        assert r.queue.pending == 0
        assert not any(r.local_bytes)
        assert not any(r.remote_bytes)


@pytest.mark.parametrize(
    ("access", "remote_access", "op"), [("r", "w", 1), ("w", "r", 0), ("rw", "rw", 0)]
)
def test_what_access_allows_is_done(access, remote_access, op):
    with rig(access=access, remote_access=remote_access) as r:
        post = r.queue.write if op else r.queue.read
        assert post(*r.pair, size=8).wait(5).size == 8
