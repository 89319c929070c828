/* SPDX-License-Identifier: Apache-2.0 */
/*
 * dgkit for GPU kernels: a kernel posts reads and writes to a queue; a CPU thread (the proxy)
 * passes them to a provider, which moves the bytes; and the kernel waits for the completions.
 *
 *	#include <dgkit_device.cuh>
 *
 *	extern "C" __global__ void kernel(dg_gpu_queue *q, uint32_t remote, uint32_t local)
 *	{
 *		uint64_t ticket = dg_put(q, remote, 0, local, 0, 4096);
 *		if (dg_wait(q, ticket) != DG_OK)
 *			...
 *	}
 *
 * Compilers: NVRTC (no standard header is needed), nvcc (CUDA 12 from sm_70, CUDA 13 from sm_75),
 * clang, Numba (define DG_NUMBA for the shims at the end), and with DG_EMULATED_GPU a C++17
 * compiler (emulated_gpu.h). The first part, the layout, is also valid C11, because the proxy
 * includes it. A program that also uses dgkit.h must include dgkit.h first.
 *
 * THE RING is one block of memory that CPU and GPU can access:
 *
 *	struct dg_gpu_ring   128 bytes      written by the proxy only
 *	completions          16 bytes each  written by the proxy only
 *	records              64 bytes each  written by the GPU only
 *
 * The memory of dg_gpu_queue is accessed only by the GPU while a kernel runs. So no word has two
 * writers, and no word is accessed by atomic operations of both sides: on most machines, atomic
 * operations of a GPU and of a CPU on the same word are not atomic with respect to each other.
 *
 * TICKETS are sequence numbers of 56 bits; place `ticket & mask` holds the record and the
 * completion. A place is free again when everything up to its last ticket is complete
 * (dg_gpu_ring.done). Bit 63 marks a refused ticket: nothing was posted, and the low byte gives the
 * reason.
 *
 * ORDER. Each rule states a forbidden outcome, which the other side must never see:
 *
 * 1. Payload, then record. The poster executes a release fence at system scope, then stores the
 *    record's words (relaxed, system scope). The proxy loads each word with acquire. Forbidden: the
 *    proxy sees a word of the record, but not what the kernel wrote before it posted. A release
 *    fence before a store that is read by an acquire load synchronizes (PTX: release pattern; C11
 *    7.17.4); the proxy's copies follow its loads. Inline records carry their payload and need no
 *    fence.
 * 2. A record is taken whole. Each 8-byte word has the lap of its place in its top byte (the
 *    epoch), and an aligned 8-byte store is single-copy atomic on all sides (PTX models a vector
 *    store as stores of its elements). The proxy takes a record when all eight words have the
 *    expected epoch. A word of the previous lap has another epoch, because a place is written again
 *    only after `done` has passed it. So correctness does not depend on a vector store becoming
 *    visible as a whole.
 * 3. Copied, then reused. The proxy loads the eight words, then stores `done` (release). A poster
 *    loads `done` (acquire) and adds credits for the free places; the thread that takes a credit by
 *    an atomic operation then writes the next record. Forbidden: the proxy's load returns that
 *    later record. That would be an out-of-thin-air value, because each step from that load to the
 *    later store is ordered by a dependency, a release or an acquire.
 * 4. Bytes, then completion. The provider's bytes are complete before the proxy stores the
 *    completion's state (release); a wait loads it with acquire at system scope. Forbidden: a
 *    kernel sees the completion of a get, but not its bytes. GPUs before Hopper may see a host's
 *    write to GPU memory later than a write to host memory. On those GPUs, gets and receives have
 *    the flag DG_FLUSH_ARRIVED, which makes the proxy flush the arrived bytes before it completes
 *    the operation.
 * 5. Value, then state; likewise first_error, then the overtaking state (of the same place, one lap
 *    later). The proxy stores the former relaxed and the state with release; a wait loads the state
 *    with acquire, then the value or first_error.
 * 6. `closed` has two values. RETIRING: posts are refused. RETIRED (release): no more completions
 *    will be stored. A wait that loads RETIRED (acquire) loads its completion once more, then ends
 *    as DG_CLOSED. Forbidden: a wait ends as DG_CLOSED although its completion was stored.
 *    If the proxy ran in another process and that process has ended, the share server of the
 *    kernel's process stores RETIRED (release) instead. The operating system reports the end of a
 *    process only after the process's last instruction, on every architecture. So the completions
 *    precede RETIRED in this case, too, and the word has one writer at a time.
 * 7. Bytes, then signal. The store of a signal's word becomes visible only after the bytes of its
 *    put: the proxy posts the store with DG_FENCE, or to a provider that makes the writes of one
 *    queue visible in posting order. Copies by the CPU have a store barrier between two operations
 *    (dmb ishst on Arm; x86 keeps the order of stores), and the word is one aligned store of 8
 *    bytes. Forbidden: a reader loads the word with acquire and sees its new value, but not the
 *    bytes.
 */
#ifndef DGKIT_DEVICE_CUH
#define DGKIT_DEVICE_CUH

typedef unsigned char dg_u8;
typedef unsigned int dg_u32;
typedef unsigned long long dg_u64;

#ifndef DGKIT_H
/* As in dgkit.h. */
enum dg_status {
	DG_OK = 0,
	DG_LOCAL_ERROR = 1,
	DG_REMOTE_ACCESS_ERROR = 2,
	DG_PEER_LOST = 3,
	DG_TIMED_OUT = 4,
	DG_FLUSHED = 5,
	DG_IO_FAILED = 6,
	DG_OUT_OF_BOUNDS = 7,
	DG_ACCESS_DENIED = 8,
	DG_BAD_RECORD = 9,
	DG_CLOSED = 10,
	DG_HOLE = 11,
	DG_UNSUPPORTED = 12,
	DG_QUEUE_FULL = 13
};
enum dg_gpu_fence { DG_FENCE = 1 };
#endif

#if defined(__CUDACC__) || defined(__CUDACC_RTC__)
#define DG_CUDA 1
#define DG_BOTH static __host__ __device__ __forceinline__
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 700
#error "dgkit_device.cuh needs a GPU of compute capability 7.0 or later: compile with -arch=sm_70"
#endif
#else
#define DG_BOTH static inline
#endif
#ifdef __cplusplus
#define DG_ASSERT(condition) static_assert(condition, #condition)
#else
#define DG_ASSERT(condition) _Static_assert(condition, #condition)
#endif

#define DG_GPU_VERSION   1u
#define DG_SEQUENCE_BITS 56
#define DG_SEQUENCE_MASK ((1ull << DG_SEQUENCE_BITS) - 1)
#define DG_REFUSED	 (1ull << 63)
#define DG_NO_HOLE	 (~0ull)
#define DG_RECORD_WORDS	 8
#define DG_INLINE_MAX	 40 /* bytes inside a record */
#define DG_RING_DEPTH_MIN 64
#define DG_RING_DEPTH_MAX 16384

