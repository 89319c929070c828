// SPDX-License-Identifier: Apache-2.0
/* Receive queues: publishes receives in the queue pair's box, and completes them with the messages
 * in the peer's box. */
#include "nic.h"

/* Counts the receives in the ring, from its doorbell record. Returns false if it jumped, which ends each
 * queue pair that uses the ring. */
static bool load_record(struct dg_nic_qp *qp)
{
	struct nic_receives *rq = qp->rq;
	const uint32_t record = atomic_load_explicit((_Atomic uint32_t *)&rq->record[0],
						     memory_order_acquire);
	const uint16_t ahead = (uint16_t)(be32toh(record) - (uint32_t)rq->end);
	if (!ahead || ahead > DG_NIC_ENTRIES_MAX)
		return true;
	if (rq->end + ahead - rq->done <= rq->entries) {
		rq->end += ahead;
		return true;
	}
	if (qp->state == DG_NIC_ERROR)
		return true;
	const struct nic_fault f = {SYNDROME_LOCAL_QP, "receive record, beyond the ring; its end is",
				    rq->end + ahead, rq->done + rq->entries};
	dg_nic_qp_fatal(qp, &f, rq->end);
	return false;
}

uint32_t dg_nic_check_segment(struct dg_nic_qp *qp, const struct nic_segment *s)
{
	const struct nic_key *k = nic_key_find(qp->nic, s->key);
	uint64_t offset;
	const bool valid = k && k->pd == qp->rq->pd && k->access & DG_NIC_LOCAL_WRITE &&
			   key_covers(k, s->address, s->size, &offset);
	return valid ? 0 : SYNDROME_LOCAL_PROTECTION;
}

bool dg_nic_has_receive(const struct nic_receives *rq)
{
	return rq->taken != rq->end || rq->n_returned;
}

uint16_t dg_nic_load_receive(struct nic_receives *rq, uint8_t *segments)
{
	const uint32_t size = rq->sges * WQE_SEGMENT, mask = rq->entries - 1;
	uint8_t link[WQE_SEGMENT];
	if (!rq->is_list) {
		const uint16_t place = (uint16_t)rq->taken++;
		load_words(segments, rq->ring + (place & mask) * size, size / 8);
		return place;
	}
	const bool again = rq->n_returned;
	const uint16_t place = again ? rq->returned[--rq->n_returned] : rq->next;
	const uint8_t *at = rq->ring + (uint64_t)place * (size + WQE_SEGMENT);
	load_words(link, at, sizeof link / 8);
	load_words(segments, at + WQE_SEGMENT, size / 8);
	if (!again) {
		rq->next = (uint16_t)(be32_at(link) & mask);
		rq->taken++;
	}
	if (__builtin_expect(rq->limit, 0))
		dg_nic_check_limit(rq);
	return place;
}

static void publish_receives(struct dg_nic_qp *qp)
{
	uint8_t bytes[WQE_SEGMENT * DG_NIC_SGES];
	struct nic_segment segments[DG_NIC_SGES];
	struct nic_receive r;
	qp->places[qp->posted % NIC_WINDOW] = dg_nic_load_receive(qp->rq, bytes);
	r.n = dg_nic_parse_receive(bytes, qp->rq->sges, segments);
	r.syndrome = 0;
	for (uint32_t i = 0; i < r.n; i++) {
		r.segments[i].address = segments[i].address;
		r.segments[i].key = segments[i].key;
		r.segments[i].size = segments[i].size;
		if (!r.syndrome)
			r.syndrome = dg_nic_check_segment(qp, &segments[i]);
	}
	store_words(&qp->box->receives[qp->posted % NIC_WINDOW], &r,
		    RECEIVE_WORDS + SEGMENT_WORDS * r.n);
	qp->posted++;
	atomic_store_explicit(&qp->box->posted, qp->posted, memory_order_release);
}

