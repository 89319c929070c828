# SPDX-License-Identifier: Apache-2.0
"""GPU memory through dgkit's provider softdoca, and through a session over it.

No BlueField takes part: the GPU's copy engine moves the bytes.
"""

import gc
import os
from itertools import pairwise

import pytest
from support.doca.gpu_memory import IDENTITY, MIB, SIZE, SIZES, TASK, environment
from support.gpu.dpu_work import SLOT, Side, batch_of, digest, here, noise, second, there
from support.processes.children import child, run
from support.processes.waiting import held, steady

import dgkit
from dgkit import Device
from dgkit.memory import libcuda
from dgkit.types import Status

pytestmark = pytest.mark.any_gpu
WHERE = {"one process": here, "two processes": there}
SOFTWARE = "software DPU, softdoca"

# ---- dgkit's provider softdoca ----


@pytest.fixture(scope="module", params=WHERE)
def lent(request):
    """Yield an array registered with softdoca, and a DPU that has imported the region."""
    with dgkit.empty(SIZE, on="gpu") as memory, WHERE[request.param](memory, "softdoca") as do:
        yield Side(memory, do)


@pytest.mark.parametrize("offsets", [(0, 0), (1, 3)])
def test_the_provider_moves_each_size_whole_and_touches_nothing_beside_it(lent, offsets):
    at, far = offsets
    for size in SIZES:
        wanted = lent.set(size)
        read = (digest(wanted[far : far + size]), True)
        assert lent.do(f"dpu.get({size}, {at}, {far})") == str(read)
        assert lent.do(f"dpu.put({size}, {size}, {at}, {far})") == str(size)
        wanted[far : far + size] = noise(size, size)
        assert lent.holds(wanted), (size, at, far)


@pytest.mark.parametrize("n", [1, 7, 8, 200, 2000])
def test_the_provider_moves_each_byte_of_a_batch_once(lent, n):
    assert n * SLOT <= SIZE
    wanted, local = lent.set(n), noise(SIZE, n)
    assert lent.do(f"dpu.many({n}, 1, {n})") == digest(local)
    for record in batch_of(n, 1, n):
        near, far, size = (int(record[key]) for key in ("local_offset", "remote_offset", "size"))
        wanted[far : far + size] = local[near : near + size]
    assert lent.holds(wanted)
    local = noise(SIZE, n + 1)
    for record in batch_of(n, 0, n + 1):
        near, far, size = (int(record[key]) for key in ("local_offset", "remote_offset", "size"))
        local[near : near + size] = wanted[far : far + size]
    assert lent.do(f"dpu.many({n}, 0, {n + 1})") == digest(local)
    assert lent.holds(wanted)


@pytest.mark.parametrize(("rows", "size", "near", "far"), [(2, 1, 3, 5), (500, 8, 8, 64)])
def test_the_provider_moves_rows_to_rows(lent, rows, size, near, far):
    wanted, local = lent.set(rows), noise(SIZE, rows)
    shape = f"rows={rows}, size={size}, local_stride={near}, remote_stride={far}"
    lent.do(f"dpu.fill({rows})")
    assert lent.do(f"dpu.rows('write', {shape})") == str(rows * size)
    for i in range(rows):
        wanted[i * far : i * far + size] = local[i * near : i * near + size]
    assert lent.holds(wanted)


def test_a_waiter_on_the_provider_that_sleeps_is_woken(lent):
    assert lent.do("dpu.asleep(100)") == "100"


def test_the_provider_moves_bytes_between_two_gpu_memories(lent):
    wanted = lent.set(5)
    assert lent.do(f"dpu.by_gpu({4 * MIB})") == str(2 * MIB)
    wanted[4 * MIB : 6 * MIB] = wanted[: 2 * MIB]
    assert lent.holds(wanted)


def test_cycles_leave_both_processes_as_they_were():
    libcuda.require_cupy()
    with (
        dgkit.empty(4096, on="gpu") as first,
        Device("softdoca") as device,
        device.register(first) as region,
        second(region, "softdoca") as dpu,
    ):

        def cycles(n):
            for _ in range(n):
                with dgkit.empty(2 * MIB, on="gpu") as memory, device.register(memory) as lent:
                    assert dpu.ask(f"dpu.cycle({lent.export().hex()!r})") == "done"
            gc.collect()
            return steady(held), steady(lambda: held(dpu.pid))

        before = cycles(5)
        assert cycles(50) == before


# Host memory that softdoca pins and then dgkit's own core does, or the other way round. The first
# unpins it, then a kernel of the second reads it; if it is no longer pinned, the context is lost.
PINNED_TWICE = """
import sys, numpy as np, dgkit
from dgkit import Device, WC_DTYPE, WR_DTYPE
if sys.argv[2] == "doca":
    from dgkit import doca
    doca.use("softdoca")
    doca.version()
host, there = dgkit.empty(65536), dgkit.empty(65536, on="gpu")
host.array[:] = np.arange(65536) % 251

class Use:
    def __init__(self, name):
        self.ends = lender, self.device = Device("soft" if name == "cuda" else name), Device(name)
        lent = lender.register(there)
        self.local, self.far = self.device.register(host), self.device.import_region(lent.export())
        self.ends = self.far, self.local, lent, *self.ends

    def run(self):
        batch, out = np.zeros(1024, WR_DTYPE), np.zeros(1024, WC_DTYPE)
        batch["local"], batch["remote"] = self.local.id, self.far.id
        batch["op"], batch["size"] = 1, 64
        batch["local_offset"] = batch["remote_offset"] = np.arange(1024) * 64
        with self.device.queue(1024) as queue:
            queue.run(batch, out, timeout=20)
        return set(out["status"].tolist())

    def close(self):
        for end in self.ends:
            end.close()

first, second = sys.argv[1].split()
one = Use(first)
print(one.run())
two = Use(second)
one.close()
there.array.fill(0)
there.synchronize()
print(two.run(), (there.array.get() == host.array).all())
two.close()
"""


