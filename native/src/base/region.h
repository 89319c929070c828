/* SPDX-License-Identifier: Apache-2.0 */
/* A region as the control path sees it; the data path uses its dg_region_entry. */
#ifndef DG_REGION_H
#define DG_REGION_H

#include <stdint.h>

#include "provider.h"

struct dg_export; /* share/exports.c: one export of this region */
struct dg_import; /* share/exports.c: one import of this region */
struct dg_exporter; /* share/importer.c: the process that a remote region was imported from */
struct dg_mapping; /* share/mapping.h: an exporter's memfd, mapped into this process */
struct dg_descriptor;

struct dg_region {
	struct dg_life life;
	struct dg_device *dev;
	struct dg_region_entry *entry;
	uint32_t index, name; /* in the region table */
	dg_memory memory;
	uint32_t access;
	bool remote;
	uint8_t registration; /* enum dg_registration */
	atomic_bool closing; /* set before dg_share_revoke(): dg_share_export() then refuses */
	bool no_atomics; /* set by map(): the exporter's adapter has no atomic operations */
	bool other_machine; /* imported from another machine, without a share server */
	const struct dg_memory_ops *kind; /* of memory that has its own operations; otherwise NULL */
	const struct dg_descriptor *descriptor; /* during import: its blob is for map(); or NULL */
	void *provider_state; /* set by map() of the kind or of the provider */
	struct dg_qp *qp; /* of an import by a queue pair, referenced; otherwise NULL */
	struct dg_region *next, *prev; /* list of the device */
	/* exported: guarded by dg_share_lock() */
	struct dg_export *exports;
	struct dg_import *imports;
	uint32_t importers_lost; /* number of processes that ended without releasing their import */
	_Atomic uint64_t *watched; /* set to watched_value when the last import ends; or NULL */
	uint64_t watched_value;
	/* imported: guarded by the lock of share/importer.c */
	struct dg_exporter *exporter; /* NULL: this process, or another machine */
	struct dg_mapping *mapping;
	struct dg_region *exporter_next, *exporter_prev;
	uint32_t slot;
};

/* A kind of memory that is mapped into this process and has its own way to other machines: its
 * exports are blobs in descriptors. memory_kinds in region.c has them all. */
struct dg_memory_ops {
	const char *name; /* in descriptors, in place of a provider's */
	const char *text; /* in errors */
	uint8_t method; /* enum dg_method of an import */
	/* Both set r->provider_state and fill entry->base; import() opens the blob of r->descriptor
	 * and fills entry->gate. */
	int (*map)(struct dg_region *r, const dg_memory *m, struct dg_region_entry *entry);
	int (*import)(struct dg_region *r, struct dg_region_entry *entry);
	/* The others are those of struct dg_ops, for importers on other machines. */
	void (*unmap)(struct dg_region *r);
	int (*export)(struct dg_region *r, uint32_t access, struct dg_descriptor *d);
	int (*revoke)(struct dg_region *r, uint64_t deadline_ns);
	uint32_t (*importers)(struct dg_region *r);
	bool (*lost)(const struct dg_region *r);
};

/* These call map() and unmap() of the memory's kind or of the provider, or dg_map_default(). */
int dg_region_map(struct dg_region *r, const dg_memory *m, struct dg_region_entry *entry);
void dg_region_unmap(struct dg_region *r);
/* map() of a provider that cannot copy GPU memory: host memory is used directly, GPU memory can only
 * be exported. */
int dg_map_default(struct dg_device *dev, const dg_memory *m, struct dg_region_entry *entry);

/* Reserves the region table; called before the first device opens. Errors: ENOMEM. */
int dg_region_table_open(void);
/* Fills a free entry of the table, with init's gate or the entry's private one, and publishes its
 * id. Errors: EMFILE. */
int dg_region_table_add(struct dg_region *r, const struct dg_region_entry *init);
void dg_region_table_remove(struct dg_region *r);
void dg_region_table_fork_lock(void);
void dg_region_table_fork_unlock(void);
/* Returns the entry of the region with this name if operations may be posted to it, and stores its
 * id, otherwise NULL. The load is seq_cst: it is the poster's half of dg_queues_grace(). */
struct dg_region_entry *dg_region_table_find(uint32_t name, uint64_t *id);
/* For tests: the next region at this index, which is free, gets the generation after this one. */
void dg_region_table_set_generation(uint32_t index, uint64_t generation);
#endif
