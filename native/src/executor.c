// SPDX-License-Identifier: Apache-2.0
/* Regions entered, copies by this thread, requests for the provider, and flights: see executor.h. */
#include "executor.h"
#include "providers/cpu_copy.h"

int dg_exec_enter(struct executor *x, const struct exec_region *local,
		  const struct exec_region *remote)
{
	x->paired = false;
	if (local && !region_is_open(local->id))
		return DG_LOCAL_ERROR;
	if (!region_is_open(remote->id))
		return DG_REMOTE_ACCESS_ERROR;
	if (x->gate != remote->entry->gate) {
		exec_leave(x);
		x->gate = remote->entry->gate;
		gate_enter(x->gate, 1);
	}
	const int status = dg_regions_allowed(local ? local->entry : NULL, remote->entry);
	if (status != DG_OK)
		return status;
	x->local = local ? *local : (struct exec_region){NULL, 0};
	x->remote = *remote;
	x->paired = true;
	return DG_OK;
}

static int copy_here(struct executor *x, const struct exec_op *op)
{
	for (uint32_t i = 0; i < op->n; i++) {
		const struct exec_piece *p = &op->pieces[i];
		const int status = exec_enter(x, p->local, p->remote);
		if (status != DG_OK)
			return status;
		if (p->local &&
		    !(p->local->entry->access & (op->write ? DG_ACCESS_READ : DG_ACCESS_WRITE)))
			return DG_ACCESS_DENIED;
		if (op->write)
			exec_copy(exec_remote(p), exec_local(p), p->size);
		else
			exec_copy(exec_local(p), exec_remote(p), p->size);
	}
	return DG_OK;
}

/* Returns the status of a request that dg_resolve() refuses. */
static int refusal(int rc, const dg_wr *wr)
{
	uint64_t id;
	switch (-rc) {
	case ERANGE:
		return DG_OUT_OF_BOUNDS;
	case EACCES:
		return DG_ACCESS_DENIED;
	case EOPNOTSUPP:
		return DG_UNSUPPORTED;
	case ESTALE:
		return dg_region_table_find(wr->local, &id) ? DG_REMOTE_ACCESS_ERROR : DG_LOCAL_ERROR;
	default:
		return DG_BAD_RECORD;
	}
}

int dg_exec_stage(struct executor *x, const dg_wr *wr)
{
	struct dg_op *op = &x->q->scratch[x->n_staged];
	bool fresh;
	const int rc = dg_resolve(x->q, wr, op, &x->run, &fresh);
	if (rc)
		return refusal(rc, wr);
	x->inline_able = x->inline_able && (op->flags & OP_PLAIN);
	if (x->flights)
		op->flags &= (uint8_t)~OP_PLAIN; /* of the NIC: the program may unmap its memory */
	x->staged_bytes += wr->size;
	x->engine->wr[x->n_staged++].user = wr->user; /* everything else in it is in *op */
	return DG_OK;
}

void dg_exec_unstage(struct executor *x, uint32_t n)
{
	while (n--)
		x->staged_bytes -= x->q->scratch[--x->n_staged].size;
}

uint32_t dg_exec_post(struct executor *x, bool here, uint64_t now)
{
	struct exec_engine *e = x->engine;
	const uint32_t n = x->n_staged;
	uint32_t n_wc = 0;
	here = here && queue_inline(x->q, x->inline_able && x->q->dev->ops->inline_copies,
				    x->staged_bytes);
	x->n_staged = 0;
	x->staged_bytes = 0;
	x->inline_able = true;
	e->batches++;
	if (here)
		n_wc = dg_queue_run_inline(x->q->scratch, e->wr, n, e->wc, 0, UINT32_MAX);
	else
		dg_queue_submit(x->q, x->q->scratch, e->wr, n, KIND_POLL, now);
	return n_wc;
}

uint32_t dg_exec_completions(struct executor *x, struct dg_queue *q, uint32_t most)
{
	if (!q->in_flight)
		return 0;
	const uint32_t n = dg_queue_process_completions(q, x->engine->wc, most);
	credits_add(q, n);
	return n;
}

struct exec_flight *dg_exec_fly(struct executor *x, uint32_t left)
{
	const bool write = exec_flies(x) && flight_at(x, x->tail - 1)->write;
	struct exec_flight *f = flight_at(x, x->tail++);
	*f = (struct exec_flight){.left = left, .last = true, .write = write};
	return f;
}

/* Stages one piece for the flight that is next. fence: the first behind all that was posted before,
 * which the provider may otherwise overtake. */
static int stage_piece(struct executor *x, const struct exec_op *op, uint32_t i, bool fence,
		       struct exec_flight *f)
{
	const struct exec_piece *p = &op->pieces[i];
	struct exec_staging *s = &x->engine->staging;
	dg_wr wr = {
		.user = x->tail,
		.remote = REGION_NAME(p->remote->id),
		.remote_offset = p->remote_offset,
		.size = p->size,
		.op = op->write ? DG_WRITE : DG_READ,
		.flags = fence && !i ? DG_FENCE : 0,
	};
	if (p->local) {
		wr.local = REGION_NAME(p->local->id);
		wr.local_offset = p->local_offset;
		return dg_exec_stage(x, &wr);
	}
	if (!dg_exec_staging_take(x->engine, f, EXEC_SLOT))
		return EXEC_WAITS;
	wr.local = s->by[0].name;
	wr.local_offset = f->staging->offset + f->done;
	memcpy(s->bytes + wr.local_offset, p->bytes, p->size);
	f->done += p->size; /* of the slot */
	return dg_exec_stage(x, &wr);
}

