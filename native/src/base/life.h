/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The life cycle of a device or region whose handle is shared by several threads.
 *
 *            life_close_begin             life_drain                 life_closed
 *   OPEN ---------------------> CLOSING -------------> DRAINED --------------------> CLOSED
 *     ^                            |                      |
 *     +----------------------------+----------------------+
 *                 life_reopen: EBUSY, or the device still has something open
 *
 * Users are calls that need the object to stay open while they are inside. Only one thread at a
 * time can be the closer. The memory is freed with the last reference; the object itself holds one
 * while it is not CLOSED, its handle holds one, and so does each object that points to it.
 *
 * The data path does not use this: it enters a queue by the queue's own atomic operation (queue.h),
 * and finds a region by its id.
 */
#ifndef DG_LIFE_H
#define DG_LIFE_H

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <unistd.h>

#include "clock.h"

enum life_state { LIFE_OPEN, LIFE_CLOSING, LIFE_DRAINED, LIFE_CLOSED };

struct dg_life {
	pthread_mutex_t lock; /* held for a few instructions; taken inside any other lock */
	uint32_t users; /* guarded by lock */
	atomic_uint state; /* changed under lock */
	atomic_uint refs;
};

static inline void life_init(struct dg_life *l, uint32_t refs)
{
	pthread_mutex_init(&l->lock, NULL);
	atomic_init(&l->refs, refs);
}

static inline void life_ref(struct dg_life *l)
{
	/* Relaxed: the caller has a reference, or a lock under which the object has one. */
	atomic_fetch_add_explicit(&l->refs, 1, memory_order_relaxed);
}

/* Returns true if this was the last reference: the caller frees the object. */
static inline bool life_unref(struct dg_life *l)
{
	/* acq_rel: everything that each holder did with the object happens before the last one
	 * frees it. */
	if (atomic_fetch_sub_explicit(&l->refs, 1, memory_order_acq_rel) != 1)
		return false;
	pthread_mutex_destroy(&l->lock);
	return true;
}

/* Returns false if the object is closed, or if its closer no longer admits users. */
static inline bool life_enter(struct dg_life *l)
{
	pthread_mutex_lock(&l->lock);
	bool open = atomic_load_explicit(&l->state, memory_order_relaxed) < LIFE_DRAINED;
	l->users += open;
	pthread_mutex_unlock(&l->lock);
	return open;
}

static inline void life_leave(struct dg_life *l)
{
	pthread_mutex_lock(&l->lock);
	l->users--;
	pthread_mutex_unlock(&l->lock);
}

static inline void life_set(struct dg_life *l, uint32_t state)
{
	pthread_mutex_lock(&l->lock);
	/* Release: a thread that sees CLOSED without the lock also sees what the closer did. */
	atomic_store_explicit(&l->state, state, memory_order_release);
	pthread_mutex_unlock(&l->lock);
}

static inline bool life_is_closed(struct dg_life *l)
{
	return atomic_load_explicit(&l->state, memory_order_acquire) == LIFE_CLOSED;
}

/* Sleeps between two checks of something that another thread has to do first. */
static inline void life_nap(uint32_t *naps)
{
	usleep((*naps)++ < 50 ? 20 : 500);
}

/* Makes this thread the closer. Returns 1; 0 if the object is closed; -EBUSY if another thread is
 * still closing it at the deadline. */
static inline int life_close_begin(struct dg_life *l, uint64_t deadline_ns)
{
	for (uint32_t naps = 0;; life_nap(&naps)) {
		pthread_mutex_lock(&l->lock);
		uint32_t state = atomic_load_explicit(&l->state, memory_order_relaxed);
		if (state == LIFE_OPEN)
			atomic_store_explicit(&l->state, LIFE_CLOSING, memory_order_relaxed);
		pthread_mutex_unlock(&l->lock);
		if (state == LIFE_OPEN || state == LIFE_CLOSED)
			return state == LIFE_OPEN;
		if (now_ns() >= deadline_ns)
			return -EBUSY;
	}
}

/* Stops admitting users and waits for those inside. Called by the closer. Returns 0, or -EBUSY at
 * the deadline. */
static inline int life_drain(struct dg_life *l, uint64_t deadline_ns)
{
	for (uint32_t naps = 0;; life_nap(&naps)) {
		pthread_mutex_lock(&l->lock);
		atomic_store_explicit(&l->state, LIFE_DRAINED, memory_order_relaxed);
		uint32_t users = l->users;
		pthread_mutex_unlock(&l->lock);
		if (!users)
			return 0;
		if (now_ns() >= deadline_ns)
			return -EBUSY;
	}
}

static inline void life_reopen(struct dg_life *l)
{
	life_set(l, LIFE_OPEN);
}

static inline void life_closed(struct dg_life *l)
{
	life_set(l, LIFE_CLOSED);
}

/* Closes the object in a forked child without taking the lock, which a thread of the parent may
 * hold forever. Returns true for the first call if the parent had not closed it. */
static inline bool life_close_forked(struct dg_life *l)
{
	return atomic_exchange(&l->state, LIFE_CLOSED) != LIFE_CLOSED;
}

#endif
