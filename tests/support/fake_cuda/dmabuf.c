// SPDX-License-Identifier: Apache-2.0
/* A dma-buf's fd shows by its link in /proc what it is. The fake driver's dma-bufs are memfds, so a program
 * that tells dma-bufs by their links takes them for nothing, unless it runs with this library in
 * LD_PRELOAD: then their links begin as the kernel's do. */
#include "state.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

static const char link_of[] = "/dmabuf:";

/* Blocks are shared by fds that can be written and read: what can only be written is a dma-buf. */
static bool is_dma_buf(const char *path, const char *link, ssize_t length)
{
	const char of_block[] = "/memfd:" BLOCK_NAME;
	int fd, flags;

	if (length < (ssize_t)sizeof(of_block) || memcmp(link, of_block, sizeof(of_block) - 1) ||
	    sscanf(path, "/proc/self/fd/%d", &fd) != 1) /* of another process: its own affair */
		return false;
	flags = fcntl(fd, F_GETFL);
	return flags >= 0 && (flags & O_ACCMODE) == O_WRONLY;
}

EXPORT ssize_t readlink(const char *path, char *out, size_t size)
{
	ssize_t length = syscall(SYS_readlinkat, AT_FDCWD, path, out, size);

	if (!is_dma_buf(path, out, length))
		return length;
	length = size < sizeof(link_of) - 1 ? (ssize_t)size : (ssize_t)sizeof(link_of) - 1;
	memcpy(out, link_of, (size_t)length);
	return length;
}
