# SPDX-License-Identifier: Apache-2.0
"""Batches by a GPU: any addresses, fences, chains, rows; by a kernel where they are many."""

import time

import numpy as np
import pytest
from support.gpu.remote_region import MIB, completions, move, noise, records, rig

from dgkit import WC_DTYPE, Status

FENCE = 1
BY_KERNEL = 4  # in the flags of a completion
SLOT = 5000  # bytes, more than the largest operation of a batch has
SIZES = [1, 2, 3, 7, 8, 9, 16, 24, 63, 64, 65, 100, 512, 1000, 4095, 4096, 4097]


@pytest.fixture(params=["one process", "two processes"], scope="module")
def made(request):
    with rig(request.param, size=6 * MIB, depth=2048) as opened:
        yield opened


@pytest.fixture
def r(made, fake_cuda):
    made.local_bytes[:], made.remote_bytes[:] = (
        noise(len(made.local_bytes), 1),
        noise(len(made.remote_bytes), 2),
    )
    return made


def apart(r, n, rng, sizes=SIZES):
    """n records whose targets are apart from all else, in any order: reads and writes."""
    batch = records(r, n)
    batch["size"] = rng.choice(sizes, n)
    batch["op"] = rng.integers(0, 2, n)
    room = SLOT - batch["size"]
    batch["local_offset"] = rng.permutation(n) * SLOT + rng.integers(0, room)
    batch["remote_offset"] = rng.permutation(n) * SLOT + rng.integers(0, room)
    return batch


def wanted(r, batch):
    """What both sides hold when each record was done in turn."""
    here, there = r.local_bytes.copy(), r.remote_bytes.copy()
    for record in batch:
        move(here, there, record)
    return here, there


def holds(r, here, there):
    return np.array_equal(r.local_bytes, here) and np.array_equal(r.remote_bytes, there)


def check_all(batch, out):
    assert set(out["status"]) == {Status.OK}
    by_user = {int(c["user"]): c for c in out}
    for record in batch:
        done = by_user[int(record["user"])]
        assert (done["size"], done["op"]) == (record["size"], record["op"])


@pytest.mark.parametrize("n", [1, 7, 8, 256, 1000])
@pytest.mark.parametrize("most", [64, 4096, 5000])
@pytest.mark.parametrize("how", ["post", "run", "prepared"])
def test_a_batch_of_any_addresses_moves_each_byte_once(r, fake_cuda, n, most, how):
    rng = np.random.default_rng(n + most)
    batch = apart(r, n, rng, [size for size in SIZES if size <= most])
    here, there = wanted(r, batch)
    fake_cuda.order("")
    if how == "post":
        r.queue.post(batch)
        out = completions(r.queue, n)
    elif how == "run":
        out = np.zeros(n, WC_DTYPE)
        assert r.queue.run(batch, out, timeout=20) == n
    else:
        with r.queue.prepare(batch) as prepared:
            out = prepared.run()
    if how != "post":
        assert out["user"].tolist() == batch["user"].tolist()
    check_all(batch, out)
    assert holds(r, here, there)
    assert r.queue.pending == 0


def run_until_kernel(r, fake_cuda, batch):
    """Runs a batch until a kernel copies part of it: once the GPU has answered sooner than copies.

    Returns the completions.
    """
    out, end = np.zeros(len(batch), WC_DTYPE), time.monotonic() + 60
    fake_cuda.order("copy_us=50")
    while not (out["flags"] & BY_KERNEL).any():
        assert time.monotonic() < end
        assert r.queue.run(batch, out, timeout=20) == len(batch)
    fake_cuda.order("")
    return out


@pytest.mark.parametrize("n", [8, 256])
@pytest.mark.parametrize("most", [64, 4096])
def test_a_batch_that_a_kernel_copies_moves_each_byte_once(r, fake_cuda, n, most):
    batch = apart(r, n, np.random.default_rng(n), [size for size in SIZES if size <= most])
    here, there = wanted(r, batch)
    out = run_until_kernel(r, fake_cuda, batch)
    assert (out["flags"] & BY_KERNEL).all()
    check_all(batch, out)
    assert holds(r, here, there)


def fenced(r, n, rng, slots):
    """n records in few slots; each that meets one since the last fence has a fence."""
    batch = records(r, n)
    near, far = rng.integers(0, slots, n), rng.integers(0, slots, n)
    batch["size"], batch["op"] = rng.choice([1, 8, 13, 100, 4096, 4900], n), rng.integers(0, 2, n)
    batch["local_offset"] = near * SLOT + rng.integers(0, 100, n)
    batch["remote_offset"] = far * SLOT + rng.integers(0, 100, n)
    used = set()
    for i in range(n):
        sides = {("near", near[i]), ("far", far[i])}
        if used & sides:
            batch["flags"][i] |= FENCE
            used = set()
        used |= sides
    return batch


@pytest.mark.parametrize("slots", [2, 40])
def test_what_has_a_fence_comes_after_all_before_it(r, slots):
    rng = np.random.default_rng(slots)
    for _ in range(10):
        batch = fenced(r, 200, rng, slots)
        assert (batch["flags"] & FENCE).any()
        here, there = wanted(r, batch)
        r.queue.post(batch)
        check_all(batch, completions(r.queue, len(batch)))
        assert holds(r, here, there)


def test_a_batch_over_several_regions_goes_to_each_of_them(r, fake_cuda):
    rng = np.random.default_rng(8)
    with r.device.register(bytearray(noise(4000, 3).tobytes())) as other:
        batch = apart(r, 40, rng, sizes=[8, 24, 90])
        batch["op"] = 1
        batch["local"][::2] = other.id
        batch["local_offset"][::2] = np.arange(20) * 100
        there = r.remote_bytes.copy()
        for record in batch:
            source = r.local_bytes
            if record["local"] == other.id:
                source = np.frombuffer(other.memory, "u1")
            move(source, there, record)
        out = np.zeros(40, WC_DTYPE)
        r.queue.run(batch, out, timeout=20)
        check_all(batch, out)
        assert np.array_equal(r.remote_bytes, there)
        check_all(batch, run_until_kernel(r, fake_cuda, batch))
        assert np.array_equal(r.remote_bytes, there)
        del source


def test_a_kernel_that_is_refused_fails_its_records_and_no_others(r, fake_cuda):
    batch = apart(r, 16, np.random.default_rng(12), sizes=[8])
    batch["local_offset"] -= batch["local_offset"] % SLOT
    batch["remote_offset"] -= batch["remote_offset"] % SLOT
    batch["size"][10] = 4900  # not for the kernel: 10 before it are, and 5 behind it are too few
    kept, end = (r.local_bytes.copy(), r.remote_bytes.copy()), time.monotonic() + 60
    out = np.zeros(16, WC_DTYPE)
    while not out["status"].any():  # a copy engine may have copied it
        assert time.monotonic() < end
        run_until_kernel(r, fake_cuda, batch)
        for side, before in zip((r.local_bytes, r.remote_bytes), kept, strict=True):
            side[: 16 * SLOT] = before[: 16 * SLOT]  # soon: what was measured is soon forgotten
        fake_cuda.order("cuLaunchKernel=701")  # CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES
        assert r.queue.run(batch, out, timeout=20) == 16
        fake_cuda.order("")
    here, there = kept
    for record in batch[10:]:
        move(here, there, record)
    assert out["status"].tolist() == [Status.IO_FAILED] * 10 + [Status.OK] * 6
    assert out["size"][:10].tolist() == [0] * 10
    assert holds(r, here, there)
    assert r.queue.run(batch, out, timeout=20) == 16
    check_all(batch, out)