enum dg_gpu_opcode {
	DG_OP_NONE = 0,
	DG_OP_PUT = 1,
	DG_OP_GET = 2,
	DG_OP_PUT_INLINE = 3,
	DG_OP_SIGNAL = 4,
	DG_OP_SEND = 5,
	DG_OP_RECV = 6,
	DG_OP_FENCE = 7,
	DG_OP_COMMIT = 8
};
/* Flags of a record, besides DG_FENCE = 1 (start only after everything posted earlier is complete).
 *   HOLD           the proxy may leave the record unposted until a later one without HOLD
 *   SIGNAL         then add `addend` to the signal word, once the bytes are at the target
 *   SIGNAL_SET     store it instead
 *   COUNTER        start when queue `signal_region` has completed `signal_offset` operations
 *   IMMEDIATE      the peer's next receive completes with `immediate`
 *   FLUSH_ARRIVED  see rule 4 above
 * NO_RELEASE is not part of a record: it skips rule 1, for payload that this kernel did not
 * write. */
enum dg_gpu_flag {
	DG_HOLD = 4,
	DG_SIGNAL = 8,
	DG_SIGNAL_SET = 16,
	DG_COUNTER = 32,
	DG_IMMEDIATE = 64,
	DG_FLUSH_ARRIVED = 128,
	DG_NO_RELEASE = 256
};
enum dg_gpu_closed { DG_RING_OPEN = 0, DG_RING_RETIRING = 1, DG_RING_RETIRED = 2 };

struct dg_gpu_record {
	dg_u64 word[DG_RECORD_WORDS];
};
/* state: (sequence number + 1) << 8 | status. value: for a receive, size << 32 | immediate. */
struct dg_gpu_completion {
	dg_u64 value, state;
};
/* done (the tail): the number of consecutive complete operations, counted from the first sequence number.
 * first_error: the state of the first completion that was not DG_OK, or 0; it never changes
 * back. */
struct dg_gpu_ring {
	dg_u64 done, first_error, closed;
	dg_u64 reserved[13];
};
/* A queue as a kernel sees it; opaque. The first cache line is constant while the queue is open. */
typedef struct dg_gpu_queue {
	dg_u64 ring, completions, records; /* addresses for the GPU */
	dg_u64 trace; /* 2 words for each place: clock at post and at completion; 0: no trace */
	dg_u64 limit; /* time limit of one wait in cycles of clock64() */
	dg_u64 first; /* first sequence number */
	dg_u32 version, mask, shift, weak, index;
	dg_u32 reserved[15];
	/* Words that the GPU's threads change by atomic operations. next: the next place. credits:
	 * the number of free places. refilled: the value of `done` up to which credits were added;
	 * in weak mode, the largest `done` seen. watched: enum dg_watched. */
	dg_u64 next, line1[15];
	dg_u64 credits, refilled, watched, line2[13];
} dg_gpu_queue;

DG_ASSERT(sizeof(dg_u64) == 8 && sizeof(dg_u32) == 4);
DG_ASSERT(sizeof(struct dg_gpu_record) == 64);
DG_ASSERT(sizeof(struct dg_gpu_completion) == 16);
DG_ASSERT(sizeof(struct dg_gpu_ring) == 128);
DG_ASSERT(sizeof(struct dg_gpu_queue) == 384);

/* Offsets in bytes within the ring's memory. */
#define DG_RING_COMPLETIONS	sizeof(struct dg_gpu_ring)
#define DG_RING_RECORDS(depth)	(DG_RING_COMPLETIONS + sizeof(struct dg_gpu_completion) * (depth))
#define DG_RING_SIZE(depth)	(DG_RING_RECORDS(depth) + sizeof(struct dg_gpu_record) * (depth))

/* Contents of a record. */
struct dg_gpu_request {
	dg_u8 op, flags, length; /* length: of inline bytes */
	dg_u32 local, remote, signal_region, immediate;
	dg_u64 local_offset, remote_offset, size, signal_offset, addend;
};

/*
 * Words of a record, below the epoch in bits 56 to 63:
 *
 *	0  op 8, flags 8, length 8, signal_region 32
 *	1  local_offset 56
 *	2  remote_offset 56
 *	3  size 56
 *	4  local 32, addend bits 0 to 23
 *	5  remote 32, addend bits 24 to 47
 *	6  signal_offset 56
 *	7  addend bits 48 to 63, immediate 32
 *
 * An inline record has the remote region in place of the signal region, and its bytes in words 1
 * and 3 to 7, seven bytes in each word.
 */
#define DG_LOW(value, bits) ((value) & ((1ull << (bits)) - 1))

DG_BOTH void dg_record_pack(const struct dg_gpu_request *r, dg_u64 *w)
{
	w[0] = (dg_u64)r->op | (dg_u64)r->flags << 8 | (dg_u64)r->length << 16 |
	       (dg_u64)r->signal_region << 24;
	w[1] = DG_LOW(r->local_offset, 56);
	w[2] = DG_LOW(r->remote_offset, 56);
	w[3] = DG_LOW(r->size, 56);
	w[4] = (dg_u64)r->local | DG_LOW(r->addend, 24) << 32;
	w[5] = (dg_u64)r->remote | DG_LOW(r->addend >> 24, 24) << 32;
	w[6] = DG_LOW(r->signal_offset, 56);
	w[7] = r->addend >> 48 | (dg_u64)r->immediate << 16;
}

DG_BOTH void dg_record_unpack(const dg_u64 *w, struct dg_gpu_request *r)
{
	r->op = (dg_u8)w[0];
	r->flags = (dg_u8)(w[0] >> 8);
	r->length = (dg_u8)(w[0] >> 16);
	r->signal_region = (dg_u32)(w[0] >> 24);
	r->local_offset = DG_LOW(w[1], 56);
	r->remote_offset = DG_LOW(w[2], 56);
	r->size = DG_LOW(w[3], 56);
	r->local = (dg_u32)w[4];
	r->remote = (dg_u32)w[5];
	r->signal_offset = DG_LOW(w[6], 56);
	r->addend = DG_LOW(w[4] >> 32, 24) | DG_LOW(w[5] >> 32, 24) << 24 | DG_LOW(w[7], 16) << 48;
	r->immediate = (dg_u32)(w[7] >> 16);
}

/* The index of the word that contains byte i of an inline record. */
DG_BOTH dg_u32 dg_inline_word(dg_u32 i)
{
	return i < 7 ? 1 : i / 7 + 2;
}

DG_BOTH void dg_inline_pack(dg_u64 *w, const dg_u8 *bytes, dg_u32 length)
{
	for (dg_u32 i = 0; i < length; i++)
		w[dg_inline_word(i)] |= (dg_u64)bytes[i] << i % 7 * 8;
}

DG_BOTH void dg_inline_unpack(const dg_u64 *w, dg_u8 *bytes, dg_u32 length)
{
	for (dg_u32 i = 0; i < length; i++)
		bytes[i] = (dg_u8)(w[dg_inline_word(i)] >> i % 7 * 8);
}

