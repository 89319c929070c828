// SPDX-License-Identifier: Apache-2.0
/*
 * The bytes of one entry. First all pieces are found and checked, against keys and rights; then this
 * thread copies them if the CPU reaches all of them and they are few, otherwise the provider does.
 */
#include "copy.h"
#include "nic.h"
#include "region.h"

static int fail(struct dg_nic *n, uint8_t syndrome, const char *what, uint64_t value, uint64_t limit)
{
	n->fault = (struct nic_fault){syndrome, what, value, limit};
	return FAILED;
}

static int wait_for(struct dg_nic_qp *qp, uint32_t what)
{
	qp->info.waiting = what;
	return WAITS;
}

/* Finds the local memory of a segment. access: what is to be done, 0 for reading. */
static inline int find_local(struct dg_nic_qp *qp, const struct nic_segment *s, uint32_t access,
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
		return fail(n, SYNDROME_LOCAL_PROTECTION, "lkey, unknown", s->key, 0);
	if (k->pd != qp->c.pd)
		return fail(n, SYNDROME_LOCAL_PROTECTION, "lkey of another protection domain", k->pd,
			    qp->c.pd);
	if ((k->access & access) != access)
		return fail(n, SYNDROME_LOCAL_PROTECTION, "access of the lkey", k->access, access);
	if (!key_covers(k, s->address, s->size, &p->local_offset))
		return fail(n, SYNDROME_LOCAL_PROTECTION, "local address, outside its key", s->address,
			    k->address + k->size);
	p->local = k;
	return EXECUTED;
}

/* Finds the peer's key, for `size` bytes at `address`. right: enum dg_nic_access. */
static inline int find_remote(struct dg_nic_qp *qp, uint32_t key, uint64_t address, uint64_t size,
		       uint32_t right, const struct nic_key **out, uint64_t *offset)
{
	struct dg_nic *n = qp->nic;
	bool waits = false;
	const struct nic_key *k = __builtin_expect(!qp->peer, 1) ? nic_key_find(n, key)
								 : dg_nic_peer_key(qp, key, &waits);
	if (waits)
		return wait_for(qp, DG_NIC_WAITS_KEY);
	if (__builtin_expect(!k, 0))
		return fail(n, SYNDROME_REMOTE_ACCESS, "rkey, unknown to the peer", key, 0);
	if (k->pd != qp->far_pd)
		return fail(n, SYNDROME_REMOTE_ACCESS, "rkey of another protection domain", k->pd,
			    qp->far_pd);
	if (!(k->access & right))
		return fail(n, SYNDROME_REMOTE_ACCESS, "access of the rkey", k->access, right);
	if (!key_covers(k, address, size, offset))
		return fail(n, SYNDROME_REMOTE_ACCESS, "remote address, outside its key", address,
			    k->address + k->size);
	if (!k->remote.entry)
		return fail(n, SYNDROME_REMOTE_ACCESS, "rkey whose memory cannot be imported", key, 0);
	*out = k;
	return EXECUTED;
}

static bool is_plain(const struct dg_region_entry *e)
{
	return !(e->method | e->may_fault);
}

static bool cpu_reaches(const struct nic_piece *p)
{
	return (!p->local || is_plain(p->local->local.entry)) && is_plain(p->remote->remote.entry);
}

void dg_nic_leave_gate(struct dg_nic_qp *qp)
{
	if (qp->gate)
		gate_leave(qp->gate, 1);
	qp->gate = NULL;
}

/* Enters the gate of the remote region and checks that both regions are open. The local region needs
 * no gate: its closer waits until this thread has left the queue. */
static inline int enter_piece(struct dg_nic_qp *qp, const struct nic_piece *p, bool write)
{
	struct dg_nic *n = qp->nic;
	struct dg_region_entry *remote = p->remote->remote.entry;
	if (p->local) {
		struct dg_region_entry *local = p->local->local.entry;
		if (!region_is_open(p->local->local.id) || gate_revoked(local->gate))
			return fail(n, SYNDROME_LOCAL_PROTECTION, "lkey of a closed region",
				    p->local->key, 0);
		if (!(local->access & (write ? DG_ACCESS_READ : DG_ACCESS_WRITE)))
			return fail(n, SYNDROME_LOCAL_PROTECTION, "access of the lkey's region",
				    local->access, write ? DG_ACCESS_READ : DG_ACCESS_WRITE);
	}
	if (!region_is_open(p->remote->remote.id))
		return fail(n, SYNDROME_REMOTE_ACCESS, "rkey of a closed region", p->remote->key, 0);
	if (qp->gate != remote->gate) {
		dg_nic_leave_gate(qp);
		gate_enter(remote->gate, 1);
		qp->gate = remote->gate;
	}
	if (gate_revoked(remote->gate))
		return fail(n, SYNDROME_REMOTE_ACCESS, "rkey of a closed region", p->remote->key, 0);
	if (atomic_load_explicit(&remote->lost, memory_order_relaxed))
		return fail(n, SYNDROME_RETRIES, "process of the peer, ended", 0, 0);
	return EXECUTED;
}

