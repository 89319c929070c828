// SPDX-License-Identifier: Apache-2.0
/*
 * The bytes of one entry. First all pieces are found and checked, against keys and rights; then this
 * thread copies them if the CPU reaches all of them and they are few, otherwise the provider does.
 */
#include "copy.h"
#include "nic.h"
#include "region.h"

int dg_nic_find_local(struct dg_nic_qp *qp, const struct nic_segment *s, uint32_t access,
		      struct nic_piece *p)
{
	struct dg_nic *n = qp->nic;
	p->size = s->size;
	p->local = NULL;
	p->bytes = (const char *)n->bytes + s->at;
	if (s->is_inline)
		return EXECUTED;
	const struct nic_key *k = nic_key_find(n, s->key);
	if (__builtin_expect(!k, 0))
		return nic_fault(n, SYNDROME_LOCAL_PROTECTION, "lkey, unknown", s->key, 0);
	if (k->pd != qp->c.pd)
		return nic_fault(n, SYNDROME_LOCAL_PROTECTION, "lkey of another protection domain", k->pd,
			    qp->c.pd);
	if ((k->access & access) != access)
		return nic_fault(n, SYNDROME_LOCAL_PROTECTION, "access of the lkey", k->access, access);
	if (!key_covers(k, s->address, s->size, &p->local_offset))
		return nic_fault(n, SYNDROME_LOCAL_PROTECTION, "local address, outside its key", s->address,
			    k->address + k->size);
	p->local = k;
	return EXECUTED;
}

int dg_nic_find_remote(struct dg_nic_qp *qp, uint32_t key, uint64_t address, uint64_t size,
		       uint32_t right, const struct nic_key **out, uint64_t *offset)
{
	struct dg_nic *n = qp->nic;
	bool waits = false;
	const struct nic_key *k = __builtin_expect(!qp->peer, 1) ? nic_key_find(n, key)
								 : dg_nic_peer_key(qp, key, &waits);
	if (qp->c.own_rights && !qp->peer)
		right = right == DG_NIC_REMOTE_READ ? 0 : DG_NIC_LOCAL_WRITE;
	if (waits)
		return nic_wait(qp, DG_NIC_WAITS_KEY);
	if (__builtin_expect(!k, 0))
		return nic_fault(n, SYNDROME_REMOTE_ACCESS, "rkey, unknown to the peer", key, 0);
	if (k->pd != qp->far_pd)
		return nic_fault(n, SYNDROME_REMOTE_ACCESS, "rkey of another protection domain", k->pd,
			    qp->far_pd);
	if ((k->access & right) != right)
		return nic_fault(n, SYNDROME_REMOTE_ACCESS, "access of the rkey", k->access, right);
	if (!key_covers(k, address, size, offset))
		return nic_fault(n, SYNDROME_REMOTE_ACCESS, "remote address, outside its key", address,
			    k->address + k->size);
	if (!k->remote.entry)
		return nic_fault(n, SYNDROME_REMOTE_ACCESS, "rkey whose memory cannot be imported", key, 0);
	*out = k;
	return EXECUTED;
}

void dg_nic_leave_gate(struct dg_nic_qp *qp)
{
	if (qp->gate)
		gate_leave(qp->gate, 1);
	qp->gate = NULL;
}

/* Enters the gate of the remote region and checks that both regions are open. The local region needs
 * no gate: its closer waits until this thread has left the queue. */
