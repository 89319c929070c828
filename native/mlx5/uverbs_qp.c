// SPDX-License-Identifier: Apache-2.0
/* Commands about queue pairs. The attributes that the NIC has no use for (packet sequence numbers, path) are
 * stored for QUERY_QP. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include <rdma/ib_user_ioctl_verbs.h>

#include "error.h"
#include "mlx5.h"

enum {
	KNOWN = STATE | CURRENT_STATE | ACCESS | PKEY_INDEX | PORT | QKEY | PATH | MTU | TIMEOUT | RETRIES |
		RNR_RETRIES | RQ_PSN | RD_ATOMIC | RNR_TIMER | SQ_PSN | DEST_RD_ATOMIC | DEST_QPN
};

/* What a queue pair is given. */
static const uint32_t known[] = {
	[DG_NIC_RC] = KNOWN & ~QKEY,
	[DG_NIC_UC] = STATE | CURRENT_STATE | ACCESS | PKEY_INDEX | PORT | PATH | MTU | RQ_PSN | SQ_PSN | DEST_QPN,
	[DG_NIC_UD] = STATE | CURRENT_STATE | PKEY_INDEX | PORT | QKEY | SQ_PSN,
	[DG_NIC_XRC_SEND] = KNOWN & ~(QKEY | DEST_RD_ATOMIC | RNR_TIMER),
	[DG_NIC_XRC_RECEIVE] = KNOWN & ~(QKEY | RETRIES | RNR_RETRIES | RD_ATOMIC),
};

/* What programs give to either side of XRC, and the kernel drops. */
static const uint32_t ignored[] = {
	[DG_NIC_XRC_SEND] = DEST_RD_ATOMIC | RNR_TIMER,
	[DG_NIC_XRC_RECEIVE] = RETRIES | RNR_RETRIES | RD_ATOMIC,
};

/* What it needs, if it may have it, when it goes to a state. */
static const uint32_t needed[] = {
	[DG_NIC_INIT] = PKEY_INDEX | PORT | ACCESS | QKEY,
	[DG_NIC_RTR] = PATH | MTU | DEST_QPN | RQ_PSN | DEST_RD_ATOMIC | RNR_TIMER,
	[DG_NIC_RTS] = TIMEOUT | RETRIES | RNR_RETRIES | SQ_PSN | RD_ATOMIC,
};

/* The send ring of a queue pair that sends nothing: the NIC wants one entry at least. */
static _Alignas(64) uint8_t no_entries[64];

/* What a peer may do. DG_NIC_LOCAL_WRITE gives it nothing; 0 would leave its rights as they are. */
static uint32_t access_of(uint32_t flags)
{
	return DG_NIC_LOCAL_WRITE | (flags & IB_UVERBS_ACCESS_REMOTE_WRITE ? DG_NIC_REMOTE_WRITE : 0u) |
	       (flags & IB_UVERBS_ACCESS_REMOTE_READ ? DG_NIC_REMOTE_READ : 0u) |
	       (flags & IB_UVERBS_ACCESS_REMOTE_ATOMIC ? DG_NIC_REMOTE_ATOMIC : 0u);
}

int dg_mlx5_qp_open(struct qp *q, dg_nic_qp_config *c)
{
	dg_nic_qp_info info;
	c->send_cq = q->send_cq ? q->send_cq->nic_cq : NULL;
	c->receive_cq = q->receive_cq ? q->receive_cq->nic_cq : NULL;
	c->pd = q->pd->handle;
	c->domain = q->pd->kind == KIND_XRCD ? ((struct xrcd *)q->pd)->number : 0;
	c->srq = q->srq ? q->srq->nic_srq : NULL;
	c->transport = q->transport;
	TRY(dg_nic_qp_open(dg_mlx5_nic(), c, &q->nic_qp));
	q->pd->users++;
	if (q->send_cq)
		q->send_cq->o.users++;
	if (q->receive_cq)
		q->receive_cq->o.users++;
	if (q->srq)
		q->srq->o.users++;
	dg_nic_qp_info_get(q->nic_qp, &info);
	q->number = info.qpn;
	/* Already here: without a peer, too, its context gets the events of this adapter's port. */
	dg_mlx5_counters_path(q->number, q->o.context->adapter, (const uint8_t[16]){0}, 0);
	return 0;
}

