/* SPDX-License-Identifier: Apache-2.0 */
/* GPUNetIO Verbs for device code, part 2: completion queues. A CQE is new if its owner bit equals the
 * lap of its index. Every entry that asks for a CQE gets one, in order, so a ticket is also the index
 * of a CQE as long as all entries ask. Functions return 0, EBUSY if there is no CQE yet, or -EIO for an
 * error CQE. */
#ifndef DOCA_GPUNETIO_DEV_VERBS_CQ_H
#define DOCA_GPUNETIO_DEV_VERBS_CQ_H

#include <doca_gpunetio_dev_verbs_common.cuh>

DOCA_GPUNETIO_DEVICE struct doca_gpu_dev_verbs_cq *
doca_gpu_dev_verbs_qp_get_cq_sq(struct doca_gpu_dev_verbs_qp *qp)
{
	return &qp->cq_sq;
}

DOCA_GPUNETIO_DEVICE uint32_t doca_gpu_dev_verbs_cqe_idx_inc_mask(uint32_t index, uint32_t more)
{
	return (index + more) & DOCA_GPUNETIO_VERBS_CQE_CI_MASK;
}

/* Returns the last 4 bytes of a CQE: wqe_counter << 16 | signature << 8 | op_own. */
DOCA_GPUNETIO_DEVICE uint32_t doca_priv_gpu_dev_verbs_read_cqe(struct doca_gpu_dev_verbs_cq *cq,
							       uint64_t index)
{
	const uint64_t ring = __ldg((uint64_t *)&cq->cqe_daddr);
	uint32_t *end = (uint32_t *)(ring + index * DOCA_GPUNETIO_VERBS_CQE_SIZE + 60);
	return doca_gpu_dev_verbs_bswap32(doca_priv_gpu_dev_verbs_load_acquire_sys(end));
}

DOCA_GPUNETIO_DEVICE int doca_priv_gpu_dev_verbs_cqe_status(uint32_t end)
{
	const uint32_t opcode = (end & 0xff) >> DOCA_GPUNETIO_VERBS_MLX5_CQE_OPCODE_SHIFT;
	return opcode == DOCA_GPUNETIO_IB_MLX5_CQE_REQ_ERR ||
			       opcode == DOCA_GPUNETIO_IB_MLX5_CQE_RESP_ERR
		       ? -EIO
		       : 0;
}

/* All CQEs after an error are errors, and nobody consumes one. So an error CQE in the slot is that of
 * the index or of a later lap, and answers for an index that the ring cannot have yet. */
template <enum doca_gpu_dev_verbs_resource_sharing_mode sharing>
DOCA_GPUNETIO_DEVICE int doca_priv_gpu_dev_verbs_try_cq_at(struct doca_gpu_dev_verbs_cq *cq,
							   uint64_t index)
{
	const uint32_t entries = __ldg(&cq->cqe_num);
	const uint64_t consumed = doca_gpu_dev_verbs_atomic_read<uint64_t, sharing>(&cq->cqe_ci);
	if (index < consumed)
		return 0;
	const bool early = index - consumed >= entries;
	const uint64_t at = (early ? consumed : index) + __ldg(&cq->cqe_rsvd);
	const uint32_t end = doca_priv_gpu_dev_verbs_read_cqe(cq, at & (entries - 1));
	const uint32_t owner = end & DOCA_GPUNETIO_IB_MLX5_CQE_OWNER_MASK;
	if (doca_priv_gpu_dev_verbs_cqe_status(end))
		return -EIO;
	return early || owner != ((at & entries) != 0) ? EBUSY : 0;
}

template <enum doca_gpu_dev_verbs_resource_sharing_mode sharing>
DOCA_GPUNETIO_DEVICE void doca_priv_gpu_dev_verbs_consume(struct doca_gpu_dev_verbs_cq *cq,
							  uint64_t consumed)
{
	doca_gpu_dev_verbs_atomic_max<uint64_t, sharing>(&cq->cqe_ci, consumed);
}

