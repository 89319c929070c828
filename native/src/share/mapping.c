// SPDX-License-Identifier: Apache-2.0
#include "share/mapping.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "dgkit.h"
#include "clock.h"
#include "error.h"

#ifndef MADV_POPULATE_READ
#define MADV_POPULATE_READ 22 /* Linux 5.14 */
#endif

/* Maps the whole of fd's memfd. */
static int map_whole(int fd, const struct stat *st, bool writable, struct dg_mapping **out)
{
	struct dg_mapping *m = calloc(1, sizeof *m);
	if (!m)
		return dg_fail(ENOMEM, "out of memory for a mapping");
	*m = (struct dg_mapping){.dev = st->st_dev,
				 .ino = st->st_ino,
				 .writable = writable,
				 .size = (uint64_t)st->st_size};
	m->base = mmap(NULL, m->size, PROT_READ | (writable ? PROT_WRITE : 0), MAP_SHARED, fd, 0);
	if (m->base == MAP_FAILED) {
		free(m);
		return dg_fail_errno("cannot map %llu bytes of the exporter",
				     (unsigned long long)st->st_size);
	}
	*out = m;
	return 0;
}

int dg_mapping_take(struct dg_mappings *all, int fd, bool writable, uint64_t need,
		    struct dg_mapping **out)
{
	struct stat st;
	int rc = dg_memfd_check(fd, need);
	if (rc)
		return rc;
	if (fstat(fd, &st))
		return dg_fail_errno("cannot query the exporter's memfd");
	pthread_mutex_lock(&all->lock);
	struct dg_mapping *m = all->first;
	/* A memfd may have grown since it was mapped: its seals only prevent shrinking. */
	while (m && (m->dev != st.st_dev || m->ino != st.st_ino || m->writable != writable ||
		     m->size < need))
		m = m->next;
	if (!m) {
		rc = map_whole(fd, &st, writable, &m);
		if (!rc) {
			m->next = all->first;
			all->first = m;
		}
	}
	if (!rc) {
		m->refs++;
		*out = m;
	}
	pthread_mutex_unlock(&all->lock);
	return rc;
}

/* Returns whether st_blocks tells a memfd's pages: gVisor reports its size instead. */
static bool blocks_are_counted(void)
{
	struct stat st;
	int fd = memfd_create("dgkit-blocks", MFD_CLOEXEC);
	bool counted = fd >= 0 && !ftruncate(fd, 1 << 16) && !fstat(fd, &st) && !st.st_blocks;
	if (fd >= 0)
		close(fd);
	return counted;
}

void dg_mapping_populate(const struct dg_mapping *m, int fd, uint64_t offset, uint64_t size,
			 uint64_t deadline_ns)
{
	/* In parts: each call holds the lock of the address space, which every mmap() waits for. */
	const uint64_t part = 16u << 20, page = (uint64_t)sysconf(_SC_PAGESIZE);
	struct stat st;
	if (fstat(fd, &st) || (uint64_t)st.st_blocks * 512 < (uint64_t)st.st_size ||
	    !blocks_are_counted())
		return;
	for (uint64_t at = offset & ~(page - 1); at < offset + size; at += part) {
		uint64_t n = offset + size - at < part ? offset + size - at : part;
		if (now_ns() >= deadline_ns || madvise(m->base + at, n, MADV_POPULATE_READ))
			return; /* an older kernel: the pages are mapped at their first use */
	}
}

void dg_mapping_drop(struct dg_mappings *all, struct dg_mapping *m)
{
	if (!m)
		return;
	pthread_mutex_lock(&all->lock);
	bool last = !--m->refs;
	struct dg_mapping **at = &all->first;
	while (last && *at != m)
		at = &(*at)->next;
	if (last)
		*at = m->next;
	pthread_mutex_unlock(&all->lock);
	if (last) {
		munmap(m->base, m->size);
		free(m);
	}
}
