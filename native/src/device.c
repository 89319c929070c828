// SPDX-License-Identifier: Apache-2.0
/* Devices: the table of providers, opening and closing, and polling on behalf of idle callers. */
#include <errno.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "clock.h"
#include "share/server.h"
#include "error.h"
#include "provider.h"
#include "queue.h"
#include "region.h"

static const struct dg_ops *const providers[] = {
	&dg_soft_ops, &dg_cuda_ops, &dg_verbs_ops, &dg_doca_ops, &dg_softdoca_ops, &dg_fault_ops,
};
#define N_PROVIDERS (sizeof providers / sizeof providers[0])
static atomic_uint last_number;
static pthread_mutex_t polled_lock = PTHREAD_MUTEX_INITIALIZER;
static struct dg_device *polled; /* devices whose provider has poll() */

const char *dg_provider_name(uint32_t i)
{
	return i < N_PROVIDERS ? providers[i]->name : NULL;
}

const struct dg_ops *dg_ops_find(const char *name)
{
	for (uint32_t i = 0; i < N_PROVIDERS; i++)
		if (name && !strcmp(providers[i]->name, name))
			return providers[i];
	return NULL;
}

int dg_provider_probe(const char *provider, uint32_t deep)
{
	const struct dg_ops *ops = dg_ops_find(provider);
	if (!ops)
		return dg_fail(DG_REASON_UNKNOWN_PROVIDER,
			       "no provider is called '%s'; the providers are soft, cuda, verbs, "
			       "doca, softdoca and fault",
			       provider ? provider : "");
	return ops->probe ? ops->probe(deep) : 0;
}

