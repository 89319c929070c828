/* SPDX-License-Identifier: Apache-2.0 */
/* Memfds of an exporter, each mapped once for all regions in it. Guarded by the lock of
 * share/importer.c. */
#ifndef DG_SHARE_MAPPING_H
#define DG_SHARE_MAPPING_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

struct dg_mapping {
	struct dg_mapping *next;
	dev_t dev;
	ino_t ino;
	bool writable;
	char *base;
	uint64_t size;
	uint32_t refs;
};

/* Takes a reference to the mapping of fd's memfd, of at least `need` bytes, from *list; maps it if
 * there is none. Errors: EMEDIUMTYPE (see dg_memfd_check()), ENOMEM, and those of mmap(2). */
int dg_mapping_take(struct dg_mapping **list, int fd, bool writable, uint64_t need,
		    struct dg_mapping **out);
/* Drops a reference and unmaps at the last one. NULL is ignored. */
void dg_mapping_drop(struct dg_mapping **list, struct dg_mapping *m);

#endif
