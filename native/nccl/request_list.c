// SPDX-License-Identifier: Apache-2.0
/* The requests of a communicator: free ones, lists, and how they finish. */
#include <errno.h>
#include <stdlib.h>

#include "comm.h"
#include "error.h"

enum { REQUESTS_STEP = 256 };

void list_add(struct request_list *l, struct request *r)
{
	r->next = NULL;
	if (l->first)
		l->last->next = r;
	else
		l->first = r;
	l->last = r;
}

struct request *list_take(struct request_list *l)
{
	struct request *r = l->first;
	if (r)
		l->first = r->next;
	return r;
}

static int requests_grow(struct comm *c)
{
	if (c->n_requests == REQUESTS_MAX)
		return dg_fail(ENOMEM, "%d requests are in flight, the most that are possible",
			       REQUESTS_MAX);
	for (const uint32_t n = c->n_requests + REQUESTS_STEP; c->n_requests < n; c->n_requests++) {
		struct request *r = calloc(1, sizeof *r);
		if (!r)
			return dg_fail(ENOMEM, "out of memory for requests");
		r->index = c->n_requests;
		r->next = c->free;
		c->free = c->requests[c->n_requests] = r;
	}
	return 0;
}

int request_new(struct comm *c, struct request **out)
{
	if (!c->free) {
		const int rc = requests_grow(c);
		if (!c->free) /* else it has added some, and fewer than it wanted to */
			return rc;
	}
	struct request *r = c->free;
	c->free = r->next;
	*r = (struct request){.index = r->index,
			      .state = MOVING,
			      .seen = atomic_load_explicit(&c->passes, memory_order_relaxed)};
	*out = r;
	return 0;
}

void request_free(struct comm *c, struct request *r)
{
	r->state = FREE;
	r->next = c->free;
	c->free = r;
}

static void count_request(struct comm *c, const struct request *r, nccl_result result)
{
	const uint32_t kind = r->signals	     ? STATISTICS_SIGNAL
			      : r->wr.op == DG_READ ? STATISTICS_GET
						    : STATISTICS_PUT;
	if (result)
		statistics_count_failure(c->statistics, r->peer->rank);
	else if (!r->flushes)
		statistics_count(c->statistics, r->peer->rank, kind, r->wr.size, r->gpu,
				 dg_now_ns() - r->posted_ns);
}

void request_finish(struct comm *c, struct request *r, nccl_result result)
{
	if (c->statistics)
		count_request(c, r, result);
	r->state = FINISHED;
	r->result = result;
	atomic_store_explicit(&r->finished, true, memory_order_release);
	if (result) {
		r->peer->failed = true;
		c->failed = true;
	}
}
