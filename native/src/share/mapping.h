/* SPDX-License-Identifier: Apache-2.0 */
/* Memfds of an exporter. Each is mapped once, for all regions in it. */
#ifndef DG_SHARE_MAPPING_H
#define DG_SHARE_MAPPING_H

#include <pthread.h>
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

/* The mappings of one exporter. The lock is held while one is found or mapped, never while pages
 * are populated. */
struct dg_mappings {
	pthread_mutex_t lock;
	struct dg_mapping *first;
};

/* Takes a reference to the mapping of fd's memfd, of at least `need` bytes; creates the mapping if
 * there is none. Errors: EMEDIUMTYPE (see dg_memfd_check()), ENOMEM, and those of mmap(2). */
int dg_mapping_take(struct dg_mappings *all, int fd, bool writable, uint64_t need,
		    struct dg_mapping **out);
/* Maps the pages of a range in advance, at most until the deadline: a page fault during a transfer
 * costs more than the transfer. In a sparse memfd this would fill the holes with memory that no
 * limit counts, so the pages of such a memfd are not populated, nor where the kernel does not say
 * how many it has. */
void dg_mapping_populate(const struct dg_mapping *m, int fd, uint64_t offset, uint64_t size,
			 uint64_t deadline_ns);
/* Drops a reference and unmaps at the last one. NULL is ignored. */
void dg_mapping_drop(struct dg_mappings *all, struct dg_mapping *m);

#endif
