/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A queue: a pipe to the provider, a table of slots, and a ring of completions ready to be polled.
 *
 * States of an operation's slot:
 *
 *            post              process completions              wait for the transfer
 *   FREE ----------> PENDING -----------------------> DONE ---------------------------> FREE
 *                       |
 *                       |  expire (op_timeout_ns)
 *                       +---------> ZOMBIE: completed as TIMED_OUT; the slot stays occupied until
 *                                   the provider returns the operation
 *
 *   The completion of a posted request goes directly to the ready ring, and its slot becomes FREE.
 *
 * A queue has no thread. Only one thread at a time is inside: it takes `in_use` with one atomic
 * exchange, which is also the poster's half of dg_queues_grace(). The poster stores in_use and then
 * loads a region's id, while dg_region_close() stores the id and then loads in_use, all seq_cst.
 * Forbidden outcome: the closer sees the queue free AND the poster sees the old id; the total order
 * of seq_cst rules it out.
 */
#ifndef DG_QUEUE_H
#define DG_QUEUE_H

#include <errno.h>
#include <stddef.h>
#include <string.h>

#include "clock.h"
#include "error.h"
#include "provider.h"

/* POLLED: dg_queues_poll() is briefly inside, on behalf of a caller that does not poll. CLOSING:
 * dg_queue_close() is inside. Other threads wait for these two states to end; in the other states
 * but QUEUE_FREE they are refused. */
enum { QUEUE_FREE, QUEUE_POSTING, QUEUE_WAITING, QUEUE_POLLED, QUEUE_CLOSING };
enum slot_state { SLOT_FREE, SLOT_PENDING, SLOT_DONE, SLOT_ZOMBIE };
/* Where a completion goes. POLL: to dg_queue_poll(). TRANSFER: stays in the slot until it is waited
 * for. RUN: to the waiting run. PART: a request of a chain before its last, which has no
 * completion. DROPPED: is discarded. */
enum slot_kind { KIND_POLL, KIND_TRANSFER, KIND_RUN, KIND_PART, KIND_DROPPED };

/* One cache line, private to the queue's thread. */
struct dg_slot {
	uint64_t user, size;
	uint64_t submit_ns, post_ns, complete_ns;
	uint32_t part; /* slot of the preceding request of the chain, or NO_SLOT */
	uint8_t state, kind, op, path;
	uint8_t status, flags;
	uint8_t overdue; /* completed as TIMED_OUT while the provider still has it */
	uint8_t generation; /* counts the tickets issued for this slot */
	uint16_t run_index; /* less than DG_DEPTH_MAX */
	/* of an operation with OP_GROUP, the number of its pairs, the first of which has number
	 * `user`; otherwise 0 */
	uint8_t pairs;
	uint8_t reserved;
	/* Never changes: a thread with a ticket loads it before it enters the queue. */
	struct dg_queue *q;
};
_Static_assert(sizeof(struct dg_slot) == 64, "a slot is one cache line");
#define NO_SLOT UINT32_MAX

/* Fills a slot, except for q and generation. */
static inline void slot_fill(struct dg_slot *s, const struct dg_slot *like)
{
	uint8_t generation = s->generation;
	memcpy(s, like, offsetof(struct dg_slot, q));
	s->generation = generation;
}

/* A ticket is a slot's address, with the slot's generation in the low bits, which are 0 in the
 * address. So a thread that waits for a ticket that another thread has already taken does not take
 * the slot's next operation. */
#define TICKET_GENERATIONS 64u

static inline int64_t slot_ticket(const struct dg_slot *s)
{
	return (int64_t)(intptr_t)s | (s->generation % TICKET_GENERATIONS);
}

