/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The two rings of a queue, shaped like io_uring's: a submission ring and a completion ring.
 *
 * Each entry carries its own sequence number, so a hand-off moves one cache line; with a shared
 * tail index it would move two. Entry number i (counted from 0, 32 bits, wrapping) is at index i &
 * mask and is valid once its seq == i + 1. An entry is overwritten only after its operation was
 * reaped, so the rings cannot overflow, and a consumer need not report its head to the producer.
 */
#ifndef DG_RING_H
#define DG_RING_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

/* A checked operation, one cache line. dst and src are addresses in this process; for a remote
 * region with DG_METHOD_VM they are addresses in the exporter, with DG_METHOD_PROXY offsets into
 * the region. local and remote are indices into the region table. For an atomic operation src is
 * the remote word, dst receives its old value, dst_stride is the value to add or compare, and
 * src_stride the value to swap in. */
struct dg_op {
	char *dst;
	const char *src;
	uint64_t size; /* of one row */
	uint64_t dst_stride, src_stride;
	uint32_t rows, slot;
	uint32_t local, remote;
	uint8_t opcode, flags;
	uint16_t status; /* scratch space of the provider */
	atomic_uint seq;
};

/* An opcode that only the software NIC posts: dst points to a struct dg_atomic, which is executed by
 * the exporter; its first 8 bytes become the old value of the word at src. */
#define OP_MASKED 4u

/* One copy of a group. A group of `rows` copies of `size` bytes is one operation with OP_GROUP: dst
 * points to its pairs, in memory of the queue. */
struct dg_pair {
	char *dst;
	const char *src;
};
#define GROUP_PAIRS 16u /* maximum, as the pairs of a group share a stamp */
#define GROUP_SIZE  64u /* maximum */

/* Used in flags, in addition to dg_wr_flag. PLAIN: a copy where both sides are ordinary memory
 * mapped into this process. ATOMIC: DG_FETCH_ADD or DG_COMPARE_SWAP of a word that the provider
 * reaches, never PLAIN; an atomic operation that the exporter executes has neither. GROUP: only for a
 * provider that sets dg_ops.groups. */
#define OP_PLAIN      0x80u
#define OP_GROUP      0x10u
#define OP_ATOMIC     0x08u
#define OP_GPU_LOCAL  0x40u
#define OP_GPU_REMOTE 0x20u
#define OP_GPU        (OP_GPU_LOCAL | OP_GPU_REMOTE)
#define OP_KERNEL     0x04u /* set by the provider: a kernel copies it */

struct dg_cqe {
	uint64_t complete_ns;
	uint32_t slot_status; /* slot << 8 | status */
	atomic_uint seq;
};
/* Flags in the status byte: the stamp is shared by several completions; it was taken late; a kernel
 * made the copy. */
#define CQE_SHARED 0x80u
#define CQE_LATE   0x40u
#define CQE_KERNEL 0x20u
#define CQE_STATUS 0x1fu

#define LATE_NS 1000u /* a completion found after a longer gap between polls has a late stamp */

_Static_assert(sizeof(struct dg_op) == 64, "an operation is one cache line");
_Static_assert(sizeof(struct dg_cqe) == 16, "four completions a cache line");

/*
 * A pipe: both rings between a queue's caller and its provider, the flag with which a sleeping end
 * asks to be woken, and an event fd.
 *
 * Sleeping works the same way in both directions. The sleeper stores `armed` and then loads the
 * ring's next seq; the producer stores the entry's seq and then loads `armed`. Forbidden outcome:
 * the sleeper misses the entry AND the producer misses the flag.
 *
 * With four seq_cst accesses there is one total order S. In S, either the producer's store precedes
 * the sleeper's load, which then sees the entry; or the sleeper's load precedes the producer's
 * store. Then the sleeper's own earlier store of `armed` precedes it too, and the producer's later
 * load must see the flag. On Arm, stlr followed by ldar stays in order (RCsc); release and acquire
 * alone (ldapr) would not.
 *
 * On x86 a seq_cst store is an xchg, which stalls until the entry's cache line has arrived from the
 * other core: as long as the whole hand-off. So on x86, where the kernel has membarrier(2), the
 * producer's store is only a release store, and the sleeper bears the cost: after its store of
 * `armed` it has the kernel execute a full barrier on every CPU that runs this process (both ends
 * are threads of it). If a producer's load of `armed` came before that barrier, so did its store of
 * seq, and the sleeper's load, which comes after the barrier, sees the entry. If the load comes
 * after the barrier, it sees the flag.
 *
 * tests/native/test_litmus.c exercises this. Passing on x86 or under emulation proves nothing for
 * Arm.
 */
extern atomic_bool dg_asymmetric;
/* Determines whether this machine has the asymmetric barrier. Call before the first pipe is opened
 * and before a thread that sleeps is started. */
void dg_asymmetric_init(void);
/* The sleeper's barrier, between its store of `armed` and its load of the ring. */
void dg_sleeper_barrier(void);

/* The producer's store of seq. The signal fence keeps the compiler from moving the load of `armed`
 * before it. */
