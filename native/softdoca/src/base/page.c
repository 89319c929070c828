// SPDX-License-Identifier: Apache-2.0
/* Pages that two processes share. Neither can take the memory from under the other: a page's memfd
 * can neither shrink nor grow. */
#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include "dgkit.h"
#include "base.h"

static size_t page_size(void)
{
	return (size_t)sysconf(_SC_PAGESIZE);
}

static void *map(int fd)
{
	void *at = mmap(NULL, page_size(), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	return at == MAP_FAILED ? NULL : at;
}

void *softdoca_page_new(const char *name, int *out)
{
	const int seals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;
	off_t size = (off_t)page_size();
	void *at = NULL;
	int fd = memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING);
	if (fd >= 0 && !ftruncate(fd, size) && !fallocate(fd, 0, 0, size) &&
	    !fcntl(fd, F_ADD_SEALS, seals))
		at = map(fd);
	if (!at && fd >= 0) {
		int code = errno;
		close(fd);
		fd = -1;
		errno = code;
	}
	*out = fd;
	return at;
}

void *softdoca_page_map(int fd)
{
	return dg_memfd_check(fd, page_size()) ? NULL : map(fd);
}

void softdoca_page_free(void *page)
{
	if (page)
		munmap(page, page_size());
}
