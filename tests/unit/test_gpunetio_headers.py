# SPDX-License-Identifier: Apache-2.0
"""softdoca's GPUNetIO device headers on the emulated GPU, and the software NIC that serves them.

Entries are as in rdma-core's mlx5dv.h: control, remote address, atomic and data segments.
"""

import errno
import shutil
import struct
import subprocess
from pathlib import Path

import numpy as np
import pytest

import dgkit
from dgkit.gpu_initiated import emulate

HEADERS = Path(__file__).parents[2] / "native/softdoca/include"
SOURCE = r"""
#include <doca_gpunetio_dev_dma.cuh>
#include <doca_gpunetio_dev_eth_rxq.cuh>
#include <doca_gpunetio_dev_eth_txq.cuh>
#include <doca_gpunetio_dev_verbs_counter.cuh>
#include <doca_gpunetio_dev_verbs_twosided.cuh>
typedef doca_gpu_dev_verbs_qp Qp;
typedef doca_gpu_dev_verbs_addr Addr;
#define VERBS(name) DOCA_GPUNETIO_VERBS_##name
#define SHARED	    VERBS(RESOURCE_SHARING_MODE_GPU)
#define AUTO	    VERBS(NIC_HANDLER_AUTO)

extern "C" __global__ void entries(uint8_t *m)
{
    Qp *q = (Qp *)m;
    q->sq_num_shift8 = 0x123456 << 8;
    q->sq_wqe_daddr = m + 1024;
    q->sq_wqe_mask = 63;
    const auto flags = DOCA_GPUNETIO_MLX5_WQE_CTRL_CQ_UPDATE;
    const uint64_t r = 0x1122334455667788, l = 0x99aabbccddeeff00;
    const uint32_t rk = __builtin_bswap32(0x01020304), lk = __builtin_bswap32(0x0a0b0c0d);
    auto at = [=](uint16_t i) { return doca_gpu_dev_verbs_get_wqe_ptr(q, i); };
    doca_gpu_dev_verbs_wqe_prepare_nop(q, at(64), 0xabcd, flags);
    doca_gpu_dev_verbs_wqe_prepare_write(q, at(1), 0xabcd, DOCA_GPUNETIO_MLX5_OPCODE_RDMA_WRITE_IMM,
                                         flags, 0xdeadbeef, r, rk, l, lk, 77);
    doca_gpu_dev_verbs_wqe_prepare_write(q, at(2), 0xabcd, DOCA_GPUNETIO_MLX5_OPCODE_RDMA_WRITE,
                                         flags, 0, r, rk, l, lk, 8, l + 1, lk, 9);
    doca_gpu_dev_verbs_wqe_prepare_read(q, at(3), 0xabcd, flags, r, rk, l, lk, 77);
    doca_gpu_dev_verbs_wqe_prepare_atomic(q, at(4), 0xabcd, DOCA_GPUNETIO_MLX5_OPCODE_ATOMIC_FA,
                                          flags, r, rk, l, lk, 8, 5, 6);
    doca_gpu_dev_verbs_wqe_prepare_atomic(q, at(5), 0xabcd, DOCA_GPUNETIO_MLX5_OPCODE_ATOMIC_CS,
                                          flags, r, rk, l, lk, 8, 5, 6);
    doca_gpu_dev_verbs_wqe_prepare_wait(q, at(6), 0xabcd, flags, 0x10203, 0x405);
    doca_gpu_dev_verbs_wqe_prepare_dump(q, at(7), 0xabcd, flags, l, lk, 1);
    doca_gpu_dev_verbs_wqe_prepare_write_inl(q, at(8), 0xabcd, flags, r, rk, (uint64_t)&lk, 4);
}

/* The only CQE says that 69,999 is the newest entry that has completed, or that it has failed. */
extern "C" __global__ void collapsed(uint8_t *m, int opcode, int64_t *out)
{
    Qp *q = (Qp *)m;
    auto *cqe = (doca_gpunetio_ib_mlx5_cqe64 *)(m + 512);
    q->sq_wqe_pi = 70002;
    q->cq_sq.cqe_ci = 69000;
    q->cq_sq.cqe_daddr = m + 512;
    q->cq_sq.cqe_num = 64;
    cqe->wqe_counter = __builtin_bswap16(69999 & 0xffff);
    cqe->op_own = opcode << 4;
    out[0] = doca_gpu_dev_verbs_poll_cq_collapsed_at(q, 69990);
    out[1] = q->cq_sq.cqe_ci;
    out[2] = doca_gpu_dev_verbs_poll_cq_collapsed_at(q, 70000);
}

__device__ void count(uint64_t *out, uint64_t n)
{
    atomicAdd((unsigned long long *)out, n);
}

/* Each thread has 256 bytes. */
extern "C" __global__ void post(Qp *q, Qp *companion, uint8_t *data, uint32_t key, int rounds,
                                uint64_t *out)
{
    const unsigned me = threadIdx.x;
    const uint64_t mine = (uint64_t)data + 256 * me, sum = (uint64_t)data + 256 * blockDim.x;
    auto at = [=](uint64_t address) { return Addr{address, key}; };
    uint64_t t, *word = (uint64_t *)mine;
    for (int i = 1; i <= rounds; i++) {
        word[0] = me << 8 | i;
        doca_gpu_dev_verbs_put<SHARED, AUTO, VERBS(EXEC_SCOPE_WARP)>(q, at(mine + 8), at(mine),
                                                                     8, &t);
        doca_gpu_dev_verbs_wait(q, t);
        count(out, word[1] != word[0]);
        doca_gpu_dev_verbs_p<uint64_t>(q, at(mine + 16), word[0] + 1, &t);
        doca_gpu_dev_verbs_get<SHARED, AUTO, VERBS(EXEC_SCOPE_THREAD), VERBS(MCST_ENABLED),
                               VERBS(BLOCKING_MODE_ENABLED)>(
            q, at(mine + 16), at(mine + 24), 8, at(mine), &t);
        count(out, word[3] != word[0] + 1);
        doca_gpu_dev_verbs_put_signal<VERBS(SIGNAL_OP_ADD)>(
            q, at(mine + 32), at(mine), 8, at(sum), at(mine + 40), 1);
        doca_gpu_dev_verbs_put_counter(q, at(mine + 48), at(mine), 0, companion, at(sum + 8),
                                       at(mine + 40), 1);
        doca_gpu_dev_verbs_send(q, at(mine), 8, &t);
        doca_gpu_dev_verbs_wait(q, t);
    }
    doca_gpu_dev_verbs_wait(companion);
}

extern "C" __global__ void receive(Qp *q, uint8_t *data, uint32_t key, int rounds, uint64_t *out)
{
    const uint64_t mine = (uint64_t)data + 16384 + 256 * threadIdx.x;
    doca_gpunetio_ib_mlx5_cqe64 *cqe;
    for (int i = 0; i < rounds; i++) {
        uint64_t t, *got = (uint64_t *)mine;
        doca_gpu_dev_verbs_recv(q, Addr{mine, key}, 256, &t);
        count(out, doca_gpu_dev_verbs_recv_wait(q, Addr{mine, key}, &t, &cqe) != 0);
        count(out, doca_gpu_dev_verbs_wait_recv(q, t, Addr{mine, key}) != 0); /* DOCA 3.1 */
        count(out, doca_gpu_dev_verbs_cqe_get_bytes(cqe) != 8);
        if (doca_gpu_dev_verbs_cqe_is_inline(cqe))
            got = (uint64_t *)doca_gpu_dev_verbs_cqe_get_inl_data(cqe);
        count(out + 1, *got);
    }
    count(out, doca_gpu_dev_verbs_recv_wait<SHARED, AUTO, VERBS(MCST_ENABLED)>(
        q, Addr{mine, key}, &cqe) != 0);
}

/* Thread i copies elements i, i + all, ... of the first half of an array to the second half. Nobody
 * commits before all are posted, which may be more than the ring has. */
extern "C" __global__ void copies(doca_gpu_dma *dma, doca_gpu_buf *bufs, uint64_t n, uint64_t *out)
{
    const doca_gpu_buf_arr array{2 * n, bufs};
    doca_gpu_buf *from, *to;
    for (uint64_t i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) {
        count(out, doca_gpu_dev_buf_get_buf(&array, i, &from) ||
                       doca_gpu_dev_buf_get_buf(&array, n + i, &to) ||
                       doca_gpu_dev_dma_memcpy(dma, from, 1, to, 2, from->size - 2));
        count(out + 1, doca_gpu_dev_dma_memcpy(dma, from, 1, to, 0, from->size) ==
                           DOCA_ERROR_INVALID_VALUE);
        count(out + 2, doca_gpu_dev_dma_memcpy(dma, from, 0, to, UINT64_MAX, 1) ==
                           DOCA_ERROR_INVALID_VALUE);
    }
    count(out + 3, doca_gpu_dev_buf_get_buf(&array, 2 * n, &to) == DOCA_ERROR_INVALID_VALUE);
    __syncthreads();
    if (threadIdx.x == 0)
        doca_gpu_dev_dma_commit(dma);
}

/* Takes up to `most` packets of a queue of 8, of which 5 are there. */
extern "C" __global__ void take(uint8_t *m, uint32_t most, int64_t *out)
{
    auto *rxq = (doca_gpu_eth_rxq *)m;
    auto *words = (doca_gpu_dev_eth_rxq_words *)(m + 256);
    uint64_t first;
    uint32_t taken;
    *rxq = {.entries = 8, .ring = (doca_gpu_dev_eth_rxq_entry *)(m + 512), .words = words};
    words->producer = 5;
    out[0] = doca_gpu_dev_eth_rxq_recv(rxq, most, 0, &first, &taken, nullptr);
    out[1] = taken;
    out[2] = rxq->next;
}

/* Up to DOCA 3.1: each of four threads sends its packet, twice, from entry 65,532 on. */
extern "C" __global__ void enqueue(uint8_t *m, int strong, int64_t *out)
{
    auto *txq = (doca_gpu_eth_txq *)m;
    auto *words = (doca_gpu_dev_eth_txq_words *)(m + 256);
    doca_gpu_buf buf{1000 + threadIdx.x, 60, 7, 0};
    uint32_t position, mask;
    if (threadIdx.x == 0) {
        *txq = {65532, 65532, 65532, 8, (doca_gpu_dev_eth_txq_wqe *)(m + 512), words};
        words->producer = words->done = words->completions = 65532;
        words->failed = UINT64_MAX;
    }
    __syncthreads();
    for (int i = 0; i < 2; i++) {
        doca_gpu_dev_eth_txq_get_info(txq, &position, &mask);
        __syncthreads();
        if (strong)
            doca_gpu_dev_eth_txq_send_enqueue_strong(txq, &buf, 60, DOCA_GPU_SEND_FLAG_NOTIFY);
        else
            doca_gpu_dev_eth_txq_send_enqueue_weak(txq, &buf, 60,
                                                   (position + threadIdx.x) & mask, 0);
        __syncthreads();
        if (threadIdx.x == 0) {
            out[i] = words->producer; /* nothing is sent yet */
            if (strong)
                doca_gpu_dev_eth_txq_commit_strong(txq);
            else
                doca_gpu_dev_eth_txq_commit_weak(txq, blockDim.x);
            doca_gpu_dev_eth_txq_push(txq);
        }
        __syncthreads();
    }
    out[2] = words->producer;
    out[3] = doca_gpu_dev_eth_txq_send_enqueue_strong(txq, &buf, 61, 0);
}

extern "C" __global__ void receive_block(uint8_t *m, int64_t *out)
{
    auto *rxq = (doca_gpu_eth_rxq *)m;
    auto *words = (doca_gpu_dev_eth_rxq_words *)(m + 256);
    __shared__ uint64_t first;
    __shared__ uint32_t taken;
    doca_gpu_buf *buf;
    if (threadIdx.x == 0) {
        *rxq = {.next = 14, .released = 14, .entries = 8,
                .ring = (doca_gpu_dev_eth_rxq_entry *)(m + 512), .words = words,
                .bufs = (doca_gpu_buf *)(m + 1024)};
        words->producer = 17;
    }
    __syncthreads();
    if (!doca_gpu_dev_eth_rxq_receive_block(rxq, 0, 0, &taken, &first) && threadIdx.x < taken) {
        doca_gpu_dev_eth_rxq_get_buf(rxq, first + threadIdx.x, &buf);
        out[threadIdx.x] = buf - rxq->bufs;
    }
}

/* A wrong key, then more entries than the rings have. */
extern "C" __global__ void wrong(Qp *q, uint8_t *data, uint32_t key, int rounds, uint64_t *out)
{
    for (int i = 0; i < rounds; i++) {
        uint64_t t;
        const Addr right{(uint64_t)data, key}, wrong{(uint64_t)data, key + 1};
        doca_gpu_dev_verbs_put(q, i == 3 ? wrong : right, right, 8, &t);
        count(out, doca_gpu_dev_verbs_poll_cq_at(doca_gpu_dev_verbs_qp_get_cq_sq(q), t) == -EIO);
    }
}
"""
R, L, FLAGS = (0x1122334455667788, 0x01020304), (0x99AABBCCDDEEFF00, 0x0A0B0C0D), 8
WRITE, WRITE_IMM, WAIT, READ, SWAP, ADD, DUMP = 0x08, 0x09, 0x0F, 0x10, 0x11, 0x12, 0x23


