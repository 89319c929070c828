# SPDX-License-Identifier: Apache-2.0
"""A software NIC of a real GPU, and memory that another process allocated by itself."""

from typing import Any

import numpy as np
import pytest
from support.processes import children

import dgkit
from dgkit.gpu_initiated import raw_module

pytestmark = pytest.mark.gpu
SIZE, AWAY, ROUNDS = 1 << 20, 4096, 200
# Puts bytes into the peer's memory with a signal, and gets them back.
KERNELS = r"""
#include <doca_gpunetio_dev_verbs_onesided.cuh>
typedef unsigned long long u64;
typedef doca_gpu_dev_verbs_qp Q;

extern "C" __global__ void there_and_back(Q *q, u64 far, unsigned rkey, u64 near, unsigned lkey,
                                          int size, int count, u64 *cycles, int *bad)
{
    doca_gpu_dev_verbs_ticket_t ticket;
    const doca_gpu_dev_verbs_addr none{0, 0};
    for (int i = 0; i < count; i++) {
        const u64 before = (u64)clock64();
        doca_gpu_dev_verbs_put_signal<DOCA_GPUNETIO_VERBS_SIGNAL_OP_ADD>(
            q, doca_gpu_dev_verbs_addr{far + 4096, rkey},
            doca_gpu_dev_verbs_addr{near + 4096, lkey}, size, doca_gpu_dev_verbs_addr{far, rkey},
            doca_gpu_dev_verbs_addr{near, lkey}, 1, &ticket);
        *bad += doca_gpu_dev_verbs_poll_cq_at(doca_gpu_dev_verbs_qp_get_cq_sq(q), ticket) != 0;
        cycles[i] = (u64)clock64() - before;
    }
    doca_gpu_dev_verbs_get(q, doca_gpu_dev_verbs_addr{far + 4096, rkey},
                           doca_gpu_dev_verbs_addr{near + 524288, lkey}, size, none, &ticket);
    *bad += doca_gpu_dev_verbs_poll_cq_at(doca_gpu_dev_verbs_qp_get_cq_sq(q), ticket) != 0;
}

// A block of bytes, then a word, by one queue pair: what the word's reader finds of the bytes.
extern "C" __global__ void bytes_then_word(Q *q, u64 far, unsigned rkey, u64 near, unsigned lkey,
                                           int size, int count, int *wrong, int *bad)
{
    volatile u64 *sent = (volatile u64 *)near, *seen = (volatile u64 *)far;
    const int last = size / 8 - 1, word = size / 8 + 8;
    doca_gpu_dev_verbs_ticket_t ticket;
    for (int i = 1; i <= count; i++) {
        sent[last] = sent[word] = i;
        __threadfence_system();
        doca_gpu_dev_verbs_put(q, doca_gpu_dev_verbs_addr{far, rkey},
                               doca_gpu_dev_verbs_addr{near, lkey}, size, &ticket);
        doca_gpu_dev_verbs_put(q, doca_gpu_dev_verbs_addr{far + 8 * word, rkey},
                               doca_gpu_dev_verbs_addr{near + 8 * word, lkey}, 8, &ticket);
        while (seen[word] != i)
            ;
        __threadfence_system();
        *wrong += seen[last] != i;
        *bad += doca_gpu_dev_verbs_poll_cq_at(doca_gpu_dev_verbs_qp_get_cq_sq(q), ticket) != 0;
    }
}
"""
# Arguments: the provider, and the address of the queue pair to connect to.
PEER = """
import sys, dgkit
memory = bytearray(1 << 20)
device = dgkit.Device(sys.argv[1])
nic = device.nic()
key = nic.key(device.register(memory))
queue = nic.queue_pair(16)
queue.connect((bytes.fromhex(sys.argv[2]), int(sys.argv[3])))
print(queue.address[0].hex(), queue.address[1], key.address, key.big_endian, flush=True)
for line in sys.stdin:
    print(eval(line), flush=True)
"""


@pytest.mark.parametrize("size", [1, 8, 64, 1025, 4096, 131073, 400000])
@pytest.mark.parametrize("copied", ["by this process", "by its process"])
def test_gpu_memory_and_the_memory_of_another_process(size: int, copied: str) -> None:
    import cupy

    environment = {"DGKIT_NO_PROCESS_VM": "0" if copied == "by this process" else "1"}
    with (
        pytest.MonkeyPatch.context() as patch,
        dgkit.Device("cuda") as device,
        dgkit.empty(SIZE, on="gpu") as memory,
        device.nic() as nic,
        nic.queue_pair(128) as queue,
    ):
        patch.setenv("DGKIT_NO_PROCESS_VM", environment["DGKIT_NO_PROCESS_VM"])
        memory.array[:] = (cupy.arange(SIZE) % 256).astype(np.uint8)
        cupy.cuda.get_current_stream().synchronize()
        key = nic.key(device.register(memory))
        gid, number = queue.address
        with children.child(PEER, "cuda", gid.hex(), number, **environment) as peer:
            far_gid, far_number, far, rkey = peer.line(30).split()
            queue.connect((bytes.fromhex(far_gid), int(far_number)))
            cycles, bad = cupy.zeros(ROUNDS, np.uint64), cupy.zeros(1, np.int32)
            args: list[Any] = [queue, np.uint64(int(far)), np.uint32(int(rkey))]
            args += [np.uint64(key.address), np.uint32(key.big_endian), np.int32(size)]
            raw_module(KERNELS)["there_and_back"](1, 1, (*args, np.int32(ROUNDS), cycles, bad))
            cupy.cuda.get_current_stream().synchronize()
            assert int(bad[0]) == 0, queue.info().why
            peer.say("int.from_bytes(memory[:8], 'little')")
            assert peer.line() == str(ROUNDS)
            peer.say(f"bytes(memory[{AWAY}:{AWAY + size}]) == (bytes(range(256)) * 4096)[:{size}]")
            assert peer.line() == "True"
            sent = memory.array[AWAY : AWAY + size]
            assert bool((memory.array[SIZE // 2 : SIZE // 2 + size] == sent).all())
            rate = cupy.cuda.Device().attributes["ClockRate"] / 1e3  # cycles a microsecond
            print(f"{size} B, {copied}: {float(cupy.median(cycles)) / rate:.1f} us a put_signal")


@pytest.mark.parametrize("size", [64, 4096, 200000])
@pytest.mark.parametrize("source", ["pinned", "gpu"])
def test_a_word_is_seen_after_the_bytes_before_it(size: int, source: str) -> None:
    import cupy

    with (
        dgkit.Device("cuda") as device,
        dgkit.empty(SIZE, on="gpu") as memory,
        dgkit.empty(SIZE, on=source) as sent,
        device.nic() as nic,
        nic.queue_pair(128) as queue,
        nic.queue_pair(128) as far,
    ):
        queue.connect(far.address)
        far.connect(queue.address)
        rkey, lkey = nic.key(device.register(memory)), nic.key(device.register(sent))
        wrong, bad = cupy.zeros(1, np.int32), cupy.zeros(1, np.int32)
        args: list[Any] = [queue, np.uint64(rkey.address), np.uint32(rkey.big_endian)]
        args += [np.uint64(lkey.address), np.uint32(lkey.big_endian), np.int32(size)]
        raw_module(KERNELS)["bytes_then_word"](1, 1, (*args, np.int32(5 * ROUNDS), wrong, bad))
        cupy.cuda.get_current_stream().synchronize()
        assert (int(wrong[0]), int(bad[0])) == (0, 0), queue.info().why
