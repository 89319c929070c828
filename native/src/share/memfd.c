// SPDX-License-Identifier: Apache-2.0
/* Whether a memfd may be mapped without fear of who made it. */
#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <sys/stat.h>
#include <sys/vfs.h>

#include "dgkit.h"
#include "error.h"

int dg_memfd_check(int fd, uint64_t size)
{
	struct stat st;
	struct statfs fs;
	int seals = fcntl(fd, F_GET_SEALS);
	if (seals < 0)
		return dg_fail(
			EMEDIUMTYPE,
			"fd %d is no memfd that can be sealed: whoever maps it could be killed by "
			"SIGBUS; use dgkit.empty()",
			fd);
	if (!(seals & F_SEAL_SHRINK))
		return dg_fail(EMEDIUMTYPE, "the memfd is not sealed against shrinking "
					    "(F_SEAL_SHRINK): whoever maps it "
					    "could be killed by SIGBUS");
	if (fstat(fd, &st) || fstatfs(fd, &fs))
		return dg_fail_errno("the memfd");
	if (fs.f_type == HUGETLBFS_MAGIC)
		return dg_fail(EMEDIUMTYPE,
			       "a hugetlb memfd: a punched hole in it kills whoever maps it");
	if ((uint64_t)st.st_size < size)
		return dg_fail(
			EMEDIUMTYPE,
			"the memfd has %lld bytes, shorter than the %llu that it should have",
			(long long)st.st_size, (unsigned long long)size);
	return 0;
}
