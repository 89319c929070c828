// SPDX-License-Identifier: Apache-2.0
/* Requests: transfers, signals and flushes, from the post until their bytes have moved. */
#include <errno.h>
#include <inttypes.h>

#include "comm.h"
#include "error.h"

enum {
	POLL_BATCH = 64,
	SUBMIT_MAX = 512, /* requests submitted together */
	SUBMIT_MIN = 32, /* fewer wait until the engine is idle */
	SUBMIT_BURST = 8, /* after as many, more are expected */
	SUBMIT_ENOUGH = 128, /* of which no more are collected */
	CHEAP_NS = 1000, /* a submission by the copy service takes less time, one by the copy engine more */
	CHEAP_EACH_NS = 200,
};

static void order_add(struct request_list *l, struct request *r)
{
	r->next_in_order = NULL;
	if (l->first)
		l->last->next_in_order = r;
	else
		l->first = r;
	l->last = r;
	r->in_order = true;
}

/* The bytes of the request and of all before it have arrived: its signal may be sent. */
static void request_ready(struct comm *c, struct request *r)
{
	if (r->peer->ended) {
		request_finish(c, r, NCCL_REMOTE_ERROR);
		return;
	}
	r->state = READY;
	list_add(&r->peer->ready, r);
}

/* Takes the requests that were moved from the start of the peer's order. */
static void settle(struct comm *c, struct peer *p)
{
	struct request *r;
	while ((r = p->in_order.first) && r->moved) {
		p->in_order.first = r->next_in_order;
		r->in_order = false;
		if (r->state != MOVING)
			p->broken |= r->result != NCCL_SUCCESS;
		else if (p->broken)
			request_finish(c, r, NCCL_REMOTE_ERROR);
		else if (r->signals)
			request_ready(c, r);
		else
			request_finish(c, r, NCCL_SUCCESS);
		if (r->tested)
			request_free(c, r);
	}
}

/* The request's bytes have arrived, or failed to. */
static void request_moved(struct comm *c, struct request *r, nccl_result result)
{
	r->moved = true;
	c->batch.joined -= r->joined;
	/* A signal or a flush waits in settle() for all requests before it. */
	if (result || r->joined || (!r->signals && !r->flushes))
		request_finish(c, r, result);
	settle(c, r->peer);
}

static nccl_result result_of(int32_t status)
{
	if (status == DG_OK)
		return NCCL_SUCCESS;
	return status == DG_PEER_LOST || status == DG_REMOTE_ACCESS_ERROR ? NCCL_REMOTE_ERROR
									   : NCCL_SYSTEM_ERROR;
}

static int check_range(const char *what, uint64_t offset, uint64_t size, uint64_t limit)
{
	if (size > limit || offset > limit - size)
		return dg_fail(ERANGE,
			       "%" PRIu64 " bytes at byte %" PRIu64 " of the %s memory, which has "
			       "%" PRIu64 " bytes",
			       size, offset, what, limit);
	return 0;
}

/* Makes the agent's work request, whose sides have both been imported. */
static int fill_for_agent(struct comm *c, const struct transfer *t, const struct remote_memory *remote,
			  struct request *r)
{
	const struct remote_memory *own = &t->local->remote[c->rank];
	if (agent_ended(c->engines[AGENT].agent))
		return dg_fail(ENOTCONN, "the DPU agent %s has ended",
			       agent_address(c->engines[AGENT].agent));
	if (!own->region)
		return dg_fail(EOPNOTSUPP, "transfer of memory of this rank that CUDA does not share: "
					   "allocate it by ncclMemAlloc()");
	r->engine = AGENT;
	r->wr = (dg_wr){.user = r->index,
			.op = t->op,
			.local = own->agent_id,
			.remote = remote->agent_id,
			.local_offset = t->local_offset,
			.remote_offset = t->remote_offset,
			.size = t->size};
	return 0;
}

