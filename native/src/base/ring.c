// SPDX-License-Identifier: Apache-2.0
#include "ring.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "dgkit.h"
#include "error.h"

atomic_bool dg_asymmetric;

#if defined(__x86_64__) && defined(SYS_membarrier)
enum { PRIVATE_EXPEDITED = 1 << 3, REGISTER_PRIVATE_EXPEDITED = 1 << 4 }; /* <linux/membarrier.h> */

static void detect(void)
{
	dg_asymmetric = !syscall(SYS_membarrier, REGISTER_PRIVATE_EXPEDITED, 0, 0);
}

void dg_asymmetric_init(void)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;
	pthread_once(&once, detect);
}

void dg_sleeper_barrier(void)
{
	if (!atomic_load(&dg_asymmetric) || !syscall(SYS_membarrier, PRIVATE_EXPEDITED, 0, 0))
		return;
	/* A seccomp filter installed in the meantime forbids the system call. From now on producers
	 * use seq_cst stores. A producer that is past its check makes its release store visible
	 * long before this sleep ends. */
	atomic_store(&dg_asymmetric, false);
	usleep(1000);
}
#else
void dg_asymmetric_init(void)
{
}

void dg_sleeper_barrier(void)
{
}
#endif

int dg_pipe_open(struct dg_pipe *p, uint32_t depth)
{
	uint32_t cap = 2;
	while (cap < depth)
		cap *= 2;
	dg_asymmetric_init();
	memset(p, 0, sizeof *p);
	p->mask = cap - 1;
	p->sq = aligned_alloc(64, sizeof *p->sq * cap);
	p->cq = aligned_alloc(64, sizeof *p->cq * (cap < 4 ? 4 : cap));
	p->event_fd = p->wait_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (p->event_fd < 0 || !p->sq || !p->cq) {
		int rc = p->event_fd < 0
				 ? dg_fail_errno("cannot create a queue's event fd")
				 : dg_fail(ENOMEM, "out of memory for rings of %u entries", cap);
		dg_pipe_close(p);
		return rc;
	}
	memset(p->sq, 0, sizeof *p->sq * cap);
	memset(p->cq, 0, sizeof *p->cq * cap);
	return 0;
}

void dg_pipe_close(struct dg_pipe *p)
{
	if (p->event_fd >= 0)
		close(p->event_fd);
	p->event_fd = p->wait_fd = -1;
	free(p->sq);
	free(p->cq);
	p->sq = NULL;
	p->cq = NULL;
}

void dg_pipe_wake(struct dg_pipe *p)
{
	if (!atomic_load_explicit(&p->cq_armed, memory_order_seq_cst))
		return;
	/* One wake-up per arming: only the thread that clears the flag writes the fd. */
	if (atomic_exchange_explicit(&p->cq_armed, 0, memory_order_acq_rel))
		eventfd_write(p->event_fd, 1);
}

int dg_pipe_arm(struct dg_pipe *p)
{
	eventfd_t n;
	if (cq_peek(p))
		return 0;
	/* Clear the fd first: a wake-up written after this belongs to a later completion. */
	eventfd_read(p->event_fd, &n);
	atomic_store_explicit(&p->cq_armed, 1, memory_order_seq_cst);
	dg_sleeper_barrier();
	if (!cq_peek(p))
		return 1;
	atomic_store_explicit(&p->cq_armed, 0, memory_order_relaxed);
	return 0;
}
