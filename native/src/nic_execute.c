// SPDX-License-Identifier: Apache-2.0
/*
 * One entry: the keys that it names are found and checked, against rights and domains, and become the
 * pieces of an operation of the executor, whose status becomes a syndrome.
 */
#include "nic.h"

int dg_nic_find_local(struct dg_nic_qp *qp, const struct nic_segment *s, uint32_t access,
		      struct exec_piece *p)
{
	struct dg_nic *n = qp->nic;
	p->size = s->size;
	p->local = NULL;
	p->bytes = (const char *)n->bytes + s->at;
	if (s->is_inline)
		return EXECUTED;
	const struct nic_key *k = nic_key_find(n, s->key);
	if (__builtin_expect(!k || k->window || !k->local.entry, 0)) /* a window or an import: rkeys only */
		return nic_fault(n, SYNDROME_LOCAL_PROTECTION, "lkey, unknown", s->key, 0);
	if (k->pd != qp->c.pd)
		return nic_fault(n, SYNDROME_LOCAL_PROTECTION, "lkey of another protection domain", k->pd,
			    qp->c.pd);
	if ((k->access & access) != access)
		return nic_fault(n, SYNDROME_LOCAL_PROTECTION, "access of the lkey", k->access, access);
	if (!key_covers(k, s->address, s->size, &p->local_offset))
		return nic_fault(n, SYNDROME_LOCAL_PROTECTION, "local address, outside its key", s->address,
			    k->address + k->size);
	p->local = &k->local;
	return EXECUTED;
}

int dg_nic_find_remote(struct dg_nic_qp *qp, uint32_t key, uint64_t address, uint64_t size,
		       uint32_t right, struct exec_piece *p)
{
	struct dg_nic *n = qp->nic;
	bool waits = false;
	const struct nic_key *k = __builtin_expect(!qp->peer, 1) ? nic_key_find(n, key)
								 : dg_nic_peer_key(qp, key, &waits);
	/* A copy within this process needs the rights of an lkey, which are none for reading. */
	if (qp->c.own_rights && !qp->peer)
		right = right == DG_NIC_REMOTE_READ ? 0 : DG_NIC_LOCAL_WRITE;
	if (waits)
		return nic_wait(qp, DG_NIC_WAITS_KEY);
	if (__builtin_expect(!k, 0))
		return nic_fault(n, SYNDROME_REMOTE_ACCESS, "rkey, unknown to the peer", key, 0);
	if (k->pd != qp->far_pd)
		return nic_fault(n, SYNDROME_REMOTE_ACCESS, "rkey of another protection domain", k->pd,
			    qp->far_pd);
	if (__builtin_expect(k->qpn && k->qpn != qp->address.qpn, 0))
		return nic_fault(n, SYNDROME_REMOTE_ACCESS, "rkey of another queue pair", k->qpn, qp->address.qpn);
	if ((k->access & right) != right)
		return nic_fault(n, SYNDROME_REMOTE_ACCESS, "access of the rkey", k->access, right);
	if (!key_covers(k, address, size, &p->remote_offset))
		return nic_fault(n, SYNDROME_REMOTE_ACCESS, "remote address, outside its key", address,
			    k->address + k->size);
	if (!k->remote.entry)
		return nic_fault(n, SYNDROME_REMOTE_ACCESS, "rkey whose memory cannot be imported", key, 0);
	p->remote = &k->remote;
	return EXECUTED;
}

uint8_t dg_nic_syndrome(int status)
{
	switch (status) {
	case DG_OK:
		return SYNDROME_NONE;
	case DG_LOCAL_ERROR:
	case DG_ACCESS_DENIED:
	case DG_OUT_OF_BOUNDS:
		return SYNDROME_LOCAL_PROTECTION;
	case DG_REMOTE_ACCESS_ERROR:
		return SYNDROME_REMOTE_ACCESS;
	case DG_FLUSHED:
		return SYNDROME_FLUSHED;
	case DG_IO_FAILED:
		return SYNDROME_REMOTE_OPERATION;
	case DG_BAD_RECORD:
	case DG_UNSUPPORTED:
		return SYNDROME_LOCAL_QP;
	default:
		return SYNDROME_RETRIES;
	}
}

