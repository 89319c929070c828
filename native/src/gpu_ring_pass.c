// SPDX-License-Identifier: Apache-2.0
/* One pass of the proxy over a ring: take records, check each, post them, hand out completions. */
#include "gpu_ring.h"

/* Rule 3: frees the places before which nothing is in progress. Called once per pass. */
static void advance(struct dg_ring *r)
{
	if (!r->changed)
		return;
	r->changed = false;
	while (r->done != r->head && place_of(r, r->done)->state == PLACE_COMPLETE) {
		place_of(r, r->done)->state = PLACE_FREE;
		r->done++;
	}
	ring_store(&r->out->done, r->done, memory_order_release);
}

/* Whether the sides are exchanged: for a kernel of another process, the memory of this process is
 * the remote side, and its own memory the local one. */
static bool mirrored(const struct dg_ring *r, const struct dg_gpu_request *q)
{
	return r->own && (q->op == DG_OP_PUT || q->op == DG_OP_GET);
}

static uint32_t kernel_status(const struct dg_ring *r, const struct dg_gpu_request *q,
			      uint32_t status)
{
	if (mirrored(r, q) && status == DG_LOCAL_ERROR)
		return DG_REMOTE_ACCESS_ERROR;
	if (mirrored(r, q) && status == DG_REMOTE_ACCESS_ERROR)
		return DG_LOCAL_ERROR;
	return status;
}

/* Checks that a ring of another process uses only the regions that it was opened with. Returns a
 * dg_status. */
static uint32_t admit(const struct dg_ring *r, struct dg_gpu_request *q)
{
	bool known = q->op != DG_OP_PUT && q->op != DG_OP_GET;
	if (!r->own)
		return DG_OK;
	for (uint32_t i = 0; i < r->n_peers && !known; i++)
		known = q->local == REGION_NAME(r->peers[i]) && region_is_open(r->peers[i]);
	if (!known)
		return DG_LOCAL_ERROR;
	if (!region_is_open(r->own) || !region_is_open(r->own_import) ||
	    (mirrored(r, q) && q->remote != REGION_NAME(r->own)))
		return DG_REMOTE_ACCESS_ERROR;
	/* Operations for which the core itself writes the bytes. */
	if (q->op == DG_OP_PUT_INLINE || q->op == DG_OP_SIGNAL || q->flags & DG_SIGNAL) {
		if (q->signal_region != REGION_NAME(r->own))
			return DG_REMOTE_ACCESS_ERROR;
		q->signal_region = REGION_NAME(r->own_import);
	}
	return DG_OK;
}

static void bytes_complete(struct dg_ring *r, const dg_wc *wc);

/* Posts what was staged, as one batch; small operations are copied here. */
static void post_staged(struct dg_ring *r)
{
	struct exec_engine *e = r->x.engine;
	const uint64_t now = now_ns();
	for (uint32_t i = 0; i < r->x.n_staged; i++)
		place_of(r, e->wr[i].user)->posted_ns = now;
	const uint32_t n = dg_exec_post(&r->x, true, now);
	for (uint32_t i = 0; i < n; i++)
		bytes_complete(r, &e->wc[i]);
}

/* Stages the store of a signal, once the bytes are at the target. Returns a dg_status. */
static uint32_t stage_signal(struct dg_ring *r, uint64_t count)
{
	const struct dg_gpu_request *q = request_of(r, count);
	const uint64_t at = ((r->first + count) & r->mask) * PLACE_STAGING + 48;
	const dg_wr wr = {
		.user = count,
		.local = r->staging->id,
		.local_offset = at,
		.remote = q->signal_region,
		.remote_offset = q->signal_offset,
		.size = 8,
		.op = DG_WRITE,
		.flags = r->x.q->dev->caps.ordered ? 0 : DG_FENCE,
	};
	/* Closed since the record was admitted. */
	if (r->own && !region_is_open(r->own_import))
		return DG_REMOTE_ACCESS_ERROR;
	return (uint32_t)dg_exec_signal(&r->x, &wr, r->staging->bytes + at, q->addend,
					q->flags & DG_SIGNAL_SET);
}

/* Handles the completion of a place's bytes or of its signal by the provider. */
static void bytes_complete(struct dg_ring *r, const dg_wc *wc)
{
	struct place *p = place_of(r, wc->user);
	const struct dg_gpu_request *request = request_of(r, wc->user);
	uint32_t status = (uint32_t)wc->status;
	if (p->state == PLACE_POSTED)
		status = kernel_status(r, request, status);
	r->now = wc->complete_ns;
	if (status == DG_OK && p->state == PLACE_POSTED && (request->flags & DG_SIGNAL)) {
		p->state = PLACE_SIGNALLING;
		status = stage_signal(r, wc->user);
		if (status == DG_OK)
			return;
	}
	if (request->flags & DG_IMMEDIATE && request->op == DG_OP_PUT && r->peer)
		dg_ring_finish_peer(r, p->receive, status,
			       status == DG_OK ? request->immediate : 0);
	dg_ring_finish(r, wc->user, status, 0);
}

