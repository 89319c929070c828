/* SPDX-License-Identifier: Apache-2.0 */
/* GPUNetIO Verbs for device code, part 3: the send queue. To post, a thread reserves slots, writes
 * entries, marks them ready (in the order of their indices) and submits them. */
#ifndef DOCA_GPUNETIO_DEV_VERBS_QP_H
#define DOCA_GPUNETIO_DEV_VERBS_QP_H

#include <doca_gpunetio_dev_verbs_cq.cuh>
#include <doca_gpunetio_dev_verbs_segments.cuh>

DOCA_GPUNETIO_DEVICE struct doca_gpu_dev_verbs_wqe *
doca_gpu_dev_verbs_get_wqe_ptr(struct doca_gpu_dev_verbs_qp *qp, uint16_t index)
{
	const uint64_t ring = __ldg((uint64_t *)&qp->sq_wqe_daddr);
	const uint64_t slot = index & __ldg(&qp->sq_wqe_mask);
	return (struct doca_gpu_dev_verbs_wqe *)(ring +
						 (slot << DOCA_GPUNETIO_IB_MLX5_WQE_SQ_SHIFT));
}

/* Waits until the slot's previous entry has completed. */
template <enum doca_gpu_dev_verbs_resource_sharing_mode sharing =
		  DOCA_GPUNETIO_VERBS_RESOURCE_SHARING_MODE_GPU,
	  enum doca_gpu_dev_verbs_qp_type qp_type = DOCA_GPUNETIO_VERBS_QP_SQ>
DOCA_GPUNETIO_DEVICE void
doca_gpu_dev_verbs_wait_until_slot_available(struct doca_gpu_dev_verbs_qp *qp, uint64_t index)
{
	const uint16_t entries = __ldg(&qp->sq_wqe_num);
	if (index >= entries)
		doca_gpu_dev_verbs_poll_cq_at<sharing, qp_type>(&qp->cq_sq, index - entries);
}

/* Returns the index of the first of `count` slots. */
template <enum doca_gpu_dev_verbs_resource_sharing_mode sharing =
		  DOCA_GPUNETIO_VERBS_RESOURCE_SHARING_MODE_GPU,
	  enum doca_gpu_dev_verbs_qp_type qp_type = DOCA_GPUNETIO_VERBS_QP_SQ>
DOCA_GPUNETIO_DEVICE uint64_t
doca_gpu_dev_verbs_reserve_wq_slots(struct doca_gpu_dev_verbs_qp *qp, uint32_t count,
				    uint32_t code_opt = DOCA_GPUNETIO_VERBS_GPU_CODE_OPT_DEFAULT)
{
	const uint64_t first =
		doca_gpu_dev_verbs_atomic_add<uint64_t, sharing>(&qp->sq_rsvd_index, count);
	if (!(code_opt & DOCA_GPUNETIO_VERBS_GPU_CODE_OPT_SKIP_AVAILABILITY_CHECK))
		doca_gpu_dev_verbs_wait_until_slot_available<sharing>(qp, first + count - 1);
	return first;
}

/* Moves a queue's ready index from `first` to behind `last`, after all entries before `first`. The one
 * fence comes before the turn, which threads take one after the other: it makes this thread's entries
 * visible to the NIC, and whoever has seen the index may announce them. The index is exchanged, not
 * stored: only then does a thread that acquires it synchronize with all that had their turn before. */
template <enum doca_gpu_dev_verbs_resource_sharing_mode sharing>
DOCA_GPUNETIO_DEVICE void doca_priv_gpu_dev_verbs_mark_ready(uint64_t *ready, uint64_t first,
							     uint64_t last)
{
	if (sharing == DOCA_GPUNETIO_VERBS_RESOURCE_SHARING_MODE_EXCLUSIVE) {
		*ready = last + 1;
		return;
	}
	__threadfence_system();
	while (doca_priv_gpu_dev_verbs_load_acquire_gpu(ready) != first)
		continue;
	atomicExch((unsigned long long *)ready, last + 1);
}

template <enum doca_gpu_dev_verbs_resource_sharing_mode sharing =
		  DOCA_GPUNETIO_VERBS_RESOURCE_SHARING_MODE_GPU,
	  enum doca_gpu_dev_verbs_qp_type qp_type = DOCA_GPUNETIO_VERBS_QP_SQ,
	  enum doca_gpu_dev_verbs_qp_ready_mode ready_mode = DOCA_GPUNETIO_VERBS_READY_MODE_DEFAULT>
