/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A queue: a pipe to the provider, a table of slots, and a ring of completions ready to be taken.
 *
 * One operation:
 *
 *            post                    drain                     poll, take
 *   FREE ----------> PENDING ------------------> DONE ---------------------> FREE
 *                       |  expire (op_timeout)    ^
 *                       +-----> ZOMBIE            |  a posted record goes straight to the ready
 *                      (its completion was given  |  ring, and its slot is free at the drain
 *                       as TIMED_OUT; the slot
 *                       waits for the provider)
 *
 * A queue has no thread. One thread is inside at a time: `in_use` is taken by one exchange, which is
 * also the poster's half of dg_queues_grace(): it stores in_use and then looks at a region's id,
 * while dg_region_close stores the id and then looks at in_use, all seq_cst. Forbidden outcome: the
 * closer sees the queue free AND the poster sees the old id; the one order of seq_cst forbids it.
 */
#ifndef DG_QUEUE_H
#define DG_QUEUE_H

#include <errno.h>

#include "clock.h"
#include "error.h"
#include "provider.h"

/* MOVED: somebody moves a queue on that its caller does not look at; that takes a moment. */
enum { QUEUE_FREE, QUEUE_POSTING, QUEUE_WAITING, QUEUE_POLLED };
enum slot_state { SLOT_FREE, SLOT_PENDING, SLOT_DONE, SLOT_ZOMBIE };
/* Where a completion goes: to poll, to the transfer that asks, to the run that waits; a part of a
 * chain has none, and a dropped transfer's goes nowhere. */
enum slot_kind { KIND_POLL, KIND_TRANSFER, KIND_RUN, KIND_PART, KIND_DROPPED };

/* One cache line, private to the queue's thread. */
struct dg_slot {
	uint64_t user, size;
	uint64_t submit_ns, post_ns, complete_ns;
	uint32_t part; /* the part of the chain before this one, or NO_SLOT */
	uint8_t state, kind, op, path;
	uint8_t status, flags;
	uint8_t overdue; /* given as TIMED_OUT while the provider still has it */
	uint8_t reserved;
	uint32_t run_index;
	struct dg_queue *q; /* a ticket is a slot's address */
};
_Static_assert(sizeof(struct dg_slot) == 64, "a slot is one cache line");
#define NO_SLOT UINT32_MAX

struct dg_queue {
	struct dg_device *dev;
	atomic_uint in_use, leave_count; /* leaves counts queue_leave(), for dg_queues_grace */
	uint32_t fork_generation;
	atomic_uint refs; /* the handle and each prepared operation */
	bool closed, broken;
	uint32_t depth, path;
	uint64_t spin_ns, op_timeout_ns, expire_ns;
	struct dg_slot *slots;
	uint32_t *free; /* a stack of free slots */
	struct dg_op *scratch; /* operations that are checked and not posted yet */
	uint32_t n_free;
	uint32_t credits; /* depth less what was posted and not reaped */
	uint32_t in_flight; /* slots that the provider has */
	uint64_t bytes_in_flight;
	struct dg_wc *ready; /* completions for poll */
	uint32_t ready_head, ready_tail, ready_mask;
	struct dg_wc *run_wc; /* where KIND_RUN goes */
	uint32_t run_left;
	struct dg_wc *sink; /* where KIND_TRANSFER goes */
	uint32_t sink_n, sink_next;
	struct dg_queue *next; /* of the device */
	struct dg_pipe pipe;
};

/* Stamps of an inline batch are taken once for at most this many operations or bytes. */
enum { STAMP_OPS = 16, STAMP_BYTES = 65536 };

/* Operations over one pair of regions in a row: what is looked up once for all of them. */
struct op_run {
	struct dg_region_entry *local, *remote;
	uint32_t local_id, remote_id;
};

struct dg_prep {
	struct dg_queue *q;
	uint32_t n, n_runs, n_wc;
	uint64_t total;
	bool inline_able;
	uint64_t
		uniform_size; /* the size of all records, if each is one small run of bytes and none is chained */
	dg_wr *wr;
	struct dg_op *ops;
	struct op_run *runs;
	dg_wc *wc;
};

/* Every entry to a queue that is not free. 0, or why not. */
int dg_queue_refuse(struct dg_queue *q, uint32_t found);

static inline int queue_enter(struct dg_queue *q)
{
	uint32_t found = QUEUE_FREE;
	if (__builtin_expect(!atomic_compare_exchange_strong_explicit(
				     &q->in_use, &found, QUEUE_POSTING, memory_order_seq_cst,
				     memory_order_relaxed),
			     0))
		return dg_queue_refuse(q, found);
	return 0;
}

