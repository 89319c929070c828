// SPDX-License-Identifier: Apache-2.0
/* Queue pairs: opening, changing their state, closing. */
#include <stdlib.h>

#include "nic.h"

static const char *state_text(uint32_t state)
{
	static const char *const texts[] = {"RESET", "INIT", "RTR", "RTS", "?", "?", "ERROR"};
	return state <= DG_NIC_ERROR ? texts[state] : "?";
}

static int check_entries(const char *what, uint32_t entries, uint32_t least)
{
	if (entries >= least && !(entries & (entries - 1)) && entries <= DG_NIC_ENTRIES_MAX)
		return 0;
	return dg_fail(EINVAL, "a queue pair has %u %s entries; it is a power of two from %u to %d",
		       entries, what, least, DG_NIC_ENTRIES_MAX);
}

static int check_receives(const dg_nic_qp_config *c)
{
	if (!c->receive_entries)
		return 0;
	if (!c->receive_ring || (uintptr_t)c->receive_ring % WQE_SEGMENT)
		return dg_fail(EINVAL, "the receive ring is at %p; it needs an address that is a "
				       "multiple of %d",
			       c->receive_ring, WQE_SEGMENT);
	if (!c->receive_sges || c->receive_sges & (c->receive_sges - 1) || c->receive_sges > DG_NIC_SGES)
		return dg_fail(EINVAL, "a receive has %u data segments; it is a power of two up to %d",
			       c->receive_sges, DG_NIC_SGES);
	if (!c->record || !c->receive_cq)
		return dg_fail(EINVAL, "a queue pair with receive entries needs a doorbell record and "
				       "a CQ for receives");
	return 0;
}

static int check_srq(const dg_nic_qp_config *c, const dg_nic *n)
{
	if (c->srq->nic == n && c->srq->r.pd == c->pd && c->receive_cq && !c->receive_entries && !c->srq->cq)
		return 0;
	return dg_fail(EINVAL,
		       "a shared receive queue, which is not for XRC, needs queue pairs of its NIC and protection "
		       "domain (%u, here %u), with a CQ for receives and no receive entries (%u)",
		       c->srq->r.pd, c->pd, c->receive_entries);
}

/* Takes the receive queue of another queue pair into the configuration, if it shares one. */
static int take_receives(dg_nic_qp_config *c, const dg_nic *n)
{
	const struct dg_nic_qp *of = c->receives_of;
	if (c->srq)
		return check_srq(c, n);
	if (!of)
		return 0;
	if (c->receive_entries || of->nic != n || of->rq != &of->own || !of->c.receive_entries ||
	    of->c.pd != c->pd || of->state == DG_NIC_ERROR)
		return dg_fail(EINVAL,
			       "queue pair %#x (%s) has no receives that this one can share: it needs a ring of "
			       "its own, the same NIC and the same protection domain (%u, here %u), no error, "
			       "and this one no receive entries (%u)",
			       of->qpn, state_text(of->state), of->c.pd, c->pd, c->receive_entries);
	c->receive_ring = of->c.receive_ring;
	c->receive_entries = of->c.receive_entries;
	c->receive_sges = of->c.receive_sges;
	c->receive_cq = of->c.receive_cq;
	return 0;
}

static int check_transport(uint32_t transport)
{
	return transport <= DG_NIC_XRC_RECEIVE
		       ? 0
		       : dg_fail(EINVAL, "transport %u is unknown; they are 0 to %d", transport,
				 DG_NIC_XRC_RECEIVE);
}

static int check_mode(uint32_t mode)
{
	return mode <= DG_NIC_NO_RECORD
		       ? 0
		       : dg_fail(EINVAL, "doorbell mode %u is unknown; the modes are 0 to %d", mode,
				 DG_NIC_NO_RECORD);
}

static int check_config(const dg_nic *n, const dg_nic_qp_config *c)
{
	if (!c->send_ring || (uintptr_t)c->send_ring % WQE_BLOCK)
		return dg_fail(EINVAL, "the send ring is at %p; it needs an address that is a multiple "
				       "of %d",
			       c->send_ring, WQE_BLOCK);
	if (c->transport == DG_NIC_XRC_RECEIVE ? c->send_cq || c->receive_cq || c->receive_entries || c->srq
					       : !c->send_cq)
		return dg_fail(EINVAL, "a queue pair needs a CQ for sends, but one that only receives from queues "
				       "for XRC has no CQ and no receives of its own");
	if ((c->send_cq && c->send_cq->nic != n) || (c->receive_cq && c->receive_cq->nic != n))
		return dg_fail(EINVAL, "the CQs of a queue pair must be of the same NIC");
	int rc = check_mode(c->doorbell_mode);
	if (!rc)
		rc = check_transport(c->transport);
	if (!rc)
		rc = check_entries("send", c->send_entries, 1);
	if (rc)
		return rc;
	return check_entries("receive", c->receive_entries, 0) ? -EINVAL : check_receives(c);
}

