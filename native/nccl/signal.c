// SPDX-License-Identifier: Apache-2.0
/*
 * Signals: additions to words of a rank's memory, by any rank.
 *
 * Atomicity. A word has one owner, the rank whose memory it is in. Senders store (memory, offset,
 * value) in a ring that only they fill and only the owner empties; the owner takes the rings one
 * after another, in its progress, and so nobody else adds to the word. In host memory the owner uses
 * an atomic addition of the CPU, because the program may change the word as well. In GPU memory no
 * engine that copies can add, and a kernel that adds could wait for the kernel that waits for the
 * signal. So the owner reads the word, adds in the CPU, and writes it; a word that is registered as
 * never reset is read once. Additions that arrive meanwhile are summed and written together, in the
 * next batch: a word has at most one write in flight, so its values cannot pass each other.
 *
 * Order. The sender stores a slot after the completion of the put's bytes and of all earlier requests
 * to this peer, and then `head` with release. A weak signal promises only the put that a kernel posts
 * with it, but its request does not say which bytes those are: NCCL's device code splits a put with a
 * signal at an address of a window into a put and a request of 0 bytes that signals, and a put of more
 * than 1 GiB into several, of which the last one signals; other threads' requests may be in between.
 * NCCL's own InfiniBand transport ignores the difference, too: its queue pairs keep the order. It costs
 * nothing where an engine reports completions in the order of posting, as soft and cuda do.
 *
 * The owner loads `head` with acquire before it reads the slot, and adds with release, or writes to the
 * GPU after that. Forbidden outcome: the target sees the sum and not the bytes. Host memory: the
 * completion of the copy happens before the store of `head`, that before the addition, and that before
 * the load with acquire that sees the sum. GPU memory: the sender's CPU has seen the completion of the copy,
 * which the copy engine reports after its bytes are in the GPU's memory, before the owner's write is
 * submitted.
 *
 * `done` is stored with release after the addition, so a sender whose request has finished knows
 * that the sum is visible. Litmus test, with a kernel on the emulated GPU:
 * tests/programs/test_nccl_litmus.py.
 *
 * Joined signals. A rank that puts to itself owns the word, and mostly knows its value. Then the new
 * value is written by the put's own submission, behind a fence: one way to the GPU instead of two. Such
 * writes are executed in the order in which their values were computed, by one queue. No batch is
 * started while one is in progress, and none is joined while a batch is or while other signals wait, so
 * two writes of a word never pass each other. The put and the write are a chain: if the put fails, the
 * word is not written.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>

#include "comm.h"
#include "error.h"
#include "queue.h"

#define WAIT_NS 5000000000u

int signal_check(const struct memory *m, uint32_t rank, const struct signal_slot *s)
{
	const uint64_t size = m->remote[rank].size;
	if (size < sizeof(uint64_t) || s->offset > size - sizeof(uint64_t))
		return dg_fail(ERANGE,
			       "signal at byte %" PRIu64 " of memory of rank %" PRIu32
			       ", which has %" PRIu64 " bytes",
			       s->offset, rank, size);
	if (s->offset % sizeof(uint64_t))
		return dg_fail(EINVAL, "signal at byte %" PRIu64 ": it must be a multiple of 8",
			       s->offset);
	return 0;
}

void signals_send(struct comm *c, struct peer *p)
{
	const uint64_t done = atomic_load_explicit(&p->out->done, memory_order_acquire);
	while (p->sent.first && p->collected < done) {
		struct request *r = list_take(&p->sent);
		const int32_t status = p->out->slots[p->collected++ % RING_SLOTS].status;
		request_finish(c, r, status ? NCCL_REMOTE_ERROR : NCCL_SUCCESS);
	}
	uint64_t head = atomic_load_explicit(&p->out->head, memory_order_relaxed);
	while (p->ready.first && head - p->collected < RING_SLOTS) {
		struct request *r = list_take(&p->ready);
		p->out->slots[head++ % RING_SLOTS] = r->signal;
		r->state = SENT;
		list_add(&p->sent, r);
	}
	atomic_store_explicit(&p->out->head, head, memory_order_release);
}

/* The word's place in the batch, which becomes its last one if the word is new. Returns -1 if the
 * batch is full. */
static int batch_place(struct signal_batch *b, struct memory *m, uint64_t offset)
{
	uint32_t i = 0;
	while (i < b->n && (b->words[i].memory != m || b->words[i].offset != offset))
		i++;
	if (i == BATCH_WORDS)
		return -1;
	if (i == b->n) {
		b->words[i].memory = m;
		b->words[i].offset = offset;
		b->words[i].sum = 0;
		b->n++;
	}
	return (int)i;
}

