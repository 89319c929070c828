// SPDX-License-Identifier: Apache-2.0
/* Shared receive queues: opening and closing. Queue pairs publish their receives (nic_receive.c).
 *
 * XRC: a queue pair that receives publishes the receives of one queue at a time, that which the peer's entry names.
 * The sender stores the number in its box, and waits until the receiver has stored the same; before that, all
 * its messages were delivered, so that no receive of the queue of before is in use. */
#include <stdlib.h>

#include "nic.h"

static int check_config(const dg_nic_srq_config *c, const dg_nic *nic)
{
	const uint32_t n = c->entries;
	if (c->cq && (c->cq->nic != nic || !c->number || c->number >> 24))
		return dg_fail(EINVAL, "a shared receive queue for XRC needs a CQ of the same NIC, and a number of 24 "
				       "bits; it is %#x",
			       c->number);
	if (!c->ring || (uintptr_t)c->ring % WQE_SEGMENT)
		return dg_fail(EINVAL, "the ring of a shared receive queue is at %p; it needs an address that is "
				       "a multiple of %d",
			       c->ring, WQE_SEGMENT);
	if (!n || n & (n - 1) || n > DG_NIC_ENTRIES_MAX)
		return dg_fail(EINVAL, "a shared receive queue has %u entries; it is a power of two up to %d", n,
			       DG_NIC_ENTRIES_MAX);
	if (!c->sges || c->sges > DG_NIC_SGES)
		return dg_fail(EINVAL, "a shared receive has %u data segments; it has 1 to %d", c->sges,
			       DG_NIC_SGES);
	if (!c->record || (uintptr_t)c->record % 4)
		return dg_fail(EINVAL, "the doorbell record of a shared receive queue is at %p; it needs an "
				       "address that is a multiple of 4",
			       (void *)c->record);
	return 0;
}

int dg_nic_srq_open(dg_nic *n, const dg_nic_srq_config *cfg, dg_nic_srq **out)
{
	*out = NULL;
	int rc = dg_nic_check_process(n);
	if (!rc)
		rc = check_config(cfg, n);
	if (rc)
		return rc;
	struct dg_nic_srq *s = calloc(1, sizeof *s);
	uint16_t *returned = calloc(cfg->entries, sizeof *returned);
	if (!s || !returned) {
		free(s);
		free(returned);
		return dg_fail(ENOMEM, "out of memory for a shared receive queue");
	}
	s->nic = n;
	s->number = cfg->number;
	s->domain = cfg->domain;
	s->user_index = cfg->user_index;
	s->cq = cfg->cq;
	s->r = (struct nic_receives){
		.ring = cfg->ring,
		.entries = cfg->entries,
		.sges = cfg->sges,
		.record = cfg->record,
		.pd = cfg->pd,
		.is_list = true,
		.returned = returned,
		.async_fd = cfg->async_fd,
		.event = cfg->event,
	};
	if (s->cq) {
		dg_poller_lock(&n->poller);
		s->cq->users++;
		s->next = n->srqs;
		n->srqs = s;
		dg_poller_unlock(&n->poller);
	}
	*out = s;
	return 0;
}

void dg_nic_return_receives(struct dg_nic_qp *qp)
{
	struct nic_receives *rq = qp->rq;
	for (; rq != &qp->own && qp->posted > qp->received; qp->posted--)
		if (rq->is_list)
			rq->returned[rq->n_returned++] = qp->places[(qp->posted - 1) % NIC_WINDOW];
		else
			rq->done++;
}

void dg_nic_srq_attach(struct dg_nic_qp *qp, struct dg_nic_srq *s)
{
	struct nic_box *b = qp->box;
	dg_nic_return_receives(qp);
	if (qp->rq != &qp->own) {
		qp->rq->sharers--;
		qp->c.receive_cq->users--;
	}
	qp->rq = s ? &s->r : &qp->own;
	qp->c.receive_cq = s ? s->cq : NULL;
	qp->c.user_index = s ? s->user_index : 0;
	qp->c.pd = s ? s->r.pd : 0;
	if (s) {
		s->r.sharers++;
		s->cq->users++;
	}
	atomic_store_explicit(&b->pd, qp->c.pd, memory_order_relaxed);
	atomic_store_explicit(&b->receive_entries, qp->rq->entries, memory_order_relaxed);
	atomic_store_explicit(&b->posted, qp->posted, memory_order_relaxed);
}

