// SPDX-License-Identifier: Apache-2.0
#include "poller.h"

#include <sched.h>
#include <sys/prctl.h>
#include <time.h>

#include "clock.h"
#include "dgkit.h"
#include "thread.h"

/* After the last work the thread spins for spin_ns: for a proxy that of Device.gpu_queue(spin_us),
 * 1 ms by default, or 0 on one CPU. Then it sleeps between two idle passes, an eighth of the idle
 * time, within the first two limits. */
enum { SLEEP_LEAST_NS = 20000, SLEEP_MOST_NS = 1000000, IDLE_PASSES = 64 };
/* A thread that is kept from its CPU, for a quarter of the time that it spins (at least CHECK_NS), or for LATE_NS when
 * it is to wake up, does not spin for CROWDED_NS: the thread that it waits for may need the CPU, and one that sleeps is
 * run soon after it wakes up, where one that spins has to wait for the time slices of all others. */
enum { CHECK_NS = 1000000, LATE_NS = 200000, CROWDED_NS = 200000000 };
/* Number of idle passes without a pause, about 10 us: a kernel that waits for each of its
 * operations posts the next one within this time. A pause of an x86 core takes 50 ns. */
enum { EAGER_PASSES = 1024 };

static uint64_t idle_sleep(uint64_t idle_ns)
{
	const uint64_t ns = idle_ns / 8;
	return ns < SLEEP_LEAST_NS ? SLEEP_LEAST_NS : ns > SLEEP_MOST_NS ? SLEEP_MOST_NS : ns;
}

/* The thread's record of time. checked, checked_cpu: when check_crowded() last decided, as time (0: not since a sleep)
 * and as the thread's CPU time. last_rest: when rest() was last called. */
struct times {
	uint64_t idle_since, last_rest, checked, checked_cpu, crowded_until;
	uint32_t idle_passes;
};

static uint64_t cpu_time_ns(void)
{
	struct timespec t;
	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

/* The CPUs are crowded if the thread, which spins, had its CPU for less than three quarters of the time. */
static void check_crowded(struct times *c, uint64_t now)
{
	if (now - c->checked < CHECK_NS)
		return;
	const uint64_t cpu = cpu_time_ns(), past = now - c->checked;
	if (c->checked && cpu - c->checked_cpu < past - past / 4)
		c->crowded_until = now + CROWDED_NS;
	c->checked = now;
	c->checked_cpu = cpu;
}

/* Whether to pass again at once. Where threads of the program make passes, they need the lock. */
static bool spins(struct dg_poller *p, struct times *c, uint64_t now)
{
	check_crowded(c, now);
	const bool is_helped = atomic_load_explicit(&p->is_helped, memory_order_relaxed);
	atomic_store_explicit(&p->is_helped, false, memory_order_relaxed);
	return now - c->idle_since < p->spin_ns && now >= c->crowded_until && !is_helped;
}

/* Called after idle passes: returns while the thread is still to spin, yielding its CPU after a
 * while; once it has spun long enough, sleeps without the lock. */
static void rest(struct dg_poller *p, struct times *c)
{
	const uint64_t now = now_ns();
	if (!c->idle_since)
		c->idle_since = c->last_rest = now;
	p->stats.spun_ns += now - c->last_rest;
	c->last_rest = now;
	if (spins(p, c, now)) {
		if (now - c->idle_since > YIELD_AFTER_NS)
			sched_yield();
		return;
	}
	const struct timespec t = {0, (long)idle_sleep(now - c->idle_since)};
	pthread_mutex_unlock(&p->lock);
	nanosleep(&t, NULL);
	c->last_rest = now_ns();
	if (c->last_rest - now > (uint64_t)t.tv_nsec + LATE_NS)
		c->crowded_until = c->last_rest + CROWDED_NS;
	pthread_mutex_lock(&p->lock);
	c->checked = 0;
	p->stats.sleeps++;
	p->stats.slept_ns += c->last_rest - now;
}

/* Lets the threads that wait for the mutex go first, because the mutex is not fair. */
static void give_way(struct dg_poller *p)
{
	if (!atomic_load_explicit(&p->wanted, memory_order_relaxed))
		return;
	pthread_mutex_unlock(&p->lock);
	while (atomic_load_explicit(&p->wanted, memory_order_relaxed))
		sched_yield();
	pthread_mutex_lock(&p->lock);
}

static void *poller_thread(void *arg)
{
	struct dg_poller *p = arg;
	struct times c = {0};
	prctl(PR_SET_TIMERSLACK, 1000ul, 0ul, 0ul, 0ul);
	pthread_mutex_lock(&p->lock);
	while (!atomic_load_explicit(&p->stop, memory_order_acquire)) {
		const bool busy = p->pass(p->arg);
		p->stats.passes++;
		p->stats.idle += !busy;
		if (busy) {
			c.idle_passes = 0;
			c.idle_since = 0;
		} else if (++c.idle_passes % IDLE_PASSES == 0) {
			rest(p, &c);
		} else if (c.idle_passes > EAGER_PASSES) {
			cpu_relax();
		}
		give_way(p);
	}
	pthread_mutex_unlock(&p->lock);
	return NULL;
}

int dg_poller_start(struct dg_poller *p, const char *name, uint64_t spin_ns,
		    bool (*pass)(void *arg), void *arg)
{
	p->spin_ns = dg_cpus() > 1 ? spin_ns : 0;
	p->pass = pass;
	p->arg = arg;
	pthread_mutex_init(&p->lock, NULL);
	const int rc = dg_thread_start(&p->thread, name, poller_thread, p);
	if (rc)
		pthread_mutex_destroy(&p->lock);
	return rc;
}

void dg_poller_lock(struct dg_poller *p)
{
	atomic_fetch_add(&p->wanted, 1);
	pthread_mutex_lock(&p->lock);
	atomic_fetch_sub(&p->wanted, 1);
}

void dg_poller_unlock(struct dg_poller *p)
{
	pthread_mutex_unlock(&p->lock);
}

bool dg_poller_pass(struct dg_poller *p)
{
	/* While others make its passes, the thread does not spin: see spins(). */
	atomic_store_explicit(&p->is_helped, true, memory_order_relaxed);
	if (pthread_mutex_trylock(&p->lock))
		return false;
	const bool busy = p->pass(p->arg);
	pthread_mutex_unlock(&p->lock);
	return busy;
}

void dg_poller_stop(struct dg_poller *p)
{
	atomic_store_explicit(&p->stop, 1, memory_order_release);
}

void dg_poller_join(struct dg_poller *p)
{
	pthread_join(p->thread, NULL);
}
