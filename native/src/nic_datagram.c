// SPDX-License-Identifier: Apache-2.0
/* Datagrams. The sender copies the bytes into its outbox, and completes; the receiver's NIC copies them to a
 * receive of the queue pair that they are for. What nobody can take is dropped, as on a network. */
#include "memory_fault.h"
#include "nic.h"

/* How long a datagram waits for room in the outbox. */
#define ROOM_NS 1000000000ull
/* The kind of header in flags_rqpn: there is one; of IPv4. */
enum { GRH_PRESENT = 1 << 28, GRH_IPV4 = 2 << 24, UDP = 17 };

/* Returns the part that has the receiver, or NULL. *waits: a search for parts that began after this datagram has
 * not ended yet. */
static struct nic_part *find_part(struct dg_nic_qp *qp, bool *waits)
{
	struct dg_nic *n = qp->nic;
	const struct nic_wqe *w = &n->wqe;
	*waits = false;
	if (!n->is_part)
		return memcmp(w->gid, n->table->gid, sizeof w->gid) ? NULL : &n->parts[n->part];
	struct nic_part *p = &n->parts[w->to >> NIC_PART_SHIFT];
	if (!p->table && !qp->asked) {
		qp->asked = n->searches + 2; /* not the next to end: it may have begun before and missed the part */
		sem_post(&n->resolve);
	}
	*waits = !p->table && n->searches < qp->asked;
	if (!*waits)
		qp->asked = 0;
	return p->table ? p : NULL;
}

static bool has_room(const struct dg_nic *n, const struct nic_part *p)
{
	const struct nic_inbox *in = &p->table->inboxes[n->part];
	const bool meets = atomic_load_explicit(&in->from, memory_order_acquire) == n->table->instance;
	/* Acquire: its bytes were copied before their place is used again. */
	const uint64_t consumed = meets ? atomic_load_explicit(&in->consumed, memory_order_acquire) : 0;
	return p->sent - consumed < NIC_DATAGRAMS;
}

/* Copies the bytes of the entry, or for NULL only checks where they are. */
static int gather(struct dg_nic_qp *qp, uint8_t *to)
{
	struct dg_nic *n = qp->nic;
	const struct nic_wqe *w = &n->wqe;
	struct exec_piece p;
	for (uint32_t i = 0; i < w->n_segments; i++) {
		const int rc = dg_nic_find_local(qp, &w->segments[i], 0, &p);
		if (rc != EXECUTED)
			return rc;
		if (p.local && (!is_plain(p.local->entry) || !(p.local->entry->access & DG_ACCESS_READ) ||
				!region_is_open(p.local->id)))
			return nic_fault(n, SYNDROME_LOCAL_PROTECTION,
					 "lkey of memory that datagrams cannot be sent from",
					 w->segments[i].key, 0);
		if (to)
			to = (uint8_t *)memcpy(to, exec_local(&p), p.size) + p.size;
	}
	return EXECUTED;
}

int dg_nic_datagram(struct dg_nic_qp *qp, struct nic_entry *e)
{
	struct dg_nic *n = qp->nic;
	const struct nic_wqe *w = &n->wqe;
	bool waits;
	struct nic_part *p = find_part(qp, &waits);
	if (waits)
		return nic_wait(qp, DG_NIC_WAITS_PEER);
	if (p && !has_room(n, p)) {
		const uint64_t now = now_ns();
		qp->not_ready_ns = qp->not_ready_ns ? qp->not_ready_ns : now;
		if (now - qp->not_ready_ns < ROOM_NS)
			return nic_wait(qp, DG_NIC_WAITS_RECEIVE);
		p = NULL;
	}
	if (!p)
		return gather(qp, NULL);
	struct nic_outbox *out = &n->table->outboxes[p - n->parts];
	struct nic_datagram *d = &out->datagrams[p->sent % NIC_DATAGRAMS];
	const int rc = gather(qp, d->data);
	if (rc != EXECUTED)
		return rc;
	struct nic_datagram head = {
		.to = w->to,
		.from = qp->qpn,
		.q_key = w->q_key >> 31 ? qp->q_key : w->q_key,
		.immediate = w->opcode == WQE_SEND ? 0 : w->immediate,
		.bytes = (uint32_t)w->total,
		.opcode = w->opcode == WQE_SEND ? CQE_SEND : CQE_SEND_IMM,
		.solicited = !!(w->flags & WQE_SOLICITED),
	};
	memcpy(head.gid, w->gid, sizeof head.gid);
	store_words(d, &head, DATAGRAM_WORDS);
	qp->not_ready_ns = 0;
	e->bytes = w->total;
	/* Release: who sees the count sees the datagram. */
	atomic_store_explicit(&out->delivered, ++p->sent, memory_order_release);
	return EXECUTED;
}

