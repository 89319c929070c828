/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The second process of a test, and messages between the two over a socket. start() forks before
 * either process has used the tested library, so neither has threads yet. Include check.h first.
 */
#ifndef DGKIT_OTHER_PROCESS_H
#define DGKIT_OTHER_PROCESS_H

#include <signal.h>
#include <stdbool.h>
#include <sys/prctl.h>
#include <sys/socket.h>

struct other {
	pid_t pid;
	int fd;
};

/* Runs side(fd) in a child process, which dies with this one. */
UNUSED static struct other start(void (*side)(int fd))
{
	struct other o;
	int fds[2];

	CHECK_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds), 0);
	fflush(NULL);
	o.pid = fork();
	CHECK(o.pid >= 0);
	if (o.pid == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		close(fds[0]);
		alarm(CHECK_SECONDS);
		side(fds[1]);
		exit(0);
	}
	close(fds[1]);
	o.fd = fds[0];
	return o;
}

UNUSED static void say(int fd, const void *what, size_t n)
{
	CHECK_EQ(send(fd, what, n, MSG_NOSIGNAL), (ssize_t)n);
}

/* Reads n bytes. Returns false at end-of-file. */
UNUSED static bool hears(int fd, void *what, size_t n)
{
	for (size_t got = 0; got < n;) {
		ssize_t rc = read(fd, (char *)what + got, n - got);

		if (rc <= 0)
			return false;
		got += (size_t)rc;
	}
	return true;
}

UNUSED static void hear(int fd, void *what, size_t n)
{
	CHECK(hears(fd, what, n));
}

UNUSED static void kill_and_reap(struct other o)
{
	CHECK_EQ(kill(o.pid, SIGKILL), 0);
	CHECK_EQ(waitpid(o.pid, NULL, 0), o.pid);
	close(o.fd);
}

#endif
