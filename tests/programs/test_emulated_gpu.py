# SPDX-License-Identifier: Apache-2.0
"""The emulated GPU: CUDA's built-ins, interleavings, deadlocks, arguments."""

from typing import Any

import numpy as np
import pytest

import dgkit
from dgkit.gpu_initiated import emulate

KERNELS = """
#include <dgkit_device.cuh>
#define ME (threadIdx.x + blockIdx.x * blockDim.x)

extern "C" __global__ void indices(int *out)
{
    const unsigned t = threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z);
    const unsigned b = blockIdx.x + gridDim.x * (blockIdx.y + gridDim.y * blockIdx.z);
    out[t + b * blockDim.x * blockDim.y * blockDim.z] += 1 + t + 1000 * b;
}
extern "C" __global__ void reversed(int *out)
{
    __shared__ int values[256];
    extern __shared__ int more[];
    values[threadIdx.x] = more[threadIdx.x] = ME;
    __syncthreads();
    out[ME] = values[blockDim.x - 1 - threadIdx.x] + more[(threadIdx.x + 1) % blockDim.x];
}
extern "C" __global__ void left_barrier(int *out)
{
    if (threadIdx.x % 3 == 0)
        return; /* an exited thread leaves the barriers */
    atomicAdd(out, 1);
    __syncthreads();
    out[1 + threadIdx.x] = *out;
    out[300 + threadIdx.x] = __syncthreads_count(threadIdx.x % 2);
}
extern "C" __global__ void warp(unsigned *out)
{
    const unsigned lane = threadIdx.x % 32;
    if (threadIdx.x >= 40 && lane >= 4)
        return;
    const unsigned mask = threadIdx.x >= 32 ? 0xf : ~0u;
    if (threadIdx.x >= 32 && lane >= 4)
        return;
    unsigned *o = out + threadIdx.x * 10;
    o[0] = __ballot_sync(mask, lane & 1);
    o[1] = __shfl_sync(mask, threadIdx.x, 2);
    o[2] = __shfl_up_sync(mask, lane, 1);
    o[3] = __shfl_down_sync(mask, lane, 1, 4);
    o[4] = __shfl_xor_sync(mask, lane, 3);
    o[5] = __match_any_sync(mask, lane / 2);
    o[6] = __reduce_add_sync(mask, lane);
    o[7] = __any_sync(mask, lane == 3) + 10 * __all_sync(mask, lane < 3);
    __syncwarp(mask);
    o[8] = (__activemask() >> lane) & 1;
}
extern "C" __global__ void halves(unsigned *out)
{
    /* two collectives of one warp at once, with different masks */
    if (threadIdx.x < 16)
        out[threadIdx.x] = __ballot_sync(0xffff, threadIdx.x == 3);
    else
        out[threadIdx.x] = __ballot_sync(0xffff0000, threadIdx.x == 20);
}
extern "C" __global__ void atomics(unsigned *out, float *sum, unsigned long long *wide)
{
    atomicAdd(&out[0], 2);
    atomicMax(&out[1], ME);
    atomicInc(&out[2], 9);
    atomicOr(&out[3], 1u << ME % 32);
    atomicAdd(sum, .5f);
    atomicAdd(wide, 1ull << 33);
    if (atomicCAS(&out[4], 0, ME + 1) == 0)
        atomicExch(&out[5], ME + 1);
}
extern "C" __global__ void order(int *out)
{
    out[atomicAdd(out + 256, 1)] = threadIdx.x;
}
extern "C" __global__ void relay(volatile int *flag)
{
    /* block 1 waits for block 0: both run at once */
    if (blockIdx.x == 0)
        atomicExch((int *)flag, 1);
    else
        while (atomicAdd((int *)flag, 0) != 1)
            __nanosleep(100);
}
extern "C" __global__ void typed(int *out, signed char c, unsigned short s, float f, double d,
                 unsigned long long u)
{
    out[0] = c;
    out[1] = s;
    out[2] = f == 1.5f && d == 2.5;
    out[3] = u == ~0ull;
}
extern "C" __global__ void barrier_missed(int *out)
{
    if (threadIdx.x < 4)
        __syncthreads();
    else if (threadIdx.x == 4)
        __syncwarp();
    __syncthreads();
    *out = 1;
}
extern "C" __global__ void wrong_mask()
{
    __syncwarp(2);
}
extern "C" __global__ void spins(int *flag)
{
    while (atomicAdd(flag, 0) == 0)
        ;
}
extern "C" __global__ void wild(int *p)
{
    *(p + (1ll << 40)) = 1;
}
extern "C" __global__ void deep(int *out)
{
    volatile char room[300000];
    room[0] = 1;
    out[0] = room[0];
}
extern "C" __global__ void nothing()
{
}
template <class T> __global__ void generic(T *out)
{
}
/* __global__ void in_a_comment() */
"""


@pytest.fixture(scope="module")
def kernels() -> Any:
    return emulate(KERNELS)


