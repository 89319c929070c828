// SPDX-License-Identifier: Apache-2.0
/*
 * Registered memory. Peers reach private memory by its process's share server only, which takes two
 * hand-overs between threads for each operation. Pages that they can map take none, so private pages are
 * replaced by pages of a memfd with the same bytes, in place, where nobody can notice: the region
 * consists of whole pages, and the program has no other thread that could write to them meanwhile.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "mlx5.h"

/* users: regions; without one the pages wait to become private again. */
struct pages {
	struct pages *next;
	uint64_t start, size, inode;
	int fd;
	uint32_t users;
};

static struct pages *all_pages;

bool dg_mlx5_is_single_threaded(void)
{
	char path[300], name[32];
	int others = 0;
	DIR *tasks = opendir("/proc/self/task");
	if (!tasks)
		return false;
	for (struct dirent *e; (e = readdir(tasks));) {
		if (e->d_name[0] == '.')
			continue;
		snprintf(path, sizeof path, "/proc/self/task/%s/comm", e->d_name);
		FILE *f = fopen(path, "re");
		others += !f || !fgets(name, sizeof name, f) || strncmp(name, "dgkit-", 6);
		if (f)
			fclose(f);
	}
	closedir(tasks);
	return others == 1;
}

/* Reads /proc/self/maps. Returns whether the program can access all of the bytes; *is_private: whether
 * they are private anonymous memory, outside the stack. */
static bool is_accessible(uint64_t start, uint64_t end, bool writes, bool *is_private)
{
	char line[512], rights[8];
	uint64_t from, to, inode;
	FILE *f = fopen("/proc/self/maps", "re");
	*is_private = true;
	while (f && start < end && fgets(line, sizeof line, f)) {
		if (sscanf(line, "%" SCNx64 "-%" SCNx64 " %7s %*x %*s %" SCNu64, &from, &to, rights,
			   &inode) != 4 ||
		    to <= start)
			continue;
		if (from > start || rights[0] != 'r' || (writes && rights[1] != 'w'))
			break;
		if (inode || strcmp(rights, "rw-p") || strstr(line, "[stack"))
			*is_private = false;
		start = to;
	}
	if (f)
		fclose(f);
	return start >= end;
}

bool dg_mlx5_is_accessible(uint64_t start, uint64_t length, bool writes)
{
	bool is_private;
	return start + length >= start && is_accessible(start, start + length, writes, &is_private);
}

bool dg_mlx5_is_writable(uint64_t start, uint64_t length)
{
	return dg_mlx5_is_accessible(start, length, true);
}

/* Stores the first piece of the range in which these pages are still mapped: the program may have unmapped
 * some, and mapped others there. Returns whether there is one. */
static bool find_piece(const struct pages *p, uint64_t start, uint64_t end, uint64_t *from, uint64_t *to)
{
	char line[512], rights[8];
	uint64_t inode;
	bool found = false;
	FILE *f = fopen("/proc/self/maps", "re");
	while (f && !found && fgets(line, sizeof line, f)) {
		if (sscanf(line, "%" SCNx64 "-%" SCNx64 " %7s %*x %*s %" SCNu64, from, to, rights, &inode) != 4)
			continue;
		*from = *from > start ? *from : start;
		*to = *to < end ? *to : end;
		found = *from < *to && inode == p->inode && rights[0] == 'r' && strstr(line, "/memfd:dgkit-mlx5");
	}
	if (f)
		fclose(f);
	return found;
}

/* Puts pages with these bytes in the place of those that are there. */
static bool replace(uint64_t start, uint64_t size, void *bytes)
{
	void *at = (void *)(uintptr_t)start;
	if (bytes == MAP_FAILED)
		return false;
	memcpy(bytes, at, size);
	if (mremap(bytes, size, size, MREMAP_MAYMOVE | MREMAP_FIXED, at) != MAP_FAILED)
		return true;
	munmap(bytes, size);
	return false;
}

static bool make_private(uint64_t start, uint64_t size)
{
	return replace(start, size,
		       mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
}

/* Makes pages private that no region needs any more, where no thread can notice, and forgets those that are
 * mapped nowhere. */
static void retire(void)
{
	const bool may = dg_mlx5_is_single_threaded();
	for (struct pages **at = &all_pages, *p; (p = *at);) {
		const uint64_t end = p->start + p->size;
		uint64_t from, to;
		bool is_mapped = p->users || find_piece(p, p->start, end, &from, &to);
		while (!p->users && is_mapped && may && dg_mlx5_is_alone(p->start, p->size) &&
		       make_private(from, to - from))
			is_mapped = find_piece(p, p->start, end, &from, &to);
		if (is_mapped) {
			at = &p->next;
			continue;
		}
		*at = p->next;
		dg_mlx5_close(p->fd);
		free(p);
	}
}

static bool make_shared(struct pages *p)
{
	struct stat s;
	p->fd = memfd_create("dgkit-mlx5", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	/* posix_fallocate(): where memory runs out, this fails, and not an access. */
	if (p->fd >= 0 && !fstat(p->fd, &s) && !posix_fallocate(p->fd, 0, (off_t)p->size) &&
	    !fcntl(p->fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) &&
	    replace(p->start, p->size,
		    mmap(NULL, p->size, PROT_READ | PROT_WRITE, MAP_SHARED, p->fd, 0))) {
		p->inode = s.st_ino;
		return true;
	}
	if (p->fd >= 0)
		dg_mlx5_close(p->fd);
	return false;
}

static struct pages *create_pages(uint64_t start, uint64_t size)
{
	struct pages *p = calloc(1, sizeof *p);
	if (!p)
		return NULL;
	*p = (struct pages){.next = all_pages, .start = start, .size = size};
	if (!make_shared(p)) {
		free(p);
		return NULL;
	}
	all_pages = p;
	return p;
}

int dg_mlx5_memory(uint64_t start, uint64_t length, bool writes, bool may_share, dg_memory *out,
		   struct pages **pages)
{
	const uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE);
	uint64_t from, to;
	bool is_private;
	retire();
	*pages = NULL;
	*out = (dg_memory){.addr = (void *)(uintptr_t)start, .size = length, .fd = -1};
	if (start + length < start || !is_accessible(start, start + length, writes, &is_private))
		return -EFAULT;
	struct pages *p = all_pages;
	while (p && (start < p->start || start + length > p->start + p->size))
		p = p->next;
	if (p && !(find_piece(p, start, start + length, &from, &to) && from == start && to == start + length))
		p = NULL; /* the program has mapped others there */
	else if (!p && may_share && is_private && !((start | length) % page) &&
		 dg_mlx5_is_single_threaded())
		p = create_pages(start, length);
	if (p) {
		p->users++;
		out->fd = p->fd;
		out->fd_offset = start - p->start;
	} else if (dg_memory_may_fault(out->addr, length)) {
		out->flags = DG_MEMORY_MAY_FAULT;
	}
	*pages = p;
	return 0;
}

void dg_mlx5_pages_put(struct pages *p)
{
	if (p && !--p->users)
		retire();
}

bool dg_mlx5_has_pages(void)
{
	return all_pages;
}

void dg_mlx5_pages_forked(void)
{
	uint64_t from, to;
	for (struct pages *p; (p = all_pages);) {
		while (find_piece(p, p->start, p->start + p->size, &from, &to))
			if (!make_private(from, to - from)) /* better no memory than the parent's */
				munmap((void *)(uintptr_t)from, to - from);
		all_pages = p->next;
		dg_mlx5_close(p->fd);
		free(p);
	}
}
