/* SPDX-License-Identifier: Apache-2.0 */
/* Memfds of an exporter, mapped here once however many regions lie in them. Under the peer lock. */
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

/* Gives the mapping of fd's memfd, of at least `need` bytes, from *list; adds one if there is none. */
int dg_mapping_take(struct dg_mapping **list, int fd, bool writable, uint64_t need,
		    struct dg_mapping **out);
/* Gives it back. NULL: nothing. */
void dg_mapping_drop(struct dg_mapping **list, struct dg_mapping *m);

#endif
