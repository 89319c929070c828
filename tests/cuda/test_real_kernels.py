# SPDX-License-Identifier: Apache-2.0
"""Kernels that run while a DPU writes: what they see, and what waits for them."""

import numpy as np
import pytest
from support.gpu.dpu_work import second
from support.processes.waiting import until

import dgkit
from dgkit import Device
from dgkit.memory import libcuda

pytestmark = pytest.mark.gpu

# One thread a word. It gives up after a minute: the last value may never come.
WATCH = r"""
extern "C" __global__ void watch(const volatile unsigned long long *words,
                                 unsigned long long *found)
{
    const volatile unsigned long long *word = words + threadIdx.x;
    unsigned long long *mine = found + 4 * threadIdx.x;
    unsigned long long last = 0, seen = 0, torn = 0, start, now;

    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(start));
    mine[0] = 1;
    __threadfence_system();
    do {
        unsigned long long value = *word;

        torn += (unsigned int)value != (unsigned int)(value >> 32);
        seen += value != last;
        last = value;
        asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
    } while ((unsigned int)last != 0xffffffffu && now - start < 60000000000ull);
    mine[1] = seen;
    mine[2] = torn;
    mine[3] = (unsigned int)last == 0xffffffffu;
}
"""

# Writes 50 ms after it began.
SLOW = r"""
extern "C" __global__ void slow(unsigned char *bytes, unsigned char value)
{
    unsigned long long start, now;

    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(start));
    do {
        asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
    } while (now - start < 50000000ull);
    bytes[threadIdx.x] = value;
}
"""


@pytest.mark.parametrize(
    ("words", "writes"), [(1, 20_000), (2, 5000), (3, 5000), (5, 5000), (16, 5000)]
)
def test_a_kernel_that_polls_never_sees_half_of_a_word(words, writes):
    cupy = libcuda.require_cupy()
    watch = cupy.RawKernel(WATCH, "watch")
    watch.compile()
    with (
        dgkit.empty(4096, on="gpu") as memory,
        dgkit.empty((words, 4), "u8", on="pinned") as found,
        Device() as device,
        device.register(memory) as region,
        second(region) as dpu,
    ):
        args = (memory.array, found.gpu_array)
        stream = cupy.cuda.Stream(non_blocking=True)
        with stream:
            watch((1,), (words,), args)
        until(found.array[:, 0].all, "the kernel looks", timeout=30)
        said = dpu.ask(f"dpu.count({words}, {writes})", timeout=60)
        stream.synchronize()
        assert said == str(writes)
        began, seen, torn, ended = found.array.T.tolist()
        assert set(began) == set(ended) == {1}
        assert min(seen) > 100
        assert set(torn) == {0}
        del args


def test_a_stream_that_still_writes_is_waited_for_before_the_dpu_copies():
    cupy = libcuda.require_cupy()
    slow = cupy.RawKernel(SLOW, "slow")
    with dgkit.connect(provider="cuda") as session, session.empty(4096, on="gpu") as region:
        array = region.array
        for value in range(1, 6):
            with cupy.cuda.Stream(non_blocking=True):
                slow((1,), (64,), (array, np.uint8(value)))
                assert session.read(region, 64) == bytes([value]) * 64
                slow((1,), (64,), (array, np.uint8(99)))
                session.write(region, b"after", offset=3)
                assert session.read(region, 6, offset=2) == b"cafter"