/* A write that may announce the bytes of the writes before it, after which an adapter's would arrive. */
static bool is_word(const struct exec_op *op)
{
	return op->write && op->total <= sizeof(uint64_t);
}

/* Has the provider copy the pieces. */
static int post_pieces(struct executor *x, const struct exec_op *op)
{
	const bool fence =
		exec_flies(x) && (flight_at(x, x->tail - 1)->write != op->write || is_word(op));
	if (x->bounced || !exec_has_room(x, op->n))
		return EXEC_WAITS;
	struct exec_flight *f = flight_at(x, x->tail);
	*f = (struct exec_flight){.left = op->n, .last = true, .write = op->write};
	for (uint32_t i = 0; i < op->n; i++) {
		const int rc = stage_piece(x, op, i, fence, f);
		if (rc == DG_OK)
			continue;
		dg_exec_unstage(x, i);
		dg_exec_staging_put(x->engine, f);
		return rc;
	}
	x->tail++;
	return EXEC_POSTED;
}

static bool reaches(const struct exec_piece *p)
{
	return (!p->local || is_plain(p->local->entry)) && is_plain(p->remote->entry);
}

/* Whether the provider does not reach all memory. */
static bool must_bounce(const struct executor *x, const struct exec_op *op)
{
	const dg_device *dev = x->engine->dev;
	for (uint32_t i = 0; i < op->n && dev->gpu; i++) {
		const struct exec_piece *p = &op->pieces[i];
		if (!exec_reaches(dev, p->remote->entry) || (p->local && !exec_reaches(dev, p->local->entry)))
			return true;
	}
	return false;
}

int dg_exec_move(struct executor *x, const struct exec_op *op)
{
	const dg_device *dev = x->engine->dev;
	bool here = !exec_flies(x) && op->total <= EXEC_COPY_MOST &&
		    (dev->ops->inline_copies || dev->gpu);
	for (uint32_t i = 0; i < op->n && here; i++)
		here = reaches(&op->pieces[i]);
	if (here)
		return copy_here(x, op);
	if (must_bounce(x, op))
		return dg_exec_bounce(x, op, op->write ? FLIGHT_PUT : FLIGHT_GET);
	return op->n ? post_pieces(x, op) : DG_OK;
}

/* Handles a completion of the provider for a flight. */
static void step(struct executor *x, struct exec_flight *f, int status)
{
	if (f->kind >= FLIGHT_PUT) {
		dg_exec_bounce_step(x, f, status);
		return;
	}
	f->left--;
	if (!f->status)
		f->status = (uint8_t)status;
	if (f->left)
		return;
	if (f->kind == FLIGHT_ATOMIC_READ && !f->status) {
		const int rc = dg_exec_atomic_result(x, f);
		if (rc == EXEC_POSTED)
			return;
		f->status = (uint8_t)rc;
	}
	if (f->kind != FLIGHT_COPY)
		dg_exec_atomic_end(x->engine);
	dg_exec_staging_put(x->engine, f);
}

/* Takes the completions of a queue. Returns their number. */
static uint32_t take_completions(struct executor *x, struct dg_queue *q)
{
	const uint32_t n = dg_exec_completions(x, q, EXEC_DEPTH);
	for (uint32_t i = 0; i < n; i++)
		step(x, flight_at(x, (uint32_t)x->engine->wc[i].user), x->engine->wc[i].status);
	return n;
}

bool dg_exec_progress(struct executor *x)
{
	bool any = take_completions(x, x->q);
	if (__builtin_expect(x->bounced, 0)) {
		if (x->soft_q && !queue_enter(x->soft_q)) {
			any |= take_completions(x, x->soft_q) > 0;
			queue_leave(x->soft_q);
		}
		any |= dg_exec_bounce_all(x);
	}
	if (x->n_staged)
		dg_exec_post(x, false, now_ns());
	return any;
}

bool dg_exec_take(struct executor *x, uint32_t *number, int *status)
{
	while (exec_flies(x) && !flight_at(x, x->head)->left) {
		const struct exec_flight *f = flight_at(x, x->head++);
		if (f->last) {
			*number = x->head - 1;
			*status = f->status;
			return true;
		}
		struct exec_flight *next = flight_at(x, x->head);
		if (!next->status)
			next->status = f->status;
	}
	return false;
}

void dg_exec_end(struct executor *x)
{
	for (; exec_flies(x); x->head++)
		dg_exec_staging_put(x->engine, flight_at(x, x->head));
	if (x->engine->atomic_owner == x)
		dg_exec_atomic_end(x->engine);
}
