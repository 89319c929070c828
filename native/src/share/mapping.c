// SPDX-License-Identifier: Apache-2.0
#include "share/mapping.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include "dgkit.h"
#include "error.h"

int dg_mapping_take(struct dg_mapping **list, int fd, bool writable, uint64_t need,
		    struct dg_mapping **out)
{
	struct stat st;
	int rc = dg_memfd_check(fd, need);
	if (rc)
		return rc;
	if (fstat(fd, &st))
		return dg_fail_errno("cannot query the exporter's memfd");
	struct dg_mapping *m = *list;
	/* A memfd may have grown since it was mapped: only shrinking is ruled out by its seals. */
	while (m && (m->dev != st.st_dev || m->ino != st.st_ino || m->writable != writable ||
		     m->size < need))
		m = m->next;
	if (!m) {
		m = calloc(1, sizeof *m);
		if (!m)
			return dg_fail(ENOMEM, "out of memory for a mapping");
		*m = (struct dg_mapping){.dev = st.st_dev,
					 .ino = st.st_ino,
					 .writable = writable,
					 .size = (uint64_t)st.st_size};
		/* MAP_POPULATE: a page fault during a transfer costs more than the transfer. */
		m->base = mmap(NULL, m->size, PROT_READ | (writable ? PROT_WRITE : 0),
			       MAP_SHARED | MAP_POPULATE, fd, 0);
		if (m->base == MAP_FAILED) {
			free(m);
			return dg_fail_errno("cannot map %llu bytes of the exporter",
					     (unsigned long long)st.st_size);
		}
		m->next = *list;
		*list = m;
	}
	m->refs++;
	*out = m;
	return 0;
}

void dg_mapping_drop(struct dg_mapping **list, struct dg_mapping *m)
{
	if (!m || --m->refs)
		return;
	struct dg_mapping **at = list;
	while (*at != m)
		at = &(*at)->next;
	*at = m->next;
	munmap(m->base, m->size);
	free(m);
}