struct dg_queue {
	struct dg_device *dev;
	atomic_uint in_use,
		leave_count; /* leave_count: calls of queue_leave(), for dg_queues_grace() */
	uint32_t fork_generation;
	atomic_uint refs; /* one for the handle and one for each prepared operation */
	/* Changed by the thread inside; dg_queue_fileno() and dg_queue_pending() load them from
	 * outside. */
	atomic_bool closed;
	atomic_uint credits; /* depth minus the number of operations posted and not reaped */
	int fd; /* pipe.wait_fd, until it is closed */
	/* posting neither blocks nor calls a driver, so a caller may hold a lock meanwhile */
	bool prompt;
	uint32_t depth, path;
	uint64_t spin_ns, op_timeout_ns, expire_ns;
	struct dg_slot *slots;
	uint32_t *free; /* stack of free slots */
	struct dg_op *scratch; /* operations that are checked but not posted yet */
	uint32_t n_free;
	uint32_t in_flight; /* number of operations held by the provider */
	uint64_t bytes_in_flight;
	/* For groups, if the provider supports them: a ring of pairs, and the `user` values of
	 * their work requests. pairs_out: number of pairs held by the provider. */
	struct dg_pair *pairs;
	uint64_t *pair_users;
	uint32_t pair_tail, pair_mask, pairs_out;
	struct dg_wc *ready; /* completions for dg_queue_poll() */
	uint32_t ready_head, ready_tail, ready_mask;
	struct dg_wc *run_wc; /* completions of KIND_RUN */
	uint32_t run_left, run_n; /* completions of the run: still to come; in total */
	struct dg_qp *qps; /* open queue pairs that are connected by hand */
	struct dg_queue *next; /* list of the device */
	struct dg_pipe pipe;
};

/* One stamp of an inline batch covers at most this many operations and bytes. */
enum { STAMP_OPS = 16, STAMP_BYTES = 65536 };

/* Consecutive operations between the same two regions, which are looked up once. */
struct op_run {
	struct dg_region_entry *local, *remote;
	uint64_t local_id, remote_id;
};

/* A batch of small requests of one size between the same two regions. */
struct dg_uniform {
	struct dg_op op; /* operation of the first request */
	struct dg_region_entry *local, *remote;
	uint32_t n;
};

struct dg_prep {
	struct dg_queue *q;
	uint32_t n, n_runs, n_wc;
	uint64_t total;
	bool inline_able;
	/* size of every request if each is one small contiguous copy and none is chained, otherwise
	 * 0 */
	uint64_t uniform_size;
	bool grouped; /* uniform, and the provider supports groups: `uniform` and `pairs` are set */
	struct dg_uniform uniform;
	struct dg_pair *pairs;
	uint64_t *users;
	dg_wr *wr;
	struct dg_op *ops;
	struct op_run *runs;
	dg_wc *wc;
};

/* Whether the queue was opened by a parent of this process. */
static inline bool dg_queue_forked(const struct dg_queue *q)
{
	return q->fork_generation !=
	       atomic_load_explicit(&dg_fork_generation, memory_order_relaxed);
}

/* For the thread inside the queue: relaxed, because in_use orders these accesses between
 * threads. */
static inline bool queue_closed(const struct dg_queue *q)
{
	return atomic_load_explicit(&q->closed, memory_order_relaxed);
}

static inline uint32_t credits(const struct dg_queue *q)
{
	return atomic_load_explicit(&q->credits, memory_order_relaxed);
}

/* A separate load and store are enough: only the thread inside changes it. */
static inline void credits_add(struct dg_queue *q, uint32_t n)
{
	atomic_store_explicit(&q->credits, credits(q) + n, memory_order_relaxed);
}

static inline void credits_take(struct dg_queue *q, uint32_t n)
{
	atomic_store_explicit(&q->credits, credits(q) - n, memory_order_relaxed);
}

/* Slow path of queue_enter() and dg_queue_close() for a queue that is not free. Enters it as
 * `state` once a thread that is POLLED or CLOSING has left. Returns 0, -EALREADY or -EOWNERDEAD. */
int dg_queue_refuse(struct dg_queue *q, uint32_t found, uint32_t state);

static inline int queue_enter(struct dg_queue *q)
{
	uint32_t found = QUEUE_FREE;
	if (__builtin_expect(!atomic_compare_exchange_strong_explicit(
				     &q->in_use, &found, QUEUE_POSTING, memory_order_seq_cst,
				     memory_order_relaxed),
			     0))
		return dg_queue_refuse(q, found, QUEUE_POSTING);
	return 0;
}

static inline void queue_leave(struct dg_queue *q)
{
	uint32_t n = atomic_load_explicit(&q->leave_count, memory_order_relaxed);
	/* Release: a closer in dg_queues_grace() may see this store before that of in_use, and then
	 * frees the local memory of an inline copy. The copied bytes must be visible before this
	 * store. */
	atomic_store_explicit(&q->leave_count, n + 1, memory_order_release);
	atomic_store_explicit(&q->in_use, QUEUE_FREE, memory_order_release);
}