def test_each_thread_of_the_grid_runs_once(kernels: Any) -> None:
    out = np.zeros(2 * 3 * 2 * 24, np.int32)
    kernels["indices"]((2, 3, 2), (4, 3, 2), (out,))
    assert list(out) == [1 + t + 1000 * b for b in range(12) for t in range(24)]


@pytest.mark.parametrize("threads", [1, 31, 33, 256])
def test_a_barrier_and_both_kinds_of_shared_memory(kernels: Any, threads: int) -> None:
    for seed in range(5):
        out = np.zeros(8 * threads, np.int32)
        kernels["reversed"](8, threads, (out,), shared_mem=4 * threads, seed=seed)
        wanted = [
            (threads - 1 - t) + ((t + 1) % threads) + 2 * b * threads
            for b in range(8)
            for t in range(threads)
        ]
        assert list(out) == wanted


def test_exited_threads_leave_barriers(kernels: Any) -> None:
    out = np.zeros(600, np.int32)
    kernels["left_barrier"](1, 100, (out,))
    living = [t for t in range(100) if t % 3]
    assert [out[1 + t] for t in living] == [len(living)] * len(living)
    assert {int(out[300 + t]) for t in living} == {sum(t % 2 for t in living)}


def test_warp_collectives(kernels: Any) -> None:
    for seed in range(5):
        out = np.zeros(64 * 10, np.uint32)
        kernels["warp"](1, 64, (out,), seed=seed)
        for lane in range(32):
            assert list(out[lane * 10 : lane * 10 + 9]) == [
                0xAAAAAAAA, 2, max(0, lane - 1), lane + 1 if lane % 4 < 3 else lane, lane ^ 3,
                3 << (lane & ~1), 496, 1, 1,
            ]  # fmt: skip
        for lane in range(4):  # of the second warp, whose other lanes have exited
            o = list(out[(32 + lane) * 10 : (32 + lane) * 10 + 8])
            assert o == [
                0xA, 34, max(0, lane - 1), lane + 1 if lane < 3 else lane, lane ^ 3,
                3 << (lane & ~1), 6, 1,
            ]  # fmt: skip


def test_two_halves_of_a_warp_are_in_collectives_of_their_own(kernels: Any) -> None:
    for seed in range(5):
        out = np.zeros(32, np.uint32)
        kernels["halves"](1, 32, (out,), seed=seed)
        assert list(out) == [1 << 3] * 16 + [1 << 20] * 16


def test_atomics_of_many_blocks(kernels: Any) -> None:
    out, total, wide = np.zeros(8, np.uint32), np.zeros(1, np.float32), np.zeros(1, np.uint64)
    kernels["atomics"](8, 64, (out, total, wide))
    assert list(out[:4]) == [1024, 511, 512 % 10, 0xFFFFFFFF]
    assert out[4] == out[5] > 0
    assert total[0] == 256.0
    assert wide[0] == 512 << 33


def test_seeds_give_different_interleavings_and_the_same_seed_the_same(kernels: Any) -> None:
    def run(seed: int) -> tuple[int, ...]:
        out = np.zeros(257, np.int32)
        kernels["order"](1, 256, (out,), seed=seed)
        return tuple(out[:256])

    runs = [run(seed) for seed in (1, 2, 3, 1)]
    assert all(sorted(r) == list(range(256)) for r in runs)
    assert len(set(runs)) == 3
    assert runs[0] == runs[3]


def test_blocks_run_at_the_same_time(kernels: Any) -> None:
    for seed in range(4):
        kernels["relay"](2, 8, (np.zeros(1, np.int32),), seed=seed)


def test_memory_of_dgkit_is_shared_with_the_kernel(kernels: Any) -> None:
    with dgkit.empty(4) as memory:
        launch = kernels["spins"].start(1, 1, (memory,))
        assert launch.running
        memory.buffer[0] = 1
        launch.wait()


def test_arguments_convert_to_their_parameters(kernels: Any) -> None:
    out = np.zeros(4, np.int32)
    kernels["typed"](1, 1, (out, -5, 65535, 1.5, np.float64(2.5), (1 << 64) - 1))
    assert list(out) == [-5, 65535, 1, 1]


@pytest.mark.parametrize(
    ("at", "value", "words"),
    [
        (1, 128, "argument 1 of typed is out of the range"),
        (2, -1, "argument 2 of typed is out of the range"),
        (2, np.int32(1), "argument 2 of typed has another size"),
        (1, 1.5, "argument 1 of typed does not convert"),
        (3, bytearray(4), "argument 3 of typed is a pointer"),
    ],
)
def test_a_wrong_argument_is_named(kernels: Any, at: int, value: Any, words: str) -> None:
    args: list[Any] = [np.zeros(4, np.int32), 1, 1, 1.0, 1.0, 1]
    args[at] = value
    with pytest.raises(dgkit.KernelError, match=words):
        kernels["typed"](1, 1, args)
    with pytest.raises(dgkit.KernelError, match="typed takes 6 arguments, not 5"):
        kernels["typed"](1, 1, args[:5])


