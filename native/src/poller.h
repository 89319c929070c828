/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A thread that polls memory which GPUs write to: the proxy of GPU queues, the software NIC. It
 * spins while there is work, yields its CPU when idle, and later sleeps between passes.
 *
 * The thread holds the lock while it is awake. Between two passes it releases the lock to threads
 * that called dg_poller_lock().
 */
#ifndef DG_POLLER_H
#define DG_POLLER_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

/* passes, of which `idle` found nothing. spun_ns, slept_ns: time of idle passes, and of the sleeps
 * that follow them. Guarded by the lock. */
struct dg_poller_stats {
	uint64_t passes, idle, spun_ns, sleeps, slept_ns;
};

struct dg_poller {
	pthread_t thread;
	pthread_mutex_t lock;
	atomic_uint wanted; /* number of threads that wait for the lock */
	atomic_uint stop;
	atomic_bool is_helped; /* another thread made or tried a pass, since the thread last looked */
	/* How long it spins when idle, before it sleeps between passes; not at all while others need its CPU, or make
	 * the passes. */
	uint64_t spin_ns;
	bool (*pass)(void *arg); /* one pass; returns whether anything was done */
	void *arg;
	struct dg_poller_stats stats;
};

/* Starts the thread. spin_ns is ignored on one CPU. Errors: those of dg_thread_start(). */
int dg_poller_start(struct dg_poller *p, const char *name, uint64_t spin_ns,
		    bool (*pass)(void *arg), void *arg);
/* Acquires the lock, which the thread releases between two passes. */
void dg_poller_lock(struct dg_poller *p);
void dg_poller_unlock(struct dg_poller *p);
/* Makes a pass in the calling thread, unless another one has the lock. Returns whether it did anything. */
bool dg_poller_pass(struct dg_poller *p);
/* Tells the thread to end; may be called with the lock held. */
void dg_poller_stop(struct dg_poller *p);
/* Waits for the end of the thread; called without the lock. */
void dg_poller_join(struct dg_poller *p);

#endif