DOCA_GPUNETIO_DEVICE void doca_gpu_dev_verbs_mark_wqes_ready(struct doca_gpu_dev_verbs_qp *qp,
							     uint64_t first, uint64_t last)
{
	doca_priv_gpu_dev_verbs_mark_ready<sharing>(&qp->sq_ready_index, first, last);
}

DOCA_GPUNETIO_DEVICE __be32 doca_gpu_dev_verbs_prepare_dbr(uint32_t producer)
{
	return doca_gpu_dev_verbs_bswap32(producer & DOCA_GPUNETIO_VERBS_WQE_PI_MASK);
}

/* A doorbell's value is the first 8 bytes of a control segment. */
DOCA_GPUNETIO_DEVICE __be64 doca_gpu_dev_verbs_prepare_db(struct doca_gpu_dev_verbs_qp *qp,
							  uint64_t producer)
{
	return doca_priv_gpu_dev_verbs_control(qp, (uint16_t)producer, 0, 0, 0).first;
}

/* All of these come after a fence of the whole system, since the NIC is outside of the GPU. */
DOCA_GPUNETIO_DEVICE void doca_priv_gpu_dev_verbs_store_db(struct doca_gpu_dev_verbs_qp *qp,
							   uint64_t value)
{
	uint64_t *doorbell = (uint64_t *)__ldg((uint64_t *)&qp->sq_db);
	doca_priv_gpu_dev_verbs_write(doorbell, value);
}

template <enum doca_gpu_dev_verbs_resource_sharing_mode sharing>
DOCA_GPUNETIO_DEVICE void doca_priv_gpu_dev_verbs_submit_db(struct doca_gpu_dev_verbs_qp *qp,
							    uint64_t producer)
{
	__be32 *record = (__be32 *)__ldg((uint64_t *)&qp->sq_dbrec);
	doca_gpu_dev_verbs_lock<sharing>(&qp->sq_lock);
	if (doca_gpu_dev_verbs_atomic_max<uint64_t, sharing>(&qp->sq_wqe_pi, producer) < producer) {
		/* The software NIC reads the record alone, so no fence is needed between the two. */
		doca_priv_gpu_dev_verbs_write(record, doca_gpu_dev_verbs_prepare_dbr(producer));
		doca_priv_gpu_dev_verbs_store_db(qp, doca_gpu_dev_verbs_prepare_db(qp, producer));
	}
	doca_gpu_dev_verbs_unlock<sharing>(&qp->sq_lock);
}

/* The NIC reads sq_wqe_pi, because of doorbells that race the last one stored may not be the newest. */
template <enum doca_gpu_dev_verbs_resource_sharing_mode sharing>
DOCA_GPUNETIO_DEVICE void doca_priv_gpu_dev_verbs_submit_no_dbr(struct doca_gpu_dev_verbs_qp *qp,
								uint64_t producer)
{
	if (doca_gpu_dev_verbs_atomic_max<uint64_t, sharing>(&qp->sq_wqe_pi, producer) < producer)
		doca_priv_gpu_dev_verbs_store_db(qp, doca_gpu_dev_verbs_prepare_db(qp, producer));
}

template <enum doca_gpu_dev_verbs_resource_sharing_mode sharing>
DOCA_GPUNETIO_DEVICE void doca_priv_gpu_dev_verbs_submit_proxy(struct doca_gpu_dev_verbs_qp *qp,
							       uint64_t producer)
{
	if (sharing == DOCA_GPUNETIO_VERBS_RESOURCE_SHARING_MODE_EXCLUSIVE)
		doca_priv_gpu_dev_verbs_store_db(qp, producer);
	else
		atomicMax_system((unsigned long long *)__ldg((uint64_t *)&qp->sq_db), producer);
	doca_gpu_dev_verbs_atomic_max<uint64_t, sharing>(&qp->sq_wqe_pi, producer);
}

/* Tells the NIC of all entries before `producer`. sync_scope THREAD: they are visible to the NIC, as
 * after doca_gpu_dev_verbs_mark_wqes_ready() of a shared queue; else a fence of the system precedes. */
template <enum doca_gpu_dev_verbs_resource_sharing_mode sharing =
		  DOCA_GPUNETIO_VERBS_RESOURCE_SHARING_MODE_GPU,
	  enum doca_gpu_dev_verbs_sync_scope sync_scope = DOCA_GPUNETIO_VERBS_SYNC_SCOPE_GPU,
	  enum doca_gpu_dev_verbs_nic_handler handler = DOCA_GPUNETIO_VERBS_NIC_HANDLER_AUTO,
	  enum doca_gpu_dev_verbs_qp_type qp_type = DOCA_GPUNETIO_VERBS_QP_SQ>
