# SPDX-License-Identifier: Apache-2.0
"""DMA over the memory of a real GPU: CuPy's kernels see each byte, and no other has changed.

tests/support/gpu/driver_cases.py shows that a read-only import is read-only on the GPU: a copy into
such a mapping is INVALID_VALUE, and the context lives. dgkit never asks for such a copy.
"""

import numpy as np
import pytest
from support.gpu.dpu_work import SLOT, Side, batch_of, digest, here, noise, second, there
from support.gpu.memory import MIB

import dgkit
from dgkit import Device
from dgkit.memory import libcuda

pytestmark = pytest.mark.gpu

SIZE = 8 * MIB + 100  # of the array: its block is larger
SIZES = [*range(1, 41), 4095, 4096, 4097, 32767, 32768, 32769, MIB]
WHERE = {"one process": here, "two processes": there}


@pytest.fixture(scope="module", params=WHERE)
def side(request):
    with dgkit.empty(SIZE, on="gpu") as memory, WHERE[request.param](memory) as do:
        yield Side(memory, do)


@pytest.mark.parametrize("offsets", [(0, 0), (8, 16), (1, 3), (7, 64)])
def test_each_size_arrives_whole_and_touches_nothing_beside_it(side, offsets):
    at, far = offsets
    for size in SIZES:
        wanted = side.set(size)
        read = (digest(wanted[far : far + size]), True)
        assert side.do(f"dpu.get({size}, {at}, {far})") == str(read)
        assert side.do(f"dpu.put({size}, {size}, {at}, {far})") == str(size)
        wanted[far : far + size] = noise(size, size)
        assert side.holds(wanted), (size, at, far)


def places(n, op, seed):
    """Where the records of a batch lie, as slices."""
    for record in batch_of(n, op, seed):
        near, far, size = (int(record[key]) for key in ("local_offset", "remote_offset", "size"))
        yield slice(near, near + size), slice(far, far + size)


@pytest.mark.parametrize("n", [1, 7, 8, 256, 2000])
def test_a_batch_of_any_addresses_moves_each_byte_once(side, n):
    assert n * SLOT <= SIZE
    wanted, local = side.set(n), noise(SIZE, n)
    assert side.do(f"dpu.many({n}, 1, {n})") == digest(local)
    for near, far in places(n, 1, n):
        wanted[far] = local[near]
    assert side.holds(wanted)
    local = noise(SIZE, n + 1)
    for near, far in places(n, 0, n + 1):
        local[near] = wanted[far]
    assert side.do(f"dpu.many({n}, 0, {n + 1})") == digest(local)
    assert side.holds(wanted)


def rows_of(memory, at, stride, rows, size):
    return np.lib.stride_tricks.as_strided(memory[at:], (rows, size), (stride, 1))


@pytest.mark.parametrize(
    ("rows", "size", "local_stride", "remote_stride"),
    [(2, 1, 3, 5), (1000, 8, 8, 64), (4096, 64, 100, 64), (50, 5000, 5001, 6000), (500, 8, 0, 12)],
)
def test_rows_go_to_rows(side, rows, size, local_stride, remote_stride):
    shape = (
        f"rows={rows}, size={size}, local_stride={local_stride}, remote_stride={remote_stride}, "
        "local_offset=3, remote_offset=11"
    )
    wanted, local = side.set(rows), noise(SIZE, rows)
    side.do(f"dpu.fill({rows})")
    near, far = (3, local_stride, rows, size), (11, remote_stride, rows, size)
    rows_of(wanted, *far)[:] = rows_of(local, *near)
    assert side.do(f"dpu.rows('write', {shape})") == str(rows * size)
    assert side.holds(wanted)
    if local_stride >= size:  # a read's target may not overlap
        wanted = side.set(rows + 1)
        rows_of(local, *near)[:] = rows_of(wanted, *far)
        assert side.do(f"dpu.rows('read', {shape})") == str(rows * size)
        assert side.do("digest(dpu.array)") == digest(local)
        assert side.holds(wanted)


def test_a_waiter_that_sleeps_is_woken(side):
    assert side.do("dpu.asleep(200)") == "200"


def test_memory_of_the_dpus_own_gpu_goes_both_ways(side):
    wanted = side.set(5)
    assert side.do(f"dpu.by_gpu({MIB})") == str(MIB // 2)
    wanted[MIB : MIB + MIB // 2] = wanted[: MIB // 2]
    assert side.holds(wanted)


def test_a_read_only_import_is_read_and_not_written(side):
    wanted = side.set(6)
    with Device() as device, device.register(side.memory) as region:
        assert side.do(f"dpu.open({region.export('r').hex()!r})") == str(SIZE)
        said = side.do("dpu.queue.write(dpu.local, dpu.opened[-1], size=8)")
        assert said.startswith("AccessDenied")
        read = "dpu.queue.read(dpu.local, dpu.opened[-1], size=4096).wait(20).size"
        assert side.do(read) == "4096"
        assert side.do("digest(dpu.array[:4096])") == digest(wanted[:4096])
        assert side.do("dpu.opened.pop().close()") == "None"
    assert side.holds(wanted)


def test_arrays_of_a_pool_cross_with_their_block():
    cupy = libcuda.require_cupy()
    whole = cupy.zeros(3 * 5120, "u1")
    parts = [dgkit.wrap(whole[at : at + 5000], share_block=True) for at in (0, 5120, 10240)]
    with (
        Device() as device,
        device.register(parts[1]) as one,
        device.register(parts[2]) as two,
        second(one) as dpu,
    ):
        assert dpu.ask("dpu.put(1, 4999, 0, 1)") == "4999"
        assert dpu.ask(f"dpu.open({two.export().hex()!r})") == "5000"
        write = "dpu.queue.write(dpu.local, dpu.opened[-1], size=100).wait(20).size"
        assert dpu.ask(write) == "100"
        assert dpu.ask("dpu.opened.pop().close()") == "None"
        assert dpu.ask("dpu.put(2, 1, 0, 0)") == "1"  # the block is still mapped
    wanted = np.zeros(3 * 5120, "u1")
    wanted[5120], wanted[5121:10120] = noise(1, 2)[0], noise(4999, 1)
    wanted[10240:10340] = noise(4999, 1)[:100]
    assert np.array_equal(whole.get(), wanted)
