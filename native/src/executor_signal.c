// SPDX-License-Identifier: Apache-2.0
/*
 * Signals: an 8-byte word of a remote region that is stored, or added to, once the bytes of a put
 * are at the target.
 *
 * The executor implements adding by keeping a running sum, which starts with the word's value when it
 * is first added to. So only one queue can add to a word; an add by another one is DG_UNSUPPORTED
 * until the first is closed. A set replaces the sum. A word in GPU memory, which this thread cannot
 * read at once, must be set before it is added to.
 */
#include <stdlib.h>

#include "executor.h"

static struct signal_word *word_find(struct exec_engine *e, uint64_t region, uint64_t offset)
{
	for (uint32_t i = 0; i < e->n_words; i++)
		if (e->words[i].region == region && e->words[i].offset == offset)
			return &e->words[i];
	return NULL;
}

/* Adds an entry. The table grows to one entry for each word that was ever signaled. */
static struct signal_word *word_add(struct exec_engine *e)
{
	if (e->n_words == e->words_room) {
		const uint32_t room = e->words_room ? 2 * e->words_room : 16;
		struct signal_word *grown = realloc(e->words, sizeof *grown * room);
		if (!grown)
			return NULL;
		e->words = grown;
		e->words_room = room;
	}
	return &e->words[e->n_words++];
}

void dg_exec_disown(struct executor *x)
{
	struct exec_engine *e = x->engine;
	uint32_t kept = 0;
	for (uint32_t i = 0; i < e->n_words; i++)
		if (e->words[i].owner != x)
			e->words[kept++] = e->words[i];
	e->n_words = kept;
}

/* Computes the value to store. Returns a dg_status. */
static int next_value(struct executor *x, const struct exec_region *at, uint64_t offset,
		      uint64_t addend, bool set, uint64_t *value)
{
	struct signal_word *word = word_find(x->engine, at->id, offset);
	if (word && word->owner != x)
		return DG_UNSUPPORTED;
	if (!word) {
		uint64_t sum = 0;
		if (!set && at->entry->method == DG_METHOD_GPU)
			return DG_UNSUPPORTED;
		const int status = set ? DG_OK : exec_enter(x, NULL, at);
		if (status != DG_OK)
			return status;
		if (!set)
			sum = atomic_load_explicit((const _Atomic uint64_t *)(const void *)(
							   at->entry->base + offset),
						   memory_order_relaxed);
		word = word_add(x->engine);
		if (!word)
			return DG_IO_FAILED;
		*word = (struct signal_word){at->id, offset, sum, x};
	}
	word->sum = set ? addend : word->sum + addend;
	*value = word->sum;
	return DG_OK;
}

int dg_exec_signal(struct executor *x, const dg_wr *wr, char *staged, uint64_t addend, bool set)
{
	struct exec_region at;
	uint64_t value;
	at.entry = dg_region_table_find(wr->remote, &at.id);
	/* Closed since the put was posted, or since this pass looked up its regions. */
	if (!at.entry)
		return DG_REMOTE_ACCESS_ERROR;
	int status = dg_exec_stage(x, wr);
	if (status != DG_OK)
		return status;
	/* A word is never torn only where a single aligned store writes it: in memory that is
	 * mapped here, and in GPU memory, where a row or write-value of 8 bytes is such a store
	 * (providers/cuda_copy.c). */
	if ((at.entry->method != DG_METHOD_MAP && at.entry->method != DG_METHOD_GPU) ||
	    at.entry->may_fault)
		status = DG_UNSUPPORTED;
	else if ((uintptr_t)(at.entry->base + wr->remote_offset) & 7)
		status = DG_BAD_RECORD;
	else
		status = next_value(x, &at, wr->remote_offset, addend, set, &value);
	if (status == DG_OK)
		memcpy(staged, &value, sizeof value);
	else
		dg_exec_unstage(x, 1);
	return status;
}