/* Returns the place of the receive that is completed next. */
static uint16_t place_of(const struct dg_nic_qp *qp)
{
	return qp->received < qp->posted ? qp->places[qp->received % NIC_WINDOW]
					 : (uint16_t)qp->rq->done;
}

static void error_cqe(struct dg_nic_qp *qp, uint32_t syndrome, uint8_t vendor)
{
	const struct nic_cqe e = {
		.opcode = CQE_RECEIVE_ERROR,
		.syndrome = (uint8_t)syndrome,
		.vendor = vendor,
		.index = place_of(qp),
	};
	dg_nic_error_cqe(qp, qp->c.receive_cq, e);
}

static void count_done(struct dg_nic_qp *qp)
{
	qp->received++;
	qp->rq->done++;
}

/* Copies the bytes of a message that carries them to the receive that is completed next. Returns 0 or a syndrome. */
static uint32_t store_carried(struct dg_nic_qp *qp, const struct nic_message *m)
{
	const struct nic_receive *r = &qp->box->receives[qp->received % NIC_WINDOW];
	struct nic_segment s[DG_NIC_SGES];
	uint32_t syndrome = 0;
	uint64_t room = 0;
	if (exec_pass_begin(&qp->x))
		return SYNDROME_FLUSHED;
	for (uint32_t i = 0; i < r->n; i++) {
		s[i] = (struct nic_segment){
			.address = r->segments[i].address, .key = r->segments[i].key, .size = r->segments[i].size};
		room += s[i].size;
		if (dg_nic_check_segment(qp, &s[i]))
			syndrome = SYNDROME_LOCAL_PROTECTION;
	}
	if (!syndrome && room < m->n_inline)
		syndrome = SYNDROME_LOCAL_LENGTH;
	if (!syndrome && !dg_nic_scatter(qp->nic, s, r->n, 0, m->data, m->n_inline))
		syndrome = SYNDROME_LOCAL_PROTECTION;
	exec_pass_end(&qp->x);
	return syndrome;
}

static void receive_one(struct dg_nic_qp *qp, const struct nic_message *m)
{
	const bool is_inline = atomic_load_explicit(&qp->box->inline_receive, memory_order_relaxed);
	const struct nic_cqe e = {
		.opcode = (uint8_t)m->opcode,
		.index = place_of(qp),
		.immediate = m->immediate,
		.bytes = (uint32_t)m->bytes,
		.n_inline = is_inline ? (uint8_t)m->n_inline : 0,
		.data = m->data,
		.solicited = m->solicited,
	};
	const bool valid = m->opcode >= CQE_WRITE_IMM && m->opcode <= CQE_SEND_INVAL &&
			   m->n_inline <= (is_inline ? NIC_INLINE : NIC_CARRIED) &&
			   m->bytes <= WQE_MESSAGE_MAX;
	struct nic_verdict v = {0};
	if (__builtin_expect(qp->nic->observer && qp->nic->observer->receive, 0))
		qp->nic->observer->receive(qp, m, &v);
	uint32_t syndrome = !valid ? SYNDROME_LOCAL_QP : m->syndrome ? m->syndrome : v.syndrome;
	if (!syndrome && m->n_inline && !is_inline)
		syndrome = store_carried(qp, m);
	if (!syndrome && m->opcode == CQE_SEND_INVAL && !dg_nic_window_invalidate(qp, be32toh(m->immediate)))
		syndrome = SYNDROME_LOCAL_ACCESS;
	if (syndrome) {
		const struct nic_fault f = {(uint8_t)syndrome, "receive, ended with an error", m->opcode,
					    m->bytes};
		error_cqe(qp, syndrome, v.vendor);
		dg_nic_qp_fail(qp, &f, qp->received);
	} else if (!v.lose) {
		dg_nic_cqe(qp, qp->c.receive_cq, &e);
	}
	count_done(qp);
	qp->info.received++;
}

