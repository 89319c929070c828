/* SPDX-License-Identifier: Apache-2.0 */
/* GPUNetIO Verbs for device code, part 6: send and receive. NVIDIA's open headers have no such part;
 * this one works with theirs too, if the library that filled in the queue pair is dgkit's. */
#ifndef DOCA_GPUNETIO_DEV_VERBS_TWOSIDED_CUH
#define DOCA_GPUNETIO_DEV_VERBS_TWOSIDED_CUH

#include <doca_gpunetio_dev_verbs_onesided.cuh>
#include <doca_gpunetio_dev_verbs_post.cuh>

/* The receive queue within struct doca_gpu_dev_verbs_qp, where the open headers have reserved bytes;
 * see there. */
struct doca_priv_gpu_dev_verbs_rq {
	uint64_t reserved_index, ready_index, producer;
	uint8_t *ring;
	__be32 *record;
	uint32_t entries, mask, shift;
	int lock;
	uint8_t unused[8];
	struct doca_gpu_dev_verbs_cq sq_cq, cq;
};

DOCA_GPUNETIO_DEVICE struct doca_priv_gpu_dev_verbs_rq *
doca_priv_gpu_dev_verbs_get_rq(struct doca_gpu_dev_verbs_qp *qp)
{
	return (struct doca_priv_gpu_dev_verbs_rq *)((uint8_t *)&qp->cq_sq - 64);
}

DOCA_GPUNETIO_DEVICE struct doca_gpu_dev_verbs_cq *
doca_gpu_dev_verbs_qp_get_cq_rq(struct doca_gpu_dev_verbs_qp *qp)
{
	return &doca_priv_gpu_dev_verbs_get_rq(qp)->cq;
}

template <enum doca_gpu_dev_verbs_resource_sharing_mode sharing =
		  DOCA_GPUNETIO_VERBS_RESOURCE_SHARING_MODE_GPU,
	  enum doca_gpu_dev_verbs_nic_handler handler = DOCA_GPUNETIO_VERBS_NIC_HANDLER_AUTO,
	  enum doca_gpu_dev_verbs_exec_scope scope = DOCA_GPUNETIO_VERBS_EXEC_SCOPE_THREAD>
DOCA_GPUNETIO_DEVICE void
doca_gpu_dev_verbs_send(struct doca_gpu_dev_verbs_qp *qp, struct doca_gpu_dev_verbs_addr laddr,
			size_t size, doca_gpu_dev_verbs_ticket_t *ticket,
			uint32_t code_opt = DOCA_GPUNETIO_VERBS_GPU_CODE_OPT_DEFAULT)
{
	*ticket = doca_priv_gpu_dev_verbs_post<sharing, handler, scope>(
		qp, 1, 0, code_opt,
		[=](struct doca_gpu_dev_verbs_wqe *wqe, uint64_t index, uint32_t) {
			doca_priv_gpu_dev_verbs_store(
				wqe, 0,
				doca_priv_gpu_dev_verbs_control(
					qp, (uint16_t)index, DOCA_GPUNETIO_IB_MLX5_OPCODE_SEND,
					size ? 2 : 1, DOCA_GPUNETIO_IB_MLX5_WQE_CTRL_CQ_UPDATE));
			if (size)
				doca_priv_gpu_dev_verbs_store(
					wqe, 1,
					doca_priv_gpu_dev_verbs_data(laddr.addr, laddr.key,
								     (uint32_t)size));
		});
}

/* Writes a receive entry: one segment; a second one with an invalid key ends a longer entry. */
DOCA_GPUNETIO_DEVICE void
doca_priv_gpu_dev_verbs_write_receive(struct doca_priv_gpu_dev_verbs_rq *rq, uint64_t index,
				      struct doca_gpu_dev_verbs_addr laddr, uint32_t size)
{
	const uint32_t none = doca_gpu_dev_verbs_bswap32(0x100);
	uint8_t *entry = rq->ring + ((index & rq->mask) << rq->shift);
	doca_priv_gpu_dev_verbs_store(entry, 0,
				      doca_priv_gpu_dev_verbs_data(laddr.addr, laddr.key, size));
	if (rq->shift > 4)
		doca_priv_gpu_dev_verbs_store(entry, 1, doca_priv_gpu_dev_verbs_data(0, none, 0));
}

