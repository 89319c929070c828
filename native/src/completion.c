// SPDX-License-Identifier: Apache-2.0
/* Delivering completions, waiting for them, and timing out operations that never complete. */
#include <poll.h>
#include <sched.h>
#include <signal.h>

#include "queue.h"

typedef void (*poll_fn)(struct dg_device *dev, struct dg_pipe *p);

void dg_slot_to_wc(const struct dg_slot *s, dg_wc *wc)
{
	*wc = (dg_wc){
		.user = s->user,
		.size = s->status == DG_OK ? s->size : 0,
		.submit_ns = s->submit_ns,
		.post_ns = s->post_ns,
		.complete_ns = s->complete_ns,
		.status = s->status,
		.op = s->op,
		.path = s->path,
		.flags = s->flags,
	};
}

static inline void slot_free(struct dg_queue *q, uint32_t slot)
{
	q->slots[slot].state = SLOT_FREE;
	q->free[q->n_free++] = slot;
}

/* Frees the slots of a chain's requests before its last one, when the chain completes. */
static void parts_free(struct dg_queue *q, struct dg_slot *s)
{
	for (uint32_t part = s->part; part != NO_SLOT;) {
		uint32_t before = q->slots[part].part;
		slot_free(q, part);
		q->in_flight--;
		credits_add(q, 1);
		part = before;
	}
	s->part = NO_SLOT;
}

/* Delivers the results of a group. Returns the number of completions stored in out, which has room
 * for n. */
static uint32_t deliver_group(struct dg_queue *q, const struct dg_slot *s, dg_wc *out, uint32_t n)
{
	if (s->kind == KIND_POLL && out && n >= s->pairs) {
		dg_uniform_deliver(q, s, out, 0, UINT32_MAX);
		return s->pairs;
	}
	if (s->kind == KIND_POLL) {
		dg_uniform_deliver(q, s, q->ready, q->ready_tail, q->ready_mask);
		q->ready_tail += s->pairs;
		return 0;
	}
	if (s->kind == KIND_RUN) {
		dg_uniform_deliver(q, s, q->run_wc + s->run_index, 0, UINT32_MAX);
		q->run_left -= s->pairs;
	}
	credits_add(q, s->pairs);
	return 0;
}

/* Delivers the result in a slot. Returns the number of completions stored in out, which has room
 * for n. */
static inline uint32_t deliver(struct dg_queue *q, uint32_t slot, dg_wc *out, uint32_t n)
{
	struct dg_slot *s = &q->slots[slot];
	bool freed = true;
	uint32_t direct = 0;
	if (s->pairs) {
		direct = deliver_group(q, s, out, n);
		if (s->state == SLOT_PENDING)
			slot_free(q, slot);
		return direct;
	}
	switch (s->kind) {
	case KIND_POLL:
		dg_slot_to_wc(s, out ? out : &q->ready[q->ready_tail++ & q->ready_mask]);
		direct = out != NULL;
		break;
	case KIND_RUN:
		dg_slot_to_wc(s, &q->run_wc[s->run_index]);
		q->run_left--;
		credits_add(q, 1);
		break;
	case KIND_TRANSFER:
		s->state = SLOT_DONE;
		freed = false;
		break;
	default: /* KIND_DROPPED */
		credits_add(q, 1);
	}
	if (freed && s->state == SLOT_PENDING)
		slot_free(q, slot);
	return direct;
}

/* Returns the provider's poll(), or NULL. Also NULL in a forked child, because the provider's
 * objects belong to the parent, and so do the gates, which the parent leaves. */
static inline poll_fn poll_op(const struct dg_queue *q)
{
	return dg_queue_forked(q) ? NULL : q->dev->ops->poll;
}

uint32_t dg_queue_process_completions(struct dg_queue *q, dg_wc *out, uint32_t n)
{
	struct dg_pipe *p = &q->pipe;
	uint32_t given = 0;
	if (queue_closed(q))
		return 0;
	poll_fn poll = poll_op(q);
	if (poll)
		poll(q->dev, p);
	/* While the ready ring holds completions, no later one may go to `out`. */
	for (struct dg_cqe *e; (!out || (given < n && q->ready_head == q->ready_tail)) &&
			       (e = cq_peek(p));
	     p->cq_head++) {
		uint32_t slot = e->slot_status >> 8;
		struct dg_slot *s = &q->slots[slot];
		q->in_flight--;
		q->bytes_in_flight -= s->size;
		q->pairs_out -= s->pairs;
		if (__builtin_expect(s->part != NO_SLOT, 0))
			parts_free(q, s);
		if (__builtin_expect(s->overdue, 0)) {
			s->overdue = 0;
			if (s->state == SLOT_ZOMBIE)
				slot_free(q, slot);
			continue;
		}
		s->complete_ns = e->complete_ns;
		s->status = (uint8_t)(e->slot_status & CQE_STATUS);
		if (e->slot_status & CQE_SHARED)
			s->flags |= DG_SHARED_STAMP;
		if (e->slot_status & CQE_LATE)
			s->flags |= DG_LATE_STAMP;
		if (e->slot_status & CQE_KERNEL)
			s->flags |= DG_BY_KERNEL;
		given += deliver(q, slot, out ? out + given : NULL, n - given);
	}
	return given;
}

