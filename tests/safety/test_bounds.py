# SPDX-License-Identifier: Apache-2.0
"""Out of bounds: by one byte, by 2^63, by overflow; for each way to post, on each side."""

import numpy as np
import pytest
from support.dma import rig

import dgkit
from dgkit.errors import BoundsError

SIZE = 4096
# (local_offset, remote_offset, size), each outside.
OUTSIDE = [
    (0, 0, SIZE + 1),
    (1, 0, SIZE),
    (0, 1, SIZE),
    (SIZE, 0, 1),
    (0, SIZE, 1),
    (SIZE + 1, 0, 1),
    (0, 0, 1 << 63),
    (0, 0, (1 << 64) - 1),
    (1 << 63, 0, 1),
    (0, 1 << 63, 1 << 63),
    ((1 << 64) - 1, 0, 1),
    (0, (1 << 64) - 1, 2),
    ((1 << 64) - 8, 0, 64),
]


@pytest.fixture(scope="module")
def r():
    with rig(size=SIZE) as opened:
        yield opened


def posts(r):
    """Every way to post one operation."""
    batch, out = np.zeros(1, dgkit.WR_DTYPE), np.zeros(1, dgkit.WC_DTYPE)
    batch["local"], batch["remote"], batch["op"] = r.local.id, r.remote.id, 1

    def filled(here, there, size):
        batch["local_offset"], batch["remote_offset"], batch["size"] = here, there, size
        return batch

    def shape(here, there, size):
        return {"local_offset": here, "remote_offset": there, "size": size}

    q, pair = r.queue, r.pair
    return {
        "write": lambda *a: q.write(*pair, **shape(*a)),
        "read": lambda *a: q.read(*pair, **shape(*a)),
        "write_2d": lambda *a: q.write_2d(*pair, **shape(*a)),
        "read_2d": lambda *a: q.read_2d(*pair, **shape(*a)),
        "prepare_write": lambda *a: q.prepare_write(*pair, **shape(*a)),
        "prepare_read": lambda *a: q.prepare_read(*pair, **shape(*a)),
        "gather": lambda h, t, n: q.gather([(r.local, h, n)], r.remote, remote_offset=t),
        "scatter": lambda h, t, n: q.scatter(r.remote, [(r.local, h, n)], remote_offset=t),
        "post": lambda *a: q.post(filled(*a)),
        "run": lambda *a: q.run(filled(*a), out),
        "prepare": lambda *a: q.prepare(filled(*a)),
    }


WAYS = (
    *("write", "read", "write_2d", "read_2d", "prepare_write", "prepare_read"),
    *("gather", "scatter", "post", "run", "prepare"),
)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(("here", "there", "size"), OUTSIDE)
def test_outside_is_refused_and_names_region_offset_size_and_limit(r, way, here, there, size):
    with pytest.raises(BoundsError) as info:
        posts(r)[way](here, there, size)
    text = str(info.value)
    side, offset, region = (
        ("local", here, r.local) if here + size > SIZE else ("remote", there, r.remote)
    )
    assert f"{side} region #{region.id}" in text
    assert f"offset {offset:,}" in text
    assert f"size {size:,}" in text
    assert f"size of {SIZE:,} bytes" in text
    assert r.queue.pending == 0
    assert not any(r.local_bytes)
    assert not any(r.remote_bytes)


@pytest.mark.parametrize("way", WAYS)
def test_the_very_last_byte_is_inside(r, way):
    given = posts(r)[way](SIZE - 1, SIZE - 1, 1)
    if hasattr(given, "wait"):
        assert given.wait(5).size == 1
    elif hasattr(given, "close"):
        given.close()
    out = np.zeros(1, dgkit.WC_DTYPE)
    while r.queue.pending:
        r.queue.poll(out, timeout=1)


@pytest.mark.parametrize("rows", [2, 3, 1 << 31, (1 << 32) - 1])
@pytest.mark.parametrize("stride", [SIZE, 1 << 32, 1 << 62, 1 << 63, (1 << 64) - 1])
@pytest.mark.parametrize("side", ["local_stride", "remote_stride"])
def test_rows_outside_are_refused_also_where_the_product_overflows(r, rows, stride, side):
    shape = {"size": 1, "rows": rows, "local_stride": 0, "remote_stride": 1, side: stride}
    with pytest.raises(BoundsError, match=rf"{side[:-7]} region|{rows} rows"):
        r.queue.write_2d(*r.pair, **shape)


def test_a_region_of_a_part_ends_where_the_part_ends():
    with rig() as r:
        part = r.device.register(r.remote_bytes, offset=100, size=8)
        remote = r.device.import_region(part.export())
        with pytest.raises(BoundsError, match="size of 8 bytes"):
            r.queue.write(r.local, remote, size=9)
        r.local_bytes[:8] = b"x" * 8
        r.queue.write(r.local, remote, size=8).wait(5)
        assert r.remote_bytes[98:110] == b"\0\0" + b"x" * 8 + b"\0\0"