static char *local_at(const struct nic_piece *p)
{
	return p->local ? p->local->local.entry->base + p->local_offset
			: (char *)(uintptr_t)p->bytes;
}

static char *remote_at(const struct nic_piece *p)
{
	return p->remote->remote.entry->base + p->remote_offset;
}

static int copy_here(struct dg_nic_qp *qp, uint32_t n, bool write)
{
	const struct nic_piece *pieces = qp->nic->pieces;
	for (uint32_t i = 0; i < n; i++) {
		const struct nic_piece *p = &pieces[i];
		const int rc = enter_piece(qp, p, write);
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

static bool take_staging(struct dg_nic *n, struct nic_flight *f)
{
	if (!f->staging) {
		f->staging = n->free_slots;
		if (f->staging)
			n->free_slots = f->staging->next;
	}
	return f->staging;
}

void dg_nic_staging_put(struct dg_nic *n, struct nic_flight *f)
{
	if (!f->staging)
		return;
	f->staging->next = n->free_slots;
	n->free_slots = f->staging;
	f->staging = NULL;
}

/* Passes n->wr[0..count) to the provider, for flight f. */
static int post(struct dg_nic_qp *qp, struct nic_flight *f, uint32_t count)
{
	struct dg_nic *n = qp->nic;
	struct op_run run = {0};
	bool fresh;
	for (uint32_t i = 0; i < count; i++) {
		struct dg_op *op = &qp->q->scratch[i];
		const int rc = dg_resolve(qp->q, &n->wr[i], op, &run, &fresh);
		if (rc)
			return fail(n, refusal(rc, &n->wr[i]), "request, refused by the provider",
				    (uint64_t)-rc, 0);
		/* A provider without a thread would copy in this thread, and the memory's owner may
		 * make it wait. */
		if (n->dev->ops->poll && !(op->flags & (OP_PLAIN | OP_GPU)))
			return fail(n, SYNDROME_LOCAL_QP, "memory that only its process can copy", 0, 0);
	}
	f->left = count;
	dg_queue_submit(qp->q, qp->q->scratch, n->wr, count, KIND_POLL, now_ns());
	return POSTED;
}

static bool has_room(const struct dg_queue *q, uint32_t n)
{
	return credits(q) >= n && q->n_free >= n;
}

/* Has the provider copy n->pieces[0..count). */
static int post_pieces(struct dg_nic_qp *qp, struct nic_flight *f, uint32_t count, bool write)
{
	struct dg_nic *n = qp->nic;
	const struct nic_flight *before = flight_at(qp, qp->flight_tail - 1);
	const bool fence = n->wqe.flags & WQE_FENCE ||
			   (qp_flies(qp) && before->opcode != n->wqe.opcode);
	if (!has_room(qp->q, count))
		return wait_for(qp, DG_NIC_WAITS_BYTES);
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
		if (!take_staging(n, f))
			return wait_for(qp, DG_NIC_WAITS_BYTES);
		wr->local = n->staging_name;
		wr->local_offset = f->staging->offset + (uint64_t)(p->bytes - (char *)n->bytes);
		memcpy(n->staging + wr->local_offset, p->bytes, p->size);
	}
	return post(qp, f, count);
}

/* Moves n->pieces[0..count). */
static int move(struct dg_nic_qp *qp, struct nic_flight *f, uint32_t count, bool write)
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
	const int rc = count ? post_pieces(qp, f, count, write) : EXECUTED;
	if (rc != POSTED)
		dg_nic_staging_put(n, f);
	return rc;
}

