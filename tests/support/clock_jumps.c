/* SPDX-License-Identifier: Apache-2.0 */
/* A library to preload: each reading of the wall clock is a day ahead, or a day behind. */
#define _GNU_SOURCE
#include <stddef.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

enum { DAY = 24 * 60 * 60 };

static time_t jump(void)
{
	static unsigned readings;

	return __atomic_fetch_add(&readings, 1, __ATOMIC_RELAXED) & 1 ? DAY : -DAY;
}

int clock_gettime(clockid_t id, struct timespec *t)
{
	const int rc = (int)syscall(SYS_clock_gettime, id, t);

	if (!rc && (id == CLOCK_REALTIME || id == CLOCK_REALTIME_COARSE))
		t->tv_sec += jump();
	return rc;
}

int gettimeofday(struct timeval *restrict t, void *restrict zone)
{
	struct timespec now;

	(void)zone;
	clock_gettime(CLOCK_REALTIME, &now);
	*t = (struct timeval){ now.tv_sec, now.tv_nsec / 1000 };
	return 0;
}

time_t time(time_t *out)
{
	struct timespec now;

	clock_gettime(CLOCK_REALTIME, &now);
	if (out)
		*out = now.tv_sec;
	return now.tv_sec;
}