bool dg_nic_is_peer(const struct dg_nic_qp *qp)
{
	return atomic_load_explicit(&qp->far->qpn, memory_order_relaxed) == qp->address.qpn &&
	       atomic_load_explicit(&qp->far->peer_qpn, memory_order_relaxed) == qp->qpn;
}

static uint32_t data_words(const struct nic_message *m)
{
	return (m->n_inline < NIC_CARRIED ? m->n_inline + 7u : NIC_CARRIED) / 8;
}

/* Takes the peer's messages. Returns whether there was one. */
static bool take_messages(struct dg_nic_qp *qp)
{
	const uint64_t resets = atomic_load_explicit(&qp->far->resets, memory_order_acquire);
	const uint64_t delivered = atomic_load_explicit(&qp->far->delivered, memory_order_acquire);
	uint32_t n = 0;
	if (delivered <= qp->received || resets == qp->ignored || !dg_nic_is_peer(qp) ||
	    !is_same_connection(qp, resets))
		return false;
	if (delivered > qp->posted) {
		const struct nic_fault f = {SYNDROME_LOCAL_QP, "messages of the peer, more than receives",
					    delivered, qp->posted};
		dg_nic_qp_fail(qp, &f, qp->received);
		return true;
	}
	for (; qp->received != delivered && qp->state != DG_NIC_ERROR; n++) {
		struct nic_message m;
		const struct nic_message *from = &qp->far->messages[qp->received % NIC_WINDOW];
		load_words(&m, from, MESSAGE_WORDS);
		load_words(m.data, from->data, data_words(&m));
		receive_one(qp, &m);
	}
	atomic_store_explicit(&qp->box->consumed, qp->received, memory_order_release);
	return n;
}

/* Completes what is left in the ring of a queue pair in the error state; of a shared ring only what it
 * published, as the rest is for others. */
static bool flush(struct dg_nic_qp *qp)
{
	const struct nic_receives *rq = qp->rq;
	const uint64_t end = is_shared(rq) ? rq->done + qp->posted - qp->received : rq->end;
	uint32_t n = 0;
	for (; rq->done != end && n < NIC_PASS; n++) {
		error_cqe(qp, SYNDROME_FLUSHED, 0);
		count_done(qp);
	}
	if (rq->is_list && rq->done == end && !qp->last_reached) {
		qp->last_reached = true;
		dg_nic_async(qp->c.async_fd, qp->c.event, DG_NIC_QP_LAST_RECEIVE);
	}
	return n;
}

/* How many receives may be in the box: of a shared ring no more than the peer wants. */
static uint64_t publish_end(const struct dg_nic_qp *qp)
{
	const uint64_t window = qp->received + NIC_WINDOW;
	if (!is_shared(qp->rq))
		return window;
	const uint64_t wants =
		dg_nic_is_peer(qp) ? atomic_load_explicit(&qp->far->wants, memory_order_relaxed) >> NIC_TRY_BITS : 0;
	return wants < window ? wants : window;
}

/* Tells the peer that there is no receive for its message. */
static bool answer_dry(struct dg_nic_qp *qp, uint64_t wants)
{
	/* Again, behind the acquire: a receive that was posted in time is there. */
	if (!dg_nic_is_peer(qp) || !load_record(qp) || dg_nic_has_receive(qp->rq))
		return false;
	qp->dry = wants;
	atomic_store_explicit(&qp->box->dry, wants, memory_order_relaxed);
	return true;
}