/* libmlx5's buffer: the receive ring, then the send ring. It has the former also for XRC, which does not use it. */
static int open_qp(struct qp *q, const struct mlx5_ib_create_qp *d)
{
	const uint32_t receive_entries = q->receive_cq ? d->rq_wqe_count : 0;
	uint8_t *buffer = (uint8_t *)(uintptr_t)d->buf_addr;
	const uint64_t receives = d->rq_wqe_shift < 32 ? (uint64_t)d->rq_wqe_count << d->rq_wqe_shift : 0;
	if (d->rq_wqe_count && (q->srq || d->rq_wqe_shift < 4 || d->rq_wqe_shift > 16))
		return -EINVAL;
	if (!dg_mlx5_is_writable(d->buf_addr, receives + 64ull * d->sq_wqe_count) ||
	    !dg_mlx5_is_writable(d->db_addr, 8))
		return -EFAULT;
	dg_nic_qp_config config = {
		.send_ring = d->sq_wqe_count ? buffer + receives : no_entries,
		.send_entries = d->sq_wqe_count ? d->sq_wqe_count : 1,
		.receive_ring = buffer,
		.receive_entries = receive_entries,
		.receive_sges = receive_entries ? 1u << (d->rq_wqe_shift - 4) : 0,
		.doorbell_mode = DG_NIC_RECORD,
		.record = (uint32_t *)(uintptr_t)d->db_addr,
		.user_index = d->uidx & 0xffffff,
		.async_fd = q->o.context->async->write_fd,
		.event = q->o.event,
	};
	return dg_mlx5_qp_open(q, &config);
}

static uint32_t transport_of(uint32_t type)
{
	return type == IB_UVERBS_QPT_RC	       ? DG_NIC_RC
	       : type == IB_UVERBS_QPT_UC      ? DG_NIC_UC
	       : type == IB_UVERBS_QPT_UD      ? DG_NIC_UD
	       : type == IB_UVERBS_QPT_XRC_INI ? DG_NIC_XRC_SEND
	       : type == IB_UVERBS_QPT_XRC_TGT ? DG_NIC_XRC_RECEIVE
					       : UINT32_MAX;
}

/* *core: the members that the command and its extended form share. */
static int create_qp(struct call *c, const struct ib_uverbs_ex_create_qp *core,
		     struct mlx5_ib_create_qp_resp *driver)
{
	struct ib_uverbs_create_qp_resp *r = (void *)c->out;
	const struct mlx5_ib_create_qp *d = (void *)c->driver;
	const uint32_t transport = transport_of(core->qp_type);
	if (transport == UINT32_MAX)
		return -EOPNOTSUPP;
	struct qp *q = calloc(1, sizeof *q);
	if (!q)
		return -ENOMEM;
	const bool sends = transport != DG_NIC_XRC_RECEIVE, receives = sends && transport != DG_NIC_XRC_SEND;
	q->transport = transport;
	q->pd = dg_mlx5_find(c->context, core->pd_handle, sends ? KIND_PD : KIND_XRCD);
	q->send_cq = sends ? dg_mlx5_find(c->context, core->send_cq_handle, KIND_CQ) : NULL;
	q->receive_cq = receives ? dg_mlx5_find(c->context, core->recv_cq_handle, KIND_CQ) : NULL;
	if (receives && core->is_srq)
		q->srq = dg_mlx5_find(c->context, core->srq_handle, KIND_SRQ);
	const bool valid = q->pd && (!sends || q->send_cq) &&
			   (!receives || (q->receive_cq && !core->is_srq == !q->srq));
	int rc = valid ? dg_mlx5_add(c->context, &q->o, KIND_QP) : -EINVAL;
	if (rc) {
		free(q);
		return rc;
	}
	q->o.user_handle = core->user_handle;
	rc = open_qp(q, d);
	if (rc) {
		dg_mlx5_remove(&q->o);
		return rc;
	}
	q->attributes.max_send_wr = r->max_send_wr = core->max_send_wr;
	r->max_recv_wr = core->max_recv_wr;
	q->attributes.max_send_sge = r->max_send_sge = core->max_send_sge;
	r->max_recv_sge = core->max_recv_sge;
	/* QUERY_QP says what the ring takes: libmlx5 rounds up. */
	q->attributes.max_recv_wr = d->rq_wqe_count;
	q->attributes.max_recv_sge = d->rq_wqe_count ? 1u << (d->rq_wqe_shift - 4) : 0;
	q->attributes.max_inline_data = r->max_inline_data = core->max_inline_data;
	q->attributes.sq_sig_all = core->sq_sig_all;
	r->qp_handle = q->o.handle;
	r->qpn = q->number;
	memset(driver, 0, sizeof *driver);
	c->out_size = (size_t)((uint8_t *)(driver + 1) - c->out);
	return 0;
}

