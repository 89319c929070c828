/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Mutual exclusion of a queue's user and a thread that unmaps a region, where the queue keeps
 * something of the region between operations.
 *
 * The user stores busy and then loads waiting; the other thread stores waiting and then loads busy.
 * Forbidden outcome: both proceed. The argument is that of the sleeping protocol in ring.h: the user
 * is its producer, the other thread its sleeper.
 */
#ifndef DG_QUEUE_GUARD_H
#define DG_QUEUE_GUARD_H

#include "clock.h"
#include "ring.h"

struct queue_guard {
	_Alignas(64) atomic_uint busy;
	atomic_uint waiting;
};

static inline void guard_enter(struct queue_guard *g)
{
	for (;;) {
		publish_seq(&g->busy, 1);
		if (__builtin_expect(!atomic_load_explicit(&g->waiting, memory_order_seq_cst), 1))
			return;
		atomic_store_explicit(&g->busy, 0, memory_order_release);
		while (atomic_load_explicit(&g->waiting, memory_order_acquire))
			cpu_relax();
	}
}

static inline void guard_leave(struct queue_guard *g)
{
	/* Release: a thread that waits for the queue sees everything done in it. */
	atomic_store_explicit(&g->busy, 0, memory_order_release);
}

/* One thread at a time. */
static inline void guard_exclude(struct queue_guard *g)
{
	atomic_store_explicit(&g->waiting, 1, memory_order_seq_cst);
	dg_sleeper_barrier();
	while (atomic_load_explicit(&g->busy, memory_order_seq_cst))
		cpu_relax();
}

static inline void guard_readmit(struct queue_guard *g)
{
	atomic_store_explicit(&g->waiting, 0, memory_order_release);
}

#endif
