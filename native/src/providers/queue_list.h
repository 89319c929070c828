/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The queues of a device, for providers that keep state of a region in each queue between
 * operations. The list excludes each queue's user while a thread that unmaps a region visits it.
 *
 * The user stores busy and then loads waiting; the other thread stores waiting and then loads busy.
 * Forbidden outcome: both proceed. The argument is that of the sleeping protocol in ring.h: the
 * user is its producer, the other thread its sleeper.
 */
#ifndef DG_QUEUE_LIST_H
#define DG_QUEUE_LIST_H

#include <pthread.h>

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
	/* Release: a thread that waits for the queue sees everything that the user did with it. */
	atomic_store_explicit(&g->busy, 0, memory_order_release);
}

/* Only one thread at a time may call it. */
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

/* The first member of a provider's queue. */
struct listed_queue {
	struct queue_guard guard;
	struct listed_queue *next;
};

struct queue_list {
	pthread_mutex_t lock; /* held while a thread that unmaps a region visits the queues */
	struct listed_queue *first;
	uint32_t n;
};

/* Called with the list's lock held. */
static inline void queue_list_add(struct queue_list *list, struct listed_queue *q)
{
	q->next = list->first;
	list->first = q;
	list->n++;
}

/* Called outside the queue's guard: a visitor holds the list's lock while it waits for users
 * inside. */
static inline void queue_list_remove(struct queue_list *list, struct listed_queue *q)
{
	pthread_mutex_lock(&list->lock);
	struct listed_queue **at = &list->first;
	while (*at != q)
		at = &(*at)->next;
	*at = q->next;
	list->n--;
	pthread_mutex_unlock(&list->lock);
}

/* Makes each queue release a region, with the queue's user excluded. */
static inline void queue_list_release(struct queue_list *list,
				      void (*release)(struct listed_queue *q, uint32_t region),
				      uint32_t region)
{
	pthread_mutex_lock(&list->lock);
	for (struct listed_queue *q = list->first; q; q = q->next) {
		guard_exclude(&q->guard);
		release(q, region);
		guard_readmit(&q->guard);
	}
	pthread_mutex_unlock(&list->lock);
}

#endif
