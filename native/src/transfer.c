// SPDX-License-Identifier: Apache-2.0
/* Transfers: operations whose completion stays in its slot until it is taken with a ticket. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "queue.h"

static int64_t post(struct dg_queue *q, const dg_wr *wr, uint32_t n, dg_wc *wc)
{
	bool able;
	uint64_t total, submit_ns = now_ns();
	int rc = dg_queue_postable(q);
	if (!rc)
		rc = dg_queue_room(q, n);
	if (!rc)
		rc = dg_queue_stage(q, wr, n, &able, &total);
	if (rc)
		return rc;
	if (queue_inline(q, able, total)) {
		dg_queue_run_inline(q->scratch, wr, n, wc, 0, 0);
		return 0;
	}
	return slot_ticket(
		&q->slots[dg_queue_submit(q, q->scratch, wr, n, KIND_TRANSFER, submit_ns)]);
}

int64_t dg_transfer_post(dg_queue *q, uint32_t op, uint32_t local, uint32_t remote, uint64_t size,
			 uint64_t local_offset, uint64_t remote_offset, uint32_t flags, dg_wc *wc)
{
	dg_wr wr = {.local = local,
		    .remote = remote,
		    .local_offset = local_offset,
		    .remote_offset = remote_offset,
		    .size = size,
		    .rows = 1,
		    .op = (uint8_t)op,
		    .flags = (uint8_t)(flags & DG_FENCE)};
	if (op > DG_WRITE || (flags & ~(uint32_t)DG_FENCE))
		return dg_fail(EINVAL,
			       "operation %u with flags %#x is not a transfer: the operations are "
			       "DG_READ (0) and DG_WRITE (1), the flags 0 or DG_FENCE (1); atomic "
			       "operations are posted as records, by dg_transfer_post_wr()",
			       op, flags);
	TRY(queue_enter(q));
	int64_t ticket = post(q, &wr, 1, wc);
	queue_leave(q);
	return ticket;
}

int64_t dg_transfer_post_wr(dg_queue *q, const dg_wr *wr, uint32_t n, dg_wc *wc)
{
	if (n == 0)
		return dg_fail(EINVAL, "a transfer has 0 records; the minimum is 1");
	for (uint32_t i = 0; i + 1 < n; i++)
		if (!(wr[i].flags & DG_CHAIN))
			return dg_fail(
				EINVAL,
				"record %u of %u lacks DG_CHAIN: a transfer is one operation", i,
				n);
	TRY(queue_enter(q));
	int64_t ticket = post(q, wr, n, wc);
	queue_leave(q);
	return ticket;
}

/* Frees the slot of a transfer whose completion was taken or dropped. */
static void retire(struct dg_queue *q, struct dg_slot *s)
{
	credits_add(q, 1);
	s->generation++;
	if (s->overdue) {
		s->state = SLOT_ZOMBIE;
		return;
	}
	s->state = SLOT_FREE;
	q->free[q->n_free++] = (uint32_t)(s - q->slots);
}

static int wait_slot(struct dg_queue *q, struct dg_slot *s, uint64_t timeout_ns)
{
	uint64_t start = 0;
	while (s->state != SLOT_DONE) {
		dg_queue_process_completions(q, NULL, 0);
		if (s->state == SLOT_DONE)
			break;
		if (queue_closed(q))
			return dg_fail(ESTALE, "the queue is closed");
		uint64_t now = now_ns();
		dg_queue_expire(q, now);
		if (s->state == SLOT_DONE)
			break;
		if (!start)
			start = now;
		if (now - start >= timeout_ns)
			return dg_fail(ETIME, "the transfer was not complete within the time-out");
		int rc =
			dg_queue_wait(q, spin_until(q, start, s->size), add_sat(start, timeout_ns));
		if (rc)
			return rc;
	}
	return 0;
}

/* Enters the queue of a ticket and stores its slot in *out. */
static int enter_ticket(int64_t ticket, struct dg_slot **out)
{
	int64_t address = ticket & ~(int64_t)(TICKET_GENERATIONS - 1);
	struct dg_slot *s = (struct dg_slot *)(intptr_t)address;
	if (ticket < DG_TICKET)
		return dg_fail(EINVAL, "%" PRId64 " is not a ticket", ticket);
	int rc = queue_enter(s->q);
	if (!rc && (s->state == SLOT_FREE || s->state == SLOT_ZOMBIE || s->kind != KIND_TRANSFER ||
		    slot_ticket(s) != ticket)) {
		queue_leave(s->q);
		rc = dg_fail(EINVAL, "this ticket was already waited for or dropped");
	}
	*out = s;
	return rc;
}

int dg_transfer_wait(int64_t ticket, uint64_t timeout_ns, dg_wc *wc)
{
	struct dg_slot *s;
	TRY(enter_ticket(ticket, &s));
	struct dg_queue *q = s->q;
	int rc = wait_slot(q, s, timeout_ns);
	if (!rc) {
		dg_slot_to_wc(s, wc);
		retire(q, s);
	}
	queue_leave(q);
	return rc;
}

int dg_transfer_drop(int64_t ticket)
{
	struct dg_slot *s;
	TRY(enter_ticket(ticket, &s));
	struct dg_queue *q = s->q;
	if (s->state == SLOT_DONE)
		retire(q, s);
	else
		s->kind = KIND_DROPPED;
	queue_leave(q);
	return 0;
}