/* The epoch of a sequence number's record, shifted to the top byte of a word. */
DG_BOTH dg_u64 dg_record_epoch(dg_u64 sequence, dg_u32 shift)
{
	return ((sequence >> shift) + 1) << 56;
}

DG_BOTH dg_u64 dg_completion_state(dg_u64 sequence, dg_u32 status)
{
	return (sequence + 1) << 8 | status;
}

/* Returns how far the completion in a place is ahead of `sequence`, modulo 2^56. Negative: not
 * complete yet; 0: the completion of this ticket; positive: the place already holds the completion
 * of a later ticket. */
DG_BOTH long long dg_completion_ahead(dg_u64 state, dg_u64 sequence)
{
	return (long long)((state & ~255ull) - ((sequence + 1) << 8)) >> 8;
}

#if defined(__cplusplus) && (defined(DG_CUDA) || defined(DG_EMULATED_GPU))

/* Which threads may post to the queue concurrently: one thread, those of one block, or all of the
 * GPU.
 * */
enum dg_sharing { DG_SHARING_THREAD = 0, DG_SHARING_BLOCK = 1, DG_SHARING_GPU = 2 };
/* Which threads make a call: each thread for itself, or all threads of a warp or block together for
 * one operation. In the latter case the threads meet at a barrier, and the leader posts the
 * operation with its own arguments, after a release that covers the writes of all of them. Each
 * thread gets the ticket. */
enum dg_scope { DG_SCOPE_THREAD = 0, DG_SCOPE_WARP = 1, DG_SCOPE_BLOCK = 2 };
/* Result of dg_test() for an operation in progress. */
enum { DG_PENDING = -1 };

#define DG_FN __device__ static __forceinline__

/* Memory operations: system scope for words shared with the CPU, GPU or block scope for words that
 * only the GPU accesses. */
#ifdef DG_CUDA
DG_FN dg_u64 dg_load_acquire_sys(const dg_u64 *p)
{
	dg_u64 v;
	asm volatile("ld.acquire.sys.u64 %0, [%1];" : "=l"(v) : "l"(p) : "memory");
	return v;
}

DG_FN dg_u64 dg_load_relaxed_sys(const dg_u64 *p)
{
	dg_u64 v;
	asm volatile("ld.relaxed.sys.u64 %0, [%1];" : "=l"(v) : "l"(p) : "memory");
	return v;
}

DG_FN dg_u64 dg_load_gpu(const dg_u64 *p)
{
	dg_u64 v;
	asm volatile("ld.relaxed.gpu.u64 %0, [%1];" : "=l"(v) : "l"(p) : "memory");
	return v;
}

DG_FN void dg_store_gpu(dg_u64 *p, dg_u64 v)
{
	asm volatile("st.relaxed.gpu.u64 [%0], %1;" : : "l"(p), "l"(v) : "memory");
}

/* Rule 1: one fence for all words. It takes half a microsecond, and waits for earlier loads,
 * too. */
template <bool release> DG_FN void dg_release_before_record()
{
	if (release)
		asm volatile("fence.acq_rel.sys;" : : : "memory");
}

/* Two words per store. */
template <bool release> DG_FN void dg_store_record(dg_u64 *to, const dg_u64 *w, dg_u64 epoch)
{
#pragma unroll
	for (int i = 0; i < DG_RECORD_WORDS; i += 2)
		asm volatile("st.relaxed.sys.v2.u64 [%0], {%1, %2};"
			     :
			     : "l"(to + i), "l"(w[i] | epoch), "l"(w[i + 1] | epoch)
			     : "memory");
}

/* Acquire, so that whoever takes the credits also sees that the places are free (rule 3). */
template <int sharing> DG_FN dg_u64 dg_add(dg_u64 *p, dg_u64 n)
{
	dg_u64 v;
	if (sharing == DG_SHARING_THREAD) {
		v = dg_load_gpu(p);
		dg_store_gpu(p, v + n);
	} else if (sharing == DG_SHARING_BLOCK) {
		asm volatile("atom.acquire.cta.add.u64 %0, [%1], %2;"
			     : "=l"(v)
			     : "l"(p), "l"(n)
			     : "memory");
	} else {
		asm volatile("atom.acquire.gpu.add.u64 %0, [%1], %2;"
			     : "=l"(v)
			     : "l"(p), "l"(n)
			     : "memory");
	}
	return v;
}

template <int sharing> DG_FN void dg_add_release(dg_u64 *p, dg_u64 n)
{
	if (sharing == DG_SHARING_THREAD)
		dg_store_gpu(p, dg_load_gpu(p) + n);
	else if (sharing == DG_SHARING_BLOCK)
		asm volatile("red.release.cta.add.u64 [%0], %1;" : : "l"(p), "l"(n) : "memory");
	else
		asm volatile("red.release.gpu.add.u64 [%0], %1;" : : "l"(p), "l"(n) : "memory");
}

DG_FN dg_u64 dg_max(dg_u64 *p, dg_u64 n)
{
	dg_u64 v;
	asm volatile("atom.relaxed.gpu.max.u64 %0, [%1], %2;"
		     : "=l"(v)
		     : "l"(p), "l"(n)
		     : "memory");
	return v;
}

/* Changes 0 to 1. Returns the previous value. */
DG_FN dg_u64 dg_set_first(dg_u64 *p)
{
	dg_u64 v;
	asm volatile("atom.relaxed.gpu.cas.b64 %0, [%1], 0, 1;" : "=l"(v) : "l"(p) : "memory");
	return v;
}

/* Nanoseconds by the GPU's own timer, for the trace. */
DG_FN dg_u64 dg_clock_ns()
{
	dg_u64 v;
	asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(v));
	return v;
}
#else
/* Fences are not visible to ThreadSanitizer, so each word of a released record is a release store.
 * */
template <bool release> DG_FN void dg_release_before_record()
{
}

#define DG_ORDERED(p, n, order) __atomic_fetch_add(p, n, order)
DG_FN dg_u64 dg_load_acquire_sys(const dg_u64 *p)
{
	dg_emu_yield();
	return __atomic_load_n(p, __ATOMIC_ACQUIRE);
}

DG_FN dg_u64 dg_load_relaxed_sys(const dg_u64 *p)
{
	return __atomic_load_n(p, __ATOMIC_RELAXED);
}

DG_FN dg_u64 dg_load_gpu(const dg_u64 *p)
{
	return __atomic_load_n(p, __ATOMIC_RELAXED);
}

DG_FN void dg_store_gpu(dg_u64 *p, dg_u64 v)
{
	__atomic_store_n(p, v, __ATOMIC_RELAXED);
}

template <bool release> DG_FN void dg_store_record(dg_u64 *to, const dg_u64 *w, dg_u64 epoch)
{
	for (int i = 0; i < DG_RECORD_WORDS; i++) {
		dg_emu_yield();
		if (release)
			__atomic_store_n(to + i, w[i] | epoch, __ATOMIC_RELEASE);
		else
			__atomic_store_n(to + i, w[i] | epoch, __ATOMIC_RELAXED);
	}
}

