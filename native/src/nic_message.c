// SPDX-License-Identifier: Apache-2.0
/* SEND, and WRITE with an immediate value: entries that use a receive of the peer. The receive is in
 * the peer's box; the sender stores the bytes, and then the message in its own box. */
#include "nic.h"

/* Cuts the message, of which the local segments are checked, at the borders of the receive's
 * segments. Returns the number of pieces, or a result. */
static int scatter(struct dg_nic_qp *qp, const struct nic_receive *to, uint32_t *count)
{
	struct dg_nic *n = qp->nic;
	const struct nic_wqe *w = &n->wqe;
	struct exec_piece source;
	uint32_t at = 0, used = 0; /* segment of the receive; bytes of it */
	*count = 0;
	for (uint32_t i = 0; i < w->n_segments; i++) {
		int rc = dg_nic_find_local(qp, &w->segments[i], 0, &source);
		while (rc == EXECUTED && source.size) {
			struct exec_piece *p = &n->pieces[*count];
			const uint32_t room = to->segments[at].size - used;
			*p = source;
			p->size = source.size < room ? source.size : room;
			if (p->size) {
				rc = dg_nic_find_remote(qp, to->segments[at].key,
							to->segments[at].address + used,
							p->size, DG_NIC_LOCAL_WRITE, p);
				++*count;
			}
			used += p->size;
			source.size -= p->size;
			source.local_offset += p->size;
			source.bytes += p->size;
			if (used == to->segments[at].size) {
				at++;
				used = 0;
			}
		}
		if (rc != EXECUTED)
			return rc;
	}
	return EXECUTED;
}

/* Finds how many bytes may be in the message itself. Returns EXECUTED or WAITS. */
static int find_limit(struct dg_nic_qp *qp, const struct nic_receive *to, uint32_t *most)
{
	const struct nic_wqe *w = &qp->nic->wqe;
	struct exec_piece p;
	*most = atomic_load_explicit(&qp->far->inline_receive, memory_order_relaxed) ? NIC_INLINE : 0;
	if (*most || !qp->nic->is_part || !qp->peer || !w->total || w->total > NIC_CARRIED)
		return EXECUTED;
	bool by_peer = false; /* the first part is; none is in GPU memory, where the peer's thread stores nothing */
	for (uint64_t at = 0, i = 0; at < w->total; at += to->segments[i++].size) {
		const uint64_t left = w->total - at, size = left < to->segments[i].size ? left : to->segments[i].size;
		const int rc = dg_nic_find_remote(qp, to->segments[i].key, to->segments[i].address, size,
						  DG_NIC_LOCAL_WRITE, &p);
		if (rc == WAITS)
			return WAITS;
		if (rc != EXECUTED || !p.remote || !p.remote->entry || nic_is_on_gpu(qp->nic, p.remote))
			return EXECUTED;
		by_peer |= !i && by_exporter(p.remote->entry);
	}
	if (by_peer)
		*most = NIC_CARRIED;
	return EXECUTED;
}

/* Stores a short message in the box, where the CPU can read its bytes. */
static bool inline_message(struct dg_nic_qp *qp, struct nic_message *m, uint32_t most)
{
	struct dg_nic *n = qp->nic;
	const struct nic_wqe *w = &n->wqe;
	struct exec_piece p;
	uint32_t at = 0;
	if (w->total > most || !most || qp_flies(qp))
		return false;
	for (uint32_t i = 0; i < w->n_segments; i++) {
		if (dg_nic_find_local(qp, &w->segments[i], 0, &p) != EXECUTED ||
		    (p.local && (!is_plain(p.local->entry) ||
				 !(p.local->entry->access & DG_ACCESS_READ) ||
				 !region_is_open(p.local->id))))
			return false;
		memcpy(m->data + at, exec_local(&p), p.size);
		at += p.size;
	}
	m->n_inline = at;
	return true;
}

/* Loads the peer's next receive, and checks it as if it were an entry. */
static uint64_t load_receive(struct dg_nic_qp *qp, struct nic_receive *to)
{
	uint64_t room = 0;
	const struct nic_receive *from = &qp->far->receives[qp->sent % NIC_WINDOW];
	load_words(to, from, RECEIVE_WORDS);
	if (to->n > DG_NIC_SGES)
		to->n = DG_NIC_SGES;
	load_words(to->segments, from->segments, SEGMENT_WORDS * to->n);
	for (uint32_t i = 0; i < to->n; i++)
		room += to->segments[i].size;
	return room;
}

int dg_nic_refuse(struct dg_nic_qp *qp, struct nic_entry *e, uint32_t at_receiver, uint8_t here,
		  const char *what, uint64_t value, uint64_t limit)
{
	e->message.syndrome = at_receiver;
	e->message.bytes = 0;
	dg_nic_deliver(qp, &e->message);
	e->message.opcode = 0;
	return nic_fault(qp->nic, here, what, value, limit);
}