DOCA_GPUNETIO_DEVICE void
doca_gpu_dev_verbs_submit(struct doca_gpu_dev_verbs_qp *qp, uint64_t producer,
			  uint32_t code_opt = DOCA_GPUNETIO_VERBS_GPU_CODE_OPT_DEFAULT)
{
	const int used = handler == DOCA_GPUNETIO_VERBS_NIC_HANDLER_AUTO
				 ? __ldg((int *)&qp->nic_handler)
				 : (int)handler;
	if (code_opt & DOCA_GPUNETIO_VERBS_GPU_CODE_OPT_SKIP_DB_RINGING)
		return;
	if (sync_scope != DOCA_GPUNETIO_VERBS_SYNC_SCOPE_THREAD)
		__threadfence_system();
	if (used == DOCA_GPUNETIO_VERBS_NIC_HANDLER_GPU_SM_DB)
		doca_priv_gpu_dev_verbs_submit_db<sharing>(qp, producer);
	else if (used == DOCA_GPUNETIO_VERBS_NIC_HANDLER_GPU_SM_NO_DBR)
		doca_priv_gpu_dev_verbs_submit_no_dbr<sharing>(qp, producer);
	else
		doca_priv_gpu_dev_verbs_submit_proxy<sharing>(qp, producer);
}

/* Writes of entries. `index` is the entry's index in the queue; keys are in big-endian. */
DOCA_GPUNETIO_DEVICE void
doca_gpu_dev_verbs_wqe_prepare_nop(struct doca_gpu_dev_verbs_qp *qp,
				   struct doca_gpu_dev_verbs_wqe *wqe, const uint16_t index,
				   enum doca_gpu_dev_verbs_wqe_ctrl_flags flags)
{
	doca_priv_gpu_dev_verbs_store(
		wqe, 0, doca_priv_gpu_dev_verbs_control(qp, index, DOCA_GPUNETIO_IB_MLX5_OPCODE_NOP,
							1, flags));
}

DOCA_GPUNETIO_DEVICE void doca_gpu_dev_verbs_wqe_prepare_write(
	struct doca_gpu_dev_verbs_qp *qp, struct doca_gpu_dev_verbs_wqe *wqe, const uint16_t index,
	const uint32_t opcode, enum doca_gpu_dev_verbs_wqe_ctrl_flags flags,
	const uint32_t immediate, const uint64_t raddr, const uint32_t rkey, const uint64_t laddr,
	const uint32_t lkey, const uint32_t bytes)
{
	doca_priv_gpu_dev_verbs_store(
		wqe, 0, doca_priv_gpu_dev_verbs_control(qp, index, opcode, 3, flags, immediate));
	doca_priv_gpu_dev_verbs_store(wqe, 1, doca_priv_gpu_dev_verbs_remote(raddr, rkey));
	doca_priv_gpu_dev_verbs_store(wqe, 2, doca_priv_gpu_dev_verbs_data(laddr, lkey, bytes));
}

DOCA_GPUNETIO_DEVICE void doca_gpu_dev_verbs_wqe_prepare_write(
	struct doca_gpu_dev_verbs_qp *qp, struct doca_gpu_dev_verbs_wqe *wqe, const uint16_t index,
	const uint32_t opcode, enum doca_gpu_dev_verbs_wqe_ctrl_flags flags,
	const uint32_t immediate, const uint64_t raddr, const uint32_t rkey, const uint64_t laddr0,
	const uint32_t lkey0, const uint32_t bytes0, const uint64_t laddr1, const uint32_t lkey1,
	const uint32_t bytes1)
{
	doca_priv_gpu_dev_verbs_store(
		wqe, 0, doca_priv_gpu_dev_verbs_control(qp, index, opcode, 4, flags, immediate));
	doca_priv_gpu_dev_verbs_store(wqe, 1, doca_priv_gpu_dev_verbs_remote(raddr, rkey));
	doca_priv_gpu_dev_verbs_store(wqe, 2, doca_priv_gpu_dev_verbs_data(laddr0, lkey0, bytes0));
	doca_priv_gpu_dev_verbs_store(wqe, 3, doca_priv_gpu_dev_verbs_data(laddr1, lkey1, bytes1));
}

