/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The two rings of a queue, io_uring's shape: operations go down one, completions come up the other.
 *
 * An entry carries its own sequence number, so that one cache line moves where a shared tail index
 * would make it two. Entry number i (counted from 0, 32 bits, wrapping) lies at i & mask and is
 * there when its seq == i + 1. An entry is rewritten only after its operation was reaped, so the
 * rings cannot overflow and a consumer needs no word back to its producer.
 */
#ifndef DG_RING_H
#define DG_RING_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

/* A checked operation, one cache line. dst and src are addresses here, or in the exporter where the
 * remote region's method is not MAP. local and remote are region table indices. */
struct dg_op {
	char *dst;
	const char *src;
	uint64_t size; /* of a row */
	uint64_t dst_stride, src_stride;
	uint32_t rows, slot;
	uint32_t local, remote;
	uint8_t opcode, flags;
	uint16_t status; /* scratch of the far end */
	atomic_uint seq;
};

/* In flags, beside dg_wr_flag. PLAIN: both sides are ordinary memory, mapped here. */
#define OP_PLAIN      0x80u
#define OP_GPU_LOCAL  0x40u
#define OP_GPU_REMOTE 0x20u
#define OP_GPU        (OP_GPU_LOCAL | OP_GPU_REMOTE)

struct dg_cqe {
	uint64_t complete_ns;
	uint32_t slot_status; /* slot << 8 | status */
	atomic_uint seq;
};
/* In the status byte: the stamp serves several completions; it was taken late. */
#define CQE_SHARED 0x80u
#define CQE_LATE   0x40u

_Static_assert(sizeof(struct dg_op) == 64, "an operation is one cache line");
_Static_assert(sizeof(struct dg_cqe) == 16, "four completions a cache line");

/*
 * A pipe: both rings, the flags by which each end says that it sleeps, and one fd.
 *
 * Sleeping (both ways, the same shape). A sleeper stores `armed` and then looks at the ring; a
 * producer stores the entry's seq and then looks at `armed`. Forbidden outcome: the sleeper misses
 * the entry AND the producer misses the flag.
 *
 * With four seq_cst accesses there is one total order S. In S either the producer's store precedes
 * the sleeper's look (the entry is seen) or the sleeper's look precedes the producer's store, and
 * then so does the sleeper's own earlier store of `armed`, which the producer's later load must see.
 * On Arm: stlr then ldar stay in order (RCsc), which release/acquire alone (ldapr) would not give.
 *
 * On x86 a seq_cst store is an xchg, which waits until the entry's line has come over from the other
 * core: as long as the whole hand-off. So there, where the kernel has membarrier(2), the producer's
 * store is only a release store, and the sleeper pays: after it stored `armed` it has the kernel run
 * a full barrier on every CPU that runs this process (both ends are threads of it). A producer whose
 * load of `armed` came before that barrier has its store of seq before it too, so the sleeper's look,
 * which comes after, sees the entry; one whose load comes after it sees the flag.
 *
 * tests/native/test_litmus.c runs it; passing on x86 or under emulation proves nothing for Arm.
 */
extern atomic_bool dg_asymmetric;
/* Before the first pipe, and before a thread that sleeps: finds out whether this machine can. */
void dg_asymmetric_init(void);
/* The sleeper, between its store of `armed` and its look. */
void dg_sleeper_barrier(void);

/* The producer's store. The signal fence keeps the compiler from moving the look at armed before it. */
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
	/* read by both, written by neither while it runs */
	_Alignas(64) struct dg_op *sq;
	struct dg_cqe *cq;
	void *provider; /* the provider's own state for this pipe */
	uint32_t mask;
	int event_fd; /* written by the far end */
	int wait_fd; /* what the caller sleeps on: event_fd, or an epoll fd over it */
	/* the caller's end: a line that the far end never reads */
	_Alignas(64) uint32_t sq_tail, cq_head;
	uint64_t
		posted_ns; /* about when the last operation was; for a far end in the caller's thread */
	/* the flag of the caller's end, read by the far end */
	_Alignas(64) atomic_uint cq_armed;
	/* the far end */
	_Alignas(64) uint32_t sq_head, cq_tail;
	uint64_t progress; /* bytes of the operation at sq_head that are done */
	uint64_t moved; /* scratch of the far end */
	uint32_t chain_status;
	atomic_uint detach; /* set by the caller: give everything back */
	atomic_uint detached; /* set by the far end: it will not touch the pipe again */
};

static inline struct dg_op *sq_entry(struct dg_pipe *p, uint32_t i)
{
	return &p->sq[i & p->mask];
}

/* Writes an operation behind the last one and publishes it. The line is written in one go, its seq last:
 * the far end may spin on it, and would take it away between two writes that lie apart. The last of a
 * batch is the producer's half of sleeping. */
static inline void sq_put(struct dg_pipe *p, const struct dg_op *op, bool last)
{
	struct dg_op *to = sq_entry(p, p->sq_tail);
	memcpy(to, op, offsetof(struct dg_op, seq));
	p->sq_tail++;
	if (last)
		publish_seq(&to->seq, p->sq_tail);
	else
		atomic_store_explicit(&to->seq, p->sq_tail, memory_order_release);
}

/* The entry at sq_head if it is there. seq_cst: it is also the sleeper's look at the ring. */
static inline struct dg_op *sq_peek(struct dg_pipe *p)
{
	struct dg_op *op = sq_entry(p, p->sq_head);
	return atomic_load_explicit(&op->seq, memory_order_seq_cst) == p->sq_head + 1 ? op : NULL;
}

static inline bool sq_has(struct dg_pipe *p, uint32_t i)
{
	return atomic_load_explicit(&sq_entry(p, i)->seq, memory_order_acquire) == i + 1;
}

/* The completion at cq_head if it is there. seq_cst: also the sleeper's look. */
static inline struct dg_cqe *cq_peek(struct dg_pipe *p)
{
	struct dg_cqe *e = &p->cq[p->cq_head & p->mask];
	return atomic_load_explicit(&e->seq, memory_order_seq_cst) == p->cq_head + 1 ? e : NULL;
}

static inline uint32_t slot_status(uint32_t slot, int status)
{
	return slot << 8 | ((uint32_t)status & 0x3f);
}

/* Publishes n completions with one stamp. The last store is the producer's half. */
static inline void cq_publish(struct dg_pipe *p, const uint32_t *slot_statuses, uint32_t n,
			      uint64_t stamp_ns)
{
	uint32_t shared = n > 1 ? CQE_SHARED : 0;
	for (uint32_t i = 0; i < n; i++) {
		struct dg_cqe *e = &p->cq[p->cq_tail & p->mask];
		e->complete_ns = stamp_ns;
		e->slot_status = slot_statuses[i] | shared;
		p->cq_tail++;
		if (i + 1 == n)
			publish_seq(&e->seq, p->cq_tail);
		else
			atomic_store_explicit(&e->seq, p->cq_tail, memory_order_release);
	}
}

int dg_pipe_open(struct dg_pipe *p, uint32_t depth);
void dg_pipe_close(struct dg_pipe *p);
/* The far end, after cq_publish: writes the fd if the caller sleeps. */
void dg_pipe_wake(struct dg_pipe *p);
/* The caller, before it sleeps on wait_fd. 1: armed; 0: completions are there already. */
int dg_pipe_arm(struct dg_pipe *p);

#endif
