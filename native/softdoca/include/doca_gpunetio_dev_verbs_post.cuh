/* SPDX-License-Identifier: Apache-2.0 */
/* Own part of these headers: posts entries from one thread, or from the 32 lanes of a warp. */
#ifndef DOCA_GPUNETIO_DEV_VERBS_POST_CUH
#define DOCA_GPUNETIO_DEV_VERBS_POST_CUH

#include <doca_gpunetio_dev_verbs_qp.cuh>
#include <doca_gpunetio_dev_verbs_segments.cuh>

/* Distributes slots: each thread gets `own` of them, the first thread also the `shared` ones behind.
 * reserve(n) returns the first of n slots, write(slot, part) writes part 0 to own + shared - 1 of a
 * thread, publish(first, last) is called by the first thread. Returns the thread's last slot. */
template <enum doca_gpu_dev_verbs_exec_scope scope, class Reserve, class Write, class Publish>
DOCA_GPUNETIO_DEVICE uint64_t doca_priv_gpu_dev_verbs_distribute(uint32_t own, uint32_t shared,
								 Reserve reserve, Write write,
								 Publish publish)
{
	const bool warp = scope == DOCA_GPUNETIO_VERBS_EXEC_SCOPE_WARP;
	const unsigned int lane = warp ? doca_gpu_dev_verbs_get_lane_id() : 0;
	const uint32_t all = own * (warp ? DOCA_GPUNETIO_VERBS_WARP_SIZE : 1) + shared;
	if (warp) /* no lane may still wait to publish slots behind those that lane 0 reserves now */
		__syncwarp();
	uint64_t first = lane == 0 ? reserve(all) : 0;
	if (warp)
		first = __shfl_sync(DOCA_GPUNETIO_VERBS_WARP_FULL_MASK, first, 0);
	for (uint32_t part = 0; part < own; part++)
		write(first + lane * own + part, part);
	for (uint32_t part = 0; part < shared && lane == 0; part++)
		write(first + all - shared + part, own + part);
	if (warp)
		__syncwarp();
	if (lane == 0)
		publish(first, first + all - 1);
	if (warp)
		__syncwarp();
	return lane == 0 && shared ? first + all - 1 : first + lane * own + own - 1;
}

/* Posts to the send queue; write(entry, index, part) writes the entry. */
template <enum doca_gpu_dev_verbs_resource_sharing_mode sharing,
	  enum doca_gpu_dev_verbs_nic_handler handler, enum doca_gpu_dev_verbs_exec_scope scope,
	  class Write>
DOCA_GPUNETIO_DEVICE uint64_t doca_priv_gpu_dev_verbs_post(struct doca_gpu_dev_verbs_qp *qp,
							   uint32_t own, uint32_t shared,
							   uint32_t code_opt, Write write)
{
	return doca_priv_gpu_dev_verbs_distribute<scope>(
		own, shared,
		[=](uint32_t n) {
			return doca_gpu_dev_verbs_reserve_wq_slots<sharing>(qp, n, code_opt);
		},
		[=](uint64_t index, uint32_t part) {
			write(doca_gpu_dev_verbs_get_wqe_ptr(qp, (uint16_t)index), index, part);
		},
		[=](uint64_t first, uint64_t last) {
			doca_gpu_dev_verbs_mark_wqes_ready<sharing>(qp, first, last);
			doca_gpu_dev_verbs_submit<
				sharing,
				sharing == DOCA_GPUNETIO_VERBS_RESOURCE_SHARING_MODE_EXCLUSIVE
					? DOCA_GPUNETIO_VERBS_SYNC_SCOPE_SYS
					: DOCA_GPUNETIO_VERBS_SYNC_SCOPE_THREAD,
				handler>(qp, last + 1, code_opt);
		});
}

/* Of queues whose entries are committed by one thread after they were posted by others. Tells the NIC of all
 * entries that are ready. */
DOCA_GPUNETIO_DEVICE void doca_priv_gpu_dev_verbs_commit(struct doca_gpu_dev_verbs_qp *qp)
{
	const uint64_t ready = doca_priv_gpu_dev_verbs_load_acquire_gpu(&qp->sq_ready_index);
	/* THREAD: whoever marked them ready has made them visible to the NIC. */
	doca_gpu_dev_verbs_submit<DOCA_GPUNETIO_VERBS_RESOURCE_SHARING_MODE_GPU,
				  DOCA_GPUNETIO_VERBS_SYNC_SCOPE_THREAD>(qp, ready);
}

/* Waits until slot `index` is free: until the entry that was in it before has completed. Returns 0, or
 * -EIO after an entry that failed.
 * consumed: a lower bound of the completions consumed. It mostly proves that the slot is free, without
 * polling; callers load it before they reserve the slot, so that the two latencies overlap. */