template <int sharing> DG_FN dg_u64 dg_add(dg_u64 *p, dg_u64 n)
{
	dg_emu_yield();
	if (sharing != DG_SHARING_THREAD)
		return __atomic_fetch_add(p, n, __ATOMIC_ACQUIRE);
	const dg_u64 v = dg_load_gpu(p);
	dg_store_gpu(p, v + n);
	return v;
}

template <int sharing> DG_FN void dg_add_release(dg_u64 *p, dg_u64 n)
{
	if (sharing == DG_SHARING_THREAD)
		dg_store_gpu(p, dg_load_gpu(p) + n);
	else
		__atomic_fetch_add(p, n, __ATOMIC_RELEASE);
}

DG_FN dg_u64 dg_max(dg_u64 *p, dg_u64 n)
{
	dg_u64 v = __atomic_load_n(p, __ATOMIC_RELAXED);
	while (v < n && !__atomic_compare_exchange_n(p, &v, n, true, __ATOMIC_RELAXED,
						      __ATOMIC_RELAXED))
		;
	return v;
}

DG_FN dg_u64 dg_set_first(dg_u64 *p)
{
	dg_u64 v = 0;
	dg_emu_yield();
	__atomic_compare_exchange_n(p, &v, 1, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED);
	return v;
}

DG_FN dg_u64 dg_clock_ns()
{
	return dg_emu_now_ns();
}
#endif

/* Returns the header of the queue's ring. */
DG_FN const dg_gpu_ring *dg_ring_of(const dg_gpu_queue *q)
{
	return (const dg_gpu_ring *)q->ring;
}

/* A copy of the queue's constant line in registers. Loads of it after an acquire, as in each
 * iteration of a wait, would miss the cache. */
struct dg_queue_line {
	dg_u64 completions, records, trace, limit;
	dg_u32 mask, shift, weak;
};

DG_FN dg_queue_line dg_line(const dg_gpu_queue *q)
{
	dg_queue_line k;
	k.completions = q->completions;
	k.records = q->records;
	k.trace = q->trace;
	k.limit = q->limit;
	k.mask = q->mask;
	k.shift = q->shift;
	k.weak = q->weak;
	return k;
}

DG_FN dg_u64 dg_refused(int status)
{
	return DG_REFUSED | (dg_u64)status;
}

DG_FN dg_u32 dg_thread_of_block()
{
	return threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z);
}

/* State of a wait. It polls without pause at first, then with sleeps of up to 2 us, and reports
 * when the time limit has passed. The time limit starts anew if the clock went back (the thread
 * moved to another multiprocessor). */
struct dg_waiter {
	long long begin;
	dg_u32 polls;
};

DG_FN dg_waiter dg_wait_begin()
{
	dg_waiter w;
	w.begin = clock64();
	w.polls = 0;
	return w;
}

DG_FN bool dg_wait_more(dg_waiter *w, dg_u64 limit)
{
	const long long now = clock64();
	if (now < w->begin)
		w->begin = now;
	if ((dg_u64)(now - w->begin) > limit)
		return false;
	if (++w->polls > 32)
		__nanosleep(w->polls < 64 ? 100 : w->polls < 128 ? 500 : 2000);
	return true;
}

DG_FN dg_u64 dg_done(const dg_gpu_queue *q)
{
	return dg_load_acquire_sys(&dg_ring_of(q)->done);
}

DG_FN dg_u64 dg_closed(const dg_gpu_queue *q)
{
	return dg_load_acquire_sys(&dg_ring_of(q)->closed);
}

/* Whether a thread polls the ring for free places. The ring is in host memory: reads by thousands
 * of threads over PCIe would slow down the copies that the threads wait for. So only one thread
 * polls the ring, and the others poll `refilled` and `credits`. */
enum dg_watched { DG_WATCHED_BY_NONE = 0, DG_WATCHED = 1, DG_WATCHED_CLOSED = 2 };

struct dg_watch {
	dg_waiter w;
	bool mine; /* this thread is the one that polls the ring */
};

template <int sharing> DG_FN dg_watch dg_watch_begin()
{
	dg_watch t;
	t.w = dg_wait_begin();
	t.mine = sharing == DG_SHARING_THREAD;
	return t;
}

/* Reads the ring once, if no other thread polls it. Returns DG_OK, with the number of newly free
 * places in *freed, or DG_CLOSED. */
DG_FN int dg_watch_look(dg_gpu_queue *q, dg_watch *t, dg_u64 *freed)
{
	*freed = 0;
	if (!t->mine) {
		dg_u64 watched = dg_load_gpu(&q->watched);
		if (watched == DG_WATCHED_BY_NONE) {
			watched = dg_set_first(&q->watched);
			t->mine = watched == DG_WATCHED_BY_NONE;
		}
		if (!t->mine)
			return watched == DG_WATCHED_CLOSED ? DG_CLOSED : DG_OK;
	}
	const dg_u64 done = dg_done(q), before = dg_max(&q->refilled, done);
	if (done > before) {
		*freed = done - before;
		return DG_OK;
	}
	return dg_closed(q) ? DG_CLOSED : DG_OK;
}

/* Lets another thread poll the ring, unless the queue was found closed: DG_WATCHED_CLOSED stays. */
template <int sharing> DG_FN void dg_watch_end(dg_gpu_queue *q, const dg_watch *t, int status)
{
	if (t->mine && sharing != DG_SHARING_THREAD)
		dg_store_gpu(&q->watched,
			     status == DG_CLOSED ? DG_WATCHED_CLOSED : DG_WATCHED_BY_NONE);
}

/* The words of a queue that a post reads first, loaded together so that their latencies overlap.
 * `next` is read ahead for DG_SHARING_THREAD only. */
struct dg_places {
	dg_u64 next, credits;
};

template <int sharing> DG_FN dg_places dg_places_of(const dg_gpu_queue *q)
{
	dg_places p;
	p.next = sharing == DG_SHARING_THREAD ? dg_load_gpu(&q->next) : 0;
	p.credits = dg_load_gpu(&q->credits);
	return p;
}

/* Takes n credits, if there are enough. */
template <int sharing> DG_FN bool dg_try_credits(dg_gpu_queue *q, dg_u64 credits, dg_u32 n)
{
	if ((long long)credits < (long long)n)
		return false;
	if (sharing == DG_SHARING_THREAD) {
		dg_store_gpu(&q->credits, credits - n);
		return true;
	}
	if ((long long)dg_add<sharing>(&q->credits, (dg_u64)0 - n) >= (long long)n)
		return true;
	dg_add_release<sharing>(&q->credits, n);
	return false;
}

/* Takes n credits; `credits` is the value loaded last. Returns a dg_status. Checking that value
 * first avoids atomic operations on a full queue. */
