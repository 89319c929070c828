// SPDX-License-Identifier: Apache-2.0
/* Opening and closing devices. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "clock.h"
#include "control_path.h"
#include "error.h"
#include "providers/provider_table.h"
#include "queue.h"
#include "share/polling.h"
#include "share/server.h"

static atomic_uint last_number;

uint64_t dg_now_ns(void)
{
	return now_ns();
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
	dev->poll_queues = dg_queues_poll;
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
		dg_polling_add(dev);
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
		dg_polling_remove(dev);
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
		dg_polling_remove(dev);
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
