// SPDX-License-Identifier: Apache-2.0
/*
 * Queue pairs of an RDMA adapter, by libibverbs. A connection has two: its tasks are on `pair`; `link`, in a
 * protection domain without memory, carries a write of no bytes at intervals, which fails when the peer or
 * the way to it is gone.
 */
#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "clock.h"
#include "device/adapter.h"
#include "nic_wqe.h"
#include "rdma.h"

/* The low bits of the numbers of work requests; above them is the number of a probe. */
enum { WR_RECEIVE, WR_SEND, WR_PROBE, WR_KINDS };
enum { WC_RECEIVE_WITH_IMM = 129, WC_WITH_IMM = 2, WR_WRITE_IMM = 1, WR_SEND_IMM = 3 };

static const struct dg_verbs_api *api(void)
{
	return softdoca_verbs.api;
}

/* ---- the adapter ---- */

doca_error_t rdma_verbs_max_message(struct doca_dev *dev, uint32_t *out)
{
	struct adapter *a;
	TRY(softdoca_dev_adapter(dev, &a));
	*out = a->d->max_message < RDMA_BYTES_MAX ? a->d->max_message : RDMA_BYTES_MAX;
	return DOCA_SUCCESS;
}

static doca_error_t open_adapter(struct doca_rdma *r)
{
	dg_qp_address address;
	uint32_t most;
	r->over = (struct rdma_adapter){NULL};
	TRY(softdoca_dev_adapter(r->ctx.dev, &r->over.adapter));
	TRY(rdma_verbs_max_message(r->ctx.dev, &most));
	r->max_bytes = most;
	const int rc = softdoca_verbs.port_address(r->over.adapter->d, &address);
	if (rc)
		return softdoca_failed("doca_ctx_start", rc);
	memcpy(r->gid, address.gid, sizeof r->gid);
	return DOCA_SUCCESS;
}

static doca_error_t open_cq(struct doca_rdma *r, uint32_t n)
{
	struct rdma_adapter *o = &r->over;
	const uint32_t entries = n + r->max_connections;
	o->cq = api()->ibv_create_cq(o->adapter->d->context, (int)entries, NULL, NULL, 0);
	return o->cq ? DOCA_SUCCESS
		     : REFUSE(DOCA_ERROR_NO_MEMORY, "%s has no completion queue of %u entries: %s",
			      o->adapter->d->name, entries, strerror(errno));
}

static void close_adapter(struct doca_rdma *r)
{
	if (r->over.cq)
		api()->ibv_destroy_cq(r->over.cq);
	r->over.cq = NULL;
}

/* ---- queue pairs ---- */

static unsigned access_flags(const struct doca_rdma *r)
{
	return (r->permissions & DOCA_ACCESS_FLAG_RDMA_WRITE ? IBV_ACCESS_REMOTE_WRITE : 0u) |
	       (r->permissions & DOCA_ACCESS_FLAG_RDMA_READ ? IBV_ACCESS_REMOTE_READ : 0u) |
	       (r->permissions & DOCA_ACCESS_FLAG_RDMA_ATOMIC ? IBV_ACCESS_REMOTE_ATOMIC : 0u);
}

static int create_qp(const struct doca_rdma *r, struct ibv_pd *pd, struct ibv_qp_cap cap,
		     struct ibv_qp **out)
{
	struct ibv_qp_init_attr attr = {
		.send_cq = r->over.cq, .recv_cq = r->over.cq, .cap = cap, .qp_type = IBV_QPT_RC};
	*out = api()->ibv_create_qp(pd, &attr);
	return *out ? 0 : -errno;
}

static int pair_open(struct doca_rdma_connection *c)
{
	const struct doca_rdma *r = c->rdma;
	const struct adapter *a = r->over.adapter;
	dg_qp_address *own = &c->blob.address, link;
	const struct ibv_qp_cap cap = {.max_send_wr = c->send.n,
				       .max_recv_wr = c->receive.n,
				       .max_send_sge = RDMA_LIST_MAX,
				       .max_recv_sge = RDMA_LIST_MAX},
				one = {.max_send_wr = 1, .max_recv_wr = 1, .max_send_sge = 1, .max_recv_sge = 1};
	TRY(softdoca_verbs.port_address(a->d, own));
	TRY(create_qp(r, a->pd, cap, &c->pair));
	TRY(create_qp(r, a->d->link_pd, one, &c->link));
	TRY(softdoca_verbs.qp_init(a->d, c->pair, access_flags(r), own));
	TRY(softdoca_verbs.qp_init(a->d, c->link, IBV_ACCESS_REMOTE_WRITE, &link));
	c->qpn = own->qpn;
	c->blob.link_qpn = link.qpn;
	c->blob.link_psn = link.psn;
	return 0;
}