int dg_nic_enter_piece(struct dg_nic_qp *qp, const struct nic_piece *p, bool write)
{
	struct dg_nic *n = qp->nic;
	struct dg_region_entry *remote = p->remote->remote.entry;
	if (p->local) {
		struct dg_region_entry *local = p->local->local.entry;
		if (!region_is_open(p->local->local.id) || gate_revoked(local->gate))
			return nic_fault(n, SYNDROME_LOCAL_PROTECTION, "lkey of a closed region",
				    p->local->key, 0);
		if (!(local->access & (write ? DG_ACCESS_READ : DG_ACCESS_WRITE)))
			return nic_fault(n, SYNDROME_LOCAL_PROTECTION, "access of the lkey's region",
				    local->access, write ? DG_ACCESS_READ : DG_ACCESS_WRITE);
	}
	if (!region_is_open(p->remote->remote.id))
		return nic_fault(n, SYNDROME_REMOTE_ACCESS, "rkey of a closed region", p->remote->key, 0);
	if (qp->gate != remote->gate) {
		dg_nic_leave_gate(qp);
		gate_enter(remote->gate, 1);
		qp->gate = remote->gate;
	}
	if (gate_revoked(remote->gate))
		return nic_fault(n, SYNDROME_REMOTE_ACCESS, "rkey of a closed region", p->remote->key, 0);
	if (atomic_load_explicit(&remote->lost, memory_order_relaxed))
		return nic_fault(n, SYNDROME_RETRIES, "process of the peer, ended", 0, 0);
	return EXECUTED;
}

static int copy_here(struct dg_nic_qp *qp, uint32_t n, bool write)
{
	const struct nic_piece *pieces = qp->nic->pieces;
	for (uint32_t i = 0; i < n; i++) {
		const struct nic_piece *p = &pieces[i];
		const int rc = dg_nic_enter_piece(qp, p, write);
		if (rc != EXECUTED)
			return rc;
		char *to = write ? remote_at(p) : local_at(p);
		const char *from = write ? local_at(p) : remote_at(p);
		order_stores();
		if (p->size <= 64)
			dg_copy(to, from, p->size);
		else
			memmove(to, from, p->size); /* an entry may name overlapping ranges */
	}
	return EXECUTED;
}

/* The syndrome of a request that dg_resolve() refuses. */
static uint8_t refusal(int rc, const dg_wr *wr)
{
	uint64_t id;
	if (rc == -ESTALE)
		return dg_region_table_find(wr->local, &id) ? SYNDROME_REMOTE_ACCESS
							    : SYNDROME_LOCAL_PROTECTION;
	return rc == -EACCES || rc == -ERANGE ? SYNDROME_LOCAL_PROTECTION : SYNDROME_LOCAL_QP;
}

bool dg_nic_staging_take(struct dg_nic *n, struct nic_flight *f, uint32_t size)
{
	if (!f->staging) {
		struct staging_slot **free_slots = &n->free_slots[size > NIC_STAGING];
		f->staging = *free_slots;
		if (f->staging)
			*free_slots = f->staging->next;
	}
	return f->staging;
}

void dg_nic_staging_put(struct dg_nic *n, struct nic_flight *f)
{
	if (!f->staging)
		return;
	struct staging_slot **free_slots = &n->free_slots[f->staging->large];
	f->staging->next = *free_slots;
	*free_slots = f->staging;
	f->staging = NULL;
}

int dg_nic_resolve(struct dg_nic *n, struct dg_queue *q, uint32_t i, struct op_run *run)
{
	bool fresh;
	const int rc = dg_resolve(q, &n->wr[i], &q->scratch[i], run, &fresh);
	return rc ? nic_fault(n, refusal(rc, &n->wr[i]), "request, refused by the provider",
			      (uint64_t)-rc, 0)
		  : EXECUTED;
}

int dg_nic_post(struct dg_nic_qp *qp, struct nic_flight *f, uint32_t count)
{
	struct op_run run = {0};
	for (uint32_t i = 0; i < count; i++) {
		const int rc = dg_nic_resolve(qp->nic, qp->q, i, &run);
		if (rc != EXECUTED)
			return rc;
	}
	f->left = count;
	dg_queue_submit(qp->q, qp->q->scratch, qp->nic->wr, count, KIND_POLL, now_ns());
	return POSTED;
}

