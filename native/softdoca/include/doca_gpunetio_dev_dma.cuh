/* SPDX-License-Identifier: Apache-2.0 */
/* Copies posted by device code. Any thread may post; a commit, by one thread, starts the copies that
 * were posted before it, and copies start in the order in which they were posted. Nobody needs to wait
 * for their completions. After a copy that fails all later ones of the context fail; the log of
 * doca_ctx_stop() says why. */
#ifndef DOCA_GPUNETIO_DEV_DMA_CUH
#define DOCA_GPUNETIO_DEV_DMA_CUH

#include <doca_gpunetio_dev_buf.cuh>
#include <doca_gpunetio_dev_verbs_post.cuh>

/* Starts all copies that are posted. */
DOCA_GPUNETIO_DEVICE doca_error_t doca_gpu_dev_dma_commit(struct doca_gpu_dma *dma)
{
	doca_priv_gpu_dev_verbs_commit(&dma->qp);
	return DOCA_SUCCESS;
}

/* Posts a copy of `length` bytes, at most 1 GiB, from an offset in a buffer to an offset in another
 * one. Errors: INVALID_VALUE if they exceed a buffer, TOO_BIG; IO_FAILED after a copy that failed. */
DOCA_GPUNETIO_DEVICE doca_error_t
doca_gpu_dev_dma_memcpy(struct doca_gpu_dma *dma, struct doca_gpu_buf *src_buf, uint64_t src_offset,
			struct doca_gpu_buf *dst_buf, uint64_t dst_offset, size_t length)
{
	struct doca_gpu_dev_verbs_qp *qp = &dma->qp;
	struct doca_gpu_dev_verbs_addr from, to;
	const uint64_t consumed = doca_priv_gpu_dev_verbs_read(&qp->cq_sq.cqe_ci);
	if (doca_priv_gpu_dev_buf_part(src_buf, src_offset, length, &from) ||
	    doca_priv_gpu_dev_buf_part(dst_buf, dst_offset, length, &to))
		return DOCA_ERROR_INVALID_VALUE;
	if (doca_priv_gpu_dev_verbs_parts(length) > 1)
		return DOCA_ERROR_TOO_BIG;
	const uint64_t index = doca_gpu_dev_verbs_reserve_wq_slots(
		qp, 1, DOCA_GPUNETIO_VERBS_GPU_CODE_OPT_SKIP_AVAILABILITY_CHECK);
	const int status = doca_priv_gpu_dev_verbs_wait_for_slot(qp, index, consumed);
	doca_priv_gpu_dev_verbs_transfer(qp, doca_gpu_dev_verbs_get_wqe_ptr(qp, (uint16_t)index),
					 index, 0, DOCA_GPUNETIO_IB_MLX5_OPCODE_RDMA_WRITE, to, from,
					 length);
	doca_gpu_dev_verbs_mark_wqes_ready<DOCA_GPUNETIO_VERBS_RESOURCE_SHARING_MODE_GPU>(qp, index,
											 index);
	return status ? DOCA_ERROR_IO_FAILED : DOCA_SUCCESS;
}

#endif
