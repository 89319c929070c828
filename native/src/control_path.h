/* SPDX-License-Identifier: Apache-2.0 */
/* Entering, closing and freeing devices and regions: for the core, not for providers. */
#ifndef DG_CONTROL_PATH_H
#define DG_CONTROL_PATH_H

#include "region.h"

/* How long the free of a handle waits for what still uses an open object. */
#define DROPPED_NS 100000000u

/* Drops a reference; the last one frees the device. */
void dg_device_unref(struct dg_device *dev);
/* Enters the device, so that it stays open until life_leave(&dev->life). Errors: EOWNERDEAD, ESTALE. */
int dg_device_enter(struct dg_device *dev);

/* Like dg_region_close(), with a deadline instead of a time-out. */
int dg_region_close_until(struct dg_region *r, uint64_t deadline_ns);
/* Closes a region, however long its transfers take, and frees its handle. NULL is ignored. */
void dg_region_end(struct dg_region *r);
/* Drops a reference; the last one frees the region. */
void dg_region_unref(struct dg_region *r);

/* Enters the region, so that it stays open until life_leave(&r->life). Errors: EOWNERDEAD, ESTALE. */
int dg_region_enter(struct dg_region *r);
/* Returns 0 if `access` is part of the region's own access. verb: what is to be done with the
 * region, as in "exported". Errors: EACCES; EINVAL for an imported region. */
int dg_region_check_access(const struct dg_region *r, uint32_t access, const char *verb);
/* Creates a remote region for memory that qp's peer has granted. Errors: ENOMEM, EMFILE. */
int dg_region_import_by_qp(struct dg_qp *qp, const dg_rdma_memory *m, dg_region **out);

/* Waits for a grace period: until every thread that was inside a queue of the device at the time of
 * the call has left it. Errors: EBUSY at the deadline. */
int dg_queues_grace(struct dg_device *dev, uint64_t deadline_ns);

#endif