@pytest.mark.parametrize(
    ("launch", "error", "words"),
    [
        ({"grid": 0}, ValueError, "grid is 0"),
        ({"block": (32, 33)}, ValueError, "at most 1024 threads"),
        ({"grid": 4097}, ValueError, "at most 4096 blocks"),
        ({"args": (object(),)}, TypeError, "argument 0 is <object"),
        ({"args": (1 << 64,)}, ValueError, "it must fit 64 bits"),
        ({"shared_mem": 1 << 20}, ValueError, "the limit is 233472"),
        ({"timeout": 0}, ValueError, "timeout is 0 s"),
    ],
)
def test_a_wrong_launch_is_refused(
    kernels: Any, launch: dict[str, Any], error: type[Exception], words: str
) -> None:
    with pytest.raises(error, match=words):
        kernels["nothing"](**{"grid": 1, "block": 1, "args": (), **launch})


def line_of(text: str) -> int:
    """Return the line of the only occurrence of a text in the source."""
    assert KERNELS.count(text) == 1
    return KERNELS[: KERNELS.index(text)].count("\n") + 1


def test_a_deadlock_is_reported_with_the_places_of_the_threads(kernels: Any) -> None:
    with pytest.raises(dgkit.KernelError) as caught:
        kernels["barrier_missed"](1, 8, (np.zeros(1, np.int32),))
    text = str(caught.value)
    assert text.startswith("emulated GPU: barrier_missed deadlocked: no thread of a block can run")
    first = line_of("if (threadIdx.x < 4)") + 1
    assert f"block 0,0,0 threads 0,0,0 to 3,0,0: __syncthreads at kernel.cu:{first}" in text
    assert f"block 0,0,0 thread 4,0,0: __syncwarp at kernel.cu:{first + 2}" in text
    last = f"block 0,0,0 threads 5,0,0 to 7,0,0: __syncthreads at kernel.cu:{first + 3}"
    assert last in text


def test_a_kernel_that_does_not_end_is_stopped_with_its_places(kernels: Any) -> None:
    with pytest.raises(dgkit.KernelError) as caught:
        kernels["spins"](2, 3, (np.zeros(1, np.int32),), timeout=0.3)
    text = str(caught.value)
    assert "spins did not end within 0.3 s and was stopped" in text
    line = line_of("while (atomicAdd(flag, 0) == 0)")
    for block in range(2):
        assert f"block {block},0,0 threads 0,0,0 to 2,0,0: runs at kernel.cu:{line}" in text


def test_a_wrong_mask_is_reported(kernels: Any) -> None:
    with pytest.raises(dgkit.KernelError, match="lane 0 is not in its own mask 0x2"):
        kernels["wrong_mask"](1, 2)


@pytest.mark.parametrize("name", ["wild", "deep"])
def test_an_illegal_access_names_the_thread(kernels: Any, name: str) -> None:
    with pytest.raises(dgkit.KernelError, match=r"illegal address .* in thread 0,0,0 of block"):
        kernels[name](1, 1, (np.zeros(1, np.int32),))


def test_a_source_that_does_not_compile_gives_the_compilers_text() -> None:
    with pytest.raises(dgkit.KernelError, match=r"kernel\.cu:2:.* error: .*undeclared_thing"):
        emulate('extern "C" __global__ void k()\n{ undeclared_thing(); }\n')


def test_kernels_are_found_and_an_unknown_one_is_named(kernels: Any) -> None:
    assert "generic" not in kernels.names
    assert "in_a_comment" not in kernels.names
    with pytest.raises(KeyError, match="there is no kernel 'other'; the source has: indices"):
        kernels["other"]
    assert "emulated GPU" in repr(kernels)
    assert "emulated GPU" in repr(kernels["nothing"])


def test_without_a_compiler_the_error_says_what_to_install(monkeypatch: Any, tmp_path: Any) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CXX", raising=False)
    with pytest.raises(dgkit.Unsupported, match=r"C\+\+17 compiler.*apt install g\+\+"):
        emulate("")


RACES = """
extern "C" __global__ void race(int *out)
{
    __shared__ int x;
    x = threadIdx.x;
    out[0] = x;
}
extern "C" __global__ void no_race(int *out)
{
    __shared__ int x[64];
    x[threadIdx.x] = threadIdx.x;
    __syncthreads();
    const int next = x[(threadIdx.x + 1) % 64];
    const int same = __shfl_sync(~0u, next, 0);
    out[threadIdx.x] = next + same;
    atomicAdd(&out[64], 1);
}
"""


def test_thread_sanitizer_sees_races_between_fibers_and_no_others() -> None:
    module = emulate(RACES, tsan=True)
    module["no_race"](1, 64, (np.zeros(65, np.int32),))
    with pytest.raises(dgkit.KernelError, match="data race"):
        module["race"](1, 64, (np.zeros(65, np.int32),))
