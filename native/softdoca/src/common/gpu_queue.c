// SPDX-License-Identifier: Apache-2.0
/* Queue pairs that kernels post to. What the NIC believes of one, its rings and their sizes, is not in
 * memory that a kernel can write. */
#include "gpu_queue.h"

#include <string.h>

#include "doca_gpunetio_verbs_dev.h"
#include "doca_rdma_bridge.h"

#define ENTRY_BYTES 64u
/* Behind the entries and the CQEs, of 64 bytes each: the record and the doorbell, in a line each. */
#define WORDS_BYTES 128u
#define CQE_INITIAL (DOCA_GPUNETIO_IB_MLX5_CQE_INVALID << 4 | DOCA_GPUNETIO_IB_MLX5_CQE_OWNER_MASK)

_Static_assert(sizeof(struct doca_gpu_dev_verbs_qp) == DG_NIC_LAYOUT_SIZE, "as the NIC lays it out");

static doca_error_t allocate(struct gpu_queue *q, struct doca_gpu *gpu, uint32_t entries)
{
	size_t bytes = (size_t)entries * 2 * ENTRY_BYTES + WORDS_BYTES;
	doca_error_t error =
		softdoca_gpu_alloc_own(gpu, bytes, ENTRY_BYTES, DOCA_GPU_MEM_TYPE_CPU_GPU, &q->rings);
	if (error)
		return error;
	memset(q->rings->addr, 0, bytes);
	for (uint32_t i = entries; i < 2 * entries; i++)
		q->rings->addr[(size_t)(i + 1) * ENTRY_BYTES - 1] = (char)CQE_INITIAL;
	return softdoca_gpu_alloc_own(gpu, sizeof(struct doca_gpu_dev_verbs_qp), ENTRY_BYTES,
				      DOCA_GPU_MEM_TYPE_GPU, &q->structure);
}

static int open_pair(struct gpu_queue *q, dg_nic *nic, uint32_t entries)
{
	char *ring = q->rings->addr, *words = ring + (size_t)entries * 2 * ENTRY_BYTES;
	const dg_nic_cq_config cq = {.ring = ring + (size_t)entries * ENTRY_BYTES,
				     .entries = entries};
	int rc = dg_nic_cq_open(nic, &cq, &q->cq);
	const dg_nic_qp_config qp = {
		.send_ring = ring,
		.send_entries = entries,
		.doorbell_mode = DG_NIC_RECORD,
		.record = (uint32_t *)words,
		.doorbell = (uint64_t *)(words + WORDS_BYTES / 2),
		.send_cq = q->cq,
		.pd = q->pd->v.handle,
		.own_rights = 1,
	};
	return rc ? rc : dg_nic_qp_open(nic, &qp, &q->qp);
}

/* Connects the queue pair to itself. */
static int connect_pair(struct gpu_queue *q, dg_nic *nic)
{
	const uint32_t access = DG_NIC_LOCAL_WRITE | DG_NIC_REMOTE_WRITE | DG_NIC_REMOTE_READ;
	dg_nic_qp_info info;
	dg_nic_address self = {.qpn = 0};
	int rc = dg_nic_qp_info_get(q->qp, &info);
	if (!rc)
		rc = dg_nic_gid_get(nic, self.gid);
	self.qpn = info.qpn;
	for (uint32_t state = DG_NIC_INIT; state <= DG_NIC_RTS && !rc; state++)
		rc = dg_nic_qp_modify(q->qp, state, state == DG_NIC_RTR ? &self : NULL, access);
	return rc;
}

static doca_error_t open_queue(struct gpu_queue *q, struct doca_gpu *gpu, uint32_t entries)
{
	struct doca_gpu_dev_verbs_qp s;
	dg_nic *nic = nic_context(q->pd->v.context)->nic;
	doca_error_t error = allocate(q, gpu, entries);
	if (error)
		return error;
	int rc = open_pair(q, nic, entries);
	if (!rc)
		rc = connect_pair(q, nic);
	if (!rc)
		rc = dg_nic_qp_lay_out(q->qp, &s);
	return rc ? softdoca_failed(__func__, rc) : softdoca_gpu_fill(q->structure, &s, sizeof s);
}

doca_error_t gpu_queue_open(struct gpu_queue *q, struct doca_gpu *gpu, struct doca_dev *dev,
			    uint32_t entries)
{
	struct ibv_pd *pd;
	*q = (struct gpu_queue){NULL};
	doca_error_t error = doca_rdma_bridge_get_dev_pd(dev, &pd);
	if (error)
		return error;
	q->pd = nic_pd(pd);
	atomic_fetch_add(&q->pd->users, 1);
	error = open_queue(q, gpu, entries);
	if (error)
		gpu_queue_close(q);
	return error;
}

static void close_pair(struct gpu_queue *q)
{
	dg_nic_qp_info info;
	if (!dg_nic_qp_info_get(q->qp, &info) && info.syndrome)
		softdoca_log(DOCA_LOG_LEVEL_WARNING, "doca_ctx_stop",
			     "an entry of a kernel failed, syndrome %#x: %s", info.syndrome,
			     info.why);
	dg_nic_qp_close(q->qp);
}

void gpu_queue_close(struct gpu_queue *q)
{
	if (q->qp)
		close_pair(q);
	if (q->cq)
		dg_nic_cq_close(q->cq);
	if (q->structure)
		softdoca_gpu_drop(q->structure);
	if (q->rings)
		softdoca_gpu_drop(q->rings);
	if (q->pd)
		atomic_fetch_sub(&q->pd->users, 1);
	*q = (struct gpu_queue){NULL};
}
