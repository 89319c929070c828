// SPDX-License-Identifier: Apache-2.0
/*
 * From the submission ring into DMA tasks, and from DOCA's callbacks to completions.
 *
 * Most operations are one task. One with rows, or of more bytes than the device takes at a time, is
 * several, and a chain is those of all its parts: then a flight counts them. Each task holds one entry
 * of its regions' gates, from before it is submitted until it is complete. An operation's own entry is
 * its task's; where there are several tasks, theirs are entered beside it, and it is left when the last
 * of them was submitted.
 */
#include <errno.h>
#include <string.h>

#include "clock.h"
#include "doca.h"
#include "share/importer.h"

enum {
	LOCAL,
	REMOTE,
	LATE_NS = 1000, /* between two looks; what ended meanwhile has a late stamp */
};
/* In flight at a time: what keeps any device busy, and not so much that a revocation waits for long. */
#define MOST_BYTES ((uint64_t)64 << 20)

void dg_doca_publish(struct lane *l)
{
	/* The gates first: who sees a completion may close the region without waiting. */
	gates_flush(&l->gates);
	if (!l->n_done)
		return;
	uint64_t now = now_ns();
	/* One look's completions were there together: what the first stamp is, all are. */
	if (l->first)
		l->late = now - l->looked_ns > LATE_NS;
	l->first = false;
	l->looked_ns = now;
	for (uint32_t i = 0; l->late && i < l->n_done; i++)
		l->done[i] |= CQE_LATE;
	cq_publish(l->p, l->done, l->n_done, now);
	l->n_done = 0;
}

static inline void done(struct lane *l, uint32_t slot, int status)
{
	l->done[l->n_done++] = slot_status(slot, status);
	if (l->n_done == GROUP)
		dg_doca_publish(l);
}

/* One of what the flight waits for is over. */
static void leave_flight(struct lane *l, struct flight *f, int status)
{
	if (status && !f->status)
		f->status = status;
	if (--f->left)
		return;
	l->free_flights[l->n_free_flights++] = (uint16_t)(f - l->flights);
	if (f->slot != NO_SLOT)
		done(l, f->slot, f->status);
}

/* The task is DOCA's no more; it was between these regions. */
static inline void land(struct lane *l, struct task *t, uint32_t local, uint32_t remote, int status)
{
	l->in_flight--;
	l->bytes -= t->size;
	l->free[l->n_free++] = t;
	gates_pair(&l->gates, local, remote);
	if (__builtin_expect(t->flight == NO_FLIGHT, 1))
		done(l, t->slot, status);
	else
		leave_flight(l, &l->flights[t->flight], status);
}

void dg_doca_ended(struct doca_dma_task_memcpy *task, union doca_data task_data,
		   union doca_data ctx_data)
{
	struct lane *l = ctx_data.ptr;
	struct task *t = task_data.ptr;
	(void)task;
	if (__builtin_expect(l->counted != NULL, 0)) {
		l->free[l->n_free++] = t;
		++*l->counted;
		return;
	}
	land(l, t, t->region[LOCAL], t->region[REMOTE], DG_OK);
}

/* Why a task failed, as far as it can be told. */
static int failure(struct lane *l, const struct task *t)
{
	struct dg_hot *remote = hot_at(t->region[REMOTE]);
	if (gate_revoked(remote->gate))
		return DG_REMOTE_ACCESS_ERROR;
	if (atomic_load(&remote->lost) || dg_peer_gone(remote->region))
		return DG_PEER_LOST;
	if (gate_revoked(hot_at(t->region[LOCAL])->gate))
		return DG_LOCAL_ERROR;
	return l->closing ? DG_FLUSHED : DG_IO_FAILED;
}

void dg_doca_failed(struct doca_dma_task_memcpy *task, union doca_data task_data,
		    union doca_data ctx_data)
{
	struct lane *l = ctx_data.ptr;
	struct task *t = task_data.ptr;
	l->broken = true; /* it may have stopped the context: dg_doca_progress looks */
	if (l->counted)
		dg_doca_ended(task, task_data, ctx_data);
	else
		land(l, t, t->region[LOCAL], t->region[REMOTE], failure(l, t));
}

/* A buffer over all of the region. Under the device's lock: the map is for one thread at a time. */
static doca_error_t rebind(struct lane *l, struct task *t, int side, uint32_t region)
{
	const struct dg_hot *hot = hot_at(region);
	const struct doca_mapped *m = hot->region->mapped;
	if (t->region[side] != NO_REGION)
		dg_doca.doca_buf_dec_refcount(t->buf[side], NULL);
	doca_error_t e = dg_doca.doca_buf_inventory_buf_get_by_args(
		l->inventory, m->mmap, hot->base, hot->size, hot->base, 0, &t->buf[side]);
	t->region[side] = e ? NO_REGION : region;
	return e;
}

