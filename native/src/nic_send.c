// SPDX-License-Identifier: Apache-2.0
/* One pass over a send queue: the doorbell, taking entries, completing them in order, errors. */
#include <inttypes.h>
#include <stdio.h>

#include "memory_fault.h"
#include "nic.h"

static const uint8_t *block_at(const struct dg_nic_qp *qp, uint64_t at)
{
	return (const uint8_t *)qp->c.send_ring + (at & (qp->c.send_entries - 1)) * WQE_BLOCK;
}

static void describe_error(struct dg_nic_qp *qp, const struct nic_fault *f, uint64_t index)
{
	dg_nic_qp_info *i = &qp->info;
	if (i->syndrome || i->why[0])
		return;
	i->syndrome = f->syndrome;
	const int n = snprintf(i->why, sizeof i->why, "entry %" PRIu64 ": %s", index, f->what);
	const size_t end = (size_t)n < sizeof i->why ? (size_t)n : sizeof i->why - 1;
	if (f->limit)
		snprintf(i->why + end, sizeof i->why - end, ": %#" PRIx64 ", limit %#" PRIx64,
			 f->value, f->limit);
	else if (f->value)
		snprintf(i->why + end, sizeof i->why - end, ": %#" PRIx64, f->value);
}

void dg_nic_qp_fail(struct dg_nic_qp *qp, const struct nic_fault *f, uint64_t index)
{
	qp->state = DG_NIC_ERROR;
	atomic_store_explicit(&qp->box->state, DG_NIC_ERROR, memory_order_release);
	if (!f)
		return;
	qp->nic->errors++;
	describe_error(qp, f, index);
}

void dg_nic_qp_fatal(struct dg_nic_qp *qp, const struct nic_fault *f, uint64_t index)
{
	dg_nic_qp_fail(qp, f, index);
	dg_nic_async(qp->c.async_fd, qp->c.event, DG_NIC_QP_FATAL);
}

static void error_cqe(struct dg_nic_qp *qp, uint64_t index, uint8_t opcode, uint8_t syndrome, uint8_t vendor)
{
	const struct nic_cqe e = {
		.opcode = CQE_REQUEST_ERROR,
		.syndrome = syndrome,
		.vendor = vendor,
		.send_opcode = opcode,
		.index = (uint16_t)index,
	};
	dg_nic_error_cqe(qp, qp->c.send_cq, e);
}

/* Loads the producer index; the acquire makes the entries before it visible. One that is behind is
 * ignored. Returns the end of the entries that may be taken. */
static uint64_t load_doorbell(struct dg_nic_qp *qp)
{
	uint64_t end;
	if (qp->c.doorbell_mode == DG_NIC_RECORD) {
		const uint32_t record = atomic_load_explicit(
			(_Atomic uint32_t *)&qp->c.record[1], memory_order_acquire);
		const uint16_t ahead = (uint16_t)(be32toh(record) - (uint32_t)qp->taken);
		/* A full ring of the largest size is 32768 ahead. */
		end = qp->taken + (ahead > DG_NIC_ENTRIES_MAX ? 0 : ahead);
	} else {
		const uint64_t *word =
			qp->c.doorbell_mode == DG_NIC_PROXY ? qp->c.doorbell : qp->c.producer;
		end = word ? atomic_load_explicit((const _Atomic uint64_t *)word, memory_order_acquire)
			   : 0;
	}
	if (end <= qp->taken)
		return qp->taken;
	qp->info.doorbell = end;
	return end;
}

/* As load_doorbell(), with a doorbell that jumps beyond the ring: the queue pair fails, and one ring
 * of entries is flushed. */
static uint64_t producer(struct dg_nic_qp *qp)
{
	if (qp->flush_end != UINT64_MAX)
		return qp->flush_end;
	const uint64_t end = load_doorbell(qp);
	const bool fits = end - qp->taken <= qp->c.send_entries;
	if (fits && __builtin_expect(!qp->c.gpu_ring, 1))
		return end;
	const int rc = fits ? dg_nic_gpu_fetch(qp, end) : 0;
	if (fits && !rc)
		return end;
	const struct nic_fault beyond = {SYNDROME_LOCAL_QP, "doorbell, beyond the ring; its end is",
					 end, qp->taken + qp->c.send_entries},
			       lost = {SYNDROME_LOCAL_QP, "ring on a GPU, which cannot be read; errno", (uint64_t)-rc, 0};
	dg_nic_qp_fatal(qp, fits ? &lost : &beyond, qp->taken);
	qp->flush_end = fits ? end : qp->taken + qp->c.send_entries;
	return qp->flush_end;
}

