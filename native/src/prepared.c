// SPDX-License-Identifier: Apache-2.0
/* Prepared operations: requests are checked once, and each run checks only what may have
 * changed. */
#include <stdlib.h>
#include <string.h>

#include "providers/cpu_copy.h"
#include "queue.h"
#include "strided_copy.h"

/* A run needs no time limit, because its operations end with DG_TIMED_OUT at the latest. */
#define NO_TIMEOUT UINT64_MAX

/* Detects uniform requests, which run_uniform() copies without checking them individually. */
static void find_uniform(struct dg_prep *p)
{
	const struct dg_op *first = &p->ops[0];
	uint32_t flags = 0;
	if (!p->inline_able || p->n_runs != 1 || p->n_wc != p->n || first->size > 64 ||
	    (first->flags & OP_ATOMIC))
		return;
	for (uint32_t i = 0; i < p->n; i++)
		if (p->ops[i].size != first->size || p->ops[i].rows != 1 ||
		    p->ops[i].opcode != first->opcode)
			return;
	for (uint32_t i = 0; i < p->n; i++)
		p->wc[i].user = p->wr[i].user;
	for (uint32_t i = 0; i < p->n; i++)
		flags |= p->wr[i].flags;
	p->uniform_size = first->size;
	p->grouped = p->n > 1 && p->q->pairs && !flags;
	if (!p->grouped)
		return;
	p->uniform = (struct dg_uniform){*first, p->runs[0].local, p->runs[0].remote, p->n};
	for (uint32_t i = 0; i < p->n; i++)
		p->pairs[i] = (struct dg_pair){p->ops[i].dst, p->ops[i].src};
	for (uint32_t i = 0; i < p->n; i++)
		p->users[i] = p->wr[i].user;
}

static int resolve_all(struct dg_prep *p)
{
	struct op_run run = {0};
	bool fresh;
	for (uint32_t i = 0; i < p->n; i++) {
		TRY(dg_resolve(p->q, &p->wr[i], &p->ops[i], &run, &fresh));
		if (fresh)
			p->n_runs++;
		p->runs[p->n_runs - 1] = run;
		p->total += p->ops[i].size * p->ops[i].rows;
		p->inline_able &= !!(p->ops[i].flags & (OP_PLAIN | OP_ATOMIC));
		p->n_wc += !(p->ops[i].flags & DG_CHAIN);
	}
	if (p->ops[p->n - 1].flags & DG_CHAIN)
		return dg_fail(EINVAL,
			       "the last record has DG_CHAIN: a chain must end within its batch");
	find_uniform(p);
	return 0;
}

/* Allocates everything in one block, so that a prepared operation of one request occupies few cache
 * lines. */
static struct dg_prep *prep_alloc(uint32_t n)
{
	size_t head = (sizeof(struct dg_prep) + 63) / 64 * 64;
	size_t each = sizeof(struct dg_op) + sizeof(dg_wc) + sizeof(struct op_run) +
		      sizeof(dg_wr) + sizeof(struct dg_pair) + sizeof(uint64_t);
	size_t size = (head + each * n + 63) / 64 * 64;
	struct dg_prep *p = aligned_alloc(64, size);
	if (!p)
		return NULL;
	memset(p, 0, size);
	p->ops = (struct dg_op *)((char *)p + head);
	p->wc = (dg_wc *)(p->ops + n);
	p->runs = (struct op_run *)(p->wc + n);
	p->wr = (dg_wr *)(p->runs + n);
	p->pairs = (struct dg_pair *)(p->wr + n);
	p->users = (uint64_t *)(p->pairs + n);
	return p;
}

int dg_prep_open(dg_queue *q, const dg_wr *wr, uint32_t n, dg_prep **out)
{
	*out = NULL;
	if (n == 0 || n > q->depth)
		return dg_fail(EINVAL,
			       "cannot prepare %u records: a queue of depth %u takes 1 to %u", n,
			       q->depth, q->depth);
	TRY(queue_enter(q));
	struct dg_prep *p = prep_alloc(n);
	int rc = p ? dg_queue_postable(q)
		   : dg_fail(ENOMEM, "out of memory for %u prepared records", n);
	if (rc)
		goto leave;
	p->q = q;
	p->n = n;
	p->inline_able = q->dev->ops->inline_copies;
	memcpy(p->wr, wr, sizeof *wr * n);
	rc = resolve_all(p);
	if (rc)
		goto leave;
	atomic_fetch_add(&q->refs, 1);
	*out = p;
leave:
	if (rc)
		free(p);
	queue_leave(q);
	return rc;
}

int dg_prep_close(dg_prep *p)
{
	struct dg_queue *q = p->q;
	free(p);
	dg_queue_unref(q);
	return 0;
}

const dg_wc *dg_prep_wc(dg_prep *p)
{
	return p->wc;
}

/* Checks what may have changed since the requests were prepared: whether the regions are still
 * open. */
static inline int still_open(const struct dg_prep *p)
{
	for (uint32_t i = 0; i < p->n_runs; i++) {
		const struct op_run *r = &p->runs[i];
		if (atomic_load_explicit(&r->local->id, memory_order_seq_cst) != r->local_id)
			return dg_fail(ESTALE, "local region #%u is closed", REGION_NAME(r->local_id));
		if (atomic_load_explicit(&r->remote->id, memory_order_seq_cst) != r->remote_id)
			return dg_fail(ESTALE, "remote region #%u is closed",
				       REGION_NAME(r->remote_id));
	}
	return 0;
}

int dg_prep_still_open(const struct dg_prep *p)
{
	int rc = dg_queue_postable(p->q);
	return rc ? rc : still_open(p);
}

