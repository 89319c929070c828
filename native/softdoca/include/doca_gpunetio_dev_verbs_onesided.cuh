/* SPDX-License-Identifier: Apache-2.0 */
/* GPUNetIO Verbs for device code, part 4: put, get and signals. Each function posts, and sets *ticket
 * to the index of its last entry. With EXEC_SCOPE_WARP all lanes call it, each with its own
 * arguments, and one doorbell serves them. */
#ifndef DOCA_GPUNETIO_DEV_VERBS_ONESIDED_CUH
#define DOCA_GPUNETIO_DEV_VERBS_ONESIDED_CUH

#include <doca_gpunetio_dev_verbs_post.cuh>

#define DOCA_PRIV_GPUNETIO_MODES                                                                   \
	enum doca_gpu_dev_verbs_resource_sharing_mode sharing =                                    \
		DOCA_GPUNETIO_VERBS_RESOURCE_SHARING_MODE_GPU,                                     \
	enum doca_gpu_dev_verbs_nic_handler handler = DOCA_GPUNETIO_VERBS_NIC_HANDLER_AUTO
#define DOCA_PRIV_GPUNETIO_SCOPE                                                                   \
	enum doca_gpu_dev_verbs_exec_scope scope = DOCA_GPUNETIO_VERBS_EXEC_SCOPE_THREAD
#define DOCA_PRIV_GPUNETIO_OPTIONS uint32_t code_opt = DOCA_GPUNETIO_VERBS_GPU_CODE_OPT_DEFAULT

template <DOCA_PRIV_GPUNETIO_MODES, DOCA_PRIV_GPUNETIO_SCOPE>
DOCA_GPUNETIO_DEVICE void doca_gpu_dev_verbs_put(struct doca_gpu_dev_verbs_qp *qp,
						 struct doca_gpu_dev_verbs_addr raddr,
						 struct doca_gpu_dev_verbs_addr laddr, size_t size,
						 doca_gpu_dev_verbs_ticket_t *ticket,
						 DOCA_PRIV_GPUNETIO_OPTIONS)
{
	*ticket = doca_priv_gpu_dev_verbs_post<sharing, handler, scope>(
		qp, doca_priv_gpu_dev_verbs_parts(size), 0, code_opt,
		[=](struct doca_gpu_dev_verbs_wqe *wqe, uint64_t index, uint32_t part) {
			doca_priv_gpu_dev_verbs_transfer(qp, wqe, index, part,
							 DOCA_GPUNETIO_IB_MLX5_OPCODE_RDMA_WRITE,
							 raddr, laddr, size);
		});
}

template <DOCA_PRIV_GPUNETIO_MODES, DOCA_PRIV_GPUNETIO_SCOPE>
DOCA_GPUNETIO_DEVICE void doca_gpu_dev_verbs_put(struct doca_gpu_dev_verbs_qp *qp,
						 struct doca_gpu_dev_verbs_addr raddr,
						 struct doca_gpu_dev_verbs_addr laddr, size_t size,
						 DOCA_PRIV_GPUNETIO_OPTIONS)
{
	doca_gpu_dev_verbs_ticket_t ticket;
	doca_gpu_dev_verbs_put<sharing, handler, scope>(qp, raddr, laddr, size, &ticket, code_opt);
}

/* Writes a value of up to 28 bytes, which travels in the entry. */
template <typename T, DOCA_PRIV_GPUNETIO_MODES, DOCA_PRIV_GPUNETIO_SCOPE>
DOCA_GPUNETIO_DEVICE void doca_gpu_dev_verbs_p(struct doca_gpu_dev_verbs_qp *qp,
					       struct doca_gpu_dev_verbs_addr raddr, T value,
					       doca_gpu_dev_verbs_ticket_t *ticket,
					       DOCA_PRIV_GPUNETIO_OPTIONS)
{
	static_assert(sizeof(T) <= DOCA_GPUNETIO_VERBS_MAX_INLINE_SIZE, "an inline value is smaller");
	*ticket = doca_priv_gpu_dev_verbs_post<sharing, handler, scope>(
		qp, 1, 0, code_opt,
		[=](struct doca_gpu_dev_verbs_wqe *wqe, uint64_t index, uint32_t) {
			doca_gpu_dev_verbs_wqe_prepare_write_inl(
				qp, wqe, (uint16_t)index, DOCA_GPUNETIO_IB_MLX5_WQE_CTRL_CQ_UPDATE,
				raddr.addr, raddr.key, (uint64_t)&value, sizeof value);
		});
}