/* Checks that the queue is open and belongs to this process. Called after queue_enter(), before
 * posting. Errors: ESTALE, EOWNERDEAD. */
int dg_queue_postable(struct dg_queue *q);

/* completion.c: takes completions out of the pipe and delivers them. If `out` is given, up to n
 * completions for dg_queue_poll() are stored there directly. Returns their number. */
uint32_t dg_queue_process_completions(struct dg_queue *q, dg_wc *out, uint32_t n);
/* Completes overdue operations as TIMED_OUT. Returns their number. */
uint32_t dg_queue_expire(struct dg_queue *q, uint64_t now);
/* Returns the time until which a wait for `size` bytes that began at `start` spins. Going to sleep
 * and waking up takes tens of microseconds, so spinning pays for a copy that is nearly complete. A
 * provider without a thread makes progress only when it is polled, and wakes a sleeper through its
 * driver: there, spin longer. */
static inline uint64_t spin_until(const struct dg_queue *q, uint64_t start, uint64_t size)
{
	enum { BYTES_A_NS = 8, MOST_NS = 250000, MOST_POLLED_NS = 1000000 };
	uint64_t most = q->dev->ops->poll ? MOST_POLLED_NS : MOST_NS;
	uint64_t copying = size / BYTES_A_NS < most ? size / BYTES_A_NS : most;
	return q->spin_ns ? add_sat(start, q->spin_ns + copying) : start;
}
/* Polls for at most a microsecond. Returns whether the pipe has a completion. */
bool dg_queue_spin(struct dg_queue *q);
/* Spins, then sleeps, until the pipe has a completion or until the deadline. Returns 0, -EINTR or
 * -EOWNERDEAD. */
int dg_queue_wait(struct dg_queue *q, uint64_t spin_until, uint64_t deadline);

/* queue.c: poll_queues of every device. */
void dg_queues_poll(struct dg_device *dev);

/* Fills *wc from a slot that holds its result. */
void dg_slot_to_wc(const struct dg_slot *s, dg_wc *wc);
/* queue.c: submits n checked operations, whose n_wc completions are stored to wc. */
void dg_queue_start_run(struct dg_queue *q, struct dg_op *ops, const dg_wr *wr, uint32_t n,
			uint32_t n_wc, dg_wc *wc, uint64_t submit_ns);
/* Spins for the completions of a run until spin_ns after start_ns. Returns 0 or -EINPROGRESS. */
int dg_queue_spin_run(struct dg_queue *q, uint64_t start_ns, uint64_t spin_ns);
/* Abandons a run: its completions are discarded when they arrive. */
void dg_queue_abandon_run(struct dg_queue *q);
/* Waits for the completions of a run of `size` bytes, and abandons it on failure. After -EINTR the
 * caller must call this again, or abandon the run. */
int dg_queue_finish_run(struct dg_queue *q, uint64_t size, uint64_t timeout_ns);
/* Starts, spins for and finishes a run. */
int dg_queue_run_ops(struct dg_queue *q, struct dg_op *ops, const dg_wr *wr, uint32_t n,
		     uint32_t n_wc, dg_wc *wc, uint64_t submit_ns, uint64_t timeout_ns);

/* Like dg_queue_run(), for a caller that handles signals. After -EINTR the caller is still inside
 * the queue, with the run in progress: it must resume the run (which may return -EINTR again) or
 * cancel it. */
int dg_queue_run_start(struct dg_queue *q, const dg_wr *wr, uint32_t n, dg_wc *wc,
		       uint64_t timeout_ns);
int dg_queue_run_resume(struct dg_queue *q, uint64_t timeout_ns);
void dg_queue_run_cancel(struct dg_queue *q);

/* queue_pair.c */
/* Checks whether operations of q between `local` and an import of qp can be posted. Errors: EINVAL
 * if q is not qp's queue or qp is not connected yet, ESTALE if it is closed, ENOTCONN if it is in
 * the error state, ENOMEM. */
int dg_qp_check(const struct dg_queue *q, struct dg_qp *qp, struct dg_region *local);
/* Closes the queue's queue pairs. Called by the queue's closer. */
void dg_queue_close_qps(struct dg_queue *q);
/* Drops a reference; the last one frees the queue pair. */
void dg_qp_unref(struct dg_qp *p);

