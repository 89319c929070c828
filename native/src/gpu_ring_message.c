// SPDX-License-Identifier: Apache-2.0
/*
 * Messages between two connected rings of one proxy.
 *
 * The n-th send or put with an immediate value of a ring matches the n-th receive of its peer. A
 * message waits in its ring for a receive that is posted later, and so do the records behind it. If
 * a message is longer than its receive, both end with DG_OUT_OF_BOUNDS, and no byte moves. When the
 * peer is closed, sends and receives end with DG_PEER_LOST.
 */
#include "gpu_ring.h"

enum { CHUNK = 256 << 10 }; /* copied before the other rings are served */

int dg_message_receiver(struct dg_ring *r, uint64_t *count)
{
	struct dg_ring *peer = r->peer;
	if (!peer)
		return r->peer_lost ? DG_PEER_LOST : DG_UNSUPPORTED;
	if (peer->receive < peer->done)
		peer->receive = peer->done;
	for (; peer->receive != peer->head; peer->receive++) {
		if (place_of(peer, peer->receive)->state != PLACE_RECEIVING)
			continue;
		*count = peer->receive++;
		return DG_OK;
	}
	return WAIT;
}

/* Finds the local region of a send or receive. Returns a dg_status. The operation may wait for long:
 * it keeps the id that its record's name had. */
static uint32_t find_local(struct dg_ring *r, uint64_t count, uint32_t access,
			   struct exec_region *out, uint64_t size)
{
	const struct dg_gpu_request *q = request_of(r, count);
	struct place *p = place_of(r, count);
	struct dg_region_entry *entry = dg_region_table_find(q->local, &out->id);
	if (!entry || (p->region && p->region != out->id) ||
	    entry->device != r->proxy->engine.dev->number || entry->remote)
		return DG_LOCAL_ERROR;
	p->region = out->id;
	out->entry = entry;
	if (!is_plain(entry))
		return DG_UNSUPPORTED;
	if (!(entry->access & access))
		return DG_ACCESS_DENIED;
	return exec_in_bounds(entry, q->local_offset, size, access) ? DG_OK : DG_OUT_OF_BOUNDS;
}

uint32_t dg_message_receivable(struct dg_ring *r, uint64_t count)
{
	const struct dg_gpu_request *request = request_of(r, count);
	struct exec_region region;
	if (!r->peer)
		return r->peer_lost ? DG_PEER_LOST : DG_UNSUPPORTED;
	if (!request->size) /* it accepts only messages without bytes */
		return DG_OK;
	return find_local(r, count, DG_ACCESS_WRITE, &region, request->size);
}

int dg_message_start(struct dg_ring *r, const struct dg_gpu_request *request)
{
	uint64_t to = 0;
	const int status = dg_message_receiver(r, &to);
	if (status != DG_OK)
		return status;
	if (request->size > request_of(r->peer, to)->size || request->size > UINT32_MAX) {
		dg_ring_finish_peer(r, to, DG_OUT_OF_BOUNDS, 0);
		return DG_OUT_OF_BOUNDS;
	}
	r->message = (struct message){.active = true, .from = r->head, .to = to};
	return DG_OK;
}

/* Copies one chunk. Returns a dg_status. The regions are entered for each chunk, so that the owner of
 * a region need not wait for the whole message. */
static uint32_t copy_chunk(struct dg_ring *r, struct message *m, uint64_t size)
{
	const struct dg_gpu_request *from = request_of(r, m->from);
	const struct dg_gpu_request *to = request_of(r->peer, m->to);
	const uint64_t n = size - m->copied < CHUNK ? size - m->copied : CHUNK;
	struct exec_region source, target;
	uint32_t status = find_local(r, m->from, DG_ACCESS_READ, &source, size);
	if (status == DG_OK)
		status = find_local(r->peer, m->to, DG_ACCESS_WRITE, &target, size);
	if (status != DG_OK)
		return status;
	if (exec_enter(&r->x, &source, &target) != DG_OK)
		return DG_LOCAL_ERROR; /* both are of this process */
	exec_copy(target.entry->base + to->local_offset + m->copied,
		  source.entry->base + from->local_offset + m->copied, n);
	m->copied += n;
	return DG_OK;
}

bool dg_message_step(struct dg_ring *r)
{
	struct message *m = &r->message;
	if (!m->active)
		return false;
	const struct dg_gpu_request *q = request_of(r, m->from);
	uint32_t status = DG_PEER_LOST;
	if (r->peer) {
		if (exec_pass_begin(&r->x))
			return false;
		status = q->size ? copy_chunk(r, m, q->size) : DG_OK;
		exec_pass_end(&r->x);
	}
	if (status == DG_OK && m->copied < q->size)
		return true;
	m->active = false;
	r->now = now_ns();
	if (r->peer)
		dg_ring_finish_peer(r, m->to, status,
			       status == DG_OK ? q->size << 32 | q->immediate : 0);
	dg_ring_finish(r, m->from, status, 0);
	return true;
}
