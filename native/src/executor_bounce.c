// SPDX-License-Identifier: Apache-2.0
/*
 * Operations in two legs through staging memory, where one provider does not reach both sides: copies
 * between memory that only the provider cuda reaches and memory that only the provider soft does, as its
 * exporter copies it (by_exporter()), or as it is not pinned; and atomic operations on the former of these. Each piece of an operation is
 * a flight of its own, of which the last one completes the operation.
 *
 *	            leg 0                      leg 1
 *	PUT         local -> staging           staging -> remote      again for each EXEC_CHUNK
 *	GET         remote -> staging          staging -> local       again for each EXEC_CHUNK
 *	FAR_ATOMIC  the exporter's old value   staging -> local
 *	            -> staging
 *
 * Order: the legs at the remote side are executed one at a time, in the order of the operations, and
 * none behind one that failed. The other legs of several flights overlap. While such flights are in
 * progress, no other operation of the queue is executed.
 */
#include "executor.h"

static uint32_t chunk_of(const struct exec_flight *f)
{
	const uint32_t left = f->size - f->done;
	return left < EXEC_CHUNK ? left : EXEC_CHUNK;
}

/* Whether the next leg, or the one in progress, is at the remote side. */
static bool is_remote(const struct exec_flight *f)
{
	return (f->kind == FLIGHT_PUT) == f->leg;
}

/* Whether the remote side has run all of its legs. */
static bool is_remote_done(const struct exec_flight *f)
{
	return !f->left || (f->kind != FLIGHT_PUT && f->leg && f->done + chunk_of(f) == f->size);
}

static void end_flight(struct executor *x, struct exec_flight *f, int status)
{
	if (!f->status)
		f->status = (uint8_t)status;
	f->left = 0;
	x->bounced--;
	dg_exec_staging_put(x->engine, f);
}

/* Whether that leg is for the provider soft. */
static bool is_soft(const struct exec_flight *f)
{
	return is_remote(f) ? f->far_soft : f->near_soft;
}

static dg_wr leg_of(const struct exec_staging *staging, const struct exec_flight *f, uint32_t number)
{
	const struct staging_region *s = &staging->by[is_soft(f)];
	dg_wr wr = {
		.user = number,
		.local = f->local,
		.local_offset = f->local_offset + f->done,
		.remote = s->import_name,
		.remote_offset = f->staging->offset,
		.size = chunk_of(f),
		.op = f->kind == FLIGHT_PUT ? DG_WRITE : DG_READ,
	};
	if (!is_remote(f))
		return wr;
	wr.local = s->name;
	wr.local_offset = f->staging->offset;
	wr.remote = f->remote;
	wr.remote_offset = f->remote_offset + f->done;
	return wr;
}

static int stage_leg(struct executor *x, const struct exec_flight *f, const dg_wr *wr)
{
	const int rc = dg_exec_stage(x, wr);
	if (rc == DG_OK && f->kind == FLIGHT_FAR_ATOMIC && is_remote(f))
		x->q->scratch[x->n_staged - 1].opcode = OP_MASKED;
	return rc == DG_OK ? EXEC_POSTED : rc;
}

/* Posts a leg to the queue of the provider soft. */
static int post_by_soft(struct executor *x, const struct exec_flight *f, const dg_wr *wr)
{
	struct executor soft = {.engine = x->engine, .q = x->soft_q, .flights = x->flights};
	if (queue_enter(soft.q))
		return EXEC_WAITS;
	if (!exec_has_room(&soft, 1)) {
		queue_leave(soft.q);
		return EXEC_WAITS;
	}
	if (x->n_staged) /* engine->wr is in use */
		dg_exec_post(x, false, now_ns());
	const int rc = stage_leg(&soft, f, wr);
	if (rc == EXEC_POSTED)
		dg_exec_post(&soft, false, now_ns());
	queue_leave(soft.q);
	return rc;
}

