/* SPDX-License-Identifier: Apache-2.0 */
/*
 * TCP between tests on two machines.
 */
#ifndef DGKIT_OTHER_MACHINE_H
#define DGKIT_OTHER_MACHINE_H

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include "check.h"

#define CONNECT_S 240 /* the other machine may still be starting, or at other tests */

static int accepted(uint16_t port)
{
	struct sockaddr_in a = { .sin_family = AF_INET, .sin_port = htons(port) };
	int one = 1, fd, listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	CHECK(listener >= 0);
	CHECK_EQ(setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one)), 0);
	CHECK_EQ(bind(listener, (struct sockaddr *)&a, sizeof(a)), 0);
	CHECK_EQ(listen(listener, 1), 0);
	fd = accept(listener, NULL, NULL);
	CHECK(fd >= 0);
	close(listener);
	return fd;
}

static int connected(const char *address, uint16_t port)
{
	struct sockaddr_in a = { .sin_family = AF_INET, .sin_port = htons(port) };

	CHECK_EQ(inet_pton(AF_INET, address, &a.sin_addr), 1);
	for (int tries = 0; tries < CONNECT_S * 5; tries++) {
		int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

		CHECK(fd >= 0);
		if (!connect(fd, (struct sockaddr *)&a, sizeof(a)))
			return fd;
		close(fd);
		usleep(200000);
	}
	check_failed(__FILE__, __LINE__, "%s does not answer", address);
}

#endif