template <int sharing> DG_FN int dg_take_credits(dg_gpu_queue *q, dg_u64 credits, dg_u32 n)
{
	dg_watch t = dg_watch_begin<sharing>();
	dg_u64 freed;
	int status = DG_OK;
	for (; !dg_try_credits<sharing>(q, credits, n); credits = dg_load_gpu(&q->credits)) {
		status = dg_watch_look(q, &t, &freed);
		if (freed)
			dg_add_release<sharing>(&q->credits, freed);
		else if (status == DG_OK && !dg_wait_more(&t.w, q->limit))
			status = DG_QUEUE_FULL;
		if (status != DG_OK)
			break;
	}
	dg_watch_end<sharing>(q, &t, status);
	return status;
}

/* Reserves n places. Returns the first sequence number, or a refused ticket. */
template <int sharing> DG_FN dg_u64 dg_take(dg_gpu_queue *q, dg_places p, dg_u32 n)
{
	const int status = dg_take_credits<sharing>(q, p.credits, n);
	if (status)
		return dg_refused(status);
	if (sharing == DG_SHARING_THREAD)
		dg_store_gpu(&q->next, p.next + n);
	else
		p.next = dg_add<sharing>(&q->next, n);
	return p.next & DG_SEQUENCE_MASK;
}

/* Reserves a place. Converged threads of a warp reserve their places with one atomic operation. */
template <int sharing> DG_FN dg_u64 dg_reserve(dg_gpu_queue *q, dg_places p)
{
	if (sharing == DG_SHARING_THREAD)
		return dg_take<sharing>(q, p, 1);
	const dg_u32 lane = dg_thread_of_block() & 31;
	const dg_u32 same = __match_any_sync(__activemask(), (dg_u64)q);
	const dg_u32 leader = (dg_u32)__ffs((int)same) - 1;
	dg_u64 first = 0;
	if (lane == leader)
		first = dg_take<sharing>(q, p, (dg_u32)__popc(same));
	first = __shfl_sync(same, first, (int)leader);
	if (first & DG_REFUSED)
		return first;
	return (first + (dg_u64)__popc(same & ((1u << lane) - 1))) & DG_SEQUENCE_MASK;
}

/* Weak mode: waits until the place is free. Returns the place or a refused ticket. */
DG_FN dg_u64 dg_claim(dg_gpu_queue *q, dg_u64 place)
{
	const dg_u64 depth = (dg_u64)q->mask + 1;
	dg_watch t = dg_watch_begin<DG_SHARING_GPU>();
	dg_u64 freed;
	int status = DG_OK;
	place &= DG_SEQUENCE_MASK;
	/* refilled counts operations starting at `first`. */
	while (((place - q->first) & DG_SEQUENCE_MASK) >= dg_load_gpu(&q->refilled) + depth) {
		status = dg_watch_look(q, &t, &freed);
		if (status == DG_OK && !freed && !dg_wait_more(&t.w, q->limit))
			status = DG_QUEUE_FULL;
		if (status != DG_OK)
			break;
	}
	dg_watch_end<DG_SHARING_GPU>(q, &t, status);
	if (status != DG_OK)
		return dg_refused(status);
	dg_max(&q->next, q->first + ((place - q->first) & DG_SEQUENCE_MASK) + 1);
	return place;
}

template <bool release>
DG_FN void dg_publish(const dg_queue_line &k, dg_u64 place, const dg_u64 *w)
{
	dg_gpu_record *records = (dg_gpu_record *)k.records;
	if (k.trace)
		dg_store_gpu((dg_u64 *)k.trace + 2 * (place & k.mask), dg_clock_ns());
	dg_store_record<release>(records[place & k.mask].word, w, dg_record_epoch(place, k.shift));
}

/* Posts from one thread. `named`: weak mode, in which the caller chooses `place`. */
template <int sharing, bool release, bool named>
DG_FN dg_u64 dg_post_one(dg_gpu_queue *q, dg_u64 place, const dg_u64 *w)
{
	dg_places places = {};
	if (!named)
		places = dg_places_of<sharing>(q);
	const dg_queue_line k = dg_line(q);
	dg_release_before_record<release>();
	if ((k.weak != 0) != named)
		return dg_refused(DG_BAD_RECORD);
	const dg_u64 ticket = named ? dg_claim(q, place) : dg_reserve<sharing>(q, places);
	if (!(ticket & DG_REFUSED))
		dg_publish<release>(k, ticket, w);
	return ticket;
}

/* Mask of the threads that exist in this warp; the last warp of a block may have fewer than 32. */
DG_FN dg_u32 dg_warp_mask()
{
	const dg_u32 all = blockDim.x * blockDim.y * blockDim.z;
	const dg_u32 left = all - (dg_thread_of_block() & ~31u);
	return left >= 32 ? ~0u : (1u << left) - 1;
}

template <int sharing, int scope, bool release, bool named>
DG_FN dg_u64 dg_post(dg_gpu_queue *q, dg_u64 place, const dg_u64 *w)
{
	if (scope == DG_SCOPE_THREAD)
		return dg_post_one<sharing, release, named>(q, place, w);
	dg_u64 ticket = 0;
	if (scope == DG_SCOPE_WARP) {
		const dg_u32 mask = dg_warp_mask();
		__syncwarp(mask);
		if ((dg_thread_of_block() & 31) == 0)
			ticket = dg_post_one<sharing, release, named>(q, place, w);
		return __shfl_sync(mask, ticket, 0);
	}
	__shared__ dg_u64 shared_ticket;
	__syncthreads();
	if (dg_thread_of_block() == 0)
		shared_ticket = dg_post_one<sharing, release, named>(q, place, w);
	__syncthreads();
	ticket = shared_ticket;
	return ticket;
}

template <int sharing, int scope, dg_u32 flags, bool named>
DG_FN dg_u64 dg_post_request(dg_gpu_queue *q, dg_u64 place, dg_gpu_request *r)
{
	dg_u64 w[DG_RECORD_WORDS];
	r->flags = (dg_u8)(r->flags | (flags & 0xff));
	/* A value that does not fit the record is clamped to a value beyond the end of every
	 * region. */
	if ((r->local_offset | r->remote_offset | r->size | r->signal_offset) >> DG_SEQUENCE_BITS)
		r->local_offset = r->remote_offset = r->size = r->signal_offset = DG_SEQUENCE_MASK;
	dg_record_pack(r, w);
	return dg_post<sharing, scope, !(flags & DG_NO_RELEASE), named>(q, place, w);
}

DG_FN dg_gpu_request dg_request(dg_u32 op, dg_u32 remote, dg_u64 remote_offset, dg_u32 local,
				dg_u64 local_offset, dg_u64 size)
{
	dg_gpu_request r = {};
	r.op = (dg_u8)op;
	r.remote = remote;
	r.remote_offset = remote_offset;
	r.local = local;
	r.local_offset = local_offset;
	r.size = size;
	return r;
}

/* See rule 4: the flags of a get or receive on GPUs before Hopper. */
DG_FN dg_u32 dg_arrival_flags()
{
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 900
	return DG_FLUSH_ARRIVED;
#else
	return 0;
#endif
}

DG_FN dg_gpu_request dg_signal_request(dg_gpu_request r, dg_u32 region, dg_u64 offset, dg_u64 addend)
{
	r.flags = r.flags | DG_SIGNAL;
	r.signal_region = region;
	r.signal_offset = offset;
	r.addend = addend;
	return r;
}

