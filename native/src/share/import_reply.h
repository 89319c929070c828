/* SPDX-License-Identifier: Apache-2.0 */
/* What an exporter's answer to an import makes of a region. */
#ifndef DG_SHARE_IMPORT_REPLY_H
#define DG_SHARE_IMPORT_REPLY_H

#include "share/server.h"
#include "share/mapping.h"

/* Who answered: its process, its control memory, and those of its memfds that are mapped here. */
struct reply_source {
	pid_t pid;
	char *control;
	struct dg_mapping **mappings;
};

/* Fills *hot, and r->mapping or r->mapped, but for what r->descriptor opens. Under the peer lock. */
int dg_import_reply_apply(struct dg_region *r, const struct reply_source *source,
			  const struct dg_share_reply *reply, const int fds[2], int n_fds,
			  struct dg_region_entry *entry);
/* The rest where r->descriptor is the provider's own export: this opens it. */
int dg_import_reply_open(struct dg_region *r, const struct dg_share_reply *reply,
			 struct dg_region_entry *entry);

#endif