/* The bytes, at most 28, are copied into the entry. */
DOCA_GPUNETIO_DEVICE void
doca_gpu_dev_verbs_wqe_prepare_write_inl(struct doca_gpu_dev_verbs_qp *qp,
					 struct doca_gpu_dev_verbs_wqe *wqe, const uint16_t index,
					 enum doca_gpu_dev_verbs_wqe_ctrl_flags flags,
					 const uint64_t raddr, const uint32_t rkey,
					 const uint64_t laddr, const uint32_t bytes)
{
	doca_priv_gpu_dev_verbs_store(
		wqe, 0,
		doca_priv_gpu_dev_verbs_control(qp, index, DOCA_GPUNETIO_IB_MLX5_OPCODE_RDMA_WRITE,
						2 + (4 + bytes + 15) / 16, flags));
	doca_priv_gpu_dev_verbs_store(wqe, 1, doca_priv_gpu_dev_verbs_remote(raddr, rkey));
	*(uint32_t *)(wqe->inl_data + 32) =
		doca_gpu_dev_verbs_bswap32(bytes | DOCA_GPUNETIO_IB_MLX5_INLINE_SEG);
	for (uint32_t i = 0; i < bytes; i++)
		wqe->inl_data[36 + i] = ((const uint8_t *)laddr)[i];
}

DOCA_GPUNETIO_DEVICE void doca_gpu_dev_verbs_wqe_prepare_read(
	struct doca_gpu_dev_verbs_qp *qp, struct doca_gpu_dev_verbs_wqe *wqe, const uint16_t index,
	enum doca_gpu_dev_verbs_wqe_ctrl_flags flags, const uint64_t raddr, const uint32_t rkey,
	const uint64_t laddr, const uint32_t lkey, const uint32_t bytes)
{
	doca_gpu_dev_verbs_wqe_prepare_write(qp, wqe, index, DOCA_GPUNETIO_IB_MLX5_OPCODE_RDMA_READ,
					     flags, 0, raddr, rkey, laddr, lkey, bytes);
}

/* compare_add: what FETCH_ADD adds, or what COMPARE_SWAP compares with. */
DOCA_GPUNETIO_DEVICE void doca_gpu_dev_verbs_wqe_prepare_atomic(
	struct doca_gpu_dev_verbs_qp *qp, struct doca_gpu_dev_verbs_wqe *wqe, const uint16_t index,
	const uint32_t opcode, enum doca_gpu_dev_verbs_wqe_ctrl_flags flags, const uint64_t raddr,
	const uint32_t rkey, const uint64_t laddr, const uint32_t lkey, const uint32_t bytes,
	const uint64_t compare_add, const uint64_t swap)
{
	const uint64_t first = opcode == DOCA_GPUNETIO_IB_MLX5_OPCODE_ATOMIC_FA ? compare_add : swap;
	doca_priv_gpu_dev_verbs_store(
		wqe, 0, doca_priv_gpu_dev_verbs_control(qp, index, opcode, 4, flags));
	doca_priv_gpu_dev_verbs_store(wqe, 1, doca_priv_gpu_dev_verbs_remote(raddr, rkey));
	doca_priv_gpu_dev_verbs_store(wqe, 2,
				      {doca_gpu_dev_verbs_bswap64(first),
				       doca_gpu_dev_verbs_bswap64(compare_add)});
	doca_priv_gpu_dev_verbs_store(wqe, 3, doca_priv_gpu_dev_verbs_data(laddr, lkey, bytes));
}

/* The queue waits until the completion queue `cqn` has had a CQE of index max_index. */
DOCA_GPUNETIO_DEVICE void
doca_gpu_dev_verbs_wqe_prepare_wait(struct doca_gpu_dev_verbs_qp *qp,
				    struct doca_gpu_dev_verbs_wqe *wqe, const uint16_t index,
				    enum doca_gpu_dev_verbs_wqe_ctrl_flags flags,
				    const uint32_t max_index, const uint32_t cqn)
{
	doca_priv_gpu_dev_verbs_store(
		wqe, 0, doca_priv_gpu_dev_verbs_control(qp, index, DOCA_GPUNETIO_IB_MLX5_OPCODE_WAIT,
							2, flags));
	doca_priv_gpu_dev_verbs_store(
		wqe, 1, {0, doca_gpu_dev_verbs_bswap64((uint64_t)max_index << 32 | cqn)});
}

DOCA_GPUNETIO_DEVICE void
doca_gpu_dev_verbs_wqe_prepare_dump(struct doca_gpu_dev_verbs_qp *qp,
				    struct doca_gpu_dev_verbs_wqe *wqe, const uint16_t index,
				    enum doca_gpu_dev_verbs_wqe_ctrl_flags flags,
				    const uint64_t laddr, const uint32_t lkey, const uint32_t bytes)
{
	doca_priv_gpu_dev_verbs_store(
		wqe, 0, doca_priv_gpu_dev_verbs_control(qp, index, DOCA_GPUNETIO_IB_MLX5_OPCODE_DUMP,
							2, flags));
	doca_priv_gpu_dev_verbs_store(wqe, 1, doca_priv_gpu_dev_verbs_data(laddr, lkey, bytes));
}

#endif
