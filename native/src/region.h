/* SPDX-License-Identifier: Apache-2.0 */
/* A region as the control path sees it. The data path sees its dg_region_entry. */
#ifndef DG_REGION_H
#define DG_REGION_H

#include <stdint.h>

#include "provider.h"

struct dg_export; /* export.c: an entry of the table */
struct dg_import; /* export.c: one import of this region */
struct dg_exporter; /* peer.c: the exporter that a remote region came from */
struct dg_mapping; /* mapping.h: a memfd mapped here */
struct dg_descriptor;

struct dg_region {
	struct dg_device *dev;
	struct dg_region_entry *entry;
	uint32_t index, id;
	dg_memory memory;
	uint32_t access;
	bool remote, closing;
	bool other_machine; /* of another machine: it has no door */
	const struct dg_descriptor
		*descriptor; /* while it is imported: whose blob map() takes, or NULL */
	void *provider_state; /* the provider's own, of its map() */
	struct dg_region *next, *prev; /* of the device */
	/* exported: guarded by the door's lock */
	struct dg_export *exports;
	struct dg_import *imports;
	/* remote: guarded by the peer lock */
	struct dg_exporter *exporter; /* NULL: the exporter is this process, or far */
	struct dg_mapping *mapping;
	struct dg_region *exporter_next, *exporter_prev;
	uint32_t slot;
};

/* The device's map(), or dg_map_default; and its unmap(). */
int dg_region_map(struct dg_region *r, const dg_memory *m, struct dg_region_entry *entry);
void dg_region_unmap(struct dg_region *r);

/* Before the first device. -ENOMEM. */
int dg_region_table_open(void);
/* Takes a free entry of the table and fills it, with the gate given or the private one. */
int dg_region_table_add(struct dg_region *r, const struct dg_region_entry *init);
void dg_region_table_remove(struct dg_region *r);
void dg_region_table_fork_lock(void);
void dg_region_table_fork_unlock(void);
/* The entry that may be posted to under this id, or NULL. seq_cst: the poster's half of
 * dg_queues_grace(). */
struct dg_region_entry *dg_region_table_find(uint32_t id);
/* Waits until no queue of the device is still inside an entry that began before this call, or until
 * the deadline: -EBUSY. */
int dg_queues_grace(struct dg_device *dev, uint64_t deadline_ns);

#endif