static int post(struct executor *x, const struct exec_flight *f, uint32_t number)
{
	const dg_wr wr = leg_of(&x->engine->staging, f, number);
	return is_soft(f) ? post_by_soft(x, f, &wr) : stage_leg(x, f, &wr);
}

/* Posts the flight's next leg, if it may. before: flights before it that have legs at the remote side.
 * Returns whether anything was done. */
static bool advance(struct executor *x, struct exec_flight *f, uint32_t number, uint32_t before)
{
	/* Only two flights of a queue have large staging memory, of which there is little. */
	const uint32_t most = chunk_of(f) > EXEC_SLOT ? 1 : EXEC_FLIGHTS;
	if (f->posted)
		return false;
	if (f->status || x->stopped) {
		end_flight(x, f, DG_FLUSHED);
		return true;
	}
	if (before > (is_remote(f) ? 0 : most) ||
	    !dg_exec_staging_take(x->engine, f, chunk_of(f)))
		return false;
	const int rc = post(x, f, number);
	if (rc > 0)
		end_flight(x, f, rc);
	f->posted = rc == EXEC_POSTED;
	return rc != EXEC_WAITS;
}

bool dg_exec_bounce_all(struct executor *x)
{
	uint32_t before = 0;
	bool busy = false;
	for (uint32_t i = x->head; i != x->tail; i++) {
		struct exec_flight *f = flight_at(x, i);
		if (f->left)
			busy |= advance(x, f, i, before);
		if (f->status && !x->stopped)
			break;
		before += !is_remote_done(f);
	}
	return busy;
}

void dg_exec_bounce_step(struct executor *x, struct exec_flight *f, int status)
{
	f->posted = false;
	if (status != DG_OK) {
		end_flight(x, f, status);
		return;
	}
	f->leg = !f->leg;
	if (f->leg)
		return;
	f->done += chunk_of(f);
	if (f->done == f->size)
		end_flight(x, f, DG_OK);
}

/* Makes a flight of a piece. Returns false if there is no staging memory for inline bytes or operands. */
static bool make_flight(struct executor *x, struct exec_flight *f, const struct exec_op *op,
			const struct exec_piece *p, uint32_t kind)
{
	struct exec_engine *e = x->engine;
	const bool atomic = kind == FLIGHT_FAR_ATOMIC;
	*f = (struct exec_flight){
		.left = 1,
		.last = p + 1 == op->pieces + op->n,
		.write = op->write,
		.kind = (uint8_t)kind,
		.far_soft = e->dev->gpu && !exec_reaches(e->dev, p->remote->entry),
		.near_soft = e->dev->gpu && p->local && !exec_reaches(e->dev, p->local->entry),
		.local = p->local ? REGION_NAME(p->local->id) : 0,
		.local_offset = p->local_offset,
		.remote = REGION_NAME(p->remote->id),
		.remote_offset = p->remote_offset,
		.size = p->size,
	};
	if (p->local && !atomic)
		return true;
	if (!dg_exec_staging_take(e, f, atomic ? EXEC_SLOT : p->size))
		return false;
	char *at = e->staging.bytes + f->staging->offset;
	if (atomic) {
		memcpy(at, op->atomic, sizeof *op->atomic);
		return true;
	}
	memcpy(at, p->bytes, p->size);
	f->leg = true; /* the first one would have brought them here */
	return true;
}

int dg_exec_bounce(struct executor *x, const struct exec_op *op, uint32_t kind)
{
	if ((exec_flies(x) && !x->bounced) || EXEC_FLIGHTS - (x->tail - x->head) < op->n)
		return EXEC_WAITS;
	for (uint32_t i = 0; i < op->n; i++) {
		if (make_flight(x, flight_at(x, x->tail + i), op, &op->pieces[i], kind))
			continue;
		for (; i; i--)
			dg_exec_staging_put(x->engine, flight_at(x, x->tail + i - 1));
		return EXEC_WAITS;
	}
	x->tail += op->n;
	x->bounced += op->n;
	return EXEC_POSTED;
}