/* Drops a reference; the last one frees the queue. */
void dg_queue_unref(struct dg_queue *q);
/* Opens a queue of a proxy: see dg_pipe.beside_kernels. Its operations have no time-out, because a
 * kernel has its own limit. Errors: as dg_queue_open(). */
int dg_queue_open_for_kernels(struct dg_device *dev, uint32_t depth, const void *proxy,
			      dg_queue **out);
/* prepared.c: dg_prep_run() for a caller that is already inside the queue and has read the
 * clock. */
int dg_prep_run_entered(struct dg_prep *p, uint64_t submit_ns);
/* Checks whether the regions and the queue can be used. Called after queue_enter(), before the
 * regions are accessed. Returns 0, -ESTALE or -EOWNERDEAD. */
int dg_prep_still_open(const struct dg_prep *p);

/* uniform.c */
/* Checks n requests, and stages their pairs. Returns false if they are not uniform, not valid, or
 * do not fit; dg_queue_stage() then handles them and reports any error. */
bool dg_uniform_stage(struct dg_queue *q, const dg_wr *wr, uint32_t n, struct dg_uniform *u);
/* Stages pairs that were checked earlier. Returns false if they do not fit. */
bool dg_uniform_load(struct dg_queue *q, const struct dg_pair *pairs, const uint64_t *users,
		     uint32_t n);
/* Submits what was staged, as dg_queue_submit() does. */
void dg_uniform_submit(struct dg_queue *q, const struct dg_uniform *u, uint32_t kind,
		       uint64_t submit_ns);
/* Does the same for a run, whose n completions are stored to wc. */
void dg_uniform_start_run(struct dg_queue *q, const struct dg_uniform *u, dg_wc *wc,
			  uint64_t submit_ns);
/* Executes what was staged in this thread, as dg_queue_run_inline() does. */
void dg_uniform_run_inline(struct dg_queue *q, const struct dg_uniform *u, dg_wc *wc, uint32_t first,
			   uint32_t mask, uint64_t submit_ns);
/* Stores the completions of a slot's group in wc[i & mask], starting at i = first. */
void dg_uniform_deliver(const struct dg_queue *q, const struct dg_slot *s, dg_wc *wc, uint32_t first,
			uint32_t mask);

/* post.c */
/* Checks a request and fills *op. *run is the current sequence of requests between the same two
 * regions; *fresh is set if wr starts a new sequence, which is then stored in *run. */
int dg_resolve(struct dg_queue *q, const dg_wr *wr, struct dg_op *op, struct op_run *run,
	       bool *fresh);
/* Returns 0 if there is room for n more operations, otherwise -EAGAIN. */
int dg_queue_room(struct dg_queue *q, uint32_t n);
/* Enters the gates of n checked operations and passes them to the provider. Returns the slot of the
 * last one. */
uint32_t dg_queue_submit(struct dg_queue *q, struct dg_op *ops, const dg_wr *wr, uint32_t n,
			 uint32_t kind, uint64_t submit_ns);
/* Executes one operation that the caller waits for with the provider's direct(). There must be
 * room, and nothing in flight. Returns 1: complete, in *wc; 0: in flight as a KIND_RUN; OP_NOT: not
 * started. */
int dg_queue_direct(struct dg_queue *q, struct dg_op *op, const dg_wr *wr, dg_wc *wc,
		    uint64_t submit_ns);
/* Executes n checked operations in this thread. Completions are stored to wc[i & mask], starting at
 * i = first. Returns their number. */
uint32_t dg_queue_run_inline(const struct dg_op *ops, const dg_wr *wr, uint32_t n, dg_wc *wc,
			     uint32_t first, uint32_t mask);
/* Checks n requests, all or none, into q->scratch. *inline_able: whether they may be copied inline.
 * *total: their size in bytes, summed. */
int dg_queue_stage(struct dg_queue *q, const dg_wr *wr, uint32_t n, bool *inline_able,
		   uint64_t *total);

/* Whether the caller copies inline: the operations are small enough, and nothing is in flight. */
static inline bool queue_inline(const struct dg_queue *q, bool able, uint64_t total)
{
	if (q->path == DG_PATH_WORKER || !able || q->in_flight)
		return false;
	return q->path == DG_PATH_INLINE || total <= q->dev->caps.inline_max;
}

#endif
