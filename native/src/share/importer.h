/* SPDX-License-Identifier: Apache-2.0 */
/* The importer's end of a connection: the exporters that this process imports from. */
#ifndef DG_SHARE_IMPORTER_H
#define DG_SHARE_IMPORTER_H

#include <stdbool.h>
#include <stdint.h>

#include "share/descriptor.h"
#include "region.h"

/* Imports through the exporter's door; fills r->peer, r->mapping, r->slot and *hot. */
int dg_importer_import(struct dg_region *r, const struct dg_descriptor *d, uint64_t timeout_ns,
		       struct dg_region_entry *entry);
/* Once the region is in its table: from now on it learns of its exporter's death. */
void dg_importer_add_region(struct dg_region *r);
/* The exporter's process id; 0 on another machine. */
int32_t dg_importer_exporter_pid(struct dg_region *r);
/* Whether the exporter is dead; also when nobody was told yet. */
bool dg_importer_exporter_gone(struct dg_region *r);
/* Gives the import back. The region must be quiet. */
void dg_importer_release(struct dg_region *r);
/* Copies through the exporter. Gives a dg_status. */
int dg_importer_proxy_copy(struct dg_region_entry *remote, char *local, uint64_t offset, uint64_t n,
			   bool write, bool may_fault);
/* The door's thread: a watched exporter hung up. */
void dg_importer_exporter_died(void *cookie);
/* Around fork(), and in the child before it unlocks: forget everything, tell nobody. */
void dg_importer_fork_lock(void);
void dg_importer_fork_unlock(void);
void dg_importer_forget_all(void);

#endif