/* WRITE and READ: one remote range. */
static int one_sided(struct dg_nic_qp *qp, struct nic_flight *f, uint32_t right)
{
	struct dg_nic *n = qp->nic;
	const struct nic_wqe *w = &n->wqe;
	const bool write = right == DG_NIC_REMOTE_WRITE;
	const struct nic_key *remote = NULL;
	uint64_t offset = 0;
	uint32_t count = 0;
	int rc = w->total ? find_remote(qp, w->rkey, w->remote, w->total, right, &remote, &offset)
			  : EXECUTED;
	if (rc == EXECUTED && !(qp->far_access & right))
		rc = fail(n, SYNDROME_REMOTE_ACCESS, "access that the peer's queue pair grants",
			  qp->far_access, right);
	for (uint32_t i = 0; i < w->n_segments && rc == EXECUTED; i++) {
		struct nic_piece *p = &n->pieces[count];
		rc = find_local(qp, &w->segments[i], write ? 0 : DG_NIC_LOCAL_WRITE, p);
		p->remote = remote;
		p->remote_offset = offset;
		offset += p->size;
		count += p->size > 0;
	}
	return rc == EXECUTED ? move(qp, f, count, write) : rc;
}

/* Cuts the message, of which the local segments are checked, at the borders of the receive's
 * segments. Returns the number of pieces, or a result. */
