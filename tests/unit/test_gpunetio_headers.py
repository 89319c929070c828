"""softdoca's GPUNetIO device headers on the emulated GPU: the entries that they write.

Entries are as in rdma-core's mlx5dv.h: control, remote address, atomic and data segments.
"""

import shutil
import struct
import subprocess
from pathlib import Path

import numpy as np

from dgkit.gpu_initiated import emulate

HEADERS = Path(__file__).parents[2] / "native/softdoca/include"
SOURCE = r"""
#include <doca_gpunetio_dev_verbs_counter.cuh>
#include <doca_gpunetio_dev_verbs_twosided.cuh>
typedef doca_gpu_dev_verbs_qp Qp;

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


def test_entries_have_the_bytes_of_mlx5():
    module = emulate(SOURCE, options=[f"-I{HEADERS}"])
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