static int connect_one(const struct doca_rdma_connection *c, struct ibv_qp *qp, const dg_qp_address *own,
		       const dg_qp_address *to)
{
	dg_qp_address peer = *to;
	peer.mtu = to->mtu < own->mtu ? to->mtu : own->mtu;
	return softdoca_verbs.qp_connect(c->rdma->over.adapter->d, qp, own, &peer);
}

static int pair_join(struct doca_rdma_connection *c, const struct rdma_blob *peer)
{
	dg_qp_address own = c->blob.address, to = peer->address;
	TRY(connect_one(c, c->pair, &own, &to));
	own.qpn = c->blob.link_qpn;
	own.psn = c->blob.link_psn;
	to.qpn = peer->link_qpn;
	to.psn = peer->link_psn;
	c->probed_ns = now_ns();
	return connect_one(c, c->link, &own, &to);
}

/* Nothing moves, and nothing completes, on it afterwards. */
static void pair_close(struct doca_rdma_connection *c)
{
	if (c->pair)
		api()->ibv_destroy_qp(c->pair);
	if (c->link)
		api()->ibv_destroy_qp(c->link);
	c->pair = c->link = NULL;
	c->qpn = 0;
}

/* A forked child has the parent's queue pairs and cannot use them. */
static bool is_own(const struct doca_rdma *r)
{
	return r->pid == getpid();
}

static int pair_break(struct doca_rdma_connection *c)
{
	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_ERR};
	if (!is_own(c->rdma))
		return -ENODEV;
	api()->ibv_modify_qp(c->link, &attr, IBV_QP_STATE);
	const int rc = -api()->ibv_modify_qp(c->pair, &attr, IBV_QP_STATE);
	if (rc)
		pair_close(c);
	return rc;
}

/* Sends a probe, if it is time. Its completion tells whether the peer is there. */
static bool pair_failed(struct doca_rdma_connection *c)
{
	const uint64_t now = now_ns();
	struct ibv_send_wr *bad, wr = {.opcode = IBV_WR_RDMA_WRITE, .send_flags = IBV_SEND_SIGNALED};
	if (c->probe || now - c->probed_ns < VERBS_PROBE_NS || !is_own(c->rdma))
		return false;
	c->probe = ++c->rdma->over.probes;
	c->probed_ns = now;
	wr.wr_id = c->probe * WR_KINDS + WR_PROBE;
	return c->link->context->post_send(c->link, &wr, &bad);
}

/* ---- posting ---- */

static bool has_room(const struct doca_rdma_connection *c, const struct rdma_task *t)
{
	(void)t;
	return ring_used(&c->send) < c->send.n;
}

static int put_sges(struct ibv_sge *sges, const struct rdma_segments *s)
{
	for (uint32_t i = 0; i < s->n; i++)
		sges[i] = (struct ibv_sge){s->part[i].at, (uint32_t)s->part[i].n, s->part[i].key};
	return (int)s->n;
}

static int post_receive(struct ibv_qp *qp, const struct rdma_segments *s)
{
	struct ibv_sge sges[RDMA_LIST_MAX];
	struct ibv_recv_wr *bad, wr = {.wr_id = WR_RECEIVE, .sg_list = sges, .num_sge = put_sges(sges, s)};
	return qp->context->post_recv(qp, &wr, &bad);
}

static void put_remote(struct ibv_send_wr *wr, const struct rdma_task *t)
{
	uint32_t key;
	const uint64_t at = rdma_remote(t, &key);
	if (!is_atomic(t)) {
		wr->rdma.remote_addr = at;
		wr->rdma.rkey = key;
		return;
	}
	wr->atomic.remote_addr = at;
	wr->atomic.rkey = key;
	wr->atomic.compare_add = t->type == RDMA_CMP_SWP ? t->compare : t->operand;
	wr->atomic.swap = t->operand;
}

static int post_send(struct ibv_qp *qp, const struct rdma_task *t, const struct rdma_segments *s)
{
	static const int opcodes[RDMA_TYPES] = {
		[RDMA_SEND] = IBV_WR_SEND,
		[RDMA_SEND_IMM] = WR_SEND_IMM,
		[RDMA_READ] = IBV_WR_RDMA_READ,
		[RDMA_WRITE] = IBV_WR_RDMA_WRITE,
		[RDMA_WRITE_IMM] = WR_WRITE_IMM,
		[RDMA_CMP_SWP] = IBV_WR_ATOMIC_CMP_AND_SWP,
		[RDMA_FETCH_ADD] = IBV_WR_ATOMIC_FETCH_AND_ADD,
	};
	struct ibv_sge sges[RDMA_LIST_MAX];
	struct ibv_send_wr *bad, wr = {
					 .wr_id = WR_SEND,
					 .sg_list = sges,
					 .num_sge = put_sges(sges, s),
					 .opcode = opcodes[t->type],
					 .send_flags = IBV_SEND_SIGNALED,
					 .imm_data = t->immediate,
				 };
	if (has_remote(t))
		put_remote(&wr, t);
	return qp->context->post_send(qp, &wr, &bad);
}