bool dg_nic_datagrams_wait(const struct dg_nic *n)
{
	for (uint32_t i = 0; i < n->parts_end; i++) {
		const struct nic_part *p = &n->parts[i];
		if (p->sent && atomic_load_explicit(&p->table->inboxes[n->part].consumed,
						    memory_order_relaxed) < p->sent)
			return true;
	}
	return false;
}

/* Writes the header of the packet, as an adapter stores it: of IPv4 in the last 20 bytes. */
static void write_header(uint8_t h[DG_NIC_GRH], const struct nic_datagram *d)
{
	static const uint8_t mapped[12] = {[10] = 0xff, [11] = 0xff};
	const uint16_t size = (uint16_t)(d->bytes + 20 + 8 + 12 + 8 + 4); /* IP, UDP, BTH, DETH, CRC */
	uint8_t *ip = h + 20;
	uint32_t sum = 0;
	memset(h, 0, DG_NIC_GRH);
	if (memcmp(d->gid, mapped, sizeof mapped)) {
		h[0] = 0x60;
		h[4] = (uint8_t)(size >> 8);
		h[5] = (uint8_t)size;
		h[6] = 0x1b; /* the next header is InfiniBand's */
		memcpy(h + 8, d->gid, 16);
		memcpy(h + 24, d->gid, 16);
		return;
	}
	ip[0] = 0x45;
	ip[2] = (uint8_t)(size >> 8);
	ip[3] = (uint8_t)size;
	ip[8] = 64;
	ip[9] = UDP;
	memcpy(ip + 12, d->gid + 12, 4);
	memcpy(ip + 16, d->gid + 12, 4);
	for (uint32_t i = 0; i < 20; i += 2)
		sum += (uint32_t)ip[i] << 8 | ip[i + 1];
	sum = ~(sum % 0xffff);
	ip[10] = (uint8_t)(sum >> 8);
	ip[11] = (uint8_t)sum;
}

bool dg_nic_scatter(struct dg_nic *n, const struct nic_segment *s, uint32_t count, uint64_t at,
		    const uint8_t *from, uint64_t size)
{
	for (uint32_t i = 0; i < count && size; i++) {
		const struct nic_key *k = nic_key_find(n, s[i].key);
		const struct dg_region_entry *e = k->local.entry;
		const uint64_t skip = at < s[i].size ? at : s[i].size;
		const uint64_t room = s[i].size - skip, part = room < size ? room : size;
		if (!is_plain(e) || !(e->access & DG_ACCESS_WRITE) || !region_is_open(k->local.id))
			return false;
		if (dg_copy_caught(e->base + (s[i].address - k->address) + skip, from, part, part))
			return false;
		at -= skip;
		from += part;
		size -= part;
	}
	return true;
}

/* Returns the syndrome of a receive that cannot take the datagram, or 0. */
static uint8_t place(struct dg_nic_qp *qp, const uint8_t *segments, const struct nic_datagram *d,
		     const uint8_t *data)
{
	struct dg_nic *n = qp->nic;
	struct nic_segment s[DG_NIC_SGES];
	uint8_t header[DG_NIC_GRH];
	uint64_t room = 0;
	const uint32_t count = dg_nic_parse_receive(segments, qp->rq->sges, s);
	for (uint32_t i = 0; i < count; room += s[i++].size)
		if (dg_nic_check_segment(qp, &s[i]))
			return SYNDROME_LOCAL_PROTECTION;
	if (room < d->bytes + DG_NIC_GRH)
		return SYNDROME_LOCAL_LENGTH;
	write_header(header, d);
	return dg_nic_scatter(n, s, count, 0, header, sizeof header) &&
			       dg_nic_scatter(n, s, count, sizeof header, data, d->bytes)
		       ? 0
		       : SYNDROME_LOCAL_PROTECTION;
}