static int scatter(struct dg_nic_qp *qp, const struct nic_receive *to, uint32_t *count)
{
	struct dg_nic *n = qp->nic;
	const struct nic_wqe *w = &n->wqe;
	struct nic_piece source;
	uint32_t at = 0, used = 0; /* segment of the receive; bytes of it */
	*count = 0;
	for (uint32_t i = 0; i < w->n_segments; i++) {
		int rc = find_local(qp, &w->segments[i], 0, &source);
		while (rc == EXECUTED && source.size) {
			struct nic_piece *p = &n->pieces[*count];
			const uint32_t room = to->segments[at].size - used;
			*p = source;
			p->size = source.size < room ? source.size : room;
			if (p->size) {
				rc = find_remote(qp, to->segments[at].key,
						 to->segments[at].address + used, p->size,
						 DG_NIC_LOCAL_WRITE, &p->remote, &p->remote_offset);
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

/* Stores a short message in the receiver's CQE, where the CPU can read its bytes. */
static bool inline_message(struct dg_nic_qp *qp, struct nic_message *m)
{
	struct dg_nic *n = qp->nic;
	const struct nic_wqe *w = &n->wqe;
	struct nic_piece p;
	uint32_t at = 0;
	if (w->total > NIC_INLINE || qp_flies(qp) ||
	    !atomic_load_explicit(&qp->far->inline_receive, memory_order_relaxed))
		return false;
	for (uint32_t i = 0; i < w->n_segments; i++) {
		if (find_local(qp, &w->segments[i], 0, &p) != EXECUTED ||
		    (p.local && (!is_plain(p.local->local.entry) ||
				 !(p.local->local.entry->access & DG_ACCESS_READ) ||
				 !region_is_open(p.local->local.id))))
			return false;
		memcpy(m->data + at, local_at(&p), p.size);
		at += p.size;
	}
	m->n_inline = at;
	return true;
}

/* Loads the peer's next receive, and checks it as if it were an entry. */
static uint64_t load_receive(struct dg_nic_qp *qp, struct nic_receive *to)
{
	uint64_t room = 0;
	load_words(to, &qp->far->receives[qp->sent % NIC_WINDOW], RECEIVE_WORDS);
	if (to->n > DG_NIC_SGES)
		to->n = DG_NIC_SGES;
	for (uint32_t i = 0; i < to->n; i++)
		room += to->segments[i].size;
	return room;
}

/* A message that the receiver refuses: both sides get an error. */
static int refuse(struct dg_nic_qp *qp, struct nic_flight *f, uint32_t at_receiver, uint8_t here,
		  const char *what, uint64_t value, uint64_t limit)
{
	f->message.syndrome = at_receiver;
	f->message.bytes = 0;
	dg_nic_deliver(qp, &f->message);
	f->message.opcode = 0;
	return fail(qp->nic, here, what, value, limit);
}

static int send(struct dg_nic_qp *qp, struct nic_flight *f)
{
	struct dg_nic *n = qp->nic;
	struct nic_receive to;
	uint32_t count;
	const uint64_t room = load_receive(qp, &to);
	/* An entry that is wrong by itself uses no receive of the peer. */
	for (uint32_t i = 0; i < n->wqe.n_segments; i++) {
		const int rc = find_local(qp, &n->wqe.segments[i], 0, &n->pieces[0]);
		if (rc != EXECUTED)
			return rc;
	}
	if (to.syndrome)
		return refuse(qp, f, to.syndrome, SYNDROME_REMOTE_OPERATION,
			      "receive of the peer, wrong, syndrome", to.syndrome, 0);
	if (n->wqe.total > room)
		return refuse(qp, f, SYNDROME_LOCAL_LENGTH, SYNDROME_REMOTE_REQUEST,
			      "bytes of the message, more than the receive has", n->wqe.total, room);
	if (inline_message(qp, &f->message))
		return EXECUTED;
	const int rc = scatter(qp, &to, &count);
	return rc == EXECUTED ? move(qp, f, count, true) : rc;
}

/* SEND and WRITE with an immediate value. */
static int two_sided(struct dg_nic_qp *qp, struct nic_flight *f)
{
	const struct nic_wqe *w = &qp->nic->wqe;
	/* One at a time: a receive belongs to the entry that is complete next. */
	if (qp_flies(qp))
		return wait_for(qp, DG_NIC_WAITS_BYTES);
	if (!dg_nic_receive_ready(qp))
		return wait_for(qp, DG_NIC_WAITS_RECEIVE);
	f->message = (struct nic_message){
		.opcode = w->opcode == WQE_WRITE_IMM ? CQE_WRITE_IMM
			  : w->opcode == WQE_SEND    ? CQE_SEND
						     : CQE_SEND_IMM,
		.immediate = w->opcode == WQE_SEND ? 0 : w->immediate,
		.bytes = w->total,
	};
	return w->opcode == WQE_WRITE_IMM ? one_sided(qp, f, DG_NIC_REMOTE_WRITE) : send(qp, f);
}

/* Executes an atomic operation on memory that the CPU reaches. Returns the old value. */
static uint64_t run_atomic(const struct nic_wqe *w, char *word)
{
	if (w->atomic_size == 4) {
		uint32_t old = __atomic_load_n((uint32_t *)word, __ATOMIC_RELAXED);
		while (!__atomic_compare_exchange_n((uint32_t *)word, &old,
						    (uint32_t)dg_nic_atomic(w, old), false,
						    __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST))
			;
		return old;
	}
	if (w->opcode == WQE_ATOMIC_FA)
		return __atomic_fetch_add((uint64_t *)word, w->operand, __ATOMIC_SEQ_CST);
	uint64_t old = __atomic_load_n((uint64_t *)word, __ATOMIC_RELAXED);
	while (!__atomic_compare_exchange_n((uint64_t *)word, &old, dg_nic_atomic(w, old), false,
					    __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST))
		;
	return old;
}

/* Posts the first part of an atomic operation on GPU memory: reading the word. Between this and
 * writing it, no other operation of this NIC changes it: as on an adapter, it is atomic with respect
 * to the operations of the same NIC only. */
static int post_atomic(struct dg_nic_qp *qp, struct nic_flight *f, const struct nic_piece *p)
{
	struct dg_nic *n = qp->nic;
	if (p->remote->remote.entry->method != DG_METHOD_GPU && !is_plain(p->remote->remote.entry))
		return fail(n, SYNDROME_REMOTE_OPERATION,
			    "memory without atomic operations, its method", p->remote->remote.entry->method,
			    0);
	if (!p->local->remote.entry)
		return fail(n, SYNDROME_LOCAL_PROTECTION, "lkey whose memory cannot be written",
			    p->local->key, 0);
	if (n->atomic_owner || !has_room(qp->q, 2) || !take_staging(n, f))
		return wait_for(qp, DG_NIC_WAITS_BYTES);
	n->wr[0] = (dg_wr){
		.user = qp->flight_tail,
		.local = n->staging_name,
		.local_offset = f->staging->offset,
		.remote = REGION_NAME(p->remote->remote.id),
		.remote_offset = p->remote_offset,
		.size = n->wqe.atomic_size,
		.op = DG_READ,
	};
	f->kind = FLIGHT_ATOMIC_READ;
	const int rc = post(qp, f, 1);
	if (rc != POSTED) {
		dg_nic_staging_put(n, f);
		return rc;
	}
	n->atomic_owner = qp;
	qp->atomic = n->wqe;
	qp->atomic_word = REGION_NAME(p->remote->remote.id);
	qp->atomic_word_offset = p->remote_offset;
	qp->atomic_result = REGION_NAME(p->local->remote.id);
	qp->atomic_result_offset = p->local_offset;
	return POSTED;
}

/* Posts the second part: the new word, and its old value to where the entry wants it. */
static int post_result(struct dg_nic_qp *qp, struct nic_flight *f)
{
	struct dg_nic *n = qp->nic;
	const uint32_t size = qp->atomic.atomic_size;
	const uint64_t at = f->staging->offset;
	uint64_t word = 0;
	memcpy(&word, n->staging + at, size); /* 4 bytes: of a little-endian host */
	word = dg_nic_atomic(&qp->atomic, word);
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
	return post(qp, f, 2);
}

static int atomic_entry(struct dg_nic_qp *qp, struct nic_flight *f)
{
	struct dg_nic *n = qp->nic;
	const struct nic_wqe *w = &n->wqe;
	struct nic_piece *p = &n->pieces[0];
	if (qp_flies(qp))
		return wait_for(qp, DG_NIC_WAITS_BYTES);
	int rc = find_remote(qp, w->rkey, w->remote, w->atomic_size, DG_NIC_REMOTE_ATOMIC, &p->remote,
			     &p->remote_offset);
	if (rc == EXECUTED && !(qp->far_access & DG_NIC_REMOTE_ATOMIC))
		rc = fail(n, SYNDROME_REMOTE_ACCESS, "access that the peer's queue pair grants",
			  qp->far_access, DG_NIC_REMOTE_ATOMIC);
	if (rc == EXECUTED)
		rc = find_local(qp, &w->segments[0], DG_NIC_LOCAL_WRITE, p);
	if (rc != EXECUTED)
		return rc;
	f->bytes = w->atomic_size;
	if (!cpu_reaches(p))
		return post_atomic(qp, f, p);
	rc = enter_piece(qp, p, false);
	if (rc != EXECUTED)
		return rc;
	if ((uintptr_t)remote_at(p) % w->atomic_size)
		return fail(n, SYNDROME_REMOTE_REQUEST, "memory of the word, not aligned",
			    (uintptr_t)remote_at(p), w->atomic_size);
	order_stores();
	const uint64_t old = run_atomic(w, remote_at(p));
	if (w->atomic_size == 4)
		copy_upto64(local_at(p), (char *)&(uint32_t){(uint32_t)old}, 4);
	else
		copy_upto64(local_at(p), (const char *)&old, 8);
	return EXECUTED;
}

/* WAIT: until a CQ has produced the CQE with this number. CQ counters have 24 bits. */
static int wait_entry(struct dg_nic_qp *qp)
{
	struct dg_nic *n = qp->nic;
	for (const struct dg_nic_cq *cq = n->cqs; cq; cq = cq->next)
		if (cq->number == n->wqe.cqn)
			return (int32_t)((uint32_t)(cq->produced - n->wqe.max_index) << 8) > 0
				       ? EXECUTED
				       : wait_for(qp, DG_NIC_WAITS_WAIT);
	return fail(n, SYNDROME_LOCAL_QP, "number of the CQ to wait for, unknown", n->wqe.cqn, 0);
}

/* DUMP: the local memory is read, into nothing. */
static int dump(struct dg_nic_qp *qp)
{
	const struct nic_wqe *w = &qp->nic->wqe;
	int rc = EXECUTED;
	for (uint32_t i = 0; i < w->n_segments && rc == EXECUTED; i++)
		rc = find_local(qp, &w->segments[i], 0, &qp->nic->pieces[0]);
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
		return fail(qp->nic, SYNDROME_RETRIES, "state of the peer, not ready for 4 s", f->value,
			    DG_NIC_RTR);
	return wait_for(qp, DG_NIC_WAITS_PEER);
}

int dg_nic_execute(struct dg_nic_qp *qp, struct nic_flight *f)
{
	const struct nic_wqe *w = &qp->nic->wqe;
	if ((w->flags & WQE_FENCE && qp_flies(qp)) || qp->nic->atomic_owner == qp)
		return wait_for(qp, DG_NIC_WAITS_BYTES);
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
		return one_sided(qp, f, DG_NIC_REMOTE_WRITE);
	case WQE_READ:
		return one_sided(qp, f, DG_NIC_REMOTE_READ);
	case WQE_WRITE_IMM:
	case WQE_SEND:
	case WQE_SEND_IMM:
		return two_sided(qp, f);
	default:
		return atomic_entry(qp, f);
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
	f->left--;
	if (!f->syndrome)
		f->syndrome = syndrome_of(status);
	if (f->left)
		return;
	if (f->kind == FLIGHT_ATOMIC_READ && !f->syndrome) {
		if (post_result(qp, f) == POSTED)
			return;
		f->syndrome = n->fault.syndrome;
	}
	if (f->kind != FLIGHT_COPY)
		n->atomic_owner = NULL;
	dg_nic_staging_put(n, f);
}
