// SPDX-License-Identifier: Apache-2.0
/*
 * Revocation by agreement, or by the adapter if the importer does not agree.
 *
 *   exporter                                  importer
 *   sends a notice on the import's link  ->   revokes the import's gate: nothing more is posted
 *                                             polls its queues until the gate is quiet
 *   takes the importer's rights          <-   sends a notice on the link
 *
 * A notice is a message without bytes; a link carries at most one in each direction. So the
 * operations that a cooperating importer has in flight complete normally. An importer that does not
 * answer before the deadline loses its rights anyway, and the adapter refuses what it still posts.
 */
#include <errno.h>
#include <time.h>

#include "error.h"
#include "verbs_provider.h"

enum { WC_BATCH = 32 };

/* The importer's side. */

static void stop(struct verbs *d, struct verbs_conn *c)
{
	/* seq_cst: as in every revocation, see provider.h. */
	atomic_store_explicit(&c->gate->revoked, 1, memory_order_seq_cst);
	if (!c->draining)
		d->n_draining++;
	c->draining = true;
}

/* Answers the exporters whose regions are quiet by now. */
static void answer(struct verbs *d)
{
	for (struct verbs_link *l = d->links; d->n_draining && l; l = l->next) {
		if (!l->conn || !l->conn->draining || !gate_quiet(l->conn->gate))
			continue;
		l->conn->draining = false;
		d->n_draining--;
		/* If it cannot be sent, the link has ended, which the exporter notices. */
		dg_verbs_link_send(l);
	}
}

/* Both sides. */

static void take_completion(struct verbs *d, const struct ibv_wc *wc)
{
	struct verbs_link *l = d->links;
	while (l && l->number != wc->wr_id)
		l = l->next;
	if (!l || wc->status)
		return; /* its link has ended */
	if (l->conn)
		stop(d, l->conn);
	else
		l->guest->stopped = true;
	pthread_cond_broadcast(&d->changed);
}

static void request_notification(struct verbs *d)
{
	struct ibv_cq *cq;
	void *context;
	unsigned n = 0;
	while (!dg_verbs.ibv_get_cq_event(d->notice_channel, &cq, &context))
		n++;
	if (n)
		dg_verbs.ibv_ack_cq_events(d->notice_cq, n);
	d->notice_cq->context->req_notify_cq(d->notice_cq, 0);
}

void dg_verbs_notices(struct verbs *d)
{
	struct ibv_wc wcs[WC_BATCH];
	/* Before the polls: later arrivals then make the channel readable. */
	request_notification(d);
	for (int n = WC_BATCH; n == WC_BATCH;) {
		n = d->notice_cq->context->poll_cq(d->notice_cq, WC_BATCH, wcs);
		for (int i = 0; i < n; i++)
			take_completion(d, &wcs[i]);
	}
	answer(d);
}

/* The exporter's side. */

static bool is_waited_for(const struct verbs_guest *g, const struct dg_region *r)
{
	return g->region == r && g->link.qp && !g->stopped;
}

/* Asks importers of r, a limited number at a time. Returns one that has not stopped, or NULL. */
static const struct verbs_guest *ask(struct verbs *d, const struct dg_region *r)
{
	const struct verbs_guest *late = NULL;
	uint32_t asked = 0;
	for (struct verbs_guest *g = d->guests; g; g = g->next)
		asked += g->asked && is_waited_for(g, g->region);
	for (struct verbs_guest *g = d->guests; g; g = g->next) {
		if (!is_waited_for(g, r))
			continue;
		if (!g->asked && asked < VERBS_ASKED) {
			g->asked = true;
			g->stopped = !dg_verbs_link_send(&g->link);
			asked++;
		}
		if (!g->stopped)
			late = g;
	}
	return late;
}

/* Returns an importer that did not stop before the deadline, or NULL. */
static const struct verbs_guest *wait_for_all(struct verbs *d, const struct dg_region *r,
					      uint64_t deadline_ns)
{
	const struct timespec until = {
		.tv_sec = (time_t)(deadline_ns / 1000000000u),
		.tv_nsec = (long)(deadline_ns % 1000000000u),
	};
	const struct verbs_guest *late;
	while ((late = ask(d, r)))
		if (pthread_cond_timedwait(&d->changed, &d->lock, &until))
			return ask(d, r);
	return NULL;
}

int dg_verbs_revoke(struct dg_device *dev, void *state, struct dg_region *r, uint64_t deadline_ns)
{
	struct verbs *d = state;
	int rc = 0;
	(void)dev;
	pthread_mutex_lock(&d->lock);
	const struct verbs_guest *late = wait_for_all(d, r, deadline_ns);
	if (late)
		rc = dg_fail(
			EBUSY,
			"local region #%u: the importer at %s did not acknowledge the revocation "
			"before the time-out; its access was withdrawn and its transfers are "
			"refused: "
			"close it again",
			r->name, dg_verbs_address_text(&late->id->dst_addr).text);
	dg_verbs_rights_take(d, r);
	pthread_mutex_unlock(&d->lock);
	return rc;
}