def entry(opcode, *segments, immediate=0):
    """Return an entry of 64 bytes; an immediate is stored as it is given."""
    first, second = 0xABCD << 8 | opcode, 0x123456 << 8 | 1 + len(segments)
    control = struct.pack(">IIIxxxx", first, second, FLAGS)[:12] + struct.pack("<I", immediate)
    return (control + b"".join(segments)).ljust(64, b"\0")


def remote(place):
    return struct.pack(">QII", *place, 0)


def data(size, place=L, offset=0):
    return struct.pack(">IIQ", size, place[1], place[0] + offset)


@pytest.fixture(scope="module")
def module():
    return emulate(SOURCE, options=[f"-I{HEADERS}", "-DSOFTDOCA_DOCA=0"])


def test_entries_have_the_bytes_of_mlx5(module):
    memory = np.zeros(1024 + 64 * 9, "u1")
    module["entries"](1, 1, (memory,))
    expected = [
        entry(0),
        entry(WRITE_IMM, remote(R), data(77), immediate=0xDEADBEEF),
        entry(WRITE, remote(R), data(8), data(9, offset=1)),
        entry(READ, remote(R), data(77)),
        entry(ADD, remote(R), struct.pack(">QQ", 5, 5), data(8)),
        entry(SWAP, remote(R), struct.pack(">QQ", 6, 5), data(8)),
        entry(WAIT, struct.pack(">QII", 0, 0x10203, 0x405)),
        entry(DUMP, data(1)),
        entry(WRITE, remote(R), struct.pack(">II8x", 1 << 31 | 4, L[1])),
    ]
    written = memory[1024:].reshape(9, 64)
    assert [row.tobytes().hex(" ", 16) for row in written] == [e.hex(" ", 16) for e in expected]