static inline void queue_leave(struct dg_queue *q)
{
	uint32_t n = atomic_load_explicit(&q->leave_count, memory_order_relaxed);
	/* Release: who waits in dg_queues_grace may see this and not yet in_use, and then gives the local
	 * memory of an inline copy back. What was copied must be there before this is. */
	atomic_store_explicit(&q->leave_count, n + 1, memory_order_release);
	atomic_store_explicit(&q->in_use, QUEUE_FREE, memory_order_release);
}

/* After queue_enter, before posting: the queue must be open, and of this process. */
int dg_queue_postable(struct dg_queue *q);

/* drain.c: moves completions out of the pipe. out takes up to n of those for poll, directly. */
uint32_t dg_queue_process_completions(struct dg_queue *q, dg_wc *out, uint32_t n);
/* Ends what is overdue as TIMED_OUT. Gives how many. */
uint32_t dg_queue_expire(struct dg_queue *q, uint64_t now);
/* How long a wait for `size` bytes spins from `start` on: sleeping and being woken costs tens of
 * microseconds, which a copy that is nearly done is worth waiting for. A provider without a thread has
 * nobody else who looks, and what wakes a sleeper goes by way of its driver: there it spins longer. */
static inline uint64_t spin_until(const struct dg_queue *q, uint64_t start, uint64_t size)
{
	enum { BYTES_A_NS = 8, MOST_NS = 250000, MOST_POLLED_NS = 1000000 };
	uint64_t most = q->dev->ops->poll ? MOST_POLLED_NS : MOST_NS;
	uint64_t copying = size / BYTES_A_NS < most ? size / BYTES_A_NS : most;
	return q->spin_ns ? add_sat(start, q->spin_ns + copying) : start;
}
/* Sleeps or spins until the pipe has something, or until deadline. 0, or -EINTR. */
int dg_queue_wait(struct dg_queue *q, uint64_t spin_until, uint64_t deadline);

/* queue.c: dg_devices_poll for one device. */
void dg_queues_poll(struct dg_device *dev);

void dg_slot_to_wc(const struct dg_slot *s, dg_wc *wc);
/* queue.c: submits n checked operations and waits for their n_wc completions. */
int dg_queue_run_ops(struct dg_queue *q, struct dg_op *ops, const dg_wr *wr, uint32_t n,
		     uint32_t n_wc, dg_wc *wc, uint64_t submit_ns, uint64_t timeout_ns);

void dg_queue_free_memory(struct dg_queue *q);
/* prep.c: dg_prep_run for a caller who is inside the queue already, and has looked at the clock. */
int dg_prep_run_entered(struct dg_prep *p, uint64_t submit_ns);
/* After queue_enter, before its regions are touched: 0, or why they or the queue cannot be used. */
int dg_prep_still_open(const struct dg_prep *p);

/* post.c */
/* Checks a record and fills *op. run is the current run of records over one pair of regions; *fresh
 * says that wr begins another one, and then *run is that. */
int dg_resolve(struct dg_queue *q, const dg_wr *wr, struct dg_op *op, struct op_run *run,
	       bool *fresh);
/* 0, or -EAGAIN if n more operations do not fit. */
int dg_queue_room(struct dg_queue *q, uint32_t n);
/* Enters the gates of n checked operations and hands them to the provider. Gives the slot of the
 * last. */
uint32_t dg_queue_submit(struct dg_queue *q, struct dg_op *ops, const dg_wr *wr, uint32_t n,
			 uint32_t kind, uint64_t submit_ns);
/* One operation that the caller waits for, by the provider's direct(): there is room, and nothing is
 * pending. 1: it is complete, in *wc. 0: it is in flight as a KIND_RUN. OP_NOT: it was not begun. */
int dg_queue_direct(struct dg_queue *q, struct dg_op *op, const dg_wr *wr, dg_wc *wc,
		    uint64_t submit_ns);
/* Runs n checked operations in this thread; completions go to wc[i & mask], from i = first on. Gives
 * how many. */
uint32_t dg_queue_run_inline(const struct dg_op *ops, const dg_wr *wr, uint32_t n, dg_wc *wc,
			     uint32_t first, uint32_t mask);
/* Checks n records into q->scratch: all are good, or none is taken. */
int dg_queue_stage(struct dg_queue *q, const dg_wr *wr, uint32_t n, bool *inline_able,
		   uint64_t *total);

/* Small enough, and nothing pending: the caller does it at once. */
static inline bool queue_inline(const struct dg_queue *q, bool able, uint64_t total)
{
	/* closed: the device may be gone, and with it its caps */
	if (q->closed || q->path == DG_PATH_WORKER || !able || q->in_flight)
		return false;
	return q->path == DG_PATH_INLINE || total <= q->dev->caps.inline_max;
}

#endif
