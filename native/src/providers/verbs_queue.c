// SPDX-License-Identifier: Apache-2.0
/* A queue of the provider verbs: its completion queue, waiting, and closing its endpoints. */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "error.h"
#include "verbs_provider.h"

static int make_cq(struct verbs_queue *q)
{
	struct epoll_event event = {.events = EPOLLIN};
	struct verbs *d = q->d;
	q->channel = dg_verbs.ibv_create_comp_channel(d->context);
	if (!q->channel)
		return dg_fail_errno("%s has no more completion channels", d->name);
	q->cq = dg_verbs.ibv_create_cq(d->context, VERBS_QUEUE_WRS, NULL, q->channel, 0);
	if (!q->cq)
		return dg_fail_errno("%s has no more completion queues", d->name);
	int flags = fcntl(q->channel->fd, F_GETFL);
	q->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
	if (fcntl(q->channel->fd, F_SETFL, flags | O_NONBLOCK) || q->epoll_fd < 0 ||
	    epoll_ctl(q->epoll_fd, EPOLL_CTL_ADD, q->channel->fd, &event) ||
	    epoll_ctl(q->epoll_fd, EPOLL_CTL_ADD, q->p->event_fd, &event))
		return dg_fail_errno("cannot create the fd that a queue waits on");
	return 0;
}

static void queue_free(struct verbs_queue *q)
{
	if (q->epoll_fd >= 0)
		close(q->epoll_fd);
	if (q->cq)
		dg_verbs.ibv_destroy_cq(q->cq);
	if (q->channel)
		dg_verbs.ibv_destroy_comp_channel(q->channel);
	free(q->works);
	free(q->free_works);
	free(q);
}

static int queue_new(struct verbs *d, struct dg_pipe *p, struct verbs_queue **out)
{
	/* One for each operation, and one for each chain. */
	uint32_t n = 2 * (p->mask + 1);
	struct verbs_queue *q = aligned_alloc(64, (sizeof *q + 63) / 64 * 64);
	if (!q)
		return dg_fail(ENOMEM, "out of memory for a queue");
	memset(q, 0, sizeof *q);
	q->d = d;
	q->p = p;
	q->epoll_fd = -1;
	q->ended.gates.pass = gate_leave;
	q->works = calloc(n, sizeof *q->works);
	q->free_works = calloc(n, sizeof(void *));
	int rc = q->works && q->free_works ? make_cq(q)
					   : dg_fail(ENOMEM, "out of memory for a queue");
	if (rc) {
		queue_free(q);
		return rc;
	}
	for (uint32_t i = 0; i < n; i++)
		q->free_works[i] = &q->works[i];
	q->n_free_works = n;
	*out = q;
	return 0;
}

int dg_verbs_attach(struct dg_device *dev, void *state, struct dg_pipe *p)
{
	struct verbs *d = state;
	struct verbs_queue *q = NULL;
	(void)dev;
	TRY(dg_verbs_removed(d) ? dg_verbs_check_port(d) : 0);
	pthread_mutex_lock(&d->queues.lock);
	int rc = d->queues.n < VERBS_MAX_QUEUES
			 ? queue_new(d, p, &q)
			 : dg_fail(EMFILE,
				   "this verbs device has %u queues open, which is the maximum: "
				   "close one",
				   VERBS_MAX_QUEUES);
	if (!rc) {
		queue_list_add(&d->queues, &q->listed);
		p->provider = q;
		p->wait_fd = q->epoll_fd;
	}
	pthread_mutex_unlock(&d->queues.lock);
	return rc;
}

void dg_verbs_detach(struct dg_device *dev, struct dg_pipe *p)
{
	struct verbs_queue *q = p->provider;
	(void)dev;
	guard_enter(&q->listed.guard);
	dg_verbs_flush(q);
	p->wait_fd = p->event_fd;
	p->provider = NULL;
	guard_leave(&q->listed.guard);
	queue_list_remove(&q->d->queues, &q->listed);
	queue_free(q);
}

/* Has the adapter make the channel readable at the next completion. */
static bool request_notification(struct verbs_queue *q)
{
	struct ibv_cq *cq;
	void *context;
	unsigned n = 0;
	while (!dg_verbs.ibv_get_cq_event(q->channel, &cq, &context))
		n++;
	if (n)
		dg_verbs.ibv_ack_cq_events(q->cq, n);
	return !q->cq->context->req_notify_cq(q->cq, 0);
}

/* What fails is known by its completions. */
static bool is_broken(const struct verbs_queue *q)
{
	(void)q;
	return false;
}

LISTED_QUEUE_OPS(verbs)

static void forget_region(struct listed_queue *listed, uint32_t region)
{
	struct verbs_queue *q = (struct verbs_queue *)listed;
	dg_verbs_endpoint_close(q, region);
	dg_verbs_qps_forget(q, region);
}

void dg_verbs_release_region(struct verbs *d, uint32_t region)
{
	queue_list_release(&d->queues, forget_region, region);
}