bool dg_nic_receive(struct dg_nic_qp *qp)
{
	bool busy = qp->c.transport == DG_NIC_XRC_RECEIVE && dg_nic_srq_follow(qp);
	const struct nic_receives *rq = qp->rq;
	/* Nothing takes a message that was delivered when its queue of XRC was closed: the connection ends, or the
	 * sender would wait for ever for its next queue. */
	if (!rq->entries && qp->c.transport == DG_NIC_XRC_RECEIVE && qp->state != DG_NIC_ERROR)
		return take_messages(qp) || busy;
	if (!rq->entries || !load_record(qp))
		return busy;
	if (qp->state == DG_NIC_ERROR)
		return flush(qp);
	if (qp->c.transport == DG_NIC_UD) /* they are taken where the datagrams are */
		return false;
	const uint64_t end = publish_end(qp);
	for (uint32_t n = 0; n < NIC_PASS && dg_nic_has_receive(rq) && qp->posted < end; n++) {
		publish_receives(qp);
		busy = true;
	}
	const uint64_t wants = atomic_load_explicit(&qp->far->wants, memory_order_acquire);
	if (__builtin_expect(wants >> NIC_TRY_BITS > qp->posted && wants != qp->dry, 0))
		busy |= answer_dry(qp, wants);
	return take_messages(qp) || busy;
}

/* The times between two tries, by the code that the receiver has (InfiniBand specification, volume 1, "RNR NAK
 * timer field"): 10 us and 15 us, doubled for every two codes; 1 and 0 are out of this order. */
static uint64_t rnr_ns(uint32_t code)
{
	code = code ? code & 31 : 32;
	return code == 1 ? 10000 : (code & 1 ? 15000ull : 10000ull) << code / 2;
}

static void set_wants(struct dg_nic_qp *qp, uint64_t wants)
{
	qp->wants = wants;
	qp->retry_ns = 0;
	/* Release: the peer's NIC that sees this also sees the receives that its program posted before the
	 * program here did this entry. */
	atomic_store_explicit(&qp->box->wants, wants, memory_order_release);
}

/* There is no receive: asks the peer for one, and again when its timer ends after each answer that it has none. */
static int retry(struct dg_nic_qp *qp)
{
	const bool is_uc = qp->c.transport == DG_NIC_UC;
	const uint32_t most = is_uc ? 1 : qp->rnr_retries, tries = qp->wants & ((1 << NIC_TRY_BITS) - 1);
	if (qp->wants >> NIC_TRY_BITS != qp->sent + 1)
		set_wants(qp, (qp->sent + 1) << NIC_TRY_BITS);
	else if (most < 7 &&
		 atomic_load_explicit(&qp->far->dry, memory_order_relaxed) == qp->wants) {
		const uint64_t now = now_ns();
		if (!qp->retry_ns && qp->nic->observer)
			qp->nic->observer->not_ready(qp);
		if (tries >= most) {
			qp->wants = 0; /* over UC, the next message asks anew */
			return nic_fault(qp->nic, SYNDROME_RECEIVE_RETRIES,
					 "message, without a receive of the peer, tries", tries + 1, 0);
		}
		if (!qp->retry_ns)
			qp->retry_ns = now + (is_uc ? NIC_DRY_NS
						    : rnr_ns(atomic_load_explicit(&qp->far->rnr_timer,
										  memory_order_relaxed)));
		if (now >= qp->retry_ns)
			set_wants(qp, qp->wants + 1);
	}
	return nic_wait(qp, DG_NIC_WAITS_RECEIVE);
}

int dg_nic_find_receive(struct dg_nic_qp *qp)
{
	const uint64_t posted = atomic_load_explicit(&qp->far->posted, memory_order_acquire);
	const uint64_t consumed = atomic_load_explicit(&qp->far->consumed, memory_order_acquire);
	if (__builtin_expect(posted <= qp->sent, 0))
		return retry(qp);
	return qp->sent - consumed < NIC_WINDOW ? EXECUTED : nic_wait(qp, DG_NIC_WAITS_RECEIVE);
}

void dg_nic_deliver(struct dg_nic_qp *qp, const struct nic_message *m)
{
	struct nic_message *to = &qp->box->messages[qp->sent % NIC_WINDOW];
	store_words(to, m, MESSAGE_WORDS);
	store_words(to->data, m->data, data_words(m));
	qp->sent++;
	/* Release: the bytes of the message and its words are visible to whoever sees this. */
	atomic_store_explicit(&qp->box->delivered, qp->sent, memory_order_release);
}