template <typename T, DOCA_PRIV_GPUNETIO_MODES, DOCA_PRIV_GPUNETIO_SCOPE>
DOCA_GPUNETIO_DEVICE void doca_gpu_dev_verbs_p(struct doca_gpu_dev_verbs_qp *qp,
					       struct doca_gpu_dev_verbs_addr raddr, T value,
					       DOCA_PRIV_GPUNETIO_OPTIONS)
{
	doca_gpu_dev_verbs_ticket_t ticket;
	doca_gpu_dev_verbs_p<T, sharing, handler, scope>(qp, raddr, value, &ticket, code_opt);
}

/* After the bytes, adds sig_val to a remote word of 8 bytes; its previous value goes to sig_laddr. */
template <enum doca_gpu_dev_verbs_signal_op sig_op, DOCA_PRIV_GPUNETIO_MODES,
	  DOCA_PRIV_GPUNETIO_SCOPE>
DOCA_GPUNETIO_DEVICE void
doca_gpu_dev_verbs_put_signal(struct doca_gpu_dev_verbs_qp *qp,
			      struct doca_gpu_dev_verbs_addr raddr,
			      struct doca_gpu_dev_verbs_addr laddr, size_t size,
			      struct doca_gpu_dev_verbs_addr sig_raddr,
			      struct doca_gpu_dev_verbs_addr sig_laddr, uint64_t sig_val,
			      doca_gpu_dev_verbs_ticket_t *ticket, DOCA_PRIV_GPUNETIO_OPTIONS)
{
	const uint32_t parts = doca_priv_gpu_dev_verbs_parts(size);
	*ticket = doca_priv_gpu_dev_verbs_post<sharing, handler, scope>(
		qp, parts + 1, 0, code_opt,
		[=](struct doca_gpu_dev_verbs_wqe *wqe, uint64_t index, uint32_t part) {
			if (part == parts)
				doca_priv_gpu_dev_verbs_fetch_add(qp, wqe, index, sig_raddr,
								  sig_laddr, sig_val);
			else
				doca_priv_gpu_dev_verbs_transfer(
					qp, wqe, index, part, DOCA_GPUNETIO_IB_MLX5_OPCODE_RDMA_WRITE,
					raddr, laddr, size);
		});
}

template <enum doca_gpu_dev_verbs_signal_op sig_op, DOCA_PRIV_GPUNETIO_MODES,
	  DOCA_PRIV_GPUNETIO_SCOPE>
DOCA_GPUNETIO_DEVICE void
doca_gpu_dev_verbs_put_signal(struct doca_gpu_dev_verbs_qp *qp,
			      struct doca_gpu_dev_verbs_addr raddr,
			      struct doca_gpu_dev_verbs_addr laddr, size_t size,
			      struct doca_gpu_dev_verbs_addr sig_raddr,
			      struct doca_gpu_dev_verbs_addr sig_laddr, uint64_t sig_val,
			      DOCA_PRIV_GPUNETIO_OPTIONS)
{
	doca_gpu_dev_verbs_ticket_t ticket;
	doca_gpu_dev_verbs_put_signal<sig_op, sharing, handler, scope>(
		qp, raddr, laddr, size, sig_raddr, sig_laddr, sig_val, &ticket, code_opt);
}

template <enum doca_gpu_dev_verbs_signal_op sig_op, DOCA_PRIV_GPUNETIO_MODES,
	  DOCA_PRIV_GPUNETIO_SCOPE>
DOCA_GPUNETIO_DEVICE void
doca_gpu_dev_verbs_signal(struct doca_gpu_dev_verbs_qp *qp,
			  struct doca_gpu_dev_verbs_addr sig_raddr,
			  struct doca_gpu_dev_verbs_addr sig_laddr, uint64_t sig_val,
			  doca_gpu_dev_verbs_ticket_t *ticket, DOCA_PRIV_GPUNETIO_OPTIONS)
{
	*ticket = doca_priv_gpu_dev_verbs_post<sharing, handler, scope>(
		qp, 1, 0, code_opt,
		[=](struct doca_gpu_dev_verbs_wqe *wqe, uint64_t index, uint32_t) {
			doca_priv_gpu_dev_verbs_fetch_add(qp, wqe, index, sig_raddr, sig_laddr,
							  sig_val);
		});
}