/* Creates the work request of a put or get. */
static dg_wr work_request(struct dg_ring *r, uint64_t count, const struct dg_gpu_request *q)
{
	dg_wr wr = {
		.user = count,
		.local = q->local,
		.remote = q->remote,
		.local_offset = q->local_offset,
		.remote_offset = q->remote_offset,
		.size = q->size,
		.op = q->op == DG_OP_GET ? DG_READ : DG_WRITE,
	};
	if (q->op == DG_OP_PUT_INLINE) { /* its bytes are in the staging memory; its region is signal_region */
		wr.local = r->staging->id;
		wr.local_offset = ((r->first + count) & r->mask) * PLACE_STAGING;
		wr.remote = q->signal_region;
		wr.size = q->length;
	} else if (mirrored(r, q)) {
		wr.local = q->remote;
		wr.remote = q->local;
		wr.local_offset = q->remote_offset;
		wr.remote_offset = q->local_offset;
		wr.op = q->op == DG_OP_GET ? DG_WRITE : DG_READ;
	}
	return wr;
}

/* Checks whether a counter has been reached. Returns DG_OK, WAIT or a dg_status. */
static int counter_reached(struct dg_ring *r, const struct dg_gpu_request *q)
{
	for (struct dg_ring *other = r->proxy->rings; other; other = other->next)
		if (other->index == q->signal_region)
			return other->completed >= q->signal_offset ? DG_OK : WAIT;
	return DG_BAD_RECORD;
}

/* Checks whether a record may start now: its fence, its counter, the receive that it completes.
 * Returns DG_OK, WAIT or a dg_status. */
static int may_start(struct dg_ring *r, uint64_t count, struct place *p)
{
	const struct dg_gpu_request *q = request_of(r, count);
	const bool fenced = q->flags & DG_FENCE || q->op == DG_OP_FENCE || q->op == DG_OP_SIGNAL;
	int status = DG_OK;
	if (fenced && r->done != count)
		return WAIT;
	if (q->op != DG_OP_PUT)
		return DG_OK;
	if (q->flags & DG_COUNTER)
		status = counter_reached(r, q);
	if (status == DG_OK && q->flags & DG_IMMEDIATE)
		status = dg_message_receiver(r, &p->receive);
	return status;
}

/* Stages a put or a get. Returns a dg_status. */
static uint32_t stage_copy(struct dg_ring *r, const dg_wr *wr)
{
	struct executor *x = &r->x;
	const int status = dg_exec_stage(x, wr);
	/* A provider without a thread would copy in the proxy's thread, and the memory's owner may
	 * make it wait. */
	if (status == DG_OK && x->q->dev->ops->poll &&
	    !(x->q->scratch[x->n_staged - 1].flags & (OP_PLAIN | OP_GPU))) {
		dg_exec_unstage(x, 1);
		return DG_UNSUPPORTED;
	}
	return (uint32_t)status;
}

/* Starts a put or a get. Returns a dg_status. */
static uint32_t start_copy(struct dg_ring *r, uint64_t count, const dg_u64 *words)
{
	struct place *p = place_of(r, count);
	struct dg_gpu_request *q = request_of(r, count);
	const uint64_t slot = (r->first + count) & r->mask;
	if (q->op == DG_OP_PUT_INLINE) {
		if (q->length > DG_INLINE_MAX)
			return DG_OUT_OF_BOUNDS;
		dg_inline_unpack(words, (dg_u8 *)r->staging->bytes + slot * PLACE_STAGING,
				 q->length);
		q->flags = 0;
	}
	const dg_wr wr = work_request(r, count, q);
	const uint32_t status = kernel_status(r, q, stage_copy(r, &wr));
	if (status != DG_OK && q->op == DG_OP_PUT && q->flags & DG_IMMEDIATE)
		dg_ring_finish_peer(r, p->receive, status, 0);
	return status;
}

/* Starts the operation of one record. Returns DG_OK if it is in progress or complete, WAIT, or the
 * dg_status with which it completes. */
static int start(struct dg_ring *r, uint64_t count, const dg_u64 *words)
{
	struct place *p = place_of(r, count);
	struct dg_gpu_request *q = request_of(r, count);
	int status = (int)admit(r, q);
	if (status == DG_OK)
		status = may_start(r, count, p);
	if (status != DG_OK)
		return status;
	p->state = PLACE_POSTED;
	switch (q->op) {
	case DG_OP_PUT:
	case DG_OP_PUT_INLINE:
	case DG_OP_GET:
		return (int)start_copy(r, count, words);
	case DG_OP_SIGNAL:
		p->state = PLACE_SIGNALLING;
		return (int)stage_signal(r, count);
	case DG_OP_SEND:
		p->region = 0;
		return dg_message_start(r, q);
	case DG_OP_RECV:
		p->state = PLACE_RECEIVING;
		p->region = 0;
		return (int)dg_message_receivable(r, count);
	case DG_OP_FENCE:
	case DG_OP_COMMIT:
		dg_ring_finish(r, count, DG_OK, 0);
		return DG_OK;
	default:
		return DG_BAD_RECORD;
	}
}