/* Returns false if the signal must wait for the next batch. */
static bool take(struct comm *c, struct signal_slot *slot)
{
	const struct signal_slot s = *slot;
	struct memory *m = s.memory < c->n_memories ? c->memories[s.memory] : NULL;
	slot->status = !m ? -ESTALE : signal_check(m, c->rank, &s);
	if (slot->status)
		return true;
	if (m->engine == SOFT) {
		char *word = (char *)m->at.addr + s.offset;
		atomic_fetch_add_explicit((_Atomic uint64_t *)(void *)word, s.value,
					  memory_order_release);
		return true;
	}
	const int i = batch_place(&c->batch, m, s.offset);
	if (i >= 0)
		c->batch.words[i].sum += s.value;
	return i >= 0;
}

/* The transfer of a word between GPU memory, which is the local side because it need not be
 * exportable, and the batch. op: DG_WRITE reads the word. */
static dg_wr transfer_of(const struct signal_batch *b, uint32_t i, uint8_t op)
{
	return (dg_wr){.op = op,
		       .local = b->words[i].memory->local_id[CUDA],
		       .remote = b->region_id,
		       .size = sizeof(uint64_t),
		       .local_offset = b->words[i].offset,
		       .remote_offset = i * sizeof(uint64_t)};
}

static void post_words(struct signal_batch *b, const dg_wr *wr, uint32_t n)
{
	b->status = n ? dg_queue_post(b->queue, wr, n) : 0;
	b->pending = b->status ? 0 : n;
}

static bool *word_known(const struct signal_batch *b, uint32_t i)
{
	const struct memory *m = b->words[i].memory;
	return m->known ? &m->known[b->words[i].offset / sizeof(uint64_t)] : NULL;
}

static void batch_start(struct comm *c)
{
	struct signal_batch *b = &c->batch;
	dg_wr wr[BATCH_WORDS];
	uint32_t n = 0;
	b->phase = BATCH_READS;
	b->since_ns = c->statistics ? dg_now_ns() : 0;
	for (uint32_t i = 0; i < b->n; i++) {
		const bool *known = word_known(b, i);
		if (known && *known)
			b->values[i] = b->words[i].memory->shadow[b->words[i].offset / 8];
		else
			wr[n++] = transfer_of(b, i, DG_WRITE);
	}
	post_words(b, wr, n);
}

static void batch_add(struct comm *c)
{
	struct signal_batch *b = &c->batch;
	dg_wr wr[BATCH_WORDS];
	b->phase = BATCH_WRITES;
	for (uint32_t i = 0; i < b->n; i++) {
		bool *known = word_known(b, i);
		b->values[i] += b->words[i].sum;
		if (known) {
			b->words[i].memory->shadow[b->words[i].offset / 8] = b->values[i];
			*known = true;
		}
		wr[i] = transfer_of(b, i, DG_READ);
	}
	const uint64_t since = c->statistics ? dg_now_ns() : 0;
	post_words(b, wr, b->n);
	b->call_ns = c->statistics ? dg_now_ns() - since : 0;
}

/* Tells the senders which of their signals were added. */
static void report(struct comm *c)
{
	for (uint32_t i = 0; i < c->ranks; i++) {
		struct signal_ring *ring = &c->mailbox->rings[i];
		uint64_t done = atomic_load_explicit(&ring->done, memory_order_relaxed);
		if (done == c->taken[i])
			continue;
		for (; c->batch.status && done < c->taken[i]; done++)
			ring->slots[done % RING_SLOTS].status = c->batch.status;
		atomic_store_explicit(&ring->done, c->taken[i], memory_order_release);
	}
	c->failed |= c->batch.status != 0;
}

static void batch_poll(struct comm *c)
{
	struct signal_batch *b = &c->batch;
	dg_wc wc[BATCH_WORDS];
	const int n = b->pending ? dg_queue_poll(b->queue, wc, BATCH_WORDS, 0) : 0;
	for (int i = 0; i < n; i++) {
		b->pending--;
		if (wc[i].status != DG_OK)
			b->status = -EIO;
	}
	if (b->pending)
		return;
	if (b->phase == BATCH_READS && !b->status) {
		batch_add(c);
		return;
	}
	report(c);
	if (c->statistics && b->n)
		statistics_signals_written(c->statistics, b->n, b->call_ns,
					   dg_now_ns() - b->since_ns);
	b->phase = BATCH_IDLE;
	b->n = 0;
	b->status = 0;
}

