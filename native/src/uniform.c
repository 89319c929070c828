// SPDX-License-Identifier: Apache-2.0
/*
 * Batches of small requests of one size, between the same two regions. The regions are checked
 * once, the requests by a loop without branches, and the provider receives groups of them. A group
 * is one operation with one completion, from which the completion of each request is derived: a
 * hand-off of 16 requests moves one entry of each ring and four lines of pairs, not 16 entries.
 *
 * A pair is overwritten only after its group has come back from the provider: pairs_out counts the
 * pairs that have not, and groups come back in posting order.
 */
#include <string.h>

#include "copy.h"
#include "providers/cpu_copy.h"
#include "queue.h"
#include "strided_copy.h"

/* What all requests of a batch have in common. */
struct common {
	uint32_t local, remote, rows;
	uint64_t size, local_most, remote_most; /* the largest offsets */
	uintptr_t local_base, remote_base;
	uint8_t op;
};

static bool fits(const struct dg_queue *q, uint32_t n)
{
	return q->pairs && n > 1 && q->pairs_out + n <= q->pair_mask + 1;
}

/* Checks n requests and stores their pairs, contiguously. Each request is read once, so a caller
 * that modifies it meanwhile cannot bypass the checks. The addresses are integers: they are computed
 * before the bounds are known, and a pointer must not leave its object. */
static bool stage_run(const struct common *c, const dg_wr *wr, uint32_t n, struct dg_pair *pairs,
		      uint64_t *users)
{
	uint64_t differs = 0, outside = 0;
	bool write = c->op == DG_WRITE;
	for (uint32_t i = 0; i < n; i++) {
		uint64_t local_offset = wr[i].local_offset, remote_offset = wr[i].remote_offset;
		void *local = (void *)(c->local_base + local_offset);
		void *remote = (void *)(c->remote_base + remote_offset);
		differs |= (wr[i].local ^ c->local) | (wr[i].remote ^ c->remote) |
			   (wr[i].size ^ c->size) | (wr[i].rows ^ c->rows) | (wr[i].op ^ c->op) |
			   wr[i].flags;
		outside |= (local_offset > c->local_most) | (remote_offset > c->remote_most);
		pairs[i].dst = write ? remote : local;
		pairs[i].src = write ? local : remote;
		users[i] = wr[i].user;
	}
	return !(differs | outside);
}

bool dg_uniform_stage(struct dg_queue *q, const dg_wr *wr, uint32_t n, struct dg_uniform *u)
{
	struct op_run run = {0};
	bool fresh;
	if (!fits(q, n))
		return false;
	dg_wr first = wr[0];
	if (first.size > GROUP_SIZE || first.flags || first.rows > 1 ||
	    dg_resolve(q, &first, &u->op, &run, &fresh) || !(u->op.flags & OP_PLAIN))
		return false;
	const struct common c = {
		.local = first.local,
		.remote = first.remote,
		.rows = first.rows,
		.size = first.size,
		.local_most = run.local->size - first.size,
		.remote_most = run.remote->size - first.size,
		.local_base = (uintptr_t)run.local->base,
		.remote_base = (uintptr_t)run.remote->base,
		.op = first.op,
	};
	u->local = run.local;
	u->remote = run.remote;
	u->n = n;
	for (uint32_t i = 0, part; i < n; i += part) {
		uint32_t at = (q->pair_tail + i) & q->pair_mask, room = q->pair_mask + 1 - at;
		part = n - i < room ? n - i : room;
		if (!stage_run(&c, wr + i, part, q->pairs + at, q->pair_users + at))
			return false;
	}
	return true;
}

bool dg_uniform_load(struct dg_queue *q, const struct dg_pair *pairs, const uint64_t *users,
		     uint32_t n)
{
	uint32_t at = q->pair_tail & q->pair_mask, room = q->pair_mask + 1 - at;
	uint32_t part = n < room ? n : room;
	if (!fits(q, n))
		return false;
	memcpy(q->pairs + at, pairs, sizeof *pairs * part);
	memcpy(q->pairs, pairs + part, sizeof *pairs * (n - part));
	memcpy(q->pair_users + at, users, sizeof *users * part);
	memcpy(q->pair_users, users + part, sizeof *users * (n - part));
	return true;
}

