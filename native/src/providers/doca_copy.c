// SPDX-License-Identifier: Apache-2.0
/*
 * Turns operations of the submission ring into DMA tasks, and DOCA's callbacks into completions.
 *
 * Most operations are one task. An operation with rows, or larger than the device's limit, is split
 * into several tasks, and a chain consists of the tasks of all its requests; a task group counts
 * these. Each task holds one entry of its regions' gates from before its submission until its
 * completion. A single task uses its operation's own entry. With several tasks, each enters the
 * gates additionally, and the operation's entry is left once the last task was submitted.
 */
#include <errno.h>
#include <string.h>

#include "clock.h"
#include "cpu_copy.h"
#include "doca.h"
#include "share/importer.h"

enum {
	LOCAL,
	REMOTE,
};
/* Bytes in flight at a time: enough to keep any device busy, but few enough that a revocation does
 * not wait long. */
#define MAX_IN_FLIGHT ((uint64_t)64 << 20)

static inline void done(struct doca_queue *q, uint32_t slot, int status)
{
	ended_add(&q->ended, q->p, slot, status);
}

/* Accounts for the end of a task of the group, or of the submission itself. */
static void group_member_ended(struct doca_queue *q, struct task_group *f, int status)
{
	if (status && !f->status)
		f->status = status;
	if (--f->left)
		return;
	q->free_groups[q->n_free_groups++] = (uint16_t)(f - q->groups);
	if (f->slot != NO_SLOT)
		done(q, f->slot, f->status);
}

/* Returns the task, which copied between these two regions and has ended, to the free tasks. */
static inline void task_ended(struct doca_queue *q, struct task *t, uint32_t local, uint32_t remote,
			      int status)
{
	q->in_flight--;
	q->bytes -= t->size;
	q->free[q->n_free++] = t;
	gates_pair(&q->ended.gates, local, remote);
	if (__builtin_expect(t->task_group == NO_GROUP, 1))
		done(q, t->slot, status);
	else
		group_member_ended(q, &q->groups[t->task_group], status);
}

void dg_doca_task_completed(struct doca_dma_task_memcpy *task, union doca_data task_data,
			    union doca_data ctx_data)
{
	struct doca_queue *q = ctx_data.ptr;
	struct task *t = task_data.ptr;
	(void)task;
	if (__builtin_expect(q->completed_count != NULL, 0)) {
		q->free[q->n_free++] = t;
		++*q->completed_count;
		return;
	}
	task_ended(q, t, t->region[LOCAL], t->region[REMOTE], DG_OK);
}

/* Returns the status of a failed task, according to the most likely cause. */
static int failure_status(struct doca_queue *q, const struct task *t)
{
	struct dg_region_entry *remote = region_entry_at(t->region[REMOTE]);
	if (gate_revoked(remote->gate))
		return DG_REMOTE_ACCESS_ERROR;
	if (atomic_load(&remote->lost) || dg_importer_exporter_gone(remote->region))
		return DG_PEER_LOST;
	if (gate_revoked(region_entry_at(t->region[LOCAL])->gate))
		return DG_LOCAL_ERROR;
	return q->closing ? DG_FLUSHED : DG_IO_FAILED;
}

void dg_doca_task_failed(struct doca_dma_task_memcpy *task, union doca_data task_data,
			 union doca_data ctx_data)
{
	struct doca_queue *q = ctx_data.ptr;
	struct task *t = task_data.ptr;
	q->broken = true; /* the error may have stopped the context: dg_doca_progress() checks */
	if (q->completed_count)
		dg_doca_task_completed(task, task_data, ctx_data);
	else
		task_ended(q, t, t->region[LOCAL], t->region[REMOTE], failure_status(q, t));
}

/* Gets a buffer over the whole region. Call with the device's lock held: maps are not
 * thread-safe. */
static doca_error_t rebind(struct doca_queue *q, struct task *t, int side, uint32_t region)
{
	const struct dg_region_entry *entry = region_entry_at(region);
	const struct doca_mapped *m = entry->region->provider_state;
	if (t->region[side] != NO_REGION)
		dg_doca.doca_buf_dec_refcount(t->buf[side], NULL);
	doca_error_t e = dg_doca.doca_buf_inventory_buf_get_by_args(
		q->inventory, m->mmap, entry->base, entry->size, entry->base, 0, &t->buf[side]);
	t->region[side] = e ? NO_REGION : region;
	return e;
}

int dg_doca_bind(struct doca_queue *q, struct task *t, const struct dg_op *op)
{
	doca_error_t e = 0;
	pthread_mutex_lock(&q->d->lock);
	if (t->region[LOCAL] != op->local)
		e = rebind(q, t, LOCAL, op->local);
	if (!e && t->region[REMOTE] != op->remote)
		e = rebind(q, t, REMOTE, op->remote);
	pthread_mutex_unlock(&q->d->lock);
	if (e)
		return -EIO;
	t->op = op->opcode;
	dg_doca.doca_dma_task_memcpy_set_src(t->memcpy,
					     t->buf[op->opcode == DG_WRITE ? LOCAL : REMOTE]);
	dg_doca.doca_dma_task_memcpy_set_dst(t->memcpy,
					     t->buf[op->opcode == DG_WRITE ? REMOTE : LOCAL]);
	return 0;
}

