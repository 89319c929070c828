// SPDX-License-Identifier: Apache-2.0
#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>

#include "error.h"
#include "thread.h"

#include "dgkit.h"

static int explain_failure(const char *name, int rc)
{
	struct rlimit processes = {0};
	if (rc != EAGAIN)
		return dg_fail(rc, "cannot start the thread %s: %s", name, strerror(rc));
	getrlimit(RLIMIT_NPROC, &processes);
	return dg_fail(DG_REASON_THREADS,
		       "cannot start the thread %s: this user's processes and threads (`ulimit -u`, "
		       "RLIMIT_NPROC, is %lld), those of its container (pids.max) or the memory for "
		       "its stack (`ulimit -v`) are at their limit",
		       name, (long long)processes.rlim_cur);
}

int dg_thread_start(pthread_t *t, const char *name, void *(*run)(void *), void *arg)
{
	sigset_t all, old;
	/* Signals are left to the host program's own threads; a fault is one of the thread that accesses
	 * memory, whose process ends if it blocks it. */
	sigfillset(&all);
	sigdelset(&all, SIGSEGV);
	sigdelset(&all, SIGBUS);
	pthread_sigmask(SIG_SETMASK, &all, &old);
	int rc = pthread_create(t, NULL, run, arg);
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	if (rc)
		return explain_failure(name, rc);
	pthread_setname_np(*t, name);
	return 0;
}

void dg_cond_init(pthread_cond_t *c)
{
	pthread_condattr_t monotonic;
	pthread_condattr_init(&monotonic);
	pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
	pthread_cond_init(c, &monotonic);
	pthread_condattr_destroy(&monotonic);
}

/* Returns the number of CPUs in cpu.max of the cgroup at this process's root: "QUOTA PERIOD" or
 * "max PERIOD" (kernel documentation, cgroup-v2). */
static uint32_t quota_cpus(void)
{
	char quota[32];
	unsigned long period;
	uint32_t cpus = UINT32_MAX;
	FILE *f = fopen("/sys/fs/cgroup/cpu.max", "re");
	if (!f)
		return cpus;
	if (fscanf(f, "%31s %lu", quota, &period) == 2 && strcmp(quota, "max") && period)
		cpus = (uint32_t)(strtoul(quota, NULL, 10) / period);
	fclose(f);
	return cpus ? cpus : 1;
}

uint32_t dg_cpus(void)
{
	cpu_set_t set;
	uint32_t n = 1, quota = quota_cpus();
	if (!sched_getaffinity(0, sizeof set, &set))
		n = (uint32_t)CPU_COUNT(&set);
	return n < quota ? n : quota;
}