/* Takes a free box. Returns its index, or DG_NIC_QPS. */
static uint32_t free_box(struct dg_nic *n)
{
	for (uint32_t i = 0; i < DG_NIC_QPS; i++) {
		n->next_qp = (n->next_qp + 1) % DG_NIC_QPS;
		if (!atomic_load_explicit(&n->table->boxes[n->next_qp].qpn, memory_order_relaxed))
			return n->next_qp;
	}
	return DG_NIC_QPS;
}

/* Stores the queue pair's state and counts, as others see them. */
static void write_box(struct dg_nic_qp *qp)
{
	struct nic_box *b = qp->box;
	uint64_t gid[2];
	memcpy(gid, qp->address.gid, sizeof gid);
	atomic_store_explicit(&b->access, qp->access, memory_order_relaxed);
	atomic_store_explicit(&b->pd, qp->c.pd, memory_order_relaxed);
	atomic_store_explicit(&b->inline_receive, qp->c.inline_receive, memory_order_relaxed);
	atomic_store_explicit(&b->receive_entries, qp->rq->entries, memory_order_relaxed);
	atomic_store_explicit(&b->rnr_timer, qp->rnr_timer, memory_order_relaxed);
	atomic_store_explicit(&b->peer_qpn, qp->address.qpn, memory_order_relaxed);
	atomic_store_explicit(&b->peer_gid[0], gid[0], memory_order_relaxed);
	atomic_store_explicit(&b->peer_gid[1], gid[1], memory_order_relaxed);
	if (qp->state == DG_NIC_RESET) {
		atomic_store_explicit(&b->posted, 0, memory_order_relaxed);
		atomic_store_explicit(&b->consumed, 0, memory_order_relaxed);
		atomic_store_explicit(&b->delivered, 0, memory_order_relaxed);
		atomic_store_explicit(&b->wants, 0, memory_order_relaxed);
		atomic_store_explicit(&b->dry, 0, memory_order_relaxed);
		atomic_store_explicit(&b->srq, 0, memory_order_relaxed);
		/* Release: a peer that sees it does not see an older `delivered`. */
		atomic_fetch_add_explicit(&b->resets, 1, memory_order_release);
	}
	/* Release: a peer that sees the state also sees the rest. */
	atomic_store_explicit(&b->state, qp->state, memory_order_release);
}

/* Adds the queue pair to its NIC. Call with the lock held. */
static int add(struct dg_nic *n, struct dg_nic_qp *qp)
{
	const uint32_t index = free_box(n);
	if (index == DG_NIC_QPS)
		return dg_fail(EMFILE, "the NIC has %d queue pairs, which is the maximum: close some",
			       DG_NIC_QPS);
	const int rc = dg_nic_table_reserve(n, &n->table->boxes[index], sizeof n->table->boxes[index]);
	if (rc)
		return rc;
	/* 24 bits, and not one of mlx5's special numbers 0 and 1. */
	uint32_t *generation = &n->box_generations[index];
	const uint32_t bits = (n->is_part ? NIC_PART_SHIFT : 24) - NIC_QP_BITS;
	*generation = *generation % ((1u << bits) - 1) + 1;
	qp->qpn = n->part << NIC_PART_SHIFT | *generation << NIC_QP_BITS | index;
	qp->info.qpn = qp->qpn;
	qp->box = &n->table->boxes[index];
	write_box(qp);
	atomic_store_explicit(&qp->box->qpn, qp->qpn, memory_order_release);
	if (qp->c.send_cq)
		qp->c.send_cq->users++;
	if (qp->c.receive_cq)
		qp->c.receive_cq->users++;
	if (qp->rq != &qp->own)
		qp->rq->sharers++;
	atomic_store_explicit(&n->table->queue_pairs, ++n->n_qps, memory_order_relaxed);
	if (qp->c.transport == DG_NIC_UD) {
		n->datagram_qps[index] = qp;
		n->n_datagram_qps++;
		sem_post(&n->resolve); /* from now on it searches for parts */
	}
	qp->next = n->qps;
	n->qps = qp;
	if (n->gpu)
		sem_post(&n->resolve);
	return 0;
}

