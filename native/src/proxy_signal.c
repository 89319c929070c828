// SPDX-License-Identifier: Apache-2.0
/*
 * Signals: an 8-byte word of a remote region that is stored, or added to, once the bytes of a put
 * are at the target.
 *
 * The proxy implements adding by keeping a running sum, which starts with the word's value when it
 * is first added to. So only one ring can add to a word; an add by another ring is DG_UNSUPPORTED
 * until the first ring is closed. A set replaces the sum. A word in GPU memory, which the proxy
 * cannot read at once, must be set before it is added to.
 */
#include <stdlib.h>
#include <string.h>

#include "proxy.h"
#include "region.h"

static struct signal_word *word_find(struct dg_proxy *p, uint64_t region, uint64_t offset)
{
	for (uint32_t i = 0; i < p->n_words; i++)
		if (p->words[i].region == region && p->words[i].offset == offset)
			return &p->words[i];
	return NULL;
}

/* Adds an entry. The table grows to one entry for each word that was ever signaled. */
static struct signal_word *word_add(struct dg_proxy *p)
{
	if (p->n_words == p->words_room) {
		const uint32_t room = p->words_room ? 2 * p->words_room : 16;
		struct signal_word *grown = realloc(p->words, sizeof *grown * room);
		if (!grown)
			return NULL;
		p->words = grown;
		p->words_room = room;
	}
	return &p->words[p->n_words++];
}

void dg_signal_disown(struct dg_proxy *p, struct dg_ring *r)
{
	uint32_t kept = 0;
	for (uint32_t i = 0; i < p->n_words; i++)
		if (p->words[i].owner != r)
			p->words[kept++] = p->words[i];
	p->n_words = kept;
}

/* Reads the current value of the word. Its region is mapped here, the offset is within bounds, and
 * the region cannot be closed while this thread is inside the queue; the exporter may revoke it. */
static bool word_read(struct dg_region_entry *entry, uint64_t offset, uint64_t *value)
{
	gate_enter(entry->gate, 1);
	const bool allowed = !gate_revoked(entry->gate);
	if (allowed)
		*value = ring_load((const dg_u64 *)(const void *)(entry->base + offset),
				   memory_order_relaxed);
	gate_leave(entry->gate, 1);
	return allowed;
}

/* Computes the value to store in the region with this id. Returns a dg_status. */
static uint32_t next_value(struct dg_ring *r, const struct dg_gpu_request *q,
			   struct dg_region_entry *entry, uint64_t id, uint64_t *value)
{
	const bool set = q->flags & DG_SIGNAL_SET;
	struct signal_word *word = word_find(r->proxy, id, q->signal_offset);
	if (word && word->owner != r)
		return DG_UNSUPPORTED;
	if (!word) {
		uint64_t sum = 0;
		if (!set && entry->method == DG_METHOD_GPU)
			return DG_UNSUPPORTED;
		if (!set && !word_read(entry, q->signal_offset, &sum))
			return DG_REMOTE_ACCESS_ERROR;
		word = word_add(r->proxy);
		if (!word)
			return DG_IO_FAILED;
		*word = (struct signal_word){id, q->signal_offset, sum, r};
	}
	word->sum = set ? q->addend : word->sum + q->addend;
	*value = word->sum;
	return DG_OK;
}

uint32_t dg_signal_stage(struct dg_ring *r, uint64_t count)
{
	const struct dg_gpu_request *q = request_of(r, count);
	const uint64_t slot = (r->first + count) & r->mask;
	uint64_t id, value;
	struct dg_region_entry *entry = dg_region_table_find(q->signal_region, &id);
	/* Closed since the put was posted, or since this pass looked up its regions. */
	if (!entry || (r->own && id != r->own_import))
		return DG_REMOTE_ACCESS_ERROR;
	const dg_wr wr = {
		.user = count,
		.local = r->staging->id,
		.local_offset = slot * PLACE_STAGING + 48,
		.remote = q->signal_region,
		.remote_offset = q->signal_offset,
		.size = 8,
		.op = DG_WRITE,
		.flags = r->q->dev->caps.ordered ? 0 : DG_FENCE,
	};
	uint32_t status = dg_ring_stage(r, &wr);
	if (status != DG_OK)
		return status;
	/* A word is never torn only where a single aligned store writes it: in memory that is
	 * mapped here, and in GPU memory, where a row or write-value of 8 bytes is such a store
	 * (providers/cuda_copy.c). */
	if ((entry->method != DG_METHOD_MAP && entry->method != DG_METHOD_GPU) || entry->may_fault)
		status = DG_UNSUPPORTED;
	else if ((uintptr_t)(entry->base + q->signal_offset) & 7)
		status = DG_BAD_RECORD;
	else
		status = next_value(r, q, entry, id, &value);
	if (status != DG_OK) {
		r->n_wr--;
		r->total -= wr.size;
		return status;
	}
	memcpy(r->staging->bytes + wr.local_offset, &value, sizeof value);
	return DG_OK;
}
