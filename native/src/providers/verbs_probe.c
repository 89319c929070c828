// SPDX-License-Identifier: Apache-2.0
/*
 * Detects the loss of the other side on connections on which nothing is in flight. The connection
 * manager notices the end of a process, but not that of a machine or a network link. So at
 * intervals one link with each remote device carries a write of zero bytes. The write needs no
 * rights and transfers nothing, and the adapter gives it up like any other work request. Importers
 * probe exporters, and exporters importers.
 */
#include <stdlib.h>
#include <string.h>

#include "clock.h"
#include "error.h"
#include "verbs_provider.h"

enum {
	ANSWER_MS = 100, /* interval at which the control thread looks for an answer */
	WC_BATCH = 32,
};

static bool is_peer(const struct verbs_peer *p, const struct sockaddr_storage *address,
		    uint64_t importer)
{
	return p->importer == importer &&
	       (!address || !memcmp(&p->address, address, sizeof *address));
}

struct verbs_peer *dg_verbs_peer_join(struct verbs *d, const struct sockaddr_storage *address,
				      uint64_t importer)
{
	struct verbs_peer *p = d->peers;
	while (p && !is_peer(p, address, importer))
		p = p->next;
	if (!p) {
		p = calloc(1, sizeof *p);
		if (!p)
			return NULL;
		if (address)
			p->address = *address;
		p->importer = importer;
		p->probe_ns = now_ns() + VERBS_PROBE_NS;
		p->next = d->peers;
		d->peers = p;
	}
	p->conns++;
	return p;
}

static void forget_probe(struct verbs *d, struct verbs_peer *p)
{
	if (p->probe)
		d->n_probes--;
	p->probe = 0;
	p->via = NULL;
}

void dg_verbs_peer_leave(struct verbs *d, struct verbs_peer *p)
{
	struct verbs_peer **at = &d->peers;
	if (--p->conns)
		return;
	while (*at != p)
		at = &(*at)->next;
	*at = p->next;
	free(p);
}

int dg_verbs_link_open(struct verbs *d, struct verbs_link *l, struct ibv_qp *qp, struct verbs_peer *p)
{
	struct ibv_recv_wr *bad, wr = {.wr_id = ++d->last_link};
	int rc = qp->context->post_recv(qp, &wr, &bad);
	if (rc)
		return -rc;
	l->number = wr.wr_id;
	l->qp = qp;
	l->peer = p;
	l->next = d->links;
	d->links = l;
	return 0;
}

void dg_verbs_link_close(struct verbs *d, struct verbs_link *l)
{
	struct verbs_link **at = &d->links;
	if (!l->qp)
		return;
	if (l->peer->via == l)
		forget_probe(d, l->peer); /* its completion may never come */
	while (*at != l)
		at = &(*at)->next;
	*at = l->next;
	l->qp = NULL;
}

/* Unsignaled: each link also carries probes, and the completion of a later probe frees the place in
 * the send queue. */
bool dg_verbs_link_send(struct verbs_link *l)
{
	struct ibv_send_wr *bad, wr = {.opcode = IBV_WR_SEND};
	return !l->qp->context->post_send(l->qp, &wr, &bad);
}

static bool is_ready(const struct verbs_conn *c)
{
	/* Relaxed: states change under the device's lock. */
	return atomic_load_explicit(&c->state, memory_order_relaxed) == CONN_READY;
}

/* Ends the connection of a link. */
static void link_lost(struct verbs *d, struct verbs_link *l)
{
	if (l->guest)
		dg_verbs_guest_left(d, l->guest->id);
	else if (is_ready(l->conn))
		dg_verbs_conn_ended(l->conn);
}

/* Whether the operations in flight were executed is unknown, so none of them is posted again. */
static void peer_lost(struct verbs *d, struct verbs_peer *p)
{
	struct verbs_guest *next;
	p->conns++; /* so that it is not freed with its last connection */
	for (struct verbs_conn *c = d->conns; c; c = c->next)
		if (c->peer == p && is_ready(c))
			dg_verbs_conn_ended(c);
	for (struct verbs_guest *g = d->guests; g; g = next) {
		next = g->next;
		if (g->peer == p)
			dg_verbs_guest_left(d, g->id);
	}
	dg_verbs_peer_leave(d, p);
}

static void probe_answered(struct verbs *d, const struct ibv_wc *wc)
{
	struct verbs_peer *p = d->peers;
	while (p && p->probe != wc->wr_id)
		p = p->next;
	if (!p || !wc->wr_id)
		return; /* its link has ended, or it is a notice that failed with its link */
	struct verbs_link *via = p->via;
	forget_probe(d, p);
	p->probe_ns = now_ns() + VERBS_PROBE_NS;
	/* Soft-RoCE reports a missing link on this side as LOC_QP_OP_ERR. */
	if (wc->status == IBV_WC_RETRY_EXC_ERR || (wc->status && !dg_verbs_port_active(d)))
		peer_lost(d, p);
	else if (wc->status)
		link_lost(d, via);
}

/* Sends a probe on a link with the peer, if there is a link. */
static void send_probe(struct verbs *d, struct verbs_peer *p)
{
	struct verbs_link *l = d->links;
	struct ibv_send_wr *bad;
	while (l && (l->peer != p || (l->conn && !is_ready(l->conn))))
		l = l->next;
	if (!l)
		return;
	struct ibv_send_wr wr = {
		.wr_id = ++d->last_probe,
		.opcode = IBV_WR_RDMA_WRITE,
		.send_flags = IBV_SEND_SIGNALED,
		.rdma = {.remote_addr = l->remote_address},
	};
	if (l->qp->context->post_send(l->qp, &wr, &bad)) {
		link_lost(d, l);
		return;
	}
	p->probe = wr.wr_id;
	p->via = l;
	d->n_probes++;
}

int dg_verbs_probe(struct verbs *d)
{
	struct ibv_wc wcs[WC_BATCH];
	uint64_t now = now_ns(), next_ns = UINT64_MAX;
	for (int n = WC_BATCH; n == WC_BATCH;) {
		n = d->probe_cq->context->poll_cq(d->probe_cq, WC_BATCH, wcs);
		for (int i = 0; i < n; i++)
			probe_answered(d, &wcs[i]);
	}
	for (struct verbs_peer *p = d->peers, *next; p; p = next) {
		next = p->next;
		p->conns++; /* its last connection may end here */
		if (!p->probe && p->probe_ns <= now && d->n_probes < VERBS_PROBES) {
			p->probe_ns = now + VERBS_PROBE_NS; /* next try if it is not sent */
			send_probe(d, p);
		}
		if (!p->probe && p->probe_ns < next_ns)
			next_ns = p->probe_ns;
		dg_verbs_peer_leave(d, p);
	}
	if (d->n_probes || next_ns <= now)
		return ANSWER_MS;
	return next_ns == UINT64_MAX ? -1 : (int)((next_ns - now) / 1000000) + 1;
}
