// SPDX-License-Identifier: Apache-2.0
/* Queue pairs: creation, states, queries. */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "verbs_objects.h"

#define RECORD_BYTES 8u

/* ---- creation ---- */

static doca_error_t check_init(const struct doca_verbs_qp_init_attr *a)
{
	const bool sends = a->sq_wr, receives = a->rq_wr;
	if (!object_is(a->pd, OBJECT_VERBS_PD) || !nic_pd(a->pd->ibv))
		return REFUSE(DOCA_ERROR_INVALID_VALUE, "there is no valid protection domain");
	if (!sends && !receives)
		return REFUSE(DOCA_ERROR_INVALID_VALUE, "sq_wr and rq_wr are both 0");
	if ((sends && !object_is(a->send_cq, OBJECT_VERBS_CQ)) ||
	    (receives && !object_is(a->receive_cq, OBJECT_VERBS_CQ)))
		return REFUSE(DOCA_ERROR_INVALID_VALUE, "the %s ring has no valid completion queue",
			      sends && !object_is(a->send_cq, OBJECT_VERBS_CQ) ? "send"
									       : "receive");
	if (a->external_uar && !object_is(a->external_uar, OBJECT_UAR))
		return REFUSE(DOCA_ERROR_INVALID_VALUE, "the external UAR was destroyed");
	return DOCA_SUCCESS;
}

/* Places the rings and the record: in the program's umems, or in memory of its own. */
static doca_error_t place(struct doca_verbs_qp *qp)
{
	const struct doca_verbs_qp_init_attr *a = &qp->init;
	size_t page = (size_t)sysconf(_SC_PAGESIZE);
	size_t receive = (size_t)a->rq_wr * a->receive_max_sges * SGE_BYTES;
	if (!a->external.umem)
		receive = (receive + WQE_BYTES - 1) / WQE_BYTES * WQE_BYTES;
	size_t rings = receive + (size_t)a->sq_wr * WQE_BYTES;
	size_t own = (a->external.umem ? 0 : (rings + page - 1) / page * page) +
		     (a->external_dbr.umem ? 0 : page);
	if (own && !(qp->own = aligned_alloc(page, own)))
		return REFUSE(DOCA_ERROR_NO_MEMORY, "no memory for %zu bytes of rings", own);
	if (own)
		memset(qp->own, 0, own);
	char *at = a->external.umem
			   ? umem_at("doca_verbs_qp_create", &a->external, rings, WQE_BYTES)
			   : qp->own;
	char *record = a->external_dbr.umem ? umem_at("doca_verbs_qp_create", &a->external_dbr,
						      RECORD_BYTES, RECORD_BYTES)
					    : qp->own + own - page;
	if (!at || !record)
		return DOCA_ERROR_INVALID_VALUE;
	memset(record, 0, RECORD_BYTES);
	qp->receive_ring = at;
	qp->send_ring = at + receive;
	qp->record = (uint32_t *)record;
	qp->doorbell = a->external_uar ? a->external_uar->page : &qp->own_doorbell;
	return DOCA_SUCCESS;
}

/* The send ring of a queue pair that only receives: the NIC wants one. */
static _Alignas(WQE_BYTES) char no_sends[WQE_BYTES];

static doca_error_t qp_open(struct doca_verbs_qp *qp)
{
	const struct doca_verbs_qp_init_attr *a = &qp->init;
	bool no_record = a->send_dbr_mode == DOCA_VERBS_QP_SEND_DBR_MODE_NO_DBR_EXT;
	dg_nic_qp_info info;
	dg_nic *nic;
	TRY(softdoca_nic_take(&nic));
	const dg_nic_qp_config cfg = {
		.send_ring = a->sq_wr ? qp->send_ring : no_sends,
		.receive_ring = a->rq_wr ? qp->receive_ring : NULL,
		.send_entries = a->sq_wr ? a->sq_wr : 1,
		.receive_entries = a->rq_wr,
		.receive_sges = a->receive_max_sges,
		.doorbell_mode = no_record ? DG_NIC_NO_RECORD : DG_NIC_RECORD,
		.record = qp->record,
		.doorbell = qp->doorbell,
		.producer = &qp->own_producer, /* until the export replaces it */
		.send_cq = (a->sq_wr ? a->send_cq : a->receive_cq)->cq,
		.receive_cq = a->rq_wr ? a->receive_cq->cq : NULL,
		.pd = qp->pd->v.handle,
		.inline_receive = a->cqe_inline,
	};
	int rc = softdoca_nic.qp_open(nic, &cfg, &qp->qp);
	if (!rc)
		rc = softdoca_nic.qp_info_get(qp->qp, &info);
	if (rc) {
		softdoca_nic_drop();
		return softdoca_failed("doca_verbs_qp_create", rc);
	}
	qp->number = info.qpn;
	return DOCA_SUCCESS;
}