/* Returns the length of the group that starts after i of n staged pairs; a group is contiguous in
 * the ring. */
static uint32_t group_length(const struct dg_queue *q, uint32_t i, uint32_t n)
{
	uint32_t room = q->pair_mask + 1 - ((q->pair_tail + i) & q->pair_mask);
	uint32_t left = n - i < GROUP_PAIRS ? n - i : GROUP_PAIRS;
	return left < room ? left : room;
}

void dg_uniform_submit(struct dg_queue *q, const struct dg_uniform *u, uint32_t kind,
		       uint64_t submit_ns)
{
	struct dg_op op = u->op;
	uint32_t groups = 0;
	const struct dg_slot like = {
		.submit_ns = submit_ns,
		.post_ns = now_ns(),
		.part = NO_SLOT,
		.state = SLOT_PENDING,
		.kind = (uint8_t)kind,
		.op = op.opcode,
		.path = DG_PATH_WORKER,
		.flags = DG_SHARED_STAMP,
	};
	for (uint32_t i = 0; i < u->n; i += group_length(q, i, u->n))
		groups++;
	gate_enter(u->local->gate, groups);
	gate_enter(u->remote->gate, groups);
	op.flags |= OP_GROUP;
	for (uint32_t i = 0; i < u->n; i += op.rows) {
		op.rows = group_length(q, i, u->n);
		op.dst = (char *)&q->pairs[(q->pair_tail + i) & q->pair_mask];
		op.slot = q->free[--q->n_free];
		sq_put(&q->pipe, &op, 1);
		struct dg_slot *s = &q->slots[op.slot];
		slot_fill(s, &like);
		s->user = q->pair_tail + i;
		s->size = op.size * op.rows;
		s->pairs = (uint8_t)op.rows;
		s->run_index = (uint16_t)i;
	}
	q->pair_tail += u->n;
	q->pairs_out += u->n;
	q->bytes_in_flight += op.size * u->n;
	q->pipe.posted_ns = like.post_ns;
	credits_take(q, u->n);
	q->in_flight += groups;
	q->dev->ops->doorbell(q->dev, &q->pipe);
}

/* Fills the completions of one group, which differ in `user` only. */
static void fill(dg_wc *wc, const uint64_t *users, uint32_t n, const dg_wc *like)
{
	for (uint32_t i = 0; i < n; i++)
		wc[i].user = users[i];
	dg_fill_completions(wc, n, like);
}

/* Does the same for wc[i & mask], starting at i = first. */
static void fill_ring(dg_wc *wc, uint32_t first, uint32_t mask, const uint64_t *users, uint32_t n,
		      const dg_wc *like)
{
	uint64_t room = (uint64_t)mask + 1 - (first & mask);
	uint32_t part = n < room ? n : (uint32_t)room;
	fill(wc + (first & mask), users, part, like);
	fill(wc, users + part, n - part, like);
}

void dg_uniform_run_inline(struct dg_queue *q, const struct dg_uniform *u, dg_wc *wc, uint32_t first,
			   uint32_t mask, uint64_t submit_ns)
{
	dg_wc like = {.submit_ns = submit_ns,
		      .post_ns = submit_ns,
		      .op = u->op.opcode,
		      .path = DG_PATH_INLINE,
		      .flags = DG_SHARED_STAMP};
	/* The local region needs no gate: see inline_check(). */
	gate_enter(u->remote->gate, 1);
	for (uint32_t i = 0, n; i < u->n; i += n) {
		uint32_t at = (q->pair_tail + i) & q->pair_mask;
		n = group_length(q, i, u->n);
		like.status = dg_op_allowed(&u->op);
		if (like.status == DG_OK)
			dg_copy_pairs(q->pairs + at, n, u->op.size);
		like.size = like.status ? 0 : u->op.size;
		like.complete_ns = now_ns();
		fill_ring(wc, first + i, mask, q->pair_users + at, n, &like);
	}
	gate_leave(u->remote->gate, 1);
}

void dg_uniform_deliver(const struct dg_queue *q, const struct dg_slot *s, dg_wc *wc, uint32_t first,
			uint32_t mask)
{
	dg_wc like;
	dg_slot_to_wc(s, &like);
	like.size /= s->pairs;
	fill_ring(wc, first, mask, q->pair_users + (s->user & q->pair_mask), s->pairs, &like);
}
