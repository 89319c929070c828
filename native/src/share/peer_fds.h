/* SPDX-License-Identifier: Apache-2.0 */
/*
 * File descriptors that another process sends over a Unix socket (SCM_RIGHTS). Their open file
 * descriptions are shared with that process, which changes flags such as O_NONBLOCK at any time.
 */
#ifndef DG_SHARE_PEER_FDS_H
#define DG_SHARE_PEER_FDS_H

#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define PEER_FDS_MAX 253 /* the kernel's SCM_MAX_FD */

/* Has space for as many fds as can be sent. The kernel closes those that exceed the buffer, which
 * may block, see close_peer_fd(); an emulator (QEMU), which passes a larger buffer to the kernel,
 * would leave them open. */
union peer_fds {
	struct cmsghdr align;
	char bytes[CMSG_SPACE(PEER_FDS_MAX * sizeof(int))];
};

/* Closes an fd of another process without waiting for the data that a socket has not sent: with
 * SO_LINGER, the last close() waits for as long as that process has set, O_NONBLOCK or not. */
static inline void close_peer_fd(int fd)
{
	const struct linger off = {0};
	setsockopt(fd, SOL_SOCKET, SO_LINGER, &off, sizeof off);
	close(fd);
}

/* Keeps the first two fds, or -1, and closes the others. Returns how many are kept. */
static inline int take_peer_fds(struct msghdr *m, int fds[2])
{
	int taken = 0;
	fds[0] = fds[1] = -1;
	for (struct cmsghdr *c = CMSG_FIRSTHDR(m); c; c = CMSG_NXTHDR(m, c)) {
		if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS)
			continue;
		size_t n = (c->cmsg_len - CMSG_LEN(0)) / sizeof(int);
		for (size_t i = 0; i < n; i++) {
			int fd;
			memcpy(&fd, CMSG_DATA(c) + i * sizeof fd, sizeof fd);
			if (taken < 2)
				fds[taken++] = fd;
			else
				close_peer_fd(fd);
		}
	}
	return taken;
}

#endif