DOCA_GPUNETIO_DEVICE int doca_priv_gpu_dev_verbs_wait_for_slot(struct doca_gpu_dev_verbs_qp *qp,
							       uint64_t index, uint64_t consumed)
{
	const uint32_t entries = __ldg(&qp->sq_wqe_num);
	const bool is_free = index < entries + consumed;
	int status = is_free ? 0 : doca_gpu_dev_verbs_poll_one_cq_at(&qp->cq_sq, index - entries);
	while (status == EBUSY) {
		/* Unless somebody commits the entry before, it never completes. */
		doca_priv_gpu_dev_verbs_commit(qp);
		status = doca_gpu_dev_verbs_poll_one_cq_at(&qp->cq_sq, index - entries);
	}
#ifdef DG_EMULATED_GPU /* ThreadSanitizer does not see that the NIC orders the slot's two writers */
	(void)doca_priv_gpu_dev_verbs_load_acquire_gpu(&qp->sq_ready_index);
#endif
	return status;
}

/* Number of entries of at most 1 GiB for a size; an empty transfer takes one. */
DOCA_GPUNETIO_DEVICE uint32_t doca_priv_gpu_dev_verbs_parts(size_t size)
{
	return size ? (uint32_t)((size - 1) >> DOCA_GPUNETIO_VERBS_MAX_TRANSFER_SIZE_SHIFT) + 1 : 1;
}

/* Writes part `part` of an RDMA WRITE or READ; an empty one is a NOP. */
DOCA_GPUNETIO_DEVICE void
doca_priv_gpu_dev_verbs_transfer(struct doca_gpu_dev_verbs_qp *qp,
				 struct doca_gpu_dev_verbs_wqe *wqe, uint64_t index, uint32_t part,
				 uint32_t opcode, struct doca_gpu_dev_verbs_addr raddr,
				 struct doca_gpu_dev_verbs_addr laddr, size_t size)
{
	const uint64_t start = part * DOCA_GPUNETIO_VERBS_MAX_TRANSFER_SIZE, left = size - start;
	if (size == 0)
		doca_gpu_dev_verbs_wqe_prepare_nop(qp, wqe, (uint16_t)index,
						   DOCA_GPUNETIO_IB_MLX5_WQE_CTRL_CQ_UPDATE);
	else
		doca_gpu_dev_verbs_wqe_prepare_write(
			qp, wqe, (uint16_t)index, opcode, DOCA_GPUNETIO_IB_MLX5_WQE_CTRL_CQ_UPDATE, 0,
			raddr.addr + start, raddr.key, laddr.addr + start, laddr.key,
			(uint32_t)(left < DOCA_GPUNETIO_VERBS_MAX_TRANSFER_SIZE
					   ? left
					   : DOCA_GPUNETIO_VERBS_MAX_TRANSFER_SIZE));
}

/* Writes a FETCH_ADD, whose previous value goes to `laddr`. */
DOCA_GPUNETIO_DEVICE void
doca_priv_gpu_dev_verbs_fetch_add(struct doca_gpu_dev_verbs_qp *qp,
				  struct doca_gpu_dev_verbs_wqe *wqe, uint64_t index,
				  struct doca_gpu_dev_verbs_addr raddr,
				  struct doca_gpu_dev_verbs_addr laddr, uint64_t addend)
{
	doca_gpu_dev_verbs_wqe_prepare_atomic(
		qp, wqe, (uint16_t)index, DOCA_GPUNETIO_IB_MLX5_OPCODE_ATOMIC_FA,
		DOCA_GPUNETIO_IB_MLX5_WQE_CTRL_CQ_UPDATE, raddr.addr, raddr.key, laddr.addr,
		laddr.key, sizeof(uint64_t), addend, 0);
}

/* Posts a DUMP of one byte and waits for it: what the NIC wrote before is then visible. */
template <enum doca_gpu_dev_verbs_resource_sharing_mode sharing,
	  enum doca_gpu_dev_verbs_nic_handler handler>
DOCA_GPUNETIO_DEVICE int doca_priv_gpu_dev_verbs_dump(struct doca_gpu_dev_verbs_qp *qp,
						      struct doca_gpu_dev_verbs_addr daddr)
{
	const uint64_t index =
		doca_priv_gpu_dev_verbs_post<sharing, handler,
					     DOCA_GPUNETIO_VERBS_EXEC_SCOPE_THREAD>(
			qp, 1, 0, DOCA_GPUNETIO_VERBS_GPU_CODE_OPT_DEFAULT,
			[=](struct doca_gpu_dev_verbs_wqe *wqe, uint64_t slot, uint32_t) {
				doca_gpu_dev_verbs_wqe_prepare_dump(
					qp, wqe, (uint16_t)slot,
					DOCA_GPUNETIO_IB_MLX5_WQE_CTRL_CQ_UPDATE, daddr.addr,
					daddr.key, 1);
			});
	return doca_gpu_dev_verbs_poll_cq_at<sharing>(doca_gpu_dev_verbs_qp_get_cq_sq(qp), index);
}

#endif