/* Makes the core's work request. */
static int fill_work_request(struct comm *c, const struct transfer *t, struct request *r)
{
	const struct remote_memory *remote = &t->remote->remote[r->peer->rank];
	int rc = check_range("local", t->local_offset, t->size, t->local->at.size);
	if (!rc)
		rc = check_range("remote", t->remote_offset, t->size, remote->size);
	if (!rc && !remote->region)
		rc = dg_fail(EOPNOTSUPP, "transfer of memory of rank %" PRIu32 " that CUDA does not share: "
					 "allocate it by ncclMemAlloc()",
			     r->peer->rank);
	r->gpu |= remote->engine == CUDA;
	if (!rc && c->engines[AGENT].agent)
		return fill_for_agent(c, t, remote, r);
	if (!rc && remote->engine == SOFT && t->local->engine == CUDA)
		rc = dg_fail(EOPNOTSUPP, "transfer between GPU memory of this rank and host memory "
					 "of rank %" PRIu32 ": use GPU memory there",
			     r->peer->rank);
	r->engine = (uint8_t)remote->engine;
	r->wr = (dg_wr){.user = r->index,
			.op = t->op,
			.remote = remote->id,
			.local_offset = t->local_offset,
			.remote_offset = t->remote_offset,
			.size = t->size};
	return rc ? rc : memory_local_id(c, t->local, remote->engine, &r->wr.local);
}

static void engine_add(struct engine *e, struct request *r)
{
	list_add(&e->waiting, r);
	e->n_waiting++;
}

int request_post(struct comm *c, const struct transfer *t, const struct signal_slot *signal,
		 uint32_t rank, void **out)
{
	struct peer *p = &c->peers[rank];
	struct request *r;
	if (p->ended || p->failed)
		return dg_fail(ENOTCONN, "rank %" PRIu32 " has ended, or an earlier transfer to it failed",
			       rank);
	int rc = signal ? signal_check(c->memories[signal->memory], rank, signal) : 0;
	if (!rc)
		rc = request_new(c, &r);
	if (rc)
		return rc;
	r->peer = p;
	r->signals = signal != NULL;
	r->flushes = !signal && !t;
	r->posted_ns = c->statistics ? dg_now_ns() : 0;
	r->wr.op = t ? t->op : DG_WRITE;
	if (signal) {
		r->signal = *signal;
		r->gpu = c->memories[signal->memory]->engine == CUDA;
	}
	const bool moves = t && t->size;
	rc = moves ? fill_work_request(c, t, r) : 0;
	if (rc) {
		request_free(c, r);
		return rc;
	}
	order_add(&p->in_order, r);
	if (moves)
		engine_add(&c->engines[r->engine], r);
	else
		request_moved(c, r, NCCL_SUCCESS);
	*out = (void *)(uintptr_t)(r->index + 1);
	return 0;
}

/* Makes the work requests of the first n waiting requests. Returns their number, which is larger if
 * the last request's signal is joined to it. */
static uint32_t work_requests(struct comm *c, struct engine *e, uint32_t n, dg_wr *wr)
{
	struct request *r = e->waiting.first;
	for (uint32_t i = 0; i < n; i++, r = r->next)
		wr[i] = r->wr;
	if (e != &c->engines[CUDA] || n != 1 || !signal_join(c, e->waiting.first, &wr[1]))
		return n;
	wr[0].flags |= DG_CHAIN;
	return n + 1;
}

/* Submits the first n waiting requests with one doorbell. A refused one fails alone. Returns false
 * if there is no room. */