static doca_error_t post(struct doca_rdma_connection *c, struct rdma_task *t, const struct rdma_segments *s)
{
	if (!is_own(c->rdma))
		return REFUSE(DOCA_ERROR_DRIVER, "the context was started before fork(): it is the parent's");
	const int rc = is_receive(t) ? post_receive(c->pair, s) : post_send(c->pair, t, s);
	return rc ? REFUSE(DOCA_ERROR_DRIVER, "%s does not take the task: %s",
			   c->rdma->over.adapter->d->name, strerror(rc))
		  : DOCA_SUCCESS;
}

/* ---- completions ---- */

static const char *text_of(int status)
{
	switch (status) {
	case IBV_WC_LOC_LEN_ERR:
		return "a message is longer than its receive";
	case IBV_WC_LOC_PROT_ERR:
		return "a local buffer is not in a started map that allows it";
	case IBV_WC_REM_INV_REQ_ERR:
	case IBV_WC_REM_ACCESS_ERR:
		return "the peer does not allow it";
	case IBV_WC_RETRY_EXC_ERR:
		return "the peer does not answer";
	default:
		return "an error of the adapter";
	}
}

static void log_broken(const struct doca_rdma_connection *c, int status)
{
	if (status != IBV_WC_WR_FLUSH_ERR)
		softdoca_log(DOCA_LOG_LEVEL_WARNING, "doca_pe_progress",
			     "connection %u broke, status %d of libibverbs: %s", c->id, status,
			     text_of(status));
}

static struct doca_rdma_connection *find_connection(const struct doca_rdma *r, uint32_t qpn)
{
	struct doca_rdma_connection *c = r->connections;
	while (c && c->qpn != qpn)
		c = c->next;
	return c;
}

/* A probe of a connection that was freed has no answer that matters. */
static void answered(struct doca_rdma *r, const struct ibv_wc *wc)
{
	struct doca_rdma_connection *c = r->connections;
	while (c && c->probe != wc->wr_id / WR_KINDS)
		c = c->next;
	if (!c)
		return;
	c->probe = 0;
	if (!wc->status || c->state != CONNECTION_CONNECTED)
		return;
	log_broken(c, wc->status);
	rdma_connection_break(c);
}

static uint8_t opcode_of(const struct ibv_wc *wc)
{
	if (wc->wr_id == WR_SEND)
		return wc->status ? CQE_REQUEST_ERROR : CQE_REQUEST;
	if (wc->status)
		return CQE_RECEIVE_ERROR;
	if (wc->opcode == WC_RECEIVE_WITH_IMM)
		return CQE_WRITE_IMM;
	return wc->wc_flags & WC_WITH_IMM ? CQE_SEND_IMM : CQE_SEND;
}

static void take_completion(struct doca_rdma *r, const struct ibv_wc *wc)
{
	const struct doca_rdma_connection *c = find_connection(r, wc->qp_num);
	if (wc->wr_id >= WR_PROBE) {
		answered(r, wc);
		return;
	}
	if (wc->status && c)
		log_broken(c, wc->status);
	r->over.taken[r->over.n_taken++] = (struct rdma_cqe){.qpn = wc->qp_num,
							     .bytes = wc->byte_len,
							     .immediate = wc->imm_data,
							     .opcode = opcode_of(wc)};
}

static bool ready(struct doca_rdma *r)
{
	struct rdma_adapter *o = &r->over;
	struct ibv_wc wcs[sizeof o->taken / sizeof o->taken[0]];
	if (o->next < o->n_taken)
		return true;
	if (!is_own(r))
		return false;
	const int n = o->cq->context->poll_cq(o->cq, (int)(sizeof wcs / sizeof wcs[0]), wcs);
	o->next = o->n_taken = 0;
	for (int i = 0; i < n; i++)
		take_completion(r, &wcs[i]);
	return o->n_taken;
}

static bool poll_cq(struct doca_rdma *r, struct rdma_cqe *out)
{
	do {
		if (!ready(r))
			return false;
		*out = r->over.taken[r->over.next++];
	} while (!find_connection(r, out->qpn)); /* closed since */
	return true;
}

const struct rdma_net rdma_verbs = {
	.open = open_adapter,
	.open_cq = open_cq,
	.close = close_adapter,
	.pair_open = pair_open,
	.pair_join = pair_join,
	.pair_break = pair_break,
	.pair_failed = pair_failed,
	.pair_close = pair_close,
	.has_room = has_room,
	.post = post,
	.poll = poll_cq,
	.ready = ready,
};
