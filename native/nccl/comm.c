// SPDX-License-Identifier: Apache-2.0
/* A communicator from its opening to its end: progress, and ranks that end. */
#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>

#include "comm.h"
#include "error.h"

#define CHECK_NS 5000000u
#define CLOSE_NS 5000000000u

static int make_peers(struct comm *c)
{
	c->peers = calloc(c->ranks, sizeof *c->peers);
	c->taken = calloc(c->ranks, sizeof *c->taken);
	c->requests = calloc(REQUESTS_MAX, sizeof *c->requests); /* pages are allocated when used */
	if (!c->peers || !c->taken || !c->requests)
		return dg_fail(ENOMEM, "out of memory for %" PRIu32 " ranks", c->ranks);
	for (uint32_t i = 0; i < c->ranks; i++) {
		c->peers[i].fd = -1;
		c->peers[i].rank = i;
	}
	return 0;
}

int comm_open(struct plugin *p, void *const *handles, uint32_t ranks, uint32_t rank,
	      struct listener *l, struct comm **out)
{
	if (!ranks || ranks > RANKS_MAX || rank >= ranks)
		return dg_fail(EINVAL, "rank %" PRIu32 " of %" PRIu32 ": at most %d ranks", rank, ranks,
			       RANKS_MAX);
	struct comm *c = calloc(1, sizeof *c);
	if (!c)
		return dg_fail(ENOMEM, "out of memory for a communicator");
	const char *serves = getenv("DGKIT_NCCL_COPY_SERVICE");
	*c = (struct comm){
		.plugin = p, .rank = rank, .ranks = ranks, .serves = serves && !strcmp(serves, "1")};
	c->mailbox_size = sizeof(struct mailbox) + ranks * sizeof(struct signal_ring);
	pthread_mutex_init(&c->lock, NULL);
	pthread_mutex_init(&c->collective, NULL);
	int rc = make_peers(c);
	if (!rc)
		rc = agent_open(&c->engines[AGENT].agent);
	if (!rc)
		rc = statistics_open(rank, ranks, &c->statistics);
	if (!rc)
		rc = ranks_connect(c, handles, l);
	if (!rc)
		c->mailbox = c->peers[rank].mailbox;
	for (uint32_t i = 0; i < ranks && !rc; i++)
		c->peers[i].out = &c->peers[i].mailbox->rings[rank];
	if (rc)
		comm_close(c);
	else
		*out = c;
	return rc;
}

/* Ends the requests that only the peer could finish. Its transfers end in the core. */
static void peer_ended(struct comm *c, struct peer *p)
{
	struct request *r;
	p->ended = true;
	signals_send(c, p);
	while ((r = list_take(&p->sent)) || (r = list_take(&p->ready)))
		request_finish(c, r, NCCL_REMOTE_ERROR);
	if (!atomic_load_explicit(&p->mailbox->closed, memory_order_acquire))
		c->failed = p->failed = true;
}

void comm_check_peers(struct comm *c)
{
	const uint64_t now = dg_now_ns();
	if (now - c->checked_ns < CHECK_NS)
		return;
	c->checked_ns = now;
	if (c->statistics)
		statistics_update(c->statistics, now);
	if (c->engines[AGENT].agent && agent_ended(c->engines[AGENT].agent))
		requests_lose_agent(c);
	for (uint32_t i = 0; i < c->ranks; i++) {
		struct peer *p = &c->peers[i];
		struct pollfd f = {.fd = p->fd, .events = 0};
		if (p->fd >= 0 && !p->ended && poll(&f, 1, 0) == 1)
			peer_ended(c, p);
	}
}

static void peers_free(struct comm *c)
{
	if (c->mailbox)
		atomic_store_explicit(&c->mailbox->closed, 1, memory_order_release);
	for (uint32_t i = 0; i < c->ranks && c->peers; i++) {
		ranks_disconnect(&c->peers[i]);
	}
	free(c->peers);
	free(c->taken);
}

int comm_close(struct comm *c)
{
	int rc = 0;
	batch_close(c);
	for (uint32_t i = 0; i < ENGINES; i++) {
		struct engine *e = &c->engines[i];
		if (e->queue)
			dg_queue_free(e->queue);
		e->queue = NULL;
	}
	for (uint32_t i = 0; i < c->n_memories && !rc; i++)
		if (c->memories[i])
			rc = memory_close(c, c->memories[i]);
	for (uint32_t i = 0; i < ENGINES && !rc; i++) {
		rc = c->engines[i].dev ? dg_device_close(c->engines[i].dev, CLOSE_NS) : 0;
		if (!rc)
			c->engines[i].dev = NULL;
	}
	if (rc)
		return rc;
	agent_close(c->engines[AGENT].agent);
	statistics_close(c->statistics);
	peers_free(c);
	for (uint32_t i = 0; i < c->n_requests; i++)
		free(c->requests[i]);
	free(c->requests);
	free(c->memories);
	free(c->batch.values);
	pthread_mutex_destroy(&c->lock);
	pthread_mutex_destroy(&c->collective);
	free(c);
	return 0;
}

void comm_progress(struct comm *c)
{
	requests_progress(c);
	for (uint32_t i = 0; i < c->ranks; i++)
		signals_send(c, &c->peers[i]);
	signals_serve(c);
	comm_check_peers(c);
	atomic_fetch_add_explicit(&c->passes, 1, memory_order_relaxed);
	if (c->statistics)
		statistics_pass(c->statistics);
}

int request_test(struct comm *c, const void *handle, int *done, nccl_result *result)
{
	const uintptr_t index = (uintptr_t)handle - 1;
	struct request *r = index < c->n_requests ? c->requests[index] : NULL;
	if (!r || r->state == FREE || r->tested)
		return dg_fail(EINVAL, "%p is not a request in flight", handle);
	if (r->state != FINISHED)
		comm_progress(c);
	*done = r->state == FINISHED;
	*result = r->result;
	if (!*done)
		return 0;
	r->tested = true;
	if (!r->in_order)
		request_free(c, r);
	return 0;
}

bool request_waits(const struct comm *c, const void *handle)
{
	const uintptr_t index = (uintptr_t)handle - 1;
	struct request *r = index < REQUESTS_MAX ? c->requests[index] : NULL;
	const uint32_t pass = atomic_load_explicit(&c->passes, memory_order_relaxed);
	if (!r || r->seen == pass || atomic_load_explicit(&r->finished, memory_order_acquire))
		return false;
	r->seen = pass;
	return true;
}
