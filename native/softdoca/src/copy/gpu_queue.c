// SPDX-License-Identifier: Apache-2.0
/* Queue pairs that kernels post to. What the NIC believes of one, its rings and their sizes, is not in
 * memory that a kernel can write. */
#include "gpu_queue.h"

#include <string.h>

#include "doca_gpunetio_verbs_dev.h"
#include "doca_rdma_bridge.h"

#define ENTRY_BYTES   64u /* also of a CQE */
#define RECEIVE_BYTES 16u
/* The records and the doorbell, in a line each. */
#define WORDS_BYTES 128u
#define CQE_INITIAL (DOCA_GPUNETIO_IB_MLX5_CQE_INVALID << 4 | DOCA_GPUNETIO_IB_MLX5_CQE_OWNER_MASK)

_Static_assert(sizeof(struct doca_gpu_dev_verbs_qp) == DG_NIC_LAYOUT_SIZE, "as the NIC lays it out");

struct sizes {
	uint32_t sends, receives;
	const struct gpu_queue *shared; /* whose receives it uses; NULL: its own */
};

/* The CQEs of both are behind the entries, then the receives, then the words. */
static size_t words_at(const struct sizes *n)
{
	return (2 * (size_t)n->sends + n->receives) * ENTRY_BYTES +
	       ((size_t)n->receives * RECEIVE_BYTES + ENTRY_BYTES - 1) / ENTRY_BYTES * ENTRY_BYTES;
}

static doca_error_t allocate_rings(struct gpu_queue *q, struct doca_gpu *gpu, const struct sizes *n)
{
	const size_t bytes = words_at(n) + WORDS_BYTES;
	TRY(softdoca_gpu_alloc_own(gpu, bytes, ENTRY_BYTES, DOCA_GPU_MEM_TYPE_CPU_GPU, &q->rings));
	memset(q->rings->addr, 0, bytes);
	for (uint32_t i = n->sends; i < 2 * n->sends + n->receives; i++)
		q->rings->addr[(size_t)(i + 1) * ENTRY_BYTES - 1] = (char)CQE_INITIAL;
	return softdoca_gpu_alloc_own(gpu, sizeof(struct doca_gpu_dev_verbs_qp), ENTRY_BYTES,
				      DOCA_GPU_MEM_TYPE_GPU, &q->structure);
}

static int open_cqs(struct gpu_queue *q, dg_nic *nic, const struct sizes *n)
{
	char *ring = q->rings->addr + (size_t)n->sends * ENTRY_BYTES;
	const dg_nic_cq_config sends = {.ring = ring, .entries = n->sends};
	const dg_nic_cq_config receives = {.ring = ring + (size_t)n->sends * ENTRY_BYTES,
					   .entries = n->receives};
	int rc = dg_nic_cq_open(nic, &sends, &q->cq);
	return rc || !n->receives ? rc : dg_nic_cq_open(nic, &receives, &q->receive_cq);
}

static int open_pair(struct gpu_queue *q, dg_nic *nic, const struct sizes *n, bool own_rights)
{
	char *ring = q->rings->addr, *words = ring + words_at(n);
	const dg_nic_qp_config qp = {
		.send_ring = ring,
		.send_entries = n->sends,
		.receive_ring = n->receives ? ring + (2 * (size_t)n->sends + n->receives) * ENTRY_BYTES : NULL,
		.receive_entries = n->receives,
		.receive_sges = n->receives ? 1 : 0,
		.doorbell_mode = DG_NIC_RECORD,
		.record = (uint32_t *)words,
		.doorbell = (uint64_t *)(words + WORDS_BYTES / 2),
		.send_cq = q->cq,
		.receive_cq = q->receive_cq,
		.pd = q->pd->v.handle,
		.own_rights = own_rights,
		.receives_of = n->shared ? n->shared->qp : NULL,
	};
	return dg_nic_qp_open(nic, &qp, &q->qp);
}

static doca_error_t open_queue(struct gpu_queue *q, struct doca_gpu *gpu, const struct sizes *n,
			       uint32_t rights, bool own_rights)
{
	struct doca_gpu_dev_verbs_qp s;
	dg_nic *nic = nic_context(q->pd->v.context)->nic;
	TRY(allocate_rings(q, gpu, n));
	int rc = open_cqs(q, nic, n);
	if (!rc)
		rc = open_pair(q, nic, n, own_rights);
	if (!rc)
		rc = dg_nic_qp_modify(q->qp, DG_NIC_INIT, NULL, rights);
	if (!rc)
		rc = dg_nic_qp_lay_out(q->qp, &s);
	return rc ? softdoca_failed(__func__, rc) : softdoca_gpu_fill(q->structure, &s, sizeof s);
}

static doca_error_t open_in_domain(struct gpu_queue *q, struct doca_gpu *gpu, struct doca_dev *dev,
				   const struct sizes *n, uint32_t rights, bool own_rights)
{
	struct ibv_pd *pd;
	*q = (struct gpu_queue){NULL};
	TRY(doca_rdma_bridge_get_dev_pd(dev, &pd));
	q->pd = nic_pd(pd);
	atomic_fetch_add(&q->pd->users, 1);
	doca_error_t error = open_queue(q, gpu, n, rights, own_rights);
	if (error)
		softdoca_gpu_queue_close(q);
	return error;
}

doca_error_t softdoca_gpu_queue_open(struct gpu_queue *q, struct doca_gpu *gpu, struct doca_dev *dev,
				     uint32_t entries, uint32_t receives, const struct gpu_queue *shared,
				     uint32_t rights)
{
	return open_in_domain(q, gpu, dev, &(struct sizes){entries, receives, shared}, rights, false);
}

static int connect_to_itself(struct gpu_queue *q)
{
	dg_nic_qp_info info;
	dg_nic_address self = {.qpn = 0};
	int rc = dg_nic_qp_info_get(q->qp, &info);
	if (!rc)
		rc = dg_nic_gid_get(nic_context(q->pd->v.context)->nic, self.gid);
	self.qpn = info.qpn;
	if (!rc)
		rc = dg_nic_qp_modify(q->qp, DG_NIC_RTR, &self, 0);
	return rc ? rc : dg_nic_qp_modify(q->qp, DG_NIC_RTS, NULL, 0);
}

doca_error_t gpu_queue_open(struct gpu_queue *q, struct doca_gpu *gpu, struct doca_dev *dev,
			    uint32_t entries)
{
	const uint32_t rights = DG_NIC_LOCAL_WRITE | DG_NIC_REMOTE_WRITE | DG_NIC_REMOTE_READ;
	TRY(open_in_domain(q, gpu, dev, &(struct sizes){entries, 0, NULL}, rights, true));
	const int rc = connect_to_itself(q);
	if (rc)
		softdoca_gpu_queue_close(q);
	return rc ? softdoca_failed(__func__, rc) : DOCA_SUCCESS;
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

void softdoca_gpu_queue_close(struct gpu_queue *q)
{
	if (q->qp)
		close_pair(q);
	if (q->cq)
		dg_nic_cq_close(q->cq);
	if (q->receive_cq)
		dg_nic_cq_close(q->receive_cq);
	if (q->structure)
		softdoca_gpu_drop(q->structure);
	if (q->rings)
		softdoca_gpu_drop(q->rings);
	if (q->pd)
		atomic_fetch_sub(&q->pd->users, 1);
	*q = (struct gpu_queue){NULL};
}