/* Whether a batch is in progress, or signals wait for one. */
static bool is_batch_due(const struct comm *c)
{
	bool due = c->batch.phase != BATCH_IDLE;
	for (uint32_t i = 0; i < c->ranks && !due; i++)
		due = atomic_load_explicit(&c->mailbox->rings[i].head, memory_order_relaxed) !=
		      c->taken[i];
	return due;
}

bool signal_join(struct comm *c, struct request *r, dg_wr *write)
{
	struct signal_batch *b = &c->batch;
	const struct peer *p = r->peer;
	/* "Joined signals" above has the reason of each condition. */
	if (!r->signals || p->rank != c->rank || b->joined == BATCH_WORDS || p->ready.first ||
	    p->in_order.first != r)
		return false;
	const struct memory *m = c->memories[r->signal.memory];
	const uint64_t word = r->signal.offset / sizeof(uint64_t);
	if (!m || !m->known || !m->known[word] || is_batch_due(c))
		return false;
	const uint32_t at = BATCH_WORDS + b->next_joined++ % BATCH_WORDS;
	b->joined++;
	b->values[at] = m->shadow[word] += r->signal.value;
	/* A read, to the core: from the batch's memory into the word. */
	*write = (dg_wr){.user = r->index,
			 .op = DG_READ,
			 .flags = DG_FENCE,
			 .local = m->local_id[CUDA],
			 .remote = b->region_id,
			 .size = sizeof(uint64_t),
			 .local_offset = r->signal.offset,
			 .remote_offset = at * sizeof(uint64_t)};
	return r->joined = true;
}

void signal_part(struct comm *c, struct request *r)
{
	if (!r->joined)
		return;
	struct memory *m = c->memories[r->signal.memory];
	m->shadow[r->signal.offset / sizeof(uint64_t)] -= r->signal.value;
	c->batch.joined--;
	c->batch.next_joined--;
	r->joined = false;
}

void signals_serve(struct comm *c)
{
	if (c->batch.joined)
		return;
	if (c->batch.phase != BATCH_IDLE) {
		batch_poll(c);
		return;
	}
	for (uint32_t i = 0; i < c->ranks; i++) {
		struct signal_ring *ring = &c->mailbox->rings[i];
		const uint64_t head = atomic_load_explicit(&ring->head, memory_order_acquire);
		const uint64_t done = atomic_load_explicit(&ring->done, memory_order_relaxed);
		while (c->taken[i] != head && c->taken[i] - done < RING_SLOTS &&
		       take(c, &ring->slots[c->taken[i] % RING_SLOTS]))
			c->taken[i]++;
	}
	if (c->batch.n) {
		batch_start(c);
		batch_poll(c); /* of known words, the new values are written at once */
	} else {
		report(c);
	}
}

int batch_wait(struct comm *c)
{
	const uint64_t end = dg_now_ns() + WAIT_NS;
	while (c->batch.phase != BATCH_IDLE) {
		batch_poll(c);
		if (dg_now_ns() > end)
			return dg_fail(ETIMEDOUT, "signals in GPU memory took longer than 5 s");
	}
	return 0;
}

/* Registers and imports the batch's values. The device closes both regions. */
static int batch_region(dg_device *dev, const dg_memory *at, uint32_t *id)
{
	const uint32_t access = DG_ACCESS_READ | DG_ACCESS_WRITE;
	uint8_t descriptor[DG_DESCRIPTOR_MAX];
	dg_region *own, *import;
	dg_region_info info;
	TRY(dg_region_register(dev, at, access, &own));
	const int n = dg_region_export(own, access, descriptor, sizeof descriptor);
	int rc = n < 0 ? n : dg_region_import(dev, descriptor, (size_t)n, WAIT_NS, &import);
	if (!rc)
		rc = dg_region_info_get(import, &info);
	if (!rc)
		*id = info.id;
	return rc;
}

int batch_open(struct comm *c)
{
	struct signal_batch *b = &c->batch;
	dg_device *dev = c->engines[CUDA].dev;
	b->values = calloc(2 * BATCH_WORDS, sizeof *b->values);
	if (!b->values)
		return dg_fail(ENOMEM, "out of memory for signals");
	const dg_memory at = {
		.addr = b->values, .size = 2 * BATCH_WORDS * sizeof *b->values, .fd = -1};
	const int rc = batch_region(dev, &at, &b->region_id);
	/* On the same stream as the puts: to change between streams costs the GPU time. */
	return rc ? rc : dg_queue_open_for_kernels(dev, BATCH_WORDS, c, &b->queue);
}

void batch_close(struct comm *c)
{
	if (c->batch.queue)
		dg_queue_free(c->batch.queue);
	c->batch.queue = NULL;
}