DG_FN dg_gpu_request dg_counter_request(dg_gpu_request r, const dg_gpu_queue *other, dg_u64 count)
{
	r.flags = r.flags | DG_COUNTER;
	r.signal_region = other->index;
	r.signal_offset = count;
	return r;
}

DG_FN dg_gpu_request dg_immediate_request(dg_gpu_request r, dg_u32 immediate)
{
	r.flags = r.flags | DG_IMMEDIATE;
	r.immediate = immediate;
	return r;
}

DG_FN dg_gpu_request dg_arrival_request(dg_gpu_request r)
{
	r.flags = (dg_u8)(r.flags | dg_arrival_flags());
	return r;
}

/* THE OPERATIONS. Each returns a ticket. `remote` and `local` are region ids (as in dg_wr), offsets
 * and sizes are bytes. Each has a second form, NAME_weak(q, place, ...), for a queue in weak mode,
 * where the caller chooses the place. Each form refuses a queue of the other mode. Template
 * parameters: enum dg_sharing, enum dg_scope, and flags (DG_FENCE, DG_HOLD, DG_SIGNAL_SET,
 * DG_NO_RELEASE). */
#define DG_POSTED(name, request, ...)                                                              \
	template <int sharing = DG_SHARING_GPU, int scope = DG_SCOPE_THREAD, dg_u32 flags = 0>     \
	DG_FN dg_u64 name(dg_gpu_queue *q, __VA_ARGS__)                                            \
	{                                                                                          \
		dg_gpu_request r = request;                                                        \
		return dg_post_request<sharing, scope, flags, false>(q, 0, &r);                    \
	}                                                                                          \
	template <int sharing = DG_SHARING_GPU, int scope = DG_SCOPE_THREAD, dg_u32 flags = 0>     \
	DG_FN dg_u64 name##_weak(dg_gpu_queue *q, dg_u64 place, __VA_ARGS__)                       \
	{                                                                                          \
		dg_gpu_request r = request;                                                        \
		return dg_post_request<sharing, scope, flags, true>(q, place, &r);                 \
	}

#define DG_PUT_REQUEST dg_request(DG_OP_PUT, remote, remote_offset, local, local_offset, size)

/* Writes local bytes to the remote region. */
DG_POSTED(dg_put, DG_PUT_REQUEST, dg_u32 remote, dg_u64 remote_offset, dg_u32 local,
	  dg_u64 local_offset, dg_u64 size)
/* Reads remote bytes into the local region. Wait for it with dg_get_wait(). */
DG_POSTED(dg_get,
	  dg_arrival_request(
		  dg_request(DG_OP_GET, remote, remote_offset, local, local_offset, size)),
	  dg_u32 remote, dg_u64 remote_offset, dg_u32 local, dg_u64 local_offset, dg_u64 size)
/* Like dg_put(); once the bytes are at the target, adds `addend` to the 8-byte word at
 * signal_offset of the remote region signal_region, or stores it with the flag DG_SIGNAL_SET. If
 * the put fails, the word is unchanged. Only one queue may add to a word: a second one gets
 * DG_UNSUPPORTED. */
DG_POSTED(dg_put_signal,
	  dg_signal_request(DG_PUT_REQUEST, signal_region, signal_offset, addend),
	  dg_u32 remote, dg_u64 remote_offset, dg_u32 local, dg_u64 local_offset, dg_u64 size,
	  dg_u32 signal_region, dg_u64 signal_offset, dg_u64 addend)
/* Sends only the signal, after everything posted to this queue before it. */
DG_POSTED(dg_signal,
	  dg_signal_request(dg_request(DG_OP_SIGNAL, 0, 0, 0, 0, 0), signal_region, signal_offset,
			    addend),
	  dg_u32 signal_region, dg_u64 signal_offset, dg_u64 addend)
/* Like dg_put(), but starts when `other`, a queue of the same proxy, has completed `count`
 * operations since it was opened. Later operations of this queue wait for this put. */
DG_POSTED(dg_put_counter, dg_counter_request(DG_PUT_REQUEST, other, count), dg_u32 remote,
	  dg_u64 remote_offset, dg_u32 local, dg_u64 local_offset, dg_u64 size,
	  const dg_gpu_queue *other, dg_u64 count)
/* Like dg_put(); then completes the next receive of the connected queue, with `immediate` and size
 * 0: the receive's memory is not written. */
DG_POSTED(dg_put_immediate, dg_immediate_request(DG_PUT_REQUEST, immediate), dg_u32 remote,
	  dg_u64 remote_offset, dg_u32 local, dg_u64 local_offset, dg_u64 size, dg_u32 immediate)
/* Sends a message to the connected queue, for its next receive. */
DG_POSTED(dg_send,
	  dg_immediate_request(dg_request(DG_OP_SEND, 0, 0, local, local_offset, size), immediate),
	  dg_u32 local, dg_u64 local_offset, dg_u64 size, dg_u32 immediate)
/* Receives a message of at most `size` bytes. Wait for it with dg_recv_wait(). */
DG_POSTED(dg_recv, dg_arrival_request(dg_request(DG_OP_RECV, 0, 0, local, local_offset, size)),
	  dg_u32 local, dg_u64 local_offset, dg_u64 size)

/* Writes `size` bytes (at most DG_INLINE_MAX) that the record itself carries. It needs no local
 * region, and does not make other writes of the kernel visible (no release). Each thread, or the
 * leader of the scope, reads `bytes`. */
DG_FN void dg_inline_record(dg_u64 *w, dg_u32 flags, dg_u32 remote, dg_u64 remote_offset,
			    const void *bytes, dg_u32 size)
{
	dg_gpu_request r = dg_request(DG_OP_PUT_INLINE, 0, remote_offset, 0, 0, 0);
	r.flags = (dg_u8)flags;
	r.length = (dg_u8)(size <= DG_INLINE_MAX ? size : 255);
	r.signal_region = remote;
	if (remote_offset >> DG_SEQUENCE_BITS)
		r.remote_offset = DG_SEQUENCE_MASK;
	dg_record_pack(&r, w);
	dg_inline_pack(w, (const dg_u8 *)bytes, size <= DG_INLINE_MAX ? size : 0);
}

template <int sharing = DG_SHARING_GPU, int scope = DG_SCOPE_THREAD, dg_u32 flags = 0>
DG_FN dg_u64 dg_put_inline(dg_gpu_queue *q, dg_u32 remote, dg_u64 remote_offset, const void *bytes,
			   dg_u32 size)
{
	dg_u64 w[DG_RECORD_WORDS];
	dg_inline_record(w, flags, remote, remote_offset, bytes, size);
	return dg_post<sharing, scope, false, false>(q, 0, w);
}

