// SPDX-License-Identifier: Apache-2.0
/* Checks that a memfd of another process can be mapped without the risk of SIGBUS. */
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
		return dg_fail(EMEDIUMTYPE,
			       "fd %d is not a memfd that can be sealed, so a process that maps it "
			       "could be killed by SIGBUS: use memory from dgkit.empty()",
			       fd);
	if (!(seals & F_SEAL_SHRINK))
		return dg_fail(EMEDIUMTYPE,
			       "the memfd is not sealed against shrinking (F_SEAL_SHRINK), so a "
			       "process that maps it could be killed by SIGBUS: add the seal, or "
			       "use memory from dgkit.empty()");
	if (fstat(fd, &st) || fstatfs(fd, &fs))
		return dg_fail_errno("cannot query the memfd");
	if (fs.f_type == HUGETLBFS_MAGIC)
		return dg_fail(EMEDIUMTYPE,
			       "the memfd uses huge pages (hugetlbfs), so a punched hole would "
			       "kill a process that maps it: use memory from dgkit.empty()");
	if ((uint64_t)st.st_size < size)
		return dg_fail(EMEDIUMTYPE, "the memfd has %lld bytes, but %llu are needed",
			       (long long)st.st_size, (unsigned long long)size);
	return 0;
}