@pytest.mark.parametrize(("most", "taken"), [(0, 5), (3, 3), (5, 5), (6, 5)])
def test_a_receive_takes_at_most_so_many_packets_and_all_without_a_limit(module, most, taken):
    memory, out = np.zeros(1024, "u1"), np.zeros(3, "i8")
    module["take"](1, 1, (memory, np.uint32(most), out), timeout=10)
    assert out.tolist() == [0, taken, taken]


ATTRIBUTES = r"""
#include <doca_gpunetio_dev_eth_rxq.cuh>
extern "C" __global__ void take(uint8_t *m, uint64_t *out)
{
    const auto scope = DOCA_GPUNETIO_ETH_EXEC_SCOPE_THREAD;
    const auto mcst = DOCA_GPUNETIO_ETH_MCST_AUTO;
    const auto handler = DOCA_GPUNETIO_ETH_NIC_HANDLER_AUTO;
    doca_gpu_dev_eth_rxq_entry ring[2] = {{7, 60}, {8, 61}};
    doca_gpu_dev_eth_rxq_attr attr[2] = {};
    auto *words = (doca_gpu_dev_eth_rxq_words *)m;
    doca_gpu_eth_rxq rxq = {.entries = 2, .ring = ring, .words = words};
    uint64_t first;
    uint32_t taken;
    words->producer = 2;
    doca_gpu_dev_eth_rxq_recv<scope, mcst, handler, true>(&rxq, 1, 0, &first, &taken, attr);
    doca_gpu_dev_eth_rxq_recv<scope, mcst, handler, false>(&rxq, 1, 0, &first, &taken, attr + 1);
    for (int i = 0; i < 2; i++) {
        out[2 * i] = attr[i].timestamp_ns;
        out[2 * i + 1] = attr[i].bytes;
    }
}
"""


