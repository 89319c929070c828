// SPDX-License-Identifier: Apache-2.0
/*
 * Queue pairs that are connected by hand: the connection manager is not involved, so the other side
 * may be any program that uses libibverbs.
 *
 * Each has a separate protection domain. Memory that its peer may access is registered there by
 * grant(), and so are the local regions of its operations, when the first operation on each is
 * checked. The queue pairs of connections belong to other domains, so memory granted to one peer is
 * out of reach for all others.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "error.h"
#include "verbs_provider.h"

enum {
	BITS_24 = 0xffffff,
	RNR_TIMER = 12, /* 0.64 ms: when a message that finds no receive request is sent again */
	HOPS = 64,
};

static int modify(const struct verbs *d, struct ibv_qp *qp, struct ibv_qp_attr *attr, int mask,
		  const char *state)
{
	int rc = dg_verbs.ibv_modify_qp(qp, attr, mask | IBV_QP_STATE);
	if (!rc)
		return 0;
	rc = rc > 0 ? rc : errno;
	return dg_fail(rc, "queue pair %u of %s cannot enter the state %s: %s", qp->qp_num, d->name,
		       state, strerror(rc));
}

int dg_verbs_qp_init(const struct verbs *d, struct ibv_qp *qp, unsigned flags, dg_qp_address *out)
{
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_INIT,
		.qp_access_flags = flags,
		.port_num = d->port,
	};
	if (getrandom(&out->psn, sizeof out->psn, 0) != sizeof out->psn)
		return dg_fail_errno("cannot get a random number for the first packet");
	out->psn &= BITS_24;
	out->qpn = qp->qp_num;
	return modify(d, qp, &attr, IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS, "INIT");
}

/* Returns the error of the step that resolves the peer's hardware address. */
static int unreachable(const struct verbs *d, const dg_qp_address *to, int rc)
{
	if (rc != -ETIMEDOUT && rc != -EHOSTUNREACH && rc != -ENETUNREACH && rc != -ENODATA)
		return rc;
	return dg_fail(ENOTCONN,
		       "gid %s does not answer on the network of %s (%s): check that its machine and "
		       "its link are up (ip neigh; rdma link)",
		       dg_verbs_gid_text(to->gid).text, d->name, strerror(-rc));
}

static int to_rtr(const struct verbs *d, struct ibv_qp *qp, const dg_qp_address *own,
		  const dg_qp_address *to)
{
	TRY(dg_verbs_check_port(d));
	TRY(dg_verbs_check_peer(d, own, to));
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_RTR,
		.path_mtu = __builtin_ctz(to->mtu) - 7, /* enum ibv_mtu: 256 is 1 */
		.dest_qp_num = to->qpn,
		.rq_psn = to->psn,
		.max_dest_rd_atomic = (uint8_t)own->max_reads,
		.min_rnr_timer = RNR_TIMER,
		.ah_attr = {.port_num = d->port, .dlid = (uint16_t)to->lid},
	};
	if (!own->lid) {
		attr.ah_attr.is_global = 1;
		attr.ah_attr.sgid_index = (uint8_t)own->gid_index;
		attr.ah_attr.hop_limit = HOPS;
		memcpy(attr.ah_attr.dgid.raw, to->gid, sizeof to->gid);
	}
	int rc = modify(d, qp, &attr,
			IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
				IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER,
			"RTR (ready to receive)");
	return rc ? unreachable(d, to, rc) : 0;
}

static int to_rts(const struct verbs *d, struct ibv_qp *qp, const dg_qp_address *own, uint32_t max_reads)
{
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_RTS,
		.sq_psn = own->psn,
		.timeout = d->ack_timeout,
		.retry_cnt = VERBS_RETRIES,
		.rnr_retry = 7,
		.max_rd_atomic = (uint8_t)(max_reads < d->max_reads ? max_reads : d->max_reads),
	};
	return modify(d, qp, &attr,
		      IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN |
			      IBV_QP_MAX_QP_RD_ATOMIC,
		      "RTS (ready to send)");
}

int dg_verbs_qp_connect(const struct verbs *d, struct ibv_qp *qp, const dg_qp_address *own,
			const dg_qp_address *to)
{
	TRY(to_rtr(d, qp, own, to));
	return to_rts(d, qp, own, to->max_reads);
}