int dg_doca_bind(struct lane *l, struct task *t, const struct dg_op *op)
{
	doca_error_t e = 0;
	pthread_mutex_lock(&l->d->lock);
	if (t->region[LOCAL] != op->local)
		e = rebind(l, t, LOCAL, op->local);
	if (!e && t->region[REMOTE] != op->remote)
		e = rebind(l, t, REMOTE, op->remote);
	pthread_mutex_unlock(&l->d->lock);
	if (e)
		return -EIO;
	t->op = op->opcode;
	dg_doca.doca_dma_task_memcpy_set_src(t->memcpy,
					     t->buf[op->opcode == DG_WRITE ? LOCAL : REMOTE]);
	dg_doca.doca_dma_task_memcpy_set_dst(t->memcpy,
					     t->buf[op->opcode == DG_WRITE ? REMOTE : LOCAL]);
	return 0;
}

/* Gives DOCA the task that was held back. */
static inline void submit_held(struct lane *l, uint32_t flags)
{
	struct task *t = l->held;
	doca_error_t e = dg_doca.doca_task_submit_ex ? dg_doca.doca_task_submit_ex(t->task, flags)
						     : dg_doca.doca_task_submit(t->task);
	l->held = NULL;
	if (__builtin_expect(e != DOCA_SUCCESS, 0)) {
		l->broken = true;
		land(l, t, t->region[LOCAL], t->region[REMOTE], failure(l, t));
	}
}

/* Points t at n bytes of op. */
static inline doca_error_t aim(struct lane *l, struct task *t, const struct dg_op *op, char *dst,
			       const char *src, uint64_t n)
{
	bool write = op->opcode == DG_WRITE;
	if (__builtin_expect(t->region[LOCAL] != op->local || t->region[REMOTE] != op->remote ||
				     t->op != op->opcode,
			     0) &&
	    dg_doca_bind(l, t, op))
		return DOCA_ERROR_UNKNOWN;
	/* Behind its data a destination is written: it has none. */
	doca_error_t e = dg_doca.doca_buf_set_data(t->buf[write ? REMOTE : LOCAL], dst, 0);
	return e ? e
		 : dg_doca.doca_buf_set_data(t->buf[write ? LOCAL : REMOTE], (char *)(uintptr_t)src,
					     n);
}

/* n bytes of op by one task, for which there is room. */
static inline void send(struct lane *l, const struct dg_op *op, char *dst, const char *src,
			uint64_t n, uint32_t slot, uint16_t flight)
{
	struct task *t = l->free[--l->n_free];
	t->slot = slot;
	t->flight = flight;
	t->size = (uint32_t)n;
	l->in_flight++;
	l->bytes += n;
	if (__builtin_expect(aim(l, t, op, dst, src, n) != DOCA_SUCCESS, 0)) {
		land(l, t, op->local, op->remote, DG_IO_FAILED);
		return;
	}
	if (l->held)
		submit_held(l, DOCA_TASK_SUBMIT_FLAG_NONE);
	l->held = t;
}

int dg_doca_run(struct lane *l, const struct dg_op *op)
{
	enum {
		LOOKS = 64
	}; /* a copy of a few KiB by a BlueField; then it is waited for as others are */
	uint32_t ended = 0;
	if (op->rows != 1 || op->size > l->d->max_size || !l->n_free || l->in_flight || l->broken ||
	    l->dead || lane_op(l))
		return OP_NOT;
	struct task *t = l->free[l->n_free - 1];
	if (aim(l, t, op, op->dst, op->src, op->size))
		return DG_IO_FAILED;
	l->n_free--;
	l->counted = &ended;
	doca_error_t e = dg_doca.doca_task_submit(t->task);
	for (uint32_t i = 0; i < LOOKS && !ended && !e; i++)
		dg_doca.doca_pe_progress(l->pe);
	l->counted = NULL;
	if (__builtin_expect(e != DOCA_SUCCESS, 0)) {
		l->free[l->n_free++] = t;
		l->broken = true;
	}
	if (__builtin_expect(l->broken, 0))
		return failure(l, t);
	if (__builtin_expect(ended, 1))
		return DG_OK;
	t->slot = op->slot;
	t->flight = NO_FLIGHT;
	t->size = (uint32_t)op->size;
	l->in_flight = 1;
	l->bytes = op->size;
	l->looked_ns = l->p->posted_ns;
	return OP_MORE;
}

static inline bool room(const struct lane *l)
{
	return l->n_free && l->bytes < MOST_BYTES;
}

/* Ends op at once; it has no task. */
static void refuse(struct lane *l, const struct dg_op *op, int status)
{
	gates_add(&l->gates, op);
	done(l, op->slot, status);
}

/* The operation in hand has all its tasks, or needs no more. */
static void end_op(struct lane *l, const struct dg_op *op, int status)
{
	struct flight *f = l->open;
	struct dg_pipe *p = l->p;
	gates_add(&l->gates, op);
	p->progress = 0;
	p->sq_head++;
	l->begun = false;
	if (status && !f->status)
		f->status = status;
	if (op->flags & DG_CHAIN)
		return;
	f->slot = op->slot;
	l->open = NULL;
	leave_flight(l, f, DG_OK);
}