template <int sharing = DG_SHARING_GPU, int scope = DG_SCOPE_THREAD, dg_u32 flags = 0>
DG_FN dg_u64 dg_put_inline_weak(dg_gpu_queue *q, dg_u64 place, dg_u32 remote, dg_u64 remote_offset,
				const void *bytes, dg_u32 size)
{
	dg_u64 w[DG_RECORD_WORDS];
	dg_inline_record(w, flags, remote, remote_offset, bytes, size);
	return dg_post<sharing, scope, false, true>(q, place, w);
}

/* Operations without bytes. dg_fence(): operations posted after it start when all those posted
 * before it are complete. dg_commit(): makes the proxy post the records that it held back because
 * of DG_HOLD. */
#define DG_POSTED_BARE(name, op)                                                                   \
	template <int sharing = DG_SHARING_GPU, int scope = DG_SCOPE_THREAD>                       \
	DG_FN dg_u64 name(dg_gpu_queue *q)                                                         \
	{                                                                                          \
		dg_gpu_request r = dg_request(op, 0, 0, 0, 0, 0);                                  \
		return dg_post_request<sharing, scope, DG_NO_RELEASE, false>(q, 0, &r);            \
	}                                                                                          \
	template <int sharing = DG_SHARING_GPU, int scope = DG_SCOPE_THREAD>                       \
	DG_FN dg_u64 name##_weak(dg_gpu_queue *q, dg_u64 place)                                    \
	{                                                                                          \
		dg_gpu_request r = dg_request(op, 0, 0, 0, 0, 0);                                  \
		return dg_post_request<sharing, scope, DG_NO_RELEASE, true>(q, place, &r);         \
	}
DG_POSTED_BARE(dg_fence, DG_OP_FENCE)
DG_POSTED_BARE(dg_commit, DG_OP_COMMIT)

/* THE WAITS. Any thread may wait for any ticket, any number of times. */

/* Returns the dg_status of a ticket, or DG_PENDING. If the ticket's place has been used again,
 * returns DG_OK if the ticket precedes the queue's first error (or there was no error), else that
 * error. */
DG_FN int dg_look(const dg_gpu_queue *q, const dg_queue_line &k, dg_u64 ticket)
{
	const dg_gpu_completion *c = (const dg_gpu_completion *)k.completions;
	const dg_u64 state = dg_load_acquire_sys(&c[ticket & k.mask].state);
	const long long ahead = dg_completion_ahead(state, ticket);
	if (ahead < 0)
		return DG_PENDING;
	if (k.trace && ahead == 0)
		dg_store_gpu((dg_u64 *)k.trace + 2 * (ticket & k.mask) + 1, dg_clock_ns());
	if (ahead == 0)
		return (int)(state & 255);
	const dg_u64 error = dg_load_relaxed_sys(&dg_ring_of(q)->first_error);
	const bool before = !error || dg_completion_ahead(error, ticket) > 0;
	return before ? DG_OK : (int)(error & 255);
}

/* Like dg_look(), but returns DG_CLOSED instead of DG_PENDING if the queue is RETIRED. */
DG_FN int dg_look_or_closed(const dg_gpu_queue *q, const dg_queue_line &k, dg_u64 ticket)
{
	int status = dg_look(q, k, ticket);
	if (status == DG_PENDING && dg_closed(q) == DG_RING_RETIRED) {
		status = dg_look(q, k, ticket);
		status = status == DG_PENDING ? DG_CLOSED : status;
	}
	return status;
}

/* Tests a ticket without waiting. Returns its dg_status, or DG_PENDING if it is not complete. */
DG_FN int dg_test(const dg_gpu_queue *q, dg_u64 ticket)
{
	if (ticket & DG_REFUSED)
		return (int)(ticket & 255);
	return dg_look_or_closed(q, dg_line(q), ticket);
}

/* Returns the first place up to `ticket` that was never filled, or DG_NO_HOLE. In weak mode this is
 * a place that no thread chose; in strong mode, a place that a thread has reserved but not written
 * yet.
 * */
DG_FN dg_u64 dg_hole(const dg_gpu_queue *q, dg_u64 ticket)
{
	const dg_gpu_record *records = (const dg_gpu_record *)q->records;
	const dg_u64 done = dg_done(q);
	dg_u64 left = ((ticket - q->first) & DG_SEQUENCE_MASK) + 1;
	left = left > done ? left - done : 0;
	for (dg_u64 i = 0; i < left && i <= q->mask; i++) {
		const dg_u64 place = (q->first + done + i) & DG_SEQUENCE_MASK;
		const dg_u64 word = dg_load_relaxed_sys(&records[place & q->mask].word[0]);
		if ((word ^ dg_record_epoch(place, q->shift)) >> DG_SEQUENCE_BITS)
			return place;
	}
	return DG_NO_HOLE;
}

/* One iteration of a wait. In the first iteration and every 8th after it, each thread loads its own
 * completion. In the other iterations, only one of the converged threads of a warp loads its
 * completion, and when it finds its ticket complete, all of them load theirs once. So a waiting
 * warp mostly has one load in flight on the bus. Still no wait depends on another one, which
 * matters because the polling thread may be waiting for something that another thread of the warp,
 * whose own ticket is complete, does next. Checking whether the queue is closed takes a second
 * load, in every 16th iteration. */
template <int sharing>
DG_FN bool dg_turn(const dg_gpu_queue *q, const dg_queue_line &k, dg_u64 ticket, dg_u32 polls,
		   int *status)
{
	const bool each_loads = sharing == DG_SHARING_THREAD || polls % 8 == 0;
	const dg_u32 converged = sharing == DG_SHARING_THREAD ? 0 : __activemask();
	const dg_u32 lane = dg_thread_of_block() & 31;
	const bool loads = each_loads || lane == (dg_u32)__ffs((int)converged) - 1;
	*status = DG_PENDING;
	if (loads)
		*status = polls % 16 == 8 ? dg_look_or_closed(q, k, ticket) : dg_look(q, k, ticket);
	if (sharing == DG_SHARING_THREAD)
		return *status != DG_PENDING;
	if (__any_sync(converged, *status != DG_PENDING) && !loads)
		*status = dg_look(q, k, ticket);
	return *status != DG_PENDING;
}

/* Waits for a ticket. Returns its dg_status. DG_TIMED_OUT and DG_HOLE: the queue's time limit has
 * passed, and the bytes may still move; for DG_HOLE, a place at or before the ticket was never
 * filled, and dg_hole() returns that place. DG_CLOSED: the queue was closed before the operation
 * was complete. */
template <int sharing = DG_SHARING_GPU> DG_FN int dg_wait(const dg_gpu_queue *q, dg_u64 ticket)
{
	int status;
	const dg_queue_line k = dg_line(q);
	dg_waiter w = dg_wait_begin();
	if (ticket & DG_REFUSED)
		return (int)(ticket & 255);
	while (!dg_turn<sharing>(q, k, ticket, w.polls, &status))
		if (!dg_wait_more(&w, k.limit))
			return dg_hole(q, ticket) == DG_NO_HOLE ? DG_TIMED_OUT : DG_HOLE;
	return status;
}