def test_up_to_3_2_a_truth_value_asks_for_all_attributes_of_packets_or_none():
    module = emulate(ATTRIBUTES, options=[f"-I{HEADERS}", "-DSOFTDOCA_DOCA=302"])
    memory, out = np.zeros(256, "u1"), np.zeros(4, "u8")
    module["take"](1, 1, (memory, out), timeout=10)
    assert out.tolist() == [7, 60, 0, 0]


@pytest.mark.parametrize("strong", [1, 0])
def test_packets_are_sent_once_they_are_committed_and_pushed(module, strong):
    memory, out = np.zeros(1024, "u1"), np.zeros(4, "i8")
    module["enqueue"](1, 4, (memory, np.int32(strong), out), timeout=10)
    assert out.tolist() == [65532, 65536, 65540, 6]  # INVALID_VALUE: more than the buffer has
    ring = memory[512 : 512 + 8 * 32].view("<u8,<u8,<u4,<u4,<u4,<u4")
    assert sorted(ring["f4"].tolist()) == list(range(65532, 65540))
    assert sorted(ring["f0"].tolist()) == sorted([1000, 1001, 1002, 1003] * 2)
    assert {(*(*row,)[2:4], int(row["f5"])) for row in ring} == {(7, 60, strong)}


def test_a_block_receives_and_gets_the_buffers_of_its_packets(module):
    memory, out = np.zeros(2048, "u1"), np.full(4, -1, "i8")
    module["receive_block"](1, 4, (memory, out), timeout=10)
    assert out.tolist() == [6, 7, 0, -1]