/* Whether all records of a held group are there: those from r->head to the first one without DG_HOLD, or as
 * many as the ring has room for. */
static bool held_complete(struct dg_ring *r)
{
	for (uint64_t n = r->head; n - r->done < r->depth; n++) {
		const struct dg_gpu_record *record =
			&r->records[(r->first + n) & r->mask];
		const dg_u64 word = ring_load(&record->word[0], memory_order_relaxed);
		/* The epoch of another lap: this record is not written yet. */
		if ((word ^ dg_record_epoch(sequence_of(r, n), r->shift)) >> DG_SEQUENCE_BITS)
			return false;
		if (!(word >> 8 & DG_HOLD))
			return true;
	}
	return true;
}

/* Returns the time at which a record was seen. The records of a batch share it, except in a ring
 * whose kernels take stamps, where it must be later than the kernel's stamp. */
static uint64_t seen_stamp(struct dg_ring *r)
{
	if (r->gpu_trace || !r->since++)
		r->now = now_ns();
	return r->now;
}

static bool take_one(struct dg_ring *r)
{
	const uint64_t count = r->head;
	struct place *p = place_of(r, count);
	struct dg_gpu_request *request = request_of(r, count);
	dg_u64 words[DG_RECORD_WORDS];
	/* A kernel that violates the rules may write past the free places. */
	if (count - r->done >= r->depth || r->message.active ||
	    !ring_take(&r->records[(r->first + count) & r->mask], sequence_of(r, count), r->shift,
		       words))
		return false;
	ring_prefetch(r, count + AHEAD);
	if (!r->waiting) {
		p->seen_ns = seen_stamp(r);
		p->posted_ns = 0;
	}
	dg_record_unpack(words, request);
	p->op = request->op;
	if (request->flags & DG_HOLD && !held_complete(r))
		return false;
	const int status = start(r, count, words);
	r->waiting = status == WAIT;
	if (r->waiting)
		return false;
	r->head++;
	r->proxy->records++;
	if (status != DG_OK)
		dg_ring_finish(r, count, (uint32_t)status, 0);
	return true;
}

/* Whether a pass may have something to do; costs one load of the ring. */
static bool anything(struct dg_ring *r)
{
	const uint64_t sequence = sequence_of(r, r->head);
	const dg_u64 word = ring_load(&r->records[sequence & r->mask].word[0], memory_order_relaxed);
	return !((word ^ dg_record_epoch(sequence, r->shift)) >> DG_SEQUENCE_BITS) ||
	       r->x.q->in_flight || r->changed;
}

bool dg_ring_serve(struct dg_ring *r)
{
	struct executor *x = &r->x;
	bool busy = dg_message_step(r);
	uint32_t n = 0;
	if ((!busy && !anything(r)) || exec_pass_begin(x))
		return false;
	r->since = 0;
	const uint32_t n_wc = dg_exec_completions(x, x->q, 2 * PASS_RECORDS);
	for (uint32_t i = 0; i < n_wc; i++)
		bytes_complete(r, &x->engine->wc[i]);
	busy |= n_wc > 0;
	while (n < PASS_RECORDS && x->n_staged < PASS_RECORDS) {
		const uint32_t copied = dg_ring_copy_small(r);
		if (!copied && !take_one(r))
			break;
		n += copied ? copied : 1;
	}
	/* Signals of what was copied here are staged by post_staged(). */
	while (x->n_staged)
		post_staged(r);
	exec_pass_end(x);
	busy |= n > 0 || r->changed;
	advance(r);
	return busy;
}

void dg_ring_flush(struct dg_ring *r)
{
	dg_wc wc[PASS_RECORDS];
	int n;
	r->now = now_ns();
	while ((n = dg_queue_poll(r->x.q, wc, PASS_RECORDS, 0)) > 0)
		for (int i = 0; i < n; i++) {
			struct place *p = place_of(r, wc[i].user);
			/* The bytes may have arrived, but their signal never will. */
			const bool lacks = request_of(r, wc[i].user)->flags & DG_SIGNAL &&
					   p->state == PLACE_POSTED && wc[i].status == DG_OK;
			dg_ring_finish(r, wc[i].user, lacks ? DG_FLUSHED : (uint32_t)wc[i].status, 0);
		}
	for (uint64_t count = r->done; count != r->head; count++) {
		const uint8_t state = place_of(r, count)->state;
		if (state != PLACE_COMPLETE && state != PLACE_FREE)
			dg_ring_finish(r, count, DG_FLUSHED, 0);
	}
	advance(r);
}