static inline void publish_seq(atomic_uint *seq, uint32_t value)
{
	if (atomic_load_explicit(&dg_asymmetric, memory_order_relaxed)) {
		atomic_store_explicit(seq, value, memory_order_release);
		atomic_signal_fence(memory_order_seq_cst);
	} else {
		atomic_store_explicit(seq, value, memory_order_seq_cst);
	}
}

struct dg_pipe {
	/* read by both ends, written by neither while the pipe is in use */
	_Alignas(64) struct dg_op *sq;
	struct dg_cqe *cq;
	void *provider; /* the provider's state for this pipe */
	uint32_t mask;
	/* Set before attach for a queue of a proxy: the proxy, whose thread posts to all of its
	 * queues. A kernel that fills the GPU may wait for operations posted here, so nothing may
	 * wait for that kernel. */
	const void *beside_kernels;
	int event_fd; /* written by the provider */
	int wait_fd; /* fd that the caller sleeps on: event_fd, or an epoll fd that includes it */
	/* written by the caller: a cache line that the provider's thread never reads */
	_Alignas(64) uint32_t sq_tail, cq_head;
	uint64_t posted_ns; /* approximate time of the last post; for providers without a thread */
	/* the caller's flag, read by the provider */
	_Alignas(64) atomic_uint cq_armed;
	/* written by the provider */
	_Alignas(64) uint32_t sq_head, cq_tail;
	uint64_t progress; /* bytes of the operation at sq_head that were already copied */
	uint64_t moved; /* scratch space of the provider */
	uint32_t chain_status;
	atomic_uint detach; /* set by the caller: flush everything and release the pipe */
	atomic_uint detached; /* set by the provider: it will not access the pipe any more */
};

static inline struct dg_op *sq_entry(struct dg_pipe *p, uint32_t i)
{
	return &p->sq[i & p->mask];
}

/* Appends n operations to the submission ring and publishes them, the first one last. The provider
 * spins on the first one: if they were published in order, it would keep up with the caller, and
 * each of them would cost one hand-off. This way it finds them all, and several cache lines travel
 * at the same time. The last store is the producer's half of the sleeping protocol. */
static inline void sq_put(struct dg_pipe *p, const struct dg_op *ops, uint32_t n)
{
	uint32_t tail = p->sq_tail;
	for (uint32_t i = n; i-- > 0;) {
		struct dg_op *to = sq_entry(p, tail + i);
		memcpy(to, &ops[i], offsetof(struct dg_op, seq));
		if (i)
			atomic_store_explicit(&to->seq, tail + i + 1, memory_order_release);
		else
			publish_seq(&to->seq, tail + 1);
	}
	p->sq_tail = tail + n;
}

/* Returns the entry at sq_head if it is valid, or NULL. seq_cst: this is also the sleeper's load of
 * the ring. */
static inline struct dg_op *sq_peek(struct dg_pipe *p)
{
	struct dg_op *op = sq_entry(p, p->sq_head);
	return atomic_load_explicit(&op->seq, memory_order_seq_cst) == p->sq_head + 1 ? op : NULL;
}

static inline bool sq_has(struct dg_pipe *p, uint32_t i)
{
	return atomic_load_explicit(&sq_entry(p, i)->seq, memory_order_acquire) == i + 1;
}

/* Returns the completion at cq_head if it is valid, or NULL. seq_cst: this is also the sleeper's
 * load. */
static inline struct dg_cqe *cq_peek(struct dg_pipe *p)
{
	struct dg_cqe *e = &p->cq[p->cq_head & p->mask];
	return atomic_load_explicit(&e->seq, memory_order_seq_cst) == p->cq_head + 1 ? e : NULL;
}

static inline uint32_t slot_status(uint32_t slot, int status)
{
	return slot << 8 | ((uint32_t)status & CQE_STATUS);
}

/* Publishes n completions with one time stamp, the first one last, as in sq_put(). The last store
 * is the producer's half of the sleeping protocol. */
static inline void cq_publish(struct dg_pipe *p, const uint32_t *slot_statuses, uint32_t n,
			      uint64_t stamp_ns)
{
	uint32_t shared = n > 1 ? CQE_SHARED : 0, tail = p->cq_tail;
	for (uint32_t i = n; i-- > 0;) {
		struct dg_cqe *e = &p->cq[(tail + i) & p->mask];
		e->complete_ns = stamp_ns;
		e->slot_status = slot_statuses[i] | shared;
		if (i)
			atomic_store_explicit(&e->seq, tail + i + 1, memory_order_release);
		else
			publish_seq(&e->seq, tail + 1);
	}
	p->cq_tail = tail + n;
}

int dg_pipe_open(struct dg_pipe *p, uint32_t depth);
void dg_pipe_close(struct dg_pipe *p);
/* Called by the provider after cq_publish(): writes the event fd if the caller sleeps. */
void dg_pipe_wake(struct dg_pipe *p);
/* Called by the caller before it sleeps on wait_fd. Returns 1: armed; 0: completions are
 * available. */
int dg_pipe_arm(struct dg_pipe *p);

#endif