/* Submits the pending task. */
static inline void submit_pending(struct doca_queue *q, uint32_t flags)
{
	struct task *t = q->pending_task;
	doca_error_t e = dg_doca.doca_task_submit_ex ? dg_doca.doca_task_submit_ex(t->task, flags)
						     : dg_doca.doca_task_submit(t->task);
	q->pending_task = NULL;
	if (__builtin_expect(e != DOCA_SUCCESS, 0)) {
		q->broken = true;
		task_ended(q, t, t->region[LOCAL], t->region[REMOTE], failure_status(q, t));
	}
}

/* Sets up t for n bytes of op. */
static inline doca_error_t prepare_task(struct doca_queue *q, struct task *t,
					const struct dg_op *op, char *dst, const char *src,
					uint64_t n)
{
	bool write = op->opcode == DG_WRITE;
	if (__builtin_expect(t->region[LOCAL] != op->local || t->region[REMOTE] != op->remote ||
				     t->op != op->opcode,
			     0) &&
	    dg_doca_bind(q, t, op))
		return DOCA_ERROR_UNKNOWN;
	/* DOCA appends to a destination's data, so its data length is 0. */
	doca_error_t e = dg_doca.doca_buf_set_data(t->buf[write ? REMOTE : LOCAL], dst, 0);
	return e ? e
		 : dg_doca.doca_buf_set_data(t->buf[write ? LOCAL : REMOTE], (char *)(uintptr_t)src,
					     n);
}

/* Submits one task for n bytes of op. There must be room for it. */
static inline void send(struct doca_queue *q, const struct dg_op *op, char *dst, const char *src,
			uint64_t n, uint32_t slot, uint16_t task_group)
{
	struct task *t = q->free[--q->n_free];
	t->slot = slot;
	t->task_group = task_group;
	t->size = (uint32_t)n;
	q->in_flight++;
	q->bytes += n;
	if (__builtin_expect(prepare_task(q, t, op, dst, src, n) != DOCA_SUCCESS, 0)) {
		task_ended(q, t, op->local, op->remote, DG_IO_FAILED);
		return;
	}
	if (q->pending_task)
		submit_pending(q, DOCA_TASK_SUBMIT_FLAG_NONE);
	q->pending_task = t;
}

int dg_doca_run(struct doca_queue *q, const struct dg_op *op)
{
	/* Long enough for a BlueField to copy a few KiB; after that, the task is waited for like
	 * any other. */
	enum { POLLS = 64 };
	uint32_t ended = 0;
	if (op->rows != 1 || op->size > q->d->max_size || !q->n_free || q->in_flight || q->broken ||
	    q->dead || next_op(q))
		return OP_NOT;
	struct task *t = q->free[q->n_free - 1];
	if (prepare_task(q, t, op, op->dst, op->src, op->size))
		return DG_IO_FAILED;
	q->n_free--;
	q->completed_count = &ended;
	doca_error_t e = dg_doca.doca_task_submit(t->task);
	for (uint32_t i = 0; i < POLLS && !ended && !e; i++)
		dg_doca.doca_pe_progress(q->pe);
	q->completed_count = NULL;
	if (__builtin_expect(e != DOCA_SUCCESS, 0)) {
		q->free[q->n_free++] = t;
		q->broken = true;
	}
	if (__builtin_expect(q->broken, 0))
		return failure_status(q, t);
	if (__builtin_expect(ended, 1))
		return DG_OK;
	t->slot = op->slot;
	t->task_group = NO_GROUP;
	t->size = (uint32_t)op->size;
	q->in_flight = 1;
	q->bytes = op->size;
	q->ended.last_poll_ns = q->p->posted_ns;
	return OP_MORE;
}

static inline bool has_room(const struct doca_queue *q)
{
	return q->n_free && q->bytes < MAX_IN_FLIGHT;
}

/* Completes op, which has no task, immediately. */
static void complete_now(struct doca_queue *q, const struct dg_op *op, int status)
{
	gates_add(&q->ended.gates, op);
	done(q, op->slot, status);
}

/* Ends the current operation: all of its tasks were submitted, or it has failed. */
static void end_op(struct doca_queue *q, const struct dg_op *op, int status)
{
	struct task_group *f = q->open_group;
	struct dg_pipe *p = q->p;
	gates_add(&q->ended.gates, op);
	p->progress = 0;
	p->sq_head++;
	q->started = false;
	if (status && !f->status)
		f->status = status;
	if (op->flags & DG_CHAIN)
		return;
	f->slot = op->slot;
	q->open_group = NULL;
	group_member_ended(q, f, DG_OK);
}

/* Returns the size and the addresses of op's next piece, which starts at p->progress and fits into
 * one task. */