/* What the executor refused: for people, and as a syndrome. */
static int refused(struct dg_nic_qp *qp, int status)
{
	struct dg_nic *n = qp->nic;
	const struct nic_wqe *w = &n->wqe;
	const bool is_atomic = w->opcode > WQE_READ;
	const uint32_t lkey = w->n_segments ? w->segments[0].key : 0;
	switch (status) {
	case DG_LOCAL_ERROR:
		return nic_fault(n, SYNDROME_LOCAL_PROTECTION, "lkey of a closed region", lkey, 0);
	case DG_ACCESS_DENIED:
		return nic_fault(n, SYNDROME_LOCAL_PROTECTION, "access of the lkey's region", lkey, 0);
	case DG_REMOTE_ACCESS_ERROR:
		return nic_fault(n, SYNDROME_REMOTE_ACCESS, "rkey of a closed region", w->rkey, 0);
	case DG_PEER_LOST:
		return nic_fault(n, SYNDROME_RETRIES, "process of the peer, ended", 0, 0);
	case DG_BAD_RECORD:
		if (is_atomic)
			return nic_fault(n, SYNDROME_REMOTE_REQUEST, "memory of the word, not aligned",
					 w->remote, w->atomic.size);
		break;
	case DG_UNSUPPORTED:
		if (is_atomic)
			return nic_fault(n, SYNDROME_REMOTE_OPERATION,
					 "memory without atomic operations, rkey", w->rkey, 0);
		break;
	default:
		break;
	}
	return nic_fault(n, dg_nic_syndrome(status), "request, refused by the provider", (uint64_t)status,
			 0);
}

/* Translates a result of the executor. */
static int outcome(struct dg_nic_qp *qp, int result)
{
	if (__builtin_expect(result == DG_OK, 1))
		return EXECUTED;
	if (result == EXEC_POSTED)
		return POSTED;
	return result == EXEC_WAITS ? nic_wait(qp, DG_NIC_WAITS_BYTES) : refused(qp, result);
}

int dg_nic_move(struct dg_nic_qp *qp, struct nic_entry *e, uint32_t count, bool write)
{
	const struct exec_op op = {
		.pieces = qp->nic->pieces, .n = count, .write = write, .total = qp->nic->wqe.total};
	const int rc = dg_nic_executor(qp, op.pieces, count);
	if (rc != EXECUTED)
		return rc;
	const int result = dg_exec_move(qp->active, &op);
	e->bytes = op.total;
	qp->pass_bytes += result == DG_OK ? op.total : 0;
	return outcome(qp, result);
}

/* WRITE and READ: one remote range. */
int dg_nic_one_sided(struct dg_nic_qp *qp, struct nic_entry *e, uint32_t right)
{
	struct dg_nic *n = qp->nic;
	const struct nic_wqe *w = &n->wqe;
	const bool write = right == DG_NIC_REMOTE_WRITE;
	struct exec_piece whole = {.remote = NULL};
	uint32_t count = 0;
	int rc = w->total ? dg_nic_find_remote(qp, w->rkey, w->remote, w->total, right, &whole)
			  : EXECUTED;
	if (rc == EXECUTED && !(qp->far_access & right))
		rc = nic_fault(n, SYNDROME_REMOTE_ACCESS, "access that the peer's queue pair grants",
			       qp->far_access, right);
	for (uint32_t i = 0; i < w->n_segments && rc == EXECUTED; i++) {
		struct exec_piece *p = &n->pieces[count];
		rc = dg_nic_find_local(qp, &w->segments[i], write ? 0 : DG_NIC_LOCAL_WRITE, p);
		p->remote = whole.remote;
		p->remote_offset = whole.remote_offset;
		whole.remote_offset += p->size;
		count += p->size > 0;
	}
	return rc == EXECUTED ? dg_nic_move(qp, e, count, write) : rc;
}

