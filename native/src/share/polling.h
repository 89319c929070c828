/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Polling on behalf of callers that do something else.
 *
 * A provider with poll() makes progress only when its queues are polled. While the user of a queue
 * does something else, its gates stay entered, and an exporter's close would wait for that user. So
 * every thread that waits for a gate calls dg_devices_poll() repeatedly, and so does the share
 * server's thread.
 */
#ifndef DG_SHARE_POLLING_H
#define DG_SHARE_POLLING_H

#include "provider.h"

/* Calls dev->poll_queues() of every device in the list. Skips devices that are locked, and queues
 * that a thread is inside: never blocks. */
void dg_devices_poll(void);
void dg_polling_add(struct dg_device *dev);
void dg_polling_remove(struct dg_device *dev);
/* Called around fork(), before all other locks. In the child the list is emptied, so that nothing
 * is polled any more. */
void dg_devices_fork_lock(void);
void dg_devices_fork_unlock(bool child);

#endif
