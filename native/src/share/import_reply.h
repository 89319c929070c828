/* SPDX-License-Identifier: Apache-2.0 */
/* Turns an exporter's reply to an import request into a region. */
#ifndef DG_SHARE_IMPORT_REPLY_H
#define DG_SHARE_IMPORT_REPLY_H

#include "share/server.h"
#include "share/mapping.h"

/* The replying exporter: its process, its control memory, and its memfds mapped into this
 * process. */
struct reply_source {
	pid_t pid;
	bool open; /* its memory is open for dg_importer_vm_copy() */
	char *control;
	struct dg_mapping **mappings;
};

/* Fills *entry, and r->mapping or r->provider_state; leaves out what r->descriptor opens. Called
 * under the lock of share/importer.c. Errors: EBADMSG for a malformed reply, EOPNOTSUPP, and those
 * of map(). */
int dg_import_reply_apply(struct dg_region *r, const struct reply_source *source,
			  const struct dg_share_reply *reply, const int fds[2], int n_fds,
			  struct dg_region_entry *entry);
/* Opens the provider's own export in r->descriptor. Called without that lock, because the
 * provider's library may contact the exporter, too. */
int dg_import_reply_open(struct dg_region *r, const struct dg_share_reply *reply,
			 struct dg_region_entry *entry);

#endif