template <enum doca_gpu_dev_verbs_resource_sharing_mode sharing =
		  DOCA_GPUNETIO_VERBS_RESOURCE_SHARING_MODE_GPU,
	  enum doca_gpu_dev_verbs_qp_type qp_type = DOCA_GPUNETIO_VERBS_QP_SQ>
DOCA_GPUNETIO_DEVICE int doca_gpu_dev_verbs_poll_one_cq_at(struct doca_gpu_dev_verbs_cq *cq,
							   uint64_t index)
{
	const int status = doca_priv_gpu_dev_verbs_try_cq_at<sharing>(cq, index);
	if (status == 0)
		doca_priv_gpu_dev_verbs_consume<sharing>(cq, index + 1);
	return status;
}

/* Waits for the CQE. */
template <enum doca_gpu_dev_verbs_resource_sharing_mode sharing =
		  DOCA_GPUNETIO_VERBS_RESOURCE_SHARING_MODE_GPU,
	  enum doca_gpu_dev_verbs_qp_type qp_type = DOCA_GPUNETIO_VERBS_QP_SQ>
DOCA_GPUNETIO_DEVICE int doca_gpu_dev_verbs_poll_cq_at(struct doca_gpu_dev_verbs_cq *cq,
						       uint64_t index)
{
	int status;
	do
		status = doca_gpu_dev_verbs_poll_one_cq_at<sharing, qp_type>(cq, index);
	while (status == EBUSY);
	return status;
}

/* Waits for the next `count` CQEs. */
template <enum doca_gpu_dev_verbs_resource_sharing_mode sharing =
		  DOCA_GPUNETIO_VERBS_RESOURCE_SHARING_MODE_GPU,
	  enum doca_gpu_dev_verbs_qp_type qp_type = DOCA_GPUNETIO_VERBS_QP_SQ>
DOCA_GPUNETIO_DEVICE int doca_gpu_dev_verbs_poll_cq(struct doca_gpu_dev_verbs_cq *cq,
						    uint32_t count)
{
	const uint64_t next = doca_gpu_dev_verbs_atomic_read<uint64_t, sharing>(&cq->cqe_ci);
	return count ? doca_gpu_dev_verbs_poll_cq_at<sharing, qp_type>(cq, next + count - 1) : 0;
}

/* Waits until `count` entries have completed, in a collapsed queue, whose only CQE always has the index
 * of the newest completion. At most 32768 entries may be in flight, so that the index's 16 bits tell
 * what they belong to. */
template <enum doca_gpu_dev_verbs_resource_sharing_mode sharing =
		  DOCA_GPUNETIO_VERBS_RESOURCE_SHARING_MODE_GPU,
	  enum doca_gpu_dev_verbs_qp_type qp_type = DOCA_GPUNETIO_VERBS_QP_SQ>
DOCA_GPUNETIO_DEVICE int doca_gpu_dev_verbs_poll_cq_collapsed_at(struct doca_gpu_dev_verbs_qp *qp,
								 uint64_t count)
{
	struct doca_gpu_dev_verbs_cq *cq = &qp->cq_sq;
	while (doca_priv_gpu_dev_verbs_read(&qp->sq_wqe_pi) < count)
		continue;
	while (count > doca_gpu_dev_verbs_atomic_read<uint64_t, sharing>(&cq->cqe_ci)) {
		const uint32_t end = doca_priv_gpu_dev_verbs_read_cqe(cq, 0);
		const int16_t more = (int16_t)((end >> 16) + 1 - count);
		if (((end & 0xff) >> DOCA_GPUNETIO_VERBS_MLX5_CQE_OPCODE_SHIFT) ==
			    DOCA_GPUNETIO_IB_MLX5_CQE_INVALID ||
		    more < 0)
			continue;
		if (doca_priv_gpu_dev_verbs_cqe_status(end))
			return -EIO;
		doca_priv_gpu_dev_verbs_consume<sharing>(cq, count + more);
	}
	return 0;
}

#endif