int dg_mlx5_create_qp(struct call *c)
{
	/* The two have the same members from user_handle to is_srq. */
	struct ib_uverbs_ex_create_qp core = {0};
	memcpy(&core, c->in + offsetof(struct ib_uverbs_create_qp, user_handle),
	       offsetof(struct ib_uverbs_ex_create_qp, comp_mask));
	return create_qp(c, &core, (void *)(c->out + sizeof(struct ib_uverbs_create_qp_resp)));
}

int dg_mlx5_create_qp_ex(struct call *c)
{
	const struct ib_uverbs_ex_create_qp *core = (void *)c->in;
	struct ib_uverbs_ex_create_qp_resp *r = (void *)c->out;
	/* There is no multicast, and so none that comes back. */
	const uint32_t known_flags =
		core->qp_type == IB_UVERBS_QPT_UD ? IB_UVERBS_QP_CREATE_BLOCK_MULTICAST_LOOPBACK : 0;
	if (core->comp_mask || core->create_flags & ~known_flags)
		return -EOPNOTSUPP;
	r->response_length = sizeof *r;
	return create_qp(c, core, (void *)(r + 1));
}

static int check_attributes(const struct qp *q, const struct ib_uverbs_modify_qp *m, uint32_t to)
{
	const uint32_t mask = m->attr_mask, from = q->attributes.qp_state;
	if (mask & ~(uint32_t)KNOWN)
		return -EOPNOTSUPP;
	if ((mask & CURRENT_STATE && m->cur_qp_state != from) || (mask & PORT && m->port_num != 1) ||
	    (mask & PKEY_INDEX && m->pkey_index) || (mask & PATH && m->dest.sgid_index))
		return -EINVAL;
	const uint32_t has = known[q->transport];
	if (mask & ~has || (to == from + 1 && to <= DG_NIC_RTS && needed[to] & has & ~mask))
		return -EINVAL;
	if ((mask & RD_ATOMIC && m->max_rd_atomic > MAX_QP_RD_ATOM) ||
	    (mask & DEST_RD_ATOMIC && m->max_dest_rd_atomic > MAX_QP_RD_ATOM))
		return -EINVAL;
	return 0;
}

static void store_attributes(struct ib_uverbs_query_qp_resp *a, const struct ib_uverbs_modify_qp *m)
{
#define STORE(bit, member)          \
	if (m->attr_mask & (bit))   \
		a->member = m->member;
	STORE(QKEY, qkey)
	STORE(DEST_QPN, dest_qp_num)
	STORE(ACCESS, qp_access_flags)
	STORE(PKEY_INDEX, pkey_index)
	STORE(PORT, port_num)
	STORE(PATH, dest)
	STORE(MTU, path_mtu)
	STORE(TIMEOUT, timeout)
	STORE(RETRIES, retry_cnt)
	STORE(RNR_RETRIES, rnr_retry)
	STORE(RQ_PSN, rq_psn)
	STORE(SQ_PSN, sq_psn)
	STORE(RD_ATOMIC, max_rd_atomic)
	STORE(DEST_RD_ATOMIC, max_dest_rd_atomic)
	STORE(RNR_TIMER, min_rnr_timer)
#undef STORE
}

void dg_mlx5_qp_load_state(struct qp *q)
{
	dg_nic_qp_info info;
	if (!dg_nic_qp_info_get(q->nic_qp, &info))
		q->attributes.qp_state = q->attributes.cur_qp_state = (uint8_t)info.state;
}

