// SPDX-License-Identifier: Apache-2.0
/* Opening and closing a NIC; the pass over its queue pairs. See nic.h. */
#include "nic.h"

#include <stdlib.h>
#include <unistd.h>

#include "control_path.h"
#include "memory_fault.h"
#include "providers/cuda_pointer.h"
#include "providers/provider_table.h"

int dg_nic_check_process(const struct dg_nic *n)
{
	if (n->fork_generation == atomic_load(&dg_fork_generation))
		return 0;
	return dg_fail(EOWNERDEAD, "this NIC was opened before fork(): open one in the child");
}

/* Ends queue pairs whose peer's process has ended. */
static bool lose_peer(struct dg_nic_qp *qp)
{
	if (!qp->peer || qp->c.transport == DG_NIC_UC || qp->state < DG_NIC_RTR || qp->state == DG_NIC_ERROR ||
	    !atomic_load_explicit(&qp->peer->entry->lost, memory_order_relaxed))
		return false;
	/* An entry that is waiting gets the error CQE: see dg_nic_peer_ready(). */
	const struct nic_fault f = {SYNDROME_RETRIES, "process of the peer, ended", qp->address.qpn, 0};
	if (!qp_flies(qp) && !dg_nic_sends(qp))
		dg_nic_qp_fail(qp, &f, qp->taken);
	return true;
}

static bool poll_once(void *arg)
{
	struct dg_nic *n = arg;
	bool busy = false;
	if (__builtin_expect(n->gpu && !n->is_in_context, 0) && pthread_equal(pthread_self(), n->poller.thread)) {
		dg_cuda_stay(n->gpu->dev);
		n->is_in_context = true;
	}
	for (struct dg_nic_qp *qp = n->qps; qp; qp = qp->next) {
		busy |= dg_nic_serve(qp);
		if (__builtin_expect(qp->peer != NULL, 0))
			busy |= lose_peer(qp);
	}
	if (__builtin_expect(n->n_datagram_qps, 0))
		busy |= dg_nic_datagrams(n);
	if (__builtin_expect(n->n_armable, 0))
		busy |= dg_nic_cq_events(n);
	return busy;
}

/* Also after an opening that failed. */
static void release(struct dg_nic *n)
{
	dg_nic_keys_close(n);
	dg_nic_gpu_close(n);
	dg_exec_staging_close(&n->engine);
	dg_nic_table_close(n);
	sem_destroy(&n->resolve);
	free(n);
}

static int open_nic(dg_device *dev, uint64_t spin_ns, bool is_part, dg_nic **out)
{
	*out = NULL;
	TRY(dg_device_enter(dev));
	life_leave(&dev->life);
	if (dev->ops != &dg_soft_ops && dev->ops != &dg_fault_ops && !dev->gpu)
		return dg_fail(EOPNOTSUPP,
			       "a software NIC moves bytes by the provider soft or cuda, not %s",
			       dev->caps.provider);
	struct dg_nic *n = calloc(1, sizeof *n);
	if (!n)
		return dg_fail(ENOMEM, "out of memory for a NIC");
	n->engine.dev = dev;
	n->table_fd = -1;
	n->is_part = is_part;
	n->fork_generation = dev->fork_generation;
	sem_init(&n->resolve, 0, 0);
	pthread_mutex_init(&n->gpu_opening, NULL);
	dg_memory_fault_open();
	int rc = dg_nic_table_open(n);
	if (!rc)
		rc = dg_exec_staging_open(&n->engine);
	if (!rc)
		rc = dg_poller_start(&n->poller, "dgkit-nic", spin_ns, poll_once, n);
	if (rc)
		release(n);
	else
		*out = n;
	return rc;
}

int dg_nic_open(dg_device *dev, uint64_t spin_ns, dg_nic **out)
{
	return open_nic(dev, spin_ns, false, out);
}

int dg_nic_open_part(dg_device *dev, uint64_t spin_ns, dg_nic **out)
{
	return open_nic(dev, spin_ns, true, out);
}

void dg_nic_observe(struct dg_nic *n, const struct nic_observer *o)
{
	dg_poller_lock(&n->poller);
	n->observer = o;
	dg_poller_unlock(&n->poller);
}

int dg_nic_progress(dg_nic *n)
{
	const int rc = dg_nic_check_process(n);
	/* CUDA's contexts belong to threads, and making one current may wait for a kernel that waits for the NIC. */
	if (!rc && !n->gpu)
		dg_poller_pass(&n->poller);
	return rc;
}

int dg_nic_close(dg_nic *n)
{
	if (dg_nic_check_process(n))
		return 0;
	dg_poller_lock(&n->poller);
	const uint32_t qps = n->n_qps;
	const bool used = qps || n->cqs;
	if (!used)
		dg_poller_stop(&n->poller);
	dg_poller_unlock(&n->poller);
	if (used)
		return dg_fail(EBUSY, "the NIC has open CQs, and %u open queue pairs: close them first",
			       qps);
	dg_poller_join(&n->poller);
	dg_nic_resolver_stop(n);
	dg_nic_parts_close(n);
	pthread_mutex_destroy(&n->poller.lock);
	release(n);
	return 0;
}

int dg_nic_gid_get(dg_nic *n, uint8_t *gid)
{
	memcpy(gid, n->table->gid, 16);
	return 0;
}

int dg_nic_stats_get(dg_nic *n, dg_nic_stats *out)
{
	const int rc = dg_nic_check_process(n);
	if (rc)
		return rc;
	dg_poller_lock(&n->poller);
	*out = (dg_nic_stats){
		.passes = n->poller.stats.passes,
		.idle = n->poller.stats.idle,
		.sleeps = n->poller.stats.sleeps,
		.entries = n->entries,
		.bytes = n->moved,
		.cqes = n->cqes,
		.errors = n->errors,
		.queue_pairs = n->n_qps,
		.keys = n->n_keys,
	};
	dg_poller_unlock(&n->poller);
	return 0;
}