static void receive_datagram(struct dg_nic_qp *qp, const struct nic_datagram *d,
			     const uint8_t *data)
{
	static const uint8_t mapped[12] = {[10] = 0xff, [11] = 0xff};
	uint8_t segments[WQE_SEGMENT * DG_NIC_SGES];
	const uint16_t at = dg_nic_load_receive(qp->rq, segments);
	const uint8_t syndrome = place(qp, segments, d, data);
	const struct nic_fault f = {syndrome, "receive of a datagram, number of bytes", d->bytes, 0};
	const struct nic_cqe e = {
		.opcode = syndrome ? CQE_RECEIVE_ERROR : (uint8_t)d->opcode,
		.syndrome = syndrome,
		.index = at,
		.immediate = d->immediate,
		.bytes = d->bytes + DG_NIC_GRH,
		.from = GRH_PRESENT | (memcmp(d->gid, mapped, sizeof mapped) ? 0 : GRH_IPV4) |
			(d->from & 0xffffff),
		.solicited = d->solicited,
	};
	if (syndrome)
		dg_nic_error_cqe(qp, qp->c.receive_cq, e);
	else
		dg_nic_cqe(qp, qp->c.receive_cq, &e);
	qp->rq->done++;
	qp->info.received++;
	if (syndrome)
		dg_nic_qp_fail(qp, &f, at);
}

/* Delivers a datagram, or drops it. Returns false if it waits for a receive. */
static bool deliver(struct dg_nic *n, const struct nic_datagram *d, const uint8_t *data)
{
	struct dg_nic_qp *qp = n->datagram_qps[qp_index(d->to)];
	if (!qp || qp->qpn != d->to || qp->state < DG_NIC_RTR || qp->state > DG_NIC_RTS ||
	    qp->q_key != d->q_key || d->bytes > DG_NIC_MTU || !qp->rq->entries ||
	    (d->opcode != CQE_SEND && d->opcode != CQE_SEND_IMM))
		return true;
	if (!dg_nic_has_receive(qp->rq)) {
		const uint64_t now = now_ns();
		qp->dry_ns = qp->dry_ns ? qp->dry_ns : now;
		return now - qp->dry_ns > NIC_DRY_NS;
	}
	qp->dry_ns = 0;
	if (exec_pass_begin(&qp->x))
		return true;
	receive_datagram(qp, d, data);
	exec_pass_end(&qp->x);
	return true;
}

/* Takes what a part has sent. */
static bool take(struct dg_nic *n, uint32_t part)
{
	struct nic_part *p = &n->parts[part];
	const struct nic_outbox *out = &p->table->outboxes[n->part];
	struct nic_datagram head;
	uint32_t i = 0;
	if (atomic_load_explicit(&out->to, memory_order_acquire) != n->table->instance)
		return false;
	const uint64_t delivered = atomic_load_explicit(&out->delivered, memory_order_acquire);
	for (; p->taken < delivered && i < NIC_DATAGRAMS; i++) {
		const struct nic_datagram *d = &out->datagrams[p->taken % NIC_DATAGRAMS];
		load_words(&head, d, DATAGRAM_WORDS);
		if (!deliver(n, &head, d->data))
			break;
		p->taken++;
	}
	/* Release: the bytes are copied before the sender uses their place again. */
	if (i)
		atomic_store_explicit(&n->table->inboxes[part].consumed, p->taken, memory_order_release);
	return i;
}

bool dg_nic_datagrams(struct dg_nic *n)
{
	bool any = false;
	for (uint32_t i = 0; i < n->parts_end; i++)
		if (n->parts[i].table)
			any |= take(n, i);
	return any;
}