/* Adds to the users of the domain and the memory that the queue pair uses. */
static void add_users(const struct doca_verbs_qp *qp, unsigned by)
{
	const struct doca_verbs_qp_init_attr *a = &qp->init;
	atomic_fetch_add(&qp->pd->users, by);
	if (a->external.umem)
		atomic_fetch_add(&a->external.umem->users, by);
	if (a->external_dbr.umem)
		atomic_fetch_add(&a->external_dbr.umem->users, by);
	if (a->external_uar)
		atomic_fetch_add(&a->external_uar->users, by);
}

/* DOCA API reference, Verbs: INVALID_VALUE, NO_MEMORY. */
doca_error_t doca_verbs_qp_create(struct doca_verbs_context *verbs_ctx,
				  struct doca_verbs_qp_init_attr *init_attr,
				  struct doca_verbs_qp **verbs_qp)
{
	CHECK_CONTEXT(verbs_ctx);
	CHECK_OBJECT(init_attr, OBJECT_VERBS_QP_INIT_ATTR, "attributes of a new queue pair");
	CHECK_OUT(verbs_qp);
	TRY(check_init(init_attr));
	struct doca_verbs_qp *qp = softdoca_object_new(OBJECT_VERBS_QP, sizeof *qp);
	if (!qp)
		return REFUSE(DOCA_ERROR_NO_MEMORY, "no memory for a queue pair");
	qp->init = *init_attr;
	qp->init.sq_wr = power_of_two(init_attr->sq_wr);
	qp->init.rq_wr = power_of_two(init_attr->rq_wr);
	qp->init.receive_max_sges = power_of_two(init_attr->receive_max_sges);
	qp->pd = nic_pd(init_attr->pd->ibv);
	doca_error_t error = place(qp);
	if (!error)
		error = work_open(qp);
	if (!error)
		error = qp_open(qp);
	if (error) {
		work_close(qp);
		free(qp->own);
		softdoca_object_free(qp);
		return error;
	}
	add_users(qp, 1);
	*verbs_qp = qp;
	return DOCA_SUCCESS;
}

doca_error_t doca_verbs_qp_destroy(struct doca_verbs_qp *verbs_qp)
{
	CHECK_QP(verbs_qp);
	if (atomic_load(&verbs_qp->exported))
		return REFUSE(DOCA_ERROR_IN_USE,
			      "queue pair %u is exported: call "
			      "doca_gpu_verbs_unexport_qp() first",
			      verbs_qp->number);
	dg_nic_qp_info info;
	if (!softdoca_nic.qp_info_get(verbs_qp->qp, &info) && info.syndrome)
		softdoca_log(DOCA_LOG_LEVEL_WARNING, __func__,
			     "queue pair %u had an error, syndrome %#x: %s", verbs_qp->number,
			     info.syndrome, info.why);
	int rc = softdoca_nic.qp_close(verbs_qp->qp);
	if (rc)
		return softdoca_failed(__func__, rc);
	softdoca_nic_drop();
	if (verbs_qp->structure) {
		softdoca_gpu_drop(verbs_qp->structure);
		softdoca_gpu_drop(verbs_qp->words);
	}
	work_close(verbs_qp);
	add_users(verbs_qp, -1u);
	free(verbs_qp->own);
	softdoca_object_free(verbs_qp);
	return DOCA_SUCCESS;
}

/* ---- states ---- */

#define ATTR(name) DOCA_VERBS_QP_ATTR_##name
#define KNOWN      ((ATTR(MAX_DEST_RD_ATOMIC) << 1) - 1)

