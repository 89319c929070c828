// SPDX-License-Identifier: Apache-2.0
/* Advice to the kernel on the pages of large memory. */
#include <stdint.h>
#include <sys/mman.h>
#include <unistd.h>

#include "dgkit.h"

static void advise_whole_pages(void *addr, uint64_t size, int advice)
{
	/* Use whole pages of this system only: a page has 4 KiB or, on many Arm systems, 64 KiB.
	 * The kernel knows the size of a huge page, and whether one fits. */
	uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
	uintptr_t from = ((uintptr_t)addr + page - 1) & ~(page - 1);
	uintptr_t to = ((uintptr_t)addr + size) & ~(page - 1);
	if (from < to)
		madvise((void *)from, to - from, advice);
}

void dg_memory_prefer_huge_pages(void *addr, uint64_t size)
{
	advise_whole_pages(addr, size, MADV_HUGEPAGE);
}

void dg_memory_discard(void *addr, uint64_t size)
{
	advise_whole_pages(addr, size, MADV_DONTNEED);
}