static void take_retries(struct dg_nic_qp *qp, const dg_nic_retries *r)
{
	qp->patience_ns = r->timeout ? (1ull + r->retries) * (4096ull << r->timeout) : UINT64_MAX;
	qp->rnr_retries = r->rnr_retries;
	qp->rnr_timer = r->rnr_timer;
}

int dg_nic_qp_open(dg_nic *n, const dg_nic_qp_config *cfg, dg_nic_qp **out)
{
	*out = NULL;
	dg_nic_qp_config c = *cfg;
	int rc = dg_nic_check_process(n);
	if (!rc)
		rc = take_receives(&c, n);
	if (!rc)
		rc = check_config(n, &c);
	if (rc)
		return rc;
	struct dg_nic_qp *qp = calloc(1, sizeof *qp);
	if (!qp)
		return dg_fail(ENOMEM, "out of memory for a queue pair");
	qp->nic = n;
	qp->x = (struct executor){.engine = &n->engine, .flights = qp->flights, .inline_able = true};
	qp->active = &qp->x;
	qp->c = c;
	qp->own = (struct nic_receives){
		.ring = c.receive_ring,
		.entries = c.receive_entries,
		.sges = c.receive_sges,
		.pd = c.pd,
		.record = c.record,
	};
	qp->rq = c.srq ? &c.srq->r : c.receives_of ? &c.receives_of->own : &qp->own;
	pthread_mutex_init(&qp->modifying, NULL);
	qp->flush_end = UINT64_MAX;
	take_retries(qp, &(dg_nic_retries){.timeout = 17, .retries = 7, .rnr_retries = 7});
	rc = c.transport == DG_NIC_UD ? dg_nic_parts_open(n) : 0;
	if (!rc)
		rc = dg_queue_open_for_kernels(n->engine.dev, EXEC_DEPTH, n, &qp->x.q);
	if (!rc) {
		dg_poller_lock(&n->poller);
		rc = add(n, qp);
		dg_poller_unlock(&n->poller);
	}
	if (rc) {
		if (qp->x.q)
			dg_queue_free(qp->x.q);
		free(qp);
		return rc;
	}
	*out = qp;
	return 0;
}

static int check_words(const dg_nic_qp_config *c)
{
	const bool has = c->doorbell_mode == DG_NIC_RECORD  ? c->record != NULL
			 : c->doorbell_mode == DG_NIC_PROXY ? c->doorbell != NULL
							    : c->producer != NULL;
	if ((uintptr_t)c->doorbell % 8 || (uintptr_t)c->producer % 8 || (uintptr_t)c->record % 4)
		return dg_fail(EINVAL, "a doorbell (%p) or producer index (%p) is not at a multiple of "
				       "8, or a record (%p) not at one of 4",
			       (void *)c->doorbell, (void *)c->producer, (void *)c->record);
	return has ? 0
		   : dg_fail(EINVAL, "a queue pair with doorbell mode %u lacks the word that this mode "
				     "reads",
			     c->doorbell_mode);
}

static int check_sharers(const struct dg_nic_qp *qp)
{
	return qp->own.sharers ? dg_fail(EBUSY, "%u other queue pairs share the receives of queue pair %#x",
					 qp->own.sharers, qp->qpn)
			       : 0;
}

/* Whether the change is one that a queue pair makes. */
static int check_change(const struct dg_nic_qp *qp, uint32_t to, const dg_nic_address *peer)
{
	const bool valid = to == DG_NIC_RESET || to == DG_NIC_ERROR ||
			   (to <= DG_NIC_RTS && (qp->state + 1 == to ||
						 (qp->state == to && to != DG_NIC_RTR)));
	if (!valid)
		return dg_fail(EINVAL,
			       "queue pair %#x is in state %s and cannot go to %s (%u): the order is "
			       "RESET, INIT, RTR, RTS; from any state to ERROR or RESET",
			       qp->qpn, state_text(qp->state), state_text(to), to);
	if (to == DG_NIC_RESET)
		return check_sharers(qp);
	if (to != DG_NIC_RTR)
		return 0;
	if (qp->c.transport != DG_NIC_UD && (!peer || !peer->qpn || peer->qpn >> 24))
		return dg_fail(EINVAL, "a queue pair that goes to RTR needs a peer, whose number has 24 "
				       "bits; it is %#x",
			       peer ? peer->qpn : 0);
	return check_words(&qp->c);
}

