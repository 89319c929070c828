// SPDX-License-Identifier: Apache-2.0
/* Atomic operations: by this thread where the CPU reaches the word, by the word's exporter where only
 * that does, otherwise by the provider in two parts. */
#include "copy.h"
#include "nic.h"

/* Posts the first part of an atomic operation on GPU memory: reading the word. Between this and
 * writing it, no other operation of this NIC changes it: as on an adapter, it is atomic with respect
 * to the operations of the same NIC only. */
static int post_atomic(struct dg_nic_qp *qp, struct nic_flight *f, const struct nic_piece *p)
{
	struct dg_nic *n = qp->nic;
	if (p->remote->remote.entry->method != DG_METHOD_GPU && !is_plain(p->remote->remote.entry))
		return nic_fault(n, SYNDROME_REMOTE_OPERATION,
			    "memory without atomic operations, its method", p->remote->remote.entry->method,
			    0);
	if (!p->local->remote.entry)
		return nic_fault(n, SYNDROME_LOCAL_PROTECTION, "lkey whose memory cannot be written",
			    p->local->key, 0);
	if (n->atomic_owner || !has_room(qp->q, 2) || !dg_nic_staging_take(n, f, NIC_STAGING))
		return nic_wait(qp, DG_NIC_WAITS_BYTES);
	n->wr[0] = (dg_wr){
		.user = qp->flight_tail,
		.local = n->staging_name,
		.local_offset = f->staging->offset,
		.remote = REGION_NAME(p->remote->remote.id),
		.remote_offset = p->remote_offset,
		.size = n->wqe.atomic.size,
		.op = DG_READ,
	};
	f->kind = FLIGHT_ATOMIC_READ;
	const int rc = dg_nic_post(qp, f, 1);
	if (rc != POSTED) {
		dg_nic_staging_put(n, f);
		return rc;
	}
	n->atomic_owner = qp;
	qp->atomic = n->wqe.atomic;
	qp->atomic_word = REGION_NAME(p->remote->remote.id);
	qp->atomic_word_offset = p->remote_offset;
	qp->atomic_result = REGION_NAME(p->local->remote.id);
	qp->atomic_result_offset = p->local_offset;
	return POSTED;
}

/* Posts the second part: the new word, and its old value to where the entry wants it. */
int dg_nic_atomic_result(struct dg_nic_qp *qp, struct nic_flight *f)
{
	struct dg_nic *n = qp->nic;
	const uint32_t size = qp->atomic.size;
	const uint64_t at = f->staging->offset;
	uint64_t word = 0;
	memcpy(&word, n->staging + at, size); /* 4 bytes: of a little-endian host */
	word = dg_atomic_value(&qp->atomic, word);
	memcpy(n->staging + at + 8, &word, size);
	n->wr[0] = (dg_wr){
		.user = qp->flight_tail - 1,
		.local = n->staging_name,
		.local_offset = at + 8,
		.remote = qp->atomic_word,
		.remote_offset = qp->atomic_word_offset,
		.size = size,
		.op = DG_WRITE,
	};
	n->wr[1] = n->wr[0];
	n->wr[1].local_offset = at;
	n->wr[1].remote = qp->atomic_result;
	n->wr[1].remote_offset = qp->atomic_result_offset;
	f->kind = FLIGHT_ATOMIC_WRITE;
	return dg_nic_post(qp, f, 2);
}

/* Has the exporter of the word execute the operation. */
static int far_atomic(struct dg_nic_qp *qp, struct nic_flight *f)
{
	struct dg_nic *n = qp->nic;
	f->kind = FLIGHT_FAR_ATOMIC;
	if (!dg_nic_staging_take(n, f, NIC_STAGING))
		return nic_wait(qp, DG_NIC_WAITS_BYTES);
	const int rc = dg_nic_bounce(qp, f, 1);
	if (rc == POSTED)
		memcpy(n->staging + f->staging->offset, &n->wqe.atomic, sizeof n->wqe.atomic);
	else
		dg_nic_staging_put(n, f);
	return rc;
}

int dg_nic_atomic_entry(struct dg_nic_qp *qp, struct nic_flight *f)
{
	struct dg_nic *n = qp->nic;
	const struct nic_wqe *w = &n->wqe;
	struct nic_piece *p = &n->pieces[0];
	int rc = dg_nic_find_remote(qp, w->rkey, w->remote, w->atomic.size, DG_NIC_REMOTE_ATOMIC, &p->remote,
			     &p->remote_offset);
	if (rc == EXECUTED && !(qp->far_access & DG_NIC_REMOTE_ATOMIC))
		rc = nic_fault(n, SYNDROME_REMOTE_ACCESS, "access that the peer's queue pair grants",
			  qp->far_access, DG_NIC_REMOTE_ATOMIC);
	if (rc == EXECUTED)
		rc = dg_nic_find_local(qp, &w->segments[0], DG_NIC_LOCAL_WRITE, p);
	if (rc != EXECUTED)
		return rc;
	f->bytes = w->atomic.size;
	if (by_exporter(p->remote->remote.entry))
		return far_atomic(qp, f);
	if (qp_flies(qp))
		return nic_wait(qp, DG_NIC_WAITS_BYTES);
	if (!cpu_reaches(p))
		return post_atomic(qp, f, p);
	rc = dg_nic_enter_piece(qp, p, false);
	if (rc != EXECUTED)
		return rc;
	if ((uintptr_t)remote_at(p) % w->atomic.size)
		return nic_fault(n, SYNDROME_REMOTE_REQUEST, "memory of the word, not aligned",
			    (uintptr_t)remote_at(p), w->atomic.size);
	order_stores();
	const uint64_t old = dg_atomic_run(&w->atomic, remote_at(p));
	if (w->atomic.size == 4)
		copy_upto64(local_at(p), (char *)&(uint32_t){(uint32_t)old}, 4);
	else
		copy_upto64(local_at(p), (const char *)&old, 8);
	return EXECUTED;
}