static uint64_t next_piece(const struct doca_queue *q, const struct dg_op *op, char **dst,
			   const char **src)
{
	uint64_t at = q->p->progress, left = op->size * op->rows - at;
	if (op->rows == 1 || (op->dst_stride == op->size && op->src_stride == op->size)) {
		*dst = op->dst + at;
		*src = op->src + at;
	} else {
		uint64_t row = at / op->size, within = at % op->size;
		*dst = op->dst + row * op->dst_stride + within;
		*src = op->src + row * op->src_stride + within;
		left = op->size - within;
	}
	return left < q->d->max_size ? left : q->d->max_size;
}

/* Submits the tasks of an operation of several tasks, or of a request of a chain, as long as there
 * is room. Returns whether all were submitted. */
static bool send_pieces(struct doca_queue *q, const struct dg_op *op)
{
	struct dg_pipe *p = q->p;
	uint64_t total = op->size * op->rows;
	if (!q->started && (op->flags & DG_FENCE) && q->in_flight)
		return false;
	if (!q->open_group) {
		q->open_group = &q->groups[q->free_groups[--q->n_free_groups]];
		*q->open_group = (struct task_group){.left = 1};
	}
	q->started = true;
	int status = q->open_group->status;
	while (!status && p->progress < total && has_room(q) && !q->broken) {
		char *dst;
		const char *src;
		status = dg_op_allowed(op);
		if (status)
			break;
		uint64_t n = next_piece(q, op, &dst, &src);
		gate_enter(region_entry_at(op->local)->gate, 1);
		gate_enter(region_entry_at(op->remote)->gate, 1);
		q->open_group->left++;
		send(q, op, dst, src, n, 0, (uint16_t)(q->open_group - q->groups));
		p->progress += n;
		status = q->open_group->status;
	}
	if (!status && p->progress < total)
		return false;
	end_op(q, op, status);
	return true;
}

/* Whether op is a single task, so that only its regions have to be checked. */
static inline bool is_single_task(const struct doca_queue *q, const struct dg_op *op)
{
	return op->rows == 1 && op->size <= q->d->max_size &&
	       !(op->flags & (DG_FENCE | DG_CHAIN)) && !q->open_group;
}

void dg_doca_submit(struct doca_queue *q)
{
	struct dg_pipe *p = q->p;
	if (q->dead)
		dg_doca_flush(q, DG_IO_FAILED);
	ended_before_submit(&q->ended, p, q->in_flight);
	/* All operations in the ring have entered their gates, so one check is enough for
	 * consecutive operations between the same regions. */
	uint32_t local = NO_REGION, remote = NO_REGION;
	int status = DG_OK;
	for (struct dg_op *op; !q->broken && (op = next_op(q));) {
		if (!is_single_task(q, op)) {
			if (!send_pieces(q, op))
				break;
			continue;
		}
		if (!has_room(q))
			break;
		if (op->local != local || op->remote != remote) {
			status = dg_op_allowed(op);
			local = op->local;
			remote = op->remote;
		}
		p->sq_head++;
		if (__builtin_expect(status == DG_OK, 1))
			send(q, op, op->dst, op->src, op->size, op->slot, NO_GROUP);
		else
			complete_now(q, op, status);
	}
	if (q->pending_task)
		submit_pending(q, DOCA_TASK_SUBMIT_FLAG_FLUSH);
	ended_publish(&q->ended, q->p);
}

void dg_doca_flush(struct doca_queue *q, int status)
{
	struct dg_op *op;
	while ((op = next_op(q))) {
		if (q->open_group || (op->flags & DG_CHAIN)) {
			/* A chain has one completion, with the last of its operations. */
			if (!q->open_group) {
				q->open_group = &q->groups[q->free_groups[--q->n_free_groups]];
				*q->open_group = (struct task_group){.left = 1};
			}
			end_op(q, op, status);
		} else {
			q->p->sq_head++;
			complete_now(q, op, status);
		}
	}
	ended_publish(&q->ended, q->p);
}

/* Recovers from an error. A context that the error stopped becomes idle once all its tasks are
 * freed, and is then restarted. */
static void restart_context(struct doca_queue *q)
{
	enum doca_ctx_states state = DOCA_CTX_STATE_IDLE;
	dg_doca.doca_ctx_get_state(q->ctx, &state);
	if (state == DOCA_CTX_STATE_RUNNING) {
		q->broken = false;
		return;
	}
	do {
		dg_doca_tasks_free(q);
	} while (dg_doca.doca_pe_progress(q->pe));
	dg_doca.doca_ctx_get_state(q->ctx, &state);
	if (state != DOCA_CTX_STATE_IDLE || q->in_flight)
		return;
	if (dg_doca_start(q) || dg_doca_tasks_new(q))
		q->dead = true;
	q->broken = false;
}

void dg_doca_progress(struct doca_queue *q)
{
	if (q->in_flight) {
		ended_before_poll(&q->ended);
		while (q->in_flight && dg_doca.doca_pe_progress(q->pe))
			;
		ended_after_poll(&q->ended, q->p);
	}
	if (__builtin_expect(q->broken, 0))
		restart_context(q);
	if (next_op(q))
		dg_doca_submit(q);
}