/* Publishes receives by the doorbell record alone. */
template <enum doca_gpu_dev_verbs_resource_sharing_mode sharing>
DOCA_GPUNETIO_DEVICE void
doca_priv_gpu_dev_verbs_publish_receives(struct doca_priv_gpu_dev_verbs_rq *rq, uint64_t producer)
{
	__threadfence_system();
	doca_gpu_dev_verbs_lock<sharing>(&rq->lock);
	if (doca_gpu_dev_verbs_atomic_max<uint64_t, sharing>(&rq->producer, producer) < producer)
		doca_priv_gpu_dev_verbs_write(
			rq->record, doca_gpu_dev_verbs_bswap32((uint32_t)producer & 0xffff));
	doca_gpu_dev_verbs_unlock<sharing>(&rq->lock);
}

/* Posts a receive; the ticket is its index. */
template <enum doca_gpu_dev_verbs_resource_sharing_mode sharing =
		  DOCA_GPUNETIO_VERBS_RESOURCE_SHARING_MODE_GPU,
	  enum doca_gpu_dev_verbs_nic_handler handler = DOCA_GPUNETIO_VERBS_NIC_HANDLER_AUTO,
	  enum doca_gpu_dev_verbs_exec_scope scope = DOCA_GPUNETIO_VERBS_EXEC_SCOPE_THREAD>
DOCA_GPUNETIO_DEVICE void
doca_gpu_dev_verbs_recv(struct doca_gpu_dev_verbs_qp *qp, struct doca_gpu_dev_verbs_addr laddr,
			size_t size, doca_gpu_dev_verbs_ticket_t *ticket,
			uint32_t code_opt = DOCA_GPUNETIO_VERBS_GPU_CODE_OPT_DEFAULT)
{
	struct doca_priv_gpu_dev_verbs_rq *rq = doca_priv_gpu_dev_verbs_get_rq(qp);
	*ticket = doca_priv_gpu_dev_verbs_distribute<scope>(
		1, 0,
		[=](uint32_t n) {
			const uint64_t first = doca_gpu_dev_verbs_atomic_add<uint64_t, sharing>(
				&rq->reserved_index, n);
			if (first + n > rq->entries &&
			    !(code_opt & DOCA_GPUNETIO_VERBS_GPU_CODE_OPT_SKIP_AVAILABILITY_CHECK))
				doca_gpu_dev_verbs_poll_cq_at<sharing>(&rq->cq,
								       first + n - 1 - rq->entries);
			return first;
		},
		[=](uint64_t index, uint32_t) {
			doca_priv_gpu_dev_verbs_write_receive(rq, index, laddr, (uint32_t)size);
		},
		[=](uint64_t first, uint64_t last) {
			while (doca_gpu_dev_verbs_atomic_read<uint64_t, sharing>(
				       &rq->ready_index) != first)
				continue;
			doca_gpu_dev_verbs_fence_release<DOCA_GPUNETIO_VERBS_SYNC_SCOPE_GPU>();
			doca_priv_gpu_dev_verbs_write(&rq->ready_index, last + 1);
			doca_priv_gpu_dev_verbs_publish_receives<sharing>(rq, last + 1);
		});
}

/* Waits for a receive and sets *cqe to its CQE, which stays until the completion queue's next lap.
 * Returns 0, or -EIO for an error CQE. Cqe is mlx5_cqe64 or doca_gpunetio_ib_mlx5_cqe64. */
template <enum doca_gpu_dev_verbs_resource_sharing_mode sharing =
		  DOCA_GPUNETIO_VERBS_RESOURCE_SHARING_MODE_GPU,
	  enum doca_gpu_dev_verbs_nic_handler handler = DOCA_GPUNETIO_VERBS_NIC_HANDLER_AUTO,
	  enum doca_gpu_dev_verbs_mcst_mode mcst = DOCA_GPUNETIO_VERBS_MCST_DISABLED, class Cqe>
DOCA_GPUNETIO_DEVICE int
doca_gpu_dev_verbs_recv_wait(struct doca_gpu_dev_verbs_qp *qp, struct doca_gpu_dev_verbs_addr daddr,
			     doca_gpu_dev_verbs_ticket_t *ticket, Cqe **cqe)
{
	struct doca_gpu_dev_verbs_cq *cq = doca_gpu_dev_verbs_qp_get_cq_rq(qp);
	const uint64_t slot = (*ticket + cq->cqe_rsvd) & (cq->cqe_num - 1);
	const int status = doca_gpu_dev_verbs_poll_cq_at<sharing>(cq, *ticket);
	*cqe = (Cqe *)(cq->cqe_daddr + slot * DOCA_GPUNETIO_VERBS_CQE_SIZE);
	if (status == 0 && mcst == DOCA_GPUNETIO_VERBS_MCST_ENABLED)
		return doca_priv_gpu_dev_verbs_dump<sharing, handler>(qp, daddr);
	return status;
}

