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

/*
 * Defines the operations doorbell, poll, direct and arm of a provider whose struct NAME_queue begins with a
 * struct listed_queue. They call dg_NAME_submit, dg_NAME_progress and dg_NAME_run inside the guard. The file
 * that uses the macro has
 *   request_notification(q)  makes the fd readable at the next completion; false if that is refused
 *   is_broken(q)             whether no completion will come
 */
#define LISTED_QUEUE_OPS(name)                                                                       \
	void dg_##name##_doorbell(struct dg_device *dev, struct dg_pipe *p)                          \
	{                                                                                            \
		struct name##_queue *q = p->provider;                                                \
		(void)dev;                                                                           \
		guard_enter(&q->listed.guard);                                                       \
		dg_##name##_submit(q);                                                               \
		guard_leave(&q->listed.guard);                                                       \
		/* The queue was armed before this post: its caller may already be asleep. */        \
		if (atomic_load_explicit(&p->cq_armed, memory_order_relaxed) &&                      \
		    (cq_peek(p) || is_broken(q)))                                                    \
			dg_pipe_wake(p);                                                             \
	}                                                                                            \
	void dg_##name##_poll(struct dg_device *dev, struct dg_pipe *p)                              \
	{                                                                                            \
		struct name##_queue *q = p->provider;                                                \
		(void)dev;                                                                           \
		if (!q)                                                                              \
			return; /* detached */                                                       \
		guard_enter(&q->listed.guard);                                                       \
		dg_##name##_progress(q);                                                             \
		guard_leave(&q->listed.guard);                                                       \
	}                                                                                            \
	int dg_##name##_direct(struct dg_device *dev, struct dg_pipe *p, const struct dg_op *op)     \
	{                                                                                            \
		struct name##_queue *q = p->provider;                                                \
		(void)dev;                                                                           \
		guard_enter(&q->listed.guard);                                                       \
		int status = dg_##name##_run(q, op);                                                 \
		guard_leave(&q->listed.guard);                                                       \
		return status;                                                                       \
	}                                                                                            \
	int dg_##name##_arm(struct dg_device *dev, struct dg_pipe *p)                                \
	{                                                                                            \
		struct name##_queue *q = p->provider;                                                \
		dg_##name##_poll(dev, p);                                                            \
		if (!dg_pipe_arm(p))                                                                 \
			return 0;                                                                    \
		guard_enter(&q->listed.guard);                                                       \
		bool requested = !is_broken(q) && request_notification(q);                           \
		/* Completions from before the request cause no notification. */                     \
		dg_##name##_progress(q);                                                             \
		guard_leave(&q->listed.guard);                                                       \
		if (requested && !is_broken(q) && !cq_peek(p))                                       \
			return 1;                                                                    \
		atomic_store_explicit(&p->cq_armed, 0, memory_order_relaxed);                        \
		return 0;                                                                            \
	}

#endif
