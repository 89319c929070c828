/* SPDX-License-Identifier: Apache-2.0 */
/* For tests that fork while other threads run. */
#ifndef DG_FORK_CHECK_H
#define DG_FORK_CHECK_H

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>
#include <unistd.h>

/* Whether the environment that runs this program supports a child of a multithreaded parent. The
 * address sanitizer's allocator may be locked in such a child, and so may qemu (recognized by its
 * lack of process_vm_readv); the thread sanitizer reports the parent's threads, which the child
 * does not have, as leaked. */
static inline bool fork_among_threads(void)
{
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
	return false;
#else
	return process_vm_readv(getpid(), NULL, 0, NULL, 0, 0) == 0 || errno != ENOSYS;
#endif
}

#ifdef __SANITIZE_ADDRESS__
/* Whether the thread sleeps, according to /proc/self/task/TID/stat (proc(5)). */
static inline bool thread_sleeps(const char *tid)
{
	char path[300], text[512];
	snprintf(path, sizeof(path), "/proc/self/task/%s/stat", tid);
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return errno == ENOENT; /* it has ended */
	ssize_t n = read(fd, text, sizeof(text) - 1);
	close(fd);
	if (n <= 0)
		return n < 0 && errno == ESRCH;
	text[n] = '\0';
	const char *name_end = strrchr(text, ')');
	return name_end && name_end[1] == ' ' && name_end[2] == 'S';
}
#endif

/* Returns when no other thread of this process runs, so that a child finds no lock held. Needed
 * with the address sanitizer, which also takes its allocator's locks when a thread starts. */
static inline void others_sleep(void)
{
#ifdef __SANITIZE_ADDRESS__
	bool settled = false;
	while (!settled) {
		DIR *threads = opendir("/proc/self/task");
		if (!threads)
			return;
		settled = true;
		for (struct dirent *each; (each = readdir(threads));)
			if (each->d_name[0] != '.' && atoi(each->d_name) != getpid())
				settled = settled && thread_sleeps(each->d_name);
		closedir(threads);
		if (!settled)
			usleep(1000);
	}
#endif
}

#endif
