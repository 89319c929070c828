// SPDX-License-Identifier: Apache-2.0
/*
 * GPU memory for a NIC of the provider soft: an engine of the provider cuda beside the NIC's own, once the first
 * key has such memory. Each queue pair has an executor of both, and only one of them has operations in flight, so
 * that entries complete in order.
 */
#include "nic.h"

#include <stdlib.h>

#include "providers/cuda_pointer.h"

static int open_engine(struct dg_nic *n, uint32_t gpu, struct exec_engine *e)
{
	dg_device_config config = {.gpu = gpu};
	int rc = dg_device_open("cuda", &config, &e->dev);
	if (rc)
		return rc;
	e->soft = n->engine.dev; /* of the other regions */
	rc = dg_cuda_ring_open(e->dev);
	if (!rc)
		rc = dg_exec_staging_open(e);
	return rc ? rc : dg_nic_resolver_start(n);
}

static void close_engine(struct exec_engine *e)
{
	dg_exec_staging_close(e);
	if (e->dev)
		dg_device_close(e->dev, UINT64_MAX);
	free(e);
}

int dg_nic_gpu_open(struct dg_nic *n, uint32_t gpu)
{
	int rc = 0;
	pthread_mutex_lock(&n->gpu_opening);
	struct exec_engine *e = n->gpu ? NULL : calloc(1, sizeof *e);
	if (n->gpu && n->gpu_ordinal != gpu)
		rc = dg_fail(EOPNOTSUPP, "this process uses memory of GPU %u with the adapter, and of no other GPU",
			     n->gpu_ordinal);
	else if (!n->gpu)
		rc = e ? open_engine(n, gpu, e) : dg_fail(ENOMEM, "out of memory for a GPU");
	if (rc && e)
		close_engine(e);
	if (!rc && e) {
		dg_poller_lock(&n->poller);
		n->gpu_ordinal = gpu;
		n->gpu = e;
		dg_poller_unlock(&n->poller);
		sem_post(&n->resolve); /* opens the queues: before a kernel runs that waits for the NIC */
	}
	pthread_mutex_unlock(&n->gpu_opening);
	return rc;
}

int dg_nic_gpu_device(struct dg_nic *n, const uint8_t uuid[16], dg_device **out)
{
	const int gpu = dg_cuda_ordinal(uuid);
	const int rc = gpu < 0 ? gpu : dg_nic_gpu_open(n, (uint32_t)gpu);
	if (!rc)
		*out = n->gpu->dev;
	return rc;
}

void dg_nic_gpu_close(struct dg_nic *n)
{
	if (n->gpu)
		close_engine(n->gpu);
	pthread_mutex_destroy(&n->gpu_opening);
}

static struct dg_nic_qp *find_work(struct dg_nic *n)
{
	struct dg_nic_qp *qp = n->gpu ? n->qps : NULL;
	while (qp && qp->gpu.engine)
		qp = qp->next;
	return qp;
}

void dg_nic_gpu_queues(struct dg_nic *n)
{
	if (n->gpu)
		dg_cuda_stay(n->gpu->dev); /* before it imports keys: see dg_nic_progress() */
	for (;;) {
		struct executor x = {.flights = NULL};
		dg_poller_lock(&n->poller);
		const bool is_needed = find_work(n);
		dg_poller_unlock(&n->poller);
		if (!is_needed)
			return;
		x.engine = n->gpu;
		x.inline_able = true;
		if (!dg_queue_open_for_kernels(n->gpu->soft, EXEC_DEPTH, n, &x.soft_q) &&
		    dg_queue_open_for_kernels(n->gpu->dev, EXEC_DEPTH, n, &x.q)) {
			dg_queue_free(x.soft_q);
			x.soft_q = NULL;
		}
		dg_poller_lock(&n->poller);
		struct dg_nic_qp *qp = find_work(n); /* the same, unless it was closed */
		if (qp) {
			qp->gpu = x;
			qp->gpu.flights = qp->flights;
		}
		dg_poller_unlock(&n->poller);
		if (!qp && x.q)
			dg_nic_gpu_free(&x);
	}
}

void dg_nic_gpu_free(struct executor *x)
{
	if (!x->q)
		return;
	if (x->soft_q)
		dg_queue_free(x->soft_q);
	dg_queue_free(x->q);
}

int dg_nic_gpu_fetch(struct dg_nic_qp *qp, uint64_t end)
{
	const uint32_t mask = qp->c.send_entries - 1;
	while (qp->fetched < end) {
		const uint64_t place = qp->fetched & mask, left = end - qp->fetched, to_wrap = mask + 1 - place;
		const uint64_t n = left < to_wrap ? left : to_wrap, at = place * WQE_BLOCK;
		TRY(dg_cuda_ring_copy(qp->nic->gpu->dev, (uint8_t *)qp->c.send_ring + at, qp->c.gpu_ring + at,
				      n * WQE_BLOCK, false));
		qp->fetched += n;
	}
	return 0;
}

void dg_nic_gpu_cqe(struct dg_nic_cq *cq, const uint8_t *at)
{
	enum { OWNER = 8 }; /* the last bytes, with the owner's bit: for a kernel that polls they come after the others */
	dg_device *dev = cq->nic->gpu->dev;
	const uint64_t to = cq->gpu_ring + (uint64_t)(at - cq->ring);
	uint8_t *from = (uint8_t *)(uintptr_t)at;
	/* Where the GPU's memory is gone, so is whoever waits for the CQE. */
	dg_cuda_ring_copy(dev, from, to, WQE_BLOCK - OWNER, true);
	dg_cuda_ring_copy(dev, from + WQE_BLOCK - OWNER, to + WQE_BLOCK - OWNER, OWNER, true);
}

int dg_nic_executor(struct dg_nic_qp *qp, const struct exec_piece *pieces, uint32_t count)
{
	struct executor *x = &qp->x;
	for (uint32_t i = 0; i < count && qp->nic->gpu; i++)
		if (nic_is_on_gpu(qp->nic, pieces[i].remote) || nic_is_on_gpu(qp->nic, pieces[i].local))
			x = &qp->gpu;
	if (qp->active == x)
		return EXECUTED;
	if (qp_flies(qp))
		return nic_wait(qp, DG_NIC_WAITS_BYTES);
	if (!x->engine)
		return nic_wait(qp, DG_NIC_WAITS_KEY);
	if (!x->q)
		return nic_fault(qp->nic, SYNDROME_LOCAL_QP, "GPU of the entry's memory, which has no queue for number",
				 qp->qpn, 0);
	qp->active = x;
	return EXECUTED;
}
