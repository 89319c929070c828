// SPDX-License-Identifier: Apache-2.0
/*
 * Preloaded: pages of 64 KiB, as BlueField's kernel has since DOCA 3.2, on a machine with smaller
 * ones. The page size is 64 KiB; mappings begin at multiples of it; other addresses and offsets are
 * refused; and a change of a part of a page is one of all of it.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <stdint.h>
#include <sys/mman.h>
#include <unistd.h>

#define PAGE	    ((size_t)1 << 16)
#define WHOLE(size) (((size) + PAGE - 1) & ~(PAGE - 1))
#define ODD(value)  ((uintptr_t)(value) & (PAGE - 1))
#define NEXT(name)  ((__typeof__(&name))dlsym(RTLD_NEXT, #name))

long sysconf(int name)
{
	long unit = NEXT(sysconf)(_SC_PAGESIZE);

	if (name == _SC_PAGESIZE)
		return (long)PAGE;
	if (name == _SC_PHYS_PAGES || name == _SC_AVPHYS_PAGES)
		return NEXT(sysconf)(name) / ((long)PAGE / unit);
	return NEXT(sysconf)(name);
}

int getpagesize(void)
{
	return (int)PAGE;
}

static void *invalid(void)
{
	errno = EINVAL;
	return MAP_FAILED;
}

/* Reserves an address range with room to align it, and keeps the aligned part. */
static void *aligned_range(size_t size)
{
	char *at = NEXT(mmap)(NULL, size + PAGE, PROT_NONE,
			      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	char *start = (char *)WHOLE((uintptr_t)at);

	if (at == MAP_FAILED)
		return at;
	if (start > at)
		NEXT(munmap)(at, (size_t)(start - at));
	if (at + PAGE > start)
		NEXT(munmap)(start + size, (size_t)(at + PAGE - start));
	return start;
}

void *mmap(void *addr, size_t size, int prot, int flags, int fd, off_t offset)
{
	void *at = addr;

	if (!size || ODD(offset) || ((flags & (MAP_FIXED | MAP_FIXED_NOREPLACE)) && ODD(addr)))
		return invalid();
	size = WHOLE(size);
	if (!(flags & (MAP_FIXED | MAP_FIXED_NOREPLACE))) {
		at = aligned_range(size);
		if (at == MAP_FAILED)
			return at;
		flags |= MAP_FIXED;
	}
	return NEXT(mmap)(at, size, prot, flags, fd, offset);
}

void *mmap64(void *addr, size_t size, int prot, int flags, int fd, off64_t offset)
{
	return mmap(addr, size, prot, flags, fd, offset);
}

int munmap(void *addr, size_t size)
{
	return ODD(addr) ? (errno = EINVAL, -1) : NEXT(munmap)(addr, WHOLE(size));
}

int mprotect(void *addr, size_t size, int prot)
{
	return ODD(addr) ? (errno = EINVAL, -1) : NEXT(mprotect)(addr, WHOLE(size), prot);
}

int madvise(void *addr, size_t size, int advice)
{
	return ODD(addr) ? (errno = EINVAL, -1) : NEXT(madvise)(addr, WHOLE(size), advice);
}

int msync(void *addr, size_t size, int flags)
{
	return ODD(addr) ? (errno = EINVAL, -1) : NEXT(msync)(addr, WHOLE(size), flags);
}