/* Has the provider copy n->pieces[0..count). */
static int post_pieces(struct dg_nic_qp *qp, struct nic_flight *f, uint32_t count, bool write)
{
	struct dg_nic *n = qp->nic;
	const struct nic_flight *before = flight_at(qp, qp->flight_tail - 1);
	const bool fence = n->wqe.flags & WQE_FENCE ||
			   (qp_flies(qp) && before->opcode != n->wqe.opcode);
	if (qp->bounced || !has_room(qp->q, count))
		return nic_wait(qp, DG_NIC_WAITS_BYTES);
	for (uint32_t i = 0; i < count; i++) {
		const struct nic_piece *p = &n->pieces[i];
		dg_wr *wr = &n->wr[i];
		*wr = (dg_wr){
			.user = qp->flight_tail,
			.remote = REGION_NAME(p->remote->remote.id),
			.remote_offset = p->remote_offset,
			.size = p->size,
			.op = write ? DG_WRITE : DG_READ,
			.flags = fence && !i ? DG_FENCE : 0,
		};
		if (p->local) {
			wr->local = REGION_NAME(p->local->local.id);
			wr->local_offset = p->local_offset;
			continue;
		}
		if (!dg_nic_staging_take(n, f, NIC_STAGING))
			return nic_wait(qp, DG_NIC_WAITS_BYTES);
		wr->local = n->staging_name;
		wr->local_offset = f->staging->offset + (uint64_t)(p->bytes - (char *)n->bytes);
		memcpy(n->staging + wr->local_offset, p->bytes, p->size);
	}
	return dg_nic_post(qp, f, count);
}

/* Whether the provider does not reach all remote memory. */
static bool must_bounce(const struct dg_nic *n, uint32_t count)
{
	for (uint32_t i = 0; i < count && n->dev->gpu; i++)
		if (by_exporter(n->pieces[i].remote->remote.entry))
			return true;
	return false;
}

int dg_nic_move(struct dg_nic_qp *qp, struct nic_flight *f, uint32_t count, bool write)
{
	struct dg_nic *n = qp->nic;
	bool here = !qp_flies(qp) && n->wqe.total <= NIC_COPY_MOST &&
		    (n->dev->ops->inline_copies || n->dev->gpu);
	for (uint32_t i = 0; i < count && here; i++)
		here = cpu_reaches(&n->pieces[i]);
	f->bytes = n->wqe.total;
	qp->pass_bytes += here ? n->wqe.total : 0;
	if (here)
		return copy_here(qp, count, write);
	if (must_bounce(n, count)) {
		f->kind = write ? FLIGHT_PUT : FLIGHT_GET;
		return dg_nic_bounce(qp, f, count);
	}
	const int rc = count ? post_pieces(qp, f, count, write) : EXECUTED;
	if (rc != POSTED)
		dg_nic_staging_put(n, f);
	return rc;
}

/* WRITE and READ: one remote range. */
int dg_nic_one_sided(struct dg_nic_qp *qp, struct nic_flight *f, uint32_t right)
{
	struct dg_nic *n = qp->nic;
	const struct nic_wqe *w = &n->wqe;
	const bool write = right == DG_NIC_REMOTE_WRITE;
	const struct nic_key *remote = NULL;
	uint64_t offset = 0;
	uint32_t count = 0;
	int rc = w->total ? dg_nic_find_remote(qp, w->rkey, w->remote, w->total, right, &remote, &offset)
			  : EXECUTED;
	if (rc == EXECUTED && !(qp->far_access & right))
		rc = nic_fault(n, SYNDROME_REMOTE_ACCESS, "access that the peer's queue pair grants",
			  qp->far_access, right);
	for (uint32_t i = 0; i < w->n_segments && rc == EXECUTED; i++) {
		struct nic_piece *p = &n->pieces[count];
		rc = dg_nic_find_local(qp, &w->segments[i], write ? 0 : DG_NIC_LOCAL_WRITE, p);
		p->remote = remote;
		p->remote_offset = offset;
		offset += p->size;
		count += p->size > 0;
	}
	return rc == EXECUTED ? dg_nic_move(qp, f, count, write) : rc;
}

/* WAIT: until a CQ has produced the CQE with this number. CQ counters have 24 bits. */
static int wait_entry(struct dg_nic_qp *qp)
{
	struct dg_nic *n = qp->nic;
	for (const struct dg_nic_cq *cq = n->cqs; cq; cq = cq->next)
		if (cq->number == n->wqe.cqn)
			return (int32_t)((uint32_t)(cq->produced - n->wqe.max_index) << 8) > 0
				       ? EXECUTED
				       : nic_wait(qp, DG_NIC_WAITS_WAIT);
	return nic_fault(n, SYNDROME_LOCAL_QP, "number of the CQ to wait for, unknown", n->wqe.cqn, 0);
}

