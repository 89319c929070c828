// SPDX-License-Identifier: Apache-2.0
#include <signal.h>
#include <time.h>

#include "thread.h"

int dg_thread_start(pthread_t *t, const char *name, void *(*run)(void *), void *arg)
{
	sigset_t all, old;
	/* Signals are left to the host program's own threads. */
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &old);
	int rc = pthread_create(t, NULL, run, arg);
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	if (!rc)
		pthread_setname_np(*t, name);
	return rc;
}

void dg_cond_init(pthread_cond_t *c)
{
	pthread_condattr_t monotonic;
	pthread_condattr_init(&monotonic);
	pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
	pthread_cond_init(c, &monotonic);
	pthread_condattr_destroy(&monotonic);
}