static inline int begin_run(struct dg_prep *p, bool inlined)
{
	int rc = dg_queue_postable(p->q);
	if (!rc && !inlined)
		rc = dg_queue_room(p->q, p->n);
	return rc ? rc : still_open(p);
}

static int first_failure(const struct dg_prep *p)
{
	for (uint32_t i = 0; i < p->n_wc; i++)
		if (p->wc[i].status)
			return p->wc[i].status;
	return 0;
}

/* Does what dg_queue_run_inline() does for uniform requests, and writes their completions
 * directly. */
static int run_uniform(struct dg_prep *p, uint64_t submit_ns)
{
	struct dg_gate *gate = p->runs[0].remote->gate;
	dg_wc wc = {.op = p->ops[0].opcode,
		    .path = DG_PATH_INLINE,
		    .flags = p->n > 1 ? DG_SHARED_STAMP : 0};
	int failed = DG_OK;
	wc.submit_ns = wc.post_ns = submit_ns;
	gate_enter(gate, 1);
	for (uint32_t i = 0, n; i < p->n; i += n) {
		n = p->n - i < STAMP_OPS ? p->n - i : STAMP_OPS;
		wc.status = dg_op_allowed(&p->ops[i]);
		if (wc.status == DG_OK)
			dg_copy_ops(&p->ops[i], n, p->uniform_size);
		else
			failed = wc.status;
		wc.size = wc.status ? 0 : p->uniform_size;
		wc.complete_ns = now_ns();
		dg_fill_completions(&p->wc[i], n, &wc);
	}
	gate_leave(gate, 1);
	return failed;
}

/* Submits a run as groups. Returns false if it has to be submitted as operations. */
static bool start_grouped(struct dg_prep *p, uint64_t submit_ns)
{
	if (!p->grouped || !dg_uniform_load(p->q, p->pairs, p->users, p->n))
		return false;
	dg_uniform_start_run(p->q, &p->uniform, p->wc, submit_ns);
	return true;
}

/* Runs the operations inside the queue. After -EINTR the run is still in progress. */
static int run_entered(struct dg_prep *p, uint64_t submit_ns)
{
	struct dg_queue *q = p->q;
	bool inlined = queue_inline(q, p->inline_able, p->total);
	int rc = begin_run(p, inlined);
	if (rc)
		return rc;
	if (inlined && p->uniform_size)
		return run_uniform(p, submit_ns);
	if (inlined) {
		dg_queue_run_inline(p->ops, p->wr, p->n, p->wc, 0, UINT32_MAX);
	} else if (start_grouped(p, submit_ns)) {
		rc = dg_queue_finish_run(q, p->total, NO_TIMEOUT);
	} else {
		rc = dg_queue_run_ops(q, p->ops, p->wr, p->n, p->n_wc, p->wc, submit_ns,
				      NO_TIMEOUT);
	}
	return rc ? rc : first_failure(p);
}

int dg_prep_run_entered(struct dg_prep *p, uint64_t submit_ns)
{
	int rc = run_entered(p, submit_ns);
	if (rc == -EINTR)
		dg_queue_abandon_run(p->q);
	return rc;
}

int dg_prep_run(dg_prep *p)
{
	TRY(queue_enter(p->q));
	int rc = dg_prep_run_entered(p, now_ns());
	queue_leave(p->q);
	return rc;
}

int dg_prep_start(dg_prep *p, uint64_t spin_ns)
{
	struct dg_queue *q = p->q;
	int rc = queue_enter(q);
	if (rc)
		return rc;
	uint64_t submit_ns = now_ns();
	bool inlined = queue_inline(q, p->inline_able, p->total);
	if (inlined || !q->prompt) {
		rc = run_entered(p, submit_ns);
	} else {
		rc = begin_run(p, false);
		if (!rc) {
			if (!start_grouped(p, submit_ns))
				dg_queue_start_run(q, p->ops, p->wr, p->n, p->n_wc, p->wc,
						   submit_ns);
			rc = dg_queue_spin_run(q, submit_ns, spin_ns);
		}
		if (rc == -EINPROGRESS)
			return rc;
		rc = rc ? rc : first_failure(p);
	}
	if (rc != -EINTR)
		queue_leave(q);
	return rc;
}

int dg_prep_finish(dg_prep *p)
{
	struct dg_queue *q = p->q;
	int rc = dg_queue_finish_run(q, p->total, NO_TIMEOUT);
	if (rc == -EINTR)
		return rc;
	if (!rc)
		rc = first_failure(p);
	queue_leave(q);
	return rc;
}

void dg_prep_cancel(dg_prep *p)
{
	dg_queue_run_cancel(p->q);
}

int dg_prep_post(dg_prep *p)
{
	struct dg_queue *q = p->q;
	TRY(queue_enter(q));
	uint64_t submit_ns = now_ns();
	/* The completions need room in the ready ring even if the copies are inline. */
	int rc = begin_run(p, false);
	if (!rc && queue_inline(q, p->inline_able, p->total)) {
		uint32_t n = dg_queue_run_inline(p->ops, p->wr, p->n, q->ready, q->ready_tail,
						 q->ready_mask);
		q->ready_tail += n;
		credits_take(q, n);
	} else if (!rc && p->grouped && dg_uniform_load(q, p->pairs, p->users, p->n)) {
		dg_uniform_submit(q, &p->uniform, KIND_POLL, submit_ns);
	} else if (!rc) {
		dg_queue_submit(q, p->ops, p->wr, p->n, KIND_POLL, submit_ns);
	}
	queue_leave(q);
	return rc;
}