/* DUMP: the local memory is read, into nothing. */
static int dump(struct dg_nic_qp *qp)
{
	const struct nic_wqe *w = &qp->nic->wqe;
	int rc = EXECUTED;
	for (uint32_t i = 0; i < w->n_segments && rc == EXECUTED; i++)
		rc = dg_nic_find_local(qp, &w->segments[i], 0, &qp->nic->pieces[0]);
	return rc;
}

/* Whether the peer is ready. */
static int reach_peer(struct dg_nic_qp *qp)
{
	struct nic_fault *f = &qp->nic->fault;
	if (qp->far_ready)
		return EXECUTED;
	qp->far_ready = dg_nic_peer_ready(qp, f);
	if (qp->far_ready) {
		qp->not_ready_ns = 0;
		return EXECUTED;
	}
	if (f->syndrome)
		return FAILED;
	const uint64_t now = now_ns();
	if (!qp->not_ready_ns)
		qp->not_ready_ns = now;
	if (now - qp->not_ready_ns > NIC_RETRY_NS)
		return nic_fault(qp->nic, SYNDROME_RETRIES, "state of the peer, not ready for 4 s", f->value,
			    DG_NIC_RTR);
	return nic_wait(qp, DG_NIC_WAITS_PEER);
}

int dg_nic_execute(struct dg_nic_qp *qp, struct nic_flight *f)
{
	const struct nic_wqe *w = &qp->nic->wqe;
	if ((w->flags & WQE_FENCE && qp_flies(qp)) || qp->nic->atomic_owner == qp)
		return nic_wait(qp, DG_NIC_WAITS_BYTES);
	switch (w->opcode) {
	case WQE_NOP:
		return EXECUTED;
	case WQE_WAIT:
		return wait_entry(qp);
	case WQE_DUMP:
		return dump(qp);
	default:
		break;
	}
	const int rc = reach_peer(qp);
	if (rc != EXECUTED)
		return rc;
	switch (w->opcode) {
	case WQE_WRITE:
		return dg_nic_one_sided(qp, f, DG_NIC_REMOTE_WRITE);
	case WQE_READ:
		return dg_nic_one_sided(qp, f, DG_NIC_REMOTE_READ);
	case WQE_WRITE_IMM:
	case WQE_SEND:
	case WQE_SEND_IMM:
		return dg_nic_two_sided(qp, f);
	default:
		return dg_nic_atomic_entry(qp, f);
	}
}

static uint8_t syndrome_of(int status)
{
	switch (status) {
	case DG_OK:
		return SYNDROME_NONE;
	case DG_LOCAL_ERROR:
		return SYNDROME_LOCAL_PROTECTION;
	case DG_REMOTE_ACCESS_ERROR:
		return SYNDROME_REMOTE_ACCESS;
	case DG_FLUSHED:
		return SYNDROME_FLUSHED;
	case DG_IO_FAILED:
		return SYNDROME_REMOTE_OPERATION;
	default:
		return SYNDROME_RETRIES;
	}
}

void dg_nic_flight_step(struct dg_nic_qp *qp, struct nic_flight *f, int status)
{
	struct dg_nic *n = qp->nic;
	if (f->kind >= FLIGHT_PUT) {
		dg_nic_bounce_step(qp, f, syndrome_of(status));
		return;
	}
	f->left--;
	if (!f->syndrome)
		f->syndrome = syndrome_of(status);
	if (f->left)
		return;
	if (f->kind == FLIGHT_ATOMIC_READ && !f->syndrome) {
		if (dg_nic_atomic_result(qp, f) == POSTED)
			return;
		f->syndrome = n->fault.syndrome;
	}
	if (f->kind != FLIGHT_COPY)
		n->atomic_owner = NULL;
	dg_nic_staging_put(n, f);
}