static const char *const state_names[] = {"RST", "INIT", "RTR", "RTS", "ERR"};
static const int required[] = {
	[DOCA_VERBS_QP_STATE_INIT] = ATTR(PKEY_INDEX) | ATTR(PORT_NUM),
	[DOCA_VERBS_QP_STATE_RTR] = ATTR(PATH_MTU) | ATTR(DEST_QP_NUM) | ATTR(RQ_PSN) |
				    ATTR(AH_ATTR) | ATTR(MIN_RNR_TIMER),
	[DOCA_VERBS_QP_STATE_RTS] =
		ATTR(SQ_PSN) | ATTR(ACK_TIMEOUT) | ATTR(RETRY_CNT) | ATTR(RNR_RETRY),
	[DOCA_VERBS_QP_STATE_ERR] = 0,
};
static const uint32_t nic_states[] = {DG_NIC_RESET, DG_NIC_INIT, DG_NIC_RTR, DG_NIC_RTS,
				      DG_NIC_ERROR};

/* Updates the state from the NIC, where an error may have changed it. */
static enum doca_verbs_qp_state state_of(struct doca_verbs_qp *qp)
{
	dg_nic_qp_info info;
	if (!softdoca_nic.qp_info_get(qp->qp, &info) && info.state == DG_NIC_ERROR)
		qp->state = DOCA_VERBS_QP_STATE_ERR;
	return qp->state;
}

static doca_error_t check_modify(struct doca_verbs_qp *qp, const struct doca_verbs_qp_attr *a,
				 int mask)
{
	enum doca_verbs_qp_state now = state_of(qp), next = a->next_state;
	if (!(mask & ATTR(NEXT_STATE)) || mask & ~KNOWN)
		return REFUSE(DOCA_ERROR_INVALID_VALUE,
			      "mask %#x lacks NEXT_STATE (%#x), or has bits other than %#x",
			      (unsigned)mask, (unsigned)ATTR(NEXT_STATE), (unsigned)KNOWN);
	int missing = required[next] & ~mask;
	if (missing)
		return REFUSE(DOCA_ERROR_INVALID_VALUE, "mask %#x lacks %#x, which %s requires",
			      (unsigned)mask, (unsigned)missing, state_names[next]);
	if (mask & ATTR(CURRENT_STATE) && a->current_state != now)
		return REFUSE(DOCA_ERROR_BAD_STATE, "queue pair %u is in %s, not in %s", qp->number,
			      state_names[now], state_names[a->current_state]);
	bool any = next == DOCA_VERBS_QP_STATE_RST || next == DOCA_VERBS_QP_STATE_ERR;
	if (!any && (next != now + 1 || now == DOCA_VERBS_QP_STATE_ERR))
		return REFUSE(DOCA_ERROR_BAD_STATE, "queue pair %u cannot change from %s to %s",
			      qp->number, state_names[now], state_names[next]);
	if (mask & ATTR(AH_ATTR) && !object_is(a->ah_attr, OBJECT_VERBS_AH_ATTR))
		return REFUSE(DOCA_ERROR_INVALID_VALUE, "%p is not attributes of an address",
			      (void *)a->ah_attr);
	return DOCA_SUCCESS;
}

/* Copies the attributes in the mask. */
static void apply(struct doca_verbs_qp *qp, const struct doca_verbs_qp_attr *from, int mask)
{
	struct doca_verbs_qp_attr *to = &qp->attr;
#define APPLY(bit, name)      \
	if (mask & ATTR(bit)) \
	to->name = from->name
	APPLY(ALLOW_REMOTE_WRITE, allow_remote_write);
	APPLY(ALLOW_REMOTE_READ, allow_remote_read);
	APPLY(PKEY_INDEX, pkey_index);
	APPLY(MIN_RNR_TIMER, min_rnr_timer);
	APPLY(PORT_NUM, port_num);
	APPLY(PATH_MTU, path_mtu);
	APPLY(RQ_PSN, rq_psn);
	APPLY(SQ_PSN, sq_psn);
	APPLY(DEST_QP_NUM, dest_qp_num);
	APPLY(ACK_TIMEOUT, ack_timeout);
	APPLY(RETRY_CNT, retry_cnt);
	APPLY(RNR_RETRY, rnr_retry);
	APPLY(ATOMIC_MODE, atomic_mode);
	APPLY(MAX_QP_RD_ATOMIC, max_rd_atomic);
	APPLY(MAX_DEST_RD_ATOMIC, max_dest_rd_atomic);
#undef APPLY
	if (mask & ATTR(AH_ATTR))
		qp->peer = from->ah_attr->gid;
}

