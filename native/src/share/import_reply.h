/* SPDX-License-Identifier: Apache-2.0 */
/* Turns an exporter's reply to an import request into a region. */
#ifndef DG_SHARE_IMPORT_REPLY_H
#define DG_SHARE_IMPORT_REPLY_H

#include "share/server.h"
#include "share/mapping.h"

/* The exporter that replied: its process, its control memory, and its memfds mapped into this
 * process. */
struct reply_source {
	pid_t pid;
	bool open; /* its memory is open for dg_importer_vm_copy() */
	char *control;
	struct dg_mappings *mappings;
	uint64_t deadline_ns; /* of the import */
};

/* Fills *entry, and r->mapping or r->provider_state. Call it without holding any lock: it maps
 * memory, and the provider's library may also contact the exporter. Errors: EBADMSG for a malformed
 * reply, EOPNOTSUPP, and those of map(). */
int dg_import_reply_apply(struct dg_region *r, const struct reply_source *source,
			  const struct dg_share_reply *reply, const int fds[2], int n_fds,
			  struct dg_region_entry *entry);

#endif