/* dg_wait() for a get: after DG_OK the bytes are visible to this thread. */
template <int sharing = DG_SHARING_GPU> DG_FN int dg_get_wait(const dg_gpu_queue *q, dg_u64 ticket)
{
	const int status = dg_wait<sharing>(q, ticket);
	__threadfence_system();
	return status;
}

/* dg_wait() for a receive. *size: bytes of the message; *immediate: its value. Both are 0 if the
 * receive failed or its place has been used again. */
template <int sharing = DG_SHARING_GPU>
DG_FN int dg_recv_wait(const dg_gpu_queue *q, dg_u64 ticket, dg_u32 *size, dg_u32 *immediate)
{
	const dg_gpu_completion *c = (const dg_gpu_completion *)q->completions + (ticket & q->mask);
	const int status = dg_get_wait<sharing>(q, ticket);
	const dg_u64 value = status == DG_OK ? dg_load_relaxed_sys(&c->value) : 0;
	const bool own = dg_completion_ahead(dg_load_acquire_sys(&c->state), ticket) == 0;
	*size = own ? (dg_u32)(value >> 32) : 0;
	*immediate = own ? (dg_u32)value : 0;
	return status;
}

/* Waits until everything posted to the queue before this call is complete. Returns DG_OK or the
 * queue's first error; DG_TIMED_OUT, DG_HOLE and DG_CLOSED are as for dg_wait(). */
DG_FN int dg_quiet(const dg_gpu_queue *q)
{
	const dg_u64 count = dg_load_gpu(&q->next) - q->first;
	dg_waiter w = dg_wait_begin();
	while (dg_done(q) < count) {
		if (dg_closed(q) == DG_RING_RETIRED && dg_done(q) < count)
			return DG_CLOSED;
		if (!dg_wait_more(&w, q->limit))
			return dg_hole(q, q->first + count - 1) == DG_NO_HOLE ? DG_TIMED_OUT
									      : DG_HOLE;
	}
	return (int)(dg_load_relaxed_sys(&dg_ring_of(q)->first_error) & 255);
}

/* Gets the next place (in weak mode, the place after the last one chosen) and the mask of
 * places. */
template <class U64, class U32>
DG_FN void dg_queue_info(const dg_gpu_queue *q, U64 *next, U32 *mask)
{
	static_assert(sizeof(U64) == 8 && sizeof(U32) == 4, "next has 64 bits, mask has 32");
	*next = dg_load_gpu(&q->next) & DG_SEQUENCE_MASK;
	*mask = q->mask;
}

#ifdef DG_NUMBA
/* Functions for Numba, whose calling convention passes the address of the result first and returns
 * 0 (dgkit/gpu_initiated/numba_functions.py declares them). Each calls the function with its
 * default template parameters. */
#define DG_SHIM(name, type, call, ...)                                                             \
	extern "C" __device__ int dg_numba_##name(type *result, dg_gpu_queue *q, ##__VA_ARGS__)    \
	{                                                                                          \
		*result = call;                                                                    \
		return 0;                                                                          \
	}
#define DG_SPREAD(...) __VA_ARGS__
/* A function that posts, and its weak form. `arguments` are in parentheses. */
#define DG_SHIM_POSTED(name, arguments, ...)                                                       \
	DG_SHIM(name, dg_u64, dg_##name(q, DG_SPREAD arguments), __VA_ARGS__)                      \
	DG_SHIM(name##_weak, dg_u64, dg_##name##_weak(q, place, DG_SPREAD arguments),              \
		dg_u64 place, __VA_ARGS__)
#define DG_REMOTE_PARAMETERS dg_u32 remote, dg_u64 remote_offset
#define DG_LOCAL_PARAMETERS  dg_u32 local, dg_u64 local_offset, dg_u64 size
#define DG_COPY_PARAMETERS   DG_REMOTE_PARAMETERS, DG_LOCAL_PARAMETERS
DG_SHIM_POSTED(put, (remote, remote_offset, local, local_offset, size), DG_COPY_PARAMETERS)
DG_SHIM_POSTED(get, (remote, remote_offset, local, local_offset, size), DG_COPY_PARAMETERS)
DG_SHIM_POSTED(put_signal,
	       (remote, remote_offset, local, local_offset, size, signal_region, signal_offset,
		addend),
	       DG_COPY_PARAMETERS, dg_u32 signal_region, dg_u64 signal_offset, dg_u64 addend)
DG_SHIM_POSTED(signal, (signal_region, signal_offset, addend), dg_u32 signal_region,
	       dg_u64 signal_offset, dg_u64 addend)
DG_SHIM_POSTED(put_counter, (remote, remote_offset, local, local_offset, size, other, count),
	       DG_COPY_PARAMETERS, const dg_gpu_queue *other, dg_u64 count)
DG_SHIM_POSTED(put_immediate, (remote, remote_offset, local, local_offset, size, immediate),
	       DG_COPY_PARAMETERS, dg_u32 immediate)
DG_SHIM_POSTED(send, (local, local_offset, size, immediate), DG_LOCAL_PARAMETERS, dg_u32 immediate)
DG_SHIM_POSTED(recv, (local, local_offset, size), DG_LOCAL_PARAMETERS)
DG_SHIM(put_inline_u64, dg_u64, dg_put_inline(q, remote, remote_offset, &value, 8),
	DG_REMOTE_PARAMETERS, dg_u64 value)
DG_SHIM(put_inline_u64_weak, dg_u64,
	dg_put_inline_weak(q, place, remote, remote_offset, &value, 8), dg_u64 place,
	DG_REMOTE_PARAMETERS, dg_u64 value)
DG_SHIM(fence, dg_u64, dg_fence(q))
DG_SHIM(fence_weak, dg_u64, dg_fence_weak(q, place), dg_u64 place)
DG_SHIM(commit, dg_u64, dg_commit(q))
DG_SHIM(commit_weak, dg_u64, dg_commit_weak(q, place), dg_u64 place)
DG_SHIM(wait, int, dg_wait(q, ticket), dg_u64 ticket)
DG_SHIM(get_wait, int, dg_get_wait(q, ticket), dg_u64 ticket)
DG_SHIM(test, int, dg_test(q, ticket), dg_u64 ticket)
DG_SHIM(quiet, int, dg_quiet(q))
DG_SHIM(hole, dg_u64, dg_hole(q, ticket), dg_u64 ticket)

/* dg_recv_wait() as two functions: the first returns its status, the second size << 32 |
 * immediate. */
DG_SHIM(recv_wait, int, dg_get_wait(q, ticket), dg_u64 ticket)
extern "C" __device__ int dg_numba_received(dg_u64 *result, dg_gpu_queue *q, dg_u64 ticket)
{
	dg_u32 size, immediate;
	dg_recv_wait(q, ticket, &size, &immediate);
	*result = (dg_u64)size << 32 | immediate;
	return 0;
}

extern "C" __device__ int dg_numba_next_place(dg_u64 *result, dg_gpu_queue *q)
{
	dg_u32 mask;
	dg_queue_info(q, result, &mask);
	return 0;
}
#endif

#endif
#endif
