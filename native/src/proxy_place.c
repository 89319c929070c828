// SPDX-License-Identifier: Apache-2.0
/* Staging the bytes of a place's operation for this pass, and completing it. */
#include <errno.h>

#include "proxy.h"
#include "region.h"

void dg_ring_finish(struct dg_ring *r, uint64_t count, uint32_t status, uint64_t value)
{
	struct place *p = place_of(r, count);
	const uint64_t sequence = sequence_of(r, count);
	p->state = PLACE_COMPLETE;
	p->status = (uint8_t)status;
	p->completed_ns = r->now;
	r->completed++;
	r->changed = true;
	if (status != DG_OK) {
		r->failed++;
		/* Rule 5: stored before any state that overtakes this one. */
		if (!r->first_error) {
			r->first_error = dg_completion_state(sequence, status);
			ring_store(&r->out->first_error, r->first_error, memory_order_relaxed);
		}
	}
	if (r->stamps) /* before the kernel can end */
		ring_stamp_store(&r->stamps[STAMP_WORDS * (sequence & r->mask)],
				 (dg_u64[STAMP_WORDS]){sequence + 1,
						       (dg_u64)p->op << 8 | status,
						       p->seen_ns, p->posted_ns, p->completed_ns});
	ring_complete(&r->completions[sequence & r->mask], sequence, status, value);
}

void dg_ring_finish_peer(struct dg_ring *r, uint64_t count, uint32_t status, uint64_t value)
{
	r->peer->now = r->now;
	dg_ring_finish(r->peer, count, status, value);
}

/* Returns the status of a record that dg_resolve() refuses. */
static uint32_t refusal(int rc, const dg_wr *wr)
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

uint32_t dg_ring_stage(struct dg_ring *r, const dg_wr *wr)
{
	struct dg_op *op = &r->q->scratch[r->n_wr];
	bool fresh;
	const int rc = dg_resolve(r->q, wr, op, &r->run, &fresh);
	if (rc)
		return refusal(rc, wr);
	/* A provider without a thread would copy in the proxy's thread, and the memory's owner may
	 * make it wait. */
	if (r->q->dev->ops->poll && !(op->flags & (OP_PLAIN | OP_GPU)))
		return DG_UNSUPPORTED;
	r->inline_able = r->inline_able && (op->flags & OP_PLAIN);
	r->total += wr->size;
	r->wr[r->n_wr++].user = wr->user; /* everything else in it is in *op */
	return DG_OK;
}
