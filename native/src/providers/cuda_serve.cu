// SPDX-License-Identifier: Apache-2.0
// The kernel of the copy service (cuda_serve.c): one block of 32 warps. In each round, warp w copies the
// entry whose number is w modulo 32, of the next 32 entries at most, and none from the second on that has
// a fence. Behind its bytes, an entry may have a word to be written. All copies are of whole words. cuda_serve_ptx.h is made from this file.

typedef unsigned long long u64;
typedef unsigned u32;

constexpr u32 SLOTS = 1024, WARPS = 32;
constexpr u64 FENCE = 1ull << 63, VALUE = 1ull << 62, THEN = 1ull << 61, SIZE = THEN - 1, STOP = ~0ull;

struct serve_ring {
	u64 head, unused[7];
	u64 done, started, ended, unused2[5];
	struct {
		u64 to, from, size, value, word, unused[3];
	} entries[SLOTS];
};

static __device__ __forceinline__ u64 now()
{
	u64 t;
	asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(t));
	return t;
}

static __device__ __forceinline__ u64 acquire(const u64 *at)
{
	u64 v;
	asm volatile("ld.acquire.sys.global.u64 %0, [%1];" : "=l"(v) : "l"(at) : "memory");
	return v;
}

static __device__ __forceinline__ void release(u64 *at, u64 v)
{
	asm volatile("st.release.sys.global.u64 [%0], %1;" ::"l"(at), "l"(v) : "memory");
}

static __device__ __forceinline__ void load(u64 at, u64 *v)
{
	asm volatile("ld.volatile.global.v2.u64 {%0,%1}, [%2];" : "=l"(v[0]), "=l"(v[1]) : "l"(at));
}

static __device__ __forceinline__ void store(u64 at, const u64 *v)
{
	asm volatile("st.volatile.global.v2.u64 [%0], {%1,%2};" ::"l"(at), "l"(v[0]), "l"(v[1]) : "memory");
}

// One warp. Four loads are on their way before the first store.
static __device__ __forceinline__ void copy(u64 to, u64 from, u64 n)
{
	const u32 lane = threadIdx.x % 32;
	if ((to | from | n) & 15) {
#pragma unroll 1
		for (u64 at = lane * 8; at < n; at += 256)
			*(volatile u64 *)(to + at) = *(const volatile u64 *)(from + at);
		return;
	}
#pragma unroll 1
	for (u64 at = lane * 16; at < n; at += 2048) {
		u64 v[4][2];
#pragma unroll
		for (int k = 0; k < 4; k++)
			if (at + k * 512 < n)
				load(from + at + k * 512, v[k]);
#pragma unroll
		for (int k = 0; k < 4; k++)
			if (at + k * 512 < n)
				store(to + at + k * 512, v[k]);
	}
}

extern "C" __global__ void __launch_bounds__(1024) dg_serve(serve_ring *r, u64 epoch, u64 idle_ns, u64 life_ns)
{
	__shared__ u64 shared_head;
	__shared__ u32 cut; // number of entries of the round
	const u32 warp = threadIdx.x / 32;
	u64 tail = acquire(&r->done), head = tail, since = now(), loaded = ~0ull;
	u64 at[2] = {0, 0}, size[2] = {0, 0}, word = 0; // of the entry; size, value
	const u64 born = since;
	if (!threadIdx.x)
		release(&r->started, epoch);
	for (;;) {
		if (head == tail) {
			if (!threadIdx.x) {
				u64 t;
				do {
					head = acquire(&r->head);
					t = now();
				} while (head == tail && t - since <= idle_ns);
				shared_head = head == STOP || t - born > life_ns ? tail : head;
			}
			__syncthreads();
			head = shared_head;
			if (head == tail)
				break;
		}
		const u32 nth = (warp - (u32)tail) % WARPS;
		const u64 i = tail + nth;
		if (i < head && loaded != i) {
			load((u64)&r->entries[i % SLOTS].to, at);
			load((u64)&r->entries[i % SLOTS].size, size);
			word = *(volatile u64 *)&r->entries[i % SLOTS].word;
			loaded = i;
		}
		if (!threadIdx.x)
			cut = head - tail < WARPS ? head - tail : WARPS;
		__syncthreads();
		if (i < head && nth && size[0] & FENCE)
			atomicMin(&cut, nth);
		__syncthreads();
		const u32 n = cut;
		if (nth < n && size[0] & VALUE)
			*(volatile u64 *)at[0] = size[1];
		else if (nth < n)
			copy(at[0], at[1], size[0] & SIZE);
		__threadfence_system();
		if (nth < n && size[0] & THEN) { // the bytes of all lanes are visible
			__syncwarp();
			*(volatile u64 *)word = size[1];
			__threadfence_system();
		}
		__syncthreads();
		tail += n;
		if (!threadIdx.x) {
			release(&r->done, tail);
			since = now();
		}
	}
	if (!threadIdx.x)
		release(&r->ended, epoch);
}