/* Sets everything to the start, once nothing is in flight. Call with the lock held. */
static void clear(struct dg_nic_qp *qp)
{
	const uint32_t qpn = qp->qpn;
	qp->taken = qp->completed = qp->sent = qp->observed = qp->fetched = 0;
	dg_nic_return_receives(qp);
	qp->posted = qp->received = 0;
	if (qp->c.transport == DG_NIC_XRC_RECEIVE)
		dg_nic_srq_attach(qp, NULL);
	qp->own.end = qp->own.taken = qp->own.done = 0;
	qp->flush_end = UINT64_MAX;
	qp->not_ready_ns = qp->dry_ns = qp->asked = 0;
	qp->wants = qp->dry = 0;
	qp->last_reached = false;
	qp->active->head = qp->active->tail = 0;
	qp->address = (dg_nic_address){.qpn = 0};
	qp->far = NULL;
	qp->wanted_key = 0;
	qp->info = (dg_nic_qp_info){.qpn = qpn};
	write_box(qp);
}

/* Stops the queue pair and waits until nothing of it is in flight. */
static void reset(struct dg_nic_qp *qp)
{
	struct dg_nic *n = qp->nic;
	uint32_t naps = 0;
	dg_poller_lock(&n->poller);
	qp->state = DG_NIC_RESET;
	while (qp_flies(qp)) {
		dg_poller_unlock(&n->poller);
		life_nap(&naps);
		dg_poller_lock(&n->poller);
	}
	clear(qp);
	dg_poller_unlock(&n->poller);
	dg_nic_peer_leave(qp);
}

/* Waits until the peer's NIC has taken the messages that this queue pair has put into its box,
 * whose entries are complete. Call without the lock. */
static void let_peer_take(struct dg_nic_qp *qp)
{
	struct dg_nic *n = qp->nic;
	const uint64_t end = now_ns() + NIC_CLOSE_NS;
	struct nic_fault f;
	uint32_t naps = 0;
	dg_poller_lock(&n->poller);
	while (qp->state == DG_NIC_RTS && now_ns() < end &&
	       (qp->c.transport == DG_NIC_UD
			? dg_nic_datagrams_wait(n)
			: dg_nic_peer_ready(qp, &f) &&
				  atomic_load_explicit(&qp->far->consumed, memory_order_relaxed) < qp->sent)) {
		dg_poller_unlock(&n->poller);
		life_nap(&naps);
		dg_poller_lock(&n->poller);
	}
	dg_poller_unlock(&n->poller);
}

static int change_state(struct dg_nic_qp *qp, uint32_t to, const dg_nic_address *peer,
			uint32_t access)
{
	struct dg_nic *n = qp->nic;
	if (to == DG_NIC_RTR && qp->c.transport != DG_NIC_UD) {
		const int rc = dg_nic_peer_connect(qp, peer);
		if (rc)
			return rc;
	}
	if (to == DG_NIC_ERROR)
		let_peer_take(qp);
	dg_poller_lock(&n->poller);
	if (to == DG_NIC_INIT || (access && to <= DG_NIC_RTS))
		qp->access = access;
	if (to == DG_NIC_RTR && peer)
		qp->address = *peer;
	if (to == DG_NIC_RTR && qp->far) { /* no datagrams */
		/* In this order: messages after a reset that comes in between are not ignored. The peer sends
		 * none for this connection before it sees RTR. */
		qp->ignored = atomic_load_explicit(&qp->far->resets, memory_order_acquire);
		if (!atomic_load_explicit(&qp->far->delivered, memory_order_acquire) &&
		    !atomic_load_explicit(&qp->far->consumed, memory_order_acquire))
			qp->ignored = UINT64_MAX;
	}
	if (to == DG_NIC_ERROR)
		dg_nic_qp_fail(qp, NULL, 0);
	qp->state = to;
	write_box(qp);
	dg_poller_unlock(&n->poller);
	return 0;
}

static int modify(struct dg_nic_qp *qp, uint32_t state, const dg_nic_address *peer, uint32_t access)
{
	dg_poller_lock(&qp->nic->poller);
	const int rc = check_change(qp, state, peer);
	dg_poller_unlock(&qp->nic->poller);
	if (rc)
		return rc;
	if (state != DG_NIC_RESET)
		return change_state(qp, state, peer, access);
	reset(qp);
	return 0;
}

int dg_nic_qp_modify(dg_nic_qp *qp, uint32_t state, const dg_nic_address *peer, uint32_t access)
{
	TRY(dg_nic_check_process(qp->nic));
	pthread_mutex_lock(&qp->modifying);
	int rc = modify(qp, state, peer, access);
	pthread_mutex_unlock(&qp->modifying);
	return rc;
}

