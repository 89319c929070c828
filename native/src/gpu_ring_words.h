/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The proxy's side of a ring that the kernels of a GPU post to. The layout, and the order of the
 * accesses with the argument for each, are in gpu_initiated/dgkit_device.cuh.
 */
#ifndef DG_GPU_RING_WORDS_H
#define DG_GPU_RING_WORDS_H

#include <stdatomic.h>
#include <stdbool.h>

#include "dgkit.h"

#include "gpu_initiated/dgkit_device.cuh"

_Static_assert(sizeof(_Atomic dg_u64) == sizeof(dg_u64), "a word of the ring is an atomic word");
_Static_assert(ATOMIC_LLONG_LOCK_FREE == 2, "a word of the ring is accessed without a lock");

static inline dg_u64 ring_load(const dg_u64 *word, memory_order order)
{
	return atomic_load_explicit((const _Atomic dg_u64 *)word, order);
}

static inline void ring_store(dg_u64 *word, dg_u64 value, memory_order order)
{
	atomic_store_explicit((_Atomic dg_u64 *)word, value, order);
}

/* Copies a record once. Returns whether the record is complete, with this sequence number in each
 * word. Rules 1 and 2: each word is loaded with acquire, because any of them may arrive last. */
static inline bool ring_take(const struct dg_gpu_record *record, dg_u64 sequence, dg_u32 shift,
			     dg_u64 *words)
{
	const dg_u64 epoch = dg_record_epoch(sequence, shift);
	dg_u64 differ = 0;
#pragma GCC unroll 8 /* keeps the words in registers */
	for (int i = 0; i < DG_RECORD_WORDS; i++) {
		words[i] = ring_load(&record->word[i], memory_order_acquire);
		differ |= words[i] ^ epoch;
	}
	return !(differ >> DG_SEQUENCE_BITS);
}

/* Rules 4 and 5: the bytes and the value are stored before the state. */
static inline void ring_complete(struct dg_gpu_completion *c, dg_u64 sequence, dg_u32 status,
				 dg_u64 value)
{
	ring_store(&c->value, value, memory_order_relaxed);
	ring_store(&c->state, dg_completion_state(sequence, status), memory_order_release);
}

/* The proxy's stamps of a place, in the memory of a ring that another process reads: the number of
 * the operation plus 1, or 0; op << 8 | status; and the times seen, posted, completed. */
enum { STAMP_WORDS = 5 };

/* All stores are release, and the loads in ring_stamp_load() acquire: a reader that sees one of the
 * new words then also sees that word 0 has changed. */
static inline void ring_stamp_store(dg_u64 *stamp, const dg_u64 *words)
{
	ring_store(stamp, 0, memory_order_relaxed);
	for (int i = STAMP_WORDS - 1; i >= 0; i--)
		ring_store(&stamp[i], words[i], memory_order_release);
}

/* Returns whether the words are those of this operation. */
static inline bool ring_stamp_load(const dg_u64 *stamp, dg_u64 sequence, dg_u64 *words)
{
	for (int i = 0; i < STAMP_WORDS; i++)
		words[i] = ring_load(&stamp[i], memory_order_acquire);
	return words[0] == sequence + 1 && ring_load(stamp, memory_order_relaxed) == words[0];
}

/* Initializes a new ring as if the lap before `first` had been completed. */
static inline void ring_reset(struct dg_gpu_ring *ring, struct dg_gpu_completion *completions,
			      struct dg_gpu_record *records, dg_u32 depth, dg_u32 shift, dg_u64 first)
{
	*ring = (struct dg_gpu_ring){0};
	for (dg_u64 i = 0; i < depth; i++) {
		const dg_u64 before = (first + i - depth) & DG_SEQUENCE_MASK;
		const dg_u64 at = before & (depth - 1);
		completions[at] =
			(struct dg_gpu_completion){0, dg_completion_state(before, DG_OK)};
		for (int w = 0; w < DG_RECORD_WORDS; w++)
			records[at].word[w] = dg_record_epoch(before, shift);
	}
}

#endif
