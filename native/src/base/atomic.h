/* SPDX-License-Identifier: Apache-2.0 */
/* Atomic operations with masks, on a word that is mapped into this process. */
#ifndef DG_ATOMIC_H
#define DG_ATOMIC_H

#include <stdbool.h>
#include <stdint.h>

/* A fetch-add adds `operand` field by field: each bit of `mask` is the top bit of a field, and no
 * carry leaves it. A compare-swap compares the bits of compare_mask, and stores those of `mask`.
 * size: of the word, 4 or 8 bytes. The struct is part of the protocol of share/server.h. */
struct dg_atomic {
	uint64_t operand, compare, mask, compare_mask;
	uint32_t size, adds;
};

/* Returns the new value of the word. */
static inline uint64_t dg_atomic_value(const struct dg_atomic *a, uint64_t old)
{
	if (a->adds)
		return ((old & ~a->mask) + (a->operand & ~a->mask)) ^ ((old ^ a->operand) & a->mask);
	if ((old ^ a->compare) & a->compare_mask)
		return old;
	return (old & ~a->mask) | (a->operand & a->mask);
}

/* Changes the word, which is aligned. Returns its old value. Sequentially consistent. */
static inline uint64_t dg_atomic_run(const struct dg_atomic *a, void *word)
{
	if (a->size == 4) {
		uint32_t old = __atomic_load_n((uint32_t *)word, __ATOMIC_RELAXED);
		while (!__atomic_compare_exchange_n((uint32_t *)word, &old,
						    (uint32_t)dg_atomic_value(a, old), false,
						    __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST))
			;
		return old;
	}
	if (a->adds && !a->mask)
		return __atomic_fetch_add((uint64_t *)word, a->operand, __ATOMIC_SEQ_CST);
	uint64_t old = __atomic_load_n((uint64_t *)word, __ATOMIC_RELAXED);
	while (!__atomic_compare_exchange_n((uint64_t *)word, &old, dg_atomic_value(a, old), false,
					    __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST))
		;
	return old;
}

#endif