/* Waits for an entry, or for all that are reserved so far. */
template <DOCA_PRIV_GPUNETIO_MODES>
DOCA_GPUNETIO_DEVICE void doca_gpu_dev_verbs_wait(struct doca_gpu_dev_verbs_qp *qp,
						  doca_gpu_dev_verbs_ticket_t ticket)
{
	doca_gpu_dev_verbs_poll_cq_at<sharing>(doca_gpu_dev_verbs_qp_get_cq_sq(qp), ticket);
}

template <DOCA_PRIV_GPUNETIO_MODES>
DOCA_GPUNETIO_DEVICE void doca_gpu_dev_verbs_wait(struct doca_gpu_dev_verbs_qp *qp)
{
	const uint64_t reserved =
		doca_gpu_dev_verbs_atomic_read<uint64_t, sharing>(&qp->sq_rsvd_index);
	if (reserved)
		doca_gpu_dev_verbs_wait<sharing, handler>(qp, reserved - 1);
}

/* Reads remote memory. With MCST_ENABLED a DUMP of daddr follows, and its index is the ticket. */
template <DOCA_PRIV_GPUNETIO_MODES, DOCA_PRIV_GPUNETIO_SCOPE,
	  enum doca_gpu_dev_verbs_mcst_mode mcst = DOCA_GPUNETIO_VERBS_MCST_DISABLED,
	  enum doca_gpu_dev_verbs_blocking_mode blocking =
		  DOCA_GPUNETIO_VERBS_BLOCKING_MODE_DISABLED>
DOCA_GPUNETIO_DEVICE void doca_gpu_dev_verbs_get(struct doca_gpu_dev_verbs_qp *qp,
						 struct doca_gpu_dev_verbs_addr raddr,
						 struct doca_gpu_dev_verbs_addr laddr, size_t size,
						 struct doca_gpu_dev_verbs_addr daddr,
						 doca_gpu_dev_verbs_ticket_t *ticket,
						 DOCA_PRIV_GPUNETIO_OPTIONS)
{
	const uint32_t parts = doca_priv_gpu_dev_verbs_parts(size);
	*ticket = doca_priv_gpu_dev_verbs_post<sharing, handler, scope>(
		qp, parts, mcst == DOCA_GPUNETIO_VERBS_MCST_ENABLED, code_opt,
		[=](struct doca_gpu_dev_verbs_wqe *wqe, uint64_t index, uint32_t part) {
			if (part == parts)
				doca_gpu_dev_verbs_wqe_prepare_dump(
					qp, wqe, (uint16_t)index,
					DOCA_GPUNETIO_IB_MLX5_WQE_CTRL_CQ_UPDATE, daddr.addr,
					daddr.key, 1);
			else
				doca_priv_gpu_dev_verbs_transfer(
					qp, wqe, index, part, DOCA_GPUNETIO_IB_MLX5_OPCODE_RDMA_READ,
					raddr, laddr, size);
		});
	if (blocking == DOCA_GPUNETIO_VERBS_BLOCKING_MODE_ENABLED)
		doca_gpu_dev_verbs_wait<sharing, handler>(qp, *ticket);
}

template <DOCA_PRIV_GPUNETIO_MODES,
	  enum doca_gpu_dev_verbs_mcst_mode mcst = DOCA_GPUNETIO_VERBS_MCST_DISABLED>
DOCA_GPUNETIO_DEVICE void doca_gpu_dev_verbs_get_wait(struct doca_gpu_dev_verbs_qp *qp,
						      struct doca_gpu_dev_verbs_addr daddr,
						      doca_gpu_dev_verbs_ticket_t ticket)
{
	if (mcst == DOCA_GPUNETIO_VERBS_MCST_ENABLED)
		doca_priv_gpu_dev_verbs_dump<sharing, handler>(qp, daddr);
	doca_gpu_dev_verbs_wait<sharing, handler>(qp, ticket);
}

template <DOCA_PRIV_GPUNETIO_MODES,
	  enum doca_gpu_dev_verbs_mcst_mode mcst = DOCA_GPUNETIO_VERBS_MCST_DISABLED>
DOCA_GPUNETIO_DEVICE void doca_gpu_dev_verbs_get_wait(struct doca_gpu_dev_verbs_qp *qp,
						      struct doca_gpu_dev_verbs_addr daddr)
{
	if (mcst == DOCA_GPUNETIO_VERBS_MCST_ENABLED)
		doca_priv_gpu_dev_verbs_dump<sharing, handler>(qp, daddr);
	else
		doca_gpu_dev_verbs_wait<sharing, handler>(qp);
}

#endif