/* The next piece of op for one task, from p->progress on. */
static uint64_t piece(const struct lane *l, const struct dg_op *op, char **dst, const char **src)
{
	uint64_t at = l->p->progress, left = op->size * op->rows - at;
	if (op->rows == 1 || (op->dst_stride == op->size && op->src_stride == op->size)) {
		*dst = op->dst + at;
		*src = op->src + at;
	} else {
		uint64_t row = at / op->size, within = at % op->size;
		*dst = op->dst + row * op->dst_stride + within;
		*src = op->src + row * op->src_stride + within;
		left = op->size - within;
	}
	return left < l->d->max_size ? left : l->d->max_size;
}

/* An operation of several tasks, or a part of a chain, as far as there is room. Whether it is over. */
static bool send_pieces(struct lane *l, const struct dg_op *op)
{
	struct dg_pipe *p = l->p;
	uint64_t total = op->size * op->rows;
	if (!l->begun && (op->flags & DG_FENCE) && l->in_flight)
		return false;
	if (!l->open) {
		l->open = &l->flights[l->free_flights[--l->n_free_flights]];
		*l->open = (struct flight){.left = 1};
	}
	l->begun = true;
	int status = l->open->status;
	while (!status && p->progress < total && room(l) && !l->broken) {
		char *dst;
		const char *src;
		status = dg_op_allowed(op);
		if (status)
			break;
		uint64_t n = piece(l, op, &dst, &src);
		gate_enter(hot_at(op->local)->gate, 1);
		gate_enter(hot_at(op->remote)->gate, 1);
		l->open->left++;
		send(l, op, dst, src, n, 0, (uint16_t)(l->open - l->flights));
		p->progress += n;
		status = l->open->status;
	}
	if (!status && p->progress < total)
		return false;
	end_op(l, op, status);
	return true;
}

/* Whether op is one task, and nothing has to be looked at but its regions. */
static inline bool simple(const struct lane *l, const struct dg_op *op)
{
	return op->rows == 1 && op->size <= l->d->max_size &&
	       !(op->flags & (DG_FENCE | DG_CHAIN)) && !l->open;
}

void dg_doca_submit(struct lane *l)
{
	struct dg_pipe *p = l->p;
	if (l->dead)
		dg_doca_flush(l, DG_IO_FAILED);
	/* What ends here was not under way. Where nothing was, what is posted now is the last look. */
	l->first = l->late = false;
	if (!l->in_flight && p->posted_ns > l->looked_ns)
		l->looked_ns = p->posted_ns;
	/* All in the ring have entered their gates: one look holds for those between the same regions. */
	uint32_t local = NO_REGION, remote = NO_REGION;
	int status = DG_OK;
	for (struct dg_op *op; !l->broken && (op = lane_op(l));) {
		if (!simple(l, op)) {
			if (!send_pieces(l, op))
				break;
			continue;
		}
		if (!room(l))
			break;
		if (op->local != local || op->remote != remote) {
			status = dg_op_allowed(op);
			local = op->local;
			remote = op->remote;
		}
		p->sq_head++;
		if (__builtin_expect(status == DG_OK, 1))
			send(l, op, op->dst, op->src, op->size, op->slot, NO_FLIGHT);
		else
			refuse(l, op, status);
	}
	if (l->held)
		submit_held(l, DOCA_TASK_SUBMIT_FLAG_FLUSH);
	dg_doca_publish(l);
}

void dg_doca_flush(struct lane *l, int status)
{
	for (struct dg_op *op; (op = lane_op(l));) {
		if (l->open || (op->flags & DG_CHAIN)) {
			if (!l->open) {
				l->open = &l->flights[l->free_flights[--l->n_free_flights]];
				*l->open = (struct flight){.left = 1};
			}
			end_op(l, op, status);
		} else {
			l->p->sq_head++;
			refuse(l, op, status);
		}
	}
	dg_doca_publish(l);
}

/* After an error. A context that it stopped is idle once all its tasks are freed; then it starts anew. */
static void mend(struct lane *l)
{
	enum doca_ctx_states state = DOCA_CTX_STATE_IDLE;
	dg_doca.doca_ctx_get_state(l->ctx, &state);
	if (state == DOCA_CTX_STATE_RUNNING) {
		l->broken = false;
		return;
	}
	do {
		dg_doca_tasks_free(l);
	} while (dg_doca.doca_pe_progress(l->pe));
	dg_doca.doca_ctx_get_state(l->ctx, &state);
	if (state != DOCA_CTX_STATE_IDLE || l->in_flight)
		return;
	if (dg_doca_start(l) || dg_doca_tasks_new(l))
		l->dead = true;
	l->broken = false;
}

void dg_doca_progress(struct lane *l)
{
	if (l->in_flight) {
		l->first = true;
		while (l->in_flight && dg_doca.doca_pe_progress(l->pe))
			;
		dg_doca_publish(l);
		if (l->first)
			l->looked_ns = now_ns();
	}
	if (__builtin_expect(l->broken, 0))
		mend(l);
	if (lane_op(l))
		dg_doca_submit(l);
}