bool dg_nic_sends(struct dg_nic_qp *qp)
{
	return qp->state == DG_NIC_RTS && qp->c.send_cq && producer(qp) != qp->taken;
}

/* Completes an entry, the oldest that is not complete. */
static void complete(struct dg_nic_qp *qp, const struct nic_entry *e, uint8_t syndrome)
{
	if (__builtin_expect(e->message.opcode && !syndrome, 0))
		dg_nic_deliver(qp, &e->message);
	qp->completed += e->blocks;
	qp->nic->moved += e->bytes;
	if (qp->nic->observer)
		qp->nic->observer->ended(qp, e, syndrome);
	if (qp->state == DG_NIC_RESET)
		return;
	if (__builtin_expect(syndrome, 0)) {
		const struct nic_fault fault = {syndrome, "operation, ended with an error", e->opcode, 0};
		if (qp->state != DG_NIC_ERROR)
			dg_nic_qp_fail(qp, &fault, e->index);
		error_cqe(qp, e->index, e->opcode, syndrome, 0);
		return;
	}
	if (!(e->flags & WQE_CQE))
		return;
	const struct nic_cqe cqe = {
		.opcode = CQE_REQUEST,
		.send_opcode = e->opcode,
		.index = (uint16_t)e->index,
		.bytes = e->opcode >= WQE_READ && e->opcode <= WQE_MASKED_FA ? (uint32_t)e->bytes : 0,
	};
	dg_nic_cqe(qp, qp->c.send_cq, &cqe);
}

static bool is_send(const struct nic_entry *e)
{
	return e->opcode == WQE_SEND || e->opcode == WQE_SEND_IMM || e->opcode == WQE_SEND_INVAL;
}

/* Takes the provider's completions, and completes entries in order. */
static bool reap(struct dg_nic_qp *qp)
{
	uint32_t number;
	int status;
	struct executor *x = qp->active;
	x->stopped = qp->state != DG_NIC_RTS;
	bool any = dg_exec_progress(x);
	for (; dg_exec_take(x, &number, &status); any = true) {
		struct nic_entry *e = &qp->entries[number % EXEC_FLIGHTS];
		if (qp->state == DG_NIC_ERROR && status == DG_OK)
			status = DG_FLUSHED;
		uint8_t syndrome = dg_nic_syndrome(status);
		if (syndrome == SYNDROME_REMOTE_ACCESS && is_send(e)) {
			syndrome = SYNDROME_REMOTE_OPERATION;
			dg_nic_refuse(qp, e, SYNDROME_LOCAL_PROTECTION, syndrome,
				      "memory of the peer's receive, gone; status", (uint64_t)status, 0);
		}
		complete(qp, e, is_dropped(qp, e, syndrome) ? SYNDROME_NONE : syndrome);
	}
	return any;
}

/* Copies all blocks of the entry at `taken`, each word once. Returns their number. */
static uint32_t load_entry(struct dg_nic_qp *qp)
{
	uint8_t *to = qp->nic->bytes;
	load_words(to, block_at(qp, qp->taken), WQE_BLOCK / 8);
	const uint32_t blocks = wqe_blocks(to);
	for (uint32_t i = 1; i < blocks; i++)
		load_words(to + i * WQE_BLOCK, block_at(qp, qp->taken + i), WQE_BLOCK / 8);
	return blocks;
}

/* Inverts a bit of the first byte that the entry sends: the first byte becomes an inline segment of its own. */
static void corrupt(struct dg_nic_qp *qp)
{
	struct dg_nic *n = qp->nic;
	struct nic_wqe *w = &n->wqe;
	const struct nic_segment one = {.address = w->segments[0].address, .key = w->segments[0].key, .size = 1};
	const uint32_t spare = sizeof n->bytes - 1; /* behind the longest entry */
	struct exec_piece p;
	if (!w->total || !w->segments[0].size)
		return;
	if (w->segments[0].is_inline) {
		n->bytes[w->segments[0].at] ^= 1;
		return;
	}
	if (dg_nic_find_local(qp, &one, 0, &p) != EXECUTED || !is_plain(p.local->entry) ||
	    !region_is_open(p.local->id))
		return;
	n->bytes[spare] = (uint8_t)*exec_local(&p) ^ 1;
	memmove(&w->segments[1], &w->segments[0], w->n_segments++ * sizeof one);
	w->segments[0] = (struct nic_segment){.size = 1, .at = (uint16_t)spare, .is_inline = true};
	w->segments[1].address++;
	w->segments[1].size--;
}