static int connect_entered(const struct verbs *d, struct verbs_qp *qp, const dg_qp_address *to)
{
	if (qp->connected)
		return dg_fail(EINVAL, "queue pair %u is connected to queue pair %u: make another one",
			       qp->core->address.qpn, qp->peer);
	const dg_qp_address *own = &qp->core->address;
	TRY(to_rtr(d, qp->qp, own, to));
	qp->peer = to->qpn;
	qp->connected = true;
	const int rc = to_rts(d, qp->qp, own, to->max_reads);
	if (rc)
		atomic_store(&qp->core->broken, 1);
	return rc;
}

static int connect_qp(struct dg_device *dev, struct dg_qp *core, const dg_qp_address *to)
{
	struct verbs_qp *qp = core->provider;
	guard_enter(&qp->queue->listed.guard);
	int rc = connect_entered(dev->provider, qp, to);
	guard_leave(&qp->queue->listed.guard);
	return rc;
}

/* Registers a region's memory for this queue pair. Call inside the guard. */
static int add_registration(const struct verbs *d, struct verbs_qp *qp, const struct dg_region *r,
			    int flags, struct verbs_registration **out)
{
	const struct verbs_region *t = r->provider_state;
	struct verbs_registration *g = calloc(1, sizeof *g);
	if (!g)
		return dg_fail(ENOMEM, "out of memory for a registration");
	g->mr = dg_verbs_mr(qp->pd, &r->memory, &t->source, flags);
	if (!g->mr) {
		int rc = dg_verbs_mr_refused(d, &r->memory, t->source.way);
		free(g);
		return rc;
	}
	g->region = r->index;
	g->next = qp->registrations;
	qp->registrations = g;
	*out = g;
	return 0;
}

static int grant_rkey(struct dg_device *dev, struct dg_qp *core, struct dg_region *r,
		      uint32_t access, uint32_t *rkey)
{
	struct verbs_qp *qp = core->provider;
	struct verbs_registration *g;
	int flags = (int)dg_verbs_remote_flags(qp->queue->d, access) |
		    (access & DG_ACCESS_WRITE ? IBV_ACCESS_LOCAL_WRITE : 0);
	guard_enter(&qp->queue->listed.guard);
	int rc = add_registration(dev->provider, qp, r, flags, &g);
	if (!rc) {
		g->granted = true;
		*rkey = g->mr->rkey;
	}
	guard_leave(&qp->queue->listed.guard);
	return rc;
}

/* Finds the registration for the local side of operations, or returns NULL. */
static struct verbs_registration *find_local(const struct verbs_qp *qp, uint32_t region)
{
	struct verbs_registration *g = qp->registrations;
	while (g && (g->region != region || g->granted))
		g = g->next;
	return g;
}

uint32_t dg_verbs_qp_lkey(struct verbs_qp *qp, uint32_t region)
{
	struct verbs_registration *g = qp->last_used;
	if (!g || g->region != region)
		g = qp->last_used = find_local(qp, region);
	return g->mr->lkey;
}

static int check_qp(struct dg_device *dev, struct dg_qp *core, struct dg_region *local)
{
	struct verbs_qp *qp = core->provider;
	struct verbs_registration *g;
	uint32_t number = core->address.qpn;
	int rc = 0;
	if (!qp->connected)
		return dg_fail(EINVAL,
			       "queue pair %u is not connected: connect it with the other side's "
			       "numbers before you post",
			       number);
	if (atomic_load(&core->broken))
		return dg_fail(ENOTCONN,
			       "queue pair %u is in the error state, after an operation that failed: "
			       "close it, make another one on both sides and connect that",
			       number);
	guard_enter(&qp->queue->listed.guard);
	if (!find_local(qp, local->index))
		rc = add_registration(dev->provider, qp, local,
				      local->access & DG_ACCESS_WRITE ? IBV_ACCESS_LOCAL_WRITE : 0,
				      &g);
	guard_leave(&qp->queue->listed.guard);
	return rc;
}

static int import_rkey(struct dg_device *dev, struct dg_region *r, uint32_t rkey)
{
	(void)dev;
	struct verbs_region *t = dg_verbs_region_new();
	if (!t)
		return -ENOMEM;
	t->rkey = rkey;
	r->provider_state = t;
	return 0;
}

/* Ends the registrations of this region, or all of them. Returns false if the adapter keeps one, so
 * that the peer could still use it. */