doca_error_t doca_verbs_qp_modify(struct doca_verbs_qp *verbs_qp,
				  struct doca_verbs_qp_attr *qp_attr, int attr_mask)
{
	CHECK_QP(verbs_qp);
	CHECK_OBJECT(qp_attr, OBJECT_VERBS_QP_ATTR, "attributes of a queue pair");
	TRY(check_modify(verbs_qp, qp_attr, attr_mask));
	struct doca_verbs_qp_attr *a = &verbs_qp->attr;
	apply(verbs_qp, qp_attr, attr_mask);
	dg_nic_address peer = {.qpn = a->dest_qp_num};
	memcpy(peer.gid, verbs_qp->peer.raw, sizeof peer.gid);
	uint32_t access = DG_NIC_LOCAL_WRITE | (a->allow_remote_write ? DG_NIC_REMOTE_WRITE : 0) |
			  (a->allow_remote_read ? DG_NIC_REMOTE_READ : 0) |
			  (a->atomic_mode ? DG_NIC_REMOTE_ATOMIC : 0);
	int rc = softdoca_nic.qp_modify(verbs_qp->qp, nic_states[qp_attr->next_state], &peer,
					access);
	if (rc)
		return softdoca_failed(__func__, rc);
	verbs_qp->state = qp_attr->next_state;
	if (verbs_qp->state == DOCA_VERBS_QP_STATE_RST)
		work_reset(verbs_qp);
	return DOCA_SUCCESS;
}

doca_error_t doca_verbs_qp_query(struct doca_verbs_qp *verbs_qp, struct doca_verbs_qp_attr *qp_attr,
				 struct doca_verbs_qp_init_attr *init_attr, int *attr_mask)
{
	CHECK_QP(verbs_qp);
	if (qp_attr) {
		CHECK_OBJECT(qp_attr, OBJECT_VERBS_QP_ATTR, "attributes of a queue pair");
		struct object o = qp_attr->o;
		struct doca_verbs_ah_attr *ah = qp_attr->ah_attr;
		*qp_attr = verbs_qp->attr;
		qp_attr->o = o;
		qp_attr->ah_attr = ah;
		if (object_is(ah, OBJECT_VERBS_AH_ATTR))
			ah->gid = verbs_qp->peer;
		qp_attr->current_state = qp_attr->next_state = state_of(verbs_qp);
	}
	if (init_attr) {
		CHECK_OBJECT(init_attr, OBJECT_VERBS_QP_INIT_ATTR,
			     "attributes of a new queue pair");
		struct object o = init_attr->o;
		*init_attr = verbs_qp->init;
		init_attr->o = o;
	}
	if (attr_mask)
		*attr_mask = KNOWN;
	return DOCA_SUCCESS;
}

/* ---- what device code needs ---- */

static bool is_qp(const char *func, const struct doca_verbs_qp *qp)
{
	return object_is(qp, OBJECT_VERBS_QP) ||
	       REFUSE_FOR(func, false, "%p is not a queue pair", (const void *)qp);
}

uint32_t doca_verbs_qp_get_qpn(const struct doca_verbs_qp *verbs_qp)
{
	return is_qp(__func__, verbs_qp) ? verbs_qp->number : 0;
}

void doca_verbs_qp_get_wq(const struct doca_verbs_qp *verbs_qp, void **sq_buf,
			  uint32_t *sq_num_entries, void **rq_buf, uint32_t *rq_num_entries,
			  uint32_t *rwqe_size_bytes)
{
	if (!is_qp(__func__, verbs_qp))
		return;
	if (sq_buf)
		*sq_buf = verbs_qp->send_ring;
	if (sq_num_entries)
		*sq_num_entries = verbs_qp->init.sq_wr;
	if (rq_buf)
		*rq_buf = verbs_qp->receive_ring;
	if (rq_num_entries)
		*rq_num_entries = verbs_qp->init.rq_wr;
	if (rwqe_size_bytes)
		*rwqe_size_bytes = verbs_qp->init.receive_max_sges * SGE_BYTES;
}

void *doca_verbs_qp_get_dbr_addr(const struct doca_verbs_qp *verbs_qp)
{
	return is_qp(__func__, verbs_qp) ? verbs_qp->record : NULL;
}

void *doca_verbs_qp_get_uar_addr(const struct doca_verbs_qp *verbs_qp)
{
	return is_qp(__func__, verbs_qp) ? verbs_qp->doorbell : NULL;
}
