/* SPDX-License-Identifier: Apache-2.0 */
/* A socket whose last close() waits: SO_LINGER, and data that its peer does not receive. */
#ifndef DG_TESTS_LINGERING_H
#define DG_TESTS_LINGERING_H

#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include "check.h"

#define LINGER_S 20

static int lingering_socket(int *peer)
{
	const struct linger linger = { 1, LINGER_S };
	struct sockaddr_in a = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	static char bytes[1 << 16];
	socklen_t n = sizeof(a);
	int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0),
	    fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	CHECK_EQ(bind(listener, (struct sockaddr *)&a, n), 0);
	CHECK_EQ(listen(listener, 1), 0);
	CHECK_EQ(getsockname(listener, (struct sockaddr *)&a, &n), 0);
	CHECK_EQ(connect(fd, (struct sockaddr *)&a, n), 0);
	*peer = accept(listener, NULL, NULL);
	CHECK(*peer >= 0);
	close(listener);
	while (send(fd, bytes, sizeof(bytes), MSG_DONTWAIT) > 0)
		;
	CHECK_EQ(setsockopt(fd, SOL_SOCKET, SO_LINGER, &linger, sizeof(linger)), 0);
	return fd;
}

#endif