static bool drop_registrations(struct verbs_qp *qp, bool all, uint32_t region)
{
	struct verbs_registration **at = &qp->registrations;
	bool dropped = true;
	qp->last_used = NULL;
	while (*at) {
		struct verbs_registration *g = *at;
		if (!all && g->region != region) {
			at = &g->next;
			continue;
		}
		*at = g->next;
		dropped &= !dg_verbs.ibv_dereg_mr(g->mr);
		free(g);
	}
	return dropped;
}

void dg_verbs_qps_forget(struct verbs_queue *q, uint32_t region)
{
	for (struct verbs_qp *qp = q->qps; qp; qp = qp->next)
		if (!drop_registrations(qp, false, region))
			dg_verbs_endpoint_break(q, &qp->endpoint);
}

void dg_verbs_qp_abort(struct verbs_qp *qp)
{
	if (qp->qp)
		dg_verbs.ibv_destroy_qp(qp->qp);
	qp->qp = NULL;
}

static void qp_free(struct verbs_qp *qp)
{
	dg_verbs_qp_abort(qp);
	drop_registrations(qp, true, 0);
	if (qp->pd)
		dg_verbs.ibv_dealloc_pd(qp->pd);
	free(qp);
}

/* Creates the queue pair in the state INIT. */
static int make(const struct verbs *d, struct verbs_qp *qp, dg_qp_address *out)
{
	struct ibv_qp_init_attr attr = {
		.send_cq = qp->queue->cq,
		.recv_cq = d->idle_cq,
		.cap = {.max_send_wr = d->max_wr,
			.max_recv_wr = 1,
			.max_send_sge = d->max_sge,
			.max_recv_sge = 1,
			.max_inline_data = 64},
		.qp_type = IBV_QPT_RC,
	};
	qp->pd = dg_verbs.ibv_alloc_pd(d->context);
	if (!qp->pd)
		return dg_fail_errno("%s has no more protection domains", d->name);
	qp->qp = dg_verbs.ibv_create_qp(qp->pd, &attr);
	if (!qp->qp)
		return dg_fail_errno("%s has no more queue pairs", d->name);
	qp->max_inline = attr.cap.max_inline_data;
	return dg_verbs_qp_init(d, qp->qp, dg_verbs_remote_flags(d, DG_ACCESS_READ | DG_ACCESS_WRITE),
				out);
}

static int open_qp(struct dg_device *dev, struct dg_pipe *p, struct dg_qp *core)
{
	struct verbs *d = dev->provider;
	int rc = dg_verbs_port_address(d, &core->address);
	struct verbs_qp *qp = rc ? NULL : calloc(1, sizeof *qp);
	if (!qp)
		return rc ? rc : dg_fail(ENOMEM, "out of memory for a queue pair");
	qp->queue = p->provider;
	qp->core = core;
	qp->endpoint.qp = qp;
	rc = make(d, qp, &core->address);
	guard_enter(&qp->queue->listed.guard);
	if (!rc)
		rc = dg_verbs_endpoint_add(qp->queue, &qp->endpoint);
	if (!rc) {
		qp->next = qp->queue->qps;
		qp->queue->qps = qp;
		atomic_fetch_add(&d->n_qps, 1);
	}
	guard_leave(&qp->queue->listed.guard);
	if (rc) {
		qp_free(qp);
		return rc;
	}
	core->provider = qp;
	return 0;
}

static void close_qp(struct dg_device *dev, struct dg_qp *core)
{
	struct verbs *d = dev->provider;
	struct verbs_qp *qp = core->provider, **at = &qp->queue->qps;
	struct verbs_queue *q = qp->queue;
	guard_enter(&q->listed.guard);
	while (*at != qp)
		at = &(*at)->next;
	*at = qp->next;
	qp->closing = true;
	dg_verbs_endpoint_remove(q, &qp->endpoint);
	qp_free(qp);
	guard_leave(&q->listed.guard);
	atomic_fetch_sub(&d->n_qps, 1);
	/* The queue's caller may be asleep. */
	if (cq_peek(q->p))
		dg_pipe_wake(q->p);
}

const struct dg_qp_ops dg_verbs_qp_ops = {
	.open = open_qp,
	.connect = connect_qp,
	.grant = grant_rkey,
	.import = import_rkey,
	.check = check_qp,
	.close = close_qp,
};