bool dg_nic_srq_follow(struct dg_nic_qp *qp)
{
	if (qp->state == DG_NIC_ERROR) /* which may have no peer */
		return false;
	const uint32_t has = atomic_load_explicit(&qp->box->srq, memory_order_relaxed) & ~NIC_SRQ_UNKNOWN;
	const uint32_t wanted = atomic_load_explicit(&qp->far->srq, memory_order_acquire) & 0xffffff;
	struct dg_nic_srq *s = qp->nic->srqs;
	if (wanted == has || !dg_nic_is_peer(qp) ||
	    atomic_load_explicit(&qp->far->delivered, memory_order_relaxed) != qp->received)
		return false;
	while (s && (s->number != wanted || s->domain != qp->c.domain))
		s = s->next;
	dg_nic_srq_attach(qp, s);
	/* Release: a sender that sees this also sees what attaching has stored. */
	atomic_store_explicit(&qp->box->srq, s ? wanted : wanted | NIC_SRQ_UNKNOWN, memory_order_release);
	return true;
}

int dg_nic_srq_request(struct dg_nic_qp *qp)
{
	const uint32_t wanted = qp->nic->wqe.srq;
	const uint32_t has = atomic_load_explicit(&qp->far->srq, memory_order_acquire);
	if (!wanted || has == (wanted | NIC_SRQ_UNKNOWN))
		return nic_fault(qp->nic, SYNDROME_REMOTE_REQUEST,
				 "shared receive queue, unknown to the peer's XRC domain", wanted, 0);
	if (has == wanted) {
		qp->far_pd = atomic_load_explicit(&qp->far->pd, memory_order_relaxed);
		return EXECUTED;
	}
	if (qp_flies(qp))
		return nic_wait(qp, DG_NIC_WAITS_BYTES);
	/* Release: the messages that were delivered are seen with it. */
	atomic_store_explicit(&qp->box->srq, wanted, memory_order_release);
	return nic_wait(qp, DG_NIC_WAITS_PEER);
}

void dg_nic_check_limit(struct nic_receives *rq)
{
	const uint32_t posted = be32toh(atomic_load_explicit((_Atomic uint32_t *)rq->record, memory_order_acquire));
	if ((uint16_t)(posted - (uint32_t)rq->taken) + rq->n_returned >= rq->limit)
		return;
	rq->limit = 0;
	dg_nic_async(rq->async_fd, rq->event, DG_NIC_SRQ_LIMIT);
}

int dg_nic_srq_set_limit(dg_nic_srq *s, uint32_t limit)
{
	TRY(dg_nic_check_process(s->nic));
	if (limit >= s->r.entries)
		return dg_fail(EINVAL, "the limit of a shared receive queue is %u; it has room for %u receives",
			       limit, s->r.entries - 1);
	dg_poller_lock(&s->nic->poller);
	s->r.limit = limit;
	dg_nic_check_limit(&s->r);
	dg_poller_unlock(&s->nic->poller);
	return 0;
}

uint32_t dg_nic_srq_limit(dg_nic_srq *s)
{
	dg_poller_lock(&s->nic->poller);
	const uint32_t limit = s->r.limit;
	dg_poller_unlock(&s->nic->poller);
	return limit;
}

int dg_nic_srq_close(dg_nic_srq *s)
{
	struct dg_nic *n = s->nic;
	if (dg_nic_check_process(n))
		return 0;
	dg_poller_lock(&n->poller);
	if (s->cq) {
		struct dg_nic_srq **at = &n->srqs;
		while (*at != s)
			at = &(*at)->next;
		*at = s->next;
		s->cq->users--;
		for (struct dg_nic_qp *qp = n->qps; qp; qp = qp->next)
			if (qp->rq == &s->r) {
				atomic_store_explicit(&qp->box->srq, 0, memory_order_relaxed);
				dg_nic_srq_attach(qp, NULL);
			}
	}
	const uint32_t users = s->r.sharers;
	dg_poller_unlock(&n->poller);
	if (users)
		return dg_fail(EBUSY, "a shared receive queue is used by %u queue pairs: close them first", users);
	free(s->r.returned);
	free(s);
	return 0;
}