static bool submit(struct comm *c, struct engine *e, uint32_t n)
{
	dg_wr wr[SUBMIT_MAX + 1];
	const uint32_t n_wr = work_requests(c, e, n, wr);
	const bool timed = c->statistics || c->serves;
	const uint64_t since = timed ? dg_now_ns() : 0;
	const int rc = e->agent ? agent_post(e->agent, wr, n_wr) : dg_queue_post(e->queue, wr, n_wr);
	const uint64_t call_ns = timed ? dg_now_ns() - since : 0;
	e->is_cheap = c->serves && call_ns < CHEAP_NS + n * CHEAP_EACH_NS;
	if (rc && n == 1)
		signal_part(c, e->waiting.first);
	if (rc == -EAGAIN)
		return false;
	if (rc && n > 1) {
		bool room = true;
		for (uint32_t i = 0; i < n && room; i++)
			room = submit(c, e, 1);
		return room;
	}
	e->n_waiting -= n;
	for (uint32_t i = 0; !rc && i < n; i++)
		list_take(&e->waiting)->submitted = true;
	if (rc)
		request_moved(c, list_take(&e->waiting),
			      rc == -ESTALE || rc == -ENOTCONN ? NCCL_REMOTE_ERROR
							       : NCCL_SYSTEM_ERROR);
	else
		e->moving += n;
	if (c->statistics && !rc) {
		e->busy_since_ns = e->moving == n ? since : e->busy_since_ns;
		statistics_submitted(c->statistics, n, call_ns);
	}
	return true;
}

/* Whether the waiting requests are to be submitted now. To the copy service, all at once. A batch
 * of the copy engine costs as much as 16 of its requests: in a burst, an idle engine waits for as
 * long as each pass brings more. A busy one gets as many as are on their way already, so that there
 * are two batches of half of what NCCL has in flight. */
static bool are_enough(struct engine *e)
{
	if (e->is_cheap)
		return e->n_waiting;
	const bool more = e->seen != e->n_waiting && e->batch >= SUBMIT_BURST;
	e->seen = e->n_waiting;
	if (e->moving)
		return e->n_waiting >= SUBMIT_MIN && e->n_waiting >= e->moving;
	return e->n_waiting && (!more || e->n_waiting >= SUBMIT_ENOUGH);
}

static void submit_waiting(struct comm *c, struct engine *e)
{
	while (are_enough(e)) {
		e->batch = e->n_waiting < SUBMIT_MAX ? e->n_waiting : SUBMIT_MAX;
		if (!submit(c, e, e->batch))
			return;
	}
}

static int take_completions(struct engine *e, dg_wc *wc, uint32_t n)
{
	return e->agent ? agent_poll(e->agent, wc, n) : dg_queue_poll(e->queue, wc, n, 0);
}

/* Returns the request of a completion. NULL: an agent has none in flight with this number. */
static struct request *find_submitted(const struct comm *c, uint64_t number)
{
	struct request *r = number < c->n_requests ? c->requests[number] : NULL;
	return r && r->state == MOVING && r->submitted && !r->moved ? r : NULL;
}

static void poll_engine(struct comm *c, struct engine *e)
{
	dg_wc wc[POLL_BATCH];
	int n;
	while (e->moving && (n = take_completions(e, wc, POLL_BATCH)) > 0) {
		e->moving -= (uint32_t)n;
		for (int i = 0; i < n; i++) {
			struct request *r = find_submitted(c, wc[i].user);
			if (r)
				request_moved(c, r, result_of(wc[i].status));
			else
				agent_break(e->agent);
		}
		if (c->statistics && !e->moving)
			statistics_busy(c->statistics, dg_now_ns() - e->busy_since_ns);
	}
}

void requests_lose_agent(struct comm *c)
{
	struct engine *e = &c->engines[AGENT];
	poll_engine(c, e);
	e->waiting.first = NULL;
	e->n_waiting = e->moving = 0;
	c->failed = true;
	for (uint32_t i = 0; i < c->n_requests; i++) {
		struct request *r = c->requests[i];
		if (r->state == MOVING && r->engine == AGENT && !r->moved)
			request_moved(c, r, NCCL_REMOTE_ERROR);
	}
}

void requests_progress(struct comm *c)
{
	for (uint32_t i = 0; i < ENGINES; i++)
		poll_engine(c, &c->engines[i]);
	for (uint32_t i = 0; i < ENGINES; i++)
		submit_waiting(c, &c->engines[i]);
}