/* Shows the entry to the observer, once. Returns whether to execute it, or else how it ends. */
static bool observe(struct dg_nic_qp *qp, struct nic_entry *e, bool is_valid, int *result)
{
	struct nic_verdict *v = &qp->verdict;
	if (qp->observed <= qp->taken) {
		*v = (struct nic_verdict){0};
		qp->observed = qp->taken + 1;
		qp->nic->observer->entry(qp, e, is_valid, v);
	}
	if (v->due_ns && now_ns() < v->due_ns) {
		*result = nic_wait(qp, DG_NIC_WAITS_BYTES);
		return false;
	}
	if (v->syndrome) {
		*result = nic_fault(qp->nic, v->syndrome, "injected fault, opcode", e->opcode, 0);
		return false;
	}
	if (v->lose)
		e->flags &= (uint8_t)~WQE_CQE;
	if (v->corrupt)
		corrupt(qp);
	*result = EXECUTED;
	return !v->drop;
}

/* Loads, checks and executes the entry at `taken`. As dg_nic_execute(). */
static int try_entry(struct dg_nic_qp *qp, uint64_t end, struct nic_entry *e)
{
	struct dg_nic *n = qp->nic;
	const uint32_t blocks = load_entry(qp);
	const bool valid = dg_nic_parse(n->bytes, (uint16_t)qp->taken, qp->qpn, qp->c.transport, &n->wqe, &n->fault);
	e->index = qp->taken;
	e->opcode = (uint8_t)n->wqe.opcode;
	e->flags = (uint8_t)n->wqe.flags;
	e->blocks = (uint8_t)n->wqe.blocks;
	e->bytes = 0;
	e->message.opcode = 0;
	int result;
	if (__builtin_expect(n->observer && n->observer->entry, 0) && !observe(qp, e, valid, &result) && valid)
		return result;
	if (!valid)
		return FAILED;
	if (blocks > end - qp->taken) {
		n->fault = (struct nic_fault){SYNDROME_LOCAL_QP,
					      "blocks of the entry, beyond the doorbell", blocks,
					      end - qp->taken};
		return FAILED;
	}
	return dg_nic_execute(qp, e);
}

/* The entry at `taken` is wrong: its error CQE comes after the CQEs of those before. */
static bool fail_entry(struct dg_nic_qp *qp, const struct nic_entry *e)
{
	if (qp_flies(qp)) {
		qp->info.waiting = DG_NIC_WAITS_BYTES;
		return false;
	}
	qp->taken += e->blocks;
	qp->completed = qp->taken;
	const uint8_t syndrome = qp->nic->fault.syndrome;
	uint8_t vendor = 0;
	dg_nic_qp_fail(qp, &qp->nic->fault, e->index);
	if (__builtin_expect(qp->nic->observer != NULL, 0)) {
		qp->nic->observer->ended(qp, e, syndrome);
		vendor = qp->verdict.vendor;
	}
	error_cqe(qp, e->index, e->opcode, syndrome, vendor);
	return true;
}

/* Takes one entry. Returns false if it has to wait. */
static bool take(struct dg_nic_qp *qp, uint64_t end)
{
	struct nic_entry *e = &qp->nic->entry;
	if (qp->active->tail - qp->active->head == EXEC_FLIGHTS)
		return false;
	__builtin_prefetch(block_at(qp, qp->taken + NIC_AHEAD));
	const int result = try_entry(qp, end, e);
	if (__builtin_expect(result == WAITS, 0))
		return false;
	if (__builtin_expect(result == FAILED, 0) && !fail_entry(qp, e))
		return false;
	qp->info.by_opcode[e->opcode & 63]++;
	qp->nic->entries++;
	if (result == FAILED)
		return true;
	qp->taken += e->blocks;
	if (__builtin_expect(result == EXECUTED && !qp_flies(qp), 1)) {
		complete(qp, e, SYNDROME_NONE);
		return true;
	}
	if (result == EXECUTED)
		dg_exec_fly(qp->active, 0);
	qp->entries[(qp->active->tail - 1) % EXEC_FLIGHTS] = *e;
	return true;
}

