# SPDX-License-Identifier: Apache-2.0
"""Kernels that post to a GPU queue, for the emulated GPU and for a real one."""

# One parameter list for most kernels: the queue, the region ids and the threads' results.
KERNELS = """
#include <dgkit_device.cuh>
#define ARGS \\
    [[maybe_unused]] dg_gpu_queue *q, [[maybe_unused]] unsigned remote, \\
        [[maybe_unused]] unsigned local, int *status
typedef unsigned long long u64;
#define ME (threadIdx.x + blockIdx.x * blockDim.x)
/* Two blocks of 1024 threads a multiprocessor fill a GPU: no other kernel gets in before one ends.
 * Only the first thread of each block posts; its status is at the block's number. */
extern "C" __global__ void
__launch_bounds__(1024, 2) put_full(ARGS, u64 to, u64 from, unsigned size, int rounds)
{
    if (threadIdx.x == 0) {
        int worst = DG_OK;
        for (int i = 0; i < rounds; i++) {
            const u64 at = (u64)blockIdx.x * size;
            const int s = dg_wait(q, dg_put(q, remote, to + at, local, from + at, size));
            worst = s ? s : worst;
        }
        status[blockIdx.x] = worst;
    }
    __syncthreads();
}
extern "C" __global__ void
__launch_bounds__(1024, 2) get_full(ARGS, u64 to, u64 from, unsigned size)
{
    if (threadIdx.x == 0) {
        const u64 at = (u64)blockIdx.x * size;
        status[blockIdx.x] = dg_get_wait(q, dg_get(q, remote, from + at, local, to + at, size));
    }
    __syncthreads();
}
extern "C" __global__ void
__launch_bounds__(1024, 2) put_until(ARGS, int *stop)
{
    if (threadIdx.x == 0) {
        const u64 at = (u64)blockIdx.x * 64;
        int s = DG_OK;
        while (s == DG_OK && !*(volatile int *)stop)
            s = dg_wait(q, dg_put(q, remote, at, local, at, 64));
        status[blockIdx.x] = s;
    }
    __syncthreads();
}
extern "C" __global__ void touch(int *word)
{
    *word = 1;
}

extern "C" __global__ void put(ARGS, u64 remote_offset, u64 local_offset, u64 size)
{
    status[ME] = dg_wait(q, dg_put(q, remote, remote_offset, local, local_offset, size));
}
extern "C" __global__ void put_each(ARGS, unsigned size, int rounds)
{
    int worst = DG_OK;
    for (int i = 0; i < rounds; i++) {
        const int s = dg_wait(q, dg_put(q, remote, ME * size, local, ME * size, size));
        worst = s ? s : worst;
    }
    status[ME] = worst;
}
extern "C" __global__ void forever(ARGS)
{
    int s;
    do
        s = dg_wait(q, dg_put(q, remote, ME * 8, local, ME * 8, 8));
    while (s == DG_OK);
    status[ME] = s;
}
extern "C" __global__ void get(ARGS, unsigned char *bytes, unsigned char *seen)
{
    status[ME] = dg_get_wait(q, dg_get(q, remote, ME * 16, local, ME * 16, 16));
    for (int i = 0; i < 16; i++)
        seen[ME * 16 + i] = bytes[ME * 16 + i];
}
extern "C" __global__ void put_own(ARGS, u64 *words)
{
    words[ME] = 1000 + ME; /* rule 1: what was written before is what moves */
    status[ME] = dg_wait(q, dg_put(q, remote, ME * 8, local, ME * 8, 8));
}
extern "C" __global__ void put_inline(ARGS)
{
    unsigned char bytes[DG_INLINE_MAX];
    for (int i = 0; i < DG_INLINE_MAX; i++)
        bytes[i] = ME * 50 + i;
    status[ME] = dg_wait(q, dg_put_inline(q, remote, ME * DG_INLINE_MAX, bytes, DG_INLINE_MAX));
}
extern "C" __global__ void inline_of(ARGS, unsigned size)
{
    unsigned char bytes[256] = {1, 2, 3};
    status[ME] = dg_wait(q, dg_put_inline(q, remote, 0, bytes, size));
}
extern "C" __global__ void put_signal(ARGS, u64 addend)
{
    status[ME] = dg_wait(q, dg_put_signal(q, remote, 64 + ME * 8, local, ME * 8, 8, remote, 0,
                          addend));
}
extern "C" __global__ void signal(ARGS, u64 offset, u64 addend)
{
    status[ME] = dg_wait(q, dg_signal(q, remote, offset, addend));
}
extern "C" __global__ void signal_set(ARGS, u64 offset, u64 value)
{
    status[ME] = dg_wait(q, dg_signal<DG_SHARING_GPU, DG_SCOPE_THREAD, DG_SIGNAL_SET>(
                    q, remote, offset, value));
}
extern "C" __global__ void warp_and_block(ARGS, u64 *words)
{
    words[ME] = ME;
    u64 t = dg_put<DG_SHARING_GPU, DG_SCOPE_WARP>(q, remote, (ME & ~31) * 8, local,
                               (ME & ~31) * 8, 32 * 8);
    status[ME] = dg_wait(q, t);
    words[ME] += 1000;
    t = dg_put<DG_SHARING_BLOCK, DG_SCOPE_BLOCK>(q, remote, 4096, local, 0, blockDim.x * 8);
    status[ME] += dg_wait(q, t);
}
extern "C" __global__ void weak(ARGS, u64 skip)
{
    u64 next;
    unsigned mask;
    dg_queue_info(q, &next, &mask);
    __syncthreads();
    if (ME == skip)
        return;
    const u64 t = dg_put_weak(q, next + ME, remote, ME * 8, local, ME * 8, 8);
    status[ME] = dg_wait(q, t);
    if (status[ME] == DG_HOLE)
        status[ME] = 100 + (int)(dg_hole(q, t) - next);
}
extern "C" __global__ void weak_rounds(ARGS, int rounds)
{
    u64 next;
    unsigned mask;
    dg_queue_info(q, &next, &mask);
    __syncthreads();
    for (int i = 0; i < rounds; i++) {
        const u64 place = next + i * blockDim.x + ME;
        const u64 t = dg_put_weak<DG_SHARING_BLOCK>(q, place, remote, ME * 8, local, ME * 8, 8);
        status[ME] |= dg_wait<DG_SHARING_BLOCK>(q, t);
    }
}
extern "C" __global__ void lanes(ARGS, dg_gpu_queue *peer)
{
    /* Lane 0 waits for a message that lane 1 sends after its own wait. */
    dg_gpu_queue *own = ME ? q : peer;
    u64 t = ME ? dg_put(q, remote, 0, local, 0, 8) : dg_recv(peer, local, 64, 8);
    status[ME] = dg_wait(own, t);
    if (ME)
        status[ME] |= dg_wait(q, dg_send(q, local, 0, 8, 0));
}
extern "C" __global__ void weak_lanes(ARGS)
{
    /* Lane 0's ticket is complete only when lane 1 has filled the hole, after its own wait. */
    u64 next;
    unsigned mask;
    dg_queue_info(q, &next, &mask);
    __syncthreads();
    u64 t = dg_put_weak(q, next + (ME ? 0 : 2), remote, 0, local, 0, 8);
    status[ME] = dg_wait(q, t);
    if (ME)
        status[ME] |= dg_wait(q, dg_put_weak(q, next + 1, remote, 0, local, 0, 8));
}
extern "C" __global__ void wrong_mode(ARGS)
{
    status[0] = dg_wait(q, dg_put(q, remote, 0, local, 0, 8));
    status[1] = dg_wait(q, dg_put_weak(q, 0, remote, 0, local, 0, 8));
}
extern "C" __global__ void quiet(ARGS)
{
    for (int i = 0; i < 10; i++)
        dg_put(q, remote, ME * 8, local, ME * 8, 8);
    status[ME] = dg_quiet(q);
}
extern "C" __global__ void held(ARGS)
{
    const u64 t = dg_put<DG_SHARING_THREAD, DG_SCOPE_THREAD, DG_HOLD>(q, remote, 0, local, 0, 8);
    dg_put<DG_SHARING_THREAD, DG_SCOPE_THREAD, DG_HOLD>(q, remote, 8, local, 8, 8);
    const long long begin = clock64();
    while (clock64() - begin < 20000000)
        ;
    status[0] = dg_test(q, t);
    dg_commit<DG_SHARING_THREAD>(q);
    status[1] = dg_wait<DG_SHARING_THREAD>(q, t);
}
extern "C" __global__ void errors(ARGS, unsigned wrong)
{
    const u64 t[] = {
        dg_put(q, remote, 4090, local, 0, 64),
        dg_put(q, remote, 0, local, ~0ull, 64),
        dg_put(q, remote, 0, local, 0, 0),
        dg_put(q, wrong, 0, local, 0, 8),
        dg_put(q, remote, 0, wrong, 0, 8),
        dg_put(q, local, 0, remote, 0, 8),
        dg_put(q, remote, 0, local, 0, 8),
        dg_signal(q, remote, 12, 1),
        dg_send(q, local, 0, 8, 0),
    };
    for (int i = 0; i < 9; i++)
        status[i] = dg_wait(q, t[i]);
}
extern "C" __global__ void overtaken(ARGS, int bad_at)
{
    u64 first = 0;
    for (int i = 0; i < 300; i++) {
        const u64 t = dg_put(q, remote, i == bad_at ? 9000 : 0, local, 0, 8);
        first = i ? first : t;
    }
    dg_quiet(q);
    status[0] = dg_wait(q, first);
    status[1] = dg_wait(q, first + 60);
    status[2] = dg_wait(q, first + 100);
    status[3] = dg_wait(q, first + 299);
}
extern "C" __global__ void counter(ARGS, dg_gpu_queue *other, u64 count, int alone)
{
    if (ME == 0)
        status[0] = dg_wait(q, dg_put_counter(q, remote, 8, local, 8, 8, other, count));
    if (ME == 1 && !alone)
        for (int i = 0; i < (int)count; i++)
            status[1] |= dg_wait(other, dg_put(other, remote, 0, local, 0, 8));
}
extern "C" __global__ void messages(ARGS, dg_gpu_queue *peer, int n, unsigned *got, int late)
{
    if (blockIdx.x == 0) {
        for (int i = 0; i < n; i++)
            status[0] |= dg_wait(q, dg_send(q, local, i * 8, 8, i));
    } else {
        const long long begin = clock64();
        while (late && clock64() - begin < 5000000)
            ;
        for (int i = 0; i < n; i++) {
            const u64 t = dg_recv(peer, local, 2048 + i * 16, 16);
            status[1] |= dg_recv_wait(peer, t, &got[2 * i], &got[2 * i + 1]);
        }
    }
}
extern "C" __global__ void message(ARGS, dg_gpu_queue *peer, u64 size, u64 room)
{
    unsigned bytes, immediate;
    const u64 r = dg_recv(peer, local, 2048, room);
    const u64 t = dg_send(q, local, 0, size, 7);
    status[0] = dg_wait(q, t);
    status[1] = dg_recv_wait(peer, r, &bytes, &immediate);
    status[2] = bytes;
    status[3] = immediate;
}
extern "C" __global__ void put_immediate(ARGS, dg_gpu_queue *peer)
{
    unsigned bytes, immediate;
    const u64 r = dg_recv(peer, local, 0, 0);
    status[0] = dg_wait(q, dg_put_immediate(q, remote, 0, local, 0, 64, 0xfeedf00d));
    status[1] = dg_recv_wait(peer, r, &bytes, &immediate);
    status[2] = bytes;
    status[3] = (int)immediate;
}
extern "C" __global__ void receive(ARGS)
{
    status[0] = dg_wait(q, dg_recv(q, local, 0, 8));
}
extern "C" __global__ void flood(ARGS, int n)
{
    int refused = 0;
    u64 last = 0;
    for (int i = 0; i < n && !refused; i++) {
        last = dg_recv(q, local, 0, 8);
        refused = (last & DG_REFUSED) != 0;
    }
    status[0] = refused;
    status[1] = dg_wait(q, last);
}
"""
