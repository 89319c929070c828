// SPDX-License-Identifier: Apache-2.0
#include "share/polling.h"

#include "share/server.h"

static pthread_mutex_t polled_lock = PTHREAD_MUTEX_INITIALIZER;
static struct dg_device *polled; /* devices whose provider has poll() */

void dg_devices_poll(void)
{
	/* Use trylock here and for each device's lock: dg_share_server_release() waits for the
	 * server's thread with lifecycle_lock held, and other threads may wait for that lock while
	 * they hold one of these. */
	if (pthread_mutex_trylock(&polled_lock))
		return;
	for (struct dg_device *dev = polled; dev; dev = dev->next)
		if (dev->fork_generation == atomic_load(&dg_fork_generation))
			dev->poll_queues(dev);
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

void dg_polling_add(struct dg_device *dev)
{
	pthread_mutex_lock(&polled_lock);
	dev->next = polled;
	polled = dev;
	dg_share_server_set_polling(true);
	pthread_mutex_unlock(&polled_lock);
}

void dg_polling_remove(struct dg_device *dev)
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