@pytest.mark.parametrize("order", ["softdoca cuda", "cuda softdoca", "softdoca softdoca"])
@pytest.mark.parametrize("before", ["", "doca"])
def test_memory_that_two_pinned_stays_so_for_the_second(order, before):
    assert run(PINNED_TWICE, order, before).splitlines() == ["{0}", "{0} True"]


OWNER = """
import sys, dgkit
with dgkit.Device("softdoca") as device, dgkit.empty(1 << 20, on="gpu") as memory:
    region = device.register(memory)
    print(region.export().hex(), flush=True)
    sys.stdin.readline()
    print(device, flush=True)
    region.close()
"""


def test_the_provider_takes_a_dma_buf_and_says_that_only_its_identity_counts():
    with child(OWNER, **environment()) as owner, Device("softdoca") as device:
        with device.import_region(bytes.fromhex(owner.line(60)), timeout=10) as far:
            assert far.size == MIB
        assert SOFTWARE in owner.ask("end", 60)
        code, said = owner.end(60)
        assert code == 0, said
        assert f"{IDENTITY}: {MIB} bytes" in said
        assert "is not a dma-buf" not in said


# ---- a session ----


@pytest.fixture(scope="module")
def session():
    libcuda.require_cupy()
    with dgkit.connect(provider="softdoca") as made:
        yield made


@pytest.mark.parametrize("size", [1, 64, 65537, TASK, TASK + 1, 16 * MIB])
def test_a_session_writes_and_reads_gpu_memory(session, size):
    data = os.urandom(size)
    with session.empty(size + 3, on="gpu") as region:
        report = session.write(region, data, offset=3)
        assert (report.status, report.size, report.provider) == (Status.OK, size, "softdoca")
        assert digest(region.array[3:].get()) == digest(data)
        assert session.read(region, size, offset=3) == data
        assert session.read(region, 3) == b"\0\0\0"
        assert session.digest(region, size, offset=3) == digest(data)


def test_a_session_copies_between_memory_of_every_place(session):
    data = os.urandom(3 * MIB + 1)
    with (
        session.empty(len(data)) as host,
        session.empty(len(data), on="gpu") as first,
        session.empty(len(data), on="gpu") as second_one,
        session.empty(len(data), on="pinned") as pinned,
        session.empty(len(data), on="dpu") as dpu,
        session.empty(len(data)) as last,
    ):
        session.write(host, data)
        path = (host, first, second_one, pinned, first, dpu, last)
        for src, dst in pairwise(path):
            assert session.copy(src, dst).size == len(data)
        assert last.array.tobytes() == data


def test_a_session_says_software_dpu_wherever_it_shows_something(session):
    with session.empty(MIB, on="gpu") as region:
        written = session.write(region, b"x")
        latency = session.latency(region, size=4096, count=200)
        rate = session.bandwidth(region, size=65536, seconds=0.1, window=8)
        assert latency.label == rate.label == SOFTWARE
        for shown in (session, written, latency, rate):
            for text in (str(shown), shown._repr_html_()):
                assert "hardware" not in text
                assert "software DPU" in text or shown is written
                assert "softdoca" in text
        assert latency.percentiles.n == 200
        assert rate.failed == 0
        assert rate.bytes == rate.ops * 65536 > 0


# Memory of the second GPU, which is softdoca's from then on; the DPU reaches it as a peer.
SECOND = """
import sys, cupy, dgkit
from support.gpu.dpu_work import second
with dgkit.Device("softdoca") as device:
    with dgkit.empty(4096, on="cuda:1") as there, device.register(there) as region:
        far, here = device.import_region(region.export()), device.register(bytearray(b"x" * 4096))
        with device.queue() as queue:
            print(queue.write(here, far).wait(20).size)
        with cupy.cuda.Device(1):
            print(bytes(there.array[-3:].get()))
        far.close()
        here.close()
        with second(region, "softdoca") as dpu:
            print(dpu.ask("dpu.get(64, 0, 0)[1]"))
        with dgkit.empty(4096, on="cuda:0") as other:
            try:
                device.register(other)
            except dgkit.DgkitError as error:
                print(type(error).__name__, error)
"""


def test_memory_of_another_gpu_than_the_first_is_reached_and_of_two_is_refused(fake_cuda):
    said = run(SECOND, DGKIT_FAKE_CUDA="gpus=2").splitlines()
    assert said[:3] == ["4096", "b'xxx'", "True"]
    assert "is on another GPU than the memory before it" in said[3]
