// SPDX-License-Identifier: Apache-2.0
/*
 * Rights of a guest in a region: its queue pair, and a memory window of type 2B that is bound to
 * it. The window gives only this connection the access of its export: its rkey is useless on any
 * other connection. The region's own registration, which all its windows refer to, gives no remote
 * access at all. On an adapter that has no such windows, or cannot bind one, each guest gets a
 * registration in a separate protection domain instead.
 *
 * A window is bound by a work request of the same queue pair, which must be ready to send. So the
 * queue pair is made ready here and not by rdma_accept(): the window is bound before the importer
 * has the rkey.
 */
#include <errno.h>
#include <unistd.h>

#include "clock.h"
#include "verbs_provider.h"

#define BIND_NS 1000000000ull /* how long a bind may take */

static int new_qp(struct verbs *d, struct verbs_guest *g, struct ibv_pd *pd, bool link)
{
	struct ibv_qp_init_attr a = {
		.send_cq = link ? d->probe_cq : d->idle_cq,
		.recv_cq = link ? d->notice_cq : d->idle_cq,
		/* A link sends a probe and a notice. */
		.cap = {.max_send_wr = 2, .max_recv_wr = 1, .max_send_sge = 1, .max_recv_sge = 1},
		.qp_type = IBV_QPT_RC,
	};
	g->qp = dg_verbs.ibv_create_qp(pd, &a);
	return g->qp ? 0 : -errno;
}

static int change_state(const struct verbs *d, struct verbs_guest *g, int state,
			const struct rdma_conn_param *param)
{
	struct ibv_qp_attr a = {.qp_state = state};
	int mask;
	if (dg_verbs.rdma_init_qp_attr(g->id, &a, &mask))
		return -errno;
	a.max_dest_rd_atomic = param->responder_resources;
	a.max_rd_atomic = param->initiator_depth;
	a.timeout = d->ack_timeout;
	a.retry_cnt = VERBS_RETRIES;
	return -dg_verbs.ibv_modify_qp(g->qp, &a, mask);
}

static int make_ready(struct verbs *d, struct verbs_guest *g, const struct rdma_conn_param *param)
{
	int rc = change_state(d, g, IBV_QPS_INIT, param);
	/* For iWARP the kernel does the rest when the connection is accepted. */
	if (!rc && !d->iwarp)
		rc = change_state(d, g, IBV_QPS_RTR, param);
	if (!rc && !d->iwarp)
		rc = change_state(d, g, IBV_QPS_RTS, param);
	return rc;
}

unsigned dg_verbs_remote_flags(const struct verbs *d, uint32_t access)
{
	bool atomics = d->atomics && access == (DG_ACCESS_READ | DG_ACCESS_WRITE);
	return (access & DG_ACCESS_READ ? IBV_ACCESS_REMOTE_READ : 0u) |
	       (access & DG_ACCESS_WRITE ? IBV_ACCESS_REMOTE_WRITE : 0u) |
	       (atomics ? IBV_ACCESS_REMOTE_ATOMIC : 0u);
}

/* Waits for the completion of the only work request on idle_cq. */
static int wait_for_bind(const struct verbs *d)
{
	uint64_t deadline_ns = now_ns() + BIND_NS;
	struct ibv_wc wc;
	for (uint32_t polls = 0;; polls++) {
		int n = d->idle_cq->context->poll_cq(d->idle_cq, 1, &wc);
		if (n)
			return n < 0 || wc.status ? -EIO : 0;
		if (now_ns() >= deadline_ns)
			return -ETIMEDOUT;
		if (polls > 100)
			usleep(20);
	}
}

static int bind_window(struct verbs *d, struct verbs_guest *g, uint32_t access)
{
	const struct dg_region *r = g->region;
	const struct verbs_region *t = r->provider_state;
	struct ibv_send_wr *bad, wr = {
		.opcode = IBV_WR_BIND_MW,
		.send_flags = IBV_SEND_SIGNALED,
		.bind_mw = {
			.mw = g->mw,
			/* The lowest byte belongs to the consumer and has to change. */
			.rkey = (g->mw->rkey & ~0xffu) | ((g->mw->rkey + 1) & 0xff),
			.mr = t->mr,
			.addr = (uintptr_t)r->memory.addr,
			.length = r->memory.size,
			.access = dg_verbs_remote_flags(d, access),
		},
	};
	int rc = -g->qp->context->post_send(g->qp, &wr, &bad);
	if (!rc)
		rc = wait_for_bind(d);
	if (rc)
		/* The next one would fail, too, perhaps as slowly. */
		atomic_store_explicit(&d->windows, false, memory_order_relaxed);
	g->mw->rkey = wr.bind_mw.rkey;
	return rc;
}

static int grant_by_window(struct verbs *d, struct verbs_guest *g, uint32_t access,
			   const struct rdma_conn_param *param, uint32_t *rkey)
{
	int rc = new_qp(d, g, d->pd, false);
	if (!rc)
		rc = make_ready(d, g, param);
	if (rc)
		return rc;
	g->mw = d->context->alloc_mw(d->pd, IBV_MW_TYPE_2);
	if (!g->mw)
		return errno ? -errno : -EMFILE;
	rc = bind_window(d, g, access);
	*rkey = g->mw->rkey;
	return rc;
}

static int grant_by_registration(struct verbs *d, struct verbs_guest *g, uint32_t access,
				 const struct rdma_conn_param *param, uint32_t *rkey)
{
	const dg_memory *m = &g->region->memory;
	const struct verbs_region *t = g->region->provider_state;
	unsigned local = access & DG_ACCESS_WRITE ? IBV_ACCESS_LOCAL_WRITE : 0;
	g->pd = dg_verbs.ibv_alloc_pd(g->id->verbs);
	if (!g->pd)
		return -EMFILE;
	g->mr = dg_verbs_mr(g->pd, m, &t->source, (int)(local | dg_verbs_remote_flags(d, access)));
	if (!g->mr)
		return errno ? -errno : -ENOMEM;
	*rkey = g->mr->rkey;
	int rc = new_qp(d, g, g->pd, false);
	return rc ? rc : make_ready(d, g, param);
}

int dg_verbs_guest_open(struct verbs *d, struct verbs_guest *g, uint32_t access,
			const struct rdma_conn_param *param, uint32_t *rkey)
{
	if (!access) {
		int rc = new_qp(d, g, d->link_pd, true);
		return rc ? rc : make_ready(d, g, param);
	}
	const struct verbs_region *t = g->region->provider_state;
	if (t->source.way == DG_REGISTRATION_PINNED && dg_verbs_has_windows(d) &&
	    !grant_by_window(d, g, access, param, rkey))
		return 0;
	dg_verbs_guest_close(g);
	return grant_by_registration(d, g, access, param, rkey);
}

void dg_verbs_guest_rights_take(struct verbs_guest *g)
{
	bool kept = g->mw && g->mw->context->dealloc_mw(g->mw);
	kept |= g->mr && dg_verbs.ibv_dereg_mr(g->mr);
	/* Without its queue pair the importer cannot use any of them. */
	if (kept && !dg_verbs.ibv_destroy_qp(g->qp))
		g->qp = NULL;
	g->mw = NULL;
	g->mr = NULL;
}

void dg_verbs_guest_close(struct verbs_guest *g)
{
	/* Revoke the rights first: the adapter may still serve the importer. */
	dg_verbs_guest_rights_take(g);
	if (g->qp)
		dg_verbs.ibv_destroy_qp(g->qp);
	if (g->pd)
		dg_verbs.ibv_dealloc_pd(g->pd);
	g->qp = NULL;
	g->pd = NULL;
}
