/* SPDX-License-Identifier: Apache-2.0 */
#ifndef DG_THREAD_H
#define DG_THREAD_H

#include <pthread.h>

/* Starts a named thread with all signals blocked. Errors: DG_REASON_THREADS, ENOMEM. */
int dg_thread_start(pthread_t *t, const char *name, void *(*run)(void *), void *arg);
/* Initializes a condition variable whose waits end by the monotonic clock: the wall clock may be set
 * meanwhile. */
void dg_cond_init(pthread_cond_t *c);

#endif