/* Completes the entries of a queue pair in the error state. */
static bool flush(struct dg_nic_qp *qp)
{
	const uint64_t end = producer(qp);
	uint32_t n = 0;
	for (; qp->taken != end && n < NIC_PASS; n++) {
		uint8_t block[WQE_BLOCK];
		load_words(block, block_at(qp, qp->taken), WQE_BLOCK / 8);
		const uint64_t blocks = wqe_blocks(block), left = end - qp->taken;
		error_cqe(qp, qp->taken, block[3], SYNDROME_FLUSHED, 0);
		qp->taken += blocks < left ? blocks : left;
		qp->completed = qp->taken;
	}
	return n;
}

/* The entry at `taken` accessed memory that the program has unmapped. */
static void fail_faulted(struct dg_nic_qp *qp, const void *at)
{
	struct dg_nic *n = qp->nic;
	bool local = false;
	for (uint32_t i = 0; i < n->wqe.n_segments; i++) {
		struct exec_piece p;
		local |= dg_nic_find_local(qp, &n->wqe.segments[i], 0, &p) == EXECUTED && p.local &&
			 (uintptr_t)at - (uintptr_t)exec_local(&p) < p.size;
	}
	if (local)
		nic_fault(n, SYNDROME_LOCAL_PROTECTION, "local memory, unmapped at", (uintptr_t)at, 0);
	else if (is_send(&n->entry))
		dg_nic_refuse(qp, &n->entry, SYNDROME_LOCAL_PROTECTION, SYNDROME_REMOTE_OPERATION,
			      "memory of the peer's receive, unmapped at", (uintptr_t)at, 0);
	else
		nic_fault(n, SYNDROME_REMOTE_ACCESS, "remote memory, unmapped at", (uintptr_t)at, 0);
	if (!is_dropped(qp, &n->entry, n->fault.syndrome)) {
		fail_entry(qp, &n->entry);
		return;
	}
	qp->taken += n->entry.blocks;
	complete(qp, &n->entry, SYNDROME_NONE);
}

/* Looks at the doorbell again before it ends, as an entry that comes meanwhile need not pay for a
 * pass of its own: entering the queue and the gate cost more than executing it. */
static __attribute__((noinline)) uint32_t take_each(struct dg_nic_qp *qp, uint64_t end)
{
	uint32_t n = 0;
	for (; n < NIC_PASS && qp->pass_bytes < NIC_PASS_BYTES && qp->state == DG_NIC_RTS; n++) {
		if (qp->taken == end)
			end = producer(qp);
		if (qp->taken == end || qp->state != DG_NIC_RTS || !take(qp, end))
			break;
	}
	return n;
}

/* An access that faults ends its entry. take_each() is left where the executor copies by itself, so no
 * request was staged for the entry. */
static uint32_t take_caught(struct dg_nic_qp *qp, uint64_t end)
{
	struct memory_fault fault;
	if (MEMORY_FAULT_CATCH(&fault)) {
		fail_faulted(qp, fault.at);
		return 1;
	}
	const uint32_t n = take_each(qp, end);
	dg_memory_fault_release();
	return n;
}

static bool take_all(struct dg_nic_qp *qp, uint64_t end)
{
	qp->pass_bytes = 0;
	qp->far_ready = false;
	qp->info.waiting = DG_NIC_WAITS_NOT;
	const uint32_t n = take_caught(qp, end);
	if (qp->active->n_staged)
		dg_exec_post(qp->active, false, now_ns());
	return n;
}

bool dg_nic_serve(struct dg_nic_qp *qp)
{
	bool busy = qp->state >= DG_NIC_RTR && dg_nic_receive(qp);
	if (__builtin_expect(!qp->c.send_cq, 0))
		return busy;
	const uint64_t end = qp->state == DG_NIC_RTS ? producer(qp) : qp->taken;
	const bool flies = qp_flies(qp);
	if (!flies && end == qp->taken)
		return busy | (qp->state == DG_NIC_ERROR && flush(qp));
	const bool has_gpu = qp->gpu.q;
	if (exec_pass_begin(&qp->x))
		return busy;
	if (__builtin_expect(has_gpu, 0) && exec_pass_begin(&qp->gpu)) {
		exec_pass_end(&qp->x);
		return busy;
	}
	if (flies)
		busy |= reap(qp);
	if (qp->state == DG_NIC_RTS)
		busy |= take_all(qp, end);
	if (__builtin_expect(has_gpu, 0))
		exec_pass_end(&qp->gpu);
	exec_pass_end(&qp->x);
	if (qp_flies(qp) && !qp->info.waiting)
		qp->info.waiting = DG_NIC_WAITS_BYTES;
	return busy;
}