static int deliver_message(struct dg_nic_qp *qp, struct nic_entry *e)
{
	struct dg_nic *n = qp->nic;
	struct nic_receive to;
	uint32_t count, most;
	const uint64_t room = load_receive(qp, &to);
	/* An entry that is wrong by itself uses no receive of the peer. */
	for (uint32_t i = 0; i < n->wqe.n_segments; i++) {
		const int rc = dg_nic_find_local(qp, &n->wqe.segments[i], 0, &n->pieces[0]);
		if (rc != EXECUTED)
			return rc;
	}
	if (to.syndrome)
		return dg_nic_refuse(qp, e, to.syndrome, SYNDROME_REMOTE_OPERATION,
			      "receive of the peer, wrong, syndrome", to.syndrome, 0);
	if (n->wqe.total > room)
		return dg_nic_refuse(qp, e, SYNDROME_LOCAL_LENGTH, SYNDROME_REMOTE_REQUEST,
			      "bytes of the message, more than the receive has", n->wqe.total, room);
	int rc = find_limit(qp, &to, &most);
	if (rc == WAITS || inline_message(qp, &e->message, most))
		return rc;
	rc = scatter(qp, &to, &count);
	if (rc == EXECUTED)
		rc = dg_nic_move(qp, e, count, true);
	/* The key of a receive has changed since it was published: the receiver's error, not the sender's. */
	if (rc == FAILED && n->fault.syndrome == SYNDROME_REMOTE_ACCESS)
		return dg_nic_refuse(qp, e, SYNDROME_LOCAL_PROTECTION, SYNDROME_REMOTE_OPERATION, n->fault.what,
			      n->fault.value, n->fault.limit);
	return rc;
}

/* Whether the peer has the window that the message asks it to invalidate. */
static int find_window(struct dg_nic_qp *qp)
{
	struct dg_nic *n = qp->nic;
	const uint32_t key = be32toh(n->wqe.immediate);
	bool waits = false;
	const struct nic_key *k = qp->peer ? dg_nic_peer_key(qp, key, &waits) : nic_key_find(n, key);
	if (waits)
		return nic_wait(qp, DG_NIC_WAITS_KEY);
	/* An earlier message may invalidate the same one, once its receive is complete. */
	if (atomic_load_explicit(&qp->far->consumed, memory_order_acquire) != qp->sent)
		return nic_wait(qp, DG_NIC_WAITS_RECEIVE);
	return k && k->qpn == qp->address.qpn
		       ? EXECUTED
		       : nic_fault(n, SYNDROME_REMOTE_ACCESS, "key to invalidate, of no window of the peer", key, 0);
}

/* SEND and WRITE with an immediate value. */
int dg_nic_two_sided(struct dg_nic_qp *qp, struct nic_entry *e)
{
	const struct nic_wqe *w = &qp->nic->wqe;
	/* One at a time: a receive belongs to the entry that is complete next. */
	if (qp_flies(qp))
		return nic_wait(qp, DG_NIC_WAITS_BYTES);
	if (!atomic_load_explicit(&qp->far->receive_entries, memory_order_relaxed))
		return nic_fault(qp->nic, SYNDROME_RECEIVE_RETRIES,
				 "message, to a queue pair without a receive queue, number", qp->address.qpn, 0);
	int rc = dg_nic_find_receive(qp);
	if (__builtin_expect(rc != EXECUTED, 0))
		return rc;
	e->message = (struct nic_message){
		.opcode = w->opcode == WQE_WRITE_IMM ? CQE_WRITE_IMM
			  : w->opcode == WQE_SEND    ? CQE_SEND
			  : w->opcode == WQE_SEND_IMM ? CQE_SEND_IMM
						      : CQE_SEND_INVAL,
		.immediate = w->opcode == WQE_SEND ? 0 : w->immediate,
		.bytes = w->total,
		.solicited = !!(w->flags & WQE_SOLICITED),
	};
	if (w->opcode == WQE_WRITE_IMM)
		return dg_nic_one_sided(qp, e, DG_NIC_REMOTE_WRITE);
	if (__builtin_expect(w->opcode == WQE_SEND_INVAL, 0))
		rc = find_window(qp);
	if (rc == FAILED)
		return dg_nic_refuse(qp, e, SYNDROME_LOCAL_ACCESS, SYNDROME_REMOTE_ACCESS, qp->nic->fault.what,
				     qp->nic->fault.value, 0);
	return rc == EXECUTED ? deliver_message(qp, e) : rc;
}
