/* SPDX-License-Identifier: Apache-2.0 */
/* For tests that fork while other threads run. */
#ifndef SOFTDOCA_FORK_CHECK_H
#define SOFTDOCA_FORK_CHECK_H

#include <errno.h>
#include <stdbool.h>
#include <sys/uio.h>
#include <unistd.h>

/* Whether what runs this program lets a child live whose parent had other threads at work. The
 * address sanitizer's allocator may be locked in such a child, and so may qemu (known by its
 * lack of process_vm_readv); the thread sanitizer takes the threads that it does not have for
 * lost ones. */
static inline bool fork_among_threads(void)
{
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
	return false;
#else
	return process_vm_readv(getpid(), NULL, 0, NULL, 0, 0) == 0 || errno != ENOSYS;
#endif
}

#endif
