// SPDX-License-Identifier: Apache-2.0
/* Detects memory whose bytes a plain copy can rely on, and memory mapped from a file, whose
 * truncation would raise SIGBUS in a thread that copies it. */
#include <dirent.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "copy.h"
#include "dgkit.h"
#include "error.h"
#include "provider.h"

/* A line of /proc/self/maps (proc(5)): address range, offset in the file, device and inode of the
 * file. */
struct mapped_file {
	uintptr_t from, to;
	uint64_t offset;
	unsigned major, minor;
	unsigned long inode; /* 0: not a file */
};

static bool parse(const char *line, struct mapped_file *m)
{
	return sscanf(line, "%" SCNxPTR "-%" SCNxPTR " %*s %" SCNx64 " %x:%x %lu", &m->from, &m->to,
		      &m->offset, &m->major, &m->minor, &m->inode) == 6;
}

/* Whether fd is the mapped file, and a sealed memfd. The mapping ends at a page boundary; the file
 * may end within that page. */
static bool is_sealed(int fd, const struct mapped_file *m)
{
	struct stat st;
	if (fstat(fd, &st) || st.st_ino != m->inode || major(st.st_dev) != m->major ||
	    minor(st.st_dev) != m->minor)
		return false;
	uint64_t end = m->offset + (m->to - m->from);
	return !dg_memfd_check(fd, end - (uint64_t)sysconf(_SC_PAGESIZE) + 1);
}

/* Whether the mapped file is a memfd sealed against shrinking. Seals can only be read from an fd,
 * so this searches for an open fd of the same file. */
static bool sealed(const struct mapped_file *m)
{
	bool found = false;
	DIR *fds = opendir("/proc/self/fd");
	if (!fds)
		return false;
	for (struct dirent *e; !found && (e = readdir(fds));)
		found = e->d_name[0] != '.' && is_sealed(atoi(e->d_name), m);
	closedir(fds);
	return found;
}

int dg_memory_may_fault(const void *addr, uint64_t size)
{
	uintptr_t lo = (uintptr_t)addr, hi = lo + size;
	struct mapped_file m;
	char line[512];
	int found = 0;
	FILE *f = fopen("/proc/self/maps", "re");
	if (!f)
		return dg_fail_errno("cannot read /proc/self/maps");
	while (!found && fgets(line, sizeof line, f))
		found = parse(line, &m) && m.from < hi && lo < m.to && m.inode && !sealed(&m);
	fclose(f);
	return found;
}

/* Whether the mapping is memory from dgkit.empty(): a sealed memfd of that name. */
static bool is_own(const char *line, const struct mapped_file *m)
{
	return strstr(line, " /memfd:dgkit (deleted)") && sealed(m);
}

bool dg_memory_is_own(const void *addr, uint64_t size)
{
	uintptr_t at = (uintptr_t)addr, end = at + size;
	struct mapped_file m;
	char line[512];
	FILE *f = fopen("/proc/self/maps", "re");
	if (!f)
		return false;
	/* Lines are in ascending order of addresses. */
	while (at < end && fgets(line, sizeof line, f)) {
		if (!parse(line, &m) || m.to <= at)
			continue;
		if (m.from > at || !is_own(line, &m))
			break;
		at = m.to;
	}
	fclose(f);
	return at >= end;
}
