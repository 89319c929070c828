/* SPDX-License-Identifier: Apache-2.0 */
/* The exporters from which this process imports: the importer's side of the share protocol. */
#ifndef DG_SHARE_IMPORTER_H
#define DG_SHARE_IMPORTER_H

#include <stdbool.h>
#include <stdint.h>

#include "atomic.h"
#include "share/descriptor.h"
#include "region.h"

/* Imports from the share server of another process. Fills r->exporter, r->mapping, r->slot and
 * *entry. */
int dg_importer_import(struct dg_region *r, const struct dg_descriptor *d, uint64_t timeout_ns,
		       struct dg_region_entry *entry);
/* Called once the region is in the region table: from then on it is marked lost when its exporter
 * dies. */
void dg_importer_add_region(struct dg_region *r);
/* Returns the exporter's process id, 0 if it is on another machine. */
int32_t dg_importer_exporter_pid(struct dg_region *r);
/* Whether the exporter is dead or exiting, even if this was not reported yet. */
bool dg_importer_exporter_gone(struct dg_region *r);
/* Releases the import. Nothing may be in flight on the region. */
void dg_importer_release(struct dg_region *r);
/* Copies between `local` and the exporter's memory at `address` (METHOD_VM). Accesses only the
 * process that was imported from, even if its pid is reused. Returns a dg_status. */
int dg_importer_vm_copy(struct dg_region_entry *remote, char *local, uint64_t address, uint64_t n,
			bool write, bool may_fault);
/* Has the exporter copy n bytes at `offset` of its region (DG_METHOD_PROXY) to or from `local`, in
 * parts of BOUNCE_SIZE. Returns a dg_status. */
int dg_importer_proxy_copy(struct dg_region_entry *remote, char *local, uint64_t offset, uint64_t n,
			   bool write, bool may_fault);
/* Has the exporter execute an atomic operation on the word at `offset` of its region (DG_METHOD_PROXY).
 * Returns a dg_status, and stores the word's old value. */
int dg_importer_atomic(struct dg_region_entry *remote, uint64_t offset, const struct dg_atomic *a,
		       uint64_t *old);
/* Called by the share server's thread when the watched exporter with this cookie has hung up. */
void dg_importer_exporter_died(void *cookie);
/* Called around fork(). In the child, dg_importer_forget_all() must precede the unlock: it drops
 * all exporters without sending them a message. */
void dg_importer_fork_lock(void);
void dg_importer_fork_unlock(void);
void dg_importer_forget_all(void);

#endif
