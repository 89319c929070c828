// SPDX-License-Identifier: Apache-2.0
/* Messages with file descriptors over a Unix socket; checks whether a process, or its address
 * space, still exists. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "share/peer_fds.h"
#include "share/unix_socket.h"

enum { FDS = 2 };

ssize_t dg_unix_socket_send(int fd, const void *msg, size_t size, const int *fds, int n_fds)
{
	union {
		struct cmsghdr align;
		char bytes[CMSG_SPACE(sizeof(int) * FDS)];
	} control;
	struct iovec iov = {(void *)(uintptr_t)msg, size};
	struct msghdr m = {.msg_iov = &iov, .msg_iovlen = 1};
	if (n_fds) {
		memset(&control, 0, sizeof control);
		m.msg_control = control.bytes;
		m.msg_controllen = CMSG_SPACE(sizeof(int) * (size_t)n_fds);
		struct cmsghdr *c = CMSG_FIRSTHDR(&m);
		c->cmsg_level = SOL_SOCKET;
		c->cmsg_type = SCM_RIGHTS;
		c->cmsg_len = CMSG_LEN(sizeof(int) * (size_t)n_fds);
		memcpy(CMSG_DATA(c), fds, sizeof(int) * (size_t)n_fds);
	}
	ssize_t n;
	do
		n = sendmsg(fd, &m, MSG_NOSIGNAL | MSG_DONTWAIT);
	while (n < 0 && errno == EINTR);
	return n < 0 ? -errno : n;
}

ssize_t dg_unix_socket_recv(int fd, void *msg, size_t size, int *fds, int *n_fds)
{
	union peer_fds control;
	struct iovec iov = {msg, size};
	struct msghdr m = {.msg_iov = &iov,
			   .msg_iovlen = 1,
			   .msg_control = control.bytes,
			   .msg_controllen = sizeof control.bytes};
	ssize_t n;
	*n_fds = 0;
	do
		n = recvmsg(fd, &m, MSG_CMSG_CLOEXEC | MSG_DONTWAIT);
	while (n < 0 && errno == EINTR);
	if (n < 0)
		return -errno;
	*n_fds = take_peer_fds(&m, fds);
	return n;
}

int dg_pidfd_open(pid_t pid)
{
#ifndef SYS_pidfd_open
#define SYS_pidfd_open 434
#endif
	return (int)syscall(SYS_pidfd_open, pid, 0);
}

bool dg_pidfd_dead(int pidfd)
{
	struct pollfd p = {pidfd, POLLIN, 0};
	return pidfd >= 0 && poll(&p, 1, 0) == 1;
}

/* The kernel looks up the address space when the file is opened, and keeps the structure but not
 * its users (proc_mem_open() and m_start() of fs/proc/task_mmu.c). So a read returns no bytes once
 * no thread uses the address space any more, and fails with ESRCH once the process is reaped. */
int dg_address_space_open(pid_t pid)
{
	char path[32], byte;
	snprintf(path, sizeof path, "/proc/%d/maps", (int)pid);
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	/* The file of a process whose first thread has ended is empty, even if other threads still
	 * run. */
	if (fd >= 0 && pread(fd, &byte, 1, 0) != 1) {
		close(fd);
		fd = -1;
	}
	return fd;
}

bool dg_address_space_gone(int maps_fd)
{
	char byte;
	if (maps_fd < 0)
		return false;
	ssize_t n = pread(maps_fd, &byte, 1, 0);
	return n == 0 || (n < 0 && errno == ESRCH);
}