@pytest.mark.parametrize(("opcode", "status", "consumed"), [(0, 0, 70000), (13, -errno.EIO, 69000)])
def test_a_collapsed_completion_queue_counts_entries(module, opcode, status, consumed):
    memory, out = np.zeros(1024, "u1"), np.zeros(3, "i8")
    module["collapsed"](1, 1, (memory, np.int32(opcode), out), timeout=10)
    assert out.tolist() == [status, consumed, status]


def test_the_queue_pair_is_laid_out_as_in_the_open_headers(tmp_path):
    """Offsets of gpunetio 2.0.1 and 3.0.0; the receive queue takes their reserved bytes."""
    offsets = {
        "sq_rsvd_index": 0, "sq_ready_index": 8, "sq_wqe_pi": 16, "sq_num": 24, "sq_num_shift8": 28,
        "sq_num_shift8_be": 32, "sq_num_shift8_be_5ds": 52, "sq_lock": 56, "sq_wqe_num": 60,
        "sq_wqe_mask": 62, "sq_wqe_daddr": 64, "sq_dbrec": 72, "sq_db": 80, "rq_rsvd_index": 96,
        "cq_sq": 160, "cq_sq.cq_num": 168, "cq_sq.cqe_num": 172, "cq_sq.dbrec": 176,
        "cq_sq.cqe_ci": 184, "cq_sq.cqe_mask": 192, "cq_sq.cqe_rsvd": 200, "cq_rq": 224,
        "nic_handler": 288, "mem_type": 292,
    }  # fmt: skip
    lines = [f"_Static_assert(offsetof(struct doca_gpu_dev_verbs_qp, {name}) == {at}, \"\");"
             for name, at in offsets.items()]  # fmt: skip
    program = tmp_path / "layout.c"
    includes = "#include <stddef.h>\n#include <doca_gpunetio_verbs_dev.h>\n"
    program.write_text(includes + "\n".join(lines))
    compiler = shutil.which("cc") or shutil.which("gcc")
    flags = ["-std=c11", "-Wall", "-Wextra", "-Werror", "-pedantic", "-fsyntax-only"]
    subprocess.run([compiler, *flags, f"-I{HEADERS}", program], check=True)