uint32_t dg_queue_expire(struct dg_queue *q, uint64_t now)
{
	uint32_t ended = 0;
	if (now < q->expire_ns || queue_closed(q))
		return 0;
	uint64_t step = q->op_timeout_ns / 8;
	q->expire_ns = add_sat(now, step > 100000000u ? 100000000u : step);
	for (uint32_t i = 0; i < q->depth && q->in_flight; i++) {
		struct dg_slot *s = &q->slots[i];
		if (s->state != SLOT_PENDING || s->kind == KIND_PART ||
		    now < add_sat(s->post_ns, q->op_timeout_ns))
			continue;
		/* The provider may still hold the operation: deliver the result now, and free the
		 * slot when the operation is returned. */
		s->complete_ns = now;
		s->status = DG_TIMED_OUT;
		s->overdue = 1;
		s->state = SLOT_ZOMBIE;
		deliver(q, i, NULL, 0);
		ended++;
	}
	return ended;
}

static int sleep_on_fd(struct dg_queue *q, uint64_t now, uint64_t deadline)
{
	uint64_t until = q->in_flight && q->expire_ns < deadline ? q->expire_ns : deadline;
	uint64_t left = until > now ? until - now : 0;
	struct timespec t = {(time_t)(left / 1000000000u), (long)(left % 1000000000u)};
	struct pollfd fd = {q->pipe.wait_fd, POLLIN, 0};
	if (t.tv_sec > 3600)
		t.tv_sec = 3600;
	if (ppoll(&fd, 1, &t, NULL) < 0 && errno == EINTR)
		return dg_fail(EINTR, "interrupted by a signal");
	return 0;
}

/* Number of polls between two readings of the clock, and between two pauses (a pause may cost 140
 * cycles). */
enum { POLLS = 64, POLLS_PER_PAUSE = 16 };

bool dg_queue_spin(struct dg_queue *q)
{
	poll_fn poll = poll_op(q);
	for (uint32_t i = 1; i <= POLLS; i++) {
		if (poll)
			poll(q->dev, &q->pipe);
		if (cq_peek(&q->pipe))
			return true;
		if (i % POLLS_PER_PAUSE == 0)
			cpu_relax();
	}
	return false;
}

/* Whether the provider's thread runs on another CPU. Yielding this CPU would then not help that
 * thread, and could cost a time slice of another process. */
static bool on_other_cpu(struct dg_queue *q)
{
	const struct dg_ops *ops = q->dev->ops;
	return ops->separate && ops->separate(q->dev, &q->pipe);
}

int dg_queue_wait(struct dg_queue *q, uint64_t spin_until, uint64_t deadline)
{
	const struct dg_ops *ops = q->dev->ops;
	uint64_t began = 0;
	int rc = 0;
	if (cq_peek(&q->pipe))
		return 0;
	atomic_store_explicit(&q->in_use, QUEUE_WAITING, memory_order_release);
	for (;;) {
		if (dg_queue_spin(q))
			break;
		uint64_t now = now_ns();
		if (now >= deadline || (q->in_flight && now >= q->expire_ns))
			break;
		began = began ? began : now;
		if (now < spin_until) {
			if (now - began > YIELD_AFTER_NS && !on_other_cpu(q))
				sched_yield();
			continue;
		}
		/* In a forked child nothing completes any more. The fd is shared with the parent,
		 * so clearing it would take away the parent's wake-up. */
		rc = dg_queue_postable(q);
		if (rc)
			break;
		if (ops->arm ? ops->arm(q->dev, &q->pipe) : dg_pipe_arm(&q->pipe)) {
			rc = sleep_on_fd(q, now, deadline);
			if (rc)
				break;
		}
	}
	atomic_exchange_explicit(&q->in_use, QUEUE_POSTING, memory_order_seq_cst);
	return rc;
}
