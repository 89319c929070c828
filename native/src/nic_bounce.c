// SPDX-License-Identifier: Apache-2.0
/*
 * Entries in two legs through staging memory, where one provider does not reach both sides: copies
 * between memory that only the provider cuda reaches and memory of another process that only its
 * exporter copies (by_exporter()), and atomic operations on the latter. Each piece of an entry is a
 * flight of its own, of which the last one completes the entry.
 *
 *	            leg 0                      leg 1
 *	PUT         local -> staging           staging -> remote      again for each NIC_CHUNK
 *	GET         remote -> staging          staging -> local       again for each NIC_CHUNK
 *	FAR_ATOMIC  the exporter's old value   staging -> local
 *	            -> staging
 *
 * Order: the legs at the remote side are executed one at a time, in the order of the entries, and
 * none behind one that failed. The other legs of several flights overlap. While such flights are in
 * progress, no other entry of the queue pair is executed.
 */
#include "nic.h"

static uint32_t chunk_of(const struct nic_flight *f)
{
	const uint32_t left = f->size - f->done;
	return left < NIC_CHUNK ? left : NIC_CHUNK;
}

/* Whether the next leg, or the one in progress, is at the remote side. */
static bool is_remote(const struct nic_flight *f)
{
	return (f->kind == FLIGHT_PUT) == f->leg;
}

/* Whether no leg at the remote side is left. */
static bool left_remote(const struct nic_flight *f)
{
	return !f->left || (f->kind != FLIGHT_PUT && f->leg && f->done + chunk_of(f) == f->size);
}

static void end(struct dg_nic_qp *qp, struct nic_flight *f, uint8_t syndrome)
{
	if (!f->syndrome)
		f->syndrome = syndrome;
	f->left = 0;
	qp->bounced--;
	dg_nic_staging_put(qp->nic, f);
}

static dg_wr leg_of(const struct dg_nic *n, const struct nic_flight *f, uint32_t number)
{
	dg_wr wr = {
		.user = number,
		.local = f->local,
		.local_offset = f->local_offset + f->done,
		.remote = n->staging_import_name,
		.remote_offset = f->staging->offset,
		.size = chunk_of(f),
		.op = f->kind == FLIGHT_PUT ? DG_WRITE : DG_READ,
	};
	if (!is_remote(f))
		return wr;
	wr.local = f->by_soft ? n->staging_soft_name : n->staging_name;
	wr.local_offset = f->staging->offset;
	wr.remote = f->remote;
	wr.remote_offset = f->remote_offset + f->done;
	return wr;
}

static int post_entered(struct dg_nic_qp *qp, struct dg_queue *q, const struct nic_flight *f)
{
	struct op_run run = {0};
	const int rc = dg_nic_resolve(qp->nic, q, 0, &run);
	if (rc != EXECUTED)
		return rc;
	if (f->kind == FLIGHT_FAR_ATOMIC && is_remote(f))
		q->scratch[0].opcode = OP_MASKED;
	dg_queue_submit(q, q->scratch, qp->nic->wr, 1, KIND_POLL, now_ns());
	return POSTED;
}

static int post(struct dg_nic_qp *qp, struct nic_flight *f, uint32_t number)
{
	struct dg_queue *q = is_remote(f) && f->by_soft ? qp->soft_q : qp->q;
	qp->nic->wr[0] = leg_of(qp->nic, f, number);
	if (q == qp->q)
		return post_entered(qp, q, f);
	if (queue_enter(q))
		return WAITS;
	const int rc = post_entered(qp, q, f);
	queue_leave(q);
	return rc;
}

/* Posts the flight's next leg, if it may. before: flights before it that have legs at the remote side.
 * Returns whether anything was done. */
static bool advance(struct dg_nic_qp *qp, struct nic_flight *f, uint32_t number, uint32_t before)
{
	/* Only two flights of a queue pair have large staging memory, of which there is little. */
	const uint32_t most = chunk_of(f) > NIC_STAGING ? 1 : NIC_FLIGHTS;
	if (f->posted)
		return false;
	if (f->syndrome || qp->state != DG_NIC_RTS) {
		end(qp, f, SYNDROME_FLUSHED);
		return true;
	}
	if (before > (is_remote(f) ? 0 : most) || !dg_nic_staging_take(qp->nic, f, chunk_of(f)))
		return false;
	const int rc = post(qp, f, number);
	if (rc == FAILED)
		end(qp, f, qp->nic->fault.syndrome);
	f->posted = rc == POSTED;
	return rc != WAITS;
}

bool dg_nic_bounce_all(struct dg_nic_qp *qp)
{
	uint32_t before = 0;
	bool busy = false;
	for (uint32_t i = qp->flight_head; i != qp->flight_tail; i++) {
		struct nic_flight *f = flight_at(qp, i);
		if (f->left)
			busy |= advance(qp, f, i, before);
		if (f->syndrome && qp->state == DG_NIC_RTS)
			break;
		before += !left_remote(f);
	}
	return busy;
}

void dg_nic_bounce_step(struct dg_nic_qp *qp, struct nic_flight *f, uint8_t syndrome)
{
	f->posted = false;
	if (syndrome) {
		end(qp, f, syndrome);
		return;
	}
	f->leg = !f->leg;
	if (f->leg)
		return;
	f->done += chunk_of(f);
	if (f->done == f->size)
		end(qp, f, SYNDROME_NONE);
}

/* Makes a flight of a piece. last: it completes the entry. Returns false if there is no staging memory
 * for inline bytes. */
static bool make_flight(struct dg_nic *n, struct nic_flight *f, const struct nic_piece *p, bool last)
{
	f->left = 1;
	f->leg = f->posted = false;
	f->by_soft = n->dev->gpu && by_exporter(p->remote->remote.entry);
	f->local = p->local ? REGION_NAME(p->local->local.id) : 0;
	f->local_offset = p->local_offset;
	f->remote = REGION_NAME(p->remote->remote.id);
	f->remote_offset = p->remote_offset;
	f->size = p->size;
	f->done = 0;
	if (!last) {
		f->blocks = f->flags = 0;
		f->bytes = 0;
		f->message.opcode = 0;
	}
	if (p->local)
		return true;
	if (!dg_nic_staging_take(n, f, p->size))
		return false;
	memcpy(n->staging + f->staging->offset, p->bytes, p->size);
	f->leg = true;
	return true;
}

int dg_nic_bounce(struct dg_nic_qp *qp, const struct nic_flight *entry, uint32_t count)
{
	struct dg_nic *n = qp->nic;
	const struct nic_flight whole = *entry;
	if ((qp_flies(qp) && !qp->bounced) ||
	    NIC_FLIGHTS - (qp->flight_tail - qp->flight_head) < count)
		return nic_wait(qp, DG_NIC_WAITS_BYTES);
	for (uint32_t i = 0; i < count; i++) {
		struct nic_flight *f = flight_at(qp, qp->flight_tail + i);
		*f = whole;
		if (make_flight(n, f, &n->pieces[i], i + 1 == count))
			continue;
		for (; i; i--)
			dg_nic_staging_put(n, flight_at(qp, qp->flight_tail + i - 1));
		return nic_wait(qp, DG_NIC_WAITS_BYTES);
	}
	qp->flight_tail += count - 1; /* the caller adds the last one */
	qp->bounced += count;
	return POSTED;
}