uint64_t dg_now_ns(void)
{
	return now_ns();
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

void dg_devices_poll(void)
{
	/* Use trylock here and for each device's lock: dg_share_server_release() waits for the
	 * server's thread with lifecycle_lock held, and other threads may wait for that lock while
	 * they hold one of these. */
	if (pthread_mutex_trylock(&polled_lock))
		return;
	for (struct dg_device *dev = polled; dev; dev = dev->next)
		if (dev->fork_generation == atomic_load(&dg_fork_generation))
			dg_queues_poll(dev);
	pthread_mutex_unlock(&polled_lock);
}

void dg_devices_fork_lock(void)
{
	pthread_mutex_lock(&polled_lock);
}

void dg_devices_fork_unlock(bool child)
{
	if (child)
		polled = NULL;
	pthread_mutex_unlock(&polled_lock);
}

static void polled_add(struct dg_device *dev)
{
	pthread_mutex_lock(&polled_lock);
	dev->next = polled;
	polled = dev;
	dg_share_server_set_polling(true);
	pthread_mutex_unlock(&polled_lock);
}

static void polled_remove(struct dg_device *dev)
{
	struct dg_device **at = &polled;
	pthread_mutex_lock(&polled_lock);
	while (*at && *at != dev)
		at = &(*at)->next;
	if (*at)
		*at = dev->next;
	dg_share_server_set_polling(polled != NULL);
	pthread_mutex_unlock(&polled_lock);
}

void dg_device_unref(struct dg_device *dev)
{
	if (!life_unref(&dev->life))
		return;
	pthread_mutex_destroy(&dev->lock);
	free(dev);
}

int dg_device_enter(struct dg_device *dev)
{
	/* In a forked child no lock of the device is taken, because a thread of the parent may hold
	 * it. */
	if (dev->fork_generation != atomic_load(&dg_fork_generation))
		return dg_fail(EOWNERDEAD,
			       "this device was opened before fork(): open one in the child");
	return life_enter(&dev->life) ? 0 : dg_fail(ESTALE, "this device is closed");
}

int dg_device_open(const char *provider, const dg_device_config *cfg, dg_device **out)
{
	static const dg_device_config defaults = {.spin_ns = 200000};
	*out = NULL;
	int rc = dg_provider_probe(provider, false);
	if (!rc)
		rc = dg_fork_watch();
	if (!rc)
		rc = dg_region_table_open();
	if (rc)
		return rc;
	dg_asymmetric_init();
	struct dg_device *dev = calloc(1, sizeof *dev);
	if (!dev)
		return dg_fail(ENOMEM, "out of memory for a device");
	dev->shared = cfg && cfg->shared;
	life_init(&dev->life, 1 + dev->shared);
	dev->ops = dg_ops_find(provider);
	dev->fork_generation = atomic_load(&dg_fork_generation);
	dev->number = atomic_fetch_add(&last_number, 1) + 1;
	pthread_mutex_init(&dev->lock, NULL);
	snprintf(dev->caps.provider, sizeof dev->caps.provider, "%s", dev->ops->name);
	rc = dev->ops->open(dev, cfg ? cfg : &defaults, &dev->provider);
	if (rc) {
		pthread_mutex_destroy(&dev->life.lock);
		pthread_mutex_destroy(&dev->lock);
		free(dev);
		return rc;
	}
	if (dev->ops->poll)
		polled_add(dev);
	*out = dev;
	return 0;
}

int dg_device_caps(dg_device *dev, dg_caps *out)
{
	if (life_is_closed(&dev->life))
		return dg_fail(ESTALE, "this device is closed");
	*out = dev->caps;
	return 0;
}

int dg_device_stats(dg_device *dev, dg_stats *out)
{
	*out = (dg_stats){0};
	TRY(dg_device_enter(dev));
	if (dev->ops->stats)
		dev->ops->stats(dev->provider, out);
	life_leave(&dev->life);
	return 0;
}

/* Closes a device in a forked child, where neither the engine nor the share server runs, so that
 * only memory has to be freed. */
static int close_in_child(struct dg_device *dev)
{
	if (!life_close_forked(&dev->life))
		return 0;
	if (dev->ops->poll)
		polled_remove(dev);
	dg_device_unref(dev);
	return 0;
}

/* The following functions return a listed object with a reference, because its user may close and
 * free it concurrently. */
static struct dg_queue *first_queue(struct dg_device *dev)
{
	pthread_mutex_lock(&dev->lock);
	struct dg_queue *q = dev->queues;
	if (q)
		atomic_fetch_add_explicit(&q->refs, 1, memory_order_relaxed);
	pthread_mutex_unlock(&dev->lock);
	return q;
}

static struct dg_region *first_region(struct dg_device *dev)
{
	pthread_mutex_lock(&dev->lock);
	struct dg_region *r = dev->regions;
	if (r)
		life_ref(&r->life);
	pthread_mutex_unlock(&dev->lock);
	return r;
}

static int close_queues_and_regions(struct dg_device *dev, uint64_t deadline_ns)
{
	int rc = 0;
	for (struct dg_queue *q; !rc && (q = first_queue(dev));) {
		rc = dg_queue_close(q);
		dg_queue_unref(q);
	}
	for (struct dg_region *r; !rc && (r = first_region(dev));) {
		rc = dg_region_close_until(r, deadline_ns);
		dg_region_unref(r);
	}
	return rc;
}

int dg_device_close(dg_device *dev, uint64_t timeout_ns)
{
	if (dev->fork_generation != atomic_load(&dg_fork_generation))
		return close_in_child(dev);
	uint64_t deadline = add_sat(now_ns(), timeout_ns);
	int rc = life_close_begin(&dev->life, deadline);
	if (rc < 0)
		return dg_fail(EBUSY, "another thread is still closing this device: close it again");
	if (!rc)
		return 0;
	rc = life_drain(&dev->life, deadline);
	if (rc)
		rc = dg_fail(EBUSY, "another thread is still opening a queue or a region of this "
				    "device: close it again");
	if (!rc)
		rc = close_queues_and_regions(dev, deadline);
	if (rc) {
		life_reopen(&dev->life);
		return rc;
	}
	if (dev->ops->poll)
		polled_remove(dev);
	dev->ops->close(dev, dev->provider);
	if (dev->uses_share_server)
		dg_share_server_release();
	life_closed(&dev->life);
	dg_device_unref(dev);
	return 0;
}

void dg_device_free(dg_device *dev)
{
	dg_device_close(dev, DROPPED_NS);
	dg_device_unref(dev);
}