int dg_nic_qp_set_doorbell(dg_nic_qp *qp, uint32_t mode, uint64_t *doorbell, uint64_t *producer)
{
	struct dg_nic *n = qp->nic;
	TRY(dg_nic_check_process(n));
	dg_nic_qp_config c = qp->c;
	c.doorbell_mode = mode;
	c.doorbell = doorbell;
	c.producer = producer;
	int rc = check_mode(mode);
	if (!rc)
		rc = check_words(&c);
	if (rc)
		return rc;
	dg_poller_lock(&n->poller);
	if (qp->state >= DG_NIC_RTR)
		rc = dg_fail(EINVAL, "queue pair %#x is in state %s: its doorbell is set before RTR",
			     qp->qpn, state_text(qp->state));
	else
		qp->c = c;
	dg_poller_unlock(&n->poller);
	return rc;
}

int dg_nic_qp_set_retries(dg_nic_qp *qp, const dg_nic_retries *r)
{
	TRY(dg_nic_check_process(qp->nic));
	if (r->timeout > 31 || r->retries > 7 || r->rnr_retries > 7 || r->rnr_timer > 31)
		return dg_fail(EINVAL,
			       "a queue pair has timeout %u, retries %u, RNR retries %u and timer %u; they are "
			       "at most 31, 7, 7 and 31",
			       r->timeout, r->retries, r->rnr_retries, r->rnr_timer);
	dg_poller_lock(&qp->nic->poller);
	take_retries(qp, r);
	write_box(qp);
	dg_poller_unlock(&qp->nic->poller);
	return 0;
}

int dg_nic_qp_set_q_key(dg_nic_qp *qp, uint32_t q_key)
{
	TRY(dg_nic_check_process(qp->nic));
	dg_poller_lock(&qp->nic->poller);
	qp->q_key = q_key;
	dg_poller_unlock(&qp->nic->poller);
	return 0;
}

int dg_nic_qp_info_get(dg_nic_qp *qp, dg_nic_qp_info *out)
{
	struct dg_nic *n = qp->nic;
	const int rc = dg_nic_check_process(n);
	if (rc)
		return rc;
	dg_poller_lock(&n->poller);
	*out = qp->info;
	out->state = qp->state;
	out->taken = qp->taken;
	out->completed = qp->completed;
	out->posted_receives = qp->rq->end;
	dg_poller_unlock(&n->poller);
	return 0;
}

/* Takes the queue pair out of its NIC: the thread does not serve it any more. Call with the lock
 * held. */
static void take_out(struct dg_nic_qp *qp)
{
	struct dg_nic *n = qp->nic;
	struct dg_nic_qp **at = &n->qps;
	while (*at != qp)
		at = &(*at)->next;
	*at = qp->next;
	atomic_store_explicit(&n->table->queue_pairs, --n->n_qps, memory_order_relaxed);
	if (qp->c.transport == DG_NIC_UD) {
		n->datagram_qps[qp_index(qp->qpn)] = NULL;
		n->n_datagram_qps--;
	}
	atomic_store_explicit(&qp->box->qpn, 0, memory_order_release);
	dg_nic_windows_leave(qp);
	if (qp->c.send_cq)
		qp->c.send_cq->users--;
	if (qp->c.receive_cq)
		qp->c.receive_cq->users--;
	dg_nic_return_receives(qp);
	if (qp->rq != &qp->own)
		qp->rq->sharers--;
}

/* Gives the NIC back the staging memory of its operations, once the provider has ended them. */
static void return_staging(struct dg_nic_qp *qp)
{
	struct dg_nic *n = qp->nic;
	dg_poller_lock(&n->poller);
	dg_exec_end(qp->active);
	dg_poller_unlock(&n->poller);
}

int dg_nic_qp_close(dg_nic_qp *qp)
{
	struct dg_nic *n = qp->nic;
	if (dg_nic_check_process(n))
		return 0;
	dg_poller_lock(&n->poller);
	const int rc = check_sharers(qp);
	dg_poller_unlock(&n->poller);
	if (rc)
		return rc;
	let_peer_take(qp);
	dg_poller_lock(&n->poller);
	take_out(qp);
	dg_poller_unlock(&n->poller);
	dg_queue_close(qp->x.q);
	if (qp->gpu.q)
		dg_queue_close(qp->gpu.q);
	if (qp->x.soft_q)
		dg_queue_free(qp->x.soft_q);
	if (qp->gpu.soft_q)
		dg_queue_free(qp->gpu.soft_q);
	qp->gpu.soft_q = NULL;
	return_staging(qp); /* no leg is in flight any more */
	dg_nic_peer_leave(qp);
	dg_nic_gpu_free(&qp->gpu);
	dg_queue_free(qp->x.q);
	pthread_mutex_destroy(&qp->modifying);
	free(qp);
	return 0;
}
