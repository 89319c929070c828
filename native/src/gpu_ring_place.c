// SPDX-License-Identifier: Apache-2.0
/* The completion writer of rings: hands the status of a place to the kernel. */
#include "gpu_ring.h"

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