static int atomic_entry(struct dg_nic_qp *qp, struct nic_entry *e)
{
	struct dg_nic *n = qp->nic;
	const struct nic_wqe *w = &n->wqe;
	struct exec_piece *p = &n->pieces[0];
	int rc = dg_nic_find_remote(qp, w->rkey, w->remote, w->atomic.size, DG_NIC_REMOTE_ATOMIC, p);
	if (rc == EXECUTED && !(qp->far_access & DG_NIC_REMOTE_ATOMIC))
		rc = nic_fault(n, SYNDROME_REMOTE_ACCESS, "access that the peer's queue pair grants",
			       qp->far_access, DG_NIC_REMOTE_ATOMIC);
	if (rc == EXECUTED)
		rc = dg_nic_find_local(qp, &w->segments[0], DG_NIC_LOCAL_WRITE, p);
	if (rc == EXECUTED && nic_is_on_gpu(n, p->remote) != nic_is_on_gpu(n, p->local))
		rc = nic_fault(n, SYNDROME_REMOTE_OPERATION, "atomic operation between host and GPU memory, rkey", w->rkey,
			       0);
	if (rc == EXECUTED)
		rc = dg_nic_executor(qp, p, 1);
	if (rc != EXECUTED)
		return rc;
	e->bytes = w->atomic.size;
	const struct exec_op op = {
		.pieces = p,
		.n = 1,
		.total = w->atomic.size,
		.result = &nic_key_find(n, w->segments[0].key)->remote,
		.atomic = &w->atomic,
	};
	return outcome(qp, dg_exec_atomic(qp->active, &op));
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
	if (now - qp->not_ready_ns > qp->patience_ns || qp->c.transport == DG_NIC_UC)
		return nic_fault(qp->nic, SYNDROME_RETRIES, "state of the peer, not ready in time", f->value,
				 DG_NIC_RTR);
	return nic_wait(qp, DG_NIC_WAITS_PEER);
}

/* An entry of a connection. */
static int to_peer(struct dg_nic_qp *qp, struct nic_entry *e)
{
	int rc = reach_peer(qp);
	if (rc == EXECUTED && qp->c.transport == DG_NIC_XRC_SEND)
		rc = dg_nic_srq_request(qp);
	if (rc != EXECUTED)
		return rc;
	switch (qp->nic->wqe.opcode) {
	case WQE_WRITE:
		return dg_nic_one_sided(qp, e, DG_NIC_REMOTE_WRITE);
	case WQE_READ:
		return dg_nic_one_sided(qp, e, DG_NIC_REMOTE_READ);
	case WQE_WRITE_IMM:
	case WQE_SEND:
	case WQE_SEND_IMM:
	case WQE_SEND_INVAL:
		return dg_nic_two_sided(qp, e);
	default:
		return atomic_entry(qp, e);
	}
}

int dg_nic_execute(struct dg_nic_qp *qp, struct nic_entry *e)
{
	const struct nic_wqe *w = &qp->nic->wqe;
	if (exec_blocked(qp->active, w->flags & WQE_FENCE))
		return nic_wait(qp, DG_NIC_WAITS_BYTES);
	switch (w->opcode) {
	case WQE_NOP:
		return EXECUTED;
	case WQE_WAIT:
		return wait_entry(qp);
	case WQE_DUMP:
		return dump(qp);
	case WQE_UMR:
		return dg_nic_window_change(qp);
	default:
		break;
	}
	if (qp->c.transport == DG_NIC_UD)
		return dg_nic_datagram(qp, e);
	const int rc = to_peer(qp, e);
	return rc == FAILED && is_dropped(qp, e, qp->nic->fault.syndrome) ? EXECUTED : rc;
}
