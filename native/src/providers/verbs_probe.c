// SPDX-License-Identifier: Apache-2.0
/*
 * The end of an exporter on whose connections nothing is in flight. The connection manager learns of
 * the end of a process, but not of that of a machine or a network link. So one link to each exporter
 * carries a write of zero bytes now and then, which needs no rights and moves nothing, and
 * which the adapter gives up like every other work request.
 */
#include <stdlib.h>
#include <string.h>

#include "clock.h"
#include "error.h"
#include "verbs.h"

enum {
	ANSWER_MS = 100, /* how often the control thread looks for an answer */
	WC_BATCH = 32,
};

int dg_verbs_peer_join(struct verbs_conn *c, const struct sockaddr_storage *address)
{
	struct verbs_peer *p = c->d->peers;
	while (p && memcmp(&p->address, address, sizeof *address))
		p = p->next;
	if (!p) {
		p = calloc(1, sizeof *p);
		if (!p)
			return dg_fail(ENOMEM, "out of memory for an RDMA connection");
		p->address = *address;
		p->probe_ns = now_ns() + VERBS_PROBE_NS;
		p->next = c->d->peers;
		c->d->peers = p;
	}
	p->conns++;
	c->peer = p;
	return 0;
}

static void forget_probe(struct verbs *d, struct verbs_peer *p)
{
	if (p->probe)
		d->n_probes--;
	p->probe = 0;
	p->via = NULL;
}

void dg_verbs_peer_leave(struct verbs_conn *c)
{
	struct verbs_peer *p = c->peer, **at = &c->d->peers;
	if (p->via == c)
		forget_probe(c->d, p); /* its completion may never come */
	if (--p->conns)
		return;
	while (*at != p)
		at = &(*at)->next;
	*at = p->next;
	free(p);
}

static bool is_ready(const struct verbs_conn *c)
{
	/* relaxed: states change under the device's lock. */
	return atomic_load_explicit(&c->state, memory_order_relaxed) == CONN_READY;
}

/* Whether what is in flight was executed is unknown, and none of it is posted again. */
static void peer_lost(struct verbs *d, const struct verbs_peer *p)
{
	for (struct verbs_conn *c = d->conns; c; c = c->next)
		if (c->peer == p && is_ready(c))
			dg_verbs_conn_ended(c);
}

static void answered(struct verbs *d, const struct ibv_wc *wc)
{
	struct verbs_peer *p = d->peers;
	while (p && p->probe != wc->wr_id)
		p = p->next;
	if (!p)
		return; /* its link has ended */
	struct verbs_conn *via = p->via;
	forget_probe(d, p);
	p->probe_ns = now_ns() + VERBS_PROBE_NS;
	/* Soft-RoCE says LOC_QP_OP_ERR if there is no link on this side. */
	if (wc->status == IBV_WC_RETRY_EXC_ERR || (wc->status && !dg_verbs_port_active(d)))
		peer_lost(d, p);
	else if (wc->status && is_ready(via))
		dg_verbs_conn_ended(via);
}

/* Sends a probe on a link to the peer, if there is one. */
static void send_probe(struct verbs *d, struct verbs_peer *p)
{
	struct verbs_conn *c = d->conns;
	struct ibv_send_wr *bad;
	while (c && (c->peer != p || c->cq || !is_ready(c)))
		c = c->next;
	if (!c)
		return;
	struct ibv_send_wr wr = {
		.wr_id = ++d->last_probe,
		.opcode = IBV_WR_RDMA_WRITE,
		.send_flags = IBV_SEND_SIGNALED,
		.rdma = {.remote_addr = c->reply.address},
	};
	if (!c->id->qp || c->id->qp->context->post_send(c->id->qp, &wr, &bad)) {
		dg_verbs_conn_ended(c);
		return;
	}
	p->probe = wr.wr_id;
	p->via = c;
	d->n_probes++;
}

int dg_verbs_probe(struct verbs *d)
{
	struct ibv_wc wcs[WC_BATCH];
	uint64_t now = now_ns(), next_ns = UINT64_MAX;
	for (int n = WC_BATCH; n == WC_BATCH;) {
		n = d->probe_cq->context->poll_cq(d->probe_cq, WC_BATCH, wcs);
		for (int i = 0; i < n; i++)
			answered(d, &wcs[i]);
	}
	for (struct verbs_peer *p = d->peers; p; p = p->next) {
		if (!p->probe && p->probe_ns <= now && d->n_probes < VERBS_PROBES) {
			p->probe_ns = now + VERBS_PROBE_NS; /* unless it is sent */
			send_probe(d, p);
		}
		if (!p->probe && p->probe_ns < next_ns)
			next_ns = p->probe_ns;
	}
	if (d->n_probes || next_ns <= now)
		return ANSWER_MS;
	return next_ns == UINT64_MAX ? -1 : (int)((next_ns - now) / 1000000) + 1;
}
