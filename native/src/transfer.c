// SPDX-License-Identifier: Apache-2.0
/* Transfers: operations whose completion stays in its slot until it is taken with a ticket. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "queue.h"

static int64_t inline_transfer(struct dg_queue *q, const dg_wr *wr, uint32_t n)
{
	dg_wc wc;
	dg_queue_run_inline(q->scratch, wr, n, &wc, 0, 0);
	if (wc.status == DG_OK && q->sink_next < q->sink_n) {
		q->sink[q->sink_next] = wc;
		return q->sink_next++;
	}
	struct dg_slot *s = &q->slots[q->free[--q->n_free]];
	credits_take(q, 1);
	const struct dg_slot done = {
		.user = wc.user,
		.size = wc.size,
		.submit_ns = wc.submit_ns,
		.post_ns = wc.post_ns,
		.complete_ns = wc.complete_ns,
		.part = NO_SLOT,
		.state = SLOT_DONE,
		.kind = KIND_TRANSFER,
		.op = wc.op,
		.path = wc.path,
		.status = (uint8_t)wc.status,
		.flags = wc.flags,
	};
	slot_fill(s, &done);
	return slot_ticket(s);
}

static int64_t post(struct dg_queue *q, const dg_wr *wr, uint32_t n)
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
	if (queue_inline(q, able, total))
		return inline_transfer(q, wr, n);
	return slot_ticket(
		&q->slots[dg_queue_submit(q, q->scratch, wr, n, KIND_TRANSFER, submit_ns)]);
}

int64_t dg_transfer_post(dg_queue *q, uint32_t op, uint32_t local, uint32_t remote, uint64_t size,
			 uint64_t local_offset, uint64_t remote_offset, uint32_t flags)
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
			       "DG_READ (0) and DG_WRITE (1), the flags 0 or DG_FENCE (1)",
			       op, flags);
	int rc = queue_enter(q);
	if (rc)
		return rc;
	int64_t ticket = post(q, &wr, 1);
	queue_leave(q);
	return ticket;
}

int64_t dg_transfer_write(dg_queue *q, uint32_t local, uint32_t remote, uint64_t size,
			  uint64_t local_offset, uint64_t remote_offset)
{
	return dg_transfer_post(q, DG_WRITE, local, remote, size, local_offset, remote_offset, 0);
}

int64_t dg_transfer_read(dg_queue *q, uint32_t local, uint32_t remote, uint64_t size,
			 uint64_t local_offset, uint64_t remote_offset)
{
	return dg_transfer_post(q, DG_READ, local, remote, size, local_offset, remote_offset, 0);
}

int64_t dg_transfer_post_wr(dg_queue *q, const dg_wr *wr, uint32_t n)
{
	if (n == 0)
		return dg_fail(EINVAL, "a transfer has 0 records; the minimum is 1");
	for (uint32_t i = 0; i + 1 < n; i++)
		if (!(wr[i].flags & DG_CHAIN))
			return dg_fail(
				EINVAL,
				"record %u of %u lacks DG_CHAIN: a transfer is one operation", i,
				n);
	int rc = queue_enter(q);
	if (rc)
		return rc;
	int64_t ticket = post(q, wr, n);
	queue_leave(q);
	return ticket;
}

int dg_queue_sink(dg_queue *q, dg_wc *wc, uint32_t n)
{
	if (n > DG_FAILED)
		return dg_fail(EINVAL, "a sink of %u completions exceeds the limit of %u", n,
			       DG_FAILED);
	int rc = queue_enter(q);
	if (rc)
		return rc;
	q->sink = wc;
	q->sink_n = n;
	q->sink_next = 0;
	queue_leave(q);
	return 0;
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
	return 1;
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

int64_t dg_transfer_wait_for(int64_t ticket, uint64_t timeout_ns)
{
	struct dg_slot *s;
	int64_t rc = enter_ticket(ticket, &s);
	if (rc)
		return rc;
	struct dg_queue *q = s->q;
	if (q->sink_next >= q->sink_n)
		rc = dg_fail(ENOSPC,
			     "the queue's sink is full: set a new one with dg_queue_sink()");
	else
		rc = wait_slot(q, s, timeout_ns);
	if (rc == 1) {
		dg_slot_to_wc(s, &q->sink[q->sink_next]);
		rc = q->sink_next++ + (s->status == DG_OK ? 0 : DG_FAILED);
		retire(q, s);
	}
	queue_leave(q);
	return rc;
}

int64_t dg_transfer_wait(int64_t ticket)
{
	return dg_transfer_wait_for(ticket, UINT64_MAX);
}

int dg_transfer_drop(int64_t ticket)
{
	struct dg_slot *s;
	int rc = enter_ticket(ticket, &s);
	if (rc)
		return rc;
	struct dg_queue *q = s->q;
	if (s->state == SLOT_DONE)
		retire(q, s);
	else
		s->kind = KIND_DROPPED;
	queue_leave(q);
	return 0;
}