/* Waits for all receives that are reserved so far; *cqe is the last one's. Without any it returns
 * EINVAL. */
template <enum doca_gpu_dev_verbs_resource_sharing_mode sharing =
		  DOCA_GPUNETIO_VERBS_RESOURCE_SHARING_MODE_GPU,
	  enum doca_gpu_dev_verbs_nic_handler handler = DOCA_GPUNETIO_VERBS_NIC_HANDLER_AUTO,
	  enum doca_gpu_dev_verbs_mcst_mode mcst = DOCA_GPUNETIO_VERBS_MCST_DISABLED, class Cqe>
DOCA_GPUNETIO_DEVICE int
doca_gpu_dev_verbs_recv_wait(struct doca_gpu_dev_verbs_qp *qp, struct doca_gpu_dev_verbs_addr daddr,
			     Cqe **cqe)
{
	uint64_t last = doca_gpu_dev_verbs_atomic_read<uint64_t, sharing>(
		&doca_priv_gpu_dev_verbs_get_rq(qp)->reserved_index);
	if (last-- == 0)
		return EINVAL;
	return doca_gpu_dev_verbs_recv_wait<sharing, handler, mcst>(qp, daddr, &last, cqe);
}

#if DOCA_FORM_gpu_dev_verbs_recv_wait
template <enum doca_gpu_dev_verbs_resource_sharing_mode sharing =
		  DOCA_GPUNETIO_VERBS_RESOURCE_SHARING_MODE_GPU,
	  enum doca_gpu_dev_verbs_nic_handler handler = DOCA_GPUNETIO_VERBS_NIC_HANDLER_AUTO,
	  enum doca_gpu_dev_verbs_mcst_mode mcst = DOCA_GPUNETIO_VERBS_MCST_DISABLED>
DOCA_GPUNETIO_DEVICE int doca_gpu_dev_verbs_recv_wait(struct doca_gpu_dev_verbs_qp *qp,
						      struct doca_gpu_dev_verbs_addr daddr)
{
	struct doca_gpunetio_ib_mlx5_cqe64 *cqe;
	return doca_gpu_dev_verbs_recv_wait<sharing, handler, mcst>(qp, daddr, &cqe);
}
#endif

/* Up to DOCA 3.1: waits for a receive, and until its bytes are visible. */
template <enum doca_gpu_dev_verbs_exec_scope scope = DOCA_GPUNETIO_VERBS_EXEC_SCOPE_THREAD>
DOCA_OF_gpu_dev_verbs_wait_recv
DOCA_GPUNETIO_DEVICE int
doca_gpu_dev_verbs_wait_recv(struct doca_gpu_dev_verbs_qp *qp, doca_gpu_dev_verbs_ticket_t ticket,
			     struct doca_gpu_dev_verbs_addr daddr)
{
	struct doca_gpunetio_ib_mlx5_cqe64 *cqe;
	return doca_gpu_dev_verbs_recv_wait<DOCA_GPUNETIO_VERBS_RESOURCE_SHARING_MODE_GPU,
					    DOCA_GPUNETIO_VERBS_NIC_HANDLER_AUTO,
					    DOCA_GPUNETIO_VERBS_MCST_ENABLED>(qp, daddr, &ticket, &cqe);
}

/* Whether the received bytes, up to 32, are in the CQE; how many there are; where they lie. */
template <class Cqe> DOCA_GPUNETIO_DEVICE int doca_gpu_dev_verbs_cqe_is_inline(Cqe *cqe)
{
	return (((struct doca_gpunetio_ib_mlx5_cqe64 *)cqe)->op_own & 0xc) != 0;
}

template <class Cqe> DOCA_GPUNETIO_DEVICE uint32_t doca_gpu_dev_verbs_cqe_get_bytes(Cqe *cqe)
{
	return doca_gpu_dev_verbs_bswap32(((struct doca_gpunetio_ib_mlx5_cqe64 *)cqe)->byte_cnt);
}

template <class Cqe> DOCA_GPUNETIO_DEVICE uint8_t *doca_gpu_dev_verbs_cqe_get_inl_data(Cqe *cqe)
{
	return (uint8_t *)cqe;
}

#endif
