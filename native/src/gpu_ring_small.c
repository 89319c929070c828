// SPDX-License-Identifier: Apache-2.0
/*
 * Small puts and gets of a ring whose provider copies inline: taken, checked, copied and completed
 * in one step, without a work request, an operation and a completion of the queue.
 *
 * Records taken together form a group: they share a stamp. The queue's other operations come before
 * or after a group, because nothing is staged or in flight meanwhile.
 */
#include "gpu_ring.h"

enum { SMALL = 1024 }; /* in bytes, so that a group is small enough to be copied inline */

/* Whether the ring can use groups at the moment. */
static bool is_open(const struct dg_ring *r)
{
	return !r->x.n_staged && !r->gpu_trace && !r->message.active &&
	       queue_inline(r->x.q, r->x.q->dev->ops->inline_copies, STAMP_OPS * SMALL);
}

/* Creates the work request. For a kernel of another process the memory of this process is the
 * remote side, so its put is a read here. */
static dg_wr work_request(const struct dg_ring *r, const dg_u64 *w)
{
	const bool put = (dg_u8)w[0] == DG_OP_PUT;
	if (r->own)
		return (dg_wr){
			.local = (dg_u32)w[5],
			.remote = (dg_u32)w[4],
			.local_offset = DG_LOW(w[2], 56),
			.remote_offset = DG_LOW(w[1], 56),
			.size = DG_LOW(w[3], 56),
			.op = put ? DG_READ : DG_WRITE,
		};
	return (dg_wr){
		.local = (dg_u32)w[4],
		.remote = (dg_u32)w[5],
		.local_offset = DG_LOW(w[1], 56),
		.remote_offset = DG_LOW(w[2], 56),
		.size = DG_LOW(w[3], 56),
		.op = put ? DG_WRITE : DG_READ,
	};
}

/* Whether a ring of another process may use these regions. */
static bool admits(const struct dg_ring *r, const dg_wr *wr)
{
	if (!r->own)
		return true;
	if (wr->local != REGION_NAME(r->own) || !region_is_open(r->own))
		return false;
	for (uint32_t i = 0; i < r->n_peers; i++)
		if (wr->remote == REGION_NAME(r->peers[i]))
			return region_is_open(r->peers[i]);
	return false;
}

/* Looks up the pair of regions and enters them. */
static bool enter(struct dg_ring *r, const dg_wr *wr)
{
	struct executor *x = &r->x;
	struct dg_op op;
	bool fresh;
	if (!admits(r, wr) || dg_resolve(x->q, wr, &op, &x->run, &fresh) || !(op.flags & OP_PLAIN))
		return false;
	const struct exec_region local = {x->run.local, x->run.local_id};
	const struct exec_region remote = {x->run.remote, x->run.remote_id};
	return dg_exec_enter(x, &local, &remote) == DG_OK;
}

/* Takes one record and copies its bytes. Returns false if the record is not there or needs more than
 * that; dg_ring_serve() then handles it and reports any error. */
static bool copy_one(struct dg_ring *r, uint64_t count)
{
	struct executor *x = &r->x;
	dg_u64 w[DG_RECORD_WORDS];
	if (count - r->done >= r->depth || !ring_take(&r->records[(r->first + count) & r->mask],
						      sequence_of(r, count), r->shift, w))
		return false;
	ring_prefetch(r, count + AHEAD);
	/* A record with any flag does not belong to a group. */
	const uint32_t op = (uint32_t)w[0] & 0xffff;
	const dg_wr wr = work_request(r, w);
	if ((op != DG_OP_PUT && op != DG_OP_GET) || wr.size - 1 >= SMALL)
		return false;
	if ((!x->paired || wr.local != REGION_NAME(x->local.id) ||
	     wr.remote != REGION_NAME(x->remote.id)) &&
	    !enter(r, &wr))
		return false;
	const bool write = wr.op == DG_WRITE;
	if (!exec_in_bounds(x->local.entry, wr.local_offset, wr.size,
			    write ? DG_ACCESS_READ : DG_ACCESS_WRITE) ||
	    !exec_in_bounds(x->remote.entry, wr.remote_offset, wr.size,
			    write ? DG_ACCESS_WRITE : DG_ACCESS_READ))
		return false;
	char *local = x->local.entry->base + wr.local_offset;
	char *remote = x->remote.entry->base + wr.remote_offset;
	place_of(r, count)->op = (uint8_t)op;
	exec_copy(write ? remote : local, write ? local : remote, wr.size);
	return true;
}

/* Completes the n records at the head, which were seen at `seen_ns`. A kernel waits for the
 * completions, so they are stored before the stamps. */
static void complete(struct dg_ring *r, uint32_t n, uint64_t seen_ns)
{
	const bool next = r->done == r->head; /* nothing before these records is in progress */
	const uint64_t end = r->head + n;
	for (uint64_t count = r->head; count != end; count++) {
		const uint64_t sequence = sequence_of(r, count);
		ring_complete(&r->completions[sequence & r->mask], sequence, DG_OK, 0);
	}
	r->now = now_ns();
	for (; r->head != end; r->head++) {
		struct place *p = place_of(r, r->head);
		p->seen_ns = p->posted_ns = seen_ns;
		p->completed_ns = r->now;
		p->status = DG_OK;
		p->state = next ? PLACE_FREE : PLACE_COMPLETE;
	}
	r->done = next ? end : r->done;
	r->completed += n;
	r->changed = true;
	r->waiting = false;
}

uint32_t dg_ring_copy_small(struct dg_ring *r)
{
	uint32_t n = 0;
	if (!is_open(r))
		return 0;
	while (n < STAMP_OPS && copy_one(r, r->head + n)) {
		if (!r->since++)
			r->now = now_ns();
		n++;
	}
	if (!n)
		return 0;
	complete(r, n, r->now);
	r->proxy->engine.batches++;
	r->proxy->records += n;
	return n;
}