THREADS, ROUNDS = 32, 2


@pytest.fixture
def queues(request):
    """A queue pair, its peer, its companion; shared memory with its key for kernels."""
    doorbell, receives, inline = request.param
    with dgkit.Device("soft") as device, device.nic() as nic, dgkit.empty(32768) as memory:
        pairs = [nic.queue_pair(64, receives=receives, doorbell=doorbell, inline_receive=inline)
                 for _ in range(3)]  # fmt: skip
        for one, other in ((0, 1), (1, 0), (2, 2)):
            pairs[one].connect(pairs[other])
        with device.register(memory) as region:
            yield pairs, memory, np.uint32(nic.key(region).big_endian)


@pytest.mark.parametrize(
    "queues",  # data in completions are read before the next lap can replace them
    [("proxy", 64, True), ("record", 32, False), ("no record", 64, True)],
    indirect=True,
)
def test_kernels_reach_memory_and_peers_through_the_software_nic(module, queues):
    (queue, peer, companion), memory, key = queues
    posted, received = np.zeros(2, "u8"), np.zeros(2, "u8")
    receiver = module["receive"].start(
        1, THREADS, (peer, memory, key, np.int32(ROUNDS), received), timeout=30
    )
    module["post"](
        1, THREADS, (queue, companion, memory, key, np.int32(ROUNDS), posted), timeout=30
    )
    receiver.wait()
    assert posted[0] == received[0] == 0
    assert received[1] == sum(t << 8 | i for t in range(THREADS) for i in range(1, ROUNDS + 1))
    sums = memory.array[256 * THREADS : 256 * THREADS + 16].view("u8")
    assert sums.tolist() == [THREADS * ROUNDS] * 2

    rounds = 200  # more than three laps
    module["wrong"](1, 1, (queue, memory, key, np.int32(rounds), posted), timeout=30)
    assert posted[0] == rounds - 3
    assert queue.info().state == "error"


@pytest.mark.parametrize("doorbell", ["record", "proxy"])
def test_threads_post_more_copies_than_the_ring_has_and_commit_them_once(module, doorbell):
    n, size = 300, 16
    with dgkit.Device("soft") as device, device.nic() as nic, dgkit.empty(65536) as memory:
        queue = nic.queue_pair(64, doorbell=doorbell)
        queue.connect(queue)
        data, bufs = memory.array[: 2 * n * size], memory.array[32768:].view("u8")
        data[: n * size] = np.random.default_rng(3).integers(1, 256, n * size)
        with device.register(memory) as region:
            key = nic.key(region).big_endian
            for i in range(2 * n):
                bufs[3 * i : 3 * i + 3] = region.address + i * size, size, key
            counts = np.zeros(4, "u8")
            arguments = (queue, bufs, np.uint64(n), counts)
            module["copies"](2, THREADS, arguments, timeout=30)
            assert counts.tolist() == [0, n, n, 2 * THREADS]
            while queue.info().completed < n:
                assert queue.info().state == "ready to send"
    before, after = data.reshape(2, n, size)
    assert (after[:, 2:] == before[:, 1:-1]).all()
    assert not after[:, :2].any()