uint32_t dg_mlx5_qp_known(const struct qp *q)
{
	return known[q->transport];
}

/* As many bits of each as the adapter's own structure has. */
static void set_retries(struct qp *q)
{
	const struct ib_uverbs_query_qp_resp *a = &q->attributes;
	const dg_nic_retries r = {
		.timeout = a->timeout & 31,
		.retries = a->retry_cnt & 7,
		.rnr_retries = a->rnr_retry & 7,
		.rnr_timer = a->min_rnr_timer & 31,
	};
	dg_nic_qp_set_retries(q->nic_qp, &r);
}

int dg_mlx5_qp_modify(struct qp *q, struct ib_uverbs_modify_qp *m)
{
	dg_nic_address peer = {.qpn = m->dest_qp_num};
	m->attr_mask &= ~ignored[q->transport];
	dg_mlx5_qp_load_state(q);
	const uint32_t to = m->attr_mask & STATE ? m->qp_state : q->attributes.qp_state;
	int rc = check_attributes(q, m, to);
	if (rc)
		return rc;
	dg_nic_part_gid(peer.qpn, peer.gid);
	if (m->attr_mask & (PATH | QKEY))
		dg_mlx5_counters_path(q->number, q->o.context->adapter, m->dest.dgid,
				      m->attr_mask & MTU ? 128u << m->path_mtu : 0);
	if (m->attr_mask & SQ_PSN && q->attributes.path_mtu)
		/* Packets of datagrams and XRC are not written: 0. */
		dg_mlx5_roce_path(q->number,
				  q->transport > DG_NIC_UC ? 0 : 128u << q->attributes.path_mtu, m->sq_psn,
				  q->transport == DG_NIC_UC);
	/* Without a new state only attributes change that the NIC has no use for, but for the access. */
	if (m->attr_mask & (STATE | ACCESS))
		rc = dg_nic_qp_modify(q->nic_qp, to, to == DG_NIC_RTR ? &peer : NULL,
				      m->attr_mask & ACCESS ? access_of(m->qp_access_flags) : 0);
	if (rc) /* no process has this queue pair, as if there were no machine with this address */
		return rc == -EINVAL ? rc : -ETIMEDOUT;
	if (m->attr_mask & QKEY)
		dg_nic_qp_set_q_key(q->nic_qp, m->qkey);
	store_attributes(&q->attributes, m);
	if (m->attr_mask & (TIMEOUT | RETRIES | RNR_RETRIES | RNR_TIMER))
		set_retries(q);
	return 0;
}

static int modify(struct call *c, struct ib_uverbs_modify_qp *m)
{
	struct qp *q = dg_mlx5_find(c->context, m->qp_handle, KIND_QP);
	return q ? dg_mlx5_qp_modify(q, m) : -EINVAL;
}

int dg_mlx5_modify_qp(struct call *c)
{
	return modify(c, (void *)c->in);
}

int dg_mlx5_modify_qp_ex(struct call *c)
{
	struct ib_uverbs_ex_modify_qp_resp *r = (void *)c->out;
	r->response_length = sizeof *r;
	c->out_size = sizeof *r;
	return modify(c, (void *)c->in);
}

int dg_mlx5_query_qp(struct call *c)
{
	struct qp *q = dg_mlx5_find(c->context, ((struct ib_uverbs_query_qp *)c->in)->qp_handle, KIND_QP);
	if (!q)
		return -EINVAL;
	dg_mlx5_qp_load_state(q);
	memcpy(c->out, &q->attributes, sizeof q->attributes);
	c->out_size = sizeof q->attributes;
	return 0;
}

int dg_mlx5_destroy_qp(struct call *c)
{
	struct qp *q = dg_mlx5_find(c->context, ((struct ib_uverbs_destroy_qp *)c->in)->qp_handle, KIND_QP);
	if (!q)
		return -ENOENT;
	struct ib_uverbs_destroy_qp_resp *r = (void *)c->out;
	r->events_reported = q->o.async_reported; /* libibverbs waits until as many are acknowledged */
	c->out_size = sizeof *r;
	return dg_mlx5_destroy(&q->o);
}
